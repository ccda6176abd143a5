package chunks

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"sessiond/engine/vfs"
	"sessiond/wire"
)

// DefaultSpillBytes is the budget of all segment files.
const DefaultSpillBytes = 1 << 30

// StoreOptions are options of a Store.
type StoreOptions struct {
	FS          vfs.FS // default vfs.OS
	Dir         string // of segment files, the Store's alone; "": memory only
	MemoryBytes int64  // bodies in memory, over all Logs
	SpillBytes  int64  // segment files; 0: DefaultSpillBytes
	Now         func() time.Time
	Listener    Listener
}

// Listener is told of what goes wrong. Its funcs are called without locks;
// nil ones are not.
type Listener struct {
	Degraded  func(err error) // no spilling for a while
	Recovered func()
	Damaged   func(segment string, offset int64, err error) // a chunk, which is packed again
}

// limits are sizes that tests make small.
type limits struct {
	segmentBytes  int64         // a segment file is not begun beyond
	stepBytes     int64         // blocks that a segment asks for at once
	syncBytes     int64         // unsynced bytes of a segment before it is synced
	unsyncedBytes int64         // and of all, before packers wait
	freeBytes     int64         // free space that is left to others, at least
	garbageBytes  int64         // garbage that a log keeps
	backOff       time.Duration // after a failure
	patience      time.Duration // of packers with a disk that does not sync
}

var defaultLimits = limits{
	segmentBytes: 64 << 20, stepBytes: 8 << 20, syncBytes: 8 << 20, unsyncedBytes: 16 << 20,
	freeBytes: 1 << 30, garbageBytes: 64 << 20, backOff: 10 * time.Second, patience: time.Second,
}

// freeShare is the part of a file system that is left to others: one in 20.
const freeShare = 20

var (
	errLowSpace = errors.New("chunks: the file system is nearly full")
	errNoBudget = errors.New("chunks: over the spill budget")
)

// Store is the chunk logs and snapshots of one daemon.
type Store struct {
	// Set at construction.
	o      StoreOptions
	lim    limits
	memory budget
	clock  atomic.Uint64 // of uses
	slots  chan struct{} // taken by packers while they pack a chunk
	work   sync.WaitGroup

	spilled, repacked, damaged atomic.Uint64

	mu        sync.Mutex
	logs      map[uint64]*Log           // by id; guarded by mu
	parked    map[uint64]*parked        // files of logs that are not open; guarded by mu
	snapshots map[snapshotKey]*Snapshot // guarded by mu
	live      int                       // snapshots that are not freed; guarded by mu
	spill     int64                     // bytes that segment files may take; guarded by mu
	off       error                     // why spilling failed last, nil once it worked; guarded by mu
	offUntil  time.Time                 // guarded by mu
	unsynced  int64                     // guarded by mu
	dirty     map[*segment]struct{}     // guarded by mu
	paced     chan struct{}             // closed when unsynced falls; guarded by mu
	closed    bool                      // guarded by mu
}

// budget bounds bytes.
type budget struct {
	free  atomic.Int64
	bound int64
}

func (b *budget) held() int64 { return b.bound - b.free.Load() }

func (b *budget) take(n int64) bool {
	if b.free.Add(-n) >= 0 {
		return true
	}
	b.free.Add(n)
	return false
}

// OpenStore opens a store over a folder, which it makes. What is in the
// folder waits for Adopt or Sweep. A folder that cannot be used is no error:
// nothing is spilled then, and it is tried again later.
func OpenStore(o StoreOptions) *Store { return openStore(o, defaultLimits) }

func openStore(o StoreOptions, lim limits) *Store {
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	if o.SpillBytes == 0 {
		o.SpillBytes = DefaultSpillBytes
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Store{
		o: o, lim: lim, memory: budget{bound: o.MemoryBytes}, slots: make(chan struct{}, max(2, runtime.GOMAXPROCS(0))),
		logs: map[uint64]*Log{}, parked: map[uint64]*parked{}, snapshots: map[snapshotKey]*Snapshot{},
		dirty: map[*segment]struct{}{}, paced: make(chan struct{}),
	}
	s.memory.free.Store(o.MemoryBytes)
	if o.Dir == "" {
		return s
	}
	err := o.FS.MkdirAll(o.Dir, 0o700)
	if err == nil {
		err = s.findParked()
	}
	if err != nil {
		s.spillFailed(err)
	}
	return s
}

// findParked takes stock of the segment files that are there.
func (s *Store) findParked() error {
	list, err := s.o.FS.ReadDir(s.o.Dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		log, n, ok := parseSegmentName(e.Name())
		if !ok {
			continue
		}
		info, err := s.o.FS.Lstat(filepath.Join(s.o.Dir, e.Name()))
		if err != nil || !info.Mode.IsRegular() {
			continue
		}
		p := s.parked[log]
		if p == nil {
			p = &parked{found: true, segments: map[uint64]int64{}}
			s.parked[log] = p
		}
		p.segments[n] = info.Stamp.Size
		p.bytes += info.Stamp.Size
		s.spill += info.Stamp.Size
	}
	return nil
}

// Close gives up all logs, leaving their files, and waits for the helpers, or
// for the end of ctx where the disk hangs. It may be called twice; snapshots
// that are open pack for themselves.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	list := make([]*Log, 0, len(s.logs))
	for _, l := range s.logs {
		list = append(list, l)
	}
	s.mu.Unlock()
	for _, l := range list {
		l.Detach()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.work.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("chunks: a sync goes on: %w", ctx.Err())
	}
}

// Find returns a snapshot, retained until release is called.
func (s *Store) Find(session string, id wire.SnapshotID) (sn *Snapshot, release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sn = s.snapshots[snapshotKey{session, id}]
	if sn == nil {
		return nil, nil, false
	}
	release, err := sn.Retain()
	return sn, release, err == nil
}

// deregister lets nobody find a snapshot any more.
func (s *Store) deregister(sn *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.snapshots[sn.key] == sn {
		delete(s.snapshots, sn.key)
	}
}

// Stats are figures of a Store.
type Stats struct {
	MemoryHeldBytes  int64  `json:"memoryHeldBytes"`
	MemoryBoundBytes int64  `json:"memoryBoundBytes"`
	SpillBytes       int64  `json:"spillBytes"` // that segment files take or have asked for
	SpillBoundBytes  int64  `json:"spillBoundBytes"`
	Segments         int    `json:"segments"`
	Logs             int    `json:"logs"`
	Snapshots        int    `json:"snapshots"`
	Spilled          uint64 `json:"spilledChunks"`
	Repacked         uint64 `json:"repackedChunks"`
	Damaged          uint64 `json:"damagedChunks"`
	Degraded         string `json:"degraded,omitempty"`
}

// MemoryHeld is the number of bytes of bodies that are held in memory.
func (s *Store) MemoryHeld() int64 { return s.memory.held() }

// Stats returns the figures as they are now.
func (s *Store) Stats() Stats {
	st := Stats{
		MemoryHeldBytes: s.memory.held(), MemoryBoundBytes: s.memory.bound,
		Spilled: s.spilled.Load(), Repacked: s.repacked.Load(), Damaged: s.damaged.Load(),
	}
	if s.o.Dir != "" {
		st.SpillBoundBytes = s.o.SpillBytes
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.SpillBytes, st.Logs, st.Snapshots = s.spill, len(s.logs), s.live
	for _, l := range s.logs {
		st.Segments += int(l.segmentCount.Load())
	}
	for _, p := range s.parked {
		st.Segments += len(p.segments)
	}
	if s.off != nil {
		st.Degraded = fmt.Sprintf("snapshots are not spilled: %v", s.off)
	}
	return st
}

// maySpill reports whether n bytes more of a log may go to spill, as far as
// that is known without trying.
func (s *Store) maySpill(l *Log, n int64) bool {
	if s.o.Dir == "" || n > s.lim.segmentBytes {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.off != nil && s.o.Now().Before(s.offUntil) {
		return false
	}
	return l.spare.Load() >= n || l.reserved.Load()+n+headerBytes <= s.o.SpillBytes
}

// spillFailed turns spilling off for a while.
func (s *Store) spillFailed(err error) {
	s.mu.Lock()
	first := s.off == nil
	s.off, s.offUntil = err, s.o.Now().Add(s.lim.backOff)
	s.mu.Unlock()
	if f := s.o.Listener.Degraded; first && f != nil {
		f(err)
	}
}

func (s *Store) spillWorked() {
	s.mu.Lock()
	was := s.off
	s.off = nil
	s.mu.Unlock()
	if f := s.o.Listener.Recovered; was != nil && f != nil {
		f()
	}
}

// damagedAt counts a body that is not what was written.
func (s *Store) damagedAt(name string, off int64, err error) {
	s.damaged.Add(1)
	if f := s.o.Listener.Damaged; f != nil {
		f(name, off, err)
	}
}

// reserve asks for bytes of the spill budget for a log and returns how many it
// got, from least to most. Files of the logs that were used the longest ago
// go for it.
func (s *Store) reserve(l *Log, least, most int64) (int64, error) {
	free, total, err := s.o.FS.Free(s.o.Dir)
	if errors.Is(err, fs.ErrNotExist) { // it is made when a file is
		free, total, err = s.o.FS.Free(filepath.Dir(s.o.Dir))
	}
	if err != nil {
		return 0, err
	}
	if spare := free - max(total/freeShare, s.lim.freeBytes); spare < least {
		return 0, fmt.Errorf("%w: %d of %d bytes are free", errLowSpace, free, total)
	} else if spare < most {
		most = spare
	}
	for {
		s.mu.Lock()
		room := s.o.SpillBytes - s.spill
		if room >= least {
			n := min(most, room)
			s.spill += n
			s.mu.Unlock()
			return n, nil
		}
		drop := s.oldestLocked(l)
		s.mu.Unlock()
		if drop == nil {
			return 0, errNoBudget
		}
		drop()
	}
}

// oldestLocked finds whose files were used the longest ago, and returns how to
// remove them; nil where only l has any.
func (s *Store) oldestLocked(l *Log) (drop func()) {
	var log *Log
	var id uint64
	var park *parked
	oldest := ^uint64(0)
	for _, x := range s.logs {
		if used := x.used.Load(); x != l && x.reserved.Load() > 0 && used < oldest {
			log, oldest = x, used
		}
	}
	for k, p := range s.parked {
		if p.used < oldest && len(p.segments) > 0 {
			id, park, oldest = k, p, p.used
		}
	}
	switch {
	case park != nil:
		delete(s.parked, id)
		s.spill -= park.bytes
		return func() { s.removeFiles(id, park) }
	case log != nil:
		return log.dropSpill
	}
	return nil
}

// giveBack returns what reserve gave.
func (s *Store) giveBack(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spill -= n
}

// pace waits while too much is unsynced. It is false when that stays so.
func (s *Store) pace(ctx context.Context) bool {
	var late <-chan time.Time
	for {
		s.mu.Lock()
		over, paced := s.unsynced >= s.lim.unsyncedBytes && !s.closed, s.paced
		s.mu.Unlock()
		if !over {
			return true
		}
		if late == nil {
			t := time.NewTimer(s.lim.patience)
			defer t.Stop()
			late = t.C
		}
		select {
		case <-paced:
		case <-late:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// isBehind reports whether packers have to wait.
func (s *Store) isBehind() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unsynced >= s.lim.unsyncedBytes
}

// wrote counts bytes of a segment that are to be synced, and has them synced
// when they are many.
func (s *Store) wrote(seg *segment, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || seg.forgotten {
		return
	}
	seg.dirty += n
	s.unsynced += n
	s.dirty[seg] = struct{}{}
	if seg.dirty >= s.lim.syncBytes {
		s.syncLocked(seg)
	}
	if s.unsynced >= s.lim.unsyncedBytes {
		for other := range s.dirty {
			s.syncLocked(other)
		}
	}
}

func (s *Store) syncLocked(seg *segment) {
	if seg.syncing {
		return
	}
	seg.syncing = true
	n := seg.dirty
	s.work.Go(func() { s.synced(seg, n, seg.sync()) })
}

func (s *Store) synced(seg *segment, n int64, err error) {
	s.mu.Lock()
	seg.syncing = false
	failed := err != nil && !seg.forgotten
	if failed {
		seg.broken.Store(true)
	}
	s.unsynced -= min(n, seg.dirty)
	seg.dirty -= min(n, seg.dirty)
	if seg.dirty == 0 {
		delete(s.dirty, seg)
	} else if !s.closed && (seg.dirty >= s.lim.syncBytes || s.unsynced >= s.lim.unsyncedBytes) {
		s.syncLocked(seg) // what was written meanwhile
	}
	close(s.paced)
	s.paced = make(chan struct{})
	s.mu.Unlock()
	if failed { // what is there is proved by its hashes; no more is written
		s.spillFailed(err)
	}
}

// forget ends the pacing of a segment.
func (s *Store) forget(seg *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seg.forgotten = true
	s.unsynced -= seg.dirty
	seg.dirty = 0
	delete(s.dirty, seg)
	close(s.paced)
	s.paced = make(chan struct{})
}

func newID() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])
}
