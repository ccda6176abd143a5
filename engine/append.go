package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"sessiond/engine/journal"
	"sessiond/replay/dialect"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

// append adds entries to an owned session, each once.
func (e *Engine) append(ctx context.Context, c wire.Command) (wire.AppendResult, error) {
	s, err := e.resolve(c.Session)
	if err != nil {
		return wire.AppendResult{}, err
	}
	if !s.owned {
		return wire.AppendResult{}, wire.Errorf(wire.CodeReadOnly, "session %s is followed; another program writes it", s.key)
	}
	lines := make([][]byte, len(c.Entries))
	if len(lines) > wire.BatchEntriesMax {
		return wire.AppendResult{}, wire.Errorf(wire.CodeTooLarge, "%d entries in one append, at most %d", len(lines), wire.BatchEntriesMax)
	}
	for i, entry := range c.Entries {
		lines[i] = []byte(entry)
		if err := checkEntry(lines[i]); err != nil {
			return wire.AppendResult{}, wire.Errorf(wire.CodeBadArgument, "entry %d: %v", i, err).With("index", i)
		}
	}
	for tries := appendTries; ; tries-- {
		out, err := s.append(ctx, lines, c.Expect)
		if tries > 1 && wasReopened(err) && e.ctx.Err() == nil {
			continue
		}
		return out, err
	}
}

// appendTries bounds how often an append whose journal was given up for another
// goes to that one.
const appendTries = 3

// wasReopened reports whether an append has met a journal that was closed
// before it took anything: a look had found that its file is another.
func wasReopened(err error) bool {
	var failed *journal.AppendError
	return errors.Is(err, journal.ErrClosed) && errors.As(err, &failed) && failed.Outcome == journal.OutcomeNone
}

// append is one try.
func (s *session) append(ctx context.Context, lines [][]byte, expect *wire.Cursor) (wire.AppendResult, error) {
	g, j, err := s.useToAppend(ctx)
	if err != nil {
		return wire.AppendResult{}, err
	}
	defer s.done(g)
	a := &appending{s: s, g: g, journal: j, lines: lines, expect: expect, acks: make([]wire.Ack, len(lines))}
	if err := a.run(ctx); err != nil {
		if wasReopened(err) {
			return wire.AppendResult{}, err
		}
		return wire.AppendResult{}, s.appendError(err)
	}
	w := windows.Get().(*dialect.Window)
	defer windows.Put(w)
	w.Reset(g.file)
	leaf, err := g.leafNow(w)
	if err != nil {
		leaf = nil // what was appended is on disk all the same
	}
	return wire.AppendResult{Acks: a.acks, Head: g.cursor(a.after), Leaf: leaf}, nil
}

// useToAppend is use, together with the session's journal.
func (s *session) useToAppend(ctx context.Context) (*generation, *journal.Journal, error) {
	if err := s.acquire(ctx); err != nil {
		return nil, nil, err
	}
	defer s.releaseToken()
	if err := s.ready(ctx, false); err != nil {
		return nil, nil, err
	}
	j, err := s.writable(ctx)
	if err != nil {
		return nil, nil, err
	}
	g, err := s.pin()
	if err != nil {
		return nil, nil, err
	}
	if err := g.awake(ctx); err != nil { // to know what the file holds
		s.done(g)
		return nil, nil, err
	}
	return g, j, nil
}

// writable returns the journal, opening the file again where that failed or
// the journal has given it up. Called with the token.
func (s *session) writable(ctx context.Context) (*journal.Journal, error) {
	s.mu.Lock()
	j, g := s.journal, s.gen
	s.mu.Unlock()
	if j != nil && !isLost(j) {
		return j, nil
	}
	if _, err := s.e.o.FS.Stat(s.path); err != nil {
		return nil, s.openError(err)
	}
	if err := s.reopenJournal(ctx, g); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.journal == nil {
		return nil, s.degraded
	}
	return s.journal, nil
}

// appendError maps what the journal refused, and gives up a journal that is
// final.
func (s *session) appendError(err error) error {
	if errors.Is(err, journal.ErrGone) || errors.Is(err, journal.ErrRewritten) {
		s.kick()
	}
	var failed *journal.AppendError
	if errors.As(err, &failed) && !errors.Is(err, context.Canceled) {
		s.mu.Lock()
		j := s.journal
		s.mu.Unlock()
		if j != nil {
			s.setDegraded(j.Failure())
		}
	}
	return toWire(err)
}

// appending is one append on its way through the journal.
type appending struct {
	s       *session
	g       *generation
	journal *journal.Journal
	lines   [][]byte
	expect  *wire.Cursor
	acks    []wire.Ack
	fresh   []int // of lines: those that are written
	after   stamp.Point

	// Of one prepare: what is durable, and what the group will put behind it.
	durable stamp.Point
	digest  *stamp.Digest // at durable
	pending pendingLines
	head    stamp.Point    // behind pending
	walk    *recordReader  // at the last duplicate, nil before the first
	family  dialect.Family // of an empty file, by what is to be in it; nil: not asked for
}

func (a *appending) run(ctx context.Context) error {
	result, err := a.journal.Append(ctx, a.prepare)
	if err != nil {
		return err
	}
	a.s.reportWriter(a.journal)
	for k, i := range a.fresh {
		a.acks[i] = wire.Ack{Cursor: a.g.cursor(result.Points[k])}
	}
	a.after = result.After
	a.s.setDegraded(nil)
	return nil
}

// prepare decides, in the journal's goroutine, what of the batch is written
// behind head.
func (a *appending) prepare(head stamp.Point) ([][]byte, error) {
	a.fresh, a.head, a.walk, a.family = a.fresh[:0], head, nil, nil
	// What committed could not read back is to be read before it counts.
	if durable := a.journal.Head().Offset; a.g.replay.Head().Offset < durable {
		if err := a.g.replay.Extend(a.s.e.ctx, a.g.file, durable); err != nil {
			return nil, fmt.Errorf("engine: reading back: %w", err)
		}
	}
	a.durable, a.digest = a.g.replay.HeadDigest()
	a.pending = a.s.group.between(a.durable.Offset, head.Offset)
	ids := make([]string, len(a.lines))
	var err error
	if a.expect != nil {
		err = a.byPlace(pointOf(*a.expect))
	} else {
		err = a.byID(ids)
	}
	if err != nil {
		return nil, err
	}
	out := make([][]byte, len(a.fresh))
	offset := head.Offset
	for k, i := range a.fresh {
		if ids[i] == "" {
			if ids[i], _, _, err = a.heldByID(a.lines[i]); err != nil {
				return nil, err
			}
		}
		a.s.group.add(offset, a.lines[i], ids[i])
		offset += int64(len(a.lines[i])) + 1
		out[k] = a.lines[i]
	}
	return out, nil
}

func (a *appending) conflict(index int, format string, args ...any) error {
	return wire.Errorf(wire.CodeConflict, format, args...).With("index", index).With("head", a.g.cursor(a.head))
}

// byPlace is rule 1: what the file holds directly after the cursor expected
// is acknowledged as far as it is the batch; the rest is written if nothing
// else follows.
func (a *appending) byPlace(at stamp.Point) error {
	held, digest, err := a.following(at)
	if err != nil {
		return err
	}
	for i, line := range a.lines {
		if len(held) == 0 {
			a.fresh = append(a.fresh, i)
			continue
		}
		if len(held) < len(line)+1 || !bytes.Equal(held[:len(line)], line) || held[len(line)] != '\n' {
			return a.conflict(i, "entry %d: the file goes on differently there", i)
		}
		_, _ = digest.Write(held[:len(line)+1]) // never fails
		at = stamp.Point{Sequence: at.Sequence + 1, Offset: at.Offset + int64(len(line)) + 1, Digest: digest.Sum64()}
		a.acks[i] = wire.Ack{Cursor: a.g.cursor(at), Duplicate: true}
		held = held[len(line)+1:]
	}
	if len(a.fresh) > 0 && at != a.head {
		return a.conflict(a.fresh[0], "entry %d: another program has written there", a.fresh[0])
	}
	return nil
}

// following returns the bytes after a cursor, as many as the batch may have,
// and the digest at the cursor.
func (a *appending) following(at stamp.Point) (held []byte, digest *stamp.Digest, err error) {
	switch {
	case at == a.head:
		return nil, nil, nil
	case at.Offset > a.durable.Offset:
		return a.followingPending(at)
	}
	digest, err = a.g.replay.Verify(a.g.file, at)
	if errors.Is(err, stamp.ErrMismatch) {
		return nil, nil, a.conflict(0, "the cursor expected is not one of this file: %v", err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("engine: checking the cursor expected: %w", err)
	}
	want := int64(0)
	for _, l := range a.lines {
		want += int64(len(l)) + 1
	}
	onDisk := a.durable.Offset - at.Offset
	held = make([]byte, min(onDisk, want))
	if n, err := a.g.file.ReadAt(held, at.Offset); n < len(held) {
		return nil, nil, fmt.Errorf("engine: reading back: %w", err)
	}
	if int64(len(held)) == onDisk {
		held = append(held, a.pending.bytes()...)
	}
	return held, digest, nil
}

// followingPending is following for a cursor that the group has yet to make.
func (a *appending) followingPending(at stamp.Point) (held []byte, digest *stamp.Digest, err error) {
	skip, found := 0, false
	digest = a.digest
	a.pending.points(a.durable, digest, func(l pendingLine, end stamp.Point) bool {
		skip += len(l.text)
		found = end == at
		return !found
	})
	if !found {
		return nil, nil, a.conflict(0, "no record ends at the cursor expected")
	}
	return a.pending.bytes()[skip:], digest, nil
}

// byID is rule 2: an entry whose id the file has with equal bytes is there
// already; with other bytes it is a conflict.
func (a *appending) byID(ids []string) error {
	mine := map[string]int{}
	for i, line := range a.lines {
		id, places, ok, err := a.heldByID(line)
		switch {
		case err != nil:
			return err
		case !ok:
			return wire.Errorf(wire.CodeBadArgument, "entries of this session have no ids; append with expect").With("index", i)
		case id == "":
			return wire.Errorf(wire.CodeBadArgument, "entry %d has no id; append it with expect", i).With("index", i)
		}
		ids[i] = id
		if k, again := mine[id]; again {
			return wire.Errorf(wire.CodeBadArgument, "entries %d and %d of the append have one id", k, i).With("index", i)
		}
		mine[id] = i
		at, held, err := a.heldOnDisk(line, places)
		if err != nil {
			return err
		}
		other := len(places) > 0
		if !other {
			at, held, other = a.heldPending(line, id)
		}
		switch {
		case held:
			a.acks[i] = wire.Ack{Cursor: a.g.cursor(at), Duplicate: true}
		case other:
			return a.conflict(i, "entry %d: the file holds its id with other content", i)
		default:
			a.fresh = append(a.fresh, i)
		}
	}
	return nil
}

// heldPending looks for the entry in the group; other says that its id is
// there with other content.
func (a *appending) heldPending(line []byte, id string) (at stamp.Point, held, other bool) {
	there := false
	for _, l := range a.pending {
		there = there || l.id == id
	}
	if !there {
		return at, false, false
	}
	a.pending.points(a.durable, a.digest.Clone(), func(l pendingLine, end stamp.Point) bool {
		if l.id != id {
			return true
		}
		other = true
		held = bytes.Equal(bytes.TrimSpace(l.text), bytes.TrimSpace(line))
		at = end
		return !held
	})
	return at, held, other
}

// heldOnDisk reports whether one of the places holds the entry's bytes, and
// the end of its record.
func (a *appending) heldOnDisk(line []byte, places []dialect.Place) (stamp.Point, bool, error) {
	want := bytes.TrimSpace(line)
	for _, p := range places {
		if p.Bytes != int64(len(want)) {
			continue
		}
		have := make([]byte, p.Bytes)
		if _, err := a.g.file.ReadAt(have, p.Offset); err != nil && !errors.Is(err, io.EOF) {
			return stamp.Point{}, false, fmt.Errorf("engine: reading back record %d: %w", p.Sequence, err)
		}
		if !bytes.Equal(have, want) {
			continue
		}
		at, err := a.endOf(p)
		return at, err == nil, err
	}
	return stamp.Point{}, false, nil
}

// endOf returns the end of the record at a place. It goes on from the
// duplicate before, for what is appended again comes in the file's order, and
// begins at a checkpoint where that is shorter or there is no other way.
func (a *appending) endOf(p dialect.Place) (stamp.Point, error) {
	at, d := a.g.replay.Checkpoints().Before(p.Offset)
	if a.walk == nil || a.walk.at.Sequence > p.Sequence || a.walk.at.Offset < at.Offset {
		a.walk = newRecordReader(a.g.file, at, d, a.g.replay.Head().Offset)
	}
	return a.walk.skipTo(p.Sequence)
}

// pointOf returns the end of a record of the file.
func (g *generation) pointOf(sequence uint64) (stamp.Point, error) {
	checkpoints := g.replay.Checkpoints()
	at, d := stamp.Start, stamp.NewDigest()
	for k := len(checkpoints) - 1; k >= 0; k-- {
		if checkpoints[k].Sequence < sequence {
			at, d = checkpoints[k].Point, nil
			var err error
			if d, err = checkpoints[k].State.Resume(); err != nil {
				return at, err
			}
			break
		}
	}
	return newRecordReader(g.file, at, d, g.replay.Head().Offset).skipTo(sequence)
}
