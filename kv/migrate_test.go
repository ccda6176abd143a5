package kv

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"sessiond/migrations"
)

var update = flag.Bool("update", false, "write the committed database file of the newest schema, if there is none")

func committed(schema int) string {
	return filepath.Join("..", "migrations", "testdata", fmt.Sprintf("v%d.db", schema))
}

// committedSessions are in every committed file, whatever its schema.
const committedSessions = 3

// Every released schema is read through all later steps. A file that was
// committed is never written again.
func TestCommittedFiles(t *testing.T) {
	newest := migrations.Newest(migrations.Steps)
	if _, err := os.Stat(committed(newest)); *update && errors.Is(err, os.ErrNotExist) {
		writeFile(t, committed(newest), sample(t, committedSessions))
	}
	for schema := 1; schema <= newest; schema++ {
		t.Run(fmt.Sprintf("v%d", schema), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "index.db")
			writeFile(t, path, readFile(t, committed(schema)))
			f := newFake()
			x := mustOpen(t, path, f.options())
			if got := readAll(t, x); len(got) != committedSessions || len(f.aside) != 0 {
				t.Errorf("got %d sessions, set aside %+v, want %d, nothing", len(got), f.aside, committedSessions)
			}
			for i := range committedSessions {
				want := signature(i)
				want.Trusted = want.Trusted && schema >= 2
				if got, ok := x.Signature(context.Background(), key(i)); !ok || got != want {
					t.Errorf("signature %d: got %+v, %t, want %+v", i, got, ok, want)
				}
			}
			want := listing(1)
			if schema < 2 {
				want.Path, want.Leaf, want.ContextCount, want.Tail = "", nil, nil, false
			}
			l, _ := x.Listing(context.Background(), key(1))
			if diff := cmp.Diff(want, l); diff != "" {
				t.Errorf("listing (-want +got):\n%s", diff)
			}
			c, _ := x.Checkpoints(context.Background(), key(2))
			if diff := cmp.Diff(checkpoints(2), c); diff != "" {
				t.Errorf("checkpoints (-want +got):\n%s", diff)
			}
			wantViews, wantTombstones := committedSessions*len(viewNames), sampleDeleted
			if schema < 2 {
				wantViews, wantTombstones = 0, 0
			}
			if n, m := len(readViews(t, x)), len(readTombstones(t, x)); n != wantViews || m != wantTombstones {
				t.Errorf("got %d views, %d tombstones, want %d, %d", n, m, wantViews, wantTombstones)
			}
			mustPut(t, x, views(0, 1)) // what schema 2 brought is there to be written
			mustPut(t, x, tombstones(7, 8))
			if n, m := len(readViews(t, x)), len(readTombstones(t, x)); n < len(viewNames) || m != wantTombstones+1 {
				t.Errorf("after a put: got %d views, %d tombstones", n, m)
			}
			if st := x.Stats(context.Background()); st.Schema != newest || st.BadValues != 0 {
				t.Errorf("got %+v, want schema %d and no bad value", st, newest)
			}
		})
	}
}

func TestOpen_Migrates(t *testing.T) {
	next := func(apply func(*bbolt.Tx) error) []migrations.Step {
		return slices.Concat(migrations.Steps, []migrations.Step{
			{To: len(migrations.Steps) + 1, Name: "next", Apply: apply},
		})
	}
	for _, c := range []struct {
		name  string
		apply func(*bbolt.Tx) error
		keeps bool
	}{
		{"adds a bucket", func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket([]byte("added"))
			return err
		}, true},
		{"fails", func(tx *bbolt.Tx) error {
			if tx.Bucket(bucketSignatures).Stats().KeyN > 0 {
				return errors.New("cannot")
			}
			return nil
		}, false},
		{"panics", func(tx *bbolt.Tx) error {
			if tx.Bucket(bucketSignatures).Stats().KeyN > 0 {
				panic("cannot")
			}
			return nil
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "index.db")
			x := mustOpen(t, path, Options{})
			mustPut(t, x, sessions(0, 2))
			mustClose(t, x)
			f := newFake()
			o := f.options()
			o.steps = next(c.apply)
			x = mustOpen(t, path, o)
			got := readAll(t, x)
			if c.keeps && (len(got) != 2 || len(f.aside) != 0 || len(f.migrated) != 1) {
				t.Errorf("got %d sessions, set aside %+v, migrated %v, want 2, nothing, once", len(got), f.aside, f.migrated)
			}
			if !c.keeps && (len(got) != 0 || len(f.aside) != 1) {
				t.Errorf("got %d sessions, set aside %+v, want none, once", len(got), f.aside)
			}
			mustPut(t, x, sessions(0, 1))
		})
	}
}
