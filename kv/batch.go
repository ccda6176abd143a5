package kv

import (
	"fmt"

	"go.etcd.io/bbolt"

	"sessiond/replay/stamp"
)

// Bounds of one entry; what exceeds them is left out of the index.
const (
	keyBytesMax   = bbolt.MaxKeySize
	valueBytesMax = 16 << 20
)

// Batch collects changes of any number of sessions for one Put; of two changes
// to one value the later one counts. The zero Batch is empty. It belongs to one
// goroutine, except that Put reads it. What cannot be kept - an empty or huge
// key, a huge value, a listing that is no JSON - is left out, and an older
// value in its place is deleted.
type Batch struct{ ops []op }

// op sets a value, or deletes it where value is nil.
type op struct{ bucket, key, value []byte }

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

// Delete forgets all of a session.
func (b *Batch) Delete(key string) {
	for _, bucket := range sessionBuckets {
		b.add(bucket, key, nil, nil)
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

func apply(tx *bbolt.Tx, ops []op) error {
	for _, o := range ops {
		b := tx.Bucket(o.bucket)
		if b == nil {
			return fmt.Errorf("%w: no bucket %s", ErrDamaged, o.bucket)
		}
		var err error
		if o.value == nil {
			err = b.Delete(o.key)
		} else {
			err = b.Put(o.key, o.value)
		}
		if err != nil {
			return fmt.Errorf("%s of %q: %w", o.bucket, o.key, err)
		}
	}
	return nil
}
