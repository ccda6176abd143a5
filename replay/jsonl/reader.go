package jsonl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

const (
	defaultBufferBytes    = 1 << 20
	defaultRecordBytesMax = 64 << 20

	// carryBytesMax is how much of a line cut by the end of a block is moved
	// in front of the next block; a longer piece is read again instead.
	carryBytesMax = 64 << 10

	// pageBytes aligns reads in the file and in memory alike: copies between
	// the two are several times slower when only one of them is aligned.
	pageBytes = 4 << 10
)

// ReaderOptions are the options of a Reader; the zero value is the default.
type ReaderOptions struct {
	BufferBytes    int   // of one read; default 1 MiB
	RecordBytesMax int64 // content of a line, without its LF, that is held; default 64 MiB
	Keys           Keys  // members reported of longer records

	// Digest, if any, gets every byte of complete records, in order and in
	// big pieces, and none of an unterminated tail. It lags behind the lines
	// until Sync or the end.
	Digest io.Writer
}

func (o ReaderOptions) withDefaults() ReaderOptions {
	if o.BufferBytes <= 0 {
		o.BufferBytes = defaultBufferBytes
	}
	if o.RecordBytesMax <= 0 {
		o.RecordBytesMax = defaultRecordBytesMax
	}
	return o
}

// Line is one physical line of a file.
type Line struct {
	// Text is the content without the LF and without one CR before it; an
	// unterminated last line keeps its CR. Nil when Oversized. It is good
	// until the next call of Next, unless Swap takes it out of the reader.
	Text []byte

	Offset, Size int64      // in the file; Size includes the LF
	Terminated   bool       // by an LF; only the last line may lack it
	Oversized    *Oversized // set for content over the limit
}

// Reader splits a byte range of a source into lines. It is for one goroutine.
type Reader struct {
	src  io.ReaderAt
	to   int64
	opts ReaderOptions

	// buf[start:end] are the bytes of the source at offset: those that no
	// line has been made of. A block is read to buf[carryMax:], a piece of a
	// line that it continues is moved in front of it.
	buf        []byte
	carryMax   int
	start, end int
	offset     int64

	fed  int // buf[fed:start] has been handed out and awaits the digest
	long longLine
	err  error
}

// NewReader returns a reader of the lines of src in [from, to). from is the
// start of a line.
func NewReader(src io.ReaderAt, from, to int64, o ReaderOptions) *Reader {
	o = o.withDefaults()
	block := int(min(int64(o.BufferBytes), max(to-from, 0)))
	carry := min(block, carryBytesMax)
	if carry > pageBytes {
		carry &^= pageBytes - 1
	}
	return &Reader{
		src: src, to: to, opts: o, offset: from,
		buf: make([]byte, carry+block), carryMax: carry, start: carry, end: carry, fed: carry,
	}
}

// Next returns the next line; io.EOF follows the last. A read error is
// returned and never taken for the end; a source that is shorter than the
// range is io.ErrUnexpectedEOF. An error is final, and what the digest then
// holds belongs to no place.
func (r *Reader) Next() (Line, error) {
	if line, ok := r.AtHand(); ok {
		return line, nil
	}
	return r.nextSlow()
}

// AtHand is Next for a line that is read already; it reports false where Next
// would read. The lines that it returns, and the one that Next returned before,
// are good together until the next call of Next. A line that is not terminated,
// longer than the buffer or Oversized is never at hand, nor is any behind it.
func (r *Reader) AtHand() (line Line, ok bool) {
	n := bytes.IndexByte(r.buf[r.start:r.end], '\n')
	if n < 0 || int64(n) > r.opts.RecordBytesMax {
		return Line{}, false
	}
	line = Line{
		Text:   withoutCR(r.buf[r.start : r.start+n : r.start+n]),
		Offset: r.offset, Size: int64(n) + 1, Terminated: true,
	}
	r.start += n + 1
	r.offset += int64(n) + 1
	return line, true
}

// Swap returns the buffer that holds the lines returned until now: they are
// good for as long as the caller keeps it. The reader goes on in a buffer that
// it gave away before, nil for a new one.
func (r *Reader) Swap(buf []byte) []byte {
	r.Sync()
	if buf == nil {
		buf = make([]byte, len(r.buf))
	}
	copy(buf[r.start:r.end], r.buf[r.start:r.end])
	buf, r.buf = r.buf, buf
	r.long = longLine{}
	return buf
}

// nextSlow is Next where the bytes at hand hold no whole line.
func (r *Reader) nextSlow() (line Line, err error) {
	have := r.end - r.start
	switch {
	case r.err != nil:
		return Line{}, r.err
	case int64(have) > r.opts.RecordBytesMax:
		line, err = r.nextLong()
	case r.offset+int64(have) >= r.to:
		line, err = r.last()
	case have <= r.carryMax:
		if err = r.fill(); err == nil {
			return r.Next()
		}
	case r.start > r.carryMax: // lines came before it: it may fit when read again
		r.Sync()
		r.start, r.fed = r.end, r.end
		if err = r.fill(); err == nil {
			return r.Next()
		}
	default:
		line, err = r.nextLong()
	}
	r.err = err
	return line, err
}

// Sync feeds the digest up to the end of the last line that Next returned, so
// that its state belongs to that place.
func (r *Reader) Sync() {
	if r.fed < r.start {
		r.feed(r.buf[r.fed:r.start])
	}
	r.fed = r.start
}

func withoutCR(text []byte) []byte {
	if n := len(text); n > 0 && text[n-1] == '\r' {
		return text[:n-1]
	}
	return text
}

// fill reads the next block behind what is left of this one.
func (r *Reader) fill() error {
	r.Sync()
	carry := r.end - r.start
	copy(r.buf[r.carryMax-carry:], r.buf[r.start:r.end])
	r.start, r.end, r.fed = r.carryMax-carry, r.carryMax, r.carryMax-carry

	at := r.offset + int64(carry)
	block := r.buf[r.carryMax:]
	n := min(int64(len(block)), r.to-at)
	if end := (at + n) &^ (pageBytes - 1); end > at && at+n < r.to {
		n = end - at // so that the next one starts on a page
	}
	if err := r.readFull(block[:n], at); err != nil {
		return err
	}
	r.end += int(n)
	r.long.release(r.offset - int64(len(block)))
	return nil
}

func (r *Reader) readFull(p []byte, at int64) error {
	n, err := r.src.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("jsonl: read %d of %d bytes at offset %d: %w", n, len(p), at, err)
}

// last returns the unterminated rest of the range, or io.EOF. The rest stays
// out of the digest.
func (r *Reader) last() (Line, error) {
	r.Sync()
	text := r.buf[r.start:r.end:r.end]
	if len(text) == 0 {
		return Line{}, io.EOF
	}
	line := Line{Text: text, Offset: r.offset, Size: int64(len(text))}
	r.offset += line.Size
	r.start, r.fed = r.end, r.end
	return line, nil
}
