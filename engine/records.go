package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"sessiond/replay/stamp"
)

// recordReader walks the records of a file from a point on, with the digest.
type recordReader struct {
	src    io.ReaderAt
	at     stamp.Point
	digest *stamp.Digest
	end    int64 // a record's end: nothing behind it is looked at
	buf    []byte
	pos    int64 // file offset of buf
}

const recordBuffer = 64 << 10

func newRecordReader(src io.ReaderAt, at stamp.Point, d *stamp.Digest, end int64) *recordReader {
	return &recordReader{src: src, at: at, digest: d, end: end}
}

// window returns bytes at the point, at least one unless the end is reached.
func (r *recordReader) window(off int64) ([]byte, error) {
	if off >= r.pos && off < r.pos+int64(len(r.buf)) {
		return r.buf[off-r.pos:], nil
	}
	n := min(int64(recordBuffer), r.end-off)
	if n <= 0 {
		return nil, fmt.Errorf("engine: no record ends before offset %d: %w", r.end, io.ErrUnexpectedEOF)
	}
	if int64(cap(r.buf)) < n {
		r.buf = make([]byte, n)
	}
	r.buf = r.buf[:n]
	r.pos = off
	if err := readFull(r.src, r.buf, off); err != nil {
		r.buf = r.buf[:0]
		return nil, err
	}
	return r.buf, nil
}

// skip moves behind the next record and returns its end.
func (r *recordReader) skip() (stamp.Point, error) {
	off := r.at.Offset
	for {
		w, err := r.window(off)
		if err != nil {
			return r.at, err
		}
		i := bytes.IndexByte(w, '\n')
		if i < 0 {
			_, _ = r.digest.Write(w) // never fails
			off += int64(len(w))
			continue
		}
		_, _ = r.digest.Write(w[:i+1])
		off += int64(i) + 1
		r.at = stamp.Point{Sequence: r.at.Sequence + 1, Offset: off, Digest: r.digest.Sum64()}
		return r.at, nil
	}
}

// skipTo moves behind a record that is not behind it already, and returns its
// end.
func (r *recordReader) skipTo(sequence uint64) (stamp.Point, error) {
	for r.at.Sequence < sequence {
		if _, err := r.skip(); err != nil {
			return r.at, fmt.Errorf("engine: finding record %d: %w", sequence, err)
		}
	}
	return r.at, nil
}

// size returns the length of the next record, LF included, without moving.
func (r *recordReader) size() (int64, error) {
	off := r.at.Offset
	for {
		w, err := r.window(off)
		if err != nil {
			return 0, err
		}
		if i := bytes.IndexByte(w, '\n'); i >= 0 {
			return off + int64(i) + 1 - r.at.Offset, nil
		}
		off += int64(len(w))
	}
}

// read returns the next record of n bytes without moving.
func (r *recordReader) read(n int64) ([]byte, error) {
	if w := r.buf; r.at.Offset >= r.pos && r.at.Offset+n <= r.pos+int64(len(w)) {
		return w[r.at.Offset-r.pos:][:n], nil
	}
	p := make([]byte, n)
	return p, readFull(r.src, p, r.at.Offset)
}

// readFull fills p; io.ErrUnexpectedEOF says that the file ends before.
func readFull(src io.ReaderAt, p []byte, offset int64) error {
	n, err := src.ReadAt(p, offset)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("engine: reading at offset %d: %w", offset, err)
}
