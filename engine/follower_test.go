package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"sessiond/wire"
)

// follower is a client of one attachment: it keeps what it was told, and
// checks that each frame is what may come next.
type follower struct {
	t       tb
	st      wire.Stream
	wake    chan struct{}
	command wire.Command
	result  wire.AttachResult

	frames      []string // types, in order
	slots       []string // of a message view, from first on; lines of view records in JSON
	first       int
	resumed     bool // by a cursor: the engine does not know first
	raw         bytes.Buffer
	cursor      wire.Cursor
	have        int
	live        bool
	over        bool
	state       *wire.State
	provisional *wire.Provisional
	removed     *wire.Removed
	lastLive    wire.Live

	snapshot *wire.SnapshotBegin // in flight
	begin    wire.SnapshotBegin  // of the last
	end      wire.SnapshotEnd
	failed   wire.SnapshotFailed
	next     int    // index of the next chunk
	digests  []byte // of the chunks of one that was read from its start
}

func (w *world) attach(c wire.Command) *follower {
	w.t.Helper()
	f, err := w.tryAttach(c)
	if err != nil {
		w.fail.Fatalf("attach: %v", err)
	}
	return f
}

func (w *world) tryAttach(c wire.Command) (*follower, error) {
	f := &follower{t: w.fail}
	return f, f.attach(w, c)
}

// attach begins an attachment that goes on from what the follower holds.
func (f *follower) attach(w *world, c wire.Command) error {
	c.Type = wire.CmdAttach
	r, err := w.e.Handle(context.Background(), wire.Request{Command: c, Attachment: "a1"})
	if err != nil {
		return err
	}
	f.st, f.command, f.result = r.Stream, c, r.Result.(wire.AttachResult)
	f.wake = make(chan struct{}, 1)
	f.frames, f.live, f.over, f.snapshot, f.provisional = nil, false, false, nil, nil
	f.resumed = c.Resume != nil && f.result.Mode == wire.ModeTail
	if f.resumed {
		f.cursor = *c.Resume
	}
	wake := f.wake
	f.st.Start(func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	w.t.Cleanup(f.st.Close)
	return nil
}

// resume is the command that goes on from what the follower holds: inside a
// snapshot by position, else by cursor.
func (f *follower) resume() wire.Command {
	c := wire.Command{Session: f.command.Session, View: f.command.View, Encoding: f.command.Encoding, Live: f.command.Live, Bounded: f.command.Bounded}
	switch s := f.snapshot; {
	case s != nil && f.command.Encoding != wire.EncodingRaw:
		c.Position = &wire.Position{SnapshotID: s.SnapshotID, View: s.View, Target: s.TargetChunkBytes, Cut: s.Cut, Index: f.next}
	case s != nil, f.cursor.Offset == 0:
	default:
		cursor, have := f.cursor, f.have
		c.Resume, c.Have, c.RulesRevision = &cursor, &have, f.result.RulesRevision
		if f.command.View == wire.ViewRecords {
			c.Have = nil
		}
	}
	return c
}

// again drops the attachment and resumes.
func (f *follower) again(w *world) {
	w.t.Helper()
	f.st.Close()
	c := f.resume()
	if err := f.attach(w, c); err != nil {
		f.t.Fatalf("attach again by %+v: %v", c, err)
	}
	if c.Position != nil && f.result.Reason != nil || c.Position == nil && f.result.Mode == wire.ModeSnapshot {
		f.slots, f.first, f.have, f.cursor = nil, 0, 0, wire.Cursor{}
		f.raw.Reset()
	}
}

// pull takes up to n frames and reports whether there may be more now.
func (f *follower) pull(n int) bool {
	f.t.Helper()
	for range n {
		if f.over {
			return false
		}
		frame, ok, err := f.st.Next()
		switch {
		case errors.Is(err, io.EOF):
			f.over = true
		case err != nil:
			f.t.Fatalf("Next: %v; frames %v", err, f.frames)
		case !ok:
			return false
		default:
			f.take(frame)
		}
	}
	return true
}

// drain takes all that there is now: of a snapshot in flight, all of it.
func (f *follower) drain() {
	f.t.Helper()
	for f.pull(1) || f.packed() {
	}
}

// packed waits for a chunk that is being packed, if that is what the follower
// waits for.
func (f *follower) packed() bool {
	f.t.Helper()
	if f.over || f.snapshot == nil {
		return false
	}
	timeout := time.NewTimer(patience)
	defer timer(timeout)()
	select {
	case <-f.wake:
		return true
	case <-timeout.C:
		f.t.Fatalf("the snapshot stops; frames %v", f.frames)
		return false
	}
}

// until pulls frames until done says so or nothing comes for a while.
func (f *follower) until(what string, done func() bool) {
	f.t.Helper()
	timeout := time.NewTimer(patience)
	defer timer(timeout)()
	for !done() {
		if f.pull(1) {
			continue
		}
		if f.over && !done() {
			f.t.Fatalf("the attachment is over before %s; frames %v", what, f.frames)
		}
		if f.over {
			return
		}
		select {
		case <-f.wake:
		case <-timeout.C:
			f.t.Fatalf("nothing comes before %s; frames %v", what, f.frames)
		}
	}
}

func timer(t *time.Timer) func() { return func() { t.Stop() } }

func (f *follower) untilLive() { f.t.Helper(); f.until("live", func() bool { return f.live }) }

func (f *follower) untilOver() { f.t.Helper(); f.until("the end", func() bool { return f.over }) }

func (f *follower) untilSequence(n int) {
	f.t.Helper()
	f.until(fmt.Sprintf("record %d", n), func() bool { return f.live && int(f.cursor.Sequence) >= n })
}

func (f *follower) count(typ string) int {
	n := 0
	for _, t := range f.frames {
		if t == typ {
			n++
		}
	}
	return n
}

func (f *follower) take(fr wire.Frame) {
	f.t.Helper()
	b := slices.Concat(fr.Head, fr.Body, fr.Tail)
	if fr.Release != nil {
		fr.Release()
	}
	line, body, ended := bytes.Cut(b, []byte("\n"))
	if !ended || !json.Valid(line) {
		f.t.Fatalf("frame is no line of JSON: %.300s", line)
	}
	if len(line)+1 > wire.InlineBytes+wire.FrameOverhead {
		f.t.Fatalf("frame of %d bytes: %.300s", len(line)+1, line)
	}
	var m map[string]json.RawMessage
	f.decode(line, &m)
	var typ string
	f.decode(m["type"], &typ)
	f.frames = append(f.frames, typ)
	if typ != wire.TypeRecords && len(body) > 0 {
		f.t.Fatalf("%s: %d bytes behind the line", typ, len(body))
	}
	switch typ {
	case wire.TypeSnapshotBegin, wire.TypeSnapshotChunk, wire.TypeSnapshotAmend, wire.TypeSnapshotEnd, wire.TypeSnapshotFailed:
		f.takeSnapshot(typ, line, m)
	case wire.TypeLive:
		f.takeLive(line)
	case wire.TypeEvent:
		f.event(line, m)
	case wire.TypeRecords:
		f.records(line, body)
	case wire.TypeProvisional:
		f.provisional = &wire.Provisional{}
		f.decode(line, f.provisional)
		if !f.live {
			f.t.Fatalf("provisional before live")
		}
	case wire.TypeRemoved:
		f.removed = &wire.Removed{}
		f.decode(line, f.removed)
	default:
		f.t.Fatalf("unknown frame %s", line)
	}
}

func (f *follower) takeLive(line []byte) {
	f.t.Helper()
	if f.live || f.snapshot != nil {
		f.t.Fatalf("live again, or inside a snapshot; frames %v", f.frames)
	}
	f.live = true
	f.lastLive = wire.Live{}
	f.decode(line, &f.lastLive)
	f.state = f.lastLive.State
	if !f.lastLive.Cursor.Same(f.cursor) {
		f.t.Fatalf("live at %v, the client is at %v", f.lastLive.Cursor, f.cursor)
	}
}

func (f *follower) takeSnapshot(typ string, line []byte, m map[string]json.RawMessage) {
	f.t.Helper()
	if (typ == wire.TypeSnapshotBegin) != (f.snapshot == nil) {
		f.t.Fatalf("%s at the wrong time; frames %v", typ, f.frames)
	}
	switch typ {
	case wire.TypeSnapshotBegin:
		f.begin = wire.SnapshotBegin{}
		f.decode(line, &f.begin)
		f.snapshot = &f.begin
		f.next, f.digests, f.live, f.provisional = f.begin.FirstIndex, nil, false, nil
		f.first, f.resumed = f.begin.Bounded.FirstSlot(), false
		if f.begin.FirstIndex == 0 {
			f.slots = nil
			f.raw.Reset()
			f.cursor = wire.Cursor{}
		}
	case wire.TypeSnapshotChunk:
		f.chunk(line, m)
	case wire.TypeSnapshotAmend:
		f.amend(m["amendments"])
	case wire.TypeSnapshotEnd:
		f.snapshotEnd(line)
	case wire.TypeSnapshotFailed:
		f.failed = wire.SnapshotFailed{}
		f.decode(line, &f.failed)
		f.snapshot = nil
		f.slots, f.have, f.cursor = nil, 0, wire.Cursor{}
	}
}

func (f *follower) chunk(line []byte, m map[string]json.RawMessage) {
	f.t.Helper()
	var c wire.SnapshotChunk
	f.decode(line, &c)
	if c.Index != f.next || c.SnapshotID != f.begin.SnapshotID {
		f.t.Fatalf("chunk %d of %s, want %d of %s", c.Index, c.SnapshotID, f.next, f.begin.SnapshotID)
	}
	f.next++
	if got := xxhash.Sum64(m["messages"]); wire.Digest(got) != c.Digest {
		f.t.Fatalf("chunk %d: digest %016x, want %s", c.Index, got, c.Digest)
	}
	if !bytes.HasSuffix(line, append(slices.Clone(m["messages"]), '}')) {
		f.t.Fatalf("chunk %d: messages are not the last member, verbatim", c.Index)
	}
	f.digests = binary.BigEndian.AppendUint64(f.digests, uint64(c.Digest))
	f.add(m)
}

// add takes messages with their meta.
func (f *follower) add(m map[string]json.RawMessage) {
	f.t.Helper()
	var messages, meta []json.RawMessage
	f.decode(m["messages"], &messages)
	f.decode(m["meta"], &meta)
	if len(messages) != len(meta) {
		f.t.Fatalf("%d messages, %d meta", len(messages), len(meta))
	}
	for _, x := range messages {
		f.slots = append(f.slots, string(x))
	}
}

func (f *follower) snapshotEnd(line []byte) {
	f.t.Helper()
	f.end = wire.SnapshotEnd{}
	f.decode(line, &f.end)
	f.snapshot = nil
	switch e := f.end; {
	case e.SnapshotID != f.begin.SnapshotID || e.Cut != f.begin.Cut:
		f.t.Fatalf("end of %s at %v, begin was %s at %v", e.SnapshotID, e.Cut, f.begin.SnapshotID, f.begin.Cut)
	case f.command.Encoding == wire.EncodingRaw:
		if got := xxhash.Sum64(f.raw.Bytes()); wire.Digest(got) != e.Cut.Digest || e.Digest != e.Cut.Digest {
			f.t.Fatalf("raw snapshot: %d bytes of digest %016x, want %s", f.raw.Len(), got, e.Cut.Digest)
		}
	case e.MessageCount != len(f.slots) || *f.begin.MessageCount != len(f.slots):
		f.t.Fatalf("end says %d messages, begin %d; got %d; first chunk %d of %d, frames %v, attached by %+v",
			e.MessageCount, *f.begin.MessageCount, len(f.slots), f.begin.FirstIndex, e.ChunkCount, f.frames, f.result)
	case e.ChunkCount != f.next:
		f.t.Fatalf("end says %d chunks, got %d", e.ChunkCount, f.next)
	case f.begin.FirstIndex == 0 && e.Digest != wire.Digest(xxhash.Sum64(f.digests)):
		f.t.Fatalf("end says digest %s, the chunks have %016x", e.Digest, xxhash.Sum64(f.digests))
	}
	f.cursor, f.have, f.state = f.end.Cut, f.first+f.end.MessageCount, f.end.State
}

func (f *follower) event(line []byte, m map[string]json.RawMessage) {
	f.t.Helper()
	var e wire.Event
	f.decode(line, &e)
	if e.Replayed == f.live || f.snapshot != nil {
		f.t.Fatalf("event replayed %v, client live %v", e.Replayed, f.live)
	}
	f.provisional = nil
	if e.State != nil {
		f.state = e.State
	}
	if m["record"] != nil {
		if e.Cursor.Sequence != f.cursor.Sequence+1 {
			f.t.Fatalf("event %d after %d", e.Cursor.Sequence, f.cursor.Sequence)
		}
		f.slots = append(f.slots, string(m["record"]))
		f.cursor = e.Cursor
		return
	}
	if e.Cursor.Sequence < f.cursor.Sequence {
		f.t.Fatalf("event %d after %d", e.Cursor.Sequence, f.cursor.Sequence)
	}
	if e.Keep != nil {
		if *e.Keep > f.first+len(f.slots) || *e.Keep < f.first && !f.resumed {
			f.t.Fatalf("keep %d of slots %d to %d", *e.Keep, f.first, f.first+len(f.slots))
		}
		stand := max(*e.Keep-f.first, 0)
		f.slots = f.slots[:stand:stand]
		f.first = min(f.first, *e.Keep)
	}
	f.amend(m["amended"])
	f.add(m)
	if e.Have == nil || *e.Have != f.first+len(f.slots) {
		f.t.Fatalf("event says have %v, model has %d: %.400s", *e.Have, f.first+len(f.slots), line)
	}
	f.cursor, f.have = e.Cursor, *e.Have
}

func (f *follower) records(line, body []byte) {
	f.t.Helper()
	var r wire.Records
	f.decode(line, &r)
	if len(body) != r.Bytes {
		f.t.Fatalf("body of %d bytes, want %d", len(body), r.Bytes)
	}
	if r.First != f.cursor.Sequence+1 || r.Count != int64(bytes.Count(body, []byte{'\n'})) ||
		r.Cursor.Sequence != f.cursor.Sequence+wire.Sequence(r.Count) || r.More != !bytes.HasSuffix(body, []byte{'\n'}) {
		f.t.Fatalf("records: %+v after %v, body of %d lines", r, f.cursor, bytes.Count(body, []byte{'\n'}))
	}
	if f.snapshot == nil && r.Replayed == f.live {
		f.t.Fatalf("records replayed %v, client live %v", r.Replayed, f.live)
	}
	f.raw.Write(body)
	f.cursor = r.Cursor
}

func (f *follower) amend(list json.RawMessage) {
	f.t.Helper()
	if len(list) == 0 {
		return
	}
	var all []wire.Amendment
	f.decode(list, &all)
	for _, a := range all {
		i := a.Index - f.first
		if i < 0 && f.resumed {
			continue
		}
		if i < 0 || i >= len(f.slots) {
			f.t.Fatalf("amendment of slot %d of %d to %d", a.Index, f.first, f.first+len(f.slots))
		}
		message := string(a.Message)
		if message == "" {
			message = "null"
		}
		f.slots = slices.Clone(f.slots)
		f.slots[i] = message
	}
}

func (f *follower) decode(b []byte, v any) {
	f.t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		f.t.Fatalf("decode %.200s: %v", b, err)
	}
}

// text shows the slots shortly.
func (f *follower) text() string {
	out := make([]string, len(f.slots))
	for i, s := range f.slots {
		out[i] = fmt.Sprintf("%d %.120s", i, s)
	}
	return strings.Join(out, "\n")
}

// reason is why the attachment began as a snapshot.
func (f *follower) reason() string {
	if f.result.Reason == nil {
		return ""
	}
	return *f.result.Reason
}
