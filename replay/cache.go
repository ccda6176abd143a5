package replay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dgraph-io/ristretto/v2"

	"sessiond/replay/stamp"
)

// Cache holds at most one replay a session, bounded by the memory that they
// hold. It is a hint: a session that is not in it is read again.
//
// An entry is valid while the file's whole stamp is the one it was read under
// and that stamp had rested for a second when the reading began.
type Cache struct {
	store    *ristretto.Cache[string, *cached] // nil: off
	counters *Counters

	mu     sync.Mutex
	flight map[string]*flight
}

type cached struct {
	replay *Replay
	stamp  stamp.Stamp
	readAt time.Time
}

type flight struct {
	done   chan struct{}
	result *cached
	err    error
}

// NewCache returns a cache of bytes; 0 turns it off, so that every Load
// builds. counters, if not nil, are counted up.
func NewCache(bytes int64, counters *Counters) (*Cache, error) {
	if counters == nil {
		counters = new(Counters)
	}
	c := &Cache{counters: counters, flight: map[string]*flight{}}
	if bytes <= 0 {
		return c, nil
	}
	store, err := ristretto.NewCache(&ristretto.Config[string, *cached]{
		NumCounters: 100_000, MaxCost: bytes, BufferItems: 64, IgnoreInternalCost: true,
	})
	if err != nil {
		return nil, fmt.Errorf("replay: cache of %d bytes: %w", bytes, err)
	}
	c.store = store
	return c, nil
}

// Load returns the session's replay for a file with this stamp: the one held
// if it is valid, else what build makes; concurrent calls of one session
// share one build. build returns the time at which it began to read. Where it
// fails because its caller gave up, the others do not.
func (c *Cache) Load(ctx context.Context, key string, st stamp.Stamp, build func(context.Context) (*Replay, time.Time, error)) (*Replay, error) {
	for {
		c.mu.Lock()
		f, flying := c.flight[key]
		if !flying {
			if r := c.get(key, st); r != nil { // also what a flight just brought
				c.mu.Unlock()
				c.counters.CacheHits.Add(1)
				return r, nil
			}
			f = &flight{done: make(chan struct{})}
			c.flight[key] = f
			c.mu.Unlock()
			c.counters.CacheMisses.Add(1)
			return c.fly(ctx, key, st, f, build)
		}
		c.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		switch {
		case f.result != nil && f.result.stamp == st:
			return f.result.replay, nil
		case f.err != nil && !errors.Is(f.err, context.Canceled) && !errors.Is(f.err, context.DeadlineExceeded):
			return nil, f.err
		}
	}
}

func (c *Cache) fly(ctx context.Context, key string, st stamp.Stamp, f *flight, build func(context.Context) (*Replay, time.Time, error)) (*Replay, error) {
	defer func() {
		c.mu.Lock()
		delete(c.flight, key)
		c.mu.Unlock()
		close(f.done)
	}()
	r, readAt, err := build(ctx)
	if err != nil {
		f.err = err
		return nil, err
	}
	f.result = &cached{r, st, readAt}
	c.Put(key, r, st, readAt)
	return r, nil
}

func (c *Cache) get(key string, st stamp.Stamp) *Replay {
	if c.store == nil {
		return nil
	}
	e, ok := c.store.Get(key)
	if !ok {
		return nil
	}
	if e.stamp != st || !st.TrustedAt(e.readAt) {
		c.counters.Invalidate.Add(1)
		c.Drop(key)
		return nil
	}
	return e.replay
}

// Put gives a replay of a file with this stamp to the cache. The library
// does not evict when a held entry grows, so the old one is dropped first; and
// a new one is seen only after a while, so Put waits for that.
func (c *Cache) Put(key string, r *Replay, st stamp.Stamp, readAt time.Time) {
	if c.store == nil {
		return
	}
	c.store.Del(key)
	c.store.Set(key, &cached{r, st, readAt}, r.Bytes())
	c.store.Wait()
}

// Drop forgets a session.
func (c *Cache) Drop(key string) {
	if c.store != nil {
		c.store.Del(key)
	}
}

// Bytes is the cost of what the cache holds and its bound.
func (c *Cache) Bytes() (held, bound int64) {
	if c.store == nil {
		return 0, 0
	}
	bound = c.store.MaxCost()
	return bound - c.store.RemainingCost(), bound
}

// Close ends the cache's goroutines. No call may run beside it.
func (c *Cache) Close() {
	if c.store != nil {
		c.store.Close()
	}
}
