package migrations

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
)

func open(t *testing.T, path string) *bbolt.DB {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func schema(t *testing.T, db *bbolt.DB) int {
	t.Helper()
	var n int
	if err := db.View(func(tx *bbolt.Tx) (err error) {
		n, err = Schema(tx)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// dump returns every key and value of every bucket but meta.
func dump(t *testing.T, db *bbolt.DB) map[string]string {
	t.Helper()
	all := map[string]string{}
	if err := db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			if string(name) == "meta" {
				return nil
			}
			return b.ForEach(func(k, v []byte) error {
				all[string(name)+"/"+string(k)] = string(v)
				return nil
			})
		})
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func hasBuckets(t *testing.T, db *bbolt.DB, names ...string) (all bool) {
	t.Helper()
	if err := db.View(func(tx *bbolt.Tx) error {
		all = !slices.ContainsFunc(names, func(name string) bool { return tx.Bucket([]byte(name)) == nil })
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestSteps_DenseAndNamed(t *testing.T) {
	for i, s := range Steps {
		if s.To != i+1 || s.Name == "" || s.Apply == nil {
			t.Errorf("step %d: got To %d, Name %q, Apply set %t; want To %d with both", i, s.To, s.Name, s.Apply != nil, i+1)
		}
	}
	if got := Newest(Steps); got != Steps[len(Steps)-1].To {
		t.Errorf("newest: got %d, want %d", got, Steps[len(Steps)-1].To)
	}
}

func TestRun_FromNothing(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "index.db"))
	if err := Run(db, Steps, 0); err != nil {
		t.Fatal(err)
	}
	if got := schema(t, db); got != Newest(Steps) {
		t.Errorf("schema: got %d, want %d", got, Newest(Steps))
	}
	if err := Run(db, Steps, Newest(Steps)); err != nil {
		t.Errorf("nothing to do: got %v, want nil", err)
	}
	if err := Run(db, Steps, Newest(Steps)+1); err != nil {
		t.Errorf("newer than the steps: got %v, want nil", err)
	}
}

// TestRun_FromCommitted starts from a committed file of each released schema.
// A step that changes what it keeps says so here.
func TestRun_FromCommitted(t *testing.T) {
	for from := 1; from <= Newest(Steps); from++ {
		t.Run(fmt.Sprintf("v%d", from), func(t *testing.T) {
			file, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("v%d.db", from)))
			if err != nil {
				t.Fatalf("every released schema has a committed file: %v", err)
			}
			path := filepath.Join(t.TempDir(), "index.db")
			if err := os.WriteFile(path, file, 0o600); err != nil {
				t.Fatal(err)
			}
			db := open(t, path)
			if got := schema(t, db); got != from {
				t.Fatalf("schema of the committed file: got %d, want %d", got, from)
			}
			before := dump(t, db)
			if len(before) == 0 {
				t.Fatal("committed file is empty")
			}
			if err := Run(db, Steps, from); err != nil {
				t.Fatal(err)
			}
			if got := schema(t, db); got != Newest(Steps) {
				t.Errorf("schema: got %d, want %d", got, Newest(Steps))
			}
			if from < 2 && !hasBuckets(t, db, "views", "tombstones") {
				t.Error("step 2 made no buckets for views and tombstones")
			}
			if diff := cmp.Diff(before, dump(t, db)); diff != "" {
				t.Errorf("data (-before +after):\n%s", diff)
			}
		})
	}
}

func TestRun_FailedStepLeavesTheOneBefore(t *testing.T) {
	broken := errors.New("broken")
	bucket := func(name string, err error) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error {
			_, create := tx.CreateBucket([]byte(name))
			return errors.Join(create, err)
		}
	}
	steps := append(slices.Clone(Steps[:1]),
		Step{To: 2, Name: "second", Apply: bucket("second", nil)},
		Step{To: 3, Name: "third", Apply: bucket("third", broken)})
	db := open(t, filepath.Join(t.TempDir(), "index.db"))
	if err := Run(db, steps, 0); !errors.Is(err, broken) {
		t.Fatalf("got %v, want %v", err, broken)
	}
	if got := schema(t, db); got != 2 {
		t.Errorf("schema: got %d, want 2", got)
	}
	if err := db.View(func(tx *bbolt.Tx) error {
		if tx.Bucket([]byte("second")) == nil || tx.Bucket([]byte("third")) != nil {
			t.Error("got the failed step's bucket or lost the good one's")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	steps[2].Apply = bucket("third", nil)
	if err := Run(db, steps, 2); err != nil {
		t.Fatal(err)
	}
	if got := schema(t, db); got != 3 {
		t.Errorf("schema after the repair: got %d, want 3", got)
	}
}

func TestSchema_Unreadable(t *testing.T) {
	for name, value := range map[string][]byte{
		"missing":    nil,
		"short":      {0, 0, 0, 0, 0, 0, 0, 1},
		"flipped":    {0, 0, 0, 0, 0, 0, 0, 3, 255, 255, 255, 255, 255, 255, 255, 254},
		"zero":       {0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255},
		"impossible": {255, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255},
	} {
		t.Run(name, func(t *testing.T) {
			db := open(t, filepath.Join(t.TempDir(), "index.db"))
			err := db.Update(func(tx *bbolt.Tx) error {
				if _, err := Schema(tx); !errors.Is(err, ErrNoSchema) {
					t.Errorf("empty database: got %v, want %v", err, ErrNoSchema)
				}
				if err := setSchema(tx, 1); !errors.Is(err, ErrNoSchema) {
					t.Errorf("set in an empty database: got %v, want %v", err, ErrNoSchema)
				}
				b, err := tx.CreateBucket([]byte("meta"))
				if err == nil && value != nil {
					err = b.Put([]byte("schema"), value)
				}
				if err != nil {
					return err
				}
				if n, err := Schema(tx); !errors.Is(err, ErrNoSchema) {
					t.Errorf("got %d, %v, want %v", n, err, ErrNoSchema)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
