package kv

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"sessiond/replay/stamp"
)

// Bounds of one entry; what exceeds them is left out of the index.
const (
	keyBytesMax   = bbolt.MaxKeySize
	valueBytesMax = 16 << 20
)

// Bounds of the tombstones: beyond them the oldest go first.
const (
	TombstonesMax   = 10_000
	TombstoneAgeMax = 30 * 24 * time.Hour
)

// viewSeparator stands between the key of a session and the name of a view;
// neither holds it.
const viewSeparator = "\x00"

// Batch collects changes of any number of sessions for one Put; of two changes
// to one value the later one counts. The zero Batch is empty. It belongs to one
// goroutine, except that Put reads it. What cannot be kept - an empty or huge
// key, a huge value, a listing that is no JSON - is left out, and an older
// value in its place is deleted.
type Batch struct{ ops []op }

// op sets a value, or deletes it where value is nil; with prefix it deletes
// every value whose key begins with key.
type op struct {
	bucket, key, value []byte
	prefix             bool
}

// PutSignature sets a session's signature.
func (b *Batch) PutSignature(key string, s Signature) {
	payload, err := encodeSignature(s)
	b.add(bucketSignatures, key, payload, err)
}

// PutListing sets a session's listing.
func (b *Batch) PutListing(key string, l Listing) {
	payload, err := encodeListing(l)
	b.add(bucketListings, key, payload, err)
}

// PutCheckpoints sets a session's checkpoints.
func (b *Batch) PutCheckpoints(key string, c stamp.Checkpoints) {
	payload, err := encodeCheckpoints(c)
	b.add(bucketCheckpoints, key, payload, err)
}

// PutView sets a view of a session. A key or name with a zero byte in it
// cannot be kept.
func (b *Batch) PutView(key, view string, v View) {
	payload, err := encodeView(v)
	b.addView(key, view, payload, err)
}

// DeleteView forgets a view of a session.
func (b *Batch) DeleteView(key, view string) { b.addView(key, view, nil, nil) }

// PutTombstone puts a tombstone in the place of everything that is known of a
// session. Of all tombstones those are kept that Put finds to be at most
// TombstoneAgeMax old, by Removed, and of these the newest TombstonesMax.
func (b *Batch) PutTombstone(key string, t Tombstone) {
	b.Delete(key)
	payload, err := encodeTombstone(t)
	b.add(bucketTombstones, key, payload, err)
}

// DeleteTombstone forgets that a session was removed.
func (b *Batch) DeleteTombstone(key string) { b.add(bucketTombstones, key, nil, nil) }

// Delete forgets all of a session, its views too, but for its tombstone.
func (b *Batch) Delete(key string) {
	for _, bucket := range sessionBuckets {
		b.add(bucket, key, nil, nil)
	}
	if key != "" && len(key) < keyBytesMax {
		b.ops = append(b.ops, op{bucket: bucketViews, key: []byte(key + viewSeparator), prefix: true})
	}
}

func (b *Batch) addView(key, view string, payload []byte, err error) {
	if key != "" && !strings.Contains(key+view, viewSeparator) {
		b.add(bucketViews, key+viewSeparator+view, payload, err)
	}
}

func (b *Batch) add(bucket []byte, key string, payload []byte, err error) {
	if key == "" || len(key) > keyBytesMax {
		return
	}
	o := op{bucket: bucket, key: []byte(key)}
	if err == nil && payload != nil && len(payload) <= valueBytesMax {
		o.value = seal(bucket, o.key, payload)
	}
	b.ops = append(b.ops, o)
}

func apply(tx *bbolt.Tx, ops []op, now time.Time) error {
	buried := false
	for _, o := range ops {
		b := tx.Bucket(o.bucket)
		if b == nil {
			return fmt.Errorf("%w: no bucket %s", ErrDamaged, o.bucket)
		}
		var err error
		switch {
		case o.prefix:
			err = deletePrefix(b, o.key)
		case o.value == nil:
			err = b.Delete(o.key)
		default:
			err = b.Put(o.key, o.value)
			buried = buried || bytes.Equal(o.bucket, bucketTombstones)
		}
		if err != nil {
			return fmt.Errorf("%s of %q: %w", o.bucket, o.key, err)
		}
	}
	if buried {
		return pruneTombstones(tx.Bucket(bucketTombstones), now)
	}
	return nil
}

// deletePrefix deletes what begins with prefix. The keys are collected first:
// a bbolt cursor does not stand still while keys go.
func deletePrefix(b *bbolt.Bucket, prefix []byte) error {
	var keys [][]byte
	c := b.Cursor()
	for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		keys = append(keys, bytes.Clone(k))
	}
	return deleteAll(b, keys)
}

func deleteAll(b *bbolt.Bucket, keys [][]byte) error {
	for _, k := range keys {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// pruneTombstones keeps the tombstones within their bounds. One from the
// future, as a clock that was wrong left it, counts by its distance too: it
// would stay for ever and push others out.
func pruneTombstones(b *bbolt.Bucket, now time.Time) error {
	type aged struct {
		key     []byte
		removed time.Time
	}
	var kept []aged
	var gone [][]byte
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		key := bytes.Clone(k)
		payload, err := unseal(bucketTombstones, k, v)
		var t Tombstone
		if err == nil {
			t, err = decodeTombstone(payload)
		}
		if err != nil || now.Sub(t.Removed).Abs() > TombstoneAgeMax {
			gone = append(gone, key)
			continue
		}
		kept = append(kept, aged{key, t.Removed})
	}
	if len(kept) > TombstonesMax {
		slices.SortFunc(kept, func(a, b aged) int { return cmp.Or(b.removed.Compare(a.removed), bytes.Compare(a.key, b.key)) })
		for _, a := range kept[TombstonesMax:] {
			gone = append(gone, a.key)
		}
	}
	return deleteAll(b, gone)
}
