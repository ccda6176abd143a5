package jsonl

import (
	"bytes"
)

// longLine is the buffer of lines that no block holds.
type longLine struct {
	buf []byte
	end int64 // of the last such line in the source
}

// take returns a buffer of n bytes for the line that ends at end. One that is
// at hand is used again unless it is far too big.
func (l *longLine) take(n, end int64) []byte {
	if have := int64(cap(l.buf)); have < n || have/4 > n {
		l.buf = nil // not beside the new one
		l.buf = make([]byte, n)
	}
	l.end = end
	return l.buf[:n:n]
}

// release gives the buffer up when the last long line ended before offset.
func (l *longLine) release(offset int64) {
	if l.end <= offset {
		l.buf = nil
	}
}

// nextLong returns a line that is too long for the buffer or over the record
// limit. It reads the line twice: first to find its end, which needs no
// memory, then into a buffer of just that size, or, over the limit, in pieces
// through the scan in passing. So nothing grows by copying, and whether the
// line is terminated is known before its first byte goes to the digest.
func (r *Reader) nextLong() (Line, error) {
	r.Sync()
	size, terminated, err := r.findEnd()
	if err != nil {
		return Line{}, err
	}
	line := Line{Offset: r.offset, Size: size, Terminated: terminated}
	content := size
	if terminated {
		content--
	}
	if content > r.opts.RecordBytesMax {
		line.Oversized, err = r.scanOversized(line, content)
	} else {
		line.Text, err = r.readLong(line, content)
	}
	if err != nil {
		return Line{}, err
	}
	r.offset += size
	r.start, r.end, r.fed = r.carryMax, r.carryMax, r.carryMax
	return line, nil
}

// findEnd returns the size of the line at r.offset, with its LF. It overwrites
// the block.
func (r *Reader) findEnd() (size int64, terminated bool, err error) {
	err = r.pieces(r.offset, r.to, func(p []byte) bool {
		if n := bytes.IndexByte(p, '\n'); n >= 0 {
			size += int64(n) + 1
			terminated = true
			return false
		}
		size += int64(len(p))
		return true
	})
	return size, terminated, err
}

// readLong holds a line that is within the limit.
func (r *Reader) readLong(line Line, content int64) ([]byte, error) {
	text := r.long.take(line.Size, line.Offset+line.Size)
	if err := r.readFull(text, line.Offset); err != nil {
		return nil, err
	}
	if !line.Terminated {
		return text, nil
	}
	r.feed(text)
	return withoutCR(text[:content:content]), nil
}

// scanOversized scans a line over the limit in passing.
func (r *Reader) scanOversized(line Line, content int64) (*Oversized, error) {
	v := newStream(r.opts.Keys)
	err := r.pieces(line.Offset, line.Offset+line.Size, func(p []byte) bool {
		v.write(p[:min(int64(len(p)), content)])
		content -= min(int64(len(p)), content)
		if line.Terminated {
			r.feed(p)
		}
		return line.Terminated || !v.failed
	})
	if err != nil {
		return nil, err
	}
	return v.result(), nil
}

// pieces reads [from, to) of the source block by block until f returns false.
func (r *Reader) pieces(from, to int64, f func(p []byte) bool) error {
	block := r.buf[r.carryMax:]
	for from < to {
		p := block[:min(int64(len(block)), to-from)]
		if err := r.readFull(p, from); err != nil {
			return err
		}
		if !f(p) {
			return nil
		}
		from += int64(len(p))
	}
	return nil
}

func (r *Reader) feed(p []byte) {
	if r.opts.Digest != nil {
		r.opts.Digest.Write(p)
	}
}
