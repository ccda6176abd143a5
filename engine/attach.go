package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

// tailBytesMin is how far behind a cursor may always be without being
// answered by a snapshot.
const tailBytesMin = 8 << 20

// attach begins an attachment: a tail from the client's cursor where that
// proves itself, else a snapshot.
func (e *Engine) attach(ctx context.Context, r wire.Request) (wire.AttachResult, wire.Stream, error) {
	if err := checkAttach(r.Command); err != nil {
		return wire.AttachResult{}, nil, err
	}
	s, err := e.resolve(r.Session)
	if err != nil {
		return wire.AttachResult{}, nil, err
	}
	g, err := s.use(ctx, true)
	if err != nil {
		return wire.AttachResult{}, nil, err
	}
	st := newStream(s, g, r)
	s.addStream(st) // before the head is looked at
	out, err := st.begin(ctx, r.Command)
	if err != nil {
		st.Close()
		return wire.AttachResult{}, nil, err
	}
	return out, st, nil
}

func checkAttach(c wire.Command) error {
	switch {
	case !c.View.Valid():
		return wire.Errorf(wire.CodeBadArgument, "view %q: want records, transcript or context", clip(string(c.View)))
	case c.Encoding != "" && c.Encoding != wire.EncodingJSON && c.Encoding != wire.EncodingRaw:
		return wire.Errorf(wire.CodeBadArgument, "encoding %q: want json or raw", clip(c.Encoding))
	case c.Encoding == wire.EncodingRaw && c.View != wire.ViewRecords:
		return wire.Errorf(wire.CodeBadArgument, "encoding raw is one of view records")
	case c.Order != "" && c.Order != "oldest":
		return wire.Errorf(wire.CodeBadArgument, "order %q is not supported yet; want oldest", clip(c.Order))
	case c.Resume != nil && c.Position != nil:
		return wire.Errorf(wire.CodeBadArgument, "resume and position exclude each other")
	case c.Position != nil && c.Encoding == wire.EncodingRaw:
		return wire.Errorf(wire.CodeBadArgument, "encoding raw has no positions; resume at the cursor of its last frame")
	case c.Position != nil && c.Position.View != c.View:
		return wire.Errorf(wire.CodeBadArgument, "the position is one of view %s", c.Position.View)
	case c.Bounded != "" && !slices.Contains(wire.BoundedModes, c.Bounded):
		return wire.Errorf(wire.CodeBadArgument, "bounded %q: want %s", clip(c.Bounded), strings.Join(wire.BoundedModes, " or "))
	case c.Bounded != "" && c.View == wire.ViewRecords:
		return wire.Errorf(wire.CodeBadArgument, "view records has no limits, and is not bounded")
	case c.Have != nil && *c.Have < 0:
		return wire.Errorf(wire.CodeBadArgument, "have %d: want a count", *c.Have)
	case c.Resume != nil && c.View != wire.ViewRecords && c.Have == nil:
		return wire.Errorf(wire.CodeBadArgument, "view %s resumes with a cursor and have", c.View)
	}
	return nil
}

// begin decides how the attachment starts.
func (st *stream) begin(ctx context.Context, c wire.Command) (wire.AttachResult, error) {
	defer st.borrowWindow()()
	r := st.g.replay
	name, rules := r.Dialect()
	if st.view != wire.ViewRecords && name == replay.Unknown && r.Decided() {
		return wire.AttachResult{}, wire.Errorf(wire.CodeBadArgument,
			"session %s is of no known format; only view records shows it", st.s.key)
	}
	st.rules = rules
	if err := st.s.passHoles(ctx, st.g, c); err != nil {
		return wire.AttachResult{}, toWire(err)
	}
	out := wire.AttachResult{
		Attachment: st.attachment, Session: st.s.key, ID: st.s.id(), Generation: st.g.id,
		RulesRevision: rules, Mode: wire.ModeSnapshot, Head: st.g.cursor(r.Head()),
	}
	st.id = out.ID
	if err := st.admit(); err != nil {
		return out, toWire(err)
	}
	leaf, err := st.g.leafNow(st.window)
	if err != nil {
		return out, toWire(err)
	}
	out.Leaf = leaf
	reason, err := st.start(ctx, c)
	if err != nil {
		return out, toWire(err)
	}
	if reason == "" && c.Position == nil {
		out.Mode = wire.ModeTail
	}
	if reason != "" {
		out.Reason = &reason
	}
	if st.snap != nil {
		out.Bounded = st.snap.bounded
	}
	return out, nil
}

// start begins the stream by cursor, by position or from the start, and
// returns why it is a new snapshot, "" when it goes on where the client was.
func (st *stream) start(ctx context.Context, c wire.Command) (reason string, err error) {
	switch {
	case c.Position != nil:
		ok, err := st.continueSnapshot(ctx, *c.Position)
		if err != nil || ok {
			return "", err
		}
		reason = wire.ReasonExpired
	case c.Resume != nil:
		if reason, err = st.resume(ctx, c); err != nil || reason == "" {
			return reason, err
		}
	default:
		reason = wire.ReasonNoCursor
	}
	purpose := wire.PurposeAttach
	if reason != wire.ReasonNoCursor {
		purpose = wire.PurposeResync
	}
	return reason, st.startSnapshot(purpose, reason, nil)
}

// resume verifies a cursor; a reason says why it is not gone on from.
func (st *stream) resume(ctx context.Context, c wire.Command) (reason string, err error) {
	at := pointOf(*c.Resume)
	head := st.g.replay.Head()
	switch {
	case at.Offset == 0:
		return wire.ReasonFarBehind, nil
	case c.RulesRevision != "" && c.RulesRevision != st.rules && st.view != wire.ViewRecords:
		return wire.ReasonExpired, nil
	case at.Offset > head.Offset:
		if c.Resume.Generation == st.g.id {
			return wire.ReasonAhead, nil
		}
		return wire.ReasonTruncated, nil
	}
	d, err := st.g.replay.Verify(st.g.content, at)
	if errors.Is(err, stamp.ErrMismatch) {
		return wire.ReasonRewritten, nil
	}
	if err != nil {
		return "", err
	}
	have := 0
	if c.Have != nil {
		have = *c.Have
	}
	if st.view != wire.ViewRecords && (at != head || !st.hasAll(have)) {
		if err := st.g.awake(ctx); err != nil {
			return "", err
		}
	}
	if far, err := st.farBehind(at, head); far || err != nil {
		return wire.ReasonFarBehind, err
	}
	st.tailFrom(at, d, have, head)
	return "", nil
}

// hasAll reports whether so many slots are all that a replay which was not
// read again has in the view.
func (st *stream) hasAll(have int) bool {
	in, ok, err := st.g.replay.Info(st.window)
	return ok && err == nil && have == in.Messages[viewOf(st.view)]
}

// farBehind reports whether what was missed is more than would be sent of the
// view: all of it, or of one over a limit what that allows.
func (st *stream) farBehind(at, head stamp.Point) (bool, error) {
	if st.view == wire.ViewRecords {
		return false, nil
	}
	if st.bounded != "" {
		b, err := st.g.replay.Budget(viewOf(st.view))
		if err != nil || b.Over(head) != nil && b.Between(at, head) != nil {
			return true, err
		}
	}
	missed := head.Offset - at.Offset
	if missed <= tailBytesMin {
		return false, nil
	}
	slots, bodies, err := st.g.replay.Slots(viewOf(st.view))
	if err != nil {
		return false, err
	}
	var size int64
	for i := range int(slots.Len()) {
		_, b, err := bodies.BodyAt(&slots, i, false)
		if err != nil {
			return false, err
		}
		if size += b.Bytes; size >= missed {
			return false, nil
		}
	}
	return true, nil
}

// snapshotID names a snapshot by what determines its chunks; first is the
// slot that they begin at.
func snapshotID(rules string, view wire.View, target int, cut stamp.Point, first int) wire.SnapshotID {
	d := xxhash.New()
	_, _ = fmt.Fprintf(d, "%s\x00%s\x00oldest\x00%d\x00%d\x00", rules, view, target, wire.InlineBytes) // never fails
	b := binary.BigEndian.AppendUint64(nil, uint64(cut.Offset))
	b = binary.BigEndian.AppendUint64(b, cut.Digest)
	if first > 0 {
		b = binary.BigEndian.AppendUint64(b, uint64(first))
	}
	_, _ = d.Write(b)
	return wire.SnapshotID(d.Sum64())
}

// snapshotID is that of a view of the stream.
func (st *stream) snapshotID(v snapshotView) wire.SnapshotID {
	return snapshotID(st.rules, st.view, st.e.o.ChunkBytes, v.cut, v.bounded.FirstSlot())
}

// continueSnapshot goes on inside a snapshot, if its cut is still a cursor of
// this file and its chunks are made as they were.
func (st *stream) continueSnapshot(ctx context.Context, p wire.Position) (bool, error) {
	cut := pointOf(p.Cut)
	whole := p.SnapshotID == st.snapshotID(snapshotView{cut: cut})
	if p.Target != st.e.o.ChunkBytes || cut.Offset > st.g.replay.Head().Offset || !whole && st.bounded == "" {
		return false, nil
	}
	d, err := st.g.replay.Verify(st.g.content, cut)
	if errors.Is(err, stamp.ErrMismatch) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if st.view != wire.ViewRecords && st.g.replay.IsAsleep() {
		if whole && cut == st.g.replay.Head() && st.startKept(cut, wire.PurposeAttach, "") {
			st.snap.index, st.snap.first = p.Index, p.Index
			return true, nil
		}
		if err := st.g.awake(ctx); err != nil {
			return false, err
		}
	}
	v, err := st.viewAt(ctx, cut)
	if err == nil {
		err = st.bound(&v)
	}
	if budgetError(err) != nil { // of then; the view of now is within the limits
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if p.SnapshotID != st.snapshotID(v) { // what is left of it is another part
		return false, nil
	}
	if err := st.useSnapshot(v, d, wire.PurposeAttach, "", nil); err != nil {
		return false, err
	}
	st.snap.index, st.snap.first = p.Index, p.Index
	return true, nil
}

// viewAt is a view at an earlier cut. Usually it is a prefix of the view at
// the head; where the view was cut or amended since, the file is replayed up
// to the cut.
func (st *stream) viewAt(ctx context.Context, cut stamp.Point) (snapshotView, error) {
	if st.view == wire.ViewRecords {
		return snapshotView{cut: cut, replay: st.g.replay, count: int(cut.Sequence)}, nil
	}
	return st.g.viewAt(ctx, viewOf(st.view), cut)
}

// viewAt is viewAt of a stream for a message view.
func (g *generation) viewAt(ctx context.Context, v dialect.View, cut stamp.Point) (snapshotView, error) {
	r := g.replay
	out, err := viewOfReplay(r, v)
	if err != nil || out.cut == cut {
		return out, err
	}
	// Later than the view, so that it tells of all that happened up to it.
	d, err := r.Delta(v, cut.Sequence)
	if err != nil {
		return out, err
	}
	if d.Cut.Keep == dialect.All && len(d.Amendments) == 0 {
		n := out.count
		for ; n > 0; n-- {
			_, b, err := out.BodyAt(&out.slots, n-1, false)
			if err != nil {
				return out, err
			}
			if b.Sequence <= cut.Sequence {
				break
			}
		}
		out.cut, out.slots, out.count = cut, out.slots.First(int32(n)), n
		// An edit before the cut may be of an entry behind it.
		out.amended = slices.DeleteFunc(out.amended, func(a amendedBody) bool { return a.index >= n })
		return out, nil
	}
	past, err := replay.Build(ctx, g.content, cut.Offset, g.content.s.e.replayOptions())
	if err != nil {
		return snapshotView{}, err
	}
	if past.Head() != cut {
		return snapshotView{}, fmt.Errorf("engine: replay up to the position: %w", stamp.ErrMismatch)
	}
	return viewOfReplay(past, v)
}
