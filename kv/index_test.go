package kv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIndex_RemembersAcrossOpens(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "index.db")
	f := newFake()
	x := mustOpen(t, path, f.options())
	if got := readAll(t, x); len(got) != 0 {
		t.Errorf("new index: got %d sessions, want none", len(got))
	}
	const n = sessionsPage*2 + 3 // several pages, the last one short
	mustPut(t, x, sessions(0, n))
	mustPut(t, x, deletion(5, 6))
	mustClose(t, x)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode: got %v, %v, want 0600", info.Mode(), err)
	}

	x = mustOpen(t, path, f.options())
	got := readAll(t, x)
	wantSubset(t, got, n)
	if _, ok := got[key(5)]; ok || len(got) != n-1 {
		t.Errorf("got %d sessions, deleted one among them %t, want %d without", len(got), ok, n-1)
	}
	if s, ok := x.Signature(ctx, key(7)); !ok || s != signature(7) {
		t.Errorf("signature: got %+v, %t, want %+v", s, ok, signature(7))
	}
	l, ok := x.Listing(ctx, key(7))
	if diff := cmp.Diff(listing(7), l); !ok || diff != "" {
		t.Errorf("listing: found %t (-want +got):\n%s", ok, diff)
	}
	c, ok := x.Checkpoints(ctx, key(7))
	if diff := cmp.Diff(checkpoints(3), c); !ok || diff != "" {
		t.Errorf("checkpoints: found %t (-want +got):\n%s", ok, diff)
	}
	for _, k := range []string{key(5), "", strings.Repeat("k", keyBytesMax+1)} {
		if _, ok := x.Listing(ctx, k); ok {
			t.Errorf("listing of %.40q: got one, want none", k)
		}
	}
	st := x.Stats(ctx)
	want := Stats{Path: path, Bytes: st.Bytes, Schema: 1, Sessions: n - 1}
	if diff := cmp.Diff(want, st); diff != "" || st.Bytes == 0 {
		t.Errorf("stats of %d bytes (-want +got):\n%s", st.Bytes, diff)
	}
	if len(f.aside)+len(f.degraded)+len(f.migrated) > 0 {
		t.Errorf("listener: got %+v, want no word", f)
	}
}

func TestBatch_LaterChangeWins(t *testing.T) {
	ctx := context.Background()
	x := mustOpen(t, filepath.Join(t.TempDir(), "index.db"), Options{})
	b := sessions(1, 2)
	b.Delete(key(1))
	b.PutSignature(key(1), signature(2))
	mustPut(t, x, b)
	if s, ok := x.Signature(ctx, key(1)); !ok || s != signature(2) {
		t.Errorf("signature: got %+v, %t, want %+v", s, ok, signature(2))
	}
	if _, ok := x.Listing(ctx, key(1)); ok {
		t.Error("listing: got one, want none")
	}
	if err := x.Put(ctx, &Batch{}); err != nil {
		t.Errorf("empty batch: got %v, want nil", err)
	}
}

// What cannot be kept costs its own place only, and no older value stays there.
func TestBatch_LeavesOutWhatDoesNotFit(t *testing.T) {
	ctx := context.Background()
	x := mustOpen(t, filepath.Join(t.TempDir(), "index.db"), Options{})
	mustPut(t, x, sessions(0, 3))
	b := &Batch{}
	long := signature(0)
	long.Rules = strings.Repeat("r", textBytesMax+1)
	b.PutSignature(key(0), long)
	b.PutListing(key(0), Listing{DialectState: []byte("{")})
	b.PutListing(key(1), Listing{Title: ptr(strings.Repeat("t", valueBytesMax))})
	b.PutSignature("", signature(1))
	b.PutSignature(strings.Repeat("k", keyBytesMax+1), signature(1))
	b.PutSignature(key(9), signature(9))
	mustPut(t, x, b)
	if _, ok := x.Signature(ctx, key(0)); ok {
		t.Error("signature with a long text: got one, want none")
	}
	for i, want := range []bool{false, false, true} {
		if _, ok := x.Listing(ctx, key(i)); ok != want {
			t.Errorf("listing %d: got %t, want %t", i, ok, want)
		}
	}
	if s, ok := x.Signature(ctx, key(9)); !ok || s != signature(9) {
		t.Errorf("signature beside them: got %+v, %t, want %+v", s, ok, signature(9))
	}
}

func TestSessions_StopsAtError(t *testing.T) {
	x := mustOpen(t, filepath.Join(t.TempDir(), "index.db"), Options{})
	mustPut(t, x, sessions(0, 5))
	stop := errors.New("stop")
	n := 0
	if err := x.Sessions(context.Background(), func(string, Signature) error {
		// No transaction is open here: a write goes through.
		mustPut(t, x, sessions(n, n+1))
		if n++; n == 3 {
			return stop
		}
		return nil
	}); !errors.Is(err, stop) || n != 3 {
		t.Errorf("got %v after %d sessions, want %v after 3", err, n, stop)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := x.Sessions(ctx, func(string, Signature) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want %v", err, context.Canceled)
	}
}

func TestClose(t *testing.T) {
	ctx := context.Background()
	x := mustOpen(t, filepath.Join(t.TempDir(), "index.db"), Options{})
	mustPut(t, x, sessions(0, 1))
	if err := x.take(ctx); err != nil { // as a write in progress does
		t.Fatal(err)
	}
	short, cancel := context.WithCancel(ctx)
	cancel()
	if err := x.Close(short); !errors.Is(err, context.Canceled) {
		t.Errorf("close during a write: got %v, want %v", err, context.Canceled)
	}
	if err := x.Put(short, sessions(0, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("put during a write: got %v, want %v", err, context.Canceled)
	}
	x.give()
	mustClose(t, x)
	mustClose(t, x)
	if err := x.Put(ctx, sessions(0, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("put: got %v, want %v", err, ErrClosed)
	}
	if _, ok := x.Signature(ctx, key(0)); ok {
		t.Error("signature after close: got one, want none")
	}
	if st := x.Stats(ctx); st.DroppedWrites != 6 || st.Sessions != 0 {
		t.Errorf("stats: got %d dropped, %d sessions, want 6, 0", st.DroppedWrites, st.Sessions)
	}
}

func TestIndex_ConcurrentUse(t *testing.T) {
	ctx := context.Background()
	x := mustOpen(t, filepath.Join(t.TempDir(), "index.db"), Options{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 20 {
				if err := x.Put(ctx, sessions(w*20+i, w*20+i+1)); err != nil {
					t.Errorf("put: %v", err)
				}
			}
		})
		wg.Go(func() {
			for i := range 80 {
				if s, ok := x.Signature(ctx, key(i)); ok && s != signature(i) {
					t.Errorf("signature %d: got %+v", i, s)
				}
				if i%20 == 0 {
					wantSubset(t, readAll(t, x), 80)
					x.Stats(ctx)
				}
			}
		})
	}
	wg.Wait()
	if got := readAll(t, x); len(got) != 80 {
		t.Errorf("got %d sessions, want 80", len(got))
	}
}

func BenchmarkIndex(b *testing.B) {
	ctx := context.Background()
	const n = 10_000
	path := filepath.Join(b.TempDir(), "index.db")
	x, err := Open(ctx, path, Options{})
	if err != nil {
		b.Fatal(err)
	}
	mustPut(b, x, sessions(0, n))
	b.Run(fmt.Sprintf("sessions=%d", n), func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if got := readAll(b, x); len(got) != n {
				b.Fatalf("got %d sessions, want %d", len(got), n)
			}
		}
	})
	b.Run("signature", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			x.Signature(ctx, key(n/2))
		}
	})
	b.Run("put=1", func(b *testing.B) {
		one := sessions(5, 6)
		for b.Loop() {
			mustPut(b, x, one)
		}
	})
	mustClose(b, x)
	b.Run(fmt.Sprintf("open/sessions=%d", n), func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			x, err := Open(ctx, path, Options{})
			if err != nil {
				b.Fatal(err)
			}
			mustClose(b, x)
		}
	})
}
