package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"sessiond/replay"
	"sessiond/replay/stamp"
	"sessiond/wire"
	"sessiond/wire/client"
)

// appendOptions are the flags of append.
type appendOptions struct {
	*rootOptions
	create       bool
	expect       string
	reconnectFor time.Duration
}

const appendLong = `append reads JSON objects from stdin, one a line, and adds them to an owned
session. A line is sent as soon as it is there, with those that came meanwhile;
an answer means that it is on disk. Blank lines are skipped.

Every entry needs an id of its own. Then running append again with the same
input changes nothing: what the session holds already is acknowledged as a
duplicate. Sessions of formats without ids take --expect CURSOR instead: the
input goes directly after that cursor, or is there already.

append stops at the first line that is refused and names it; the lines before it
are in the session. It connects again by itself when the daemon goes away.

--create makes the session first, if there is none. If the first line is a
header (type "session"), it becomes the header; else one is made, unless the
first lines are of a format that has none.

-o jsonl prints {"line","cursor","duplicate"} for each line, in order.

Exit codes: 6 no such session; 7 no daemon within --reconnect-for; 8 conflict.`

func newAppendCommand(root *rootOptions) *cobra.Command {
	o := &appendOptions{rootOptions: root}
	cmd := &cobra.Command{
		Use:               "append SESSION",
		Short:             "Add entries from stdin to an owned session",
		Long:              appendLong,
		Example:           "  sessiond append notes --create < entries.jsonl",
		Args:              usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: root.completeSessions,
		RunE:              func(cmd *cobra.Command, args []string) error { return runAppend(cmd, o, args[0]) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.create, "create", false, "make the session if there is none")
	f.StringVar(&o.expect, "expect", "", "cursor after which the input goes, or start: for entries without ids")
	reconnectFlag(cmd, &o.reconnectFor)
	return cmd
}

// appendRun is one append under way.
type appendRun struct {
	printer  *printer
	appender *client.Appender
	added    int
	there    int // already
	head     wire.Cursor
}

func runAppend(cmd *cobra.Command, o *appendOptions, session string) error {
	p, err := o.printer(cmd, formatText, formatJSONL)
	if err != nil {
		return err
	}
	opt, err := o.client(cmd)
	if err != nil {
		return err
	}
	ao := client.AppendOptions{Session: session, Reconnect: reconnect(o.reconnectFor)}
	if o.expect != "" {
		ao.Expect = new(wire.Cursor)
		if o.expect != "start" {
			if *ao.Expect, err = wire.ParseCursor(o.expect); err != nil {
				return usageErrorf(cmd, "--expect: %w", err)
			}
		}
	}
	r := &appendRun{printer: p}
	announce(cmd, opt, o.reconnectFor)
	ctx := cmd.Context()
	input := readLines(cmd.InOrStdin())
	lines, err := input.take(ctx)
	if err == nil && o.create {
		lines, err = r.create(ctx, opt, o, session, lines)
	}
	if err == nil {
		r.appender = client.NewAppender(opt, ao)
		defer r.appender.Close()
		if len(lines) == 0 { // nothing to add, but the answer must be true
			_, err = r.appender.Append(ctx, nil)
		}
		if err == nil {
			err = r.run(ctx, input, lines)
		}
	}
	if r.printer.format == formatText && r.added+r.there > 0 {
		r.printer.linef("%d added, %d there already; head %s", r.added, r.there, r.head.String())
	}
	err = errors.Join(err, r.printer.Flush())
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return &exitError{code: exitInterrupted}
	}
	return explainClient(err)
}

// create makes the session and returns the lines without the header.
func (r *appendRun) create(ctx context.Context, opt client.Options, o *appendOptions, session string, lines []inputLine) ([]inputLine, error) {
	create := client.CreateOptions{SessionID: session}
	if dir, err := os.Getwd(); err == nil {
		create.CWD = dir
	}
	header := len(lines) > 0 && textOf([]byte(lines[0].text), "type") == "session"
	if f, ok := replay.FamilyOfEntries(bytesOf(lines)); ok && !header {
		create.Dialect = f.Name()
	}
	if header {
		create.Header = []byte(lines[0].text)
	}
	made, err := createSession(ctx, opt, create, o.reconnectFor)
	if err != nil && header {
		return nil, fmt.Errorf("line %d: %w", lines[0].number, err)
	}
	if err != nil || !header {
		return lines, err
	}
	at := made.Head
	if made.Existing { // the head is further on
		d := stamp.NewDigest()
		_, _ = d.Write([]byte(lines[0].text + "\n")) // never fails
		at = wire.Cursor{Generation: at.Generation, Sequence: 1, Offset: int64(len(lines[0].text)) + 1, Digest: wire.Digest(d.Sum64())}
	}
	return lines[1:], r.acked(lines[:1], []wire.Ack{{Cursor: at, Duplicate: made.Existing}})
}

// run sends lines until the input ends or one is refused.
func (r *appendRun) run(ctx context.Context, input *inputLines, lines []inputLine) error {
	for {
		good := lines
		var bad error
		for i, l := range lines {
			if !utf8.ValidString(l.text) {
				good, bad = lines[:i], fmt.Errorf("line %d: bytes that are no UTF-8", l.number)
				break
			}
		}
		if err := errors.Join(r.send(ctx, good), bad); err != nil {
			return err
		}
		var err error
		if lines, err = input.take(ctx); err != nil || len(lines) == 0 {
			return err
		}
	}
}

// send appends lines. A batch with a line that is refused is refused as a
// whole, so the lines before it are sent again without it.
func (r *appendRun) send(ctx context.Context, lines []inputLine) error {
	for len(lines) > 0 {
		acks, err := r.appender.Append(ctx, texts(lines))
		if aerr := r.acked(lines[:len(acks)], acks); aerr != nil {
			return aerr
		}
		lines = lines[len(acks):]
		if err == nil {
			continue
		}
		at, named := refused(err)
		if !named || at >= len(lines) {
			return err
		}
		if at > 0 {
			if err := r.send(ctx, lines[:at]); err != nil {
				return err
			}
		}
		return fmt.Errorf("line %d: %w", lines[at].number, err)
	}
	return nil
}

// refused returns which entry of a batch an error is about, and takes its
// number there out of the message: a line has another.
func refused(err error) (at int, named bool) {
	var w *wire.Error
	if !errors.As(err, &w) {
		return 0, false
	}
	n, ok := w.Detail["index"].(float64)
	if !ok || n < 0 {
		return 0, w.Code == wire.CodeTooLarge // found before it was sent, alone in its batch
	}
	at = int(n)
	w.Message = strings.TrimPrefix(w.Message, fmt.Sprintf("entry %d: ", at))
	return at, true
}

// acked notes and prints acknowledgements.
func (r *appendRun) acked(lines []inputLine, acks []wire.Ack) error {
	for i, a := range acks {
		r.head = a.Cursor
		if a.Duplicate {
			r.there++
		} else {
			r.added++
		}
		if r.printer.format == formatText {
			continue
		}
		if err := r.printer.json(struct {
			Line      int    `json:"line"`
			Cursor    string `json:"cursor"`
			Duplicate bool   `json:"duplicate"`
		}{lines[i].number, a.Cursor.String(), a.Duplicate}); err != nil {
			return err
		}
	}
	return r.printer.Flush()
}

func bytesOf(lines []inputLine) [][]byte {
	out := make([][]byte, len(lines))
	for i, l := range lines {
		out[i] = []byte(l.text)
	}
	return out
}

func texts(lines []inputLine) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = l.text
	}
	return out
}
