package chunks

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"sessiond/wire"
)

// given is a snapshot that a test appends to by hand: its source is not asked.
func given(t *testing.T) (*bench, *Snapshot, func(), []Chunk) {
	t.Helper()
	const target = 100
	v := messages(12, 20)
	b := memoryBench(t, 1<<20)
	s, release := b.begin(b.NewLog(LogOptions{Target: target, MemoryBytes: 1 << 20}), v)
	t.Cleanup(release)
	return b, s, release, v.pack(target)
}

func appendChunk(t *testing.T, s *Snapshot, want []Chunk, i int) {
	t.Helper()
	end := 0
	for _, c := range want[:i+1] {
		end += c.Count
	}
	if err := s.AppendEncodedChunk(want[i], Place{Slot: end}, i == len(want)-1); err != nil {
		t.Fatalf("append %d: %v", i, err)
	}
}

func TestSnapshot_AppendsOnlyWhileOpen(t *testing.T) {
	for name, end := range map[string]func(*Snapshot){
		"complete": func(s *Snapshot) { s.MarkComplete() },
		"failed":   func(s *Snapshot) { s.MarkFailed(errors.New("x")) },
	} {
		_, s, _, want := given(t)
		appendChunk(t, s, want, 0)
		end(s)
		if err := s.AppendEncodedChunk(want[1], Place{Slot: 5}, false); !errors.Is(err, ErrNotOpen) {
			t.Errorf("%s: got %v, want %v", name, err, ErrNotOpen)
		}
	}
}

func TestSnapshot_ReadChunkIsNowOrAnError(t *testing.T) {
	_, s, _, want := given(t)
	read := func(i int, want error) {
		t.Helper()
		if _, err := s.ReadChunk(t.Context(), i); !errors.Is(err, want) {
			t.Errorf("chunk %d: got %v, want %v", i, err, want)
		}
	}
	read(0, ErrNotYet)
	appendChunk(t, s, want, 0)
	read(0, nil)
	read(1, ErrNotYet)
	if _, err := s.Totals(); !errors.Is(err, ErrNotYet) {
		t.Errorf("totals of an open snapshot: got %v, want %v", err, ErrNotYet)
	}
	s.MarkComplete()
	read(0, nil)
	read(1, ErrNoChunk)
	_, s, _, want = given(t)
	appendChunk(t, s, want, 0)
	broken := errors.New("broken")
	s.MarkFailed(broken)
	read(0, nil)
	read(1, broken)
	if _, err := s.Totals(); !errors.Is(err, broken) {
		t.Errorf("totals of a failed snapshot: got %v, want %v", err, broken)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.ReadChunk(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: got %v", err)
	}
}

func TestSnapshot_WaitForChunk(t *testing.T) {
	broken := errors.New("broken")
	for _, row := range []struct {
		name   string
		then   func(*testing.T, *Snapshot, []Chunk)
		wantOK bool
		want   error
	}{
		{"a chunk comes", func(t *testing.T, s *Snapshot, want []Chunk) { appendChunk(t, s, want, 1) }, true, nil},
		{"complete", func(_ *testing.T, s *Snapshot, _ []Chunk) { s.MarkComplete() }, false, nil},
		{"failed", func(_ *testing.T, s *Snapshot, _ []Chunk) { s.MarkFailed(broken) }, false, broken},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, s, _, want := given(t)
			appendChunk(t, s, want, 0)
			done := make(chan struct{})
			go func() {
				defer close(done)
				c, ok, err := s.WaitForChunk(context.Background(), 1)
				if ok != row.wantOK || !errors.Is(err, row.want) || ok && !bytes.Equal(c.Body, want[1].Body) {
					t.Errorf("got %v, %v, want %v, %v", ok, err, row.wantOK, row.want)
				}
			}()
			row.then(t, s, want)
			<-done
			if _, ok, err := s.WaitForChunk(t.Context(), 0); !ok || err != nil {
				t.Errorf("a chunk that exists: got %v, %v", ok, err)
			}
		})
	}
	_, s, _, _ := given(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.WaitForChunk(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: got %v", err)
	}
}

func TestSnapshot_FirstMarkCounts(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	_, s, _, _ := given(t)
	s.MarkFailed(first)
	s.MarkFailed(second)
	s.MarkComplete()
	if _, err := s.ReadChunk(t.Context(), 0); !errors.Is(err, first) {
		t.Errorf("failed first: got %v, want %v", err, first)
	}
	_, s, _, _ = given(t)
	s.MarkComplete()
	s.MarkComplete()
	s.MarkFailed(second)
	if _, err := s.ReadChunk(t.Context(), 0); !errors.Is(err, ErrNoChunk) {
		t.Errorf("complete first: got %v, want %v", err, ErrNoChunk)
	}
}

func TestSnapshot_ReleaseTwice(t *testing.T) {
	b, s, release, _ := given(t)
	again, err := s.Retain()
	if err != nil {
		t.Fatal(err)
	}
	release()
	release()
	if _, err := s.ReadChunk(t.Context(), 0); !errors.Is(err, ErrNotYet) {
		t.Errorf("retained by another: got %v, want %v", err, ErrNotYet)
	}
	again()
	again()
	if got := b.Stats().Snapshots; got != 0 {
		t.Errorf("got %d snapshots, want 0", got)
	}
	if _, err := s.Retain(); !errors.Is(err, ErrDisposed) {
		t.Errorf("Retain: got %v, want %v", err, ErrDisposed)
	}
}

func TestSnapshot_DisposeWaitsAndFrees(t *testing.T) {
	const target = 100
	v := messages(12, 20)
	b := newBench(t, StoreOptions{Dir: "x", MemoryBytes: 1 << 20}, smallLimits())
	var closed atomic.Int64
	l := b.NewLog(LogOptions{Target: target, Private: true}) // no memory: files that only it has
	s, release, fresh := l.Begin(SnapshotOptions{Session: "s", ID: 7, Source: v, Close: func() { closed.Add(1) }})
	if !fresh {
		t.Fatal("not fresh")
	}
	checkWhole(t, s, v.pack(target))
	if len(b.files()) == 0 || b.MemoryHeld() == 0 {
		t.Fatalf("files %v, %d bytes held: want some", b.files(), b.MemoryHeld())
	}
	done := make(chan struct{})
	go func() { defer close(done); s.Dispose() }()
	for {
		_, found, ok := b.Find("s", 7)
		if !ok {
			break // Dispose has begun
		}
		found()
	}
	select {
	case <-done:
		t.Fatal("Dispose did not wait for who retains it")
	default:
	}
	checkWhole(t, s, v.pack(target)) // until then it is readable
	release()
	<-done
	s.Dispose()
	if st := b.Stats(); st.MemoryHeldBytes != 0 || st.Snapshots != 0 || st.SpillBytes != 0 || len(b.files()) != 0 || closed.Load() != 1 {
		t.Errorf("after Dispose: got %+v, files %v, closed %d times", st, b.files(), closed.Load())
	}
	s.MarkFailed(errors.New("late"))
	_, read := s.ReadChunk(t.Context(), 0)
	_, _, wait := s.WaitForChunk(t.Context(), 0)
	_, totals := s.Totals()
	for name, err := range map[string]error{
		"ReadChunk": read, "WaitForChunk": wait, "Totals": totals, "Pack": s.Pack(t.Context()),
		"AppendEncodedChunk": s.AppendEncodedChunk(Chunk{}, Place{}, false),
	} {
		if !errors.Is(err, ErrDisposed) {
			t.Errorf("%s: got %v, want %v", name, err, ErrDisposed)
		}
	}
}

// Who waits without retaining is sent away.
func TestSnapshot_DisposeEndsWaiters(t *testing.T) {
	_, s, release, _ := given(t)
	entered := make(chan struct{})
	done := make(chan error)
	go func() {
		close(entered)
		_, _, err := s.WaitForChunk(context.Background(), 0)
		done <- err
	}()
	<-entered
	release()
	if err := <-done; !errors.Is(err, ErrDisposed) {
		t.Errorf("got %v, want %v", err, ErrDisposed)
	}
}

func TestSnapshot_IteratesWhileItGrows(t *testing.T) {
	_, s, _, want := given(t)
	appendChunk(t, s, want, 0)
	n := 0
	for c, err := range s.Chunks(t.Context()) {
		if err != nil || !bytes.Equal(c.Body, want[n].Body) {
			t.Fatalf("chunk %d: %v", n, err)
		}
		if n++; n < len(want) {
			appendChunk(t, s, want, n)
		} else {
			s.MarkComplete()
		}
	}
	if n != len(want) {
		t.Errorf("got %d chunks, want %d", n, len(want))
	}
}

func TestSnapshot_IsFoundAndShared(t *testing.T) {
	const target = 100
	v := messages(12, 20)
	b := memoryBench(t, 1<<20)
	l := b.NewLog(LogOptions{Target: target, MemoryBytes: 1 << 20})
	closed := 0
	o := SnapshotOptions{Session: "s", ID: 7, Source: v, Close: func() { closed++ }}
	s, release, fresh := l.Begin(o)
	same, releaseSame, freshSame := l.Begin(o)
	if !fresh || freshSame || s != same || closed != 1 {
		t.Fatalf("fresh %v, then %v; the same %v; closed %d times", fresh, freshSame, s == same, closed)
	}
	if found, done, ok := b.Find("s", 7); !ok || found != s {
		t.Error("not found")
	} else {
		done()
	}
	for _, key := range []struct {
		session string
		id      wire.SnapshotID
	}{{"s", 8}, {"t", 7}} {
		if _, _, ok := b.Find(key.session, key.id); ok {
			t.Errorf("found %v", key)
		}
	}
	release()
	checkWhole(t, same, v.pack(target)) // the other retains it
	releaseSame()
	if _, _, ok := b.Find("s", 7); ok {
		t.Error("found after its last release")
	}
	s, release, _ = l.Begin(o)
	s.MarkFailed(errors.New("x"))
	next, releaseNext, fresh := l.Begin(o)
	if !fresh || next == s {
		t.Error("a failed snapshot was shared")
	}
	release()
	if found, done, ok := b.Find("s", 7); !ok || found != next {
		t.Error("the end of the failed one took the new one out")
	} else {
		done()
	}
	releaseNext()
}

func TestSnapshot_Notify(t *testing.T) {
	_, s, _, want := given(t)
	n := 0
	stop := s.Notify(func() {
		n++
		_, _ = s.ReadChunk(t.Context(), 0) // no lock is held
	})
	appendChunk(t, s, want, 0)
	appendChunk(t, s, want, 1)
	s.MarkComplete()
	s.MarkComplete()
	if n != 3 {
		t.Errorf("got %d calls, want 3", n)
	}
	_, s, _, want = given(t)
	s.Notify(func() { t.Error("called after stop") })()
	appendChunk(t, s, want, 0)
	stop()
}

// counted counts how often a source packs.
type counted struct {
	view
	packs atomic.Int64
}

func (c *counted) Pack(ctx context.Context, b *Builder, from Place) (Place, bool, error) {
	c.packs.Add(1)
	return c.view.Pack(ctx, b, from)
}

// However many read, and call Pack, each chunk is packed once.
func TestSnapshot_OnePacker(t *testing.T) {
	const target = 200
	src := &counted{view: messages(300, 20)}
	want := src.pack(target)
	b := spillBench(t)
	s, release := b.begin(b.NewLog(LogOptions{Target: target, MemoryBytes: 1000}), src)
	defer release()
	inGoroutines(t, 6, func(i int, t tb) {
		defer packed(s)()
		waitWhole(t, s, want)
	})
	if got := src.packs.Load(); got != int64(len(want)) {
		t.Errorf("packed %d times, want %d", got, len(want))
	}
}

// Where nothing holds what is packed, nothing is packed before it is asked
// for, and then once.
func TestSnapshot_PacksOnDemand(t *testing.T) {
	const target = 200
	src := &counted{view: messages(300, 20)}
	want := src.pack(target)
	b := memoryBench(t, 0)
	s, release := b.begin(b.NewLog(LogOptions{Target: target}), src)
	woken := make(chan struct{}, 1)
	defer s.Notify(func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})()
	defer packed(s)()
	defer release()
	<-woken // Pack leaves it to the readers
	if got := src.packs.Load(); got != 0 {
		t.Fatalf("packed %d times before anybody asked", got)
	}
	for i := range want {
		c, err := s.ReadChunk(t.Context(), i)
		if err != nil || !bytes.Equal(c.Body, want[i].Body) || src.packs.Load() != int64(i+1) {
			t.Fatalf("chunk %d: %v, packed %d times", i, err, src.packs.Load())
		}
	}
	if _, err := s.ReadChunk(t.Context(), len(want)); !errors.Is(err, ErrNoChunk) {
		t.Errorf("behind the last: got %v, want %v", err, ErrNoChunk)
	}
}

// A packer ends when nobody wants its chunks any more.
func TestSnapshot_PackEndsWithItsLastReader(t *testing.T) {
	b := memoryBench(t, 0)
	s, release := b.begin(b.NewLog(LogOptions{Target: 100}), messages(30, 20))
	done := packed(s)
	release()
	done()
	<-s.disposed
	if err := s.Pack(t.Context()); !errors.Is(err, ErrDisposed) {
		t.Errorf("got %v, want %v", err, ErrDisposed)
	}
}

// failing is a source that fails behind its first chunk, or changes its mind.
type failing struct {
	view
	err  error
	lies bool
}

func (f *failing) Pack(ctx context.Context, b *Builder, from Place) (Place, bool, error) {
	if f.err != nil && from.Slot > 0 {
		b.End(append(b.Begin(), "9"...), []byte("{}")) // what it left is not to show up
		return from, false, f.err
	}
	if f.lies {
		v := append(view{`"other"`}, f.view[1:]...)
		return v.Pack(ctx, b, from)
	}
	return f.view.Pack(ctx, b, from)
}

func TestSnapshot_FailsWithItsSource(t *testing.T) {
	const target = 100
	broken := errors.New("broken")
	b := memoryBench(t, 1<<20)
	l := b.NewLog(LogOptions{Target: target, MemoryBytes: 1 << 20})
	f := &failing{view: messages(20, 20), err: broken}
	s, release := b.begin(l, f)
	defer release()
	if err := s.Pack(t.Context()); !errors.Is(err, broken) {
		t.Errorf("Pack: got %v, want %v", err, broken)
	}
	checkChunk(t, s, f.pack(target), 0)
	if _, _, err := s.WaitForChunk(t.Context(), 1); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	f.err = nil
	b.whole(t, l, f.view, target)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s, release = b.begin(l, f)
	defer release()
	if err := s.Pack(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: got %v", err)
	}
	checkWhole(t, s, f.pack(target)) // it goes on
}

// A body that is lost and cannot be packed as it was is an error, and nobody
// else is given the snapshot.
func TestSnapshot_LostBodyThatDiffers(t *testing.T) {
	const target = 100
	b := memoryBench(t, 0)
	l := b.NewLog(LogOptions{Target: target})
	f := &failing{view: messages(20, 20)}
	o := SnapshotOptions{Session: "s", ID: 7, Source: f}
	s, release, _ := l.Begin(o)
	defer release()
	checkWhole(t, s, f.pack(target))
	f.lies = true
	if _, err := s.ReadChunk(t.Context(), 0); !errors.Is(err, ErrDiffers) {
		t.Errorf("got %v, want %v", err, ErrDiffers)
	}
	checkChunk(t, s, f.pack(target), 1) // which is what it was
	_, again, fresh := l.Begin(o)
	if again(); !fresh {
		t.Error("a broken snapshot was shared")
	}
}
