package pages_test

import (
	"errors"
	"strings"
	"testing"

	"sessiond/replay/pages"
)

// A file that cannot be made, for a while: lists work, memory grows, and the
// pool says why.
func TestPool_FileCannotBeMade(t *testing.T) {
	file, failing := &store{}, true
	pool := pages.NewPool(pages.Options{Bytes: 1, PageBytes: 1 << 10, Open: func() (pages.Store, error) {
		if failing {
			return nil, errFull
		}
		return file, nil
	}})
	failed(t, pool, func() { failing = false })
}

// A disk that is full, for a while.
func TestPool_DiskFull(t *testing.T) {
	file := &store{writeErr: errFull}
	failed(t, newPool(file, 1<<10), func() { file.set(func() { file.writeErr = nil }) })
}

// failed demands that a pool whose pages cannot leave loses nothing, and
// recovers by itself after heal.
func failed(t *testing.T, pool *pages.Pool, heal func()) {
	t.Helper()
	o := newOwned(pool)
	for n := int32(1000); n <= 10_000; n += 1000 {
		o.change(func(l *pages.List[number]) { fill(l, n) })
		wants(t, &o.list, n)
	}
	st := pool.Stats()
	if !strings.Contains(st.Failed, errFull.Error()) || st.HeldBytes < 10_000*16 || st.Writes > 0 {
		t.Fatalf("while it fails: got %+v", st)
	}
	heal()
	o.change(func(l *pages.List[number]) { fill(l, 20_000) })
	wants(t, &o.list, 20_000)
	o.change(func(*pages.List[number]) {})
	if st := pool.Stats(); st.Failed != "" || st.HeldBytes > 4<<10 {
		t.Errorf("afterwards: got %+v", st)
	}
}

// A disk that gets full when pages have left, and while they are changed: what
// is in memory is newer than what is in the file.
func TestPool_DiskFullWhileChanging(t *testing.T) {
	file := &store{}
	pool := newPool(file, 200)
	o := newOwned(pool)
	o.change(func(l *pages.List[number]) { fill(l, 1000) })
	file.set(func() { file.writeErr = errFull })
	o.change(func(l *pages.List[number]) {
		for i := range l.Len() {
			l.Mut(i).value = -int64(i)
			o.space.Relax()
		}
	})
	look := func() {
		t.Helper()
		for i, v := range o.list.All() {
			if v.value != -int64(i) || v.twice != 2*i {
				t.Fatalf("element %d: got %v", i, v)
			}
		}
	}
	look()
	file.set(func() { file.writeErr = nil })
	pool.Relax()
	look()
	if st := pool.Stats(); st.Failed != "" {
		t.Errorf("got %+v", st)
	}
}

// A pool that nobody uses recovers too, as soon as it is asked to, and one
// that has nothing to let go any more says nothing of what once failed.
func TestPool_RelaxRecovers(t *testing.T) {
	for _, tc := range []struct {
		name string
		heal func(file *store, o **owned)
	}{
		{"there is room again", func(file *store, _ **owned) { file.set(func() { file.writeErr = nil }) }},
		{"the list is gone", func(_ *store, o **owned) { *o = nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := &store{writeErr: errFull}
			pool := newPool(file, 1<<10)
			o := newOwned(pool)
			o.change(func(l *pages.List[number]) { fill(l, 10_000) })
			pool.Relax()
			if pool.Stats().Failed == "" {
				t.Fatal("no failure")
			}
			tc.heal(file, &o)
			collected(t, "the pool recovers", func() bool {
				pool.Relax()
				return pool.Stats().Failed == ""
			})
			if o != nil {
				wants(t, &o.list, 10_000)
			}
		})
	}
}

// A page that cannot be read again, or is not what was written, is lost, and
// says so to everybody who asks.
func TestList_LostPages(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(s *store)
		want  error
	}{
		{"read error", func(s *store) { s.readErr = errBad }, errBad},
		{"other bytes", func(s *store) { s.data[len(s.data)/2] ^= 1; s.data[5] ^= 1 }, nil},
		{"short file", func(s *store) { s.data = s.data[:10] }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := &store{}
			o := newOwned(newPool(file, 200))
			o.change(func(l *pages.List[number]) { fill(l, 1000) })
			if o.space.Lost() {
				t.Fatal("lost before anything was")
			}
			o.space.Check()
			file.set(func() { tc.spoil(file) })
			_, err := o.list.Get(0)
			var lost *pages.LostError
			if !errors.As(err, &lost) || tc.want != nil && !errors.Is(err, tc.want) {
				t.Fatalf("Get: got %v, want a lost page for %v", err, tc.want)
			}
			if v, err := o.list.Get(999); err != nil || v != numberOf(999) { // the last page is in memory
				t.Errorf("the last element: got %v %v", v, err)
			}
			if !o.space.Lost() {
				t.Error("the space does not say so")
			}
			for name, use := range map[string]func(){
				"At": func() { o.list.At(0) }, "Mut": func() { o.list.Mut(0) }, "AppendTo": func() { o.list.AppendTo(nil, 0, 1000) },
				"Cut": func() { l := o.list; l.Cut(1) }, "Check": o.space.Check,
				"All": func() {
					for range o.list.All() {
					}
				},
			} {
				err := func() (err error) {
					defer pages.Catch(&err)
					use()
					return nil
				}()
				if !errors.As(err, &lost) {
					t.Errorf("%s: got %v, want a lost page", name, err)
				}
			}
		})
	}
}

// One space's lost page is no other's.
func TestList_LostIsOfOneSpace(t *testing.T) {
	file := &store{}
	pool := newPool(file, 200)
	a, b := newOwned(pool), newOwned(pool)
	a.change(func(l *pages.List[number]) { fill(l, 1000) })
	b.change(func(l *pages.List[number]) { fill(l, 1000) })
	file.set(func() { file.readErr = errBad })
	if _, err := a.list.Get(0); err == nil {
		t.Fatal("no error")
	}
	file.set(func() { file.readErr = nil })
	wants(t, &b.list, 1000)
	if b.space.Lost() || !a.space.Lost() {
		t.Errorf("lost: got %v and %v, want the first", a.space.Lost(), b.space.Lost())
	}
}

// Catch is for lost pages and for nothing else.
func TestCatch_LetsOthersPass(t *testing.T) {
	defer func() {
		if got := recover(); got != "other" {
			t.Errorf("got %v, want the panic", got)
		}
	}()
	var err error
	defer pages.Catch(&err)
	panic("other")
}
