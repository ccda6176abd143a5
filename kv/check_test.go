package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"sessiond/migrations"
)

const sampleSessions = 8

func TestCheck_Sound(t *testing.T) {
	b := sample(t, sampleSessions)
	if err := check(bytes.NewReader(b), int64(len(b))); err != nil {
		t.Fatalf("got %v, want nil", err)
	}
	m, err := readMeta(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if m.pageBytes != 1024 || m.pages < 20 {
		t.Errorf("sample: got %d pages of %d bytes, want at least 20 of 1024", m.pages, m.pageBytes)
	}
	// With the newer meta page gone, bbolt goes on from the older one.
	newer := int(m.txid%2) * 1024
	b = patched(b, newer+headerBytes+metaBytes-1, 1)
	older, err := readMeta(bytes.NewReader(b), int64(len(b)))
	if err != nil || older.txid != m.txid-1 {
		t.Errorf("older meta page: got transaction %d, %v, want %d", older.txid, err, m.txid-1)
	}
}

// Every flipped byte: the index opens, knows a session rightly or not at all,
// and works again after a Put.
func TestFlip_EveryByte(t *testing.T) {
	good := sample(t, sampleSessions)
	step := 1
	if testing.Short() {
		step = 61
	}
	passed := 0
	path := filepath.Join(t.TempDir(), "index.db")
	for at := 0; at < len(good); at += step {
		mask := byte(1) << (at % 8)
		if at%3 == 0 {
			mask = 0xFF
		}
		b := patched(good, at, mask)
		err := check(bytes.NewReader(b), int64(len(b)))
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatalf("byte %d: got %v, want %v", at, err, ErrDamaged)
		}
		if err == nil {
			passed++
		}
		// What check refuses takes one short path; a sample of it is enough.
		if err == nil || at%64 == 0 {
			useDamaged(t, path, b, at%64 == 0)
		}
		if t.Failed() {
			t.Fatalf("byte %d of %d, mask %02x", at, len(good), mask)
		}
	}
	t.Logf("%d bytes, %d flips", len(good), passed)
}

// Every length: as above.
func TestTruncate_EveryLength(t *testing.T) {
	good := sample(t, sampleSessions)
	step := 16
	if testing.Short() {
		step = 509
	}
	path := filepath.Join(t.TempDir(), "index.db")
	for n := 0; n < len(good); n += step {
		b := good[:n]
		if err := check(bytes.NewReader(b), int64(n)); err != nil && n%256 != 0 {
			continue
		}
		useDamaged(t, path, b, n%256 == 0)
		if t.Failed() {
			t.Fatalf("cut to %d of %d", n, len(good))
		}
	}
}

// useDamaged opens a damaged sample, reads all of it and, if asked, writes.
func useDamaged(t *testing.T, path string, b []byte, write bool) {
	t.Helper()
	ctx := context.Background()
	_ = os.Remove(path) // a file that is rewritten in place is flushed at once
	writeFile(t, path, b)
	x, err := Open(ctx, path, Options{files: filesWithoutSync})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	defer mustClose(t, x)
	wantSubset(t, readAll(t, x), sampleSessions+sampleDeleted)
	for _, i := range []int{0, sampleSessions / 2, sampleSessions - 1} {
		x.Listing(ctx, key(i))
		x.Checkpoints(ctx, key(i))
		x.View(ctx, key(i), viewNames[0])
	}
	readViews(t, x)
	for k, got := range readTombstones(t, x) {
		if k != key(sampleSessions) && k != key(sampleSessions+1) || got != tombstone(int(got.Bytes/1000)) {
			t.Errorf("tombstone of %q: got %+v", k, got)
		}
	}
	if !write {
		return
	}
	// The first Put may meet the damage; the next one works.
	if err := x.Put(ctx, sessions(0, 3)); err != nil {
		mustPut(t, x, sessions(0, 3))
	}
	if got, ok := x.Signature(ctx, key(2)); !ok || got != signature(2) {
		t.Errorf("after a put: got %+v, %t, want %+v", got, ok, signature(2))
	}
	wantSubset(t, readAll(t, x), sampleSessions+sampleDeleted)
}

var filesWithoutSync = files{
	open: osFiles.open, rename: osFiles.rename, remove: osFiles.remove,
	syncDir: func(string) error { return nil },
}

// Whatever passes check, bbolt reads and writes without a fault. The meta pages
// get their checksums, so that a mutation reaches what lies behind them.
func FuzzCheck(f *testing.F) {
	good := sample(f, 1)
	f.Add(good)
	f.Add(good[:3000])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		b = bytes.Clone(b)
		for at := headerBytes; at < 2048 && at+metaBytes <= len(b); at += 1024 {
			h := fnv.New64a()
			h.Write(b[at : at+metaBytes-8])
			order.PutUint64(b[at+metaBytes-8:], h.Sum64())
		}
		if err := check(bytes.NewReader(b), int64(len(b))); err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("got %v, want %v", err, ErrDamaged)
			}
			return
		}
		path := filepath.Join(t.TempDir(), "index.db")
		writeFile(t, path, b)
		x := mustOpen(t, path, Options{files: filesWithoutSync})
		readAll(t, x)
		if err := x.Put(context.Background(), sessions(0, 2)); err != nil {
			mustPut(t, x, sessions(0, 2))
		}
	})
}

// A false alarm would cost the whole index: check accepts whatever bbolt makes
// of random puts and deletes, at any size of values.
func TestCheck_AcceptsWhatBboltWrites(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "index.db")
		pageBytes := rapid.SampledFrom([]int{1024, 4096}).Draw(r, "pageBytes")
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: pageBytes, NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		if err := migrations.Run(db, migrations.Steps, 0); err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 12).Draw(r, "transactions") {
			n := rapid.IntRange(1, 120).Draw(r, "changes")
			rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 0))
			keep := rnd.Float64()
			var ops []op
			for range n {
				o := op{bucket: allBuckets[rnd.IntN(len(allBuckets))], key: []byte(fmt.Sprint(rnd.IntN(300)))}
				o.prefix = rnd.IntN(20) == 0
				if rnd.Float64() < keep {
					o.value = make([]byte, rnd.IntN(1<<rnd.IntN(14))+1)
				}
				ops = append(ops, o)
			}
			if err := db.Update(func(tx *bbolt.Tx) error { return apply(tx, ops, time.Now()) }); err != nil {
				t.Fatal(err)
			}
			b := readFile(t, path)
			if err := check(bytes.NewReader(b), int64(len(b))); err != nil {
				r.Fatalf("sound database refused: %v", err)
			}
		}
	})
}
