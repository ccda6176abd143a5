package replay

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dgraph-io/ristretto/v2"

	"sessiond/replay/stamp"
)

// Cache holds at most one replay a session, bounded by the memory that they
// hold. It is a hint: a session that is not in it is read again. What it holds
// is good as far as Renew makes it good.
type Cache struct {
	store    *ristretto.Cache[string, *Held] // nil: off
	bound    int64
	trust    *stamp.Trust
	counters *Counters

	mu     sync.Mutex
	flight map[string]*flight
}

// Held is a replay with what it was read under.
type Held struct {
	*Replay
	Known
	// Hit says that no record was read for the call that returned it.
	Hit bool
}

type flight struct {
	done   chan struct{}
	src    Source // without a reader
	result *Held
	err    error
}

// realShare is how much memory the library and the garbage collector need for
// a byte of replays, about: the costs that are held at once are so much less
// than what the caller allows.
const realShare = 2

// NewCache returns a cache that takes about so many bytes of memory; 0 turns
// it off, so that every Load builds. counters, if not nil, are counted up.
func NewCache(bytes int64, trust *stamp.Trust, counters *Counters) (*Cache, error) {
	if counters == nil {
		counters = new(Counters)
	}
	c := &Cache{counters: counters, trust: trust, bound: bytes, flight: map[string]*flight{}}
	if bytes <= 0 {
		c.bound = 0
		return c, nil
	}
	store, err := ristretto.NewCache(&ristretto.Config[string, *Held]{
		NumCounters: 100_000, MaxCost: max(bytes/realShare, 1), BufferItems: 64, IgnoreInternalCost: true,
	})
	if err != nil {
		return nil, fmt.Errorf("replay: cache of %d bytes: %w", bytes, err)
	}
	c.store = store
	return c, nil
}

// Load returns the session's replay up to src: the one held, renewed, or else
// what build makes of the whole file. One that has lost a page is given up.
// Concurrent calls of one session share the work; where it fails because its
// caller gave up, the others do not.
func (c *Cache) Load(ctx context.Context, key string, src Source, build func(context.Context) (*Replay, error)) (Held, error) {
	for {
		c.mu.Lock()
		f, flying := c.flight[key]
		if !flying {
			f = &flight{done: make(chan struct{}), src: src}
			f.src.ReaderAt = nil
			c.flight[key] = f
			c.mu.Unlock()
			return c.fly(ctx, key, src, f, build)
		}
		c.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return Held{}, ctx.Err()
		}
		same := f.src.Stamp == src.Stamp && f.src.Writes == src.Writes && f.src.Size == src.Size
		switch {
		case f.result != nil && same && !f.result.Lost():
			c.counters.CacheHits.Add(1)
			return Held{f.result.Replay, f.result.Known, true}, nil
		case f.err != nil && !errors.Is(f.err, context.Canceled) && !errors.Is(f.err, context.DeadlineExceeded):
			return Held{}, f.err
		}
	}
}

func (c *Cache) fly(ctx context.Context, key string, src Source, f *flight, build func(context.Context) (*Replay, error)) (Held, error) {
	defer func() {
		c.mu.Lock()
		delete(c.flight, key)
		c.mu.Unlock()
		close(f.done)
	}()
	h, err := c.renew(ctx, key, src)
	if h == nil && err == nil {
		c.counters.CacheMisses.Add(1)
		known := Known{Stamp: src.Stamp, Writes: src.Writes, Proof: c.trust.Prove(src.Stamp)}
		var r *Replay
		if r, err = build(ctx); err == nil {
			h = &Held{Replay: r, Known: known}
			c.Put(key, r, known)
		}
	}
	if err != nil {
		f.err = err
		return Held{}, err
	}
	f.result = h
	if h.Hit {
		c.counters.CacheHits.Add(1)
	}
	return *h, nil
}

// renew returns what is held, made good, or nil where there is nothing or it
// is of another history.
func (c *Cache) renew(ctx context.Context, key string, src Source) (*Held, error) {
	if c.store == nil {
		return nil, nil
	}
	held, ok := c.store.Get(key)
	if !ok {
		return nil, nil
	}
	head := held.Head()
	known, err := held.Renew(ctx, src, held.Known, c.trust)
	switch {
	case errors.Is(err, stamp.ErrMismatch), held.Lost():
		c.counters.Invalidate.Add(1)
		c.Drop(key)
		return nil, nil
	case err != nil:
		return nil, err
	}
	if known != held.Known {
		c.Put(key, held.Replay, known)
	}
	return &Held{held.Replay, known, held.Head() == head}, nil
}

// Put gives a replay to the cache with what it was read under. The library
// does not evict when a held entry grows, so the old one is dropped first; and
// a new one is seen only after a while, so Put waits for that. One that has
// lost a page is of no use.
func (c *Cache) Put(key string, r *Replay, k Known) {
	if c.store == nil {
		return
	}
	c.store.Del(key)
	if r.Lost() {
		return
	}
	c.store.Set(key, &Held{Replay: r, Known: k}, r.Bytes())
	c.store.Wait()
}

// Drop forgets a session.
func (c *Cache) Drop(key string) {
	if c.store != nil {
		c.store.Del(key)
	}
}

// Bytes is about the memory of what the cache holds, and its bound.
func (c *Cache) Bytes() (held, bound int64) {
	if c.store == nil {
		return 0, 0
	}
	return realShare * (c.store.MaxCost() - c.store.RemainingCost()), c.bound
}

// Close ends the cache's goroutines. No call may run beside it.
func (c *Cache) Close() {
	if c.store != nil {
		c.store.Close()
	}
}
