package eventlog

import (
	"iter"
	"slices"
	"sort"

	"sessiond/replay/dialect"
	"sessiond/replay/pages"
)

// view is what a session holds of a message view.
type view struct {
	cuts  dialect.Cuts
	ready bool // slots are kept up to date
	slots dialect.Slots
	keep  int // least keep of the cuts since slots were brought up to date
}

func (w *view) bytes() int64 { return w.slots.Bytes() + w.cuts.Bytes() }

// cut notes that a record left keep slots of a view.
func (s *Session) cut(v dialect.View, sequence uint64, keep int, reason string) {
	w := &s.views[v]
	w.cuts.Add(sequence, keep, reason)
	w.keep = min(w.keep, keep)
}

// Commit implements dialect.Session.
func (s *Session) Commit() {
	for v := range dialect.Views {
		w := &s.views[v]
		keep := min(w.keep, int(w.slots.Len()))
		w.keep = dialect.All
		switch {
		case !w.ready:
		case keep == 0:
			w.slots = s.makeSlots(v)
		default: // no cut went deeper than the compaction that rules
			w.slots.Cut(int32(keep))
			for i := range s.branch(s.behind(v, keep)) {
				s.entries.At(i).appendSlots(&w.slots, v, i)
			}
		}
	}
	s.space.Relax()
}

// behind returns the entry of the branch that follows the first keep slots of
// a view.
func (s *Session) behind(v dialect.View, keep int) int32 {
	n := s.entries.Len()
	first := n
	for _, p := range slices.Backward(s.pieces) {
		from, to := p.from, min(p.to, n)
		at := from + int32(sort.Search(int(to-from), func(k int) bool { return s.through(v, from+int32(k)) > keep }))
		if at < to {
			first = at
		}
		if at > from {
			break
		}
	}
	return first
}

// branch yields the entries of the active branch from one on.
func (s *Session) branch(from int32) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		k := sort.Search(len(s.pieces), func(k int) bool { return s.pieces[k].to > from })
		n := s.entries.Len()
		for _, p := range s.pieces[k:] {
			for i := max(p.from, from); i < min(p.to, n); i++ {
				if !yield(i) {
					return
				}
			}
		}
	}
}

func (s *Session) makeSlots(v dialect.View) dialect.Slots {
	slots := pages.New[dialect.Slot](s.space)
	from := int32(0)
	if c := s.ruling(); v == dialect.Context && c != none {
		slots.Append(dialect.Slot{Entry: c, Part: partMessage})
		from = s.entries.At(c).link
	}
	for i := range s.branch(from) {
		s.space.RelaxEvery(i)
		s.entries.At(i).appendSlots(&slots, v, i)
	}
	return slots
}

// Slots implements dialect.Session.
func (s *Session) Slots(v dialect.View) dialect.Slots {
	w := &s.views[v]
	if !w.ready {
		w.slots, w.ready = s.makeSlots(v), true
	}
	return w.slots
}

// Keep implements dialect.Session.
func (s *Session) Keep(v dialect.View, after uint64) dialect.Cut { return s.views[v].cuts.Keep(after) }

// Amendments implements dialect.Session: no event changes the message of
// another.
func (s *Session) Amendments(dialect.View, uint64) []dialect.Amendment { return nil }

// Cutoff implements dialect.Session.
func (s *Session) Cutoff(v dialect.View) (dialect.Cutoff, bool) {
	c := s.ruling()
	if v != dialect.Context || c == none {
		return dialect.Cutoff{}, false
	}
	from := s.entries.At(c).link
	e := s.entries.At(from)
	return dialect.Cutoff{
		By: s.entries.At(c).sequence, Sequence: e.sequence, Offset: e.offset,
		Before: int64(from), After: int64(s.entries.Len() - from),
	}, true
}

// Preview implements dialect.Session. It answers for events that add one
// message or nothing.
func (s *Session) Preview(v dialect.View, o dialect.Object) (dialect.Preview, bool) {
	if o.Oversized != nil {
		return dialect.Preview{}, false
	}
	var e entry
	s.classify(&e, o, o.Scan.Top, o.Scan.Sub, o.Text)
	if e.kind == kindCompaction || e.kind == kindRewind || e.flags&flagReasoning != 0 {
		return dialect.Preview{}, false
	}
	p := dialect.Preview{Cut: dialect.Cut{Keep: dialect.All}}
	if e.weight(v) > 0 {
		b := s.body(v, e, none, partMessage)
		p.Body, p.Slot = &b, dialect.Slot{Entry: s.entries.Len(), Part: partMessage}
	}
	return p, true
}
