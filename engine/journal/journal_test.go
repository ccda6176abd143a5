package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"sessiond/engine/journal"
	"sessiond/engine/vfs"
	"sessiond/engine/vfs/vfstest"
	"sessiond/replay/stamp"
)

func TestAppend_ResultsAndOrder(t *testing.T) {
	b := lay(t, object("0")+"\n")
	type commit struct {
		head  stamp.Point
		batch string
	}
	var got []commit
	b.o.OnCommit = func(h *journal.Head, batch []byte) { got = append(got, commit{h.Point, string(batch)}) }
	b.open()
	first, second := object("0")+"\n"+object("1")+"\n", object("2")+"\n"+object("3")+"\r\n"

	r := b.mustAppend(object("1"))
	if want := pointOf(first); r.After != want || len(r.Points) != 1 || r.Points[0] != want || r.Interleaved {
		t.Errorf("first result: got %+v, want one point, %+v", r, want)
	}
	r = b.mustAppend(object("2"), object("3")+"\r")
	if want := pointOf(first + object("2") + "\n"); len(r.Points) != 2 || r.Points[0] != want {
		t.Errorf("second result: got %+v, want first %+v", r, want)
	}
	if want := pointOf(first + second); r.After != want || r.Points[1] != want {
		t.Errorf("second result: got %+v, want last %+v", r, want)
	}
	b.wantContent(first + second)
	if len(got) != 2 || got[0] != (commit{pointOf(first), object("1") + "\n"}) || got[1] != (commit{pointOf(first + second), second}) {
		t.Errorf("commits: got %+v", got)
	}
	info, err := vfs.OS{}.Stat(b.path)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.j.Head().Stamp; got != info.Stamp {
		t.Errorf("stamp of the head: got %v, want %v", got, info.Stamp)
	}
}

func TestAppend_PrepareDecides(t *testing.T) {
	b := setUp(t, object("0")+"\n")
	mine := errors.New("conflict")
	var seen stamp.Point
	_, err := b.j.Append(t.Context(), func(head stamp.Point) ([][]byte, error) {
		seen = head
		return [][]byte{[]byte(object("1"))}, mine
	})
	if err != mine { //nolint:errorlint // as it was returned
		t.Errorf("refused by Prepare: got %v, want %v itself", err, mine)
	}
	if want := b.j.Head().Point; seen != want {
		t.Errorf("head that Prepare saw: got %+v, want %+v", seen, want)
	}
	if _, err := b.append("{\n}"); !errors.Is(err, journal.ErrLine) || outcome(err) != journal.OutcomeNone {
		t.Errorf("line with an LF: got %v, want %v, outcome none", err, journal.ErrLine)
	}
	syncs := b.fs.Count(vfstest.Datasync, sessionName)
	r, err := b.append()
	if want := b.j.Head().Point; err != nil || r.After != want || len(r.Points) != 0 {
		t.Errorf("nothing to write: got %+v, %v, want the head", r, err)
	}
	if got := b.fs.Count(vfstest.Datasync, sessionName); got != syncs {
		t.Errorf("syncs for nothing: got %d, want none", got-syncs)
	}
	b.wantContent(object("0") + "\n")
}

// While one group is synced, everything else waits for the next: one write and
// one sync for all of it, and each sees the head behind those before it.
func TestAppend_GroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, "")
		release := make(chan struct{})
		b.fs.Add(vfstest.Rule{Op: vfstest.Datasync, Path: sessionName, Do: func() { <-release }})
		syncs, writes := b.fs.Count(vfstest.Datasync, ""), b.fs.Count(vfstest.Write, "")

		var wg sync.WaitGroup
		defer wg.Wait()
		appendOne := func() {
			wg.Go(func() {
				var at stamp.Point
				r, err := b.j.Append(t.Context(), func(head stamp.Point) ([][]byte, error) {
					at = head
					return [][]byte{[]byte("{}")}, nil
				})
				if err != nil || r.After.Sequence != at.Sequence+1 || r.After.Offset != at.Offset+3 {
					t.Errorf("append at %+v: got %+v, %v", at, r, err)
				}
				if got := b.j.Head().Sequence; got < r.After.Sequence {
					t.Errorf("head when answered: got %d, want at least %d", got, r.After.Sequence)
				}
			})
		}
		appendOne()
		synctest.Wait() // the writer is in its sync
		for range 64 {
			appendOne()
		}
		synctest.Wait() // and all others wait
		if got := b.j.Head().Sequence; got != 0 {
			t.Errorf("head before the sync: got %d records, want 0", got)
		}
		close(release)
		wg.Wait()
		if got := b.fs.Count(vfstest.Datasync, "") - syncs; got != 2 {
			t.Errorf("syncs: got %d, want 2", got)
		}
		if got := b.fs.Count(vfstest.Write, "") - writes; got != 2 {
			t.Errorf("writes: got %d, want 2", got)
		}
		b.wantContent(string(bytes.Repeat([]byte("{}\n"), 65)))
	})
}

func TestAppend_BatchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := lay(t, "")
		b.o.BatchBytesMax = 30
		b.open()
		release := make(chan struct{})
		b.fs.Add(vfstest.Rule{Op: vfstest.Datasync, Path: sessionName, Do: func() { <-release }})
		var wg sync.WaitGroup
		for range 1 + 10 {
			wg.Go(func() { b.mustAppend(object("123456789")) }) // 19 bytes
			synctest.Wait()
		}
		writes := b.fs.Count(vfstest.Write, "")
		close(release)
		wg.Wait()
		if got := b.fs.Count(vfstest.Write, "") - writes; got != 5 {
			t.Errorf("writes of 10 requests, two of which fill a batch: got %d, want 5", got)
		}
	})
}

func TestAppend_ManyWriters(t *testing.T) {
	b := setUp(t, "")
	const writers, each = 64, 20
	syncs := b.fs.Count(vfstest.Datasync, "")
	var wg sync.WaitGroup
	var seen [writers * each]atomic.Bool
	for w := range writers {
		wg.Go(func() {
			var last stamp.Point
			for i := range each {
				r, err := b.append(fmt.Sprintf(`{"w":%d,"i":%d}`, w, i))
				if err != nil {
					t.Error(err)
					return
				}
				if r.After.Sequence <= last.Sequence || r.After.Offset <= last.Offset {
					t.Errorf("writer %d: got %+v after %+v", w, r.After, last)
				}
				if seen[r.After.Sequence-1].Swap(true) {
					t.Errorf("sequence %d was given twice", r.After.Sequence)
				}
				last = r.After
			}
		})
	}
	wg.Wait()
	content := b.content()
	b.wantHead(content)
	next := [writers]int{}
	for _, line := range bytes.Split(bytes.TrimSuffix([]byte(content), []byte("\n")), []byte("\n")) {
		var w, i int
		if _, err := fmt.Sscanf(string(line), `{"w":%d,"i":%d}`, &w, &i); err != nil || next[w] != i {
			t.Fatalf("line %q: got %v, want number %d of this writer", line, err, next[w])
		}
		next[w]++
	}
	for w, n := range next {
		if n != each {
			t.Errorf("writer %d: got %d lines, want %d", w, n, each)
		}
	}
	if got := b.fs.Count(vfstest.Datasync, "") - syncs; got > writers*each/4 {
		t.Errorf("syncs for %d appends: got %d, want far fewer", writers*each, got)
	}
}

func TestAppend_ContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, "")
		release := make(chan struct{})
		b.fs.Add(vfstest.Rule{Op: vfstest.Datasync, Path: sessionName, Do: func() { <-release }})
		taken, cancelTaken := context.WithCancel(t.Context())
		queued, cancelQueued := context.WithCancel(t.Context())
		results := make(chan error, 1)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := b.j.Append(taken, lines(object("taken")))
			results <- err
		})
		synctest.Wait()
		wg.Go(func() {
			_, err := b.j.Append(queued, func(stamp.Point) ([][]byte, error) {
				t.Error("a request that was withdrawn was prepared")
				return nil, nil
			})
			if !errors.Is(err, context.Canceled) || outcome(err) != journal.OutcomeNone {
				t.Errorf("withdrawn: got %v, want %v, outcome none", err, context.Canceled)
			}
		})
		synctest.Wait()
		cancelQueued()
		cancelTaken()
		synctest.Wait()
		select {
		case err := <-results:
			t.Errorf("taken: got %v before the outcome was known", err)
		default:
		}
		close(release)
		wg.Wait()
		if err := <-results; err != nil {
			t.Errorf("taken: got %v, want the true outcome, success", err)
		}
		if _, err := b.j.Append(taken, lines("{}")); !errors.Is(err, context.Canceled) {
			t.Errorf("ended before: got %v, want %v", err, context.Canceled)
		}
		b.mustAppend(object("last"))
		b.wantContent(object("taken") + "\n" + object("last") + "\n")
	})
}

func TestClose_DrainsAndRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, "")
		release := make(chan struct{})
		b.fs.Add(vfstest.Rule{Op: vfstest.Datasync, Path: sessionName, Do: func() { <-release }})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { b.mustAppend("{}") })
		}
		synctest.Wait()
		hurry, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.j.Close(hurry); !errors.Is(err, context.Canceled) {
			t.Errorf("close in a hurry: got %v, want %v", err, context.Canceled)
		}
		if _, err := b.append("{}"); !errors.Is(err, journal.ErrClosed) || outcome(err) != journal.OutcomeNone {
			t.Errorf("append while closing: got %v, want %v, outcome none", err, journal.ErrClosed)
		}
		close(release)
		wg.Wait()
		for range 2 {
			if err := b.j.Close(t.Context()); err != nil {
				t.Errorf("close: got %v", err)
			}
		}
		if _, err := b.append("{}"); !errors.Is(err, journal.ErrClosed) {
			t.Errorf("append after close: got %v, want %v", err, journal.ErrClosed)
		}
		b.wantContent(string(bytes.Repeat([]byte("{}\n"), 10)))
		b.open() // the lock is free
	})
}

// Appends that race with Close are done or refused, and never hang.
func TestClose_Race(t *testing.T) {
	for range 20 {
		b := setUp(t, "")
		var wg sync.WaitGroup
		var done atomic.Int64
		for range 8 {
			wg.Go(func() {
				for {
					switch _, err := b.append("{}"); {
					case errors.Is(err, journal.ErrClosed):
						return
					case err != nil:
						t.Error(err)
						return
					}
					done.Add(1)
				}
			})
		}
		b.mustAppend("{}")
		if err := b.j.Close(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
		b.wantContent(string(bytes.Repeat([]byte("{}\n"), int(done.Load())+1)))
	}
}

func TestSyncs_BoundPerDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		syncs := journal.NewSyncs(2)
		release := make(chan struct{})
		var running, most atomic.Int64
		var journals []*bench
		for range 5 {
			b := lay(t, "")
			b.o.Syncs = syncs
			journals = append(journals, b.open())
		}
		var wg sync.WaitGroup
		for _, b := range journals {
			b.fs.Add(vfstest.Rule{Op: vfstest.Datasync, Path: sessionName, Do: func() {
				most.Store(max(most.Load(), running.Add(1)))
				<-release
				running.Add(-1)
			}})
			wg.Go(func() { b.mustAppend("{}") })
		}
		synctest.Wait()
		if got := running.Load(); got != 2 {
			t.Errorf("syncs at once: got %d, want 2", got)
		}
		close(release)
		wg.Wait()
		if got := most.Load(); got > 2 {
			t.Errorf("most syncs at once: got %d, want 2", got)
		}
	})
}

// outcome returns what an error says about the file; empty: nothing.
func outcome(err error) journal.Outcome {
	var e *journal.AppendError
	if errors.As(err, &e) {
		return e.Outcome
	}
	return ""
}

// The probe and the appends that are measured against it, in one run.
func BenchmarkAppend(b *testing.B) {
	line := append([]byte(`{"id":"0123456789","text":"`), bytes.Repeat([]byte("x"), 260)...)
	line = append(line, `"}`...)
	b.Run("probe", func(b *testing.B) {
		f, err := vfs.OS{}.Create(filepath.Join(b.TempDir(), "probe"), 0o600)
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		for b.Loop() {
			if _, err := f.Write(append(line, '\n')); err != nil {
				b.Fatal(err)
			}
			if err := f.Datasync(); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprint(writers), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), sessionName)
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				b.Fatal(err)
			}
			j, _, err := journal.Open(b.Context(), path, stamp.Checkpoint{}, journal.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer j.Close(context.Background())
			b.ReportAllocs()
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			b.ResetTimer()
			for range writers {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						if _, err := j.Append(b.Context(), func(stamp.Point) ([][]byte, error) { return [][]byte{line}, nil }); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
