package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"sessiond/migrations"
	"sessiond/replay/stamp"
)

// Buckets of the newest schema; the tree is in doc.go.
var (
	bucketSignatures  = []byte("signatures")
	bucketListings    = []byte("listings")
	bucketCheckpoints = []byte("checkpoints")
	bucketViews       = []byte("views")
	bucketTombstones  = []byte("tombstones")

	sessionBuckets = [...][]byte{bucketSignatures, bucketListings, bucketCheckpoints} // keyed by session
	allBuckets     = [...][]byte{bucketSignatures, bucketListings, bucketCheckpoints, bucketViews, bucketTombstones}
)

// Bounds of what one transaction copies; one value may exceed the second.
const (
	pageEntriesMax = 1024
	pageBytesMost  = 4 << 20
)

// Index is the index in one file. It is safe for concurrent use; there is one
// writer at a time.
type Index struct {
	path string
	opts Options

	// writer holds one token; who has it may write, open and set aside.
	writer chan struct{}

	mu         sync.Mutex // guards all below; never held over I/O or a callback
	cur        *handle    // nil: there is no index now
	degraded   error      // why cur is nil
	lost       *handle    // failed because of lostCause; the next writer cleans it up
	lostCause  error
	retryAt    time.Time
	retryDelay time.Duration
	closed     bool
	badValues  int64
	rebuilt    int64
	dropped    int64
}

// Stats is the state of the index for a status report.
type Stats struct {
	Path          string `json:"path"`
	Bytes         int64  `json:"bytes"`
	Schema        int    `json:"schema"`
	Sessions      int    `json:"sessions"`
	BadValues     int64  `json:"badValues"`     // read and found wrong, since Open
	Rebuilt       int64  `json:"rebuilt"`       // set aside or removed, since Open
	DroppedWrites int64  `json:"droppedWrites"` // changes that were not stored, since Open
	Degraded      string `json:"degraded,omitempty"`
}

// Open opens the index at path, in a folder that exists and that no other
// process uses. It fails only with ErrLocked or the context's error; whatever
// else is wrong leaves an index that knows nothing and tries again when
// something is put.
func Open(ctx context.Context, path string, opts Options) (*Index, error) {
	x := &Index{path: path, opts: opts.withDefaults(), writer: make(chan struct{}, 1)}
	h, err := x.openFile(ctx)
	switch {
	case err == nil:
		x.adopt(h)
	case errors.Is(err, ErrLocked) || ctx.Err() != nil:
		return nil, err
	default:
		x.lose(nil, err)
	}
	return x, nil
}

// Close waits for the write in progress and closes the file. It may be called
// again after an error, and after success.
func (x *Index) Close(ctx context.Context) error {
	if err := x.take(ctx); err != nil {
		if errors.Is(err, ErrClosed) {
			return nil
		}
		return err
	}
	defer x.give()
	x.mu.Lock()
	handles := []*handle{x.cur, x.lost}
	x.cur, x.lost, x.closed = nil, nil, true
	x.mu.Unlock()
	var err error
	for _, h := range handles {
		if h != nil {
			err = errors.Join(err, h.close())
		}
	}
	return err // the next Open sets aside what is left to be
}

// Sessions calls fn with every session's signature, in key order, outside of
// any transaction. It stops at an error of fn or of the context and returns
// it; where the index fails, the rest is absent. Sessions that are put while
// it runs may be missed or seen.
func (x *Index) Sessions(ctx context.Context, fn func(key string, s Signature) error) error {
	return each(ctx, x, bucketSignatures, decodeSignature, fn)
}

// Views calls fn with every view of every session, in the order of their keys
// and names, under the rules of Sessions.
func (x *Index) Views(ctx context.Context, fn func(key, view string, v View) error) error {
	return each(ctx, x, bucketViews, decodeView, func(k string, v View) error {
		key, view, _ := strings.Cut(k, viewSeparator)
		return fn(key, view, v)
	})
}

// Tombstones calls fn with every tombstone, in key order, under the rules of
// Sessions.
func (x *Index) Tombstones(ctx context.Context, fn func(key string, t Tombstone) error) error {
	return each(ctx, x, bucketTombstones, decodeTombstone, fn)
}

// each calls fn with what a bucket holds, page by page.
func each[T any](ctx context.Context, x *Index, bucket []byte, decodeValue func([]byte) (T, error), fn func(string, T) error) error {
	for after := ""; ; {
		p, _ := view(ctx, x, func(tx *bbolt.Tx) part { return pageAfter(tx.Bucket(bucket), after) })
		for _, e := range p.entries {
			v, ok := decode(x, bucket, e.key, e.stored, decodeValue)
			if !ok {
				continue
			}
			if err := fn(string(e.key), v); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !p.more {
			return nil
		}
		after = string(p.entries[len(p.entries)-1].key)
	}
}

// entry is a key and its sealed value.
type entry struct{ key, stored []byte }

// part is a page of a bucket's entries; where there is more, it is not empty.
type part struct {
	entries []entry
	more    bool
}

// pageAfter copies what follows a key, as far as the bounds of a page allow.
func pageAfter(b *bbolt.Bucket, after string) (p part) {
	c, n := b.Cursor(), 0
	for k, v := c.Seek([]byte(after)); k != nil; k, v = c.Next() {
		if string(k) == after {
			continue
		}
		n += len(k) + len(v)
		if len(p.entries) > 0 && (len(p.entries) == pageEntriesMax || n > pageBytesMost) {
			p.more = true
			return p
		}
		p.entries = append(p.entries, entry{key: bytes.Clone(k), stored: bytes.Clone(v)})
	}
	return p
}

// Signature returns a session's signature.
func (x *Index) Signature(ctx context.Context, key string) (Signature, bool) {
	return get(ctx, x, bucketSignatures, key, decodeSignature)
}

// Listing returns a session's listing.
func (x *Index) Listing(ctx context.Context, key string) (Listing, bool) {
	return get(ctx, x, bucketListings, key, decodeListing)
}

// Checkpoints returns the checkpoints of a session's digest.
func (x *Index) Checkpoints(ctx context.Context, key string) (stamp.Checkpoints, bool) {
	return get(ctx, x, bucketCheckpoints, key, decodeCheckpoints)
}

// View returns a view of a session.
func (x *Index) View(ctx context.Context, key, view string) (View, bool) {
	return get(ctx, x, bucketViews, key+viewSeparator+view, decodeView)
}

// Tombstone returns what is left of a session that was removed.
func (x *Index) Tombstone(ctx context.Context, key string) (Tombstone, bool) {
	return get(ctx, x, bucketTombstones, key, decodeTombstone)
}

// Put stores a batch in one transaction; at nil it is on disk as a whole, else
// it was dropped (or, after a fault, may be there). The caller may put it again
// or ignore the error: what the index does not know is computed again. Each Put
// costs a sync; callers collect changes for up to a second. ctx bounds the wait
// for the writer before, not the write itself.
func (x *Index) Put(ctx context.Context, b *Batch) error {
	ops := b.ops
	if len(ops) == 0 {
		return nil
	}
	err := x.put(ctx, ops)
	if err != nil {
		x.mu.Lock()
		x.dropped += int64(len(ops))
		x.mu.Unlock()
	}
	return err
}

func (x *Index) put(ctx context.Context, ops []op) error {
	if err := x.take(ctx); err != nil {
		return err
	}
	defer x.give()
	h, err := x.ready(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	now := x.opts.Now()
	_, err = run(context.WithoutCancel(ctx), h, func() (struct{}, error) {
		return struct{}{}, h.update(func(tx *bbolt.Tx) error { return apply(tx, ops, now) })
	})
	if err == nil {
		x.mu.Lock()
		x.retryDelay = 0
		x.mu.Unlock()
		return nil
	}
	// Where the file is not to blame - a full disk, a failed sync - it is
	// closed and looked at again by the next open.
	switch {
	case errors.Is(err, bbolterrors.ErrMaxSizeReached):
		err = &unusable{cause: fmt.Errorf("%w of %d bytes", ErrOutgrown, x.opts.BytesMax)}
	case errors.Is(err, ErrDamaged), errors.Is(err, bbolterrors.ErrIncompatibleValue):
		err = &unusable{cause: err}
	}
	x.lose(h, err)
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// Stats reports the state of the index.
func (x *Index) Stats(ctx context.Context) Stats {
	st := Stats{Path: x.path, Schema: migrations.Newest(x.opts.steps)}
	if info, err := os.Stat(x.path); err == nil {
		st.Bytes = info.Size()
	}
	st.Sessions, _ = view(ctx, x, func(tx *bbolt.Tx) int { return tx.Bucket(bucketSignatures).Stats().KeyN })
	x.mu.Lock()
	defer x.mu.Unlock()
	st.BadValues, st.Rebuilt, st.DroppedWrites = x.badValues, x.rebuilt, x.dropped
	if x.degraded != nil {
		st.Degraded = x.degraded.Error()
	}
	return st
}

// take waits for the write token.
func (x *Index) take(ctx context.Context) error {
	select {
	case x.writer <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	x.mu.Lock()
	closed := x.closed
	x.mu.Unlock()
	if closed {
		x.give()
		return ErrClosed
	}
	return nil
}

func (x *Index) give() { <-x.writer }

// ready returns the handle, opening the file where there is none and the
// back-off is over. The caller holds the write token: a read never repairs,
// so that no reader waits for a sync.
func (x *Index) ready(ctx context.Context) (*handle, error) {
	x.mu.Lock()
	h, degraded, wait := x.cur, x.degraded, x.retryAt.After(x.opts.Now())
	x.mu.Unlock()
	if h != nil {
		return h, nil
	}
	if wait {
		return nil, degraded
	}
	err := x.cleanUp()
	if err == nil {
		h, err = x.openFile(ctx)
	}
	if err != nil {
		if ctx.Err() == nil {
			x.lose(nil, err)
		}
		return nil, err
	}
	x.adopt(h)
	return h, nil
}

func (x *Index) adopt(h *handle) {
	x.mu.Lock()
	recovered := x.degraded != nil
	x.cur, x.degraded = h, nil
	x.mu.Unlock()
	if recovered {
		x.opts.Listener.Recovered()
	}
}

// lose takes note that h, or where h is nil the attempt to open, failed: from
// now on there is no index, until a Put after the back-off opens one.
func (x *Index) lose(h *handle, cause error) {
	x.mu.Lock()
	if x.cur != h {
		x.mu.Unlock()
		return // another user of the same handle was first
	}
	first := x.degraded == nil
	x.cur, x.degraded = nil, cause
	if h != nil {
		x.lost, x.lostCause = h, cause
	}
	x.retryAt = x.opts.Now().Add(x.retryDelay)
	x.retryDelay = min(max(2*x.retryDelay, retryDelayMin), retryDelayMax)
	x.mu.Unlock()
	if first {
		x.opts.Listener.Degraded(cause)
	}
}

// cleanUp closes the lost handle after setting its file aside, if that is
// unusable and still the one at the path. The caller holds the write token.
func (x *Index) cleanUp() error {
	x.mu.Lock()
	h, cause := x.lost, x.lostCause
	x.mu.Unlock()
	if h == nil {
		return nil
	}
	if u := (*unusable)(nil); errors.As(cause, &u) && h.isAt(x.path) {
		if err := x.setAside(u); err != nil {
			return err
		}
	}
	_ = h.close() // nothing of it is needed any more
	x.mu.Lock()
	x.lost, x.lostCause = nil, nil
	x.mu.Unlock()
	return nil
}

// view calls fn in a read transaction. ok is false where there is no index or
// it failed; what fn returns must be copied out of the transaction.
func view[T any](ctx context.Context, x *Index, fn func(*bbolt.Tx) T) (v T, ok bool) {
	x.mu.Lock()
	h := x.cur
	x.mu.Unlock()
	if h == nil {
		return v, false
	}
	v, err := run(ctx, h, func() (v T, err error) {
		err = h.view(func(tx *bbolt.Tx) error {
			v = fn(tx)
			return nil
		})
		return v, err
	})
	if err != nil && h.isDropped() {
		x.lose(h, &unusable{cause: h.cause})
	}
	return v, err == nil
}

func get[T any](ctx context.Context, x *Index, bucket []byte, key string, decodeValue func([]byte) (T, error)) (T, bool) {
	stored, _ := view(ctx, x, func(tx *bbolt.Tx) []byte { return bytes.Clone(tx.Bucket(bucket).Get([]byte(key))) })
	if stored == nil {
		return *new(T), false
	}
	return decode(x, bucket, []byte(key), stored, decodeValue)
}

// decode counts a value that is not what was stored.
func decode[T any](x *Index, bucket, key, stored []byte, decodeValue func([]byte) (T, error)) (T, bool) {
	payload, err := unseal(bucket, key, stored)
	if err == nil {
		var v T
		if v, err = decodeValue(payload); err == nil {
			return v, true
		}
	}
	x.mu.Lock()
	x.badValues++
	x.mu.Unlock()
	x.opts.Listener.BadValue(string(bucket), string(key), err)
	return *new(T), false
}
