package dialect

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"pgregory.net/rapid"
)

// counted counts reads.
type counted struct {
	src   io.ReaderAt
	reads int
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	c.reads++
	return c.src.ReadAt(p, off)
}

func TestWindow_GivesTheBytesOfTheSource(t *testing.T) {
	data := make([]byte, 3*WindowBytes)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	rapid.Check(t, func(t *rapid.T) {
		w := NewWindow(bytes.NewReader(data))
		for range 20 {
			off := rapid.IntRange(0, len(data)).Draw(t, "off")
			n := rapid.IntRange(0, WindowBytes*5/4).Draw(t, "n")
			got, err := w.Bytes(int64(off), n)
			if off+n > len(data) {
				if !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatalf("%d bytes at %d: got %v, want %v", n, off, err, io.ErrUnexpectedEOF)
				}
				continue
			}
			if err != nil || !bytes.Equal(got, data[off:off+n]) {
				t.Fatalf("%d bytes at %d: %v, or other bytes", n, off, err)
			}
		}
	})
}

func TestWindow_NeighboursCostOneRead(t *testing.T) {
	src := &counted{src: bytes.NewReader(make([]byte, WindowBytes))}
	w := NewWindow(src)
	for off := range int64(1000) {
		if _, err := w.Bytes(100*off, 100); err != nil {
			t.Fatal(err)
		}
	}
	if src.reads != 1 {
		t.Errorf("got %d reads, want 1", src.reads)
	}
	w.Reset(src)
	if _, err := w.Bytes(0, 1); err != nil || src.reads != 2 {
		t.Errorf("after Reset: got %d reads, %v; want 2", src.reads, err)
	}
}

func TestAppendBody(t *testing.T) {
	w := NewWindow(bytes.NewReader([]byte("0123\xff567")))
	for _, tc := range []struct {
		name string
		body Body
		want string
	}{
		{"range", Body{Offset: 1, Bytes: 3}, ">123"},
		{"mended", Body{Offset: 3, Bytes: 3, Fix: true}, ">3\ufffd5"},
		{"rendered", Body{Render: func(dst []byte, w *Window) ([]byte, error) {
			b, err := w.Bytes(5, 2)
			return append(dst, b...), err
		}}, ">56"},
	} {
		got, err := AppendBody([]byte(">"), tc.body, w)
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: got %q %v, want %q", tc.name, got, err, tc.want)
		}
	}
	if got, err := AppendBody([]byte(">"), Body{Offset: 7, Bytes: 3}, w); !errors.Is(err, io.ErrUnexpectedEOF) || string(got) != ">" {
		t.Errorf("beyond the end: got %q %v", got, err)
	}
}
