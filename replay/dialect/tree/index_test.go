package tree

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sessiond/replay/pages"
)

// model computes by the plain rules what the index keeps incrementally.
type model struct{ entries []Entry }

func (m model) named(i int32) int32 {
	e := m.entries[i]
	if e.Linear {
		return i - 1
	}
	if e.Parent == 0 {
		return None
	}
	for p := len(m.entries) - 1; p >= 0; p-- {
		if m.entries[p].ID == e.Parent {
			return int32(p)
		}
	}
	return unknown
}

// strictChain walks named parents with a visited guard, root first.
func (m model) strictChain(i int32) []int32 {
	var up []int32
	for at := i; at >= 0 && !slices.Contains(up, at); at = m.named(at) {
		up = append(up, at)
	}
	slices.Reverse(up)
	return up
}

func chain(x *Index, i int32) (strict []int32, bridged []int32) {
	for at := i; at != None; at = x.Node(at).Parent {
		bridged = append(bridged, at)
		if x.Node(at).Strict == x.Node(i).Strict {
			strict = append(strict, at)
		}
	}
	slices.Reverse(strict)
	slices.Reverse(bridged)
	prefix := x.RingPrefix(i)
	top := prefix.AppendTo(nil, 0, prefix.Len())
	slices.Reverse(top)
	return append(top, strict...), bridged
}

func drawEntry(t *rapid.T, n int) Entry {
	e := Entry{
		ID:     uint64(rapid.IntRange(0, n+3).Draw(t, "id")),
		Parent: uint64(rapid.IntRange(0, n+3).Draw(t, "parent")),
		Marked: rapid.IntRange(0, 5).Draw(t, "mark") == 0,
		Weight: Weight{uint8(rapid.IntRange(0, 1).Draw(t, "w0")), uint8(rapid.IntRange(0, 1).Draw(t, "w1")), uint8(rapid.IntRange(0, 1).Draw(t, "w2"))},
	}
	switch rapid.IntRange(0, 9).Draw(t, "kind") { // mostly a plain growing chain
	case 0, 1:
	case 2:
		e.ID = uint64(n + 1)
	default:
		e.ID, e.Parent = uint64(n+1), uint64(n)
	}
	// Spread like real hashes, keep 0 as "none".
	e.ID *= 0x9e3779b97f4a7c15
	e.Parent *= 0x9e3779b97f4a7c15
	return e
}

func TestIndex_EqualsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, m := New(new(pages.Space)), model{}
		for n := range rapid.IntRange(1, 60).Draw(t, "entries") {
			e := drawEntry(t, n)
			m.entries = append(m.entries, e)
			e.Found = x.Find(e.Parent)
			x.Add(e)
			if rapid.IntRange(0, 3).Draw(t, "commit") == 0 {
				x.Commit()
				checkAll(t, x, m)
			}
		}
		x.Commit()
		checkAll(t, x, m)
	})
}

func checkAll(t *rapid.T, x *Index, m model) {
	for i := range x.Len() {
		strict, bridged := chain(x, i)
		if diff := cmp.Diff(m.strictChain(i), strict); diff != "" {
			t.Fatalf("strict chain of %d (-want +got):\n%s", i, diff)
		}
		n := x.Node(i)
		if int(n.Depth) != len(bridged) {
			t.Fatalf("depth of %d: got %d, want %d", i, n.Depth, len(bridged))
		}
		var sum [3]int32
		mark := None
		for _, a := range bridged {
			an := x.Node(a)
			sum[0] += int32(an.weight[0])
			if an.Bridged() {
				sum[0]++
			}
			if an.Strict == n.Strict {
				sum[1] += int32(an.weight[1])
				sum[2] += int32(an.weight[2])
				if m.entries[a].Marked {
					mark = a
				}
			}
		}
		if n.Sum != sum || n.Mark != mark {
			t.Fatalf("sums of %d: got %v mark %d, want %v mark %d", i, n.Sum, n.Mark, sum, mark)
		}
		for d := range n.Depth {
			if got := x.Ancestor(i, d+1); got != bridged[d] {
				t.Fatalf("ancestor of %d at depth %d: got %d, want %d", i, d+1, got, bridged[d])
			}
		}
		for j := range i {
			_, other := chain(x, j)
			want := None
			for k := 0; k < len(bridged) && k < len(other) && bridged[k] == other[k]; k++ {
				want = bridged[k]
			}
			if got := x.Common(i, j); got != want {
				t.Fatalf("common of %d and %d: got %d, want %d", i, j, got, want)
			}
		}
	}
}

func TestIndex_LinearIsSkewBinary(t *testing.T) {
	x := New(new(pages.Space))
	const n = 100_000
	for range n {
		x.Add(Entry{Linear: true, Weight: Weight{1, 1}})
	}
	x.Commit()
	for _, depth := range []int32{1, 2, 4095, 4096, 4097, 65535, n} {
		if got := x.Ancestor(n-1, depth); got != depth-1 {
			t.Errorf("Ancestor(depth %d): got %d, want %d", depth, got, depth-1)
		}
	}
}

func TestIdRuns_FindsEveryID(t *testing.T) {
	r := newIDRuns(new(pages.Space))
	want := map[uint64][]int32{}
	seed := uint64(7)
	for i := range int32(100_000) {
		seed = seed*6364136223846793005 + 1442695040888963407
		id := seed ^ seed>>29
		if i%1000 == 999 { // a repeat
			id = 42
		}
		if i%5 == 0 {
			id >>= 40 // collide in the top bits
		}
		r.add(id, i)
		want[id] = append(want[id], i)
	}
	for id, list := range want {
		if got := slices.Collect(r.all(id)); !slices.Equal(got, list) {
			t.Fatalf("all(%x): got %v, want %v", id, got, list)
		}
		if got := r.last(id); got != list[len(list)-1] {
			t.Fatalf("last(%x): got %d, want %d", id, got, list[len(list)-1])
		}
		if other := id + 1; want[other] == nil && r.last(other) != None {
			t.Fatalf("last(%x): got an entry, want none", other)
		}
	}
}

func BenchmarkIndex_Add(b *testing.B) {
	for _, repeats := range []int{0, 100} {
		b.Run(fmt.Sprintf("repeats=%d", repeats), func(b *testing.B) {
			x := New(new(pages.Space))
			var last uint64
			for i := 0; b.Loop(); i++ {
				id := (uint64(i) + 1) * 0x9e3779b97f4a7c15
				x.Add(Entry{ID: id, Parent: last, Found: x.Find(last), Weight: Weight{1, 1}})
				last = id
			}
		})
	}
}
