package kv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/bbolt"

	"sessiond/migrations"
)

// lockPoll is the pause between two tries for a lock that another holds.
const lockPoll = 20 * time.Millisecond

// unusable is an index file that must be set aside before there can be a new
// one. Every other error may pass by itself: a full disk, a read-only folder.
type unusable struct {
	cause  error
	schema int // of an index that is too new, else 0
}

func (u *unusable) Error() string { return u.cause.Error() }
func (u *unusable) Unwrap() error { return u.cause }

// openFile opens the index at the path: the one that is there, or a new one
// where there is none or only an unusable one. The caller holds the write
// token.
func (x *Index) openFile(ctx context.Context) (*handle, error) {
	_ = x.opts.files.remove(x.path + tempSuffix) // of a process killed before the rename
	h, err := x.openExisting(ctx)
	if u := (*unusable)(nil); errors.As(err, &u) {
		if err := x.setAside(u); err != nil {
			return nil, errors.Join(u.cause, err)
		}
		err = fs.ErrNotExist
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return h, err
	}
	if err := x.create(); err != nil {
		return nil, fmt.Errorf("kv: create index: %w", err)
	}
	return x.openExisting(ctx)
}

// openExisting takes the lock before it looks inside: what another process is
// writing looks damaged.
func (x *Index) openExisting(ctx context.Context) (*handle, error) {
	f, err := x.opts.files.open(x.path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		if isAny(err, syscall.EACCES, syscall.EISDIR, syscall.ENXIO, syscall.ELOOP) {
			return nil, &unusable{cause: fmt.Errorf("%w: %w", ErrDamaged, err)}
		}
		return nil, fmt.Errorf("kv: open index: %w", err)
	}
	h := newHandle(f)
	if err := x.prepare(ctx, h); err != nil {
		_ = h.close()
		return nil, err
	}
	return h, nil
}

func (x *Index) prepare(ctx context.Context, h *handle) error {
	info, err := h.file.Stat()
	if err != nil {
		return fmt.Errorf("kv: open index: %w", err)
	}
	if !info.Mode().IsRegular() {
		return &unusable{cause: fmt.Errorf("%w: no regular file: %v", ErrDamaged, info.Mode())}
	}
	if err := lock(ctx, h.file, syscall.LOCK_EX, x.opts.LockTimeout); err != nil {
		return fmt.Errorf("%s: %w", x.path, err)
	}
	if info, err = h.file.Stat(); err != nil { // its length, now that it is still
		return fmt.Errorf("kv: open index: %w", err)
	}
	if err := check(h.file, info.Size()); err != nil {
		return &unusable{cause: err}
	}
	background := context.WithoutCancel(ctx) // short, and a half-opened database cannot be left
	if h.db, err = run(background, h, func() (*bbolt.DB, error) {
		return openBolt(x.path, x.opts.BytesMax, func(string, int, fs.FileMode) (*os.File, error) { return h.file, nil })
	}); err != nil {
		return passingOrUnusable(err)
	}
	from, err := run(background, h, func() (int, error) { return upgrade(h.db, x.opts.steps) })
	if err != nil {
		return passingOrUnusable(err)
	}
	if to := migrations.Newest(x.opts.steps); from != to {
		x.opts.Listener.Migrated(x.path, from, to)
	}
	return nil
}

// openBolt opens a database through open, so that the caller owns the
// descriptor. The freelist is stored (bbolt's default): without it opening
// reads the whole file.
func openBolt(path string, bytesMax int, open func(string, int, fs.FileMode) (*os.File, error)) (*bbolt.DB, error) {
	return bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, OpenFile: open, MaxSize: bytesMax, NoStatistics: true})
}

// upgrade brings a database to the newest schema and returns the one it had.
func upgrade(db *bbolt.DB, steps []migrations.Step) (from int, err error) {
	if err := db.View(func(tx *bbolt.Tx) error {
		from, err = migrations.Schema(tx)
		return err
	}); err != nil {
		return 0, err
	}
	if newest := migrations.Newest(steps); from > newest {
		return from, &unusable{schema: from, cause: fmt.Errorf("%w: %d, want at most %d", ErrNewerSchema, from, newest)}
	}
	if err := migrations.Run(db, steps, from); err != nil {
		return from, err
	}
	return from, db.View(func(tx *bbolt.Tx) error {
		for _, name := range allBuckets {
			if tx.Bucket(name) == nil {
				return fmt.Errorf("%w: no bucket %s", ErrDamaged, name)
			}
		}
		return nil
	})
}

// passingOrUnusable tells what the operating system refused from what is wrong
// with the file.
func passingOrUnusable(err error) error {
	var errno syscall.Errno
	var u *unusable
	if errors.As(err, &u) || errors.As(err, &errno) {
		return err
	}
	if !errors.Is(err, ErrDamaged) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return &unusable{cause: err}
}

// create makes an empty index under a temporary name and gives it its name
// when it is whole and on disk.
func (x *Index) create() error {
	temp := x.path + tempSuffix
	f, err := x.opts.files.open(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	h := newHandle(f)
	_, err = run(context.Background(), h, func() (struct{}, error) {
		db, err := openBolt(temp, x.opts.BytesMax, func(string, int, fs.FileMode) (*os.File, error) { return f, nil })
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, errors.Join(migrations.Run(db, x.opts.steps, 0), db.Close())
	})
	_ = f.Close() // closed already, where all went well
	if err == nil {
		err = x.opts.files.rename(temp, x.path)
	}
	if err != nil {
		_ = x.opts.files.remove(temp)
		return err
	}
	return x.opts.files.syncDir(filepath.Dir(x.path))
}

// setAside moves an unusable index out of the way and says so.
func (x *Index) setAside(u *unusable) error {
	var aside string
	var err error
	switch {
	case errors.Is(u, ErrOutgrown):
		err = x.opts.files.remove(x.path) // it is sound, and large
	case u.schema > 0:
		aside, err = x.opts.files.moveAside(x.path, schemaInfix, fmt.Sprint(u.schema))
	default:
		aside, err = x.opts.files.moveAside(x.path, badInfix, x.opts.Now().UTC().Format("20060102T150405.000Z"))
	}
	if err != nil {
		return err
	}
	x.mu.Lock()
	x.rebuilt++
	x.mu.Unlock()
	x.opts.Listener.SetAside(SetAside{Path: x.path, Aside: aside, Cause: u.cause})
	return nil
}

// lock takes the lock that bbolt takes. It does so before bbolt because check
// comes first, and because bbolt's wait knows no context.
func lock(ctx context.Context, f *os.File, how int, timeout time.Duration) error {
	end := time.NewTimer(timeout)
	defer end.Stop()
	again := time.NewTicker(lockPoll)
	defer again.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if !isAny(err, syscall.EWOULDBLOCK, syscall.EINTR) {
			return err
		}
		select {
		case <-again.C:
		case <-end.C:
			return fmt.Errorf("%w by another process for %v", ErrLocked, timeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func isAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}
