package chunks

import (
	"fmt"
	"sync"
	"testing"
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

func TestSnapshot_Concurrent(t *testing.T) {
	const target = 200
	v := messages(300, 20)
	budget := NewBudget(2000)
	l := NewLog(Options{Target: target, MemoryBytes: 1500, Budget: budget})
	inGoroutines(t, 8, func(i int, t tb) {
		for round := range 10 {
			cut := (i*37 + round*53) % len(v)
			checkWhole(t, l.Snapshot(v[:cut]), v[:cut].pack(target))
		}
	})
	if budget.Held() > 1500 {
		t.Errorf("%d bytes held, at most 1500", budget.Held())
	}
}

// Snapshots that are open stay whole while the log is cut and closed.
func TestSnapshot_WholeWhileTheLogIsCutAndClosed(t *testing.T) {
	const target = 200
	v := messages(300, 20)
	budget := NewBudget(1 << 20)
	l := NewLog(Options{Target: target, MemoryBytes: 1 << 20, Budget: budget})
	begun := make(chan struct{}, 8)
	cut := make(chan struct{})
	go func() {
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
		s := l.Snapshot(v)
		checkChunk(t, s, v.pack(target), i)
		begun <- struct{}{}
		<-cut
		checkWhole(t, s, v.pack(target))
	})
	l.Close()
	if budget.Held() != 0 {
		t.Errorf("%d bytes held after Close", budget.Held())
	}
}
