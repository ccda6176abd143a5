package tree

import "slices"

// Commit ends a batch: when links that stood have changed, all are made anew.
func (x *Index) Commit() {
	if !x.dirty {
		return
	}
	named := x.nameParents()
	forward := x.cutRings(named)
	for i := range x.Len() {
		x.Node(i).Depth = 0
	}
	if forward {
		x.dropBridgesIntoOwnBranch()
	}
	for i := range x.Len() {
		x.sumFrom(i)
	}
	x.dirty, x.waiting = false, nil
	clear(x.shadow)
}

// nameParents gives every entry the parent that it names now, as a strict
// link: an ordinal, None or unknown.
func (x *Index) nameParents() []int32 {
	named := make([]int32, x.Len())
	for i := range x.linked {
		n := x.Node(i)
		switch {
		case n.Ring():
			named[i] = x.rings[i]
		case n.Bridged():
			named[i] = unknown
		default:
			named[i] = n.Parent
		}
		// Dangling entries at ordinal 0 have no bridge; the map knows them.
	}
	for i, w := range x.waiting {
		named[x.linked+int32(i)] = x.named(x.linked+int32(i), w)
	}
	for id, children := range x.dangling {
		p := x.ids.last(id)
		for _, c := range children {
			if p != None {
				named[c] = p
			} else {
				named[c] = unknown
			}
		}
		if p != None {
			delete(x.dangling, id)
		}
	}
	for i, p := range named {
		if p < 0 {
			continue
		}
		named[i] = x.newest(p)
	}
	return named
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
func (x *Index) cutRings(named []int32) (forward bool) {
	clear(x.rings)
	x.cyclic = x.cyclic[:0]
	for i, p := range named {
		forward = forward || p >= int32(i)
	}
	if forward {
		x.findRings(named)
	}
	for i, p := range named {
		i := int32(i)
		if to, cut := x.rings[i]; cut {
			x.link(i, unknown)
			x.Node(i).flags |= flagRing
			x.rings[i] = to
			x.cyclic = append(x.cyclic, i)
			continue
		}
		x.link(i, p)
	}
	slices.Sort(x.cyclic)
	return forward
}

// findRings fills rings. Every walk marks what it visits, so that the whole
// is linear.
func (x *Index) findRings(named []int32) {
	walk := make([]int32, len(named)) // number of the walk that saw the entry, 0: none
	for start := range named {
		id := int32(start) + 1
		at := int32(start)
		for at >= 0 && walk[at] == 0 {
			walk[at] = id
			at = named[at]
		}
		if at < 0 || walk[at] != id {
			continue
		}
		lowest := at
		for p := named[at]; p != at; p = named[p] {
			lowest = min(lowest, p)
		}
		x.rings[lowest] = named[lowest]
	}
}

// dropBridgesIntoOwnBranch removes bridges that would close a ring: possible
// only when a link points forward in the file.
func (x *Index) dropBridgesIntoOwnBranch() {
	root := make([]int32, x.Len()) // union-find over roots
	for i := range root {
		root[i] = int32(i)
	}
	find := func(i int32) int32 {
		for root[i] != i {
			root[i] = root[root[i]]
			i = root[i]
		}
		return i
	}
	for i := range x.Len() {
		if n := x.Node(i); n.Parent != None && !n.Bridged() {
			root[find(i)] = find(n.Parent)
		}
	}
	for i := range x.Len() {
		n := x.Node(i)
		if !n.Bridged() {
			continue
		}
		if to := find(n.Parent); to != i {
			root[i] = to
		} else {
			n.Parent = None
			n.flags &^= flagBridged
		}
	}
}

// sumFrom computes the sums of i after those of its ancestors.
func (x *Index) sumFrom(i int32) {
	var stack []int32
	for at := i; at != None && x.Node(at).Depth == 0; at = x.Node(at).Parent {
		if at == i && (x.Node(i).Parent == None || x.Node(x.Node(i).Parent).Depth != 0) {
			x.sum(i)
			return
		}
		stack = append(stack, at)
	}
	for k := len(stack) - 1; k >= 0; k-- {
		x.sum(stack[k])
	}
}
