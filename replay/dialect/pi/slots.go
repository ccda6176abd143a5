package pi

import (
	"iter"
	"sort"

	"sessiond/replay/dialect"
	"sessiond/replay/dialect/tree"
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

// updateSlots brings the slots of the views that are in use from the last
// commit's head to this one, once for all the records between.
func (s *Session) updateSlots() {
	for v := range dialect.Views {
		w := &s.views[v]
		keep := w.keep
		w.keep = dialect.All
		switch {
		case !w.ready || s.was == s.leaf:
			continue
		case keep == 0 || s.was == tree.None:
			w.slots = s.makeSlots(v, s.leaf)
			continue
		}
		// No cut went deeper than the compaction that rules, so the paths
		// before and after part where their entries do.
		common := s.tree.Common(s.was, s.leaf)
		if common != s.was {
			w.slots.Cut(int32(s.through(v, common)))
		}
		for at := range s.chain(s.leaf, common) {
			s.appendSlots(&w.slots, v, at)
		}
	}
}

// chain yields the entries of i's bridged chain below top, topmost first.
func (s *Session) chain(i, top int32) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		up := pages.New[int32](s.space)
		for at := i; at != top; at = s.tree.Node(at).Parent {
			s.space.RelaxEvery(up.Len())
			up.Append(at)
		}
		s.backward(&up, yield)
	}
}

// backward yields a list from its end.
func (s *Session) backward(up *pages.List[int32], yield func(int32) bool) bool {
	for k := up.Len() - 1; k >= 0; k-- {
		s.space.RelaxEvery(k)
		if !yield(*up.At(k)) {
			return false
		}
	}
	return true
}

// strictChain yields the whole strict chain of i, topmost first.
func (s *Session) strictChain(i int32) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		prefix := s.tree.RingPrefix(i)
		if s.backward(&prefix, yield) {
			s.chain(i, s.tree.Node(s.tree.Node(i).Strict).Parent)(yield)
		}
	}
}

func (s *Session) appendSlots(slots *dialect.Slots, v dialect.View, i int32) {
	if v == dialect.Transcript && s.tree.Node(i).Bridged() {
		slots.Append(dialect.Slot{Entry: i, Part: partGap})
	}
	if weight(s.entries.At(i))[v] > 0 {
		slots.Append(dialect.Slot{Entry: i, Part: partMessage})
	}
}

func (s *Session) makeSlots(v dialect.View, leaf int32) dialect.Slots {
	if v == dialect.Context {
		return s.contextSlots(leaf)
	}
	slots := pages.New[dialect.Slot](s.space)
	for at := range s.chain(leaf, tree.None) {
		s.appendSlots(&slots, v, at)
	}
	return slots
}

// contextSlots builds the context with the head at leaf: the summary of the
// last compaction with what it retains, then what follows it.
func (s *Session) contextSlots(leaf int32) dialect.Slots {
	slots := pages.New[dialect.Slot](s.space)
	if leaf == tree.None {
		return slots
	}
	c, kept := s.tree.Node(leaf).Mark, tree.None
	if c != tree.None {
		if s.compactions[c].system {
			slots.Append(dialect.Slot{Entry: c, Part: partSystem})
		}
		slots.Append(dialect.Slot{Entry: c, Part: partMessage})
		kept = s.firstKept(c)
	}
	retains, follows := false, c == tree.None
	for i := range s.strictChain(leaf) {
		switch {
		case follows:
			s.appendSlots(&slots, dialect.Context, i)
		case i == c:
			follows = true
		default:
			if retains = retains || i == kept; retains && !s.leftOut(c, i) {
				s.appendSlots(&slots, dialect.Context, i)
			}
		}
	}
	return slots
}

// slotOf finds the message slot of an entry in a view that is kept.
func (s *Session) slotOf(v dialect.View, i int32) (index int, ok bool) {
	slots := &s.views[v].slots
	want := dialect.Slot{Entry: i, Part: partMessage}
	head := 0
	if v == dialect.Context && s.leaf != tree.None {
		n := s.tree.Node(s.leaf)
		if s.tree.Node(n.Strict).Ring() {
			for k, slot := range slots.All() {
				if slot == want {
					return int(k), true
				}
			}
			return -1, false
		}
		if n.Mark != tree.None {
			head = s.headSlots(n.Mark)
		}
	}
	depth := s.tree.Node(i).Depth
	index = head + sort.Search(int(slots.Len())-head, func(k int) bool {
		at := slots.At(int32(head + k))
		d := s.tree.Node(at.Entry).Depth
		return d > depth || (d == depth && at.Part == partMessage)
	})
	return index, index < int(slots.Len()) && *slots.At(int32(index)) == want
}
