package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

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
	var st statusAnswer
	if err := json.Unmarshal(raw, &st); err != nil {
		return err
	}
	p.status(st)
	return p.Flush()
}

// statusAnswer is the answer to status, with the figures of the chunks as they
// come: these are for people.
type statusAnswer struct {
	daemonStatus
	Chunks json.RawMessage `json:"chunks"`
}

// Figures that are shown first, in this order; all others follow by name.
var (
	cacheFigures  = []string{"hits", "misses", "invalidations"} // without cache_ before the name
	replayFigures = []string{"replay_builds", "replay_extensions", "full_scans", "tail_scans", "digest_reads", "bytes_read", "lines_parsed"}
)

// figures writes those of the figures that are there: the first ones in their
// order, the rest by name.
func figures(all map[string]string, first []string) string {
	rest := maps.Clone(all)
	var parts []string
	for _, name := range first {
		if value, ok := rest[name]; ok {
			parts = append(parts, figureName(name)+" "+value)
			delete(rest, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		parts = append(parts, figureName(name)+" "+rest[name])
	}
	return strings.Join(parts, ", ")
}

// figureName is a name in words: bytes_read and heldBytes are of two words.
func figureName(name string) string {
	var b strings.Builder
	for i, r := range name {
		switch {
		case r == '_':
			b.WriteByte(' ')
		case i > 0 && unicode.IsUpper(r):
			b.WriteByte(' ')
			b.WriteRune(unicode.ToLower(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// counters splits the counters of replays into those of the cache, without
// "cache" in their names, and the others.
func counters(all map[string]uint64) (cache, others map[string]string) {
	cache, others = map[string]string{}, map[string]string{}
	for name, n := range all {
		value := strconv.FormatUint(n, 10)
		if short, ok := strings.CutPrefix(name, "cache_"); ok {
			cache[short] = value
		} else if slices.Contains(cacheFigures, name) {
			cache[name] = value
		} else {
			others[name] = value
		}
	}
	return cache, others
}

// values reads the members of an object, numbers as they are written; what is
// no object has none.
func values(object json.RawMessage) map[string]string {
	var members map[string]json.RawMessage
	out := map[string]string{}
	if len(object) == 0 || json.Unmarshal(object, &members) != nil {
		return out
	}
	for name, value := range members {
		out[name] = string(value)
		var text string
		if json.Unmarshal(value, &text) == nil {
			out[name] = text
		}
	}
	return out
}

func (p *printer) status(st statusAnswer) {
	p.linef("daemon       version %s, pid %d, up %v", st.Version, st.PID, time.Duration(st.UptimeSeconds*float64(time.Second)).Round(time.Second))
	p.linef("socket       %s", st.Socket)
	p.linef("state        %s", st.StateDir)
	p.linef("sessions     %d, %d open, %d attachments", st.Sessions, st.Open, st.Attachments)
	if st.Server != nil {
		p.linef("connections  %d; closed as slow %d, refused users %d", st.Server.Connections, st.Server.SlowClients, st.Server.RefusedPeers)
	}
	cache, replays := counters(st.Replay)
	p.linef("replay cache %d of %d bytes; %s", st.ReplayCache.HeldBytes, st.ReplayCache.BoundBytes, figures(cache, cacheFigures))
	p.linef("replays      %s", figures(replays, replayFigures))
	r := st.RecordIndex
	p.linef("record index %d of %d bytes held, %d in its file; pages written %d, read %d", r.HeldBytes, r.BoundBytes, r.FileBytes, r.Writes, r.Reads)
	p.linef("chunks       %d bytes held", st.ChunkBytes)
	if more := figures(values(st.Chunks), nil); more != "" {
		p.linef("             %s", more)
	}
	x := st.Index
	p.linef("index        %d bytes, schema %d, %d sessions; rebuilt %d, bad values %d, dropped writes %d",
		x.Bytes, x.Schema, x.Sessions, x.Rebuilt, x.BadValues, x.DroppedWrites)
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
