package dialect

import (
	"errors"
	"fmt"
	"io"

	"sessiond/replay/jsonl"
)

// WindowBytes is the size of a Window's buffer.
const WindowBytes = 256 << 10

// Window reads ranges of a source through one buffer, so that messages that
// stand near each other cost one read. One goroutine.
type Window struct {
	src io.ReaderAt
	buf []byte
	at  int64 // file offset of buf
}

// NewWindow returns a window on src.
func NewWindow(src io.ReaderAt) *Window { return &Window{src: src} }

// Reset forgets what was read and looks at another source.
func (w *Window) Reset(src io.ReaderAt) { w.src, w.buf, w.at = src, w.buf[:0], 0 }

// Source is what the window looks at.
func (w *Window) Source() io.ReaderAt { return w.src }

// Bytes returns n bytes at off; they are good until the next call and are not
// to be modified. A source that ends before them is io.ErrUnexpectedEOF.
func (w *Window) Bytes(off int64, n int) ([]byte, error) {
	if off >= w.at && off+int64(n) <= w.at+int64(len(w.buf)) {
		return w.buf[off-w.at:][:n:n], nil
	}
	if n > WindowBytes { // would displace everything and never be read twice
		p := make([]byte, n)
		got, err := w.src.ReadAt(p, off)
		return p, full(off, got, n, err)
	}
	if cap(w.buf) == 0 {
		w.buf = make([]byte, 0, WindowBytes)
	}
	got, err := w.src.ReadAt(w.buf[:WindowBytes], off)
	w.at, w.buf = off, w.buf[:got]
	if err := full(off, got, n, err); err != nil {
		return nil, err
	}
	return w.buf[:n:n], nil
}

func full(off int64, got, want int, err error) error {
	switch {
	case got >= want:
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return fmt.Errorf("dialect: %d of %d bytes at offset %d: %w", got, want, off, io.ErrUnexpectedEOF)
	default:
		return fmt.Errorf("dialect: %d bytes at offset %d: %w", want, off, err)
	}
}

// AppendBody appends the message that b describes.
func AppendBody(dst []byte, b Body, w *Window) ([]byte, error) {
	if b.Render != nil {
		return b.Render(dst, w)
	}
	m, err := w.Bytes(b.Offset, int(b.Bytes))
	if err != nil {
		return dst, err
	}
	if b.Fix {
		return jsonl.AppendValidUTF8(dst, m), nil
	}
	return append(dst, m...), nil
}
