package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"

	"sessiond/migrations"
	"sessiond/replay/stamp"
)

// Offline reads an index that no process has open, and never writes: nothing
// is migrated, repaired or set aside. The file is open and locked, shared,
// only while a page is copied out of it, so that a daemon may start at any
// time; an Offline that finds the file changed ends with ErrChanged. It belongs
// to one goroutine.
type Offline struct {
	path     string
	opts     Options
	checked  os.FileInfo // of the file that check found sound
	overview Overview
}

// Overview is what an index says of itself; the counts are of stored values,
// good or bad.
type Overview struct {
	Path        string
	Bytes       int64
	Schema      int
	Signatures  int
	Listings    int
	Checkpoints int // sessions with checkpoints
	Views       int
	Tombstones  int
}

// Entry is all that an index holds of one session. What is missing or bad is
// nil.
type Entry struct {
	Key         string
	Signature   *Signature
	Listing     *Listing
	Checkpoints stamp.Checkpoints
	Views       []ViewEntry
	Bad         []BadValue
}

// ViewEntry is a view without its Data, which Offline.View returns.
type ViewEntry struct {
	Name      string
	DataBytes int
	View
}

// TombstoneEntry is a stored tombstone; Bad says why there is none.
type TombstoneEntry struct {
	Key string
	*Tombstone
	Bad error
}

// BadValue is a stored value that counts as absent.
type BadValue struct {
	Bucket, Key string
	Err         error
}

// Bounds of what Entries holds at once; one session may exceed the second.
const (
	offlineEntriesMax = 256
	offlineBytesMost  = 4 << 20
)

// OpenReadOnly looks at the index at path. It fails with ErrLocked where
// another process holds it, fs.ErrNotExist where there is none, ErrDamaged
// where it cannot be used, and ErrNewerSchema. An older schema is read as it
// is. Of the options LockTimeout counts.
func OpenReadOnly(ctx context.Context, path string, opts Options) (*Offline, error) {
	r := &Offline{path: path, opts: opts.withDefaults()}
	var err error
	r.overview, err = offline(ctx, r, func(tx *bbolt.Tx) (Overview, error) { return r.look(tx) })
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Overview returns what the index says of itself.
func (r *Offline) Overview() Overview { return r.overview }

// Entries calls fn with every session of which anything is stored, in key
// order. The file is not locked meanwhile.
func (r *Offline) Entries(ctx context.Context, fn func(Entry) error) error {
	return pages(ctx, r, entriesAfter, func(e Entry) string { return e.Key }, fn)
}

// Tombstones calls fn with every tombstone, in key order, under the rules of
// Entries.
func (r *Offline) Tombstones(ctx context.Context, fn func(TombstoneEntry) error) error {
	return pages(ctx, r, tombstonesAfter, func(t TombstoneEntry) string { return t.Key }, fn)
}

// View returns a view with its Data; ok is false where there is none or it is
// bad.
func (r *Offline) View(ctx context.Context, key, view string) (v View, ok bool, err error) {
	v, err = offline(ctx, r, func(tx *bbolt.Tx) (View, error) {
		k := []byte(key + viewSeparator + view)
		b := tx.Bucket(bucketViews)
		if b == nil {
			return View{}, nil
		}
		payload, bad := unseal(bucketViews, k, b.Get(k))
		if bad != nil {
			return View{}, nil // also where there is no such key
		}
		v, bad := decodeView(payload)
		ok = bad == nil
		return v, nil
	})
	return v, ok && err == nil, err
}

// look reads the overview and refuses a schema that is not known.
func (r *Offline) look(tx *bbolt.Tx) (Overview, error) {
	o := Overview{Path: r.path, Bytes: r.checked.Size()}
	var err error
	if o.Schema, err = migrations.Schema(tx); err != nil {
		return Overview{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	newest := migrations.Newest(r.opts.steps)
	if o.Schema > newest {
		return Overview{}, fmt.Errorf("%w: %d, want at most %d", ErrNewerSchema, o.Schema, newest)
	}
	for i, n := range [...]*int{&o.Signatures, &o.Listings, &o.Checkpoints, &o.Views, &o.Tombstones} {
		b := tx.Bucket(allBuckets[i])
		switch {
		case b != nil:
			*n = b.Stats().KeyN
		case o.Schema == newest:
			return Overview{}, fmt.Errorf("%w: no bucket %s", ErrDamaged, allBuckets[i])
		}
	}
	return o, nil
}

// pages calls fn with all that after finds, page by page.
func pages[T any](ctx context.Context, r *Offline, after func(*bbolt.Tx, string) ([]T, bool), key func(T) string, fn func(T) error) error {
	type result struct {
		list []T
		more bool
	}
	for last := ""; ; {
		p, err := offline(ctx, r, func(tx *bbolt.Tx) (result, error) {
			list, more := after(tx, last)
			return result{list, more}, nil
		})
		if err != nil {
			return err
		}
		for _, e := range p.list {
			if err := fn(e); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !p.more {
			return nil
		}
		last = key(p.list[len(p.list)-1])
	}
}

// offline calls fn in a transaction of an opening of its own.
func offline[T any](ctx context.Context, r *Offline, fn func(*bbolt.Tx) (T, error)) (v T, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", r.path, err)
		}
	}()
	f, err := r.opts.files.open(r.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		var cause *fs.PathError
		if errors.As(err, &cause) {
			err = cause.Err // the path is said once
		}
		if isAny(err, syscall.ENXIO, syscall.ELOOP) {
			err = fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		return v, err
	}
	h := newHandle(f)
	defer func() { _ = h.close() }() // it was only read
	if err := r.prepare(ctx, h); err != nil {
		return v, err
	}
	v, err = run(context.WithoutCancel(ctx), h, func() (v T, err error) { // short, and bounded
		err = h.view(func(tx *bbolt.Tx) error {
			v, err = fn(tx)
			return err
		})
		return v, err
	})
	return v, err
}

// prepare locks the file, looks whether bbolt can work with it, and opens the
// database.
func (r *Offline) prepare(ctx context.Context, h *handle) error {
	info, err := h.file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%w: no regular file: %v", ErrDamaged, info.Mode())
	}
	if err == nil {
		err = lock(ctx, h.file, syscall.LOCK_SH, r.opts.LockTimeout)
	}
	if err == nil {
		info, err = h.file.Stat() // now that it is still
	}
	if err != nil {
		return err
	}
	switch was := r.checked; {
	case was == nil:
		if err := check(h.file, info.Size()); err != nil {
			return err
		}
		r.checked = info
	case !os.SameFile(was, info) || was.Size() != info.Size() || !was.ModTime().Equal(info.ModTime()):
		return ErrChanged
	}
	h.db, err = run(context.WithoutCancel(ctx), h, func() (*bbolt.DB, error) {
		return bbolt.Open(r.path, 0, &bbolt.Options{
			ReadOnly: true, Timeout: time.Second, NoStatistics: true,
			OpenFile: func(string, int, fs.FileMode) (*os.File, error) { return h.file, nil },
		})
	})
	if err != nil {
		return passingOrUnusable(err)
	}
	return nil
}

// sessionCursor walks a bucket whose keys begin with that of a session.
type sessionCursor struct {
	bucket []byte
	c      *bbolt.Cursor
	k, v   []byte
}

// session is the session's part of the current key; ok is false at the end.
func (s *sessionCursor) session() (key string, ok bool) {
	if s.k == nil {
		return "", false
	}
	key = string(s.k)
	if bytes.Equal(s.bucket, bucketViews) {
		key, _, _ = strings.Cut(key, viewSeparator)
	}
	return key, true
}

func (s *sessionCursor) next() { s.k, s.v = s.c.Next() }

// entriesAfter collects what is stored of the sessions behind a key, from all
// buckets side by side.
func entriesAfter(tx *bbolt.Tx, after string) (list []Entry, more bool) {
	var cursors []*sessionCursor
	for _, bucket := range allBuckets[:4] { // all but tombstones
		b := tx.Bucket(bucket)
		if b == nil {
			continue // an older schema
		}
		s := &sessionCursor{bucket: bucket, c: b.Cursor()}
		s.k, s.v = s.c.Seek([]byte(after))
		for key, ok := s.session(); ok && key <= after; key, ok = s.session() {
			s.next()
		}
		cursors = append(cursors, s)
	}
	held := 0
	for {
		first, found := "", false
		for _, s := range cursors {
			if key, ok := s.session(); ok && (!found || key < first) {
				first, found = key, true
			}
		}
		if !found {
			return list, false
		}
		if len(list) == offlineEntriesMax || held > offlineBytesMost {
			return list, true
		}
		e := Entry{Key: first}
		for _, s := range cursors {
			for key, ok := s.session(); ok && key == first; key, ok = s.session() {
				held += len(s.k) + e.add(s.bucket, s.k, s.v)
				s.next()
			}
		}
		list = append(list, e)
	}
}

// add decodes a stored value into the entry and returns the bytes that it
// holds, about.
func (e *Entry) add(bucket, key, stored []byte) int {
	payload, err := unseal(bucket, key, stored)
	n := len(payload)
	switch {
	case err != nil:
	case bytes.Equal(bucket, bucketSignatures):
		e.Signature, err = pointerTo(decodeSignature(payload))
	case bytes.Equal(bucket, bucketListings):
		e.Listing, err = pointerTo(decodeListing(payload))
	case bytes.Equal(bucket, bucketCheckpoints):
		e.Checkpoints, err = decodeCheckpoints(payload)
	default:
		_, name, _ := strings.Cut(string(key), viewSeparator)
		var v View
		var data []byte
		if v, data, err = decodeViewHead(payload); err == nil {
			e.Views = append(e.Views, ViewEntry{Name: name, DataBytes: len(data), View: v})
			n -= len(data)
		}
	}
	if err != nil {
		e.Bad = append(e.Bad, BadValue{Bucket: string(bucket), Key: string(key), Err: err})
	}
	return n
}

func pointerTo[T any](v T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return &v, nil
}

// tombstonesAfter collects tombstones behind a key.
func tombstonesAfter(tx *bbolt.Tx, after string) (list []TombstoneEntry, more bool) {
	b := tx.Bucket(bucketTombstones)
	if b == nil {
		return nil, false
	}
	p := pageAfter(b, after)
	for _, stored := range p.entries {
		e := TombstoneEntry{Key: string(stored.key)}
		var payload []byte
		if payload, e.Bad = unseal(bucketTombstones, stored.key, stored.stored); e.Bad == nil {
			e.Tombstone, e.Bad = pointerTo(decodeTombstone(payload))
		}
		list = append(list, e)
	}
	return list, p.more
}
