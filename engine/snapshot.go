package engine

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"sessiond/chunks"
	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

// snapshotView is a view at a cut. It stays as it is while the session grows.
type snapshotView struct {
	cut    stamp.Point
	replay *replay.Replay
	slots  dialect.Slots
	replay.Bodies
	amended     []amendedBody
	diagnostics int
	count       int // slots, also those that it does not hold
	budget      replay.Budget
	bounded     *wire.Bounded // what it holds instead of all, nil: all
}

// messages is how many the snapshot holds.
func (v snapshotView) messages() int { return v.count - v.bounded.FirstSlot() }

// amendedBody is the message of a slot as of the cut.
type amendedBody struct {
	index int
	slot  dialect.Slot
	body  dialect.Body
}

// snapshot is one being sent.
type snapshot struct {
	snapshotView
	id      wire.SnapshotID
	digest  *stamp.Digest // at the cut
	purpose string
	reason  string
	from    *generation // of a replacement: for its old size
	chunks  begun
	log     *viewLog       // message views: the one that is shared, nil else
	kept    *keptEnd       // of a snapshot that is not packed: what it has beside the chunks
	stop    func()         // ends that it wakes the stream
	pairs   *messagePacker // message views: for what is unanswered
	begun   bool
	index   int // of the next chunk
	first   int
	amend   int // amendments sent
	sum     *xxhash.Digest
	packed  bool
}

// startSnapshot begins a snapshot at the head.
func (st *stream) startSnapshot(purpose, reason string, from *generation) error {
	r := st.g.replay
	var v snapshotView
	if st.view != wire.ViewRecords && r.IsAsleep() {
		if from == nil && st.startKept(r.Head(), purpose, reason) {
			return nil
		}
		if err := st.g.awake(st.ctx); err != nil {
			return err
		}
	}
	head, d := r.HeadDigest()
	if st.view == wire.ViewRecords {
		n, err := r.DiagnosticsCount()
		if err != nil {
			return err
		}
		v = snapshotView{cut: head, replay: r, diagnostics: n, count: int(head.Sequence)}
	} else {
		var err error
		if v, err = viewOfReplay(r, viewOf(st.view)); err != nil {
			return err
		}
		if v.cut != head { // it grew in between
			if d, err = r.Verify(st.g.content, v.cut); err != nil {
				return err
			}
		}
		if err := st.bound(&v); err != nil && budgetError(err) == nil { // else it is refused when its turn comes
			return err
		}
	}
	return st.useSnapshot(v, d, purpose, reason, from)
}

// viewOfReplay captures a message view at the head, with the amendments as
// they are now.
func viewOfReplay(r *replay.Replay, v dialect.View) (out snapshotView, err error) {
	view, err := r.View(v)
	if err != nil {
		return out, err
	}
	out = snapshotView{
		cut: view.Cut, replay: r, slots: view.Slots, Bodies: view.Bodies, diagnostics: view.Diagnostics, count: int(view.Slots.Len()),
		budget: view.Budget,
	}
	for _, a := range view.Amendments {
		slot, body, err := view.BodyAt(&view.Slots, a.Index, true)
		if err != nil {
			return out, err
		}
		out.amended = append(out.amended, amendedBody{a.Index, slot, body})
	}
	return out, nil
}

// newSnapshot begins a snapshot without its chunks.
func (st *stream) newSnapshot(v snapshotView, d *stamp.Digest, purpose, reason string, from *generation) *snapshot {
	st.pass, st.reader, st.split = nil, nil, 0
	st.tail, st.doubt = tailSeen{}, doubt{}
	st.leaveSnapshot()
	st.snap = &snapshot{
		snapshotView: v, id: st.snapshotID(v), digest: d,
		purpose: purpose, reason: reason, from: from, sum: xxhash.New(),
	}
	return st.snap
}

func (st *stream) useSnapshot(v snapshotView, d *stamp.Digest, purpose, reason string, from *generation) (err error) {
	sn := st.newSnapshot(v, d, purpose, reason, from)
	if st.raw {
		st.at, st.digest = stamp.Start, stamp.NewDigest()
		return nil
	}
	if sn.chunks, err = st.beginChunks(sn); err != nil {
		st.snap = nil
		return err
	}
	sn.stop = sn.chunks.Notify(st.wakeUp)
	if sn.chunks.fresh {
		c, g, log, p, amended := sn.chunks.Snapshot, st.g.retain(), sn.log, sn.pairs, sn.amended
		begun := st.e.begin(func() {
			defer g.release()
			if err := c.Pack(st.e.ctx); err == nil && log != nil { // else a failure is the snapshot's state
				log.keepEnd(st.e.ctx, g, p.clone(), c, amended)
			}
			if g.keepsMore() {
				st.s.remember(g)
			}
		})
		if !begun {
			g.release()
		}
	}
	return nil
}

// beginChunks begins the chunks of a snapshot, or shares those of another
// stream. They keep the generation, whose file they are packed from.
func (st *stream) beginChunks(sn *snapshot) (begun, error) {
	g, v := st.g.retain(), sn.snapshotView
	log := g.log(st.e, logKey{st.view, wire.EncodingJSON})
	o := chunks.SnapshotOptions{Session: st.s.key, ID: sn.id, Close: g.release}
	if st.view == wire.ViewRecords {
		o.Source = &recordPacker{src: g.content, cut: v.cut}
		return log.beginRecords(st.rules, v.cut, o), nil
	}
	p := g.packer(v, viewOf(st.view))
	sn.pairs = p
	if v.replay == g.replay && p.first == 0 { // a window's chunks are others
		b, shared, err := log.begin(p, st.rules, o)
		if err != nil {
			g.release()
			return begun{}, err
		}
		if shared {
			sn.log = log
			return b, nil
		}
	}
	p.log = st.e.newViewLog(true) // of its own
	p.log.fed = p.first
	o.Source = p.clone()
	return p.log.beginPlain(o), nil
}

// leaveSnapshot gives up the snapshot that is being sent, if there is one.
func (st *stream) leaveSnapshot() {
	sn := st.snap
	st.snap = nil
	if sn == nil || sn.chunks.Snapshot == nil {
		return
	}
	sn.stop()
	sn.chunks.release()
}

// nextOfSnapshot makes the next frame of the snapshot.
func (st *stream) nextOfSnapshot() (wire.Frame, bool, error) {
	sn := st.snap
	switch {
	case !sn.begun:
		return st.snapshotBegin()
	case st.raw && st.at.Offset < sn.cut.Offset:
		return st.bodyFrame(sn.cut.Offset, false)
	case !st.raw && !sn.packed:
		switch c, err := sn.chunks.ReadChunk(st.ctx, sn.index); {
		case err == nil:
			return st.chunkFrame(c)
		case errors.Is(err, chunks.ErrNotYet):
			return wire.Frame{}, false, nil // woken when it is there
		case !errors.Is(err, chunks.ErrNoChunk):
			return wire.Frame{}, false, err
		}
		sn.packed = true
	}
	if sn.amend < sn.amendments() {
		return st.amendFrame()
	}
	return st.snapshotEnd()
}

func (st *stream) snapshotBegin() (wire.Frame, bool, error) {
	sn := st.snap
	state, err := st.stateNow()
	if err != nil {
		return wire.Frame{}, false, err
	}
	sn.begun = true
	b := wire.SnapshotBegin{
		Type: wire.TypeSnapshotBegin, Attachment: st.attachment, ActiveSessionID: st.id, SnapshotID: sn.id,
		View: st.view, Generation: st.g.id, RulesRevision: st.rules, Cut: st.g.cursor(sn.cut),
		TargetChunkBytes: st.e.o.ChunkBytes, FirstIndex: sn.first, Purpose: sn.purpose, Reason: optional(sn.reason),
		DiagnosticsCount: sn.diagnostics, Bounded: sn.bounded, State: state,
	}
	count := sn.messages()
	b.MessageCount = &count
	if sn.from != nil {
		b.OldBytes, b.NewBytes = &sn.from.oldBytes, &sn.cut.Offset
	}
	f, err := line(b)
	return f, err == nil, err
}

// rememberChunks is after how many chunks of a snapshot the index learns of
// them.
const rememberChunks = 64

func (st *stream) chunkFrame(c chunks.Chunk) (wire.Frame, bool, error) {
	sn := st.snap
	f, err := open(wire.SnapshotChunk{
		Type: wire.TypeSnapshotChunk, Attachment: st.attachment, ActiveSessionID: st.id,
		SnapshotID: sn.id, Index: sn.index, Digest: c.Digest,
	}, c.Body)
	f.Release = c.Release
	if sn.index++; sn.index%rememberChunks == 0 {
		st.s.remember(st.g) // a daemon that is killed now need not pack them again
	}
	return f, err == nil, err
}

// amendFrame sends amendments up to the target size, at least one.
func (st *stream) amendFrame() (wire.Frame, bool, error) {
	sn := st.snap
	list := []byte(`"amendments":[`)
	for first := true; sn.amend < sn.amendments(); first = false {
		at := len(list)
		if !first {
			list = append(list, ',')
		}
		one := len(list)
		var err error
		if list, err = sn.appendAmendment(list, sn.amend, st.window); err != nil {
			return wire.Frame{}, false, err
		}
		if !first && len(list) > st.e.o.ChunkBytes {
			list = list[:at]
			break
		}
		_, _ = sn.sum.Write(list[one:]) // never fails
		sn.amend++
	}
	f, err := open(wire.SnapshotAmend{
		Type: wire.TypeSnapshotAmend, Attachment: st.attachment, SnapshotID: sn.id,
	}, append(list, ']'))
	return f, err == nil, err
}

// amendments is how many there are.
func (sn *snapshot) amendments() int {
	if sn.kept != nil {
		return len(sn.kept.Amendments)
	}
	return len(sn.amended)
}

// appendAmendment appends the i-th amendment.
func (sn *snapshot) appendAmendment(dst []byte, i int, w *dialect.Window) ([]byte, error) {
	if sn.kept != nil {
		return append(dst, sn.kept.Amendments[i]...), nil
	}
	a := sn.amended[i]
	return appendAmendment(dst, a.index, a.slot, a.body, w)
}

// appendAmendment appends {"index":n,"message":m}.
func appendAmendment(dst []byte, index int, slot dialect.Slot, b dialect.Body, w *dialect.Window) ([]byte, error) {
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(index), 10)
	dst = append(dst, `,"message":`...)
	dst, err := appendMessage(dst, slot, b, w)
	return append(dst, '}'), err
}

// unansweredBytesMax bounds the list of calls without a result: it is part of
// a frame.
const unansweredBytesMax = 128 << 10

// wireUnanswered lists as many calls as a frame may have.
func wireUnanswered(list []dialect.Unanswered) []wire.Unanswered {
	out := []wire.Unanswered{}
	room := unansweredBytesMax
	for _, u := range list {
		if room -= len(u.CallID) + 40; room < 0 {
			break
		}
		out = append(out, wire.Unanswered{Sequence: wire.Sequence(u.Sequence), CallID: u.CallID})
	}
	return out
}

func (st *stream) snapshotEnd() (wire.Frame, bool, error) {
	sn := st.snap
	end := wire.SnapshotEnd{
		Type: wire.TypeSnapshotEnd, Attachment: st.attachment, ActiveSessionID: st.id, SnapshotID: sn.id,
		Cut: st.g.cursor(sn.cut), AmendmentCount: sn.amendments(), AmendmentsDigest: wire.Digest(sn.sum.Sum64()),
		Unanswered: []wire.Unanswered{},
	}
	if st.raw {
		if st.at != sn.cut {
			return wire.Frame{}, false, fmt.Errorf("engine: %w: digest %016x at the cut, want %016x", stamp.ErrMismatch, st.at.Digest, sn.cut.Digest)
		}
		end.MessageCount, end.Digest = int(sn.cut.Sequence), wire.Digest(sn.cut.Digest)
	} else {
		t, err := sn.chunks.Totals()
		if err != nil {
			return wire.Frame{}, false, err
		}
		end.ChunkCount, end.MessageCount, end.Digest = t.Chunks, t.Messages, t.Digest
	}
	switch {
	case sn.kept != nil:
		end.Unanswered = sn.kept.Unanswered
	case sn.pairs != nil:
		list, err := sn.pairs.unanswered(st.ctx)
		if err != nil {
			return wire.Frame{}, false, err
		}
		end.Unanswered = wireUnanswered(list)
	}
	state, err := st.stateNow()
	if err != nil {
		return wire.Frame{}, false, err
	}
	end.State = state
	f, err := line(end)
	if err != nil {
		return wire.Frame{}, false, err
	}
	st.tailFrom(sn.cut, sn.digest, sn.count, sn.cut)
	st.first = sn.bounded.FirstSlot()
	st.failures = 0
	live, _, err := st.liveFrame() // at the cut, whatever has come since
	st.queue = append(st.queue, live)
	return f, err == nil, err
}

func (st *stream) snapshotFailed(e *wire.Error) (wire.Frame, error) {
	return line(wire.SnapshotFailed{
		Type: wire.TypeSnapshotFailed, Attachment: st.attachment, ActiveSessionID: st.id,
		SnapshotID: st.snap.id, Error: e, ErrorMessage: e.Message,
	})
}
