package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"sessiond/wire"
)

// takeAll reads the input to its end.
func takeAll(t *testing.T, r io.Reader) ([]inputLine, error) {
	t.Helper()
	in := readLines(r)
	var all []inputLine
	for {
		lines, err := in.take(t.Context())
		if err != nil || len(lines) == 0 {
			return all, err
		}
		all = append(all, lines...)
	}
}

func TestInputLines(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	broken := errors.New("broken")
	for _, tt := range []struct {
		name string
		in   io.Reader
		want []inputLine
		err  error
	}{
		{"nothing", strings.NewReader(""), nil, nil},
		{"lines", strings.NewReader("a\nb\n"), []inputLine{{1, "a"}, {2, "b"}}, nil},
		{"no LF at the end", strings.NewReader("a\nb"), []inputLine{{1, "a"}, {2, "b"}}, nil},
		{"blank lines keep their number", strings.NewReader("\na\n \t\r\nb\n\n"), []inputLine{{2, "a"}, {4, "b"}}, nil},
		{"byte by byte", iotest.OneByteReader(strings.NewReader("ab\nc\n")), []inputLine{{1, "ab"}, {2, "c"}}, nil},
		{"longer than a buffer", strings.NewReader("a\n" + long + "\nb\n"), []inputLine{{1, "a"}, {2, long}, {3, "b"}}, nil},
		{"broken", io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)), []inputLine{{1, "a"}}, broken},
		{"too long", io.MultiReader(strings.NewReader("a\n"), endless{}), []inputLine{{1, "a"}}, errLineTooLong},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := takeAll(t, tt.in)
			if !errors.Is(err, tt.err) {
				t.Errorf("got %v, want %v", err, tt.err)
			}
			if d := cmp.Diff(tt.want, got, cmp.AllowUnexported(inputLine{})); d != "" {
				t.Errorf("lines (-want +got):\n%s", d)
			}
		})
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A line is there to be taken while the input is still open, and those that
// come meanwhile are taken together.
func TestInputLines_Together(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		in := readLines(r)
		write := func(s string) {
			if _, err := io.WriteString(w, s); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		write("a\n")
		if got, err := in.take(t.Context()); err != nil || len(got) != 1 || got[0].text != "a" {
			t.Fatalf("got %v, %v, want the line a", got, err)
		}
		for _, l := range []string{"b\n", "c\n", "d\n"} {
			write(l)
		}
		if got, err := in.take(t.Context()); err != nil || len(got) != 3 {
			t.Errorf("got %v, %v, want three lines", got, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if got, err := in.take(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted: got %v, %v, want %v", got, err, context.Canceled)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := in.take(t.Context()); err != nil || len(got) != 0 {
			t.Errorf("at the end: got %v, %v, want nothing", got, err)
		}
	})
}

// What is read ahead is bounded: then the input waits.
func TestInputLines_Bounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := strings.Repeat("x", 100_000) + "\n"
		src := &counted{r: strings.NewReader(strings.Repeat(line, 100))}
		in := readLines(src)
		synctest.Wait()
		if most := inputBytesMax + 4*len(line); src.n > most {
			t.Errorf("read ahead: got %d bytes, want at most %d", src.n, most)
		}
		for n := 0; n < 100; {
			lines, err := in.take(t.Context())
			if err != nil || len(lines) == 0 {
				t.Fatalf("after %d lines: got %d, %v", n, len(lines), err)
			}
			n += len(lines)
			synctest.Wait()
		}
	})
}

type counted struct {
	r io.Reader
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		name    string
		err     error
		at      int
		named   bool
		message string
	}{
		{"named", wire.Errorf(wire.CodeBadArgument, "entry 3: no JSON").With("index", 3.0), 3, true, "no JSON"},
		{"too large to send", wire.Errorf(wire.CodeTooLarge, "the command has many bytes"), 0, true, "the command has many bytes"},
		{"of the session", wire.Errorf(wire.CodeReadOnly, "followed"), 0, false, "followed"},
		{"of the connection", io.ErrUnexpectedEOF, 0, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at, named := refused(tt.err)
			if at != tt.at || named != tt.named {
				t.Errorf("got %d, %t, want %d, %t", at, named, tt.at, tt.named)
			}
			var w *wire.Error
			if errors.As(tt.err, &w) && w.Message != tt.message {
				t.Errorf("message: got %q, want %q", w.Message, tt.message)
			}
		})
	}
}

func FuzzReadLine(f *testing.F) {
	f.Add("a\n\nb")
	f.Add(strings.Repeat("x", 5000) + "\ny\r\n")
	f.Fuzz(func(t *testing.T, in string) {
		r := bufio.NewReaderSize(iotest.HalfReader(strings.NewReader(in)), 16)
		var got strings.Builder
		for {
			line, err := readLine(r)
			got.Write(line)
			if err != nil {
				break
			}
			got.WriteByte('\n')
		}
		if got.String() != in {
			t.Errorf("read %q back as %q", in, got.String())
		}
	})
}
