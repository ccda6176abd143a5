package replay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/replay/pages"
	"sessiond/replay/stamp"
)

const pagedRecords = 50_000 / scaleDivisor

// oddLines makes a session of all that changes links: mostly a chain, with
// branches, compactions, edits, repeats, and parents that come late or never.
func oddLines(r *rand.Rand, n int) []byte {
	return manyLines(n, func(i int) string {
		self, parent := id(i), id(i-1)
		switch r.IntN(400) {
		case 0:
			parent = id(r.IntN(i + 1))
		case 1:
			parent = id(i + 1 + r.IntN(50))
		case 2:
			parent = "nowhere"
		case 3:
			self = id(r.IntN(i + 1))
		case 4, 5:
			return compaction(self, parent, id(max(i-r.IntN(100), 0)))
		case 6:
			return contextEdit(self, parent, id(r.IntN(i+1)), `{"content":"new"}`)
		case 7:
			return childUsage(self, parent, id(r.IntN(i+1)), i)
		case 8:
			return "{"
		}
		return user(self, parent)
	})
}

func oddEvents(r *rand.Rand, n int) []byte {
	return logLines(n, func(i int) string {
		switch r.IntN(300) {
		case 0:
			return rewindTo(id(i), id(r.IntN(i+1)))
		case 1:
			return logCompaction(id(i), fmt.Sprintf("%q", id(max(i-r.IntN(200), 0))))
		case 2:
			return input(id(r.IntN(i + 1)))
		}
		return input(id(i))
	})
}

// What a replay says does not depend on where its index is: at once, and in
// pieces with the views in use. What is held is the last page of each list.
func TestPaging_EqualsReplayInMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("large files")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, tc := range []struct {
		name string
		data []byte
	}{
		{"links", oddLines(r, pagedRecords)},
		{"version 1", manyV1(pagedRecords)},
		{"event log", oddEvents(r, pagedRecords)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const page = 1 << 10
			pool := pages.NewPool(pages.Options{Bytes: 1, PageBytes: page, Open: func() (pages.Store, error) { return &memStore{}, nil }})
			opt := replay.Options{Pages: pool}
			want := summarise(t, online(t, tc.data), tc.data)
			same := func(how string, r *replay.Replay) {
				t.Helper()
				if diff := diffSummaries(want, summarise(t, r, tc.data)); diff != "" {
					t.Fatalf("%s (-in memory +paged):\n%.2000s", how, diff)
				}
			}
			paged := buildWith(t, tc.data, opt)
			// 16 runs of ids are joined, and each has two lists; the rest are a few.
			const most = 64 * page * 5 / 4
			within(t, func() (got, bound int64) { return pool.Stats().HeldBytes, most })
			same("at once", paged)
			r := buildWith(t, nil, opt)
			const pieces = 5
			for i := range pieces {
				extend(t, r, tc.data[:len(tc.data)*(i+1)/pieces])
				for _, v := range bothViews {
					slotsOf(t, r, v)
				}
			}
			same("in pieces", r)
			runtime.KeepAlive(paged)
			if st := pool.Stats(); st.Reads == 0 || st.Failed != "" {
				t.Errorf("got %+v", st)
			}
			t.Logf("%d records: %+v", want.Head.Sequence, pool.Stats())
		})
	}
}

func manyV1(n int) []byte {
	b := bytes.NewBufferString(header(1) + "\n")
	for i := range n {
		b.WriteString(v1Line(i) + "\n")
	}
	return b.Bytes()
}

// within collects garbage until a number is within its bound.
func within(t *testing.T, look func() (got, bound int64)) {
	t.Helper()
	const patience = 20 * time.Second
	for end := time.Now().Add(patience); ; runtime.Gosched() {
		runtime.GC() // and cleanups run by and by
		got, bound := look()
		if got <= bound {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("holds %d bytes, want at most %d", got, bound)
		}
	}
}

// failingStore fails every read from one on.
type failingStore struct {
	memStore
	left int
}

var errPage = errors.New("bad sector")

func (s *failingStore) ReadAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	s.left--
	failed := s.left < 0
	s.mu.Unlock()
	if failed {
		return 0, errPage
	}
	return s.memStore.ReadAt(p, off)
}

// askAll calls every method that may fail, and returns the errors by name.
func askAll(r *replay.Replay, data []byte) map[string]error {
	w := dialect.NewWindow(bytes.NewReader(data))
	out := map[string]error{}
	_, _, out["Info"] = r.Info(w)
	_, out["State"] = r.State(w)
	_, out["Leaf"] = r.Leaf(w)
	_, _, _, out["Held"] = r.Held([]byte(`{"type":"message","id":"e1"}`))
	_, _, out["Diagnostics"] = r.Diagnostics()
	_, out["DiagnosticsCount"] = r.DiagnosticsCount()
	for _, v := range bothViews {
		_, _, out["Slots"] = r.Slots(v)
		_, out["Delta"] = r.Delta(v, r.Head().Sequence/2)
		view, err := r.View(v)
		if out["View"] = err; err != nil {
			_, out["Body"] = r.Bodies(v).Body(dialect.Slot{}, true)
			continue
		}
		for i := range int(view.Slots.Len()) {
			if _, _, err := view.BodyAt(&view.Slots, i, true); err != nil {
				out["Body"] = err
				break
			}
		}
	}
	out["Admit"] = r.Admit(dialect.Context)
	_, out["Budget"] = r.Budget(dialect.Context)
	out["Extend"] = r.Extend(context.Background(), bytes.NewReader(data), int64(len(data)))
	return out
}

// A page that cannot be read again, at any time: whatever is asked then is
// answered by an error, nothing panics, and the head stands where its digest
// is that of the file.
func TestPaging_LostPageIsAnError(t *testing.T) {
	for _, d := range drawings {
		t.Run(d.family, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				data := bytes.Join(rapid.SliceOfN(rapid.Custom(d.draw), 1, 4).Draw(t, "sessions"), []byte("\n"))
				store := &failingStore{left: rapid.IntRange(0, 2000).Draw(t, "reads")}
				losesAPage(t, store, data, rapid.IntRange(1, 4).Draw(t, "pieces"))
			})
		})
	}
	t.Run("large", func(t *testing.T) {
		data := oddLines(rand.New(rand.NewPCG(1, 2)), 2000)
		for reads := 0; reads < 200_000; reads = reads*2 + 1 {
			losesAPage(t, &failingStore{left: reads}, data, 3)
		}
	})
}

func losesAPage(t tb, store *failingStore, data []byte, pieces int) {
	t.Helper()
	pool := pages.NewPool(pages.Options{Bytes: 1, PageBytes: 96, Open: func() (pages.Store, error) { return store, nil }})
	r, err := replay.Build(context.Background(), bytes.NewReader(nil), 0, replay.Options{Pages: pool, MaxRecords: 1 << 40})
	if err != nil {
		t.Fatalf("Build: %v", err)
	}
	lost := func(what string, err error) {
		t.Helper()
		var lost *pages.LostError
		if !errors.As(err, &lost) || !errors.Is(err, errPage) {
			t.Fatalf("%s: got %v, want a lost page", what, err)
		}
	}
	for i := range pieces {
		text := data[:len(data)*(i+1)/pieces]
		if err := r.Extend(context.Background(), bytes.NewReader(text), int64(len(text))); err != nil {
			lost("Extend", err)
		}
		for what, err := range askAll(r, text) {
			if err != nil {
				lost(what, err)
			}
		}
		if head := r.Head(); head != stamp.Start {
			if err := r.Compare(context.Background(), bytes.NewReader(text), true); err != nil {
				t.Fatalf("head %+v: %v", head, err)
			}
			if now, d := r.HeadDigest(); now != head || d.Sum64() != head.Digest {
				t.Fatalf("head: got %+v with digest %x, want %+v", now, d.Sum64(), head)
			}
		}
		if !r.Lost() {
			continue
		}
		for what, err := range askAll(r, text) {
			lost(what+" of a replay that is lost", err)
		}
		return
	}
}

// A cache gives up a replay that has lost a page, and builds it again.
func TestCache_LostReplayIsBuiltAgain(t *testing.T) {
	data := []byte(strings.Repeat(" ", 10))
	data = append(data, oddLines(rand.New(rand.NewPCG(1, 2)), 500)...)
	store := &failingStore{left: 1 << 40}
	pool := pages.NewPool(pages.Options{Bytes: 1, PageBytes: 96, Open: func() (pages.Store, error) { return store, nil }})
	c, err := replay.NewCache(1<<20, stamp.NewTrust(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	src := replay.Source{ReaderAt: bytes.NewReader(data), Size: int64(len(data)), Stamp: stamp.Stamp{Size: int64(len(data)), Inode: 1}}
	builds := 0
	load := func() *replay.Replay {
		t.Helper()
		h, err := c.Load(t.Context(), "k", src, func(ctx context.Context) (*replay.Replay, error) {
			builds++
			return replay.Build(ctx, src, src.Size, replay.Options{Pages: pool})
		})
		if err != nil {
			t.Fatal(err)
		}
		return h.Replay
	}
	first := load()
	if again := load(); again != first || builds != 1 {
		t.Fatalf("built %d times, want once", builds)
	}
	store.mu.Lock()
	store.left = 0
	store.mu.Unlock()
	if _, err := first.View(dialect.Transcript); err == nil || !first.Lost() {
		t.Fatalf("got %v, want a lost page", err)
	}
	store.mu.Lock()
	store.left = 1 << 40
	store.mu.Unlock()
	second := load()
	if second == first || second.Lost() || builds != 2 {
		t.Fatalf("built %d times, want anew; lost: %v", builds, second.Lost())
	}
	equalReplays(t, online(t, data), second, data)
	c.Put("k", first, replay.Known{})
	if third := load(); third == first {
		t.Error("a lost replay was put into the cache")
	}
}

// peakStore is a paging file that notes how much its pool holds at the most
// when a page is read back: a long way that lets nothing go shows there.
type peakStore struct {
	memStore
	pool *pages.Pool
	most atomic.Int64
}

func (s *peakStore) ReadAt(p []byte, off int64) (int, error) {
	s.most.Store(max(s.most.Load(), s.pool.Stats().HeldBytes))
	return s.memStore.ReadAt(p, off)
}

// Whatever the links are like, every way along them lets pages go.
func TestPaging_EveryWayThroughTheIndexKeepsTheBound(t *testing.T) {
	const n, bound, slack = 100_000, 1 << 20, 3 << 20
	chain := func(i int) string { return user(id(i), id(i-1)) }
	for _, tc := range []struct {
		name string
		data []byte
	}{
		{"chain", manyLines(n, chain)},
		{"one id twice", append(manyLines(n, chain), file(user(id(n-1), id(n-2)), user("z", id(n-1)))...)},
		{"parents come later", append(manyLines(n, func(i int) string { return user(id(i), id(i+1)) }), file(user(id(n), ""), user("z", id(0)))...)},
		{"one ring", manyLines(n, func(i int) string { return user(id(i), id((i+n-1)%n)) })},
		{"another root, then back", append(manyLines(n, chain), file(user("r", ""), user("s", id(n-1)))...)},
		{"version 1 behind a gap", []byte(user("", "") + "\n" + strings.Repeat("1\n", 5*n) + user("", "") + "\n")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &peakStore{}
			s.pool = pages.NewPool(pages.Options{Bytes: bound, Open: func() (pages.Store, error) { return s, nil }})
			r := buildWith(t, tc.data, replay.Options{Pages: s.pool})
			for _, v := range bothViews {
				viewOf(t, r, v)
			}
			more := file(user(id(n-2), id(n-3)), user("y", id(n-2))) // a repeat, with both views in use
			extend(t, r, append(slices.Clip(tc.data), more...))
			if _, _, err := r.Info(dialect.NewWindow(bytes.NewReader(tc.data))); err != nil {
				t.Fatal(err)
			}
			if most := s.most.Load(); most > bound+slack {
				t.Errorf("held %d bytes, want at most %d", most, bound+slack)
			}
		})
	}
}
