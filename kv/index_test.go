package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sessiond/wire"
)

func TestIndex_RemembersAcrossOpens(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "index.db")
	f := newFake()
	x := mustOpen(t, path, f.options())
	if got := readAll(t, x); len(got) != 0 {
		t.Errorf("new index: got %d sessions, want none", len(got))
	}
	const n = pageEntriesMax*2 + 3 // several pages, the last one short
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
	want := Stats{Path: path, Bytes: st.Bytes, Schema: 2, Sessions: n - 1}
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
	b.PutListing(key(0), Listing{State: &wire.State{Settings: []byte("{")}})
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

func TestViews(t *testing.T) {
	ctx := context.Background()
	x := mustOpen(t, filepath.Join(t.TempDir(), "index.db"), newFake().options())
	mustPut(t, x, sessions(0, 4))
	mustPut(t, x, views(0, 4))
	if got := readViews(t, x); len(got) != 8 {
		t.Errorf("got %d views, want 8", len(got))
	}
	v, ok := x.View(ctx, key(2), "context")
	if diff := cmp.Diff(sampleView(2, 1), v); !ok || diff != "" {
		t.Errorf("view: found %t (-want +got):\n%s", ok, diff)
	}
	for _, name := range []string{"", "contex", "context\x00"} {
		if _, ok := x.View(ctx, key(2), name); ok {
			t.Errorf("view %q: got one, want none", name)
		}
	}
	// A key that another begins with is another session.
	b := &Batch{}
	b.PutView(key(1)+"x", "context", sampleView(1, 1))
	b.PutView(key(1)+"\x00", "context", sampleView(1, 1))
	b.PutView(key(1), "con\x00text", sampleView(1, 1))
	b.PutView("", "context", sampleView(1, 1))
	b.PutView(key(1), "transcript", View{Rules: strings.Repeat("r", textBytesMax+1)}) // deletes what was there
	b.DeleteView(key(2), "context")
	b.Delete(key(3))
	b.Delete(strings.Repeat("k", keyBytesMax))
	mustPut(t, x, b)
	got := map[string]bool{}
	if err := x.Views(ctx, func(k, name string, _ View) error {
		got[k+" "+name] = true
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{key(0) + " transcript": true, key(0) + " context": true, key(1) + " context": true, key(1) + "x context": true, key(2) + " transcript": true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("views (-want +got):\n%s", diff)
	}
	if _, ok := x.Signature(ctx, key(1)); !ok {
		t.Error("signature beside a view: got none, want one")
	}
}

// Pages are bounded by bytes too: several of these values would not fit one.
func TestViews_LargeValues(t *testing.T) {
	x := mustOpen(t, filepath.Join(t.TempDir(), "index.db"), newFake().options())
	const n = 4
	b := &Batch{}
	for i := range n {
		b.PutView(key(i), "transcript", View{Data: bytes.Repeat([]byte{byte(i)}, pageBytesMost-10)})
	}
	b.PutView(key(n), "transcript", View{Data: make([]byte, valueBytesMax)}) // with its head too large
	mustPut(t, x, b)
	seen := 0
	if err := x.Views(context.Background(), func(k, _ string, v View) error {
		if len(v.Data) != pageBytesMost-10 || k != key(int(v.Data[0])) {
			t.Errorf("view of %q: got %d bytes", k, len(v.Data))
		}
		seen++
		return nil
	}); err != nil || seen != n {
		t.Errorf("got %d views, %v, want %d", seen, err, n)
	}
}

func TestTombstones(t *testing.T) {
	ctx := context.Background()
	f := newFake()
	x := mustOpen(t, filepath.Join(t.TempDir(), "index.db"), f.options())
	mustPut(t, x, sessions(0, 3))
	mustPut(t, x, views(0, 3))
	mustPut(t, x, tombstones(1, 2))
	if got, ok := x.Tombstone(ctx, key(1)); !ok || got != tombstone(1) {
		t.Errorf("got %+v, %t, want %+v", got, ok, tombstone(1))
	}
	if got := readAll(t, x); len(got) != 2 || len(readViews(t, x)) != 4 {
		t.Errorf("got %d sessions, %d views, want those of the other two", len(got), len(readViews(t, x)))
	}
	_, listed := x.Listing(ctx, key(1))
	if _, kept := x.Checkpoints(ctx, key(1)); listed || kept {
		t.Errorf("removed session: listing %t, checkpoints %t, want neither", listed, kept)
	}
	b := &Batch{}
	b.Delete(key(1)) // not the tombstone
	b.PutTombstone(key(2), tombstone(2))
	b.DeleteTombstone(key(2))
	b.PutTombstone(key(0), Tombstone{Removed: buried, ID: strings.Repeat("i", textBytesMax+1)}) // too long
	mustPut(t, x, b)
	if got := readTombstones(t, x); len(got) != 1 || got[key(1)] != tombstone(1) {
		t.Errorf("got %+v, want one of %q", got, key(1))
	}
}

func TestTombstones_Bounded(t *testing.T) {
	f := newFake()
	x := mustOpen(t, filepath.Join(t.TempDir(), "index.db"), f.options())
	mustPut(t, x, tombstones(0, TombstonesMax))
	if got := readTombstones(t, x); len(got) != TombstonesMax {
		t.Fatalf("got %d, want %d", len(got), TombstonesMax)
	}
	b := &Batch{}
	b.PutTombstone("new", Tombstone{Removed: buried})
	b.PutTombstone("from the future", Tombstone{Removed: buried.Add(TombstoneAgeMax + 1)})
	mustPut(t, x, b)
	got := readTombstones(t, x)
	_, isNew := got["new"]
	_, oldest := got[key(TombstonesMax-1)]
	if _, future := got["from the future"]; len(got) != TombstonesMax || !isNew || oldest || future {
		t.Errorf("got %d, new one %t, oldest %t, one from the future %t, want %d, true, false, false",
			len(got), isNew, oldest, future, TombstonesMax)
	}
	f.advance(TombstoneAgeMax)
	b = &Batch{}
	b.PutTombstone("now", Tombstone{Removed: buried.Add(TombstoneAgeMax)})
	mustPut(t, x, b)
	if got := readTombstones(t, x); len(got) != 3 { // two are as old as may be: "new" and number 0
		t.Errorf("after %v: got %d, want 3", TombstoneAgeMax, len(got))
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
