package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"sessiond/wire/client"
)

func newStatusCommand(o *rootOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Print how the daemon is",
		Long: `status prints the daemon's figures, the roots it follows and what is degraded.

-o json prints all that the daemon says.

Exit code 7: no daemon answers.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runStatus(cmd, o) },
	}
}

func runStatus(cmd *cobra.Command, o *rootOptions) error {
	p, err := o.printer(cmd, formatText, formatJSON)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	err = o.ask(cmd, answerWithin, func(ctx context.Context, c *client.Conn) error {
		raw, err = c.Status(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if p.format == formatJSON {
		p.Write(raw)
		return errors.Join(p.WriteByte('\n'), p.Flush())
	}
	var st daemonStatus
	if err := json.Unmarshal(raw, &st); err != nil {
		return err
	}
	p.status(st)
	return p.Flush()
}

func (p *printer) status(st daemonStatus) {
	p.linef("daemon       version %s, pid %d, up %v", st.Version, st.PID, time.Duration(st.UptimeSeconds*float64(time.Second)).Round(time.Second))
	p.linef("socket       %s", st.Socket)
	p.linef("state        %s", st.StateDir)
	p.linef("sessions     %d, %d open, %d attachments", st.Sessions, st.Open, st.Attachments)
	if st.Server != nil {
		p.linef("connections  %d; closed as slow %d, refused users %d", st.Server.Connections, st.Server.SlowClients, st.Server.RefusedPeers)
	}
	p.linef("memory       replay cache %d of %d bytes, chunks %d bytes", st.ReplayCache.HeldBytes, st.ReplayCache.BoundBytes, st.ChunkBytes)
	for _, r := range st.Roots {
		if r.Error != "" {
			p.linef("root         %s %s: %s", r.Name, r.Path, p.paint(red, r.Error))
			continue
		}
		p.linef("root         %s %s, followed by %s", r.Name, r.Path, r.Watch)
		if r.Why != "" {
			p.linef("             %s", r.Why)
		}
	}
	for _, d := range st.Degraded {
		p.linef("degraded     %s", p.paint(yellow, d))
	}
}
