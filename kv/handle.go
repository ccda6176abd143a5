package kv

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"syscall"

	"go.etcd.io/bbolt"
)

// handle is one open database file. bbolt is entered through run alone.
//
// A fault or panic inside bbolt leaves its locks in any state: a fault while a
// transaction begins keeps the meta lock, and whoever wants it next waits for
// ever. So every call runs on a goroutine of its own, and the first fault
// drops the handle: all callers return at once, and only the descriptor is
// touched again. What stays behind until the process ends is the mapping
// (address space) and the goroutine of a transaction that was about to end
// just when another failed to begin.
type handle struct {
	db   *bbolt.DB
	file *os.File // the descriptor that bbolt uses, to close it without bbolt

	beginning sync.Mutex // one transaction begins at a time, and none after a fault

	once    sync.Once
	dropped chan struct{} // closed by the first fault
	cause   error         // of the fault; set before dropped is closed
}

func newHandle(f *os.File) *handle {
	return &handle{file: f, dropped: make(chan struct{})}
}

// run calls fn guarded. After an error nothing that fn refers to may be used
// by the caller: fn may still be running.
func run[T any](ctx context.Context, h *handle, fn func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := guard(h, fn)
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-h.dropped:
		return *new(T), h.cause
	case <-ctx.Done():
		return *new(T), context.Cause(ctx)
	}
}

// guard turns panics and memory faults (a mapped file that was cut raises
// SIGBUS, which recover sees only with SetPanicOnFault) into a drop.
func guard[T any](h *handle, fn func() (T, error)) (v T, err error) {
	debug.SetPanicOnFault(true) // of this goroutine, which ends with fn
	defer func() {
		if p := recover(); p != nil {
			h.once.Do(func() {
				h.cause = fmt.Errorf("%w: the file changed or its pages are wrong (%v)", ErrDamaged, p)
				close(h.dropped)
			})
			err = h.cause
		}
	}()
	return fn()
}

func (h *handle) isDropped() bool {
	select {
	case <-h.dropped:
		return true
	default:
		return false
	}
}

// view calls fn in a read transaction; inside run.
func (h *handle) view(fn func(*bbolt.Tx) error) error {
	tx, err := h.begin(false)
	if err != nil {
		return err
	}
	defer h.end(tx)
	return fn(tx)
}

// update calls fn in a write transaction and commits it; inside run.
func (h *handle) update(fn func(*bbolt.Tx) error) error {
	tx, err := h.begin(true)
	if err != nil {
		return err
	}
	defer h.end(tx)
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (h *handle) begin(writable bool) (*bbolt.Tx, error) {
	h.beginning.Lock()
	defer h.beginning.Unlock()
	return guard(h, func() (*bbolt.Tx, error) {
		if h.isDropped() {
			return nil, h.cause
		}
		return h.db.Begin(writable)
	})
}

// end ends a transaction that is not committed.
func (h *handle) end(tx *bbolt.Tx) {
	if !h.isDropped() { // else the locks that it wants may be held for ever
		_ = tx.Rollback()
	}
}

// isAt reports whether the handle's file is the one at path.
func (h *handle) isAt(path string) bool {
	own, err := h.file.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(own, now)
}

// close waits for running transactions, unless the handle is or gets dropped.
func (h *handle) close() error {
	var err error
	if h.db != nil && !h.isDropped() {
		_, err = run(context.Background(), h, func() (struct{}, error) { return struct{}{}, h.db.Close() })
	}
	// Both did bbolt, as a rule. Where its mapping stays, so would the lock.
	_ = syscall.Flock(int(h.file.Fd()), syscall.LOCK_UN)
	_ = h.file.Close()
	return err
}
