package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"sessiond/replay/stamp"
)

// scanStepBytes is how much is read between two looks at the context.
const scanStepBytes = 16 << 20

// Recovery says what Open found and did.
type Recovery struct {
	ScannedBytes int64 // read for the digest
	// CheckpointUnfit says that the checkpoint is no record's end in the file,
	// so that the scan began at the start.
	CheckpointUnfit bool
	Tail            Tail
}

// Open opens an existing file for appending: it locks it, repairs its tail,
// brings digest and sequence from a checkpoint (the zero value: from the
// start) to the end, and syncs file and folder. Errors are vfs.ErrLocked and
// vfs.ErrNotRegular among others; after an error nothing is published and the
// file is closed. The caller closes the journal.
func Open(ctx context.Context, path string, from stamp.Checkpoint, o Options) (*Journal, Recovery, error) {
	j := &Journal{
		path:    path,
		o:       o.withDefaults(path),
		inbox:   make(chan *request, inboxMax),
		closing: make(chan struct{}),
		stopped: make(chan struct{}),
	}
	recovery, err := j.open(ctx, from)
	if err != nil {
		if j.file != nil {
			err = errors.Join(err, j.file.Close())
		}
		return nil, recovery, fmt.Errorf("journal: opening %s: %w", path, err)
	}
	go j.run()
	return j, recovery, nil
}

func (j *Journal) open(ctx context.Context, from stamp.Checkpoint) (rec Recovery, err error) {
	if j.file, err = j.o.FS.OpenAppend(j.path); err != nil {
		return rec, err
	}
	if err := j.file.TryLock(); err != nil {
		return rec, err
	}
	info, err := j.file.Info()
	if err != nil {
		return rec, err
	}
	j.id = info.Stamp
	at, digest, fits := fit(j.file, from, info.Stamp.Size)
	rec.CheckpointUnfit = !fits
	end, err := lastRecordEnd(j.file, at.Offset, info.Stamp.Size)
	if err != nil {
		return rec, err
	}
	if end < info.Stamp.Size {
		if rec.Tail, err = j.repair(end, info.Stamp.Size); err != nil {
			return rec, err
		}
		if rec.Tail.Repair == Ended {
			end = info.Stamp.Size + 1
		}
	}
	rec.ScannedBytes = end - at.Offset
	if at, err = scan(ctx, j.file, at, digest, end); err != nil {
		return rec, err
	}
	if err := j.sync(); err != nil {
		return rec, err
	}
	if err := j.o.FS.SyncDir(filepath.Dir(j.path)); err != nil {
		return rec, err
	}
	seen, err := j.checkPath(at.Offset)
	if err != nil {
		return rec, err
	}
	j.end = at.Offset
	j.head.Store(&Head{Point: at, Stamp: seen, digest: digest})
	return rec, nil
}

// fit returns where to scan from: the checkpoint if it is the end of a record
// in a file of this size, else the start.
func fit(src io.ReaderAt, from stamp.Checkpoint, size int64) (stamp.Point, *stamp.Digest, bool) {
	if from.Offset == 0 && from.State == nil {
		return stamp.Start, stamp.NewDigest(), true
	}
	digest, err := from.State.Resume()
	if err != nil || digest.Sum64() != from.Digest || from.Offset > size {
		return stamp.Start, stamp.NewDigest(), false
	}
	if end, err := lastRecordEnd(src, max(0, from.Offset-1), from.Offset); err != nil || end != from.Offset {
		return stamp.Start, stamp.NewDigest(), false
	}
	return from.Point, digest, true
}

// scan brings a point and its digest forward to the end of a record.
func scan(ctx context.Context, src io.ReaderAt, at stamp.Point, digest *stamp.Digest, end int64) (stamp.Point, error) {
	for at.Offset < end {
		if err := ctx.Err(); err != nil {
			return at, err
		}
		to := min(end, at.Offset+scanStepBytes)
		lfs, _, err := stamp.Advance(src, digest, at.Offset, to)
		if err != nil {
			return at, fmt.Errorf("reading from %d to %d: %w", at.Offset, to, err)
		}
		at = stamp.Point{Sequence: at.Sequence + lfs, Offset: to}
	}
	at.Digest = digest.Sum64()
	return at, nil
}

// lastRecordEnd returns the offset behind the last LF of [from, to), or from
// where there is none. It reads backwards.
func lastRecordEnd(src io.ReaderAt, from, to int64) (int64, error) {
	var buf []byte
	for to > from {
		if buf == nil {
			buf = make([]byte, min(to-from, 64<<10))
		}
		p := buf[:min(to-from, int64(len(buf)))]
		if n, err := src.ReadAt(p, to-int64(len(p))); n < len(p) {
			return 0, fmt.Errorf("reading %d bytes before %d: %w", len(p), to, err)
		}
		if i := bytes.LastIndexByte(p, '\n'); i >= 0 {
			return to - int64(len(p)-i-1), nil
		}
		to -= int64(len(p))
	}
	return from, nil
}
