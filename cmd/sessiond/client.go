package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sessiond/cmd/sessiond/internal/term"
	"sessiond/wire"
	"sessiond/wire/client"
	"sessiond/wire/sock"
)

const (
	answerWithin   = 10 * time.Second       // of commands that only ask
	completeWithin = 500 * time.Millisecond // of completion, while a person waits
	reconnectFor   = 60 * time.Second
)

// client says how to reach the daemon.
func (o *rootOptions) client(cmd *cobra.Command) (client.Options, error) {
	path, err := o.socketPath()
	return client.Options{Path: path, ClientID: cmd.CommandPath()}, err
}

// ask calls f with a connection and waits no longer than a while.
func (o *rootOptions) ask(cmd *cobra.Command, within time.Duration, f func(context.Context, *client.Conn) error) error {
	opt, err := o.client(cmd)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), within)
	defer cancel()
	c, err := client.Dial(ctx, opt)
	if err == nil {
		err = errors.Join(f(ctx, c), c.Close())
	}
	if errors.Is(err, context.DeadlineExceeded) && cmd.Context().Err() == nil {
		return &exitError{exitUnreachable, fmt.Errorf("the daemon at %s did not answer within %v", opt.Path, within)}
	}
	return explainClient(err)
}

// reconnectFlag adds the flag of commands that survive breaks.
func reconnectFlag(cmd *cobra.Command, d *time.Duration) {
	cmd.Flags().DurationVar(d, "reconnect-for", reconnectFor, "how long to try to reach the daemon, at the start and after a break; 0 means once")
}

func reconnect(d time.Duration) client.Reconnect {
	if d <= 0 {
		d = -1
	}
	return client.Reconnect{For: d}
}

// announce says on stderr that a command waits for a daemon, as nothing else
// would for a minute.
func announce(cmd *cobra.Command, opt client.Options, wait time.Duration) {
	c, err := sock.Dial(cmd.Context(), opt.Path)
	if err == nil {
		c.Close()
		return
	}
	if wait > 0 && errors.Is(err, sock.ErrNoDaemon) {
		notice(cmd, "%v; trying for %v", err, wait)
	}
}

// notice prints a message for a person to stderr.
func notice(cmd *cobra.Command, format string, args ...any) {
	cmd.PrintErrln(term.Lines("sessiond: " + fmt.Sprintf(format, args...)))
}

// explainClient gives an error of a client its exit code, and a person the
// names among which to choose.
func explainClient(err error) error {
	var goodbye *client.GoodbyeError
	var refused *wire.Error
	switch {
	case errors.Is(err, client.ErrBroken), errors.Is(err, sock.ErrBusy), errors.As(err, &goodbye):
		return &exitError{exitUnreachable, err}
	case errors.As(err, &refused) && refused.Code == wire.CodeAmbiguousSession:
		list, _ := refused.Detail["candidates"].([]any)
		names := make([]string, 0, len(list))
		for _, c := range list {
			if name, ok := c.(string); ok {
				names = append(names, "\n  "+term.Safe(name))
			}
		}
		return &exitError{exitNotFound, fmt.Errorf("%w:%s", err, strings.Join(names, ""))}
	}
	return err
}

// completeSessions completes the names of sessions from the daemon; where
// there is none it is quiet.
func (o *rootOptions) completeSessions(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || o.fromEnvironment(cmd) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	const most = 1000
	var names []string
	err := o.ask(cmd, completeWithin, func(ctx context.Context, c *client.Conn) error {
		for s, err := range c.List(ctx, client.ListOptions{Page: most}) {
			if err != nil || len(names) == most {
				return err
			}
			name := s.Session
			if strings.HasPrefix(s.ID, toComplete) {
				name = s.ID
			}
			if !strings.HasPrefix(name, toComplete) || term.Safe(name) != name || strings.ContainsAny(name, " \t") {
				continue
			}
			if s.Title != nil {
				name += "\t" + term.Truncate(*s.Title, 60)
			}
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
