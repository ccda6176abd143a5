package chunks

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sessiond/engine/vfs/vfstest"
)

const spillTarget = 100

func TestLog_AllGoesToSpill(t *testing.T) {
	v := messages(60, 20)
	b := spillBench(t)
	l := b.NewLog(LogOptions{Target: spillTarget, MemoryBytes: 500})
	b.whole(t, l, v[:12], spillTarget)
	if st := b.Stats(); st.Spilled != 0 || st.MemoryHeldBytes == 0 || len(b.files()) != 0 {
		t.Fatalf("within the bound: got %+v, files %v", st, b.files())
	}
	b.whole(t, l, v, spillTarget)
	want := v.pack(spillTarget)
	if st := b.Stats(); st.Spilled != uint64(len(want)-1) || st.MemoryHeldBytes != 0 || st.Segments != len(b.files()) || st.Segments < 2 {
		t.Fatalf("beyond: got %+v, want %d chunks spilled; files %v", st, len(want)-1, b.files())
	}
	b.whole(t, l, v, spillTarget)
	if got := b.Stats().Repacked; got != 0 {
		t.Errorf("%d chunks packed again, want 0", got)
	}
	for _, path := range append(b.files(), b.dir) {
		info, err := os.Stat(path)
		if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[path == b.dir]; err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v, want mode %v", path, info.Mode(), err, want)
		}
	}
	l.Close()
	if st := b.Stats(); len(b.files()) != 0 || st.SpillBytes != 0 || st.Segments != 0 {
		t.Errorf("after Close: got %+v, files %v", st, b.files())
	}
}

// The global bound sends a log to spill too.
func TestLog_GoesToSpillAtTheBoundOfAll(t *testing.T) {
	v := messages(60, 20)
	b := newBench(t, StoreOptions{Dir: "x", MemoryBytes: 300}, smallLimits())
	l := b.NewLog(LogOptions{Target: spillTarget, MemoryBytes: 1 << 20})
	b.whole(t, l, v, spillTarget)
	b.whole(t, l, v, spillTarget)
	if st := b.Stats(); st.Spilled != uint64(len(v.pack(spillTarget))-1) || st.Repacked != 0 {
		t.Errorf("got %+v", st)
	}
}

// Every operation of spilling may fail, once or for good: snapshots do not.
func TestSpill_EveryOperationFails(t *testing.T) {
	v := messages(60, 20)
	for _, op := range spillOps {
		for _, why := range []error{syscall.ENOSPC, syscall.EIO} {
			for _, times := range []int{1, vfstest.Always} {
				for _, skip := range []int{0, 1, 3} {
					b := spillBench(t)
					b.fs.Add(vfstest.Rule{Op: op, Err: why, Times: times, Skip: skip, WriteBytes: 7})
					l := b.NewLog(LogOptions{Target: spillTarget, MemoryBytes: 300})
					for range 2 {
						s, release := b.begin(l, v)
						done := packed(s)
						waitWhole(t, s, v.pack(spillTarget))
						release()
						done()
					}
					b.fs.Heal()
					b.now.Add(11)
					l.CutBack(30)
					b.whole(t, l, v, spillTarget)
					b.whole(t, l, v, spillTarget)
					if st := b.Stats(); st.Degraded != "" {
						t.Errorf("%s, %v: healed, and still degraded: %s", op, why, st.Degraded)
					}
					l.Close()
					b.Close()
					if st := b.Stats(); st.SpillBytes != 0 || st.MemoryHeldBytes != 0 {
						t.Errorf("%s, %v: after Close: got %+v", op, why, st)
					}
				}
			}
		}
	}
}

func TestSpill_OffAfterAFailureAndOnAgain(t *testing.T) {
	v := messages(60, 20)
	b := spillBench(t)
	b.fs.Add(vfstest.Rule{Op: vfstest.Write, Err: syscall.ENOSPC, Times: vfstest.Always})
	l := b.NewLog(LogOptions{Target: spillTarget})
	b.whole(t, l, v, spillTarget)
	if got := b.Stats().Degraded; !strings.Contains(got, "no space left") || b.tells.degraded.Load() != 1 {
		t.Errorf("degraded: got %q, told %d times", got, b.tells.degraded.Load())
	}
	tried := b.fs.Count(vfstest.Write, "")
	if tried != 1 {
		t.Errorf("tried %d times within the back-off, want 1", tried)
	}
	b.fs.Heal()
	b.whole(t, l, v, spillTarget)
	if got := b.Stats().Spilled; got != 0 {
		t.Errorf("%d chunks spilled within the back-off", got)
	}
	b.now.Add(10)
	b.whole(t, l, v, spillTarget)
	if st := b.Stats(); st.Degraded != "" || st.Spilled == 0 || b.tells.recovered.Load() != 1 {
		t.Errorf("after it: got %+v, told %d times", st, b.tells.recovered.Load())
	}
}

func TestSpill_LeavesFreeSpaceToOthers(t *testing.T) {
	v := messages(60, 20)
	for _, row := range []struct {
		name        string
		free, total int64
		spills      bool
	}{
		{"less than 1 GiB", 1<<30 - 1, 2 << 30, false},
		{"less than 5 %", 40 << 30, 1 << 40, false},
		{"enough", 60 << 30, 1 << 40, true},
	} {
		b := spillBench(t)
		b.fs.SetFree(row.free, row.total)
		b.whole(t, b.NewLog(LogOptions{Target: spillTarget}), v, spillTarget)
		if st := b.Stats(); (st.Spilled > 0) != row.spills || (st.Degraded == "") != row.spills {
			t.Errorf("%s: got %+v", row.name, st)
		}
	}
}

// The budget goes to the logs that were used last; the others pack again.
func TestSpill_BudgetGoesToTheLastUsed(t *testing.T) {
	v := messages(60, 20)
	b := newBench(t, StoreOptions{Dir: "x", MemoryBytes: 1 << 20, SpillBytes: 8000}, smallLimits())
	logs := make([]*Log, 4)
	for i := range logs {
		logs[i] = b.NewLog(LogOptions{Target: spillTarget})
		b.whole(t, logs[i], v, spillTarget)
		if st := b.Stats(); st.SpillBytes > 8000 || st.Degraded != "" {
			t.Fatalf("%d logs: got %+v", i+1, st)
		}
	}
	if logs[0].segmentCount.Load() != 0 || logs[3].segmentCount.Load() == 0 {
		t.Errorf("the first log has %d files, the last %d", logs[0].segmentCount.Load(), logs[3].segmentCount.Load())
	}
	if got := b.Stats().Repacked; got != 0 {
		t.Fatalf("%d chunks packed again", got)
	}
	b.whole(t, logs[3], v, spillTarget)
	if got := b.Stats().Repacked; got != 0 {
		t.Errorf("the last log packed %d chunks again", got)
	}
	b.whole(t, logs[0], v, spillTarget)
	if got := b.Stats().Repacked; got == 0 {
		t.Error("the first log packed no chunk again")
	}
}

func TestSpill_GarbageIsGivenUp(t *testing.T) {
	v := messages(60, 20)
	b := spillBench(t)
	l := b.NewLog(LogOptions{Target: spillTarget})
	for range 20 {
		b.whole(t, l, v, spillTarget)
		l.CutBack(5)
		l.mu.Lock()
		if l.garbage > b.lim.garbageBytes && l.garbage*2 > l.written {
			t.Errorf("%d of %d bytes are garbage", l.garbage, l.written)
		}
		l.mu.Unlock()
	}
	b.whole(t, l, v, spillTarget)
}

// Packers wait for a disk that is slow, readers do not.
func TestSpill_Pacing(t *testing.T) {
	v := messages(300, 20)
	b := spillBench(t)
	entered, let := make(chan struct{}, 100), make(chan struct{})
	b.fs.Add(vfstest.Rule{Op: vfstest.Datasync, Times: vfstest.Always, Do: func() {
		entered <- struct{}{}
		<-let
	}})
	l := b.NewLog(LogOptions{Target: spillTarget})
	s, release := b.begin(l, v)
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Pack(ctx) }()
	<-entered
	last := 0 // the chunk with which too much is unsynced
	for n := 0; n < int(b.lim.unsyncedBytes); last++ {
		n += len(v.pack(spillTarget)[last].Body)
	}
	for i := range last { // a reader does not wait for the disk
		if _, ok, err := s.WaitForChunk(t.Context(), i); !ok || err != nil {
			t.Fatalf("chunk %d: got %v, %v", i, ok, err)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Pack: got %v; it did not wait", err)
	}
	b.mu.Lock()
	if b.unsynced < b.lim.unsyncedBytes || b.unsynced > b.lim.unsyncedBytes+2*spillTarget {
		t.Errorf("%d bytes unsynced, about %d wanted", b.unsynced, b.lim.unsyncedBytes)
	}
	b.mu.Unlock()
	close(let)
	done2 := packed(s)
	waitWhole(t, s, v.pack(spillTarget))
	done2()
}

// With a disk that hangs, who asks for chunks gets them all the same.
func TestSpill_DiskThatHangs(t *testing.T) {
	v := messages(300, 20)
	lim := smallLimits()
	lim.patience = 0
	b := newBench(t, StoreOptions{Dir: "x", MemoryBytes: 1 << 20}, lim)
	let := make(chan struct{})
	b.fs.Add(vfstest.Rule{Op: vfstest.Datasync, Times: vfstest.Always, Do: func() { <-let }})
	s, release := b.begin(b.NewLog(LogOptions{Target: spillTarget}), v)
	done := packed(s)
	waitWhole(t, s, v.pack(spillTarget))
	waitWhole(t, s, v.pack(spillTarget))
	release()
	done()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Store.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close: got %v, want %v", err, context.Canceled)
	}
	close(let)
}

func TestStore_AdoptGoesOnWhereItWas(t *testing.T) {
	v := messages(60, 20)
	b := spillBench(t)
	l := b.NewLog(LogOptions{Target: spillTarget})
	s, release := b.begin(l, v)
	checkWhole(t, s, v.pack(spillTarget))
	was := l.Revision()
	cut := Cut{60, 1200, 77}
	if err := l.SetEnd(cut, s, []byte("extra")); err != nil || l.Revision() == was {
		t.Fatalf("SetEnd: %v, revision %d, was %d", err, l.Revision(), was)
	}
	release()
	saved := l.Save()
	names := Segments(saved)
	if got := len(names); got != len(b.files()) || got < 2 {
		t.Fatalf("%d segments named, files %v", got, b.files())
	}
	l.Detach()
	b.Close()
	stray := filepath.Join(b.dir, segmentName(1, 1))
	kept := filepath.Join(b.dir, "kept.txt")
	if err := errors.Join(os.WriteFile(stray, segmentHeader(1, 1), 0o600), os.WriteFile(kept, nil, 0o600)); err != nil {
		t.Fatal(err)
	}

	b.open()
	if st := b.Stats(); st.Segments != len(names)+1 || st.SpillBytes == 0 {
		t.Errorf("at start: got %+v", st)
	}
	l, err := b.Adopt(saved, LogOptions{Target: spillTarget})
	if err != nil {
		t.Fatal(err)
	}
	b.Sweep(nil)
	if _, err := os.Stat(stray); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that nothing names: got %v", err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a file that is no segment: %v", err)
	}
	if !bytes.Equal(l.Save(), saved) {
		t.Error("saved again, it is another")
	}
	never := &failing{view: v, lies: true} // the source is not asked
	s, release, extra, ok := l.EndAt(cut, SnapshotOptions{Session: "s", ID: 1, Source: never})
	if !ok || string(extra) != "extra" {
		t.Fatalf("EndAt: got %v, %q", ok, extra)
	}
	checkWhole(t, s, v.pack(spillTarget))
	release()
	if _, _, _, ok := l.EndAt(Cut{61, 1200, 77}, SnapshotOptions{Source: v}); ok {
		t.Error("EndAt another cut")
	}
	more := append(v[:60:60], messages(20, 30)...)
	b.whole(t, l, more, spillTarget)
	if st := b.Stats(); st.Repacked != 0 || st.Damaged != 0 {
		t.Errorf("got %+v, want none packed again", st)
	}
	twice, err := b.Adopt(saved, LogOptions{Target: spillTarget})
	if err != nil {
		t.Fatal(err)
	}
	b.whole(t, twice, v, spillTarget)
	if _, err := b.Adopt(saved, LogOptions{Target: 200}); !errors.Is(err, ErrBlob) {
		t.Errorf("another target: got %v, want %v", err, ErrBlob)
	}
}

// Segments that are missing or short make only their chunks absent.
func TestStore_AdoptWithoutSomeFiles(t *testing.T) {
	v := messages(60, 20)
	b := spillBench(t)
	l := b.NewLog(LogOptions{Target: spillTarget})
	b.whole(t, l, v, spillTarget)
	saved := l.Save()
	l.Detach()
	b.Close()
	files := b.files()
	if err := errors.Join(os.Remove(files[0]), os.Truncate(files[1], headerBytes+150)); err != nil {
		t.Fatal(err)
	}
	r, err := Verify(b.fs, b.dir, saved)
	if err != nil || len(r.Missing) != 1 || r.Absent == 0 || len(r.Damaged) == 0 || r.Bytes == 0 || r.Chunks != len(v.pack(spillTarget))-1 {
		t.Errorf("Verify: got %+v, %v", r, err)
	}
	b.open()
	if l, err = b.Adopt(saved, LogOptions{Target: spillTarget}); err != nil {
		t.Fatal(err)
	}
	b.whole(t, l, v, spillTarget)
	if st := b.Stats(); st.Repacked == 0 || st.Repacked >= uint64(r.Chunks) || st.Damaged != 0 {
		t.Errorf("got %+v", st)
	}
}

func TestLog_SetEndIsBounded(t *testing.T) {
	v := messages(60, 20)
	b := spillBench(t)
	l := b.NewLog(LogOptions{Target: spillTarget})
	s, release := b.begin(l, v)
	defer release()
	if err := l.SetEnd(Cut{}, s, nil); !errors.Is(err, ErrNotYet) {
		t.Errorf("an open snapshot: got %v, want %v", err, ErrNotYet)
	}
	checkWhole(t, s, v.pack(spillTarget))
	if err := l.SetEnd(Cut{}, s, make([]byte, extraBytesMax+1)); !errors.Is(err, ErrNotKept) {
		t.Errorf("large extra bytes: got %v, want %v", err, ErrNotKept)
	}
	if err := l.SetEnd(Cut{}, s, nil); err != nil {
		t.Errorf("no extra bytes: %v", err)
	}
	l.CutBack(30)
	if _, _, _, ok := l.EndAt(Cut{}, SnapshotOptions{Source: v}); ok {
		t.Error("an end outlived the chunks it has")
	}
	if err := l.SetEnd(Cut{}, s, nil); !errors.Is(err, ErrNotKept) {
		t.Errorf("after a cut: got %v, want %v", err, ErrNotKept)
	}
	m := memoryBench(t, 1<<20)
	l = m.NewLog(LogOptions{Target: spillTarget, MemoryBytes: 1 << 20})
	s, release = m.begin(l, v)
	defer release()
	checkWhole(t, s, v.pack(spillTarget))
	if err := l.SetEnd(Cut{}, s, nil); !errors.Is(err, ErrNotKept) {
		t.Errorf("without spill: got %v, want %v", err, ErrNotKept)
	}
}

func TestSegmentName_RoundTrip(t *testing.T) {
	if log, n, ok := parseSegmentName(segmentName(255, 12)); log != 255 || n != 12 || !ok {
		t.Errorf("got %d, %d, %v", log, n, ok)
	}
	for _, name := range []string{"", "x.spill", "00000000000000ff-1", "ff-1.spill", "00000000000000FF-1.spill", "00000000000000ff-01.spill", "00000000000000ff-1.spill.tmp"} {
		if _, _, ok := parseSegmentName(name); ok {
			t.Errorf("%q is taken for a segment", name)
		}
	}
}

func savedBlobs() [][]byte {
	c := blobChunk{sealed{Place{Slot: 3, Offset: 9, Sequence: 4}, 5, 6, 3, 100}, blobPlace{1, 40}}
	return [][]byte{
		blob{id: 1, target: 100}.encode(),
		blob{id: 1, target: 100, segments: []blobSegment{{1, 500}, {3, 700}}, chunks: []blobChunk{c, c}}.encode(),
		blob{
			id: 1, target: 100, segments: []blobSegment{{1, 500}}, chunks: []blobChunk{c},
			end: &blobEnd{cut: Cut{1, 2, 3}, full: 1, last: &c, size: 5, sum: 7, extra: blobPlace{1, 200}},
		}.encode(),
	}
}

// A flip of any bit of a saved log is found.
func TestBlob_EveryBitFlipped(t *testing.T) {
	for _, saved := range savedBlobs() {
		if _, err := decodeBlob(saved); err != nil {
			t.Fatal(err)
		}
		for i := range len(saved) * 8 {
			b := slices.Clone(saved)
			b[i/8] ^= 1 << (i % 8)
			if _, err := decodeBlob(b); !errors.Is(err, ErrBlob) {
				t.Errorf("bit %d: got %v, want %v", i, err, ErrBlob)
			}
			if Segments(b) != nil {
				t.Errorf("bit %d: segments are named", i)
			}
		}
	}
}

// Whatever is given, decoding ends without a panic, and what is accepted is
// what encoding gives.
func FuzzDecodeBlob(f *testing.F) {
	for _, saved := range savedBlobs() {
		f.Add(saved[:len(saved)-8])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		saved := sumUp(body)
		b, err := decodeBlob(saved)
		if err != nil {
			if !errors.Is(err, ErrBlob) {
				t.Errorf("got %v, want %v", err, ErrBlob)
			}
			return
		}
		again, err := decodeBlob(b.encode())
		if err != nil || !bytes.Equal(again.encode(), b.encode()) {
			t.Errorf("encoded again: %v", err)
		}
		s := OpenStore(StoreOptions{})
		l, err := s.Adopt(saved, LogOptions{Target: b.target})
		if err != nil {
			t.Fatal(err)
		}
		l.Save()
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
