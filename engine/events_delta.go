package engine

import (
	"fmt"
	"slices"

	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

// pass is one way from where the client is to a head: record by record while
// the view only grew, else one cut and then the head's slots.
type pass struct {
	replay.Delta
	count   int            // slots at the head
	jump    bool           // events carry the head's cursor
	cut     bool           // keep was not sent yet
	beyond  bool           // what is to be sent is no part of what the client may have
	keep    int            // slots that stand
	amended int            // of Amendments, when jumping: those sent
	all     map[int]uint64 // amended slots and the records that amended them last, once needed
}

// nextDelta makes the next event of a message view.
func (st *stream) nextDelta() (wire.Frame, bool, error) {
	if p := st.pass; p != nil && p.Head != st.g.replay.Head() && (p.amended == 0 || p.amendedAll()) {
		st.pass = nil // the way goes to another head now, and is shown as of there
	}
	if st.pass == nil {
		if more, err := st.beginPass(); !more || err != nil {
			return wire.Frame{}, false, err
		}
	}
	switch p := st.pass; {
	case p.beyond:
		if err := st.startSnapshot(wire.PurposeResync, "", nil); err != nil {
			return wire.Frame{}, false, err
		}
		return st.nextOfSnapshot()
	case p.jump:
		return st.jumpEvent()
	}
	return st.recordEvent()
}

// beginPass looks whether there is anything to send.
func (st *stream) beginPass() (bool, error) {
	if (st.complete || st.g.replay.IsAsleep()) && st.at == st.g.replay.Head() {
		return false, nil // who attached to a replay that was not read again has all of it
	}
	v := viewOf(st.view)
	d, err := st.g.replay.Delta(v, st.at.Sequence)
	if err != nil {
		return false, err
	}
	count := int(d.Slots.Len())
	keep := min(st.have, d.Cut.Keep, count)
	st.complete = d.Head == st.at && keep == count && keep == st.have
	if st.complete {
		return false, nil
	}
	p := &pass{Delta: d, count: count, keep: keep, cut: keep < st.have}
	if p.jump = p.cut; !p.jump {
		if p.jump, err = st.partial(p); err != nil {
			return false, err
		}
	}
	if p.beyond, err = st.beyond(p); err != nil {
		return false, err
	}
	p.Amendments = slices.DeleteFunc(p.Amendments, func(a dialect.Amendment) bool { return a.Index < st.first })
	st.pass = p
	return true, nil
}

// beyond reports whether a jump goes below what the client has of the view, or
// sends more than the limits allow, so that a new snapshot takes its place.
func (st *stream) beyond(p *pass) (bool, error) {
	if st.bounded == "" || !p.jump {
		return false, nil
	}
	if p.keep < st.first {
		return true, nil
	}
	if p.Budget.Over(p.Head) == nil {
		return false, nil
	}
	first, err := p.Budget.First(p.Head, &p.Slots, p.Bodies)
	return p.keep < first, err
}

// partial reports whether slots behind what the client holds come from
// records that it is past already: it left in the middle of a cut.
func (st *stream) partial(p *pass) (bool, error) {
	if st.have >= p.count {
		return st.have > p.count, nil
	}
	_, b, err := p.BodyAt(&p.Slots, st.have, false)
	return b.Sequence <= st.at.Sequence, err
}

// event is one on its way.
type event struct {
	wire.Event
	amended  []byte
	meta     []byte
	messages []byte
	count    int
}

func (st *stream) newEvent(at stamp.Point) *event {
	e := &event{meta: []byte(`"meta":[`), messages: []byte(`"messages":[`)}
	e.Event = wire.Event{
		Type: wire.TypeEvent, Attachment: st.attachment, ActiveSessionID: st.id,
		Cursor: st.g.cursor(at), Replayed: !st.seamed,
	}
	return e
}

// add appends a slot's message as of the head; false when the event is full.
func (st *stream) add(e *event, slot dialect.Slot, b dialect.Body) (bool, error) {
	at := len(e.messages)
	if e.count > 0 {
		e.messages = append(e.messages, ',')
	}
	var err error
	if e.messages, err = appendMessage(e.messages, slot, b, st.window); err != nil {
		return false, err
	}
	if e.count+len(e.amended) > 0 && len(e.messages)+len(e.meta)+len(e.amended) > st.e.o.ChunkBytes {
		e.messages = e.messages[:at]
		return false, nil
	}
	if e.count > 0 {
		e.meta = append(e.meta, ',')
	}
	e.meta = appendMeta(e.meta, b)
	e.count++
	return true, nil
}

// amend appends the amendment of a standing slot; false when the event is
// full.
func (st *stream) amend(e *event, a dialect.Amendment) (bool, error) {
	slot, b, err := st.pass.BodyAt(&st.pass.Slots, a.Index, true)
	if err != nil {
		return false, err
	}
	at := len(e.amended)
	if at == 0 {
		e.amended = append(e.amended, `"amended":[`...)
	} else {
		e.amended = append(e.amended, ',')
	}
	if e.amended, err = appendAmendment(e.amended, a.Index, slot, b, st.window); err != nil {
		return false, err
	}
	if at > 0 && len(e.amended) > st.e.o.ChunkBytes {
		e.amended = e.amended[:at]
		return false, nil
	}
	return true, nil
}

// frame closes an event.
func (st *stream) frame(e *event) (wire.Frame, bool, error) {
	e.Have = &st.have
	members := [][]byte{}
	if len(e.amended) > 0 {
		members = append(members, e.amended, []byte(`],`))
	}
	members = append(members, e.meta, []byte(`],`), e.messages, []byte(`]`))
	f, err := open(e.Event, members...)
	return f, err == nil, err
}

// jumpEvent sends the next part of the way to the head: the cut and what is
// amended in what stands, then the slots that follow.
func (st *stream) jumpEvent() (wire.Frame, bool, error) {
	p := st.pass
	e := st.newEvent(p.Head)
	if p.cut {
		e.Keep, e.Reason = &p.keep, p.Cut.Reason
		st.have, p.cut = p.keep, false
	}
	full := false
	for !full && !p.amendedAll() {
		a := p.Amendments[p.amended]
		ok, err := st.amend(e, a)
		if err != nil {
			return wire.Frame{}, false, err
		}
		if full = !ok; ok {
			p.amended++
		}
	}
	if full && !p.amendedAll() {
		// The client is where it was until it has all amendments: if it leaves
		// now, they are sent again.
		e.Cursor = st.g.cursor(st.at)
		return st.frame(e)
	}
	for !full && st.have < p.count {
		slot, b, err := p.BodyAt(&p.Slots, st.have, true)
		if err != nil {
			return wire.Frame{}, false, err
		}
		ok, err := st.add(e, slot, b)
		if err != nil {
			return wire.Frame{}, false, err
		}
		if full = !ok; ok {
			st.have++
		}
	}
	st.at, st.digest = p.Head, p.Digest.Clone()
	if !full {
		if err := st.endPass(e); err != nil {
			return wire.Frame{}, false, err
		}
	}
	return st.frame(e)
}

// endPass ends a pass with the state, where that changed.
func (st *stream) endPass(e *event) (err error) {
	st.pass = nil
	e.State, err = st.stateIfChanged()
	return err
}

// recordEvent sends what the next record did.
func (st *stream) recordEvent() (wire.Frame, bool, error) {
	p, v := st.pass, viewOf(st.view)
	amended := p.by(st.at.Sequence+1, st.have)
	if len(amended) > 1 { // of one line with many objects: no event for each
		p.jump, p.keep = true, st.have
		return st.jumpEvent()
	}
	at, err := st.records(p.Head.Offset).skip()
	if err != nil {
		return wire.Frame{}, false, err
	}
	if at.Offset == p.Head.Offset && at != p.Head {
		return wire.Frame{}, false, fmt.Errorf("engine: record %d: %w", at.Sequence, stamp.ErrMismatch)
	}
	e := st.newEvent(at)
	for _, a := range amended {
		if _, err := st.amend(e, a); err != nil {
			return wire.Frame{}, false, err
		}
	}
	st.at = at
	for st.have < p.count {
		slot, b, err := p.BodyAt(&p.Slots, st.have, false)
		if err != nil {
			return wire.Frame{}, false, err
		}
		if b.Sequence > at.Sequence {
			break
		}
		if amended, err := st.amendedBy(v, st.have, at.Sequence); err != nil {
			return wire.Frame{}, false, err
		} else if amended {
			if b, err = p.Body(slot, true); err != nil {
				return wire.Frame{}, false, err
			}
		}
		ok, err := st.add(e, slot, b)
		if err != nil {
			return wire.Frame{}, false, err
		}
		if !ok { // the rest follows in another pass
			st.pass = nil
			return st.frame(e)
		}
		st.have++
	}
	if at == p.Head {
		if err := st.endPass(e); err != nil {
			return wire.Frame{}, false, err
		}
	}
	return st.frame(e)
}

// amendedBy reports whether a slot is what a record up to sequence made of it:
// it may have been in the view before, or been edited before it was there.
func (st *stream) amendedBy(v dialect.View, index int, sequence uint64) (bool, error) {
	p := st.pass
	if p.all == nil {
		d, err := st.g.replay.Delta(v, 0)
		if err != nil {
			return false, err
		}
		p.all = map[int]uint64{}
		for _, a := range d.Amendments {
			p.all[a.Index] = a.Sequence
		}
	}
	by, ok := p.all[index]
	return ok && by <= sequence, nil
}

// amendedAll reports whether all amendments of what stands were sent.
func (p *pass) amendedAll() bool {
	return p.amended == len(p.Amendments) || p.Amendments[p.amended].Index >= p.keep
}

// by returns the amendments that a record made to slots below have.
func (p *pass) by(sequence uint64, have int) []dialect.Amendment {
	var out []dialect.Amendment
	for _, a := range p.Amendments {
		if a.Sequence == sequence && a.Index < have {
			out = append(out, a)
		}
	}
	return out
}
