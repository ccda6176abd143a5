package pages_test

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"sessiond/replay/pages"
)

// model is a list, the plain one that it must equal, and copies with what
// they held when they were taken.
type model struct {
	space  *pages.Space
	list   pages.List[number]
	want   []number
	copies []taken
}

type taken struct {
	list pages.List[number]
	want []number
}

func (m *model) value(t *rapid.T) number {
	return numberOf(int64(rapid.IntRange(0, 1<<20).Draw(t, "value")))
}

// step is one change of an owner, or none.
func (m *model) step(t *rapid.T) {
	n := len(m.want)
	switch rapid.IntRange(0, 9).Draw(t, "step") {
	case 0, 1:
		i, v := m.list.Add()
		if *v != (number{}) {
			t.Fatalf("added element %d: got %v, want a zero one", i, *v)
		}
		*v = m.value(t)
		if m.want = append(m.want, *v); int(i) != n {
			t.Fatalf("ordinal: got %d, want %d", i, n)
		}
	case 2, 3:
		more := rapid.SliceOfN(rapid.Custom(m.value), 0, 40).Draw(t, "more")
		m.list.Append(more...)
		m.want = append(m.want, more...)
	case 4: // what copies share may be changed only where there are none
		if n > 0 && len(m.copies) == 0 {
			i := rapid.IntRange(0, n-1).Draw(t, "changed")
			m.want[i] = m.value(t)
			*m.list.Mut(int32(i)) = m.want[i]
		}
	case 5:
		keep := rapid.IntRange(0, n+2).Draw(t, "cut")
		m.list.Cut(int32(keep))
		m.want = slices.Clone(m.want[:min(keep, n)])
	case 6:
		m.copies = append(m.copies, taken{m.list, slices.Clone(m.want)})
	case 7:
		first := rapid.IntRange(0, n+2).Draw(t, "first")
		m.copies = append(m.copies, taken{m.list.First(int32(first)), slices.Clone(m.want[:min(first, n)])})
	case 8:
		m.copies = nil
	case 9:
		m.space.Relax()
	}
}

// check demands that a list is what it must be, in one of the ways to read it.
func check(t *rapid.T, l *pages.List[number], want []number) {
	n := int32(len(want))
	if l.Len() != n {
		t.Fatalf("length: got %d, want %d", l.Len(), n)
	}
	from := rapid.Int32Range(0, n).Draw(t, "from")
	to := rapid.Int32Range(from, n).Draw(t, "to")
	if got := l.AppendTo(nil, from, to); !slices.Equal(got, want[from:to]) {
		t.Fatalf("%d to %d: got %v, want %v", from, to, got, want[from:to])
	}
	if n > 0 {
		i := rapid.Int32Range(0, n-1).Draw(t, "at")
		if got := *l.At(i); got != want[i] {
			t.Fatalf("element %d: got %v, want %v", i, got, want[i])
		}
		if got, err := l.Get(i); err != nil || got != want[i] {
			t.Fatalf("element %d: got %v %v, want %v", i, got, err, want[i])
		}
	}
	for i, v := range l.All() {
		if v != want[i] {
			t.Fatalf("element %d of all: got %v, want %v", i, v, want[i])
		}
	}
}

// TestList_EqualsSlice changes lists of several spaces, whose pages leave
// memory whenever they may.
func TestList_EqualsSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool := newPool(&store{}, rapid.SampledFrom([]int{1, 30, 100, 700}).Draw(t, "page"))
		var models []*model
		for range rapid.IntRange(1, 3).Draw(t, "spaces") {
			space := pool.NewSpace()
			for range rapid.IntRange(1, 2).Draw(t, "lists") {
				models = append(models, &model{space: space, list: pages.New[number](space)})
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			m := rapid.SampledFrom(models).Draw(t, "list")
			m.space.Lock()
			for range rapid.IntRange(1, 4).Draw(t, "changes") {
				m.step(t)
			}
			m.space.Unlock()
			if rapid.IntRange(0, 30).Draw(t, "collect") == 0 {
				runtime.GC()
			}
			check(t, &m.list, m.want)
			for _, c := range m.copies {
				check(t, &c.list, c.want)
			}
		}
		for _, m := range models {
			check(t, &m.list, m.want)
		}
	})
}

// The least pool there is holds the last page of each list, and while its
// owner is at work what that uses.
func TestPool_HeldBytesAreBounded(t *testing.T) {
	const page = 1 << 10
	pool := pages.NewPool(pages.Options{Bytes: 8 * page, PageBytes: page, Open: (&store{}).open})
	var lists []*owned
	for range 20 {
		lists = append(lists, newOwned(pool))
	}
	for n := int32(500); n <= 5000; n += 500 {
		for _, o := range lists {
			o.change(func(l *pages.List[number]) { fill(l, n) })
			wants(t, &o.list, n)
		}
		lists[0].change(func(*pages.List[number]) {})
		st := pool.Stats()
		if most := int64(8+2+len(lists)) * page * 5 / 4; st.HeldBytes > most {
			t.Fatalf("%d elements in each: holds %d bytes, want at most %d", n, st.HeldBytes, most)
		}
	}
	if st := pool.Stats(); st.Reads == 0 || st.Writes == 0 || st.Failed != "" {
		t.Errorf("got %+v, want reads and writes", st)
	}
}

// What many lists have in their last pages is none of what may leave: it must
// not drive out the little that their owners use again and again.
func TestPool_LastPagesDriveNothingOut(t *testing.T) {
	pool := pages.NewPool(pages.Options{Bytes: 64 << 10, PageBytes: 1 << 10, Open: (&store{}).open})
	var small []*owned
	for range 500 {
		o := newOwned(pool)
		o.change(func(l *pages.List[number]) { fill(l, 32) })
		small = append(small, o)
	}
	big := newOwned(pool)
	big.change(func(l *pages.List[number]) { fill(l, 1000) })
	for range 5 {
		wants(t, &big.list, 1000)
		big.change(func(*pages.List[number]) {})
	}
	if st := pool.Stats(); st.Reads > 0 || st.HeldBytes < st.BoundBytes {
		t.Errorf("got %+v, want no reads though the last pages are over the bound", st)
	}
	runtime.KeepAlive(small)
}

// Places in the file are used again, and what is held is counted no more, once
// nobody has a list.
func TestPool_PlacesAreUsedAgain(t *testing.T) {
	pool := newPool(&store{}, 1<<10)
	var most int64
	for round := range 10 {
		o := newOwned(pool)
		o.change(func(l *pages.List[number]) { fill(l, 10_000) })
		wants(t, &o.list, 10_000)
		if round == 0 {
			most = pool.Stats().FileBytes
		}
		o = nil
		collected(t, "pages are given back", func() bool {
			st := pool.Stats()
			return st.HeldBytes == 0 && st.FreeBytes == st.FileBytes
		})
	}
	if got := pool.Stats().FileBytes; got > most {
		t.Errorf("file: got %d bytes after ten lists, want the %d of one", got, most)
	}
}

// A copy holds the pages that it shares after its owner has left them.
func TestList_CopyOutlivesItsOwner(t *testing.T) {
	pool := newPool(&store{}, 100)
	o := newOwned(pool)
	o.change(func(l *pages.List[number]) { fill(l, 1000) })
	was, middle := o.list, o.list.First(777)
	o.change(func(l *pages.List[number]) {
		l.Cut(3)
		for range 2000 {
			l.Append(number{value: -1})
		}
	})
	o = nil
	for range 3 {
		runtime.GC()
		wants(t, &was, 1000)
		wants(t, &middle, 777)
	}
	other := newOwned(pool) // takes the places that are free
	other.change(func(l *pages.List[number]) { fill(l, 5000) })
	wants(t, &other.list, 5000)
	wants(t, &was, 1000)
}

// Readers of copies go on beside an owner that adds and cuts, and beside the
// eviction for other spaces.
func TestList_ReadersOfCopiesBesideTheOwner(t *testing.T) {
	pool := newPool(&store{}, 200)
	var wg sync.WaitGroup
	for range 3 {
		o := newOwned(pool)
		copies := make(chan pages.List[number], 4)
		for range 2 {
			wg.Go(func() {
				for l := range copies {
					wants(t, &l, l.Len())
					for i := l.Len() - 1; i >= 0; i -= 7 {
						if v, err := l.Get(i); err != nil || v != numberOf(int64(i)) {
							t.Errorf("element %d: got %v %v", i, v, err)
						}
					}
				}
			})
		}
		wg.Go(func() {
			defer close(copies)
			for round := range int32(100) {
				o.change(func(l *pages.List[number]) {
					l.Cut(l.Len() / (1 + round%3))
					fill(l, 50*(1+round%10))
				})
				copies <- o.list
			}
		})
	}
	wg.Wait()
}

// Readers beside each other, and an owner that changes elements where there
// are none, as a replay does it: nothing that was changed is forgotten.
func TestList_ReadersUnderALock(t *testing.T) {
	pool := newPool(&store{}, 200)
	var wg sync.WaitGroup
	for range 2 {
		o := newOwned(pool)
		var mu sync.RWMutex
		const n, rounds = 500, 100
		o.change(func(l *pages.List[number]) { l.Append(make([]number, n)...) })
		done := make(chan struct{})
		for range 3 {
			wg.Go(func() {
				for {
					mu.RLock()
					first := o.list.At(0).value
					for i := range int32(n) {
						if got := o.list.At(i).value; got != first {
							t.Errorf("element %d: got %d, want %d", i, got, first)
						}
					}
					mu.RUnlock()
					select {
					case <-done:
						return
					default:
					}
				}
			})
		}
		wg.Go(func() {
			defer close(done)
			for range rounds {
				mu.Lock()
				o.change(func(l *pages.List[number]) {
					for i := range int32(n) {
						l.Mut(i).value++
						if i%100 == 0 {
							o.space.Relax()
						}
					}
				})
				mu.Unlock()
			}
			for i := range int32(n) {
				if got := o.list.At(i).value; got != rounds {
					t.Errorf("element %d: got %d, want %d", i, got, rounds)
				}
			}
		})
	}
	wg.Wait()
}

func TestNew_OnlyPlainTypes(t *testing.T) {
	panics := func(f func()) (did bool) {
		defer func() { did = recover() != nil }()
		f()
		return false
	}
	space := newPool(&store{}, 100).NewSpace()
	for name, f := range map[string]func(){
		"string":    func() { pages.New[string](space) },
		"pointer":   func() { pages.New[*int](space) },
		"slice":     func() { pages.New[[]byte](space) },
		"map":       func() { pages.New[map[int]int](space) },
		"interface": func() { pages.New[any](space) },
		"func":      func() { pages.New[func()](space) },
		"channel":   func() { pages.New[chan int](space) },
		"inside":    func() { pages.New[struct{ a [2]struct{ p *int } }](space) },
		"uintptr":   func() { pages.New[uintptr](space) },
		"nothing":   func() { pages.New[struct{}](space) },
	} {
		if !panics(f) {
			t.Errorf("%s: no panic", name)
		}
	}
	if panics(func() { pages.New[struct{ a [2]float64 }](space) }) {
		t.Error("an array of numbers: a panic")
	}
}

// Lists of other sizes of elements: of one byte, and of more than a page.
func TestList_SizesOfElements(t *testing.T) {
	pool := newPool(&store{}, 64)
	space := pool.NewSpace()
	space.Lock()
	defer space.Unlock()
	bytes, large := pages.New[uint8](space), pages.New[[100]int64](space)
	for i := range 1000 {
		bytes.Append(uint8(i))
		large.Append([100]int64{0: int64(i), 99: math.MaxInt64})
		if i%10 == 0 {
			space.Relax()
		}
	}
	for i := range int32(1000) {
		if got := *bytes.At(i); got != uint8(i) {
			t.Fatalf("byte %d: got %d", i, got)
		}
		if got := large.At(i); got[0] != int64(i) || got[99] != math.MaxInt64 {
			t.Fatalf("array %d: got %d and %d", i, got[0], got[99])
		}
	}
}

// A page is bounded, whatever is asked for.
func TestNewPool_PageBytesAreBounded(t *testing.T) {
	pool := newPool(&store{}, math.MaxInt)
	o := newOwned(pool)
	o.change(func(l *pages.List[number]) { fill(l, 200_000) })
	if v, err := o.list.Get(7); err != nil || v != numberOf(7) {
		t.Errorf("got %v %v", v, err)
	}
	if st := pool.Stats(); st.HeldBytes > 4<<20 || st.Writes < 2 {
		t.Errorf("got %+v, want pages of about 1 MiB", st)
	}
}

// The zero values, and a space of no pool, keep all in memory.
func TestList_ZeroValues(t *testing.T) {
	var zero pages.List[number]
	fill(&zero, 10_000)
	wants(t, &zero, 10_000)
	zero.Cut(5)
	wants(t, &zero, 5)
	for _, space := range []*pages.Space{new(pages.Space), (*pages.Pool)(nil).NewSpace(), pages.NewPool(pages.Options{Bytes: 1}).NewSpace()} {
		o := &owned{space, pages.New[number](space)}
		o.change(func(l *pages.List[number]) { fill(l, 10_000) })
		wants(t, &o.list, 10_000)
		if got, least := o.list.Bytes(), int64(10_000*16); got < least {
			t.Errorf("bytes: got %d, want at least %d", got, least)
		}
	}
}
