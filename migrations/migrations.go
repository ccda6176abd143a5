package migrations

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

// ErrNoSchema says that a database does not state its schema: it is none of
// ours, or damaged.
var ErrNoSchema = errors.New("migrations: no schema")

// Step makes schema To of schema To-1.
type Step struct {
	To    int
	Name  string
	Apply func(*bbolt.Tx) error
}

// Steps are all steps, To counting from 1 without a gap.
var Steps = []Step{
	{To: 1, Name: "first buckets", Apply: firstBuckets},
	{To: 2, Name: "views and tombstones", Apply: viewsAndTombstones},
}

// Newest returns the schema that steps lead to.
func Newest(steps []Step) int { return len(steps) }

// Run applies what steps hold beyond schema from, each in a transaction of its
// own. At an error the database keeps the schema of the last complete step.
func Run(db *bbolt.DB, steps []Step, from int) error {
	for _, s := range steps[min(from, len(steps)):] {
		err := db.Update(func(tx *bbolt.Tx) error {
			if err := s.Apply(tx); err != nil {
				return err
			}
			return setSchema(tx, s.To)
		})
		if err != nil {
			return fmt.Errorf("migrations: step %d (%s): %w", s.To, s.Name, err)
		}
	}
	return nil
}

// Schema returns the schema that a database states, or ErrNoSchema.
func Schema(tx *bbolt.Tx) (int, error) {
	b := tx.Bucket([]byte("meta"))
	if b == nil {
		return 0, fmt.Errorf("%w: no bucket meta", ErrNoSchema)
	}
	v := b.Get([]byte("schema"))
	if len(v) != 16 {
		return 0, fmt.Errorf("%w: key schema of %d bytes, want 16", ErrNoSchema, len(v))
	}
	n, complement := binary.BigEndian.Uint64(v), binary.BigEndian.Uint64(v[8:])
	if n != ^complement || n == 0 || n > 1<<31-1 {
		return 0, fmt.Errorf("%w: key schema is %x", ErrNoSchema, v)
	}
	return int(n), nil
}

func setSchema(tx *bbolt.Tx, n int) error {
	b := tx.Bucket([]byte("meta"))
	if b == nil {
		return fmt.Errorf("%w: no bucket meta", ErrNoSchema)
	}
	v := binary.BigEndian.AppendUint64(nil, uint64(n))
	return b.Put([]byte("schema"), binary.BigEndian.AppendUint64(v, ^uint64(n)))
}

// firstBuckets is step 1: signatures (one small record a session), listings
// (JSON) and checkpoints, each keyed by session.
func firstBuckets(tx *bbolt.Tx) error {
	for _, name := range []string{"meta", "signatures", "listings", "checkpoints"} {
		if _, err := tx.CreateBucket([]byte(name)); err != nil {
			return fmt.Errorf("bucket %s: %w", name, err)
		}
	}
	return nil
}

// viewsAndTombstones is step 2: views (chunk lists, keyed by session, 0, name
// of the view) and tombstones, keyed by session. What schema 1 held stays as it
// is: signatures of either version are read.
func viewsAndTombstones(tx *bbolt.Tx) error {
	for _, name := range []string{"views", "tombstones"} {
		if _, err := tx.CreateBucket([]byte(name)); err != nil {
			return fmt.Errorf("bucket %s: %w", name, err)
		}
	}
	return nil
}
