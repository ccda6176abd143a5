package replay

import (
	"context"
	"errors"
	"fmt"
	"io"

	"sessiond/replay/dialect"
	"sessiond/replay/pages"
	"sessiond/replay/stamp"
)

// Saved is what is remembered of a replay: enough for all but the message
// views, whose records are read again when they are asked for. It is of a file
// that ends at the head.
type Saved struct {
	Head        stamp.Point
	State       stamp.State       // of the digest at the head
	Checkpoints stamp.Checkpoints // before it
	Dialect     string
	Rules       string
	Records     int64
	Diagnostics int
	Info        dialect.Info // ID, CWD, Title, Created, Modified and Messages
	Turn        dialect.State
	Leaf        string
}

// asleep is a reading of which only what was saved is known.
type asleep struct {
	family      dialect.Family
	diagnostics int
	info        dialect.Info
	turn        dialect.State
	leaf        string
}

// Restore makes a replay of what was saved without reading anything; ok is
// false where the rules have changed since or what was saved is not whole. The
// caller knows that the file is as it was.
func Restore(s Saved, opt Options) (r *Replay, ok bool) {
	f, known := FamilyOf(s.Dialect)
	if !known || f.Rules() != s.Rules {
		return nil, false
	}
	d, err := s.State.Resume()
	if err != nil || d.Sum64() != s.Head.Digest || s.Head.Offset == 0 {
		return nil, false
	}
	r = newReplay(opt)
	r.final, r.head, r.digest, r.checkpoints = true, s.Head, d, s.Checkpoints
	r.counts.Records = s.Records
	r.tail.Offset = s.Head.Offset
	r.asleep = &asleep{f, s.Diagnostics, s.Info, s.Turn, s.Leaf}
	r.markLocked()
	return r, true
}

// IsAsleep reports whether the records were not read yet: Wake is to be called
// before views, deltas and held entries are asked for.
func (r *Replay) IsAsleep() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.asleep != nil
}

// Wake reads the records of a restored replay, up to its head. A file that has
// others is stamp.ErrMismatch.
func (r *Replay) Wake(ctx context.Context, src io.ReaderAt) error {
	if !r.IsAsleep() {
		return nil
	}
	r.grow.Lock()
	defer r.grow.Unlock()
	return r.wake(ctx, src)
}

// wake is Wake for a caller that holds grow.
func (r *Replay) wake(ctx context.Context, src io.ReaderAt) error {
	if r.asleep == nil { // written under grow too
		return nil
	}
	opt := r.opt
	opt.Hole = nil // what was read once does not wait
	fresh, err := Build(ctx, src, r.head.Offset, opt)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: %w", stamp.ErrMismatch, err)
	}
	if err != nil {
		return err
	}
	if fresh.head != r.head {
		return fmt.Errorf("%w: %d records with digest %016x before offset %d, want %d with %016x", stamp.ErrMismatch,
			fresh.head.Sequence, fresh.head.Digest, r.head.Offset, r.head.Sequence, r.head.Digest)
	}
	r.become(fresh)
	return nil
}

// DiagnosticsCount is the number of findings at the head.
func (r *Replay) DiagnosticsCount() (n int, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	defer pages.Catch(&err)
	r.space.Check()
	if r.asleep != nil {
		return r.asleep.diagnostics, nil
	}
	list, _ := r.diagnosticsLocked()
	return len(list), nil
}
