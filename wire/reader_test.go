package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// readAll returns the frames of r and the error that ended them.
func readAll(r *FrameReader) (frames []string, err error) {
	for {
		line, err := r.ReadFrame()
		if err != nil {
			return frames, err
		}
		frames = append(frames, string(line))
	}
}

func TestFrameReader_Frames(t *testing.T) {
	long := strings.Repeat("x", 100)
	for name, c := range map[string]struct {
		in   string
		want []string
		err  error
	}{
		"nothing":              {"", nil, io.EOF},
		"one":                  {"{}\n", []string{"{}"}, io.EOF},
		"blank lines":          {"\n\n", []string{"", ""}, io.EOF},
		"CR stays":             {"a\r\n", []string{"a\r"}, io.EOF},
		"U+2028 is no end":     {"a\u2028b\n", []string{"a\u2028b"}, io.EOF},
		"cut":                  {"a\nb", []string{"a"}, io.ErrUnexpectedEOF},
		"longer than a buffer": {"a\n" + long + "\nb\n", []string{"a", long, "b"}, io.EOF},
		"long and cut":         {long, nil, io.ErrUnexpectedEOF},
		"exactly the limit":    {strings.Repeat("y", 200) + "\nb\n", []string{strings.Repeat("y", 200), "b"}, io.EOF},
		"over the limit":       {"a\n" + strings.Repeat("y", 201) + "\nb\n", []string{"a"}, ErrFrameTooLarge},
		"over and endless":     {strings.Repeat("y", 5000), nil, ErrFrameTooLarge},
	} {
		for way, wrap := range map[string]func(io.Reader) io.Reader{
			"whole":     func(r io.Reader) io.Reader { return r },
			"bytewise":  iotest.OneByteReader,
			"data+EOF":  iotest.DataErrReader,
			"half read": iotest.HalfReader,
		} {
			got, err := readAll(NewFrameReader(wrap(strings.NewReader(c.in)), 16, 200))
			if diff := cmp.Diff(c.want, got); diff != "" || !errors.Is(err, c.err) {
				t.Errorf("%s, %s: got error %v, want %v; frames (-want +got):\n%s", name, way, err, c.err, diff)
			}
		}
	}
}

func TestFrameReader_LimitBelowBuffer(t *testing.T) {
	got, err := readAll(NewFrameReader(strings.NewReader("123\n1234\n"), 64, 3))
	if len(got) != 1 || !errors.Is(err, ErrFrameTooLarge) {
		t.Errorf("got %q, %v, want the first frame and ErrFrameTooLarge", got, err)
	}
}

func TestFrameReader_Bodies(t *testing.T) {
	body := strings.Repeat("raw\nbytes", 10)
	r := NewFrameReader(strings.NewReader("head\n"+body+"next\n"+"head\nshort"), 16, 100)
	got := make([]byte, len(body))
	if line, err := r.ReadFrame(); err != nil || string(line) != "head" {
		t.Fatalf("got %q, %v, want head", line, err)
	}
	if err := r.ReadBody(got); err != nil || string(got) != body {
		t.Errorf("got body %q, %v, want %q", got, err, body)
	}
	if err := r.ReadBody(nil); err != nil {
		t.Errorf("empty body: got %v, want nil", err)
	}
	if line, err := r.ReadFrame(); err != nil || string(line) != "next" {
		t.Errorf("got %q, %v, want next", line, err)
	}
	if _, err := r.ReadFrame(); err != nil {
		t.Fatal(err)
	}
	if err := r.ReadBody(got); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut body: got %v, want io.ErrUnexpectedEOF", err)
	}
	if err := r.ReadBody(got); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("missing body: got %v, want io.ErrUnexpectedEOF", err)
	}
}

func TestFrameReader_NotAdmitted(t *testing.T) {
	long := `{"id":"7","x":"` + strings.Repeat("x", 500) + `"}`
	r := NewFrameReader(strings.NewReader("a\n"+long+"\nb\n"), 32, 1000)
	budget := 100
	r.Admit = func(n int) bool {
		if n > budget {
			return false
		}
		budget -= n
		return true
	}
	if _, err := r.ReadFrame(); err != nil || r.Admitted() != 0 {
		t.Fatalf("small frame: got %v and %d bytes admitted, want none", err, r.Admitted())
	}
	start, err := r.ReadFrame()
	if !errors.Is(err, ErrNotAdmitted) || !bytes.HasPrefix(start, []byte(`{"id":"7"`)) {
		t.Fatalf("got %q, %v, want the frame's start and ErrNotAdmitted", start, err)
	}
	if got := r.Admitted(); got != 100-budget || got == 0 {
		t.Errorf("got %d bytes admitted, want %d", got, 100-budget)
	}
	if line, err := r.ReadFrame(); err != nil || string(line) != "b" {
		t.Errorf("after the refusal: got %q, %v, want b", line, err)
	}
}

// TestFrameReader_Linear checks that a large frame costs a bounded number of
// allocations: a reader that starts again with each read would need thousands.
func TestFrameReader_Linear(t *testing.T) {
	in := append(bytes.Repeat([]byte("x"), 8<<20), '\n')
	got := testing.AllocsPerRun(3, func() {
		if _, err := NewFrameReader(bytes.NewReader(in), 16<<10, 16<<20).ReadFrame(); err != nil {
			t.Fatal(err)
		}
	})
	if got > 100 {
		t.Errorf("got %v allocations for one frame of 8 MiB, want at most 100", got)
	}
}

func FuzzFrameReader(f *testing.F) {
	f.Add([]byte("{}\n{\"a\":1}\n"), uint8(5))
	f.Add([]byte(strings.Repeat("x", 70)+"\n"), uint8(3))
	f.Fuzz(func(t *testing.T, in []byte, admit uint8) {
		const most = 64
		r := NewFrameReader(iotest.HalfReader(bytes.NewReader(in)), 16, most)
		r.Admit = func(int) bool { admit--; return admit != 0 }
		rest := in
		for {
			line, err := r.ReadFrame()
			i := bytes.IndexByte(rest, '\n')
			switch {
			case errors.Is(err, ErrNotAdmitted):
				if !bytes.HasPrefix(rest, line) || i > most {
					t.Fatalf("skipped %q of %q", line, rest)
				}
			case err == nil:
				if string(line) != string(rest[:i]) || len(line) > most {
					t.Fatalf("got %q of %q", line, rest)
				}
			case errors.Is(err, ErrFrameTooLarge):
				if i >= 0 && i <= most || i < 0 && len(rest) <= most {
					t.Fatalf("%q is within the limit", rest)
				}
				return
			case errors.Is(err, io.EOF):
				if len(rest) != 0 {
					t.Fatalf("%q was left over", rest)
				}
				return
			case errors.Is(err, io.ErrUnexpectedEOF):
				if i >= 0 || len(rest) == 0 {
					t.Fatalf("unexpected EOF before %q", rest)
				}
				return
			default:
				t.Fatal(err)
			}
			rest = rest[i+1:]
		}
	})
}
