package client

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"sessiond/wire"
)

// tracker knows where an attachment is and checks that what comes fits there.
type tracker struct {
	view    wire.View
	raw     bool
	bounded string    // what is accepted in place of the whole view
	place   Place     // after the last item
	snap    *snapshot // in flight, nil outside
	body    bodies    // of encoding raw
}

// snapshot is one on its way.
type snapshot struct {
	id     wire.SnapshotID
	next   int            // index of the next chunk
	first  int            // slot that it holds
	begun  bool           // the consumer was told
	known  bool           // digest covers all chunks
	digest *xxhash.Digest // over the chunks' digests
}

// bodies follows the bytes of the file. A break inside a record makes the
// daemon send the record's first bytes again; given is what the consumer has.
type bodies struct {
	received, given int64 // offsets
	known           bool  // the digests below cover the file from its start
	atCursor        xxhash.Digest
	running         xxhash.Digest
}

func newTracker(view wire.View, raw bool, bounded string, from Place) *tracker {
	t := &tracker{view: view, raw: raw, bounded: bounded, place: from}
	if p := from.Position; p != nil {
		t.snap = &snapshot{id: p.SnapshotID, next: p.Index, known: p.Index == 0, digest: xxhash.New()}
	}
	t.body.start(from.Cursor.Offset)
	return t
}

// restart forgets everything: the next attach is from the start.
func (t *tracker) restart() {
	t.place, t.snap = Place{}, nil
	t.body.start(0)
}

func (b *bodies) start(offset int64) {
	*b = bodies{received: offset, given: offset, known: offset == 0}
	b.atCursor.Reset()
	b.running.Reset()
}

func (t *tracker) corrupt(format string, args ...any) error {
	return &CorruptStreamError{Place: t.place, Reason: fmt.Sprintf(format, args...)}
}

// attached takes the answer to an attach from t.place.
func (t *tracker) attached(r *wire.AttachResult) error {
	if err := t.checkRules(r.RulesRevision); err != nil {
		return err
	}
	switch r.Mode {
	case wire.ModeSnapshot:
	case wire.ModeTail:
		if t.place.Position != nil {
			return t.corrupt("a tail after a position")
		}
		t.snap = nil
		t.body.received = t.place.Cursor.Offset
		t.body.running = t.body.atCursor
		t.place.RulesRevision = r.RulesRevision
	default:
		return t.corrupt("attach mode %.40q", r.Mode)
	}
	return nil
}

// checkRules refuses what a Place could not hold; "" means none.
func (t *tracker) checkRules(revision string) error {
	if revision != "" && !validRules(revision) {
		return t.corrupt("rules revision %.80q", revision)
	}
	return nil
}

// begin takes the start of a snapshot. seen: it goes on where a break was,
// and the consumer knows its begin.
func (t *tracker) begin(b *wire.SnapshotBegin) (seen bool, err error) {
	if err := t.checkRules(b.RulesRevision); err != nil {
		return false, err
	}
	if m := b.Bounded; m != nil && (t.bounded == "" || m.First < 0) { // a part would pass for the whole
		return false, t.corrupt("a snapshot from slot %d on, accepted is %q", m.First, t.bounded)
	}
	first := b.Bounded.FirstSlot()
	if s := t.snap; s != nil && s.id == b.SnapshotID && s.next == b.FirstIndex {
		seen, s.begun, s.first = s.begun, true, first
		return seen, nil
	}
	if b.FirstIndex != 0 {
		return false, t.corrupt("snapshot %s begins at chunk %d", b.SnapshotID, b.FirstIndex)
	}
	t.restart()
	t.snap = &snapshot{id: b.SnapshotID, first: first, begun: true, known: true, digest: xxhash.New()}
	t.place.RulesRevision = b.RulesRevision
	if !t.raw {
		t.place.Position = &wire.Position{SnapshotID: b.SnapshotID, View: t.view, Target: b.TargetChunkBytes, Cut: b.Cut}
	}
	return false, nil
}

func (t *tracker) inSnapshot(id wire.SnapshotID) error {
	if t.snap == nil || t.snap.id != id {
		return t.corrupt("a frame of snapshot %s, which is not in flight", id)
	}
	return nil
}

func (t *tracker) chunk(c *wire.SnapshotChunk) error {
	if err := t.inSnapshot(c.SnapshotID); err != nil {
		return err
	}
	if t.raw || c.Index != t.snap.next {
		return t.corrupt("chunk %d, want chunk %d", c.Index, t.snap.next)
	}
	if got := wire.Digest(xxhash.Sum64(c.Messages)); got != c.Digest {
		return t.corrupt("chunk %d has digest %s, want %s", c.Index, got, c.Digest)
	}
	_, _ = t.snap.digest.Write(binary.BigEndian.AppendUint64(nil, uint64(c.Digest)))
	t.snap.next++
	p := *t.place.Position // a Place given out stays as it was
	p.Index = t.snap.next
	t.place.Position = &p
	return nil
}

func (t *tracker) end(e *wire.SnapshotEnd) error {
	if err := t.inSnapshot(e.SnapshotID); err != nil {
		return err
	}
	switch s := t.snap; {
	case t.raw && !same(t.place.Cursor, e.Cut):
		return t.corrupt("the snapshot ends at %s", e.Cut)
	case !t.raw && e.ChunkCount != s.next:
		return t.corrupt("the snapshot has %d chunks, got %d", e.ChunkCount, s.next)
	case !t.raw && s.known && uint64(e.Digest) != s.digest.Sum64():
		return t.corrupt("the chunks have digest %016x, want %s", s.digest.Sum64(), e.Digest)
	}
	rules := t.place.RulesRevision
	t.place = Place{Cursor: e.Cut, RulesRevision: rules}
	if t.view != wire.ViewRecords {
		have := t.snap.first + e.MessageCount
		t.place.Have = &have
	}
	t.snap = nil
	return nil
}

// event takes the change of one record. In view records every record has one;
// a message view may be taken to the head in fewer steps.
func (t *tracker) event(e *wire.Event) error {
	at := t.place.Cursor
	switch {
	case t.snap != nil:
		return t.corrupt("event %d inside a snapshot", e.Cursor.Sequence)
	case t.raw:
		return t.corrupt("event %d in encoding raw", e.Cursor.Sequence)
	case t.view == wire.ViewRecords && (e.Cursor.Sequence != at.Sequence+1 || e.Cursor.Offset <= at.Offset),
		e.Cursor.Sequence < at.Sequence, e.Cursor.Offset < at.Offset:
		return t.corrupt("event %s", e.Cursor)
	case t.view != wire.ViewRecords && (e.Have == nil || *e.Have < 0):
		return t.corrupt("event %d does not say how many slots there are", e.Cursor.Sequence)
	}
	t.place.Cursor = e.Cursor
	if t.view != wire.ViewRecords {
		t.place.Have = e.Have
	}
	return nil
}

// live takes the seam. In a message view records without effect may lie
// before it.
func (t *tracker) live(l *wire.Live) error {
	at := t.place.Cursor
	switch {
	case t.snap != nil:
		return t.corrupt("live inside a snapshot")
	case !same(at, l.Cursor) && (t.view == wire.ViewRecords || l.Cursor.Sequence < at.Sequence || l.Cursor.Offset < at.Offset):
		return t.corrupt("live at %s", l.Cursor)
	}
	t.place.Cursor = l.Cursor
	return nil
}

// same compares cursors; at the start of a file the digest says nothing.
func same(a, b wire.Cursor) bool {
	return a.Same(b) || a.Offset == 0 && b.Offset == 0
}

// records takes a raw body and returns the part of it that is new to the
// consumer.
func (t *tracker) records(r *wire.Records, body []byte) ([]byte, error) {
	at, b := t.place.Cursor, &t.body
	start, end := b.received, b.received+int64(len(body))
	whole := r.Cursor.Offset - start // bytes of the body up to the cursor
	if r.Count == 0 {
		whole = 0
	}
	switch {
	case !t.raw || len(body) == 0:
		return nil, t.corrupt("a raw body of %d bytes", len(body))
	case r.First != at.Sequence+1, r.Count < 0, r.Cursor.Sequence != at.Sequence+wire.Sequence(r.Count):
		return nil, t.corrupt("%d records from %d on, up to %d", r.Count, r.First, r.Cursor.Sequence)
	case r.Count == 0 && r.Cursor.Offset != at.Offset,
		r.Count > 0 && (whole <= 0 || r.Cursor.Offset > end),
		!r.More && r.Cursor.Offset != end:
		return nil, t.corrupt("a body of bytes %d to %d, and the cursor at %d", start, end, r.Cursor.Offset)
	case int64(bytes.Count(body, []byte{'\n'})) != r.Count, whole > 0 && body[whole-1] != '\n':
		return nil, t.corrupt("a body of bytes %d to %d does not hold %d lines", start, end, r.Count)
	}
	_, _ = b.running.Write(body[:whole])
	if got := b.running.Sum64(); r.Count > 0 && b.known && got != uint64(r.Cursor.Digest) {
		return nil, t.corrupt("bytes 0 to %d have digest %016x, want %s", r.Cursor.Offset, got, r.Cursor.Digest)
	}
	if r.Count > 0 {
		b.atCursor = b.running
		t.place.Cursor = r.Cursor
	}
	_, _ = b.running.Write(body[whole:])
	b.received = end
	fresh := body[min(max(b.given-start, 0), int64(len(body))):]
	b.given = max(b.given, end)
	return fresh, nil
}
