package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"sessiond/wire"
	"sessiond/wire/client"
	"sessiond/wire/sock"
)

func newCreateCommand(o *rootOptions) *cobra.Command {
	var create client.CreateOptions
	cmd := &cobra.Command{
		Use:   "create [ID]",
		Short: "Make an owned session",
		Long: `create makes an owned session, or finds the one of that id there already. Without
an ID the daemon chooses one.

-o text prints the session's key, -o json the daemon's whole answer.`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				create.SessionID = args[0]
			}
			return runCreate(cmd, o, create)
		},
	}
	cmd.Flags().StringVar(&create.Dialect, "dialect", "pi", "pi, eventlog or raw; the last two begin without a header")
	cmd.Flags().StringVar(&create.CWD, "cwd", "", "working folder for the header (default the current one)")
	return cmd
}

func runCreate(cmd *cobra.Command, o *rootOptions, create client.CreateOptions) error {
	p, err := o.printer(cmd, formatText, formatJSON)
	if err != nil {
		return err
	}
	if create.CWD == "" {
		if dir, err := os.Getwd(); err == nil {
			create.CWD = dir
		}
	}
	var made wire.CreateResult
	err = o.ask(cmd, answerWithin, func(ctx context.Context, c *client.Conn) error {
		made, err = c.Create(ctx, create)
		return err
	})
	if err != nil {
		return err
	}
	if p.format == formatJSON {
		if err := p.json(made); err != nil {
			return err
		}
	} else {
		p.linef("%s", made.Session)
	}
	return p.Flush()
}

// createEvery is how long to wait before a create is tried again.
const createEvery = 100 * time.Millisecond

// createSession creates over breaks, for as long as a daemon is waited for:
// asking again finds what was made.
func createSession(ctx context.Context, opt client.Options, create client.CreateOptions, wait time.Duration) (wire.CreateResult, error) {
	until := time.Now().Add(wait)
	for {
		made, err := tryCreate(ctx, opt, create)
		var goodbye *client.GoodbyeError
		passes := errors.As(err, &goodbye) && (goodbye.Code == wire.GoodbyeShuttingDown || goodbye.Code == wire.GoodbyeOverloaded) ||
			errors.Is(err, sock.ErrNoDaemon) || errors.Is(err, sock.ErrBusy) || errors.Is(err, client.ErrBroken) ||
			errors.Is(err, &wire.Error{Code: wire.CodeShuttingDown})
		if !passes || !time.Now().Before(until) {
			return made, err
		}
		select {
		case <-time.After(createEvery):
		case <-ctx.Done():
			return made, context.Cause(ctx)
		}
	}
}

func tryCreate(ctx context.Context, opt client.Options, create client.CreateOptions) (wire.CreateResult, error) {
	c, err := client.Dial(ctx, opt)
	if err != nil {
		return wire.CreateResult{}, err
	}
	made, err := c.Create(ctx, create)
	return made, errors.Join(err, c.Close())
}
