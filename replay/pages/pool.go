package pages

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
	"weak"

	"github.com/cespare/xxhash/v2"
)

// Store is the file that pages wait in.
type Store interface {
	io.ReaderAt
	io.WriterAt
}

// Options of a pool. The zero value is the default.
type Options struct {
	// Bytes is about how much memory the pages take, beside the last one of
	// each list; 0: DefaultBytes.
	Bytes int64
	// Open makes the file when the first page has to leave; nil: none ever
	// does.
	Open func() (Store, error)
	// PageBytes is about the size of a page, at most 1 MiB; 0: 32 KiB, small
	// enough for a look at one element and large enough for a way through all.
	PageBytes int
}

// DefaultBytes is the default of Options.Bytes.
const DefaultBytes = 8 << 20

const (
	defaultPageBytes = 32 << 10
	pageBytesMax     = 1 << 20
)

// Pool bounds the memory of pages. All its methods are safe for concurrent
// use.
type Pool struct {
	bound     int64
	open      func() (Store, error)
	pageBytes int

	mu     sync.Mutex
	store  Store                 // once a page left; guarded by mu
	end    int64                 // of the file; guarded by mu
	free   map[int32][]int64     // places in the file by size; guarded by mu
	held   int64                 // bytes in memory; guarded by mu
	last   int64                 // of these, of pages that lists still grow in; guarded by mu
	spaces []weak.Pointer[Space] // those with full pages; guarded by mu
	next   int                   // of spaces, to be asked for pages; guarded by mu
	failed error                 // why pages do not leave; guarded by mu
	closed bool                  // guarded by mu
	wait   int64                 // then: how much is in full pages before another try; guarded by mu

	reads, writes atomic.Uint64
}

// Stats are the figures of a pool.
type Stats struct {
	HeldBytes  int64  `json:"heldBytes"` // in memory
	BoundBytes int64  `json:"boundBytes"`
	FileBytes  int64  `json:"fileBytes"` // free places included
	FreeBytes  int64  `json:"freeBytes"` // of these
	Reads      uint64 `json:"reads"`     // pages
	Writes     uint64 `json:"writes"`
	Failed     string `json:"failed,omitempty"` // why pages do not leave memory, "" when they do
}

// NewPool returns a pool.
func NewPool(o Options) *Pool {
	if o.Bytes <= 0 {
		o.Bytes = DefaultBytes
	}
	if o.PageBytes <= 0 {
		o.PageBytes = defaultPageBytes
	}
	return &Pool{bound: o.Bytes, open: o.Open, pageBytes: min(o.PageBytes, pageBytesMax), free: map[int32][]int64{}}
}

// Stats returns the figures as they are now.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := Stats{HeldBytes: p.held, BoundBytes: p.bound, FileBytes: p.end, Reads: p.reads.Load(), Writes: p.writes.Load()}
	for size, places := range p.free {
		st.FreeBytes += int64(size) * int64(len(places))
	}
	if p.failed != nil {
		st.Failed = p.failed.Error()
	}
	return st
}

// Close closes the file, if there is one and it can be closed. Pages that wait
// in it are lost.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if c, ok := p.store.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// NewSpace returns a space for the lists of one owner. A nil pool has spaces
// too, whose pages stay in memory.
func (p *Pool) NewSpace() *Space { return &Space{pool: p} }

// Relax is called now and then: pages may leave memory that could not before,
// for their space was locked or the file not to be written.
func (p *Pool) Relax() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wait = 0
	p.evictOthers()
	if p.full() <= p.bound { // none has to leave any more
		p.failed, p.wait = nil, 0
	}
}

// Space has the lists of one owner. Its zero value keeps all pages in memory.
type Space struct {
	pool *Pool
	busy sync.Mutex
	lost atomic.Pointer[LostError]

	ring   []weak.Pointer[page] // full pages in memory; guarded by Pool.mu
	hand   int                  // in ring; guarded by Pool.mu
	listed bool                 // it is in Pool.spaces; guarded by Pool.mu
}

// Lock begins a time in which the owner may change its lists.
func (s *Space) Lock() { s.busy.Lock() }

// Unlock ends it.
func (s *Space) Unlock() { s.busy.Unlock() }

// shift is that of lists whose elements have a size: of an ordinal, to its
// page.
func (s *Space) shift(size uintptr) (shift uint8) {
	bytes := defaultPageBytes
	if s != nil && s.pool != nil {
		bytes = s.pool.pageBytes
	}
	for int(size)<<(shift+1) <= bytes+bytes/4 {
		shift++
	}
	return shift
}

// leaves reports whether pages may leave memory.
func (s *Space) leaves() bool { return s != nil && s.pool != nil && s.pool.open != nil }

// Lost reports whether a page could not be read again.
func (s *Space) Lost() bool { return s.lost.Load() != nil }

// Check panics as At does where a page could not be read again: its owner may
// have been stopped by that in the middle of a change.
func (s *Space) Check() {
	if lost := s.lost.Load(); lost != nil {
		panic(lost)
	}
}

// Relax is called by the owner, between Lock and Unlock, where it holds no
// pointer of Mut, or by readers that keep the owner away: pages may leave
// memory.
func (s *Space) Relax() {
	if s == nil || s.pool == nil {
		return
	}
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over() {
		p.evict(s)
		p.evictOthers()
	}
}

// RelaxEvery is Relax for each step of a long way, at some of them.
func (s *Space) RelaxEvery(step int32) {
	if step%relaxSteps == 0 {
		s.Relax()
	}
}

// relaxSteps is how many elements may be looked at or changed before pages
// leave memory: about those of a page.
const relaxSteps = 1 << 10

// page is a part of a list. What it holds is as long as size says, or, of the
// first page of a list, shorter.
type page struct {
	mem   atomic.Pointer[byte] // nil: it waits in the file
	used  atomic.Bool          // since the hand went by
	dirty atomic.Bool          // changed since it was written; written by the owner
	space *Space

	load  sync.Mutex // one reads it
	place *place     // nil where pages do not leave memory
	self  weak.Pointer[page]
}

// place is what a pool must know of a page when it is gone.
type place struct {
	pool   *Pool
	size   int32
	at     int64  // in the file; -1: none
	sum    uint64 // of what is there
	inside bool   // it is in memory, and counted; guarded by the pool's mu
	last   bool   // its list grows in it; guarded by the pool's mu
}

func newPage(s *Space, mem *byte, size int) *page {
	pg := &page{space: s}
	pg.mem.Store(mem)
	pg.dirty.Store(true)
	if s.leaves() {
		pg.place = &place{pool: s.pool, size: int32(size), at: -1, inside: true, last: true}
		pg.self = weak.Make(pg)
		runtime.AddCleanup(pg, (*place).leave, pg.place)
		s.pool.mu.Lock()
		defer s.pool.mu.Unlock()
		s.pool.held += int64(size)
		s.pool.last += int64(size)
	}
	return pg
}

// full is called by the owner when its list does not grow in the page any
// more: it may leave memory.
func (pg *page) full() {
	if pg.place != nil {
		pg.space.pool.enter(pg)
	}
}

// leave gives back what a page had that nobody has any more.
func (l *place) leave() {
	p := l.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.inside {
		p.held -= int64(l.size)
	}
	if l.last {
		p.last -= int64(l.size)
	}
	if l.at >= 0 {
		p.free[l.size] = append(p.free[l.size], l.at)
	}
}

// enter lets a page be asked to leave: one that is full now, or is back in
// memory.
func (p *Pool) enter(pg *page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := pg.place
	if l.last {
		l.last = false
		p.last -= int64(l.size)
	}
	if !l.inside {
		l.inside = true
		p.held += int64(l.size)
	}
	s := pg.space
	s.ring = appendWeak(s.ring, pg.self)
	if !s.listed {
		s.listed = true
		p.spaces = appendWeak(p.spaces, weak.Make(s))
	}
	if p.over() {
		p.evictOthers()
	}
}

// resize is called by the owner for a page that became longer in memory.
func (pg *page) resize(mem *byte, size int) {
	pg.mem.Store(mem)
	if l := pg.place; l != nil {
		l.pool.mu.Lock()
		defer l.pool.mu.Unlock()
		l.pool.held += int64(size) - int64(l.size)
		l.pool.last += int64(size) - int64(l.size)
		l.size = int32(size)
	}
}

// over reports whether pages are to leave. Called with mu.
func (p *Pool) over() bool { return p.open != nil && !p.closed && p.full() > max(p.bound, p.wait) }

// full is the bytes in memory that may leave it. Called with mu.
func (p *Pool) full() int64 { return p.held - p.last }

// spacesAsked is how many spaces are asked for pages at a time.
const spacesAsked = 8

// evictOthers asks spaces whose owners are not at work. Called with mu.
func (p *Pool) evictOthers() {
	for range min(spacesAsked, len(p.spaces)) {
		if !p.over() {
			return
		}
		if p.next >= len(p.spaces) {
			p.next = 0
		}
		s := p.spaces[p.next].Value()
		if s == nil || len(s.ring) == 0 {
			if s != nil {
				s.listed = false
			}
			p.spaces = drop(p.spaces, p.next)
			continue
		}
		p.next++
		if s.busy.TryLock() {
			p.evict(s)
			s.busy.Unlock()
		}
	}
}

// appendWeak appends to a list without holding what is appended. Before the
// list grows, it is rid of what nobody has any more: where pages never have to
// leave nobody else looks at them.
func appendWeak[T any](list []weak.Pointer[T], v weak.Pointer[T]) []weak.Pointer[T] {
	if len(list) == cap(list) {
		list = slices.DeleteFunc(list, func(w weak.Pointer[T]) bool { return w.Value() == nil })
		list = slices.Grow(list, len(list)+1)
	}
	return append(list, v)
}

// drop takes an element out of a list whose order does not matter.
func drop[T any](list []T, i int) []T {
	last := len(list) - 1
	list[i] = list[last]
	return list[:last]
}

// evict lets pages of a space go until what is held is within the bound: those
// that were not used since the hand went by last. Called with mu, for a space
// that is locked and whose owner holds nothing.
func (p *Pool) evict(s *Space) {
	for steps := 2 * len(s.ring); steps > 0 && p.over() && len(s.ring) > 0; steps-- {
		if s.hand >= len(s.ring) {
			s.hand = 0
		}
		pg := s.ring[s.hand].Value()
		switch {
		case pg == nil:
			s.ring = drop(s.ring, s.hand)
		case pg.used.Swap(false):
			s.hand++
		default:
			if err := p.evictPage(pg); err != nil {
				p.failed, p.wait = err, p.full()+max(p.full(), p.bound)/4
				return
			}
			s.ring = drop(s.ring, s.hand)
		}
	}
}

// evictPage lets a page go.
func (p *Pool) evictPage(pg *page) error {
	l := pg.place
	if pg.dirty.Load() {
		if err := p.write(l, unsafe.Slice(pg.mem.Load(), l.size)); err != nil {
			return err
		}
		pg.dirty.Store(false)
	}
	l.inside = false
	p.held -= int64(l.size)
	pg.mem.Store(nil)
	return nil
}

// write puts a page into the file. Called with mu.
func (p *Pool) write(l *place, mem []byte) (err error) {
	if p.store == nil {
		if p.store, err = p.open(); err != nil {
			return fmt.Errorf("pages: paging file: %w", err)
		}
	}
	if l.at < 0 {
		if list := p.free[l.size]; len(list) > 0 {
			l.at, p.free[l.size] = list[len(list)-1], list[:len(list)-1]
		} else {
			l.at = p.end
			p.end += int64(l.size)
		}
	}
	if _, err := p.store.WriteAt(mem, l.at); err != nil {
		return fmt.Errorf("pages: paging file: %w", err)
	}
	l.sum, p.failed, p.wait = xxhash.Sum64(mem), nil, 0
	p.writes.Add(1)
	return nil
}

// fault brings a page back.
func (pg *page) fault() *byte {
	pg.load.Lock()
	defer pg.load.Unlock()
	if mem := pg.mem.Load(); mem != nil {
		return mem
	}
	l := pg.place
	mem := make([]byte, l.size)
	n, err := l.pool.file().ReadAt(mem, l.at)
	if n == len(mem) {
		err = nil
	}
	if err == nil && xxhash.Sum64(mem) != l.sum {
		err = errSum
	}
	if err != nil {
		lost := &LostError{l.at, err}
		pg.space.lost.CompareAndSwap(nil, lost)
		panic(lost)
	}
	pg.used.Store(true)
	pg.mem.Store(&mem[0])
	l.pool.reads.Add(1)
	l.pool.enter(pg)
	return &mem[0]
}

var errSum = errors.New("it is not what was written")

func (p *Pool) file() Store {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.store
}
