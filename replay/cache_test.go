package replay_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"sessiond/replay"
	"sessiond/replay/stamp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hourAgo and now are the ctime of a rested file and a reading of it.
var (
	now     = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rested  = stamp.Stamp{Size: 5, CTimeNano: now.Add(-time.Hour).UnixNano(), Inode: 1}
	hot     = stamp.Stamp{Size: 5, CTimeNano: now.Add(-time.Second / 2).UnixNano(), Inode: 1}
	changed = stamp.Stamp{Size: 5, CTimeNano: now.Add(-time.Minute).UnixNano(), Inode: 1}
)

func newCache(t *testing.T, bytes int64) (*replay.Cache, *replay.Counters) {
	t.Helper()
	counters := new(replay.Counters)
	c, err := replay.NewCache(bytes, counters)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, counters
}

// builder counts builds of one small session.
type builder struct {
	t      tb
	builds atomic.Int64
}

func (b *builder) build(context.Context) (*replay.Replay, time.Time, error) {
	b.builds.Add(1)
	return online(b.t, file(header(3), user("a", ""))), now, nil
}

func TestCache_Validity(t *testing.T) {
	for _, tc := range []struct {
		name          string
		bytes         int64
		first, second stamp.Stamp
		builds        int64
		hits, misses  uint64
		invalid       uint64
	}{
		{"equal and rested", 1 << 20, rested, rested, 1, 1, 1, 0},
		{"changed", 1 << 20, rested, changed, 2, 0, 2, 1},
		{"equal but hot when it was read", 1 << 20, hot, hot, 2, 0, 2, 1},
		{"missing", 1 << 20, stamp.Missing, stamp.Missing, 2, 0, 2, 1},
		{"off", 0, rested, rested, 2, 0, 2, 0},
		{"too small for it", 100, rested, rested, 2, 0, 2, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, counters := newCache(t, tc.bytes)
			b := builder{t: t}
			for _, st := range []stamp.Stamp{tc.first, tc.second} {
				r, err := c.Load(t.Context(), "k", st, b.build)
				if err != nil || r == nil {
					t.Fatalf("Load: %v %v", r, err)
				}
			}
			if got := b.builds.Load(); got != tc.builds {
				t.Errorf("builds: got %d, want %d", got, tc.builds)
			}
			if h, m, i := counters.CacheHits.Load(), counters.CacheMisses.Load(), counters.Invalidate.Load(); h != tc.hits || m != tc.misses || i != tc.invalid {
				t.Errorf("hits, misses, invalidations: got %d %d %d, want %d %d %d", h, m, i, tc.hits, tc.misses, tc.invalid)
			}
		})
	}
}

func TestCache_KeysAreApart(t *testing.T) {
	c, _ := newCache(t, 1<<20)
	b := builder{t: t}
	for _, key := range []string{"a", "b", "a", "b"} {
		if _, err := c.Load(t.Context(), key, rested, b.build); err != nil {
			t.Fatal(err)
		}
	}
	c.Drop("a")
	for _, key := range []string{"a", "b"} {
		if _, err := c.Load(t.Context(), key, rested, b.build); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.builds.Load(); got != 3 {
		t.Errorf("builds: got %d, want 3", got)
	}
}

func TestCache_OneFlight(t *testing.T) {
	for _, bytes := range []int64{1 << 20, 0} {
		synctest.Test(t, func(t *testing.T) {
			c, counters := newCache(t, bytes)
			b := builder{t: t}
			release := make(chan struct{})
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					r, err := c.Load(t.Context(), "k", rested, func(ctx context.Context) (*replay.Replay, time.Time, error) {
						<-release
						return b.build(ctx)
					})
					if err != nil || r == nil {
						t.Errorf("Load: %v %v", r, err)
					}
				})
			}
			synctest.Wait() // all wait for one
			close(release)
			wg.Wait()
			if got, misses := b.builds.Load(), counters.CacheMisses.Load(); got != 1 || misses != 1 {
				t.Errorf("cache of %d: got %d builds, %d misses, want 1", bytes, got, misses)
			}
		})
	}
}

func TestCache_FlightOfAnotherStamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newCache(t, 1<<20)
		b := builder{t: t}
		release := make(chan struct{})
		var wg sync.WaitGroup
		for _, st := range []stamp.Stamp{rested, changed} {
			wg.Go(func() {
				if _, err := c.Load(t.Context(), "k", st, func(ctx context.Context) (*replay.Replay, time.Time, error) {
					<-release
					return b.build(ctx)
				}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(release)
		wg.Wait()
		if got := b.builds.Load(); got != 2 {
			t.Errorf("builds: got %d, want 2", got)
		}
	})
}

// TestCache_CancelledBuilder lets the caller that builds give up: the others
// get their replay.
func TestCache_CancelledBuilder(t *testing.T) {
	for _, wrapped := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := newCache(t, 1<<20)
			b := builder{t: t}
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := c.Load(ctx, "k", rested, func(ctx context.Context) (*replay.Replay, time.Time, error) {
					<-ctx.Done()
					if wrapped {
						return nil, now, fmt.Errorf("record 7: %w", ctx.Err())
					}
					return nil, now, ctx.Err()
				})
				if !errors.Is(err, context.Canceled) {
					t.Errorf("builder: got %v", err)
				}
			})
			synctest.Wait()
			for range 5 {
				wg.Go(func() {
					if _, err := c.Load(t.Context(), "k", rested, b.build); err != nil {
						t.Errorf("waiter: %v", err)
					}
				})
			}
			synctest.Wait()
			cancel()
			wg.Wait()
			if got := b.builds.Load(); got != 1 {
				t.Errorf("builds: got %d, want 1", got)
			}
		})
	}
}

func TestCache_CancelledWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newCache(t, 1<<20)
		b := builder{t: t}
		release := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := c.Load(t.Context(), "k", rested, func(ctx context.Context) (*replay.Replay, time.Time, error) {
				<-release
				return b.build(ctx)
			}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Load(ctx, "k", rested, b.build); !errors.Is(err, context.Canceled) {
			t.Errorf("waiter: got %v", err)
		}
		close(release)
		wg.Wait()
	})
}

func TestCache_FailureIsSharedAndNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newCache(t, 1<<20)
		b := builder{t: t}
		failure := errors.New("no such file")
		release := make(chan struct{})
		var calls atomic.Int64
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if _, err := c.Load(t.Context(), "k", rested, func(context.Context) (*replay.Replay, time.Time, error) {
					calls.Add(1)
					<-release
					return nil, now, failure
				}); !errors.Is(err, failure) {
					t.Errorf("got %v, want %v", err, failure)
				}
			})
		}
		synctest.Wait()
		close(release)
		wg.Wait()
		if got := calls.Load(); got != 1 {
			t.Errorf("calls: got %d, want 1", got)
		}
		if _, err := c.Load(t.Context(), "k", rested, b.build); err != nil {
			t.Errorf("the next: %v", err)
		}
	})
}

func TestCache_StaysWithinItsBytes(t *testing.T) {
	const bound = 1 << 20
	c, _ := newCache(t, bound)
	b := builder{t: t}
	data := file(header(3), user("a", ""))
	for i := range 500 {
		if _, err := c.Load(t.Context(), fmt.Sprint(i), rested, b.build); err != nil {
			t.Fatal(err)
		}
		if i%50 == 0 { // a held session that grows is weighed again
			r := online(t, data)
			for k := range 50 {
				data = append(data, file(user(id(1000*i+k), "a"))...)
				extend(t, r, data)
			}
			c.Put("growing", r, rested, now)
		}
		if held, most := c.Bytes(); held < 0 || held > most || most != bound {
			t.Fatalf("after %d sessions: holds %d of %d bytes", i+1, held, most)
		}
	}
	if held, _ := c.Bytes(); held < bound/2 {
		t.Errorf("holds %d of %d bytes", held, bound)
	}
}

func TestCache_ClosedMisses(t *testing.T) {
	c, err := replay.NewCache(1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := builder{t: t}
	if _, err := c.Load(t.Context(), "k", rested, b.build); err != nil {
		t.Fatal(err)
	}
	c.Close()
	c.Close()
	for range 2 {
		if _, err := c.Load(t.Context(), "k", rested, b.build); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.builds.Load(); got != 3 {
		t.Errorf("builds: got %d, want 3", got)
	}
}
