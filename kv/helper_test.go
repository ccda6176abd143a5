package kv

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"sessiond/migrations"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

// A goroutine that was in one of these when its handle was dropped stays; see
// handle.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("go.etcd.io/bbolt.(*DB).removeTx"),
		goleak.IgnoreAnyFunction("go.etcd.io/bbolt.(*Tx).Commit"))
}

// fake is a clock, and a listener that keeps what it is told.
type fake struct {
	mu        sync.Mutex
	now       time.Time
	aside     []SetAside
	degraded  []error
	recovered int
	migrated  [][2]int
	badValues int
}

func newFake() *fake { return &fake{now: buried} }

func (f *fake) advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

func (f *fake) options() Options {
	locked := func(fn func()) {
		f.mu.Lock()
		defer f.mu.Unlock()
		fn()
	}
	return Options{
		Now: func() time.Time {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.now
		},
		Listener: Listener{
			SetAside:  func(s SetAside) { locked(func() { f.aside = append(f.aside, s) }) },
			Migrated:  func(_ string, from, to int) { locked(func() { f.migrated = append(f.migrated, [2]int{from, to}) }) },
			Degraded:  func(err error) { locked(func() { f.degraded = append(f.degraded, err) }) },
			Recovered: func() { locked(func() { f.recovered++ }) },
			BadValue:  func(string, string, error) { locked(func() { f.badValues++ }) },
		},
	}
}

func mustOpen(t testing.TB, path string, o Options) *Index {
	t.Helper()
	x, err := Open(context.Background(), path, o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { mustClose(t, x) })
	return x
}

func mustClose(t testing.TB, x *Index) {
	t.Helper()
	if err := x.Close(context.Background()); err != nil {
		t.Errorf("close: %v", err)
	}
}

func mustPut(t testing.TB, x *Index, b *Batch) {
	t.Helper()
	if err := x.Put(context.Background(), b); err != nil {
		t.Fatalf("put: %v", err)
	}
}

func key(i int) string { return fmt.Sprintf("pi:project-%d/session-%04d.jsonl", i%3, i) }

func signature(i int) Signature {
	return Signature{
		Stamp:      stamp.Stamp{Size: int64(i) * 1000, MTimeNano: 1, CTimeNano: 2, Device: 3, Inode: uint64(i)},
		ReadAt:     time.Unix(1_700_000_000, int64(i)),
		BootID:     [16]byte{1, 2, byte(i)},
		Head:       stamp.Point{Sequence: uint64(i), Offset: int64(i) * 900, Digest: 0xabcdef << 8},
		Generation: wire.Generation{9, byte(i)},
		Dialect:    "pi",
		Rules:      "pi-3",
		Trusted:    i%2 == 1,
	}
}

func ptr[T any](v T) *T { return &v }

func listing(i int) Listing {
	return Listing{
		ID: fmt.Sprint(i), Title: ptr("Title " + fmt.Sprint(i)), CWD: ptr("/home/user"), MessageCount: ptr(i),
		RecordCount: ptr(int64(i)), State: &wire.State{Turn: wire.TurnIdle, Settings: []byte(`{}`)},
		Path: "/sessions/" + fmt.Sprint(i), Leaf: ptr("x"), ContextCount: ptr(i / 2), Tail: i%2 == 1,
	}
}

var viewNames = []string{"transcript", "context"}

// sampleView is number k of the views of session i.
func sampleView(i, k int) View {
	return View{
		Rules: "pi-3", Target: 512 << 10, At: signature(i).Head, Segments: []string{"a.seg", fmt.Sprint(i)}[:k+1],
		Chunks: i, Bytes: int64(i) * 1000, Data: bytes.Repeat([]byte{byte(i), byte(k)}, 20),
	}
}

// buried is when sample tombstones are from, and the time of a fake clock.
var buried = time.Unix(1_700_000_000, 0)

func tombstone(i int) Tombstone {
	return Tombstone{
		Removed: buried.Add(-time.Duration(i) * time.Second), ID: fmt.Sprint(i), Generation: wire.Generation{9, byte(i)},
		Head: signature(i).Head, Bytes: int64(i) * 1000,
	}
}

// views returns a batch of the views of sessions [from, to).
func views(from, to int) *Batch {
	b := &Batch{}
	for i := from; i < to; i++ {
		for k, name := range viewNames {
			b.PutView(key(i), name, sampleView(i, k))
		}
	}
	return b
}

// tombstones returns a batch of the tombstones of sessions [from, to).
func tombstones(from, to int) *Batch {
	b := &Batch{}
	for i := from; i < to; i++ {
		b.PutTombstone(key(i), tombstone(i))
	}
	return b
}

// readViews returns all views by key and name, and reports what is not as it
// was put.
func readViews(t testing.TB, x *Index) map[string]View {
	t.Helper()
	all := map[string]View{}
	if err := x.Views(context.Background(), func(k, name string, v View) error {
		all[k+" "+name] = v
		i, n := v.Chunks, slices.Index(viewNames, name)
		if n < 0 || k != key(i) || !reflect.DeepEqual(v, sampleView(i, n)) { // cmp is slow, and this runs for every flip
			t.Errorf("view %q of %q: got %+v", name, k, v)
		}
		return nil
	}); err != nil {
		t.Errorf("views: %v", err)
	}
	return all
}

// readTombstones returns all tombstones by key.
func readTombstones(t testing.TB, x *Index) map[string]Tombstone {
	t.Helper()
	all := map[string]Tombstone{}
	if err := x.Tombstones(context.Background(), func(k string, one Tombstone) error {
		all[k] = one
		return nil
	}); err != nil {
		t.Errorf("tombstones: %v", err)
	}
	return all
}

func checkpoints(n int) stamp.Checkpoints {
	var c stamp.Checkpoints
	d := stamp.NewDigest()
	for i := 1; i <= n; i++ {
		d.Write([]byte("a line\n"))
		c = append(c, stamp.Checkpoint{
			Point: stamp.Point{Sequence: uint64(i), Offset: int64(7 * i), Digest: d.Sum64()},
			State: d.State(),
		})
	}
	return c
}

// sessions returns a batch of sessions [from, to).
func sessions(from, to int) *Batch {
	b := &Batch{}
	for i := from; i < to; i++ {
		b.PutSignature(key(i), signature(i))
		b.PutListing(key(i), listing(i))
		b.PutCheckpoints(key(i), checkpoints(i%4))
	}
	return b
}

func readAll(t testing.TB, x *Index) map[string]Signature {
	t.Helper()
	all := map[string]Signature{}
	if err := x.Sessions(context.Background(), func(k string, s Signature) error {
		all[k] = s
		return nil
	}); err != nil {
		t.Errorf("sessions: %v", err)
	}
	return all
}

// sampleDeleted sessions were removed from a sample by its last transaction,
// which left tombstones, and come back where the newer meta page is damaged.
const sampleDeleted = 2

// sample is a closed index of n sessions, with pages so small that they form a
// tree of several levels, and some free pages.
func sample(t testing.TB, n int) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sample.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: 1024})
	if err != nil {
		t.Fatal(err)
	}
	if err := migrations.Run(db, migrations.Steps, 0); err != nil {
		t.Fatal(err)
	}
	put := sessions(0, n+sampleDeleted)
	put.ops = append(put.ops, views(0, n+sampleDeleted).ops...)
	for _, b := range []*Batch{put, tombstones(n, n+sampleDeleted)} {
		if err := db.Update(func(tx *bbolt.Tx) error { return apply(tx, b.ops, buried) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	b := readFile(t, path)
	m, err := readMeta(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return b[:int64(m.pages)*m.pageBytes] // the rest was only allocated
}

func deletion(from, to int) *Batch {
	b := &Batch{}
	for i := from; i < to; i++ {
		b.Delete(key(i))
	}
	return b
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeFile(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// beside lists what lies in the folder of the index, without its own name.
func beside(t testing.TB, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() != filepath.Base(path) {
			names = append(names, strings.TrimPrefix(e.Name(), filepath.Base(path)))
		}
	}
	return names
}

// wantSubset reports sessions that are neither absent nor as they were put.
func wantSubset(t testing.TB, got map[string]Signature, n int) {
	t.Helper()
	want := map[string]Signature{}
	for i := range n {
		want[key(i)] = signature(i)
	}
	for k, s := range got {
		if w, ok := want[k]; !ok || s != w {
			t.Errorf("session %q: got %+v, want %+v or none", k, s, w)
		}
	}
}

// patched returns a copy of b with the bits of mask flipped at a place.
func patched(b []byte, at int, mask byte) []byte {
	c := bytes.Clone(b)
	c[at] ^= mask
	return c
}

// spoil flips a bit in every copy of a value: a page that was replaced has it
// too.
func spoil(t testing.TB, b, value []byte) {
	t.Helper()
	n := bytes.Count(b, value)
	for at := bytes.Index(b, value); at >= 0; at = bytes.Index(b, value) {
		b[at+len(value)/2] ^= 1
	}
	if n == 0 {
		t.Fatalf("%x is not in the file", value)
	}
}
