package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/replay/pages"
	"sessiond/replay/stamp"
)

// File is a session file as it is given.
type File struct {
	Path    string // as the caller names it
	Source  io.ReaderAt
	Size    int64 // what is looked at
	ModTime time.Time
}

// Options of a report. The zero value is the default.
type Options struct {
	RecordBytesMax int64       // longer records are never held; 0: 64 MiB
	Pages          *pages.Pool // of the record index; nil: all of it is held
	Now            time.Time   // decides whether an unfinished tail is torn; zero: it never is
	// Cursor gives the text form of a place in the file; nil: none is shown.
	Cursor func(stamp.Point) string
}

// read replays a whole file as it is now, its provisional tail included. src
// is what is read; it has the bytes of f.
func (o Options) read(ctx context.Context, src io.ReaderAt, f File, opt replay.Options) (*replay.Replay, *dialect.Window, error) {
	opt.Tail, opt.RecordBytesMax, opt.Pages = true, o.RecordBytesMax, o.Pages
	r, err := replay.Build(ctx, src, f.Size, opt)
	if err != nil {
		return nil, nil, changed(f, err)
	}
	return r, dialect.NewWindow(f.Source), nil
}

// changed tells an end before the size that the file had from other errors.
func changed(f File, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s: %w: %w", f.Path, ErrChanged, err)
	}
	return fmt.Errorf("%s: %w", f.Path, err)
}
