package engine

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"syscall"

	"sessiond/chunks"
	"sessiond/engine/follow"
	"sessiond/engine/journal"
	"sessiond/engine/vfs"
	"sessiond/replay/pages"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

// toWire maps every error of the engine to one of the protocol: the one place
// where that is done.
func toWire(err error) error {
	if err == nil {
		return nil
	}
	var w *wire.Error
	if errors.As(err, &w) {
		return w
	}
	if w = budgetError(err); w != nil {
		return w
	}
	w = wire.Errorf(codeOf(err), "%v", err)
	w.Retryable = w.Retryable && !lasting(err)
	var failed *journal.AppendError
	if errors.As(err, &failed) {
		w = w.With("outcome", string(failed.Outcome))
	}
	return w
}

// lasting reports whether an error stays until somebody changes the file.
func lasting(err error) bool {
	return errors.Is(err, vfs.ErrNotRegular) || errors.Is(err, fs.ErrPermission) || errors.Is(err, follow.ErrOutside) ||
		errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EISDIR)
}

func codeOf(err error) wire.Code {
	var lost *pages.LostError
	switch {
	case errors.As(err, &lost): // whatever the reason: the index is made anew
		return wire.CodeIO
	case errors.Is(err, context.Canceled), errors.Is(err, journal.ErrClosed):
		return wire.CodeShuttingDown
	case errors.Is(err, context.DeadlineExceeded):
		return wire.CodeBusy
	case errors.Is(err, journal.ErrGone), errors.Is(err, fs.ErrNotExist):
		return wire.CodeSessionGone
	case errors.Is(err, journal.ErrRewritten), errors.Is(err, stamp.ErrMismatch), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, chunks.ErrDiffers):
		return wire.CodeSourceChanged
	case errors.Is(err, vfs.ErrLocked):
		return wire.CodeBusy
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return wire.CodeNoSpace
	}
	var path *fs.PathError
	var append *journal.AppendError
	if errors.As(err, &path) || errors.As(err, &append) || errors.Is(err, vfs.ErrNotRegular) {
		return wire.CodeIO
	}
	return wire.CodeInternal
}
