package chunks

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"sessiond/wire"
)

// fatal collects a failure of a goroutine that may not end the test.
type fatal struct {
	*testing.T
}

func (f fatal) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func inGoroutines(t *testing.T, n int, f func(i int, t tb)) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("goroutine %d: %v", i, r)
				}
			}()
			f(i, fatal{t})
		})
	}
	wg.Wait()
}

// packed runs Pack for a snapshot until it is done with; done waits for it.
func packed(s *Snapshot) (done func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Pack(context.Background()) // its state tells
	}()
	return func() { <-ended }
}

// waitWhole reads all chunks, waiting for them.
func waitWhole(t tb, s *Snapshot, want []Chunk) {
	t.Helper()
	n := 0
	for c, err := range s.Chunks(context.Background()) {
		if err != nil || n >= len(want) || !bytes.Equal(c.Body, want[n].Body) {
			t.Fatalf("chunk %d of %d: got %s, %v", n, len(want), c.Body, err)
		}
		c.Release()
		n++
	}
	if got, err := s.Totals(); err != nil || got != totalsOf(want) {
		t.Fatalf("totals: got %+v, %v, want %+v", got, err, totalsOf(want))
	}
}

func TestSnapshot_Concurrent(t *testing.T) {
	const target = 200
	v := messages(300, 20)
	for name, b := range map[string]*bench{
		"memory": memoryBench(t, 2000), "spill": spillBench(t),
		"little spill": newBench(t, StoreOptions{Dir: "x", MemoryBytes: 500, SpillBytes: 3000}, smallLimits()),
	} {
		t.Run(name, func(t *testing.T) {
			l := b.NewLog(LogOptions{Target: target, MemoryBytes: 1500})
			inGoroutines(t, 8, func(i int, t tb) {
				for round := range 10 {
					cut := (i/2*37 + round*53) % len(v) // two of the same
					s, release, fresh := l.Begin(SnapshotOptions{Session: "s", ID: wire.SnapshotID(cut), Source: v[:cut]})
					if fresh {
						defer packed(s)()
					}
					waitWhole(t, s, v[:cut].pack(target))
					release()
				}
			})
			if held := b.MemoryHeld(); held > 1500 {
				t.Errorf("%d bytes held, at most 1500", held)
			}
			l.Close()
			if st := b.Stats(); st.MemoryHeldBytes != 0 || st.Snapshots != 0 || st.Logs != 0 || st.SpillBytes != 0 || len(b.files()) != 0 {
				t.Errorf("after Close: got %+v, files %v", st, b.files())
			}
		})
	}
}

// Snapshots that are open stay whole while the log is cut and closed.
func TestSnapshot_WholeWhileTheLogIsCutAndClosed(t *testing.T) {
	const target = 200
	v := messages(300, 20)
	for name, b := range map[string]*bench{"memory": memoryBench(t, 1<<20), "spill": spillBench(t)} {
		t.Run(name, func(t *testing.T) {
			l := b.NewLog(LogOptions{Target: target, MemoryBytes: 1500})
			begun := make(chan struct{}, 8)
			cut, closed := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(closed)
				for range cap(begun) {
					<-begun
				}
				close(cut)
				for keep := len(v); keep > 0; keep -= 7 {
					l.CutBack(keep)
				}
				l.Close()
			}()
			inGoroutines(t, cap(begun), func(i int, t tb) {
				s, release := b.begin(l, v)
				defer packed(s)()
				defer release()
				c, ok, err := s.WaitForChunk(context.Background(), i)
				if !ok || err != nil || !bytes.Equal(c.Body, v.pack(target)[i].Body) {
					t.Fatalf("chunk %d: got %v, %v", i, ok, err)
				}
				begun <- struct{}{}
				<-cut
				waitWhole(t, s, v.pack(target))
			})
			<-closed
			l.Close()
			if st := b.Stats(); st.MemoryHeldBytes != 0 || st.SpillBytes != 0 {
				t.Errorf("after Close: got %+v", st)
			}
		})
	}
}
