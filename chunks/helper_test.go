package chunks

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/goleak"

	"sessiond/engine/vfs"
	"sessiond/engine/vfs/vfstest"
	"sessiond/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// view is a view at a cut: messages as they are written.
type view []string

func metaOf(slot int) string { return fmt.Sprintf(`{"sequences":[%d]}`, slot+1) }

// Pack implements Source.
func (v view) Pack(ctx context.Context, b *Builder, from Place) (Place, bool, error) {
	for i := from.Slot; i < len(v); i++ {
		if err := ctx.Err(); err != nil {
			return from, false, err
		}
		if !b.End(append(b.Begin(), v[i]...), []byte(metaOf(i))) {
			return Place{Slot: i}, false, nil
		}
	}
	return Place{Slot: len(v)}, true, nil
}

// Before implements Source.
func (v view) Before(p Place) bool { return p.Slot < len(v) }

// pack packs the view by the rule alone.
func (v view) pack(target int) []Chunk {
	var out []Chunk
	for from := 0; from < len(v); {
		var meta, messages []string
		size := 0
		to := from
		for ; to < len(v); to++ {
			more := len(v[to]) + len(metaOf(to))
			if to > from {
				more += len(",") + len(",")
			}
			if to > from && size+more > target {
				break
			}
			size += more
			meta, messages = append(meta, metaOf(to)), append(messages, v[to])
		}
		array := "[" + strings.Join(messages, ",") + "]"
		out = append(out, Chunk{
			Body:   []byte(`"meta":[` + strings.Join(meta, ",") + `],"messages":` + array),
			Digest: wire.Digest(xxhash.Sum64String(array)), Count: to - from,
		})
		from = to
	}
	return out
}

func totalsOf(list []Chunk) Totals {
	t := Totals{Chunks: len(list)}
	var digests []byte
	for _, c := range list {
		t.Messages += c.Count
		digests = binary.BigEndian.AppendUint64(digests, uint64(c.Digest))
	}
	t.Digest = wire.Digest(xxhash.Sum64(digests))
	return t
}

// tb is what helpers need of a *testing.T or a *rapid.T.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

// bench is a store over a folder with faults.
type bench struct {
	*Store
	t     testing.TB
	fs    *vfstest.FS
	dir   string
	now   atomic.Int64 // seconds
	ids   atomic.Uint64
	o     StoreOptions
	lim   limits
	tells tells
}

// tells counts what the listener was told.
type tells struct{ degraded, recovered, damaged atomic.Int64 }

// smallLimits let a few hundred bytes do what takes MiB else.
func smallLimits() limits {
	lim := defaultLimits
	lim.segmentBytes, lim.stepBytes, lim.syncBytes, lim.unsyncedBytes, lim.garbageBytes = 1000, 300, 400, 800, 1500
	return lim
}

func newBench(t testing.TB, o StoreOptions, lim limits) *bench {
	t.Helper()
	b := &bench{t: t, fs: vfstest.New(vfs.OS{}), dir: filepath.Join(t.TempDir(), "spill"), lim: lim}
	b.fs.SetFree(1<<40, 1<<41)
	b.o = o
	b.o.FS = b.fs
	if b.o.Dir != "" {
		b.o.Dir = b.dir
	}
	b.o.Now = func() time.Time { return time.Unix(b.now.Load(), 0) }
	b.o.Listener = Listener{
		Degraded:  func(error) { b.tells.degraded.Add(1) },
		Recovered: func() { b.tells.recovered.Add(1) },
		Damaged:   func(string, int64, error) { b.tells.damaged.Add(1) },
	}
	b.open()
	t.Cleanup(func() { b.Close() })
	return b
}

// Close closes the store and waits.
func (b *bench) Close() {
	b.t.Helper()
	if err := b.Store.Close(context.Background()); err != nil {
		b.t.Error(err)
	}
}

func (b *bench) open() { b.Store = openStore(b.o, b.lim) }

// memoryBench keeps bodies in memory only.
func memoryBench(t testing.TB, bytes int64) *bench {
	return newBench(t, StoreOptions{MemoryBytes: bytes}, defaultLimits)
}

// spillBench spills, in small files.
func spillBench(t testing.TB) *bench {
	return newBench(t, StoreOptions{Dir: "x", MemoryBytes: 1 << 20, SpillBytes: 1 << 20}, smallLimits())
}

// begin begins a snapshot of its own id.
func (b *bench) begin(l *Log, src Source) (*Snapshot, func()) {
	s, release, _ := l.Begin(SnapshotOptions{Session: "s", ID: wire.SnapshotID(b.ids.Add(1)), Source: src})
	return s, release
}

// whole checks a new snapshot of a view.
func (b *bench) whole(t tb, l *Log, v view, target int) {
	t.Helper()
	s, release := b.begin(l, v)
	defer release()
	checkWhole(t, s, v.pack(target))
}

// files lists the segment files.
func (b *bench) files() []string {
	list, err := filepath.Glob(filepath.Join(b.dir, "*"+segmentExt))
	if err != nil {
		b.t.Fatal(err)
	}
	return list
}

// next reads a chunk, packing what is before it by hand.
func next(s *Snapshot, index int) (Chunk, error) {
	for {
		c, err := s.ReadChunk(context.Background(), index)
		if !errors.Is(err, ErrNotYet) {
			return c, err
		}
		if _, _, err := s.packMore(context.Background(), true); err != nil {
			s.MarkFailed(err)
		}
	}
}

// checkChunk demands that a snapshot's chunk is that of packing alone.
func checkChunk(t tb, s *Snapshot, want []Chunk, index int) {
	t.Helper()
	c, err := next(s, index)
	if index >= len(want) {
		if !errors.Is(err, ErrNoChunk) {
			t.Fatalf("chunk %d of %d: got %v, want %v", index, len(want), err, ErrNoChunk)
		}
		return
	}
	if err != nil {
		t.Fatalf("chunk %d: %v", index, err)
	}
	defer c.Release()
	w := want[index]
	if !bytes.Equal(c.Body, w.Body) || c.Digest != w.Digest || c.Count != w.Count {
		t.Fatalf("chunk %d: got %d messages, digest %s\n%s\nwant %d, %s\n%s", index, c.Count, c.Digest, c.Body, w.Count, w.Digest, w.Body)
	}
}

func checkTotals(t tb, s *Snapshot, want []Chunk) {
	t.Helper()
	if _, err := next(s, len(want)); !errors.Is(err, ErrNoChunk) {
		t.Fatalf("behind the last chunk: got %v, want %v", err, ErrNoChunk)
	}
	got, err := s.Totals()
	if err != nil {
		t.Fatalf("totals: %v", err)
	}
	if got != totalsOf(want) {
		t.Fatalf("totals: got %+v, want %+v", got, totalsOf(want))
	}
}

func checkWhole(t tb, s *Snapshot, want []Chunk) {
	t.Helper()
	for i := range len(want) + 1 {
		checkChunk(t, s, want, i)
	}
	checkTotals(t, s, want)
}

func messages(n, size int) view {
	v := make(view, n)
	for i := range v {
		v[i] = fmt.Sprintf("%q", fmt.Sprintf("%0*d", size-2, i))
	}
	return v
}
