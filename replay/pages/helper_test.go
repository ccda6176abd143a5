package pages_test

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sessiond/replay/pages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tb is what helpers need of a *testing.T or a *rapid.T.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

// store is a paging file in memory with faults.
type store struct {
	mu       sync.Mutex
	data     []byte
	readErr  error // of every read, while it is set
	writeErr error // of every write, half done
}

var errBad, errFull = errors.New("bad sector"), errors.New("no space")

func (s *store) WriteAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(p)
	if s.writeErr != nil {
		n /= 2
	}
	if end := int(off) + n; end > len(s.data) {
		s.data = append(s.data, make([]byte, end-len(s.data))...)
	}
	return copy(s.data[off:], p[:n]), s.writeErr
}

func (s *store) ReadAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readErr != nil {
		return 0, s.readErr
	}
	return bytes.NewReader(s.data).ReadAt(p, off)
}

// set changes what the store does.
func (s *store) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *store) open() (pages.Store, error) { return s, nil }

// newPool returns a pool that lets nothing stay in memory that may leave it.
func newPool(s *store, pageBytes int) *pages.Pool {
	return pages.NewPool(pages.Options{Bytes: 1, PageBytes: pageBytes, Open: s.open})
}

// number is an element that has to be aligned, and whose page does not fill
// what the allocator gives.
type number struct {
	value int64
	twice int32
	odd   bool
}

func numberOf(i int64) number { return number{i, int32(2 * i), i%2 != 0} }

// fill adds numbers from the length on until there are n.
func fill(l *pages.List[number], n int32) {
	for l.Len() < n {
		i, v := l.Add()
		*v = numberOf(int64(i))
	}
}

// wants demands that a list holds the numbers up to n.
func wants(t tb, l *pages.List[number], n int32) {
	t.Helper()
	if l.Len() != n {
		t.Fatalf("length: got %d, want %d", l.Len(), n)
	}
	for i, v := range l.All() {
		if v != numberOf(int64(i)) {
			t.Fatalf("element %d: got %v", i, v)
		}
	}
}

// owned is a list with its space.
type owned struct {
	space *pages.Space
	list  pages.List[number]
}

func newOwned(p *pages.Pool) *owned {
	s := p.NewSpace()
	return &owned{s, pages.New[number](s)}
}

// change runs as an owner changes its lists.
func (o *owned) change(f func(l *pages.List[number])) {
	o.space.Lock()
	defer o.space.Unlock()
	f(&o.list)
	o.space.Relax()
}

// collected collects garbage until something is so.
func collected(t *testing.T, what string, done func() bool) {
	t.Helper()
	const patience = 20 * time.Second
	for end := time.Now().Add(patience); !done(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		runtime.GC() // and cleanups run by and by
	}
}

var (
	_ io.ReaderAt = (*store)(nil)
	_ pages.Store = (*store)(nil)
)
