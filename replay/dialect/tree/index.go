package tree

import (
	"iter"
	"slices"

	"sessiond/replay/pages"
)

// None is the ordinal of no entry.
const None int32 = -1

// Node is what the index knows of an entry.
type Node struct {
	Parent int32    // on the bridged chain, None at a root
	Skip   int32    // an ancestor that makes climbing O(log n)
	Depth  int32    // entries on the bridged chain up to and including this one
	Strict int32    // the root of its strict chain
	Sum    [3]int32 // weights: [0] over the bridged chain, the others over the strict chain
	Mark   int32    // the last marked entry of its strict chain, itself included
	flags  uint8
	weight Weight
}

// Weight is what an entry adds to the sums of its chains.
type Weight [3]uint8

const (
	flagBridged uint8 = 1 << iota // Parent is a bridge, not the parent named
	flagRing                      // its named parent was cut to end a ring
	flagMarked
)

// Bridged reports whether the entry's chain was broken here and goes on by
// file order only.
func (n *Node) Bridged() bool { return n.flags&flagBridged != 0 }

// Ring reports whether the entry is where a ring was cut.
func (n *Node) Ring() bool { return n.flags&flagRing != 0 }

// Entry is what Add takes.
type Entry struct {
	ID     uint64 // hash of the id; 0: none
	Parent uint64 // hash of the parent's id; 0: the entry is a root by intent
	Found  int32  // what Find says of Parent
	Linear bool   // the parent is the entry before, whatever ids say
	Marked bool
	Weight Weight
}

// Index links entries by ordinal.
type Index struct {
	space    *pages.Space
	nodes    pages.List[Node]
	ids      idRuns
	dangling map[uint64][]int32 // parent id hash -> entries that name it in vain
	rings    map[int32]int32    // entry cut from a ring -> the parent that it names
	cyclic   []int32            // entries where rings were cut, sorted

	// dirty: links that stand have changed; entries from linked on wait.
	dirty   bool
	linked  int32
	waiting pages.List[waiting]
	shadow  map[int32]int32 // entry -> a later one with its id
}

type waiting struct {
	parent uint64
	linear bool
}

// New returns an empty index whose lists are in a space. Between its Lock and
// Unlock only it may be changed.
func New(space *pages.Space) *Index {
	return &Index{
		space: space, nodes: pages.New[Node](space), ids: newIDRuns(space), waiting: pages.New[waiting](space),
		dangling: map[uint64][]int32{}, rings: map[int32]int32{}, shadow: map[int32]int32{},
	}
}

// Len is the number of entries.
func (x *Index) Len() int32 { return x.nodes.Len() }

// Node returns an entry's links, to be read until the next call.
func (x *Index) Node(i int32) *Node { return x.nodes.At(i) }

// Find returns the last entry with the id, or None.
func (x *Index) Find(id uint64) int32 { return x.ids.last(id) }

// All yields every entry with the id, in file order.
func (x *Index) All(id uint64) iter.Seq[int32] { return x.ids.all(id) }

// Dirty reports whether Commit has links to make anew.
func (x *Index) Dirty() bool { return x.dirty }

// Dangling returns the entries that name an unknown parent, ascending.
func (x *Index) Dangling() []int32 {
	var out []int32
	for _, list := range x.dangling {
		out = append(out, list...)
	}
	slices.Sort(out)
	return out
}

// Cycles returns the entries where rings were cut, ascending.
func (x *Index) Cycles() []int32 { return x.cyclic }

// Bytes is about the memory that the index holds.
func (x *Index) Bytes() int64 {
	return x.nodes.Bytes() + x.ids.bytes() + x.waiting.Bytes() +
		int64(len(x.dangling))*danglingBytes + int64(len(x.rings))*ringBytes
}

// What an entry of a map of oddities costs, its list included.
const (
	danglingBytes = 80
	ringBytes     = 24
)

// Add takes the next entry and returns its ordinal and whether its id is a
// repeat. Until Commit, links are good only while Dirty is false.
func (x *Index) Add(e Entry) (ordinal int32, repeated bool) {
	i, n := x.nodes.Add()
	n.weight = e.Weight
	if e.Marked {
		n.flags = flagMarked
	}
	if e.ID != 0 && e.Linear {
		x.ids.add(e.ID, i)
	} else if e.ID != 0 {
		repeated = x.register(e.ID, i)
	}
	if x.dirty {
		x.waiting.Append(waiting{e.Parent, e.Linear})
		return i, repeated
	}
	parent := e.Found
	if e.Linear || parent == None || e.Parent == e.ID {
		parent = x.named(i, waiting{e.Parent, e.Linear})
	}
	x.link(i, parent)
	x.sum(i)
	return i, repeated
}

// register notes the id and whether it changes links that stand.
func (x *Index) register(id uint64, i int32) (repeated bool) {
	if old := x.ids.add(id, i); old != None {
		x.shadow[old] = i
		repeated = true
		x.mess(i)
	}
	if _, late := x.dangling[id]; late {
		x.mess(i)
	}
	return repeated
}

func (x *Index) mess(i int32) {
	if !x.dirty {
		x.dirty, x.linked = true, i
	}
}

// unknown is a parent that is named and not there.
const unknown int32 = -2

// named resolves the parent that an entry names: an ordinal, None or unknown.
func (x *Index) named(i int32, w waiting) int32 {
	switch {
	case w.linear:
		return i - 1
	case w.parent == 0:
		return None
	}
	if p := x.ids.last(w.parent); p != None {
		return p
	}
	x.dangling[w.parent] = append(x.dangling[w.parent], i)
	return unknown
}

// link sets the parent of an entry that is no part of a ring.
func (x *Index) link(i, parent int32) {
	n := x.nodes.Mut(i)
	n.flags &^= flagBridged | flagRing
	if parent == unknown {
		n.flags |= flagBridged
		parent = i - 1
	}
	if parent == i { // its own parent: the smallest ring
		n.flags |= flagBridged | flagRing
		x.rings[i] = i
		x.cyclic = insertSorted(x.cyclic, i)
		parent = i - 1
	}
	n.Parent = parent
	if parent == None {
		n.flags &^= flagBridged
	}
}

// sum computes all that follows from the parent's sums.
func (x *Index) sum(i int32) {
	n := x.nodes.Mut(i)
	var p *Node
	n.Depth, n.Skip, n.Sum[0] = 1, None, 0
	if n.Parent != None {
		p = x.Node(n.Parent)
		n.Depth = p.Depth + 1
		n.Skip = x.skip(n.Parent, p)
		n.Sum[0] = p.Sum[0]
	}
	if n.Bridged() {
		n.Sum[0]++ // the gap
	}
	n.Strict, n.Mark, n.Sum[1], n.Sum[2] = i, None, 0, 0
	if p != nil && !n.Bridged() {
		n.Strict, n.Mark, n.Sum[1], n.Sum[2] = p.Strict, p.Mark, p.Sum[1], p.Sum[2]
	}
	if n.flags&flagMarked != 0 {
		n.Mark = i
	}
	for k, w := range n.weight {
		n.Sum[k] += int32(w)
	}
}

// skip chooses the skip ancestor of a child of p, in the manner of
// skew-binary numbers: from any entry, O(log n) skips and parents reach any
// ancestor.
func (x *Index) skip(p int32, n *Node) int32 {
	if n.Skip == None {
		return p
	}
	s := x.Node(n.Skip)
	if s.Skip == None {
		if n.Depth-s.Depth == s.Depth {
			return None
		}
		return p
	}
	if n.Depth-s.Depth == s.Depth-x.Node(s.Skip).Depth {
		return s.Skip
	}
	return p
}

// Ancestor returns the ancestor of i, or i itself, at a depth on the bridged
// chain; None when i is not that deep.
func (x *Index) Ancestor(i, depth int32) int32 {
	if depth < 1 || i == None || x.Node(i).Depth < depth {
		return None
	}
	for x.Node(i).Depth > depth {
		n := x.Node(i)
		if n.Skip != None && x.Node(n.Skip).Depth >= depth {
			i = n.Skip
		} else {
			i = n.Parent
		}
	}
	return i
}

// IsAncestor reports whether a is d or on d's bridged chain.
func (x *Index) IsAncestor(a, d int32) bool {
	return a != None && x.Ancestor(d, x.Node(a).Depth) == a
}

// OnStrict reports whether a is d or on d's strict chain.
func (x *Index) OnStrict(a, d int32) bool {
	return a != None && d != None && x.Node(a).Strict == x.Node(d).Strict && x.IsAncestor(a, d)
}

// Common returns the deepest entry that is on both bridged chains, or None.
func (x *Index) Common(a, b int32) int32 {
	if a == None || b == None {
		return None
	}
	depth := min(x.Node(a).Depth, x.Node(b).Depth)
	a, b = x.Ancestor(a, depth), x.Ancestor(b, depth)
	for a != b {
		na, nb := x.Node(a), x.Node(b)
		switch {
		case na.Skip != None && nb.Skip != None && na.Skip != nb.Skip:
			a, b = na.Skip, nb.Skip
		default:
			a, b = na.Parent, nb.Parent
		}
		if a == None || b == None {
			return None
		}
	}
	return a
}

// RingPrefix returns what the strict chain of i holds above its root when
// that root was cut from a ring, topmost last: a walk by named parents that
// stops before an entry seen already.
func (x *Index) RingPrefix(i int32) pages.List[int32] {
	up := pages.New[int32](x.space)
	root := x.Node(i).Strict
	if !x.Node(root).Ring() {
		return up
	}
	for at := x.rings[root]; !x.OnStrict(at, i); at = x.Node(at).Parent {
		x.space.RelaxEvery(up.Len())
		up.Append(at)
	}
	return up
}

func insertSorted(s []int32, v int32) []int32 {
	at, found := slices.BinarySearch(s, v)
	if found {
		return s
	}
	return slices.Insert(s, at, v)
}

// Named reports whether an entry names the id as its parent in vain.
func (x *Index) Named(id uint64) bool { return len(x.dangling[id]) > 0 }
