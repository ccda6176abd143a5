package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sessiond/replay"
	"sessiond/wire"
	"sessiond/wire/client"
)

// attachOptions are the flags of attach.
type attachOptions struct {
	*rootOptions
	view         string
	from         string
	cursorFile   string
	mirror       string
	noFollow     bool
	verify       bool
	all          bool
	bounded      string
	reconnectFor time.Duration
}

const attachLong = `attach prints a session and goes on with what happens to it, until it is
interrupted or, with --no-follow, until all that was there is printed. It
connects again by itself when the daemon goes away, and then goes on exactly
where it was.

SESSION is a session's key (root:path), its id as "sessiond ls" shows it, its
file's name, or the beginning of one of them that fits no other session.

Views: transcript (all messages of the active branch; the default), context
(what a resume would give the model), records (every line of the file).

-o text    for reading. On a terminal it begins with the last 200 messages;
           --all begins with the first. Terminal control in messages is escaped.
           A last line that is not ended is not shown.
-o jsonl   each frame of the attachment as the daemon sent it, and its replies.
-o raw     view records only: the bytes of the file, up to its last LF.

--cursor-file FILE goes on where the last run with FILE ended; where there is no
FILE yet, --from counts. FILE is replaced at most every 100 ms and at the end,
always after the output. When attach itself is killed, what was printed after
the last replacement is printed again.
--mirror FILE appends the session's bytes to FILE instead, and goes on where
FILE ends, so nothing repeats. It never takes anything away: if the session
does not begin with what FILE holds, that is a conflict.

--bounded says what to show of a transcript or context that is over the daemon's
limits, instead of failing: window, its last messages within the limits, or
summary, none of them; then what happens. Numbers of messages stay those of the
whole view. A line on stderr says what is shown and why it is not all.

--verify ends with a line on stderr: what was received, gaps, duplicates, and
SHA-256 sums of what was received and of the same part of the session's file,
if that can be read here. In view records they are sums of bytes (with -o raw or
--mirror), in message views sums over the sums of the messages; of a bounded view from the
first message shown on. A difference is exit code 1.

Exit codes: 6 no such session, or it was removed; 7 no daemon within
--reconnect-for; 8 conflict; 130 interrupted.`

func newAttachCommand(root *rootOptions) *cobra.Command {
	o := &attachOptions{rootOptions: root}
	cmd := &cobra.Command{
		Use:               "attach SESSION",
		Short:             "Print a session and follow it",
		Long:              attachLong,
		Args:              usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: root.completeSessions,
		RunE:              func(cmd *cobra.Command, args []string) error { return runAttach(cmd, o, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&o.view, "view", "", "transcript, context or records (default transcript; records with -o raw and --mirror)")
	f.StringVar(&o.from, "from", "start", "where to begin: start, now (view records), or the text of a cursor file")
	f.StringVar(&o.cursorFile, "cursor-file", "", "file that remembers where to go on")
	f.StringVar(&o.mirror, "mirror", "", "append the session's bytes to this file instead of printing")
	f.BoolVar(&o.noFollow, "no-follow", false, "end when all that was there is printed")
	f.BoolVar(&o.verify, "verify", false, "end with a line that proves what was received")
	f.BoolVar(&o.all, "all", false, "on a terminal too, begin with the first message")
	f.StringVar(&o.bounded, "bounded", "", "what to show of a message view over the daemon's limits: window (its last messages) or summary (none); default: fail")
	reconnectFlag(cmd, &o.reconnectFor)
	_ = cmd.RegisterFlagCompletionFunc("view", cobra.FixedCompletions([]string{"transcript", "context", "records"}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	_ = cmd.RegisterFlagCompletionFunc("bounded", cobra.FixedCompletions(wire.BoundedModes, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// attachRun is one attach under way.
type attachRun struct {
	cmd     *cobra.Command
	opt     client.Options
	ao      client.AttachOptions
	printer *printer
	show    func(client.Item) error // to the printer or the mirror
	text    *textView               // behind show, nil without
	cursor  *placeFile              // nil without
	mirror  *mirror                 // nil without
	proof   *proof                  // nil without --verify
	began   bool                    // attached at least once
	held    bool                    // something of the view was received
	removed bool                    // the session's file is gone
	broken  bool                    // a break was told of
}

func runAttach(cmd *cobra.Command, o *attachOptions, session string) (err error) {
	r := &attachRun{cmd: cmd}
	if err := o.plan(r, session); err != nil {
		return err
	}
	if o.mirror != "" {
		if r.mirror, err = openMirror(o.mirror); err != nil {
			return err
		}
		defer r.mirror.close()
		r.ao.From, r.show = r.mirror.place(), r.mirror.item
	}
	if r.cursor != nil {
		if r.ao.From, err = r.cursor.load(r.ao.From); err != nil {
			return err
		}
	}
	if r.text != nil && r.ao.From.Have != nil {
		r.text.slots = *r.ao.From.Have
	}
	ctx := cmd.Context()
	a, err := client.Attach(ctx, r.opt, r.ao)
	if err != nil {
		return r.explain(ctx, err)
	}
	defer a.Close()
	if o.verify {
		r.proof = newProof(r.opt, session, r.ao)
	}
	err = r.follow(ctx, a)
	if r.cursor != nil {
		err = errors.Join(err, r.cursor.close())
	}
	if r.proof != nil {
		err = errors.Join(err, r.proof.report(context.WithoutCancel(ctx), cmd, a.Place()))
	}
	return r.explain(ctx, err)
}

// plan makes the options of the attachment of the flags.
func (o *attachOptions) plan(r *attachRun, session string) error {
	cmd := r.cmd
	var err error
	if r.printer, err = o.printer(cmd, formatText, formatJSONL, formatRaw); err != nil {
		return err
	}
	raw := r.printer.format == formatRaw || o.mirror != ""
	view := wire.View(o.view)
	if view == "" && raw {
		view = wire.ViewRecords
	} else if view == "" {
		view = wire.ViewTranscript
	}
	switch {
	case !view.Valid():
		return usageErrorf(cmd, "--view %q, want transcript, context or records", o.view)
	case raw && view != wire.ViewRecords:
		return usageErrorf(cmd, "-o raw and --mirror are of view records, not of view %s", view)
	case o.bounded != "" && !slices.Contains(wire.BoundedModes, o.bounded):
		return usageErrorf(cmd, "--bounded %q, want %s", o.bounded, strings.Join(wire.BoundedModes, " or "))
	case o.bounded != "" && view == wire.ViewRecords:
		return usageErrorf(cmd, "--bounded is of views transcript and context: view records has no limits")
	case o.mirror != "" && (o.cursorFile != "" || cmd.Flags().Changed("from")):
		return usageErrorf(cmd, "--mirror takes its place from the file; it goes without --from and --cursor-file")
	case o.verify && view == wire.ViewRecords && !raw:
		return usageErrorf(cmd, "--verify in view records wants -o raw or --mirror, which have the file's bytes")
	case o.from == "now" && view != wire.ViewRecords:
		return usageErrorf(cmd, "--from now is of view records: a message view needs what is there already")
	}
	if r.opt, err = o.client(cmd); err != nil {
		return err
	}
	r.ao = client.AttachOptions{
		Session: session, View: view, Bounded: o.bounded, Once: o.noFollow, Reconnect: reconnect(o.reconnectFor),
		OnBreak: func(err error) {
			if !r.broken { // once, however often it is tried
				notice(cmd, "%v; trying again for %v", err, o.reconnectFor)
			}
			r.broken = true
		},
	}
	if raw {
		r.ao.Encoding = wire.EncodingRaw
	}
	switch o.from {
	case "start":
	case "now":
		r.ao.Now = true
	default:
		if r.ao.From, err = client.ParsePlace(o.from); err != nil {
			return usageErrorf(cmd, "--from: %w", err)
		}
	}
	if o.cursorFile != "" {
		if r.cursor, err = newPlaceFile(o.cursorFile); err != nil {
			return err
		}
	}
	o.sink(r)
	return nil
}

// sink chooses how items are shown.
func (o *attachOptions) sink(r *attachRun) {
	switch r.printer.format {
	case formatRaw:
		r.show = func(item client.Item) error {
			if rec, ok := item.(*client.Records); ok {
				_, err := r.printer.Write(rec.Body)
				return err
			}
			return nil
		}
	case formatJSONL:
		r.ao.OnFrame = func(line, _ []byte) {
			r.printer.Write(line)
			r.printer.WriteByte('\n')
		}
		r.show = func(client.Item) error { return nil }
	default:
		r.text = &textView{p: r.printer, view: r.ao.View}
		if isTerminal(r.cmd.OutOrStdout()) && !o.all {
			r.text.tailMax = tailMessages
		}
		r.show = r.text.item
	}
}

// follow shows items until the attachment is over.
func (r *attachRun) follow(ctx context.Context, a *client.Attachment) error {
	for item, err := range a.Frames(ctx) {
		if err != nil {
			return err
		}
		r.notices(item)
		if r.proof != nil {
			if err := r.proof.item(ctx, item, a.Place()); err != nil {
				return err
			}
		}
		if err := r.show(item); err != nil {
			return err
		}
		if err := r.printer.Flush(); err != nil {
			return fmt.Errorf("output: %w", err)
		}
		if r.cursor != nil && (r.text == nil || !r.text.holds()) {
			r.cursor.note(a.Place())
		}
	}
	if r.removed {
		return &exitError{exitNotFound, fmt.Errorf("session %s: its file was removed", r.ao.Session)}
	}
	return nil
}

// notices tells a person what the data alone would not.
func (r *attachRun) notices(item client.Item) {
	switch f := item.(type) {
	case *wire.AttachResult:
		if r.broken && r.began && f.Mode == wire.ModeTail {
			notice(r.cmd, "connected again; going on where it was")
		} else if r.broken {
			notice(r.cmd, "connected")
		}
		r.broken = false
		if r.ao.View != wire.ViewRecords && strings.HasPrefix(f.RulesRevision, replay.Unknown+"/") {
			notice(r.cmd, "the session is of no known format so far; view records shows its lines")
		}
		r.began = true
	case *wire.SnapshotBegin:
		resumed := !r.ao.From.IsStart()
		if f.FirstIndex == 0 && (r.held || resumed) && r.mirror == nil {
			notice(r.cmd, "the view begins again (%s): what was printed before is void", reasonOf(f))
		}
		r.held = true
		if b := f.Bounded; b != nil && f.MessageCount != nil {
			notice(r.cmd, "%s: %d of %d messages are shown; all are made of %d %s, and the daemon's limit is %d",
				b.Mode, *f.MessageCount, b.First+*f.MessageCount, b.Seen, b.Unit, b.Limit)
		}
	case *wire.Event, *wire.Records:
		r.held = true // also where nothing was printed at the start
	case *wire.SnapshotFailed:
		notice(r.cmd, "the view could not be sent: %s", f.ErrorMessage)
	case *wire.Removed:
		r.removed = true
	}
}

func reasonOf(f *wire.SnapshotBegin) string {
	if f.Reason != nil && *f.Reason != "" {
		return f.Purpose + ", " + *f.Reason
	}
	return f.Purpose
}

// explain gives the end of an attach its exit code.
func (r *attachRun) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return &exitError{code: exitInterrupted}
	}
	var refused *wire.Error
	if errors.As(err, &refused) && refused.Code == wire.CodeHistoryBudgetExceeded && refused.Detail["accepts"] != nil {
		return fmt.Errorf("%w; --bounded window shows its last messages", err)
	}
	return explainClient(err)
}
