package chunks

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Source makes the messages of a view up to its cut.
type Source interface {
	// Pack appends messages from a place on to b until b is full or the cut
	// is reached, and returns the place of the first message not taken. end
	// says that the cut was reached.
	Pack(ctx context.Context, b *Builder, from Place) (next Place, end bool, err error)
	// Before reports whether a place is before the cut, so that a message
	// follows it.
	Before(p Place) bool
}

// Budget bounds the bodies that all Logs hold together.
type Budget struct {
	free  atomic.Int64
	bound int64
}

// NewBudget returns a budget of bytes.
func NewBudget(bytes int64) *Budget {
	b := &Budget{bound: bytes}
	b.free.Store(bytes)
	return b
}

// Held is the number of bytes that Logs hold.
func (b *Budget) Held() int64 { return b.bound - b.free.Load() }

func (b *Budget) take(n int64) bool {
	if b.free.Add(-n) >= 0 {
		return true
	}
	b.free.Add(n)
	return false
}

// Options of a Log.
type Options struct {
	Target      int   // bytes of a chunk
	MemoryBytes int64 // bodies that the Log holds at the most
	Budget      *Budget
}

// Log is the full chunks of a view.
type Log struct {
	o Options

	mu     sync.Mutex
	epoch  uint64
	sealed []sealed
	bodies map[int]Chunk
	order  []int // of bodies, oldest first
	held   int64
	closed bool
}

type sealed struct {
	end    Place
	digest uint64
	count  int
}

// NewLog returns an empty log.
func NewLog(o Options) *Log { return &Log{o: o, bodies: map[int]Chunk{}} }

// CutBack forgets what depends on slots from keep on: a chunk that ends at
// keep was full only because of what followed. Snapshots that are open pack
// for themselves from then on: what they pack next may be what was cut.
func (l *Log) CutBack(keep int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch++
	n := len(l.sealed)
	for n > 0 && l.sealed[n-1].end.Slot >= keep {
		n--
	}
	l.sealed = l.sealed[:n:n]
	l.dropFrom(n)
}

// Close forgets everything; snapshots that are open pack for themselves.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.epoch++
	l.sealed = nil
	l.dropFrom(0)
}

func (l *Log) dropFrom(n int) {
	kept := l.order[:0]
	for _, i := range l.order {
		if i < n {
			kept = append(kept, i)
			continue
		}
		l.drop(i)
	}
	l.order = kept
}

func (l *Log) drop(i int) {
	size := int64(len(l.bodies[i].Body))
	delete(l.bodies, i)
	l.held -= size
	l.o.Budget.free.Add(size)
}

// keep holds a body while the bounds allow it.
func (l *Log) keep(i int, c Chunk) {
	size := int64(len(c.Body))
	if _, have := l.bodies[i]; have || l.closed || size > l.o.MemoryBytes {
		return
	}
	for len(l.order) > 0 && l.held+size > l.o.MemoryBytes {
		l.drop(l.order[0])
		l.order = l.order[1:]
	}
	if l.o.Budget.take(size) {
		l.bodies[i] = c
		l.order = append(l.order, i)
		l.held += size
	}
}

// share takes a chunk that a snapshot of the epoch packed.
func (l *Log) share(epoch uint64, i int, v sealed, c Chunk, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.epoch != epoch || !full {
		return
	}
	if i == len(l.sealed) {
		l.sealed = append(l.sealed, v)
	}
	if i < len(l.sealed) {
		l.keep(i, c)
	}
}

// after returns the full chunks from n on, if the log still stands.
func (l *Log) after(epoch uint64, n int) []sealed {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.epoch != epoch || n >= len(l.sealed) {
		return nil
	}
	return slices.Clone(l.sealed[n:])
}

// body returns a body that the log holds.
func (l *Log) body(epoch uint64, i int) (Chunk, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.epoch != epoch {
		return Chunk{}, false
	}
	c, ok := l.bodies[i]
	return c, ok
}
