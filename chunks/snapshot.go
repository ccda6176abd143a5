package chunks

import (
	"context"
	"encoding/binary"
	"iter"
	"sync"

	"github.com/cespare/xxhash/v2"

	"sessiond/wire"
)

// builders are used again, so that a snapshot that waits for its client holds
// no buffer.
var builders = sync.Pool{New: func() any { return &Builder{} }}

// SnapshotOptions are what a snapshot is of.
type SnapshotOptions struct {
	Session string
	ID      wire.SnapshotID
	Source  Source
	Close   func() // called once, when Source is not used any more; may be nil
}

type snapshotKey struct {
	session string
	id      wire.SnapshotID
}

type state int

const (
	open state = iota
	complete
	failed
)

// Snapshot is one cut of a Log. What it learned of its chunks stays true for
// it when the Log is cut back.
type Snapshot struct {
	// Set at construction.
	store *Store
	log   *Log
	o     SnapshotOptions
	key   snapshotKey
	epoch uint64 // of the log when the snapshot began

	token    chan struct{} // held while Source is used and while seen grows
	ending   chan struct{} // closed when nobody retains it any more
	disposed chan struct{} // closed when it is freed

	mu       sync.Mutex
	seen     []sealed // chunks from the first on
	state    state
	err      error  // of one that failed
	broken   bool   // a chunk cannot be had any more
	last     []byte // body of the last chunk, if it is held
	onDemand bool   // nothing holds what would be packed ahead
	packing  bool
	cancel   context.CancelFunc // of Pack
	refs     int                // retentions
	users    int                // calls under way
	closing  bool
	freed    bool
	change   chan struct{} // closed at the next change
	watchers map[int]func()
	watcher  int
}

// Begin begins a snapshot at the source's cut, or finds the one that was begun
// before: fresh says which, and that Pack is to be run. It is retained until
// release is called, and disposed of when nobody retains it any more.
func (l *Log) Begin(o SnapshotOptions) (sn *Snapshot, release func(), fresh bool) {
	return l.begin(o, func(*Snapshot) {})
}

func (l *Log) begin(o SnapshotOptions, prepare func(*Snapshot)) (sn *Snapshot, release func(), fresh bool) {
	s := l.store
	l.touch()
	l.mu.Lock()
	epoch := l.epoch
	l.mu.Unlock()
	sn = &Snapshot{
		store: s, log: l, o: o, key: snapshotKey{o.Session, o.ID}, epoch: epoch,
		token: make(chan struct{}, 1), ending: make(chan struct{}), disposed: make(chan struct{}),
		change: make(chan struct{}), watchers: map[int]func(){},
	}
	prepare(sn)
	s.mu.Lock()
	if old := s.snapshots[sn.key]; old != nil {
		if release, err := old.begunAgain(); err == nil {
			s.mu.Unlock()
			if o.Close != nil {
				o.Close()
			}
			if l.o.Private && old.log != l {
				l.Close()
			}
			return old, release, false
		}
	}
	release, _ = sn.Retain()
	s.snapshots[sn.key] = sn
	s.live++
	s.mu.Unlock()
	sn.token <- struct{}{}
	sn.learn()
	<-sn.token
	return sn, release, true
}

// begunAgain retains a snapshot that another cut of the same may use.
func (s *Snapshot) begunAgain() (release func(), err error) {
	s.mu.Lock()
	usable := s.state != failed && !s.broken
	s.mu.Unlock()
	if !usable {
		return nil, ErrDisposed
	}
	return s.Retain()
}

// Retain keeps a snapshot until release is called, which may be done twice.
func (s *Snapshot) Retain() (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, ErrDisposed
	}
	s.refs++
	var once sync.Once
	return func() { once.Do(s.release) }, nil
}

func (s *Snapshot) release() {
	s.mu.Lock()
	s.refs--
	s.mu.Unlock()
	s.end(false)
}

// Dispose lets nobody find or retain the snapshot any more, waits for those
// who do, and frees it. It may be called twice.
func (s *Snapshot) Dispose() {
	s.end(true)
	<-s.disposed
}

// end begins the end, if it is time or asked for.
func (s *Snapshot) end(now bool) {
	s.mu.Lock()
	s.closing = s.closing || now || s.refs == 0
	closing := s.closing
	if closing && s.refs == 0 && !s.isEnding() {
		close(s.ending)
		if s.cancel != nil {
			s.cancel()
		}
	}
	s.mu.Unlock()
	if closing {
		s.store.deregister(s)
		s.freeIfLeft()
	}
}

func (s *Snapshot) isEnding() bool {
	select {
	case <-s.ending:
		return true
	default:
		return false
	}
}

// freeIfLeft frees a snapshot that has nobody left.
func (s *Snapshot) freeIfLeft() {
	s.mu.Lock()
	free := s.closing && s.refs == 0 && s.users == 0 && !s.freed
	var held []byte
	if free {
		s.freed = true
		held, s.last, s.seen = s.last, nil, nil
	}
	tell := s.changedLocked(free)
	s.mu.Unlock()
	if !free {
		return
	}
	s.store.memory.free.Add(int64(len(held)))
	if s.log.o.Private {
		s.log.Close()
	}
	if s.o.Close != nil {
		s.o.Close()
	}
	s.store.mu.Lock()
	s.store.live--
	s.store.mu.Unlock()
	close(s.disposed)
	tell()
}

// enter begins a call, during which the snapshot is not freed.
func (s *Snapshot) enter() (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing && s.refs == 0 {
		return nil, ErrDisposed
	}
	s.users++
	return func() {
		s.mu.Lock()
		s.users--
		s.mu.Unlock()
		s.freeIfLeft()
	}, nil
}

// changedLocked wakes who waits and returns what is to be called without
// locks.
func (s *Snapshot) changedLocked(changed bool) (tell func()) {
	if !changed {
		return func() {}
	}
	close(s.change)
	s.change = make(chan struct{})
	list := make([]func(), 0, len(s.watchers))
	for _, f := range s.watchers {
		list = append(list, f)
	}
	return func() {
		for _, f := range list {
			f()
		}
	}
}

// Notify calls f, without locks, after a chunk was added and when the state
// changed, until stop is called. f must not wait.
func (s *Snapshot) Notify(f func()) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.watcher
	s.watcher++
	s.watchers[k] = f
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, k)
	}
}

// AppendEncodedChunk adds the next chunk, which ends before the message at
// end. The last chunk is the snapshot's own; all others go to the log. Body
// must not be modified any more.
func (s *Snapshot) AppendEncodedChunk(c Chunk, end Place, last bool) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	s.token <- struct{}{}
	defer func() { <-s.token }()
	_, err = s.push(c, end, last, true)
	return err
}

// push adds a chunk. Called with the token.
func (s *Snapshot) push(c Chunk, end Place, last, packer bool) (index int, err error) {
	s.mu.Lock()
	isOpen, i := s.state == open, len(s.seen)
	s.mu.Unlock()
	if !isOpen {
		return 0, ErrNotOpen
	}
	v := sealedOf(c, end)
	held := last && s.store.memory.take(int64(len(c.Body)))
	if !last {
		s.log.share(s.epoch, i, v, c.Body, packer)
	}
	s.mu.Lock()
	if s.state != open { // failed meanwhile
		s.mu.Unlock()
		if held {
			s.store.memory.free.Add(int64(len(c.Body)))
		}
		return 0, ErrNotOpen
	}
	s.seen = append(s.seen, v)
	if held {
		s.last = c.Body
	}
	tell := s.changedLocked(true)
	s.mu.Unlock()
	tell()
	return i, nil
}

// MarkComplete says that all chunks are there. The first of MarkComplete and
// MarkFailed counts.
func (s *Snapshot) MarkComplete() { s.mark(complete, nil) }

// MarkFailed says that no more chunks come, and why. Chunks that exist stay
// readable. The first of MarkComplete and MarkFailed counts.
func (s *Snapshot) MarkFailed(err error) { s.mark(failed, err) }

func (s *Snapshot) mark(to state, err error) {
	s.mu.Lock()
	was := s.state
	if was == open && !s.freed {
		s.state, s.err = to, err
	}
	tell := s.changedLocked(was == open && !s.freed)
	s.mu.Unlock()
	tell()
}

// ReadChunk returns a chunk: now, or ErrNotYet while the snapshot is open,
// ErrNoChunk behind the last of a complete one, the failure of one that
// failed. A body that is not held is packed on the way.
func (s *Snapshot) ReadChunk(ctx context.Context, index int) (Chunk, error) {
	leave, err := s.enter()
	if err != nil {
		return Chunk{}, err
	}
	defer leave()
	c, _, err := s.readChunk(ctx, index)
	return c, err
}

// readChunk is ReadChunk, with what tells of a change after ErrNotYet.
func (s *Snapshot) readChunk(ctx context.Context, index int) (c Chunk, change <-chan struct{}, err error) {
	s.log.touch()
	for {
		if err := ctx.Err(); err != nil {
			return Chunk{}, nil, err
		}
		s.mu.Lock()
		n, st, why, onDemand, change := len(s.seen), s.state, s.err, s.onDemand, s.change
		var at Place
		var v sealed
		if index < n {
			v = s.seen[index]
			at = s.beginLocked(index)
		}
		s.mu.Unlock()
		switch {
		case index < n:
			c, err := s.body(ctx, index, at, v)
			return c, nil, err
		case st == complete:
			return Chunk{}, nil, ErrNoChunk
		case st == failed:
			return Chunk{}, nil, why
		case !onDemand:
			return Chunk{}, change, ErrNotYet
		}
		i, c, err := s.packNext(ctx, false)
		if err != nil {
			return Chunk{}, nil, err
		}
		if i == index {
			return c, nil, nil
		}
	}
}

// beginLocked is where a chunk begins.
func (s *Snapshot) beginLocked(index int) Place {
	if index == 0 {
		return Place{}
	}
	return s.seen[index-1].end
}

// WaitForChunk waits for a chunk and returns it; ok is false behind the last
// of a complete snapshot.
func (s *Snapshot) WaitForChunk(ctx context.Context, index int) (c Chunk, ok bool, err error) {
	leave, err := s.enter()
	if err != nil {
		return Chunk{}, false, err
	}
	defer leave()
	for {
		c, change, err := s.readChunk(ctx, index)
		switch err { //nolint:errorlint // as readChunk gives them
		case nil:
			return c, true, nil
		case ErrNoChunk:
			return Chunk{}, false, nil
		case ErrNotYet:
		default:
			return Chunk{}, false, err
		}
		select {
		case <-change:
		case <-ctx.Done():
			return Chunk{}, false, ctx.Err()
		case <-s.ending:
			return Chunk{}, false, ErrDisposed
		}
	}
}

// Chunks iterates over all chunks, waiting for those that are not there yet.
// It ends after an error.
func (s *Snapshot) Chunks(ctx context.Context) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		for i := 0; ; i++ {
			c, ok, err := s.WaitForChunk(ctx, i)
			if !ok && err == nil || !yield(c, err) || err != nil {
				return
			}
		}
	}
}

// Totals are what the end of a snapshot tells of all its chunks.
type Totals struct {
	Chunks, Messages int
	Digest           wire.Digest // xxh64 of the chunks' digests, 8 bytes big-endian each
}

// Totals returns the totals of a complete snapshot; else an error as that of
// ReadChunk.
func (s *Snapshot) Totals() (Totals, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.freed || s.closing && s.refs == 0:
		return Totals{}, ErrDisposed
	case s.state == open:
		return Totals{}, ErrNotYet
	case s.state == failed:
		return Totals{}, s.err
	}
	t := Totals{Chunks: len(s.seen)}
	sum := xxhash.New()
	var b [8]byte
	for _, v := range s.seen {
		t.Messages += v.count
		binary.BigEndian.PutUint64(b[:], v.digest)
		_, _ = sum.Write(b[:]) // never fails
	}
	t.Digest = wire.Digest(sum.Sum64())
	return t, nil
}
