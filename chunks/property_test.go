package chunks

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"sessiond/engine/vfs/vfstest"
)

// sharing is a log that snapshots of any age use while its view grows and is
// cut, its files are damaged and removed, and the disk fails.
type sharing struct {
	*bench
	target int
	o      LogOptions
	log    *Log
	other  *Log
	now    view
	open   []openSnapshot
}

type openSnapshot struct {
	s       *Snapshot
	release func()
	want    []Chunk
}

// spillOps are the operations that spilling uses.
var spillOps = []vfstest.Op{
	vfstest.Create, vfstest.Write, vfstest.Allocate, vfstest.Datasync, vfstest.ReadAt, vfstest.OpenRead,
	vfstest.Truncate, vfstest.Remove, vfstest.Free, vfstest.Close, vfstest.MkdirAll,
}

func newSharing(t *testing.T, rt *rapid.T) *sharing {
	x := &sharing{target: rapid.IntRange(40, 200).Draw(rt, "target")}
	o := StoreOptions{
		Dir: "x", MemoryBytes: int64(rapid.IntRange(0, 1000).Draw(rt, "all memory")),
		SpillBytes: int64(rapid.SampledFrom([]int{-1, 500, 2000, 1 << 20}).Draw(rt, "spill")),
	}
	x.bench = newBench(t, o, smallLimits())
	x.o = LogOptions{Target: x.target, MemoryBytes: int64(rapid.IntRange(0, 1000).Draw(rt, "memory"))}
	x.log, x.other = x.NewLog(x.o), x.NewLog(x.o)
	return x
}

func (x *sharing) check(t *rapid.T) {
	st := x.Stats()
	if st.MemoryHeldBytes < 0 || st.MemoryHeldBytes > st.MemoryBoundBytes || x.log.held > x.o.MemoryBytes {
		t.Fatalf("held %d of %d bytes, log holds %d of %d", st.MemoryHeldBytes, st.MemoryBoundBytes, x.log.held, x.o.MemoryBytes)
	}
	if st.SpillBytes < 0 || st.SpillBytes > max(st.SpillBoundBytes, 0) {
		t.Fatalf("spill: %d of %d bytes", st.SpillBytes, st.SpillBoundBytes)
	}
	x.log.mu.Lock()
	defer x.log.mu.Unlock()
	named := int64(0)
	for _, e := range x.log.sealed {
		if e.seg != nil {
			named += int64(e.size)
		}
	}
	if x.log.end != nil {
		if last := x.log.end.last; last != nil && last.seg != nil {
			named += int64(last.size)
		}
		named += int64(x.log.end.extra.size)
	}
	if named+x.log.garbage != x.log.written {
		t.Fatalf("%d bytes named and %d garbage, %d written", named, x.log.garbage, x.log.written)
	}
}

func (x *sharing) grow(t *rapid.T) {
	// A view that stays as it is for the snapshots that have it.
	x.now = append(x.now[:len(x.now):len(x.now)], drawView(t, x.target, 10)...)
}

func (x *sharing) pick(t *rapid.T) openSnapshot {
	if len(x.open) == 0 {
		t.Skip("no snapshot")
	}
	return x.open[rapid.IntRange(0, len(x.open)-1).Draw(t, "snapshot")]
}

// file picks a segment file.
func (x *sharing) file(t *rapid.T) string {
	list := x.files()
	if len(list) == 0 {
		t.Skip("no file")
	}
	return list[rapid.IntRange(0, len(list)-1).Draw(t, "file")]
}

// restart closes the store and opens it again, over the files that are there.
func (x *sharing) restart(t *rapid.T) {
	for _, o := range x.open {
		o.release()
	}
	x.open = nil
	saved := x.log.Save()
	if rapid.Bool().Draw(t, "killed") { // nothing is closed, but for what the test has to
		x.log.mu.Lock()
		for _, seg := range x.log.segments {
			defer seg.close()
		}
		x.log.mu.Unlock()
		x.other.Close()
		x.Close()
	} else {
		x.log.Detach()
		x.other.Close()
		x.Close()
	}
	x.bench.open()
	x.other = x.NewLog(x.o)
	named := map[string]bool{}
	for _, name := range Segments(saved) {
		named[name] = true
	}
	x.Sweep(func(name string) bool { return named[name] })
	var err error
	if x.log, err = x.Adopt(saved, x.o); err != nil {
		t.Fatalf("Adopt: %v", err)
	}
	x.Sweep(nil)
}

func flip(t tb, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatalf("%v", err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatalf("%v", err)
	}
}

func sizeOf(t tb, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return info.Size()
}

// Whatever becomes of the log's bodies, each snapshot has the chunks of
// packing alone.
func TestSnapshot_EqualsPackingAlone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		x := newSharing(t, rt)
		defer x.Close()
		rt.Repeat(map[string]func(*rapid.T){
			"grow": x.grow,
			"cut": func(t *rapid.T) {
				keep := rapid.IntRange(0, len(x.now)).Draw(t, "keep")
				x.now = x.now[:keep:keep]
				x.log.CutBack(keep)
				x.grow(t)
			},
			"begin": func(t *rapid.T) {
				cut := rapid.IntRange(0, len(x.now)).Draw(t, "cut")
				v := x.now[:cut:cut]
				s, release := x.begin(x.log, v)
				x.open = append(x.open, openSnapshot{s, release, v.pack(x.target)})
			},
			"whole": func(t *rapid.T) { x.whole(t, x.log, x.now, x.target) },
			"chunk": func(t *rapid.T) {
				o := x.pick(t)
				checkChunk(t, o.s, o.want, rapid.IntRange(0, len(o.want)+1).Draw(t, "index"))
			},
			"totals": func(t *rapid.T) { o := x.pick(t); checkTotals(t, o.s, o.want) },
			"end": func(t *rapid.T) {
				o := x.pick(t)
				checkTotals(t, o.s, o.want)
				cut := Cut{Sequence: uint64(len(x.now)), Offset: 1}
				if err := x.log.SetEnd(cut, o.s, []byte("extra")); err != nil {
					if !errors.Is(err, ErrNotKept) {
						t.Fatalf("SetEnd: %v", err)
					}
					return
				}
				s, release, extra, ok := x.log.EndAt(cut, SnapshotOptions{Session: "e", ID: 1, Source: o.s.o.Source})
				if ok {
					defer release()
					if string(extra) != "extra" {
						t.Fatalf("extra: got %q", extra)
					}
					checkWhole(t, s, o.want)
				}
			},
			"another log": func(t *rapid.T) {
				x.other.Close()
				x.other = x.NewLog(x.o)
				x.whole(t, x.other, drawView(t, x.target, 20), x.target)
			},
			"evict": func(*rapid.T) { x.log.dropSpill() },
			"damage": func(t *rapid.T) {
				path := x.file(t)
				if size := sizeOf(t, path); size > 0 {
					flip(t, path, int64(rapid.IntRange(0, int(size)-1).Draw(t, "at")))
				}
			},
			"truncate": func(t *rapid.T) {
				path := x.file(t)
				if err := os.Truncate(path, int64(rapid.IntRange(0, int(sizeOf(t, path))).Draw(t, "size"))); err != nil {
					t.Fatalf("%v", err)
				}
			},
			"remove": func(t *rapid.T) {
				if err := os.Remove(x.file(t)); err != nil {
					t.Fatalf("%v", err)
				}
			},
			"fail": func(t *rapid.T) {
				x.fs.Add(vfstest.Rule{
					Op: rapid.SampledFrom(spillOps).Draw(t, "op"), Err: rapid.SampledFrom([]error{syscall.ENOSPC, syscall.EIO}).Draw(t, "error"),
					Times: rapid.SampledFrom([]int{1, vfstest.Always}).Draw(t, "times"), WriteBytes: rapid.IntRange(0, 50).Draw(t, "written"),
				})
			},
			"heal":    func(*rapid.T) { x.fs.Heal(); x.bench.now.Add(11) },
			"restart": x.restart,
			"":        x.check,
		})
		for _, o := range x.open {
			checkWhole(rt, o.s, o.want)
		}
		x.log.Close()
		x.other.Close()
		for _, o := range x.open {
			checkWhole(rt, o.s, o.want)
			o.release()
		}
		if st := x.Stats(); st.MemoryHeldBytes != 0 || st.Snapshots != 0 || st.Logs != 0 {
			rt.Fatalf("at the end: got %+v", st)
		}
	})
}

// A damaged byte, wherever it is, costs packing and nothing else, and Verify
// finds it offline.
func TestSpill_EveryByteDamaged(t *testing.T) {
	const target = 60
	v := messages(12, 20)
	b := spillBench(t)
	for at, more := int64(0), true; more; at++ {
		l := b.NewLog(LogOptions{Target: target})
		b.whole(t, l, v, target)
		saved, path := l.Save(), b.files()[0]
		more = at+1 < sizeOf(t, path)
		flip(t, path, at)
		r, err := Verify(b.fs, b.dir, saved)
		if err != nil || len(r.Damaged)+len(r.Missing) != 1 {
			t.Fatalf("byte %d: Verify found %+v, %v", at, r, err)
		}
		was := b.Stats().Damaged
		b.whole(t, l, v, target)
		want := was + 1
		if at < headerBytes { // an open file's header is not read again
			want = was
		}
		if got := b.Stats().Damaged; got != want {
			t.Fatalf("byte %d: %d damaged chunks counted, want %d", at, got-was, want-was)
		}
		l.Close()
	}
}
