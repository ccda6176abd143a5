package journal

import (
	"errors"
	"fmt"
	"io/fs"
)

// suspect is the bytes of a group that failed.
type suspect struct {
	from, to int64 // offsets
	unproven bool  // a sync failed: no later one proves these bytes
	cause    error
}

// fail deals with a group that failed: it cuts its bytes off, or latches the
// journal. It returns an *AppendError.
func (j *Journal) fail(cause error, s suspect) error {
	if j.lost != nil {
		return &AppendError{OutcomeUnknown, cause}
	}
	_ = j.latch(cause, s)
	gone, err := j.cut()
	switch {
	case err != nil:
		return &AppendError{OutcomeUnknown, err}
	case !gone:
		return &AppendError{OutcomeUnknown, cause}
	}
	return &AppendError{OutcomeNone, cause}
}

// latch refuses appends until a cut succeeds. It returns the failure.
func (j *Journal) latch(cause error, s suspect) error {
	s.cause = cause
	j.suspect = &s
	return j.refuse(fmt.Errorf("%w at offset %d: %w", ErrLatched, s.from, cause))
}

// lose refuses appends for good and closes the file.
func (j *Journal) lose(err error) error {
	j.lost = err
	if j.file != nil {
		_ = j.file.Close() // nothing that was written is acknowledged any more
		j.file = nil
	}
	return j.refuse(err)
}

func (j *Journal) refuse(err error) error {
	j.failure.Store(&failure{err})
	return err
}

// cut takes the suspect bytes off the end of the file, durably, and ends the
// latch. gone says that none of them is left.
func (j *Journal) cut() (gone bool, err error) {
	s := j.suspect
	gone, err = j.tryCut(s)
	switch {
	case j.lost != nil:
		return false, err
	case err != nil:
		return false, fmt.Errorf("%w at offset %d: %w; cutting it off: %w", ErrLatched, s.from, s.cause, err)
	}
	j.suspect = nil
	j.end = s.from // what else is there was not seen yet
	j.failure.Store(nil)
	return gone, nil
}

func (j *Journal) tryCut(s *suspect) (gone bool, err error) {
	if j.file == nil {
		if err := j.reopen(); err != nil {
			return false, err
		}
	}
	info, err := j.file.Info()
	if err != nil {
		return false, err
	}
	size := info.Stamp.Size
	switch {
	case size < s.from:
		return false, j.lose(fmt.Errorf("%w: %d bytes, want %d", ErrRewritten, size, s.from))
	case size == s.from, s.from == s.to: // nothing of ours is there
		gone = true
	case size == s.to:
		if err := j.file.Truncate(s.from); err != nil {
			return false, err
		}
		gone = true
	case s.unproven:
		return false, fmt.Errorf("journal: another program wrote behind unproven bytes: %d bytes, want %d", size, s.to)
	}
	if err := j.sync(); err != nil {
		s.unproven = true
		return false, err
	}
	return gone, nil
}

// reopen opens the file again after a failed sync took the descriptor.
func (j *Journal) reopen() error {
	f, err := j.o.FS.OpenAppend(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return j.lose(fmt.Errorf("%w: %w", ErrGone, err))
	}
	if err != nil {
		return err
	}
	info, err := f.Info()
	switch {
	case err != nil:
	case !info.Stamp.SameFile(j.id):
		err = j.lose(fmt.Errorf("%w: %s is %v now, was %v", ErrGone, j.path, info.Stamp, j.id))
	default:
		err = f.TryLock()
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	j.file = f
	return nil
}
