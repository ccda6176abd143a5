package tree

import (
	"iter"
	"slices"

	"sessiond/replay/pages"
)

// Commit ends a batch: when links that stood have changed, all are made anew.
func (x *Index) Commit() {
	if !x.dirty {
		return
	}
	named := x.nameParents()
	forward := x.cutRings(named)
	for i := range x.all() {
		x.nodes.Mut(i).Depth = 0
	}
	if forward {
		x.dropBridgesIntoOwnBranch()
	}
	for i := range x.all() {
		x.sumFrom(i)
	}
	x.dirty, x.waiting = false, pages.New[waiting](x.space)
	clear(x.shadow)
}

// all yields every entry, and lets pages go on the way.
func (x *Index) all() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for i := range x.Len() {
			x.space.RelaxEvery(i)
			if !yield(i) {
				return
			}
		}
	}
}

// ordinals returns a list with a value for every entry.
func (x *Index) ordinals(value func(i int32) int32) pages.List[int32] {
	l := pages.New[int32](x.space)
	for i := range x.all() {
		l.Append(value(i))
	}
	return l
}

// nameParents gives every entry the parent that it names now, as a strict
// link: an ordinal, None or unknown.
func (x *Index) nameParents() *pages.List[int32] {
	named := x.ordinals(func(i int32) int32 {
		if i >= x.linked {
			return x.named(i, *x.waiting.At(i - x.linked))
		}
		switch n := x.Node(i); {
		case n.Ring():
			return x.rings[i]
		case n.Bridged():
			return unknown
		default:
			return n.Parent
		}
		// Dangling entries at ordinal 0 have no bridge; the map knows them.
	})
	for id, children := range x.dangling {
		p := x.ids.last(id)
		for _, c := range children {
			if p != None {
				*named.Mut(c) = p
			} else {
				*named.Mut(c) = unknown
			}
		}
		if p != None {
			delete(x.dangling, id)
		}
	}
	for i := range x.all() {
		if p := *named.At(i); p >= 0 {
			*named.Mut(i) = x.newest(p)
		}
	}
	return &named
}

// newest returns the last entry with the id of i. It shortens the way for
// those that ask next, so that an id with many repeats costs linear work.
func (x *Index) newest(i int32) int32 {
	last := i
	for later, ok := x.shadow[last]; ok; later, ok = x.shadow[last] {
		last = later
	}
	for i != last {
		next := x.shadow[i]
		x.shadow[i] = last
		i = next
	}
	return last
}

// cutRings links every entry, cutting each ring above its lowest ordinal. It
// reports whether any link points forward in the file.
func (x *Index) cutRings(named *pages.List[int32]) (forward bool) {
	clear(x.rings)
	x.cyclic = x.cyclic[:0]
	for i := range x.all() {
		forward = forward || *named.At(i) >= i
	}
	if forward {
		x.findRings(named)
	}
	for i := range x.all() {
		if to, cut := x.rings[i]; cut {
			x.link(i, unknown)
			x.nodes.Mut(i).flags |= flagRing
			x.rings[i] = to
			x.cyclic = append(x.cyclic, i)
			continue
		}
		x.link(i, *named.At(i))
	}
	slices.Sort(x.cyclic)
	return forward
}

// findRings fills rings. Every walk marks what it visits, so that the whole
// is linear.
func (x *Index) findRings(named *pages.List[int32]) {
	walk := x.ordinals(func(int32) int32 { return 0 }) // number of the walk that saw the entry, 0: none
	for start := range x.all() {
		id := start + 1
		at := start
		for step := int32(1); at >= 0 && *walk.At(at) == 0; step++ {
			x.space.RelaxEvery(step)
			*walk.Mut(at) = id
			at = *named.At(at)
		}
		if at < 0 || *walk.At(at) != id {
			continue
		}
		lowest, step := at, int32(1)
		for p := *named.At(at); p != at; p = *named.At(p) {
			x.space.RelaxEvery(step)
			lowest, step = min(lowest, p), step+1
		}
		x.rings[lowest] = *named.At(lowest)
	}
}

// dropBridgesIntoOwnBranch removes bridges that would close a ring: possible
// only when a link points forward in the file.
func (x *Index) dropBridgesIntoOwnBranch() {
	root := x.ordinals(func(i int32) int32 { return i }) // union-find over roots
	find := func(i int32) int32 {
		for r := *root.At(i); r != i; r = *root.At(i) {
			up := *root.At(r)
			*root.Mut(i) = up
			i = up
		}
		return i
	}
	for i := range x.all() {
		if n := *x.Node(i); n.Parent != None && !n.Bridged() {
			to := find(n.Parent)
			*root.Mut(find(i)) = to
		}
	}
	for i := range x.all() {
		n := *x.Node(i)
		if !n.Bridged() {
			continue
		}
		if to := find(n.Parent); to != i {
			*root.Mut(i) = to
		} else {
			at := x.nodes.Mut(i)
			at.Parent = None
			at.flags &^= flagBridged
		}
	}
}

// sumFrom computes the sums of i after those of its ancestors.
func (x *Index) sumFrom(i int32) {
	if x.Node(i).Depth != 0 {
		return
	}
	if p := x.Node(i).Parent; p == None || x.Node(p).Depth != 0 {
		x.sum(i)
		return
	}
	way := pages.New[int32](x.space)
	for at := i; at != None && x.Node(at).Depth == 0; at = x.Node(at).Parent {
		x.space.RelaxEvery(way.Len())
		way.Append(at)
	}
	for k := way.Len() - 1; k >= 0; k-- {
		x.space.RelaxEvery(k)
		x.sum(*way.At(k))
	}
}
