package replay_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sessiond/replay"
	"sessiond/replay/stamp"
	"sessiond/testdata/gen"
)

// counted are the counters of the growing session. What the rows of a harness
// do not share with the product is that they know nothing of a file's growth.
type counted struct{ Full, Tail, Bytes, Lines, Builds, Extensions, Hits uint64 }

func countedOf(c *replay.Counters) counted {
	v := c.Values()
	return counted{
		v["full_scans"], v["tail_scans"], v["bytes_read"], v["lines_parsed"],
		v["replay_builds"], v["replay_extensions"], v["cache_hits"],
	}
}

// A session of 40 prompts that two consumers read after each: what that costs
// with a replay for everybody, with one for both, and with one that grows.
func TestGrowing_Counters(t *testing.T) {
	for _, tc := range []struct {
		name string
		load func(t *testing.T, c *replay.Counters) func(src replay.Source) *replay.Replay
		want counted
	}{
		{"forced", forced, counted{80, 0, 8_046_060, 4920, 80, 0, 0}},
		{"shared", shared, counted{40, 0, 4_023_030, 2460, 40, 0, 40}},
		{"cached", cached, counted{0, 40, 196_260, 120, 1, 39, 40}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := new(replay.Counters)
			load := tc.load(t, c)
			if tc.name == "cached" { // which has looked at the file while it was empty
				load(replay.Source{ReaderAt: bytes.NewReader(nil), Stamp: stamp.Stamp{Device: 1, Inode: 1, CTimeNano: 1}})
			}
			var data []byte
			for i := range gen.Prompts {
				data = append(data, gen.PromptLines(i)...)
				st := stamp.Stamp{Size: int64(len(data)), CTimeNano: int64(i) + 2, Device: 1, Inode: 1}
				for _, v := range bothViews {
					r := load(replay.Source{ReaderAt: bytes.NewReader(data), Size: st.Size, Stamp: st})
					want := 2 * (i + 1)
					if got := len(slotsOf(t, r, v)); got != want {
						t.Fatalf("prompt %d, view %v: got %d messages, want %d", i, v, got, want)
					}
				}
			}
			if diff := cmp.Diff(tc.want, countedOf(c)); diff != "" {
				t.Errorf("counters (-want +got):\n%s", diff)
			}
			if v := c.Values(); v["invalidations"] > 0 || tc.name != "cached" && v["check_bytes"] > 0 {
				t.Errorf("got %v", v)
			}
		})
	}
}

// forced reads the whole file each time.
func forced(t *testing.T, c *replay.Counters) func(replay.Source) *replay.Replay {
	return func(src replay.Source) *replay.Replay {
		r, err := replay.Build(t.Context(), src, src.Size, replay.Options{Counters: c})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
}

// shared reads the whole file when its stamp is another.
func shared(t *testing.T, c *replay.Counters) func(replay.Source) *replay.Replay {
	var held *replay.Replay
	var under stamp.Stamp
	build := forced(t, c)
	return func(src replay.Source) *replay.Replay {
		if held != nil && under == src.Stamp {
			c.CacheHits.Add(1)
			return held
		}
		held, under = build(src), src.Stamp
		return held
	}
}

// cached is the cache.
func cached(t *testing.T, c *replay.Counters) func(replay.Source) *replay.Replay {
	cache, err := replay.NewCache(1<<20, believing(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cache.Close)
	return func(src replay.Source) *replay.Replay {
		h, err := cache.Load(t.Context(), "k", src, func(ctx context.Context) (*replay.Replay, error) {
			return replay.Build(ctx, src, src.Size, replay.Options{Counters: c})
		})
		if err != nil {
			t.Fatal(err)
		}
		return h.Replay
	}
}
