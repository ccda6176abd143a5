package chunks

import (
	"context"
	"fmt"
)

// Pack packs the source up to its cut. Of several calls one packs, the others
// return at once. It waits while nothing can hold what it would pack ahead, or
// the disk does not keep up: who asks for a chunk then packs it. It ends with
// ctx, or when nobody retains the snapshot any more; both leave the snapshot as
// it is. What else ends it makes the snapshot one that failed.
func (s *Snapshot) Pack(ctx context.Context) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	if s.packing {
		s.mu.Unlock()
		return nil
	}
	s.packing, s.cancel = true, cancel
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.packing, s.cancel = false, nil
		s.mu.Unlock()
	}()
	if s.isEnding() { // before cancel was known
		return ErrDisposed
	}
	for {
		paced := s.store.pace(ctx)
		select { // what packing needs of memory is bounded by the slots
		case s.store.slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		change, more, err := s.packMore(ctx, paced)
		<-s.store.slots
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			s.MarkFailed(err)
			return err
		case !more:
			return nil
		case change == nil:
			continue
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// packMore packs a chunk. Where there is no room for one, it leaves that to
// who asks for it, and returns what tells of a change. more is false when the
// snapshot takes no more.
func (s *Snapshot) packMore(ctx context.Context, paced bool) (change <-chan struct{}, more bool, err error) {
	room := paced && s.log.room(s.epoch)
	s.mu.Lock()
	if s.state != open {
		defer s.mu.Unlock()
		return nil, false, s.err
	}
	tell := s.changedLocked(!room && !s.onDemand)
	s.onDemand = !room
	change = s.change
	s.mu.Unlock()
	tell()
	if !room {
		return change, true, nil
	}
	_, _, err = s.packNext(ctx, true)
	return nil, err == nil, err
}

// take takes the token.
func (s *Snapshot) take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.token <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// packNext learns of chunks that others packed, or packs the next one, whose
// index it returns; -1 where it packed none.
func (s *Snapshot) packNext(ctx context.Context, packer bool) (index int, c Chunk, err error) {
	if err := s.take(ctx); err != nil {
		return -1, Chunk{}, err
	}
	defer func() { <-s.token }()
	if s.learn() {
		return -1, Chunk{}, nil
	}
	s.mu.Lock()
	at, isOpen := s.beginLocked(len(s.seen)), s.state == open
	s.mu.Unlock()
	if !isOpen {
		return -1, Chunk{}, nil
	}
	c, next, end, err := s.packAt(ctx, at)
	if err != nil {
		if !packer && ctx.Err() == nil {
			s.MarkFailed(err)
		}
		return -1, Chunk{}, err
	}
	index = -1
	if c.Count > 0 {
		if index, err = s.push(c, next, end, packer); err != nil {
			return -1, Chunk{}, nil // it failed meanwhile, which its state tells
		}
	}
	if end {
		s.MarkComplete()
	}
	return index, c, nil
}

// learn takes over full chunks before the cut that others have packed. A
// chunk that ends at the cut may be one that nothing follows, so it is the
// last. Called with the token.
func (s *Snapshot) learn() bool {
	s.mu.Lock()
	n, isOpen := len(s.seen), s.state == open
	s.mu.Unlock()
	if !isOpen {
		return false
	}
	list := s.log.after(s.epoch, n)
	k := 0
	for k < len(list) && s.o.Source.Before(list[k].end) {
		k++
	}
	if k == 0 {
		return false
	}
	s.mu.Lock()
	s.seen = append(s.seen, list[:k]...)
	tell := s.changedLocked(true)
	s.mu.Unlock()
	tell()
	return true
}

// packAt packs the chunk that begins at a place. Called with the token.
func (s *Snapshot) packAt(ctx context.Context, at Place) (c Chunk, next Place, end bool, err error) {
	b := builders.Get().(*Builder)
	defer builders.Put(b)
	b.reset(s.log.o.Target)
	next, end, err = s.o.Source.Pack(ctx, b, at)
	if err != nil || b.count == 0 {
		return Chunk{}, next, end, err
	}
	return b.chunk(), next, end, nil
}

// body returns chunk i, which begins at a place: as it is held, or packed
// again.
func (s *Snapshot) body(ctx context.Context, i int, at Place, v sealed) (Chunk, error) {
	held := func() (Chunk, bool) {
		s.mu.Lock()
		last, isLast := s.last, i == len(s.seen)-1
		s.mu.Unlock()
		if last != nil && isLast {
			return v.of(last, nil), true
		}
		return s.log.read(i, v)
	}
	if c, ok := held(); ok {
		return c, nil
	}
	if err := s.take(ctx); err != nil {
		return Chunk{}, err
	}
	defer func() { <-s.token }()
	if c, ok := held(); ok { // by another, meanwhile
		return c, nil
	}
	c, next, _, err := s.packAt(ctx, at)
	if err == nil {
		if got := sealedOf(c, next); got != v {
			err = fmt.Errorf("%w: chunk %d has %d messages, %d bytes, xxh64 %016x, had %d, %d, %016x",
				ErrDiffers, i, got.count, got.size, got.sum, v.count, v.size, v.sum)
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			s.breakUp(err)
		}
		return Chunk{}, err
	}
	s.store.repacked.Add(1)
	s.log.hold(i, v, c.Body, false)
	return c, nil
}

// breakUp is the end of a snapshot that lost a chunk for good: one that is
// open fails, and a complete one is not given to others any more.
func (s *Snapshot) breakUp(err error) {
	s.mu.Lock()
	s.broken = true
	s.mu.Unlock()
	s.MarkFailed(err)
	s.store.deregister(s)
}
