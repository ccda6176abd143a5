package kv

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

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.etcd.io/bbolt"

	"sessiond/migrations"
)

func mustOpenReadOnly(t testing.TB, path string) *Offline {
	t.Helper()
	r, err := OpenReadOnly(context.Background(), path, Options{})
	if err != nil {
		t.Fatalf("open read-only: %v", err)
	}
	return r
}

// readOffline returns all that an Offline tells.
func readOffline(t testing.TB, r *Offline) (entries []Entry, tombstones []TombstoneEntry) {
	t.Helper()
	err := errors.Join(
		r.Entries(context.Background(), func(e Entry) error {
			entries = append(entries, e)
			return nil
		}),
		r.Tombstones(context.Background(), func(e TombstoneEntry) error {
			tombstones = append(tombstones, e)
			return nil
		}))
	if err != nil {
		t.Errorf("read offline: %v", err)
	}
	return entries, tombstones
}

// sampleEntry is what an index holds of session i.
func sampleEntry(i int) Entry {
	e := Entry{Key: key(i), Signature: ptr(signature(i)), Listing: ptr(listing(i)), Checkpoints: checkpoints(i % 4)}
	for _, k := range []int{1, 0} { // by name
		v := sampleView(i, k)
		v.Data = nil
		e.Views = append(e.Views, ViewEntry{Name: viewNames[k], DataBytes: 40, View: v})
	}
	return e
}

func TestOffline_TellsAllAndChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	x := mustOpen(t, path, newFake().options())
	const n = offlineEntriesMax + 40 // two pages
	put := sessions(0, n)
	put.ops = append(put.ops, views(0, n).ops...)
	mustPut(t, x, put)
	mustPut(t, x, tombstones(n, n+2))
	mustPut(t, x, func() *Batch { // without a signature, before and behind all others
		b := &Batch{}
		b.PutListing("a", listing(1))
		b.PutView("z", "context", sampleView(1, 1))
		return b
	}())
	mustClose(t, x)
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	before, was := readFile(t, path), stat(t, path)

	r := mustOpenReadOnly(t, path)
	want := Overview{Path: path, Bytes: int64(len(before)), Schema: 2, Signatures: n, Listings: n + 1, Checkpoints: n, Views: 2*n + 1, Tombstones: 2}
	if diff := cmp.Diff(want, r.Overview()); diff != "" {
		t.Errorf("overview (-want +got):\n%s", diff)
	}
	entries, stones := readOffline(t, r)
	if len(entries) != n+2 || len(stones) != 2 {
		t.Fatalf("got %d entries, %d tombstones, want %d, 2", len(entries), len(stones), n+2)
	}
	if a, z := entries[0], entries[n+1]; a.Key != "a" || a.Signature != nil || a.Listing == nil || z.Key != "z" || len(z.Views) != 1 {
		t.Errorf("without a signature: got %+v and %+v", a, z)
	}
	wantEntries := make([]Entry, n)
	for i := range n {
		wantEntries[i] = sampleEntry(i)
	}
	slices.SortFunc(wantEntries, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	if diff := cmp.Diff(wantEntries, entries[1:n+1], cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	for i, s := range stones {
		if s.Bad != nil || s.Key != key(n+i) && s.Key != key(n+1-i) {
			t.Errorf("tombstone: got %+v", s)
		}
	}
	v, ok, err := r.View(context.Background(), key(7), "context")
	if diff := cmp.Diff(sampleView(7, 1), v); !ok || err != nil || diff != "" {
		t.Errorf("view: %t, %v (-want +got):\n%s", ok, err, diff)
	}
	if _, ok, err := r.View(context.Background(), key(7), "none"); ok || err != nil {
		t.Errorf("no such view: got %t, %v", ok, err)
	}
	if now := stat(t, path); !bytes.Equal(before, readFile(t, path)) || !now.ModTime().Equal(was.ModTime()) {
		t.Errorf("the file changed: modified %v, then %v", was.ModTime(), now.ModTime())
	}
	if got := beside(t, path); len(got) != 0 {
		t.Errorf("files beside: got %q, want none", got)
	}
}

func stat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestOffline_OlderSchemaStaysOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	writeFile(t, path, readFile(t, committed(1)))
	r := mustOpenReadOnly(t, path)
	entries, stones := readOffline(t, r)
	if o := r.Overview(); o.Schema != 1 || o.Signatures != committedSessions || len(entries) != committedSessions || len(stones) != 0 {
		t.Errorf("got %+v, %d entries, %d tombstones, want schema 1, %d, none", o, len(entries), len(stones), committedSessions)
	}
	for _, e := range entries {
		if e.Signature == nil || e.Signature.Trusted || e.Listing == nil || len(e.Bad) > 0 || len(e.Views) > 0 {
			t.Errorf("got %+v, want a signature without trust, a listing, nothing bad", e)
		}
	}
	if _, ok, err := r.View(context.Background(), key(1), "context"); ok || err != nil {
		t.Errorf("view: got %t, %v, want none", ok, err)
	}
	if !bytes.Equal(readFile(t, committed(1)), readFile(t, path)) {
		t.Error("the file changed")
	}
}

func TestOffline_Refuses(t *testing.T) {
	good := sample(t, 2)
	newer := slices.Concat(migrations.Steps, []migrations.Step{
		{To: migrations.Newest(migrations.Steps) + 1, Name: "of a later version", Apply: func(*bbolt.Tx) error { return nil }},
	})
	write := func(b []byte) func(*testing.T, string) {
		return func(t *testing.T, path string) { writeFile(t, path, b) }
	}
	for _, c := range []struct {
		name  string
		place func(*testing.T, string)
		want  error
	}{
		{"none", func(*testing.T, string) {}, fs.ErrNotExist},
		{"empty", write(nil), ErrDamaged},
		{"garbage", write(bytes.Repeat([]byte("garbage!"), 8<<10)), ErrDamaged},
		{"cut", write(good[:len(good)/2]), ErrDamaged},
		{"folder", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, ErrDamaged},
		{"FIFO", func(t *testing.T, path string) {
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}, ErrDamaged},
		{"other program's database", func(t *testing.T, path string) {
			db, err := bbolt.Open(path, 0o600, nil)
			if err == nil {
				err = db.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}, ErrDamaged},
		{"bucket missing", func(t *testing.T, path string) {
			write(good)(t, path)
			db, err := bbolt.Open(path, 0o600, nil)
			if err == nil {
				err = errors.Join(db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketViews) }), db.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}, ErrDamaged},
		{"newer schema", func(t *testing.T, path string) {
			mustClose(t, mustOpen(t, path, Options{steps: newer}))
		}, ErrNewerSchema},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "index.db")
			c.place(t, path)
			_, err := OpenReadOnly(context.Background(), path, Options{})
			if !errors.Is(err, c.want) || strings.Count(err.Error(), path) != 1 {
				t.Errorf("got %v, want %v with the path once", err, c.want)
			}
			if got := beside(t, path); len(got) != 0 {
				t.Errorf("files beside: got %q, want none", got)
			}
		})
	}
}

// Who holds the index keeps it, and an Offline keeps nobody from it between
// two pages.
func TestOffline_Locks(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "index.db")
	x := mustOpen(t, path, Options{})
	mustPut(t, x, sessions(0, offlineEntriesMax+1))
	short := Options{LockTimeout: 3 * lockPoll}
	if _, err := OpenReadOnly(ctx, path, short); !errors.Is(err, ErrLocked) {
		t.Errorf("while it is held: got %v, want %v", err, ErrLocked)
	}
	mustClose(t, x)
	r, err := OpenReadOnly(ctx, path, short)
	if err != nil {
		t.Fatal(err)
	}
	other := mustOpenReadOnly(t, path) // two may read
	var held *Index
	err = r.Entries(ctx, func(Entry) error {
		if held == nil {
			held = mustOpen(t, path, Options{LockTimeout: lockPoll})
		}
		return nil
	})
	if !errors.Is(err, ErrLocked) {
		t.Errorf("taken between two pages: got %v, want %v", err, ErrLocked)
	}
	mustPut(t, held, sessions(1, 2))
	mustClose(t, held)
	if err := other.Entries(ctx, func(Entry) error { return nil }); !errors.Is(err, ErrChanged) {
		t.Errorf("written between: got %v, want %v", err, ErrChanged)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := mustOpenReadOnly(t, path).Entries(cancelled, func(Entry) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want %v", err, context.Canceled)
	}
}

func TestOffline_ListsBadValues(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	b := sample(t, 3)
	spoil(t, b, []byte("Title 1"))
	spoil(t, b, sampleView(2, 1).Data)
	writeFile(t, path, b)
	entries, _ := readOffline(t, mustOpenReadOnly(t, path))
	got := map[string]string{}
	for _, e := range entries {
		for _, bad := range e.Bad {
			if !errors.Is(bad.Err, errBadValue) {
				t.Errorf("got %v, want %v", bad.Err, errBadValue)
			}
			got[bad.Bucket+" "+bad.Key] = e.Key
		}
	}
	want := map[string]string{"listings " + key(1): key(1), "views " + key(2) + "\x00context": key(2)}
	if diff := cmp.Diff(want, got); diff != "" || len(entries) != 3 {
		t.Errorf("%d entries, bad values (-want +got):\n%s", len(entries), diff)
	}
}

// Any flipped byte: what is told is right, or said to be wrong.
func TestOffline_Flips(t *testing.T) {
	good := sample(t, 3)
	step := 7
	if testing.Short() {
		step = 101
	}
	path := filepath.Join(t.TempDir(), "index.db")
	ctx := context.Background()
	for at := 0; at < len(good); at += step {
		b := patched(good, at, byte(1)<<(at%8))
		_ = os.Remove(path)
		writeFile(t, path, b)
		r, err := OpenReadOnly(ctx, path, Options{})
		if err == nil {
			err = r.Entries(ctx, func(e Entry) error {
				if e.Signature != nil && (e.Signature.Stamp.Inode > 4 || e.Key != key(int(e.Signature.Stamp.Inode))) {
					t.Errorf("byte %d: got %+v", at, e)
				}
				return nil
			})
		}
		if err == nil {
			err = r.Tombstones(ctx, func(TombstoneEntry) error { return nil })
		}
		if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewerSchema) {
			t.Errorf("byte %d: got %v, want %v", at, err, ErrDamaged)
		}
		if !bytes.Equal(readFile(t, path), b) {
			t.Fatalf("byte %d: the file changed", at)
		}
	}
}

// A file that is cut under an open reader ends it with an error.
func TestOffline_CutWhileRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	x := mustOpen(t, path, Options{})
	mustPut(t, x, sessions(0, 2*offlineEntriesMax))
	mustClose(t, x)
	r := mustOpenReadOnly(t, path)
	_, err := offline(context.Background(), r, func(tx *bbolt.Tx) (int, error) {
		if err := os.Truncate(path, 8192); err != nil {
			return 0, err
		}
		list, _ := entriesAfter(tx, "")
		return len(list), nil
	})
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v, want %v", err, ErrDamaged)
	}
	if err := r.Entries(context.Background(), func(Entry) error { return nil }); !errors.Is(err, ErrChanged) {
		t.Errorf("afterwards: got %v, want %v", err, ErrChanged)
	}
}
