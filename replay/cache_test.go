package replay_test

import (
	"bytes"
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
	rested  = stamp.Stamp{Size: int64(len(small)), CTimeNano: now.Add(-time.Hour).UnixNano(), Device: 1, Inode: 1}
	hot     = stamp.Stamp{Size: int64(len(small)), CTimeNano: now.Add(-time.Second / 2).UnixNano(), Device: 1, Inode: 1}
	changed = stamp.Stamp{Size: int64(len(small)), CTimeNano: now.Add(-time.Minute).UnixNano(), Device: 1, Inode: 1}

	small = file(header(3), user("a", ""))
	other = file(header(3), user("b", ""))
)

// at is a source with a stamp.
func at(st stamp.Stamp, text []byte) replay.Source {
	return replay.Source{ReaderAt: bytes.NewReader(text), Size: int64(len(text)), Stamp: st}
}

// believing returns a Trust at a fixed time that believes in device 1.
func believing() *stamp.Trust {
	t := stamp.NewTrust(func() (time.Time, time.Duration) { return now, 0 })
	t.Believe(1)
	return t
}

func newCache(t *testing.T, bytes int64) (*replay.Cache, *replay.Counters) {
	t.Helper()
	counters := new(replay.Counters)
	c, err := replay.NewCache(bytes, believing(), counters)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, counters
}

// builder counts builds of one small session.
type builder struct {
	t        tb
	counters *replay.Counters
	builds   atomic.Int64
}

func (b *builder) build(context.Context) (*replay.Replay, error) {
	b.builds.Add(1)
	return buildWith(b.t, small, replay.Options{Counters: b.counters}), nil
}

// TestCache_Validity lists what becomes of a replay that is asked for again:
// a hit reads nothing, an equal file is compared and not parsed, a longer one
// is parsed from its old end on, any other is built anew.
func TestCache_Validity(t *testing.T) {
	more := append(bytes.Clone(small), user("c", "a")+"\n"...)
	with := func(st stamp.Stamp, change func(*stamp.Stamp)) stamp.Stamp { change(&st); return st }
	grown := with(changed, func(s *stamp.Stamp) { s.Size = int64(len(more)) })
	type counts struct{ builds, hits, misses, digests, extensions, invalid uint64 }
	for _, tc := range []struct {
		name          string
		bytes         int64
		first, second replay.Source
		want          counts
	}{
		{"equal and rested", 1 << 20, at(rested, small), at(rested, small), counts{1, 1, 1, 0, 0, 0}},
		{"equal but hot when it was read", 1 << 20, at(hot, small), at(hot, small), counts{1, 1, 1, 1, 0, 0}},
		{
			"of a device that is not believed in", 1 << 20,
			at(with(rested, func(s *stamp.Stamp) { s.Device = 2 }), small),
			at(with(rested, func(s *stamp.Stamp) { s.Device = 2 }), small),
			counts{1, 1, 1, 1, 0, 0},
		},
		{"touched", 1 << 20, at(rested, small), at(changed, small), counts{1, 1, 1, 1, 0, 0}},
		{
			"the same in another file", 1 << 20, at(rested, small),
			at(with(changed, func(s *stamp.Stamp) { s.Inode = 2 }), small),
			counts{1, 1, 1, 1, 0, 0},
		},
		{
			"own append", 1 << 20, at(rested, small),
			replay.Source{ReaderAt: bytes.NewReader(small), Size: int64(len(small)), Stamp: rested, Writes: 1},
			counts{1, 1, 1, 1, 0, 0},
		},
		{"grown", 1 << 20, at(rested, small), at(grown, more), counts{1, 0, 1, 1, 1, 0}},
		{
			"replaced by a longer one with the same beginning", 1 << 20, at(rested, small),
			at(with(grown, func(s *stamp.Stamp) { s.Inode = 2 }), more),
			counts{1, 0, 1, 1, 1, 0},
		},
		{"rewritten in place to the same size", 1 << 20, at(rested, small), at(changed, other), counts{2, 0, 2, 1, 0, 1}},
		{
			"rewritten with its mtime put back", 1 << 20, at(rested, small),
			at(with(rested, func(s *stamp.Stamp) { s.CTimeNano++ }), other),
			counts{2, 0, 2, 1, 0, 1},
		},
		{"rewritten while it was hot, with an equal stamp", 1 << 20, at(hot, small), at(hot, other), counts{2, 0, 2, 1, 0, 1}},
		{
			"replaced by another", 1 << 20, at(rested, small),
			at(with(changed, func(s *stamp.Stamp) { s.Inode = 2 }), other),
			counts{2, 0, 2, 1, 0, 1},
		},
		{"truncated", 1 << 20, at(rested, more), at(changed, small), counts{2, 0, 2, 1, 0, 1}},
		{
			"truncated and grown again", 1 << 20, at(rested, small),
			at(grown, append(bytes.Clone(other), user("c", "b")+"\n"...)),
			counts{2, 0, 2, 1, 0, 1},
		},
		{
			"completion of a partial record", 1 << 20,
			at(with(rested, func(s *stamp.Stamp) { s.Size = int64(len(more)) - 3 }), more[:len(more)-3]), at(grown, more),
			counts{1, 0, 1, 1, 1, 0},
		},
		{"made again after it was missing", 1 << 20, at(stamp.Missing, nil), at(rested, small), counts{1, 0, 1, 1, 0, 0}},
		{"missing", 1 << 20, at(stamp.Missing, nil), at(stamp.Missing, nil), counts{0, 1, 1, 1, 0, 0}},
		{"off", 0, at(rested, small), at(rested, small), counts{2, 0, 2, 0, 0, 0}},
		{"too small for it", 100, at(rested, small), at(rested, small), counts{2, 0, 2, 0, 0, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, n := newCache(t, tc.bytes)
			for _, src := range []replay.Source{tc.first, tc.second} {
				h, err := c.Load(t.Context(), "k", src, func(ctx context.Context) (*replay.Replay, error) {
					return replay.Build(ctx, src, src.Size, replay.Options{Counters: n})
				})
				if err != nil {
					t.Fatalf("Load: %v", err)
				}
				all := make([]byte, src.Size)
				_, _ = src.ReadAt(all, 0)
				equalReplays(t, online(t, all), h.Replay, all)
			}
			got := counts{
				n.Builds.Load(), n.CacheHits.Load(), n.CacheMisses.Load(),
				n.DigestReads.Load(), n.Extensions.Load(), n.Invalidate.Load(),
			}
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestCache_KeysAreApart(t *testing.T) {
	c, _ := newCache(t, 1<<20)
	b := builder{t: t}
	for _, key := range []string{"a", "b", "a", "b"} {
		if _, err := c.Load(t.Context(), key, at(rested, small), b.build); err != nil {
			t.Fatal(err)
		}
	}
	c.Drop("a")
	for _, key := range []string{"a", "b"} {
		if _, err := c.Load(t.Context(), key, at(rested, small), b.build); err != nil {
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
					r, err := c.Load(t.Context(), "k", at(rested, small), func(ctx context.Context) (*replay.Replay, error) {
						<-release
						return b.build(ctx)
					})
					if err != nil || r.Replay == nil {
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
		c, counters := newCache(t, 1<<20)
		b := builder{t, counters, atomic.Int64{}}
		release := make(chan struct{})
		var wg sync.WaitGroup
		for _, st := range []stamp.Stamp{rested, changed} {
			wg.Go(func() {
				if _, err := c.Load(t.Context(), "k", at(st, small), func(ctx context.Context) (*replay.Replay, error) {
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
		if got, compared := b.builds.Load(), counters.DigestReads.Load(); got != 1 || compared != 1 {
			t.Errorf("got %d builds and %d comparisons, want 1 of each", got, compared)
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
				_, err := c.Load(ctx, "k", at(rested, small), func(ctx context.Context) (*replay.Replay, error) {
					<-ctx.Done()
					if wrapped {
						return nil, fmt.Errorf("record 7: %w", ctx.Err())
					}
					return nil, ctx.Err()
				})
				if !errors.Is(err, context.Canceled) {
					t.Errorf("builder: got %v", err)
				}
			})
			synctest.Wait()
			for range 5 {
				wg.Go(func() {
					if _, err := c.Load(t.Context(), "k", at(rested, small), b.build); err != nil {
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
			if _, err := c.Load(t.Context(), "k", at(rested, small), func(ctx context.Context) (*replay.Replay, error) {
				<-release
				return b.build(ctx)
			}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Load(ctx, "k", at(rested, small), b.build); !errors.Is(err, context.Canceled) {
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
				if _, err := c.Load(t.Context(), "k", at(rested, small), func(context.Context) (*replay.Replay, error) {
					calls.Add(1)
					<-release
					return nil, failure
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
		if _, err := c.Load(t.Context(), "k", at(rested, small), b.build); err != nil {
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
		if _, err := c.Load(t.Context(), fmt.Sprint(i), at(rested, small), b.build); err != nil {
			t.Fatal(err)
		}
		if i%50 == 0 { // a held session that grows is weighed again
			r := online(t, data)
			for k := range 50 {
				data = append(data, file(user(id(1000*i+k), "a"))...)
				extend(t, r, data)
			}
			c.Put("growing", r, replay.Known{Stamp: rested})
		}
		if held, most := c.Bytes(); held < 0 || held > most || most != bound {
			t.Fatalf("after %d sessions: holds %d of %d bytes", i+1, held, most)
		}
	}
	if held, _ := c.Bytes(); held < bound*3/4 {
		t.Errorf("holds %d of %d bytes", held, bound)
	}
}

func TestCache_ClosedMisses(t *testing.T) {
	c, err := replay.NewCache(1<<20, believing(), nil)
	if err != nil {
		t.Fatal(err)
	}
	b := builder{t: t}
	if _, err := c.Load(t.Context(), "k", at(rested, small), b.build); err != nil {
		t.Fatal(err)
	}
	c.Close()
	c.Close()
	for range 2 {
		if _, err := c.Load(t.Context(), "k", at(rested, small), b.build); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.builds.Load(); got != 3 {
		t.Errorf("builds: got %d, want 3", got)
	}
}
