package kv

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"sessiond/migrations"
)

// An index that cannot be used is set aside, said loudly, and replaced.
func TestOpen_SetsAside(t *testing.T) {
	good := sample(t, sampleSessions)
	newer := slices.Concat(migrations.Steps, []migrations.Step{
		{To: migrations.Newest(migrations.Steps) + 1, Name: "of a later version", Apply: func(*bbolt.Tx) error { return nil }},
	})
	write := func(b []byte) func(*testing.T, string) {
		return func(t *testing.T, path string) { writeFile(t, path, b) }
	}
	bolt := func(fn func(*bbolt.Tx) error) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(db.Update(fn), db.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name  string
		place func(*testing.T, string)
		cause error
		infix string
	}{
		{"empty", write(nil), ErrDamaged, badInfix},
		{"zeroes", write(make([]byte, 64<<10)), ErrDamaged, badInfix},
		{"garbage", write(bytes.Repeat([]byte("garbage!"), 8<<10)), ErrDamaged, badInfix},
		{"cut to one page", write(good[:1024]), ErrDamaged, badInfix},
		{"cut in the middle", write(good[:len(good)/2]), ErrDamaged, badInfix},
		{"last page missing", write(good[:len(good)-1]), ErrDamaged, badInfix},
		{"zeroes behind the meta pages", write(append(bytes.Clone(good[:2048]), make([]byte, len(good))...)), ErrDamaged, badInfix},
		{"folder", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, ErrDamaged, badInfix},
		{"FIFO", func(t *testing.T, path string) {
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}, ErrDamaged, badInfix},
		{"other program's database", bolt(func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket([]byte("theirs"))
			return err
		}), ErrDamaged, badInfix},
		{"bucket missing", func(t *testing.T, path string) {
			write(good)(t, path)
			bolt(func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketListings) })(t, path)
		}, ErrDamaged, badInfix},
		{"bucket of the last step missing", func(t *testing.T, path string) {
			write(good)(t, path)
			bolt(func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketTombstones) })(t, path)
		}, ErrDamaged, badInfix},
		{"newer schema", func(t *testing.T, path string) {
			o := Options{steps: newer}
			mustClose(t, mustOpen(t, path, o))
		}, ErrNewerSchema, schemaInfix + fmt.Sprint(migrations.Newest(newer))},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "index.db")
			c.place(t, path)
			f := newFake()
			x := mustOpen(t, path, f.options())
			if got := readAll(t, x); len(got) != 0 {
				t.Errorf("got %d sessions, want none", len(got))
			}
			mustPut(t, x, sessions(0, 2))
			if len(readAll(t, x)) != 2 {
				t.Error("new index does not keep sessions")
			}
			if len(f.aside) != 1 || !errors.Is(f.aside[0].Cause, c.cause) || !strings.HasPrefix(f.aside[0].Aside, path+c.infix) {
				t.Fatalf("set aside: got %+v, want once, %v, at %s...", f.aside, c.cause, path+c.infix)
			}
			if got := beside(t, path); len(got) != 1 || path+got[0] != f.aside[0].Aside {
				t.Errorf("files beside: got %q, want %q", got, f.aside[0].Aside)
			}
			if st := x.Stats(context.Background()); st.Rebuilt != 1 || st.Degraded != "" {
				t.Errorf("stats: got rebuilt %d, degraded %q, want 1, none", st.Rebuilt, st.Degraded)
			}
		})
	}
}

func TestOpen_KeepsAFewSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	for range 6 { // at one instant: the names must differ all the same
		writeFile(t, path, []byte("garbage"))
		mustClose(t, mustOpen(t, path, newFake().options()))
	}
	if got := beside(t, path); len(got) != asideFileMax {
		t.Errorf("files beside: got %q, want %d", got, asideFileMax)
	}
}

func TestOpen_OlderCopy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	x := mustOpen(t, path, Options{})
	mustPut(t, x, sessions(0, 2))
	mustClose(t, x)
	older := readFile(t, path)
	x = mustOpen(t, path, Options{})
	mustPut(t, x, sessions(2, 4))
	mustClose(t, x)
	writeFile(t, path, older)
	x = mustOpen(t, path, Options{})
	if got := readAll(t, x); len(got) != 2 {
		t.Errorf("got %d sessions, want the 2 of the copy", len(got))
	}
	mustPut(t, x, sessions(2, 5))
	if got := readAll(t, x); len(got) != 5 {
		t.Errorf("got %d sessions, want 5", len(got))
	}
}

// A process killed before the rename leaves its temporary file.
func TestOpen_SweepsTemporaryFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	writeFile(t, path+tempSuffix, sample(t, 1)[:3000])
	x := mustOpen(t, path, Options{})
	mustPut(t, x, sessions(0, 1))
	mustClose(t, x)
	if got := beside(t, path); len(got) != 0 {
		t.Errorf("files beside: got %q, want none", got)
	}
	writeFile(t, path+tempSuffix, nil) // beside an index that is there
	x = mustOpen(t, path, Options{})
	if got := beside(t, path); len(got) != 0 || len(readAll(t, x)) != 1 {
		t.Errorf("files beside: got %q, want none and the session", got)
	}
}

func TestOpen_Locked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	x := mustOpen(t, path, Options{})
	mustPut(t, x, sessions(0, 1))
	o := Options{LockTimeout: 3 * lockPoll}
	if _, err := Open(context.Background(), path, o); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), path) {
		t.Errorf("second: got %v, want %v with the path", err, ErrLocked)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Open(ctx, path, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("second, cancelled: got %v, want %v", err, context.Canceled)
	}
	if got := beside(t, path); len(got) != 0 {
		t.Errorf("files beside: got %q, want none", got)
	}
	mustClose(t, x)
	if x = mustOpen(t, path, o); len(readAll(t, x)) != 1 {
		t.Error("after the first is closed: want its session")
	}
}

// A file that is cut while it is open faults in whoever reads it. All callers
// return, and the next Put begins a new index.
func TestTruncate_WhileOpen(t *testing.T) {
	ctx := context.Background()
	for _, size := range []int64{0, 1, 4096, 8192, 12288, 20480, -4096} {
		path := filepath.Join(t.TempDir(), "index.db")
		f := newFake()
		x := mustOpen(t, path, f.options())
		mustPut(t, x, sessions(0, 200))
		if size < 0 {
			size += x.Stats(ctx).Bytes
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				if w == 0 {
					_ = x.Put(ctx, sessions(0, 50))
				}
				for i := range 200 {
					x.Listing(ctx, key(i))
					x.Checkpoints(ctx, key(i))
				}
				wantSubset(t, readAll(t, x), 200)
			})
		}
		wg.Wait()
		if err := x.Put(ctx, sessions(0, 10)); err != nil { // may meet what no reader met
			f.advance(retryDelayMax)
			mustPut(t, x, sessions(0, 10))
		}
		wantSubset(t, readAll(t, x), 200)
		if s, ok := x.Signature(ctx, key(9)); !ok || s != signature(9) {
			t.Errorf("cut to %d: after a put: got %+v, %t, want %+v", size, s, ok, signature(9))
		}
		if st := x.Stats(ctx); size == 0 && st.Rebuilt == 0 || st.Degraded != "" {
			t.Errorf("cut to %d: stats: got rebuilt %d, degraded %q, want one, none", size, st.Rebuilt, st.Degraded)
		}
		mustClose(t, x)
	}
}

// A read does not repair, but says that there is no index.
func TestTruncate_ReadersFindNothing(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "index.db")
	f := newFake()
	x := mustOpen(t, path, f.options())
	mustPut(t, x, sessions(0, 10))
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, ok := x.Signature(ctx, key(1)); ok {
			t.Error("signature: got one, want none")
		}
	}
	if st := x.Stats(ctx); st.Rebuilt != 0 || st.Degraded == "" || len(f.degraded) != 1 || len(f.aside) != 0 {
		t.Errorf("after reads: got %+v, %d reports, want degraded, once", st, len(f.degraded))
	}
	mustPut(t, x, sessions(0, 1))
	if st := x.Stats(ctx); st.Rebuilt != 1 || st.Degraded != "" || f.recovered != 1 || st.Sessions != 1 {
		t.Errorf("after a put: got %+v, %d recoveries, want rebuilt and one session", st, f.recovered)
	}
}

// Replaced under its name, a lost file is not taken for the one at the path.
func TestTruncate_OtherFileAtThePath(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "index.db")
	f := newFake()
	x := mustOpen(t, path, f.options())
	mustPut(t, x, sessions(0, 3))
	other := path + "-other"
	writeFile(t, other, sample(t, sampleSessions))
	if err := errors.Join(os.Truncate(path, 0), os.Rename(other, path)); err != nil {
		t.Fatal(err)
	}
	x.Signature(ctx, key(0))
	mustPut(t, x, sessions(0, 1))
	if got := readAll(t, x); len(got) != sampleSessions || len(f.aside) != 0 {
		t.Errorf("got %d sessions, set aside %+v, want %d and nothing", len(got), f.aside, sampleSessions)
	}
}

func TestClose_AfterFault(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	x := mustOpen(t, path, newFake().options())
	mustPut(t, x, sessions(0, 3))
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	x.Signature(context.Background(), key(0))
	mustClose(t, x)
	mustClose(t, x)
	if x = mustOpen(t, path, Options{}); len(readAll(t, x)) != 0 {
		t.Error("want an empty index")
	}
}

func TestBadValue_IsAbsentAndCounted(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "index.db")
	f := newFake()
	x := mustOpen(t, path, f.options())
	mustPut(t, x, sessions(0, 3))
	mustClose(t, x)
	b := readFile(t, path)
	title := bytes.Index(b, []byte("Title 1"))
	writeFile(t, path, patched(b, title, 1))
	x = mustOpen(t, path, f.options())
	if _, ok := x.Listing(ctx, key(1)); ok {
		t.Error("listing: got one, want none")
	}
	if _, ok := x.Listing(ctx, key(2)); !ok {
		t.Error("listing beside: got none, want one")
	}
	if st := x.Stats(ctx); st.BadValues != 1 || f.badValues != 1 {
		t.Errorf("bad values: got %d, %d reported, want 1, 1", st.BadValues, f.badValues)
	}
	mustPut(t, x, sessions(1, 2))
	if _, ok := x.Listing(ctx, key(1)); !ok {
		t.Error("listing put again: got none, want one")
	}
}

func TestBadValue_ViewsAndTombstones(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "index.db")
	f := newFake()
	x := mustOpen(t, path, f.options())
	mustPut(t, x, views(20, 23))
	mustPut(t, x, tombstones(30, 33))
	mustClose(t, x)
	b := readFile(t, path)
	spoil(t, b, sampleView(21, 1).Data)
	spoil(t, b, binary.BigEndian.AppendUint64(nil, uint64(tombstone(31).Removed.UnixNano())))
	writeFile(t, path, b)
	x = mustOpen(t, path, f.options())
	if _, ok := x.View(ctx, key(21), viewNames[1]); ok {
		t.Error("view: got one, want none")
	}
	if _, ok := x.View(ctx, key(21), viewNames[0]); !ok {
		t.Error("view beside: got none, want one")
	}
	if _, ok := x.Tombstone(ctx, key(31)); ok {
		t.Error("tombstone: got one, want none")
	}
	if n, m := len(readViews(t, x)), len(readTombstones(t, x)); n != 5 || m != 2 || f.badValues != 4 {
		t.Errorf("got %d views, %d tombstones, %d bad values, want 5, 2, 4", n, m, f.badValues)
	}
	mustPut(t, x, tombstones(33, 34)) // drops the bad one
	before := f.badValues
	if m := len(readTombstones(t, x)); m != 3 || f.badValues != before {
		t.Errorf("got %d tombstones, %d bad values more, want 3, none", m, f.badValues-before)
	}
}

// A folder that takes no file: the index is off, and comes back by itself.
func TestDegraded_CannotCreate(t *testing.T) {
	for _, cause := range []syscall.Errno{syscall.EROFS, syscall.ENOSPC, syscall.EACCES, syscall.EMFILE} {
		t.Run(cause.Error(), func(t *testing.T) {
			ctx := context.Background()
			path := filepath.Join(t.TempDir(), "index.db")
			f := newFake()
			o := f.options()
			o.files = osFiles
			fail, tries := true, 0
			o.files.open = func(path string, flag int, mode fs.FileMode) (*os.File, error) {
				if flag&os.O_CREATE != 0 {
					if tries++; fail {
						return nil, &fs.PathError{Op: "open", Path: path, Err: cause}
					}
				}
				return os.OpenFile(path, flag, mode)
			}
			x := mustOpen(t, path, o)
			if _, ok := x.Signature(ctx, key(0)); ok {
				t.Error("signature: got one, want none")
			}
			for range 3 { // the first retry comes at once, the next waits
				if err := x.Put(ctx, sessions(0, 1)); !errors.Is(err, ErrUnavailable) || !errors.Is(err, cause) {
					t.Errorf("put: got %v, want %v, %v", err, ErrUnavailable, cause)
				}
			}
			st := x.Stats(ctx)
			if tries != 2 || st.DroppedWrites != 9 || !strings.Contains(st.Degraded, cause.Error()) || len(f.degraded) != 1 {
				t.Errorf("got %d tries, %+v, %d reports, want 2, 9 dropped writes, 1", tries, st, len(f.degraded))
			}
			f.advance(retryDelayMin)
			fail = false
			mustPut(t, x, sessions(0, 1))
			if st := x.Stats(ctx); st.Sessions != 1 || st.Degraded != "" || f.recovered != 1 {
				t.Errorf("recovered: got %+v, %d reports, want one session", st, f.recovered)
			}
		})
	}
}

// A disk that takes no more bytes: what was stored is still there afterwards.
func TestDegraded_CannotWrite(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "index.db")
	x := mustOpen(t, path, Options{})
	mustPut(t, x, sessions(0, 2))
	mustClose(t, x)

	f := newFake()
	o := f.options()
	o.files = osFiles
	fail := true
	o.files.open = func(path string, flag int, mode fs.FileMode) (*os.File, error) {
		if fail {
			flag &^= os.O_RDWR // each write fails
		}
		return os.OpenFile(path, flag, mode)
	}
	x = mustOpen(t, path, o)
	if got := readAll(t, x); len(got) != 2 {
		t.Errorf("got %d sessions, want 2", len(got))
	}
	for range 4 {
		if err := x.Put(ctx, sessions(2, 3)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("put: got %v, want %v", err, ErrUnavailable)
		}
		f.advance(time.Millisecond)
	}
	if st := x.Stats(ctx); st.Degraded == "" || st.Rebuilt != 0 || len(f.aside) != 0 {
		t.Errorf("got %+v, set aside %+v, want degraded and nothing lost", st, f.aside)
	}
	fail = false
	f.advance(retryDelayMax)
	mustPut(t, x, sessions(2, 3))
	if got := readAll(t, x); len(got) != 3 {
		t.Errorf("recovered: got %d sessions, want 3", len(got))
	}
}

// Where not even the rename works, the damaged file stays and is tried again.
func TestDegraded_CannotSetAside(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "index.db")
	writeFile(t, path, []byte("garbage"))
	f := newFake()
	o := f.options()
	o.files = osFiles
	fail := true
	o.files.rename = func(from, to string) error {
		if fail {
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: syscall.EROFS}
		}
		return os.Rename(from, to)
	}
	x := mustOpen(t, path, o)
	if err := x.Put(ctx, sessions(0, 1)); !errors.Is(err, syscall.EROFS) || !errors.Is(err, ErrDamaged) {
		t.Errorf("put: got %v, want %v and %v", err, syscall.EROFS, ErrDamaged)
	}
	fail = false
	f.advance(retryDelayMax)
	mustPut(t, x, sessions(0, 1))
	if st := x.Stats(ctx); st.Rebuilt != 1 || st.Sessions != 1 {
		t.Errorf("got %+v, want rebuilt once with one session", st)
	}

	// The same after a fault of the open file.
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	fail = true
	for range 2 {
		if err := x.Put(ctx, sessions(0, 1)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("put: got %v, want %v", err, ErrUnavailable)
		}
	}
	fail = false
	f.advance(retryDelayMax)
	mustPut(t, x, sessions(0, 1))
	if st := x.Stats(ctx); st.Rebuilt != 2 || st.Sessions != 1 {
		t.Errorf("got %+v, want rebuilt twice with one session", st)
	}
}

func TestOutgrown_BeginsAgain(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "index.db")
	f := newFake()
	o := f.options()
	o.BytesMax = 256 << 10
	x := mustOpen(t, path, o)
	stored := 0
	for ; stored < 2000; stored += 100 {
		if x.Put(ctx, sessions(stored, stored+100)) != nil {
			break
		}
	}
	if stored == 0 || stored == 2000 {
		t.Fatalf("stored %d sessions, want the bound in between", stored)
	}
	mustPut(t, x, sessions(0, 100))
	if len(f.aside) != 1 || !errors.Is(f.aside[0].Cause, ErrOutgrown) || f.aside[0].Aside != "" || len(beside(t, path)) != 0 {
		t.Errorf("got %+v, beside %q, want removed once", f.aside, beside(t, path))
	}
	if got := readAll(t, x); len(got) != 100 {
		t.Errorf("got %d sessions, want 100", len(got))
	}
}
