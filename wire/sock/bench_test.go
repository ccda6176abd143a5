package sock

import (
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"testing"

	"sessiond/wire"
)

// endless is a stream of equal frames.
type endless struct {
	frame wire.Frame
	left  int
}

func (e *endless) Start(func()) {}
func (e *endless) Close()       {}
func (e *endless) Next() (wire.Frame, bool, error) {
	if e.left == 0 {
		return wire.Frame{}, false, io.EOF
	}
	e.left--
	return e.frame, true, nil
}

// BenchmarkStream compares frames through a server with the same bytes written
// straight to a socket, in pieces of 256 KiB.
func BenchmarkStream(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"300B", 300}, {"512KiB", 512 << 10}, {"4MiB", 4 << 20}} {
		body := append(bytes.Repeat([]byte("x"), size.bytes-1), '\n')
		b.Run(size.name+"/server", func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			dir := b.TempDir()
			s, err := Listen(b.Context(), Options{
				Path: filepath.Join(dir, "d", "s"),
				Handler: handlerFunc(func(context.Context, wire.Request) (wire.Response, error) {
					return wire.Response{Stream: &endless{wire.Frame{Body: body}, b.N}}, nil
				}),
			})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Shutdown(context.Background()) }()
			c, err := Dial(b.Context(), s.Path())
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, "{\"id\":\"1\",\"type\":\"attach\"}\n"); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			drain(b, c, int64(b.N)*int64(len(body)))
		})
		b.Run(size.name+"/probe", func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			l, err := net.Listen("unix", filepath.Join(b.TempDir(), "s"))
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				piece := bytes.Repeat([]byte("x"), batchBytesMax)
				for left := b.N * len(body); left > 0; {
					n, err := c.Write(piece[:min(left, len(piece))])
					if err != nil {
						return
					}
					left -= n
				}
			}()
			c, err := net.Dial("unix", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			drain(b, c, int64(b.N)*int64(len(body)))
		})
	}
}

func drain(b *testing.B, r io.Reader, bytes int64) {
	buf := make([]byte, 1<<20)
	for bytes > 0 {
		n, err := r.Read(buf)
		if err != nil {
			b.Fatal(err)
		}
		bytes -= int64(n)
	}
}
