package pi

import (
	"slices"
	"sort"

	"sessiond/replay/dialect"
	"sessiond/replay/dialect/tree"
)

// view is what a session holds of a message view.
type view struct {
	cuts  dialect.Cuts
	ready bool // slots are kept up to date
	slots []dialect.Slot
	keep  int // least keep of the cuts since slots were brought up to date
}

func (w *view) bytes() int64 { return int64(cap(w.slots))*8 + w.cuts.Bytes() }

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
			keep = s.through(v, common)
			w.slots = w.slots[:keep:keep] // append copies: readers hold the rest
		}
		for _, at := range s.chain(s.leaf, common) {
			w.slots = s.appendSlots(w.slots, v, at)
		}
	}
}

// chain returns the entries of i's bridged chain below top, topmost first.
func (s *Session) chain(i, top int32) []int32 {
	var up []int32
	for at := i; at != top; at = s.tree.Node(at).Parent {
		up = append(up, at)
	}
	slices.Reverse(up)
	return up
}

// strictChain returns the whole strict chain of i, topmost first.
func (s *Session) strictChain(i int32) []int32 {
	root := s.tree.Node(i).Strict
	return append(s.tree.RingPrefix(i), s.chain(i, s.tree.Node(root).Parent)...)
}

func (s *Session) appendSlots(slots []dialect.Slot, v dialect.View, i int32) []dialect.Slot {
	if v == dialect.Transcript && s.tree.Node(i).Bridged() {
		slots = append(slots, dialect.Slot{Entry: i, Part: partGap})
	}
	if weight(s.entries.At(i))[v] > 0 {
		slots = append(slots, dialect.Slot{Entry: i, Part: partMessage})
	}
	return slots
}

func (s *Session) makeSlots(v dialect.View, leaf int32) []dialect.Slot {
	if leaf == tree.None {
		return nil
	}
	if v == dialect.Context {
		return s.contextSlots(leaf)
	}
	slots := make([]dialect.Slot, 0, s.tree.Node(leaf).Sum[0])
	for _, at := range s.chain(leaf, tree.None) {
		slots = s.appendSlots(slots, v, at)
	}
	return slots
}

// contextSlots builds the context with the head at leaf: the summary of the
// last compaction with what it retains, then what follows it.
func (s *Session) contextSlots(leaf int32) []dialect.Slot {
	path := s.strictChain(leaf)
	var slots []dialect.Slot
	if c := s.tree.Node(leaf).Mark; c != tree.None {
		at := slices.Index(path, c)
		if s.compactions[c].system {
			slots = append(slots, dialect.Slot{Entry: c, Part: partSystem})
		}
		slots = append(slots, dialect.Slot{Entry: c, Part: partMessage})
		if k := slices.Index(path[:at], s.firstKept(c)); k >= 0 {
			for _, i := range path[k:at] {
				if !s.leftOut(c, i) {
					slots = s.appendSlots(slots, dialect.Context, i)
				}
			}
		}
		path = path[at+1:]
	}
	for _, i := range path {
		slots = s.appendSlots(slots, dialect.Context, i)
	}
	return slots
}

// slotOf finds the message slot of an entry in a view that is kept.
func (s *Session) slotOf(v dialect.View, i int32) (index int, ok bool) {
	slots := s.views[v].slots
	want := dialect.Slot{Entry: i, Part: partMessage}
	head := 0
	if v == dialect.Context && s.leaf != tree.None {
		n := s.tree.Node(s.leaf)
		if s.tree.Node(n.Strict).Ring() {
			index = slices.Index(slots, want)
			return index, index >= 0
		}
		if n.Mark != tree.None {
			head = s.headSlots(n.Mark)
		}
	}
	depth := s.tree.Node(i).Depth
	index = head + sort.Search(len(slots)-head, func(k int) bool {
		at := slots[head+k]
		d := s.tree.Node(at.Entry).Depth
		return d > depth || (d == depth && at.Part == partMessage)
	})
	return index, index < len(slots) && slots[index] == want
}
