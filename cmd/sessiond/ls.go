package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"sessiond/cmd/sessiond/internal/term"
	"sessiond/wire"
	"sessiond/wire/client"
)

const lsLong = `ls lists the sessions that the daemon knows, the last active first. What is not
known without reading a file is shown as "-" until somebody attached to it.

-o jsonl prints a line for each session, -o json one array of the same objects.`

func newLsCommand(o *rootOptions) *cobra.Command {
	var list client.ListOptions
	var limit int
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List sessions",
		Long:  lsLong,
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usageErrorf(cmd, "--limit %d, want at least 0", limit)
			}
			if list.Order != "activity" && list.Order != "key" {
				return usageErrorf(cmd, "--order %q, want activity or key", list.Order)
			}
			if limit > 0 {
				list.Page = min(limit, wire.ListLimitMax)
			}
			return runLs(cmd, o, list, limit)
		},
	}
	f := cmd.Flags()
	f.StringVar(&list.Root, "root", "", "only sessions of this root; owned is the daemon's own")
	f.StringVar(&list.Order, "order", "activity", "activity or key")
	f.IntVar(&limit, "limit", 0, "at most so many; 0 means all")
	return cmd
}

func runLs(cmd *cobra.Command, o *rootOptions, list client.ListOptions, limit int) error {
	p, err := o.printer(cmd, formatText, formatJSON, formatJSONL)
	if err != nil {
		return err
	}
	rows := p.items()
	err = o.ask(cmd, answerWithin, func(ctx context.Context, c *client.Conn) error {
		n := 0
		for s, err := range c.List(ctx, list) {
			if err != nil || limit > 0 && n == limit {
				return err
			}
			n++
			if p.format == formatText {
				p.session(s)
				continue
			}
			if err := p.jsonItem(&rows, s); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	rows.end()
	return p.Flush()
}

// session prints a line of the listing: what is of one width first, then the
// name to attach with, then the title.
func (p *printer) session(s wire.Session) {
	active, messages, title := "-", "-", ""
	if s.Modified != nil {
		active = *s.Modified
	}
	if s.MessageCount != nil {
		messages = strconv.Itoa(*s.MessageCount)
	}
	if s.Title != nil {
		title = "  " + term.Truncate(*s.Title, 60)
	}
	p.linef("%-24s  %6s  %10d  %s%s", active, messages, s.Bytes, s.Session, p.paint(dim, title))
	if s.Error != "" {
		p.linef("  %s", p.paint(red, "error: "+s.Error))
	}
}

// jsonItem prints a value as the next of a list.
func (p *printer) jsonItem(l *items, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%T: %w", v, err)
	}
	l.next()
	_, err = p.Write(b)
	return err
}
