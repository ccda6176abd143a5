package chunks

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// Source makes the messages of a view up to its cut. A Snapshot calls Pack
// from one goroutine at a time.
type Source interface {
	// Pack appends messages from a place on to b until b is full or the cut
	// is reached, and returns the place of the first message not taken. end
	// says that the cut was reached.
	Pack(ctx context.Context, b *Builder, from Place) (next Place, end bool, err error)
	// Before reports whether a place is before the cut, so that a message
	// follows it.
	Before(p Place) bool
}

// LogOptions are options of a Log.
type LogOptions struct {
	Target      int   // bytes of a chunk
	MemoryBytes int64 // bodies that the Log holds in memory before all go to spill
	Private     bool  // of one snapshot, and closed with it
}

// Log is the full chunks of a view.
type Log struct {
	// Set at construction.
	store *Store
	o     LogOptions
	id    uint64

	used         atomic.Uint64 // the store's clock at the last use
	reserved     atomic.Int64  // spill budget that the segments have
	spare        atomic.Int64  // of it, what the segment that is written has left
	segmentCount atomic.Int64

	// spilling is held while segments are written: by one packer or reader at
	// a time, while others read.
	spilling sync.Mutex
	writing  *segment // changed with spilling and mu

	mu       sync.Mutex
	epoch    uint64
	revision uint64
	sealed   []entry
	order    []int // of bodies in memory, oldest first
	held     int64 // bytes in memory
	spilled  bool  // new bodies go to spill
	segments map[uint64]*segment
	next     uint64 // number of the next segment
	written  int64  // bytes of bodies in segments
	garbage  int64  // of them, what no entry names
	end      *logEnd
	closed   bool
}

// entry is a sealed chunk and where its body is, if anywhere.
type entry struct {
	sealed
	body []byte
	place
}

// place is where in a segment a body is.
type place struct {
	seg *segment
	off int64
}

// NewLog returns an empty log, which is to be closed.
func (s *Store) NewLog(o LogOptions) *Log {
	l := &Log{store: s, o: o, id: newID(), segments: map[uint64]*segment{}, next: 1}
	s.register(l)
	return l
}

func (s *Store) register(l *Log) {
	l.touch()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs[l.id] = l
}

func (l *Log) touch() { l.used.Store(l.store.clock.Add(1)) }

// Revision tells whether there is something to save: it changes whenever what
// Save returns would.
func (l *Log) Revision() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revision
}

// Size is how many full chunks the log has, and their bytes.
func (l *Log) Size() (count int, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.sealed {
		bytes += int64(e.size)
	}
	return len(l.sealed), bytes
}

// Spilled reports whether the bodies of full chunks are in files, where Adopt
// finds them.
func (l *Log) Spilled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spilled
}

// CutBack forgets what depends on slots from keep on: a chunk that ends at
// keep was full only because of what followed. Snapshots that are open pack
// for themselves from then on: what they pack next may be what was cut.
func (l *Log) CutBack(keep int) {
	l.mu.Lock()
	l.epoch++
	n := len(l.sealed)
	for n > 0 && l.sealed[n-1].end.Slot >= keep {
		n--
	}
	l.truncateLocked(n)
	drop := l.tooMuchGarbageLocked()
	l.mu.Unlock()
	l.discard(drop)
}

// Close forgets everything and removes the log's files; snapshots that are
// open pack for themselves.
func (l *Log) Close() { l.finish(true) }

// Detach is Close, but it leaves the files for Adopt: in this store, or in one
// that is opened over the folder later.
func (l *Log) Detach() { l.finish(false) }

func (l *Log) finish(remove bool) {
	l.spilling.Lock() // nobody writes any more
	l.mu.Lock()
	was := l.closed
	l.closed = true
	l.epoch++
	drop := l.detachLocked()
	l.truncateLocked(0)
	l.mu.Unlock()
	l.spilling.Unlock()
	if was {
		return
	}
	l.store.mu.Lock()
	delete(l.store.logs, l.id)
	l.store.mu.Unlock()
	if remove {
		l.discard(drop)
		return
	}
	p := &parked{segments: map[uint64]int64{}, used: l.used.Load()}
	for _, seg := range drop {
		trim(seg)
		l.store.forget(seg)
		seg.close()
		p.segments[seg.n] = seg.size
		p.bytes += seg.size
		l.store.giveBack(seg.reserved - seg.size)
	}
	if len(p.segments) > 0 {
		l.store.mu.Lock()
		l.store.parked[l.id] = p
		l.store.mu.Unlock()
	}
}

// truncateLocked keeps the first n entries.
func (l *Log) truncateLocked(n int) {
	if n == len(l.sealed) {
		return
	}
	kept := l.order[:0]
	for _, i := range l.order {
		if i < n {
			kept = append(kept, i)
			continue
		}
		l.dropBodyLocked(i)
	}
	l.order = kept
	for i := n; i < len(l.sealed); i++ {
		l.dropPlaceLocked(&l.sealed[i])
	}
	l.sealed = l.sealed[:n:n]
	if l.end != nil && l.end.full > n {
		l.dropEndLocked()
	}
	l.revision++
}

func (l *Log) dropBodyLocked(i int) {
	size := int64(len(l.sealed[i].body))
	l.sealed[i].body = nil
	l.held -= size
	l.store.memory.free.Add(size)
}

func (l *Log) dropPlaceLocked(e *entry) {
	if e.seg != nil {
		l.garbage += int64(e.size)
		e.place = place{}
	}
}

// tooMuchGarbageLocked gives up all segments when most of them is garbage.
func (l *Log) tooMuchGarbageLocked() []*segment {
	if l.garbage <= l.store.lim.garbageBytes || l.garbage*2 <= l.written {
		return nil
	}
	return l.detachLocked()
}

// detachLocked takes all segments from the log.
func (l *Log) detachLocked() []*segment {
	list := make([]*segment, 0, len(l.segments))
	for _, seg := range l.segments {
		seg.gone = true
		list = append(list, seg)
	}
	if len(list) == 0 {
		return nil
	}
	for i := range l.sealed {
		l.sealed[i].place = place{}
	}
	l.segments, l.writing, l.end = map[uint64]*segment{}, nil, nil
	l.written, l.garbage = 0, 0
	l.reserved.Store(0)
	l.spare.Store(0)
	l.segmentCount.Store(0)
	l.revision++
	return list
}

// dropSpill removes the log's files; its chunks stay known.
func (l *Log) dropSpill() {
	l.mu.Lock()
	drop := l.detachLocked()
	l.mu.Unlock()
	l.discard(drop)
}

// discard removes segments that were taken from the log.
func (l *Log) discard(list []*segment) {
	for _, seg := range list {
		l.store.forget(seg)
		seg.remove()
		l.store.giveBack(seg.reserved)
	}
}

// share takes a full chunk that a snapshot of the epoch packed.
func (l *Log) share(epoch uint64, i int, v sealed, body []byte, packer bool) {
	l.mu.Lock()
	if l.epoch != epoch || l.closed {
		l.mu.Unlock()
		return
	}
	if i == len(l.sealed) {
		l.sealed = append(l.sealed, entry{sealed: v})
		l.revision++
	}
	l.mu.Unlock()
	l.hold(i, v, body, packer)
}

// hold keeps the body of a chunk that has none: in memory, or in spill, or,
// where there is none, in memory for the time that the bounds allow. A reader
// does not add to what packers have to wait for.
func (l *Log) hold(i int, v sealed, body []byte, packer bool) {
	l.mu.Lock()
	ok := l.lacksLocked(i, v)
	inMemory := ok && !l.spilled && l.keepLocked(i, body)
	l.mu.Unlock()
	if !ok || inMemory {
		return
	}
	if l.store.maySpill(l, int64(len(body))) && (packer || !l.store.isBehind()) && l.spill(i, v, body) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.lacksLocked(i, v) || int64(len(body)) > l.o.MemoryBytes {
		return
	}
	for len(l.order) > 0 && l.held+int64(len(body)) > l.o.MemoryBytes {
		l.dropBodyLocked(l.order[0])
		l.order = l.order[1:]
	}
	l.keepLocked(i, body)
}

// lacksLocked reports whether chunk i is this one, without a body.
func (l *Log) lacksLocked(i int, v sealed) bool {
	return i < len(l.sealed) && l.sealed[i].sealed == v && l.sealed[i].body == nil && l.sealed[i].seg == nil
}

// keepLocked holds a body in memory, within the bounds.
func (l *Log) keepLocked(i int, body []byte) bool {
	size := int64(len(body))
	if l.closed || l.held+size > l.o.MemoryBytes || !l.store.memory.take(size) {
		return false
	}
	l.sealed[i].body = body
	l.order = append(l.order, i)
	l.held += size
	return true
}

// room reports whether the body of one chunk more can be held.
func (l *Log) room(epoch uint64) bool {
	l.mu.Lock()
	target := int64(l.o.Target)
	stands := !l.closed && l.epoch == epoch
	inMemory := stands && !l.spilled && l.held+target <= l.o.MemoryBytes && l.store.memory.free.Load() >= target
	l.mu.Unlock()
	return inMemory || stands && l.store.maySpill(l, target)
}

// after returns the full chunks from n on, if the log still stands.
func (l *Log) after(epoch uint64, n int) []sealed {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.epoch != epoch || n >= len(l.sealed) {
		return nil
	}
	out := make([]sealed, 0, len(l.sealed)-n)
	for _, e := range l.sealed[n:] {
		out = append(out, e.sealed)
	}
	return out
}

// findLocked returns the entry of chunk i, if it is this one.
func (l *Log) findLocked(i int, v sealed) *entry {
	switch {
	case i < len(l.sealed) && l.sealed[i].sealed == v:
		return &l.sealed[i]
	case l.end != nil && l.end.last != nil && l.end.full == i && l.end.last.sealed == v:
		return l.end.last
	}
	return nil
}

// read returns the body of chunk i, if it is held and is what was packed.
func (l *Log) read(i int, v sealed) (Chunk, bool) {
	l.mu.Lock()
	e := l.findLocked(i, v)
	if e == nil || e.body == nil && e.seg == nil {
		l.mu.Unlock()
		return Chunk{}, false
	}
	body, at := e.body, e.place
	l.mu.Unlock()
	if body != nil {
		return v.of(body, nil), true
	}
	b := borrow(v.size)
	err := l.readAt(at, *b.buf, v.sum)
	if err == nil {
		return v.of(*b.buf, b), true
	}
	buffers.Put(b.buf)
	l.lost(at, err, func() *entry { return l.findLocked(i, v) })
	return Chunk{}, false
}

// readAt reads bytes of a sum from a segment.
func (l *Log) readAt(at place, b []byte, sum uint64) error {
	if err := at.seg.readAt(b, at.off); err != nil {
		return err
	}
	if got := xxhash.Sum64(b); got != sum {
		return &DamageError{Segment: at.seg.name(), Offset: at.off, Got: got, Want: sum}
	}
	return nil
}

// lost forgets a place that does not have what it should.
func (l *Log) lost(at place, err error, find func() *entry) {
	l.mu.Lock()
	gone := at.seg.gone // its file was taken away while it was read
	if e := find(); e != nil && e.place == at {
		l.dropPlaceLocked(e)
		l.revision++
	}
	l.mu.Unlock()
	if !gone {
		l.store.damagedAt(at.seg.name(), at.off, err)
	}
}
