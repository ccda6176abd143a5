package pi

import (
	"sessiond/replay/dialect"
	"sessiond/replay/dialect/tree"
)

// advance moves the head to entry i, whose links stand. Slots follow at the
// next Commit.
func (s *Session) advance(i int32) {
	old := s.leaf
	s.leaf = i
	e, n := s.entries.At(i), s.tree.Node(i)
	if n.Parent == old && !n.Bridged() && e.kind != kindCompaction { // the path grew, and no more
		s.advanceHeads(old, i)
		return
	}
	for v := range dialect.Views {
		if cut := s.shorten(v, old, s.cutBy(v, old, i)); cut.Keep != dialect.All {
			s.views[v].cuts.Add(e.sequence, cut.Keep, cut.Reason)
			s.views[v].keep = min(s.views[v].keep, cut.Keep)
		}
	}
	s.advanceHeads(old, i)
	if len(s.edits) > 0 {
		s.stale = true
	}
}

// shorten is All for a cut that takes nothing from the view with the head at
// old. It counts only where it must: for most records there is no cut, and
// where a view has to be walked to be counted, cuts are to 0.
func (s *Session) shorten(v dialect.View, old int32, cut dialect.Cut) dialect.Cut {
	whole := cut.Keep == 0 && old == tree.None
	if whole || (cut.Keep > 0 && cut.Keep != dialect.All && cut.Keep >= s.count(v, old)) {
		return dialect.Cut{Keep: dialect.All}
	}
	return cut
}

// cutBy tells how much of a view stands when the head goes from old to i.
func (s *Session) cutBy(v dialect.View, old, i int32) dialect.Cut {
	n := s.tree.Node(i)
	if v == dialect.Context && s.entries.At(i).kind == kindCompaction {
		return dialect.Cut{Keep: 0, Reason: dialect.ReasonCompaction}
	}
	return s.cutTo(v, old, n.Parent, n.Bridged())
}

// cutTo tells how much of a view stands when the entry after old hangs below
// parent, by a bridge or not.
func (s *Session) cutTo(v dialect.View, old, parent int32, bridged bool) dialect.Cut {
	branch := func(keep int) dialect.Cut { return dialect.Cut{Keep: keep, Reason: dialect.ReasonBranch} }
	if v == dialect.Context && bridged {
		return branch(0)
	}
	if parent == old {
		return dialect.Cut{Keep: dialect.All}
	}
	common := s.tree.Common(old, parent)
	if common == tree.None {
		return branch(0)
	}
	if v == dialect.Context {
		// A branch that is left takes its edits along: what they changed
		// changes back, wherever it stands.
		o, p := s.tree.Node(old), s.tree.Node(parent)
		if o.Strict != p.Strict || o.Mark != p.Mark || s.tree.Node(o.Strict).Ring() || len(s.edits) > 0 {
			return branch(0)
		}
	}
	return branch(s.through(v, common))
}

// through is how many slots a view has up to entry i of its path. In the
// context i is not before the compaction that rules, and in no ring.
func (s *Session) through(v dialect.View, i int32) int {
	n := s.tree.Node(i)
	switch {
	case v == dialect.Transcript:
		return int(n.Sum[dialect.Transcript])
	case n.Mark == tree.None:
		return int(n.Sum[dialect.Context])
	}
	return s.base(n.Mark) + int(n.Sum[dialect.Context]-s.tree.Node(n.Mark).Sum[dialect.Context])
}

// count is how many slots a view has with the head at leaf.
func (s *Session) count(v dialect.View, leaf int32) int {
	switch {
	case leaf == tree.None:
		return 0
	case v == dialect.Context && s.tree.Node(s.tree.Node(leaf).Strict).Ring():
		slots := s.contextSlots(leaf)
		return int(slots.Len())
	}
	return s.through(v, leaf)
}

// relink takes links made anew: what a view was inside the batch is not
// known, what it was before is compared slot by slot.
func (s *Session) relink() {
	s.tree.Commit()
	s.leaf = s.entries.Len() - 1
	seq := s.entries.At(s.leaf).sequence
	for v := range dialect.Views {
		w := &s.views[v]
		w.keep = dialect.All
		keep := 0
		if w.ready {
			old := w.slots
			w.slots = s.makeSlots(v, s.leaf)
			// A summary counts what it retains and edits come and go, so with
			// either of them equal slots need not be equal messages.
			if v == dialect.Transcript || (s.tree.Node(s.leaf).Mark == tree.None && len(s.edits) == 0) {
				for both := min(old.Len(), w.slots.Len()); int32(keep) < both && *old.At(int32(keep)) == *w.slots.At(int32(keep)); keep++ {
					s.space.RelaxEvery(int32(keep))
				}
			}
		}
		w.cuts.Add(seq, keep, dialect.ReasonBranch)
		w.cuts.AddZone(s.linked, seq)
	}
	s.heads = noHeads()
	s.stale = true
}

// Keep implements dialect.Session.
func (s *Session) Keep(v dialect.View, after uint64) dialect.Cut { return s.views[v].cuts.Keep(after) }

// Slots implements dialect.Session.
func (s *Session) Slots(v dialect.View) dialect.Slots {
	w := &s.views[v]
	if !w.ready {
		w.slots, w.ready = s.makeSlots(v, s.leaf), true
	}
	return w.slots
}
