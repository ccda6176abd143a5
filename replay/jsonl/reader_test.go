package jsonl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"
)

func readAll(t *testing.T, data []byte, from int64, o ReaderOptions) []Line {
	t.Helper()
	r := NewReader(bytes.NewReader(data), from, int64(len(data)), o)
	var lines []Line
	for {
		line, err := r.Next()
		if errors.Is(err, io.EOF) {
			if _, again := r.Next(); !errors.Is(again, io.EOF) {
				t.Fatalf("Next after the end: got %v, want EOF", again)
			}
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		line.Text = bytes.Clone(line.Text)
		lines = append(lines, line)
	}
}

func TestReader_Lines(t *testing.T) {
	type want struct {
		text         string
		offset, size int64
		terminated   bool
	}
	tests := []struct {
		name, data string
		want       []want
	}{
		{"empty", "", nil},
		{"one", "a\n", []want{{"a", 0, 2, true}}},
		{"unterminated", "a\nbc", []want{{"a", 0, 2, true}, {"bc", 2, 2, false}}},
		{"blank lines", "\n\n", []want{{"", 0, 1, true}, {"", 1, 1, true}}},
		{"CRLF", "a\r\nb\r\r\n\r\n", []want{{"a", 0, 3, true}, {"b\r", 3, 4, true}, {"", 7, 2, true}}},
		{"an unterminated CR stays", "a\r", []want{{"a\r", 0, 2, false}}},
		{"only LF ends a line", "a\rb\u2028\u2029\u0085\v\f\x00c\n", []want{{"a\rb\u2028\u2029\u0085\v\f\x00c", 0, 16, true}}},
		{"a byte-order mark stays", BOM + "a\n", []want{{BOM + "a", 0, 5, true}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, buffer := range []int{0, 1, 2, 3, 7} {
				var got []want
				for _, l := range readAll(t, []byte(tt.data), 0, ReaderOptions{BufferBytes: buffer}) {
					got = append(got, want{string(l.Text), l.Offset, l.Size, l.Terminated})
				}
				if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(want{})); diff != "" {
					t.Errorf("buffer %d (-want +got):\n%s", buffer, diff)
				}
			}
		})
	}
}

func TestReader_Range(t *testing.T) {
	data := "skipped\nfirst\nsecond\nnot seen\n"
	r := NewReader(strings.NewReader(data), 8, 21, ReaderOptions{})
	for _, want := range []string{"first", "second"} {
		line, err := r.Next()
		if err != nil || string(line.Text) != want {
			t.Fatalf("got %q, %v, want %q", line.Text, err, want)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want EOF", err)
	}
}

// checkReader reads data with small buffers and compares with a plain split:
// lines, oversized records, and the digest after each Sync and at the end.
func checkReader(t *testing.T, data []byte, bufferBytes int, recordBytesMax int64) {
	t.Helper()
	digest := xxhash.New()
	r := NewReader(bytes.NewReader(data), 0, int64(len(data)), ReaderOptions{
		BufferBytes: bufferBytes, RecordBytesMax: recordBytesMax, Keys: testKeys, Digest: digest,
	})
	scanner := NewScanner(testKeys)
	at := 0
	for number := 0; ; number++ {
		line, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, _, terminated := bytes.Cut(data[at:], []byte("\n"))
		size := len(content)
		if terminated {
			size++
		}
		if line.Offset != int64(at) || line.Size != int64(size) || line.Terminated != terminated {
			t.Fatalf("line %d: got %d+%d, terminated %v, want %d+%d, %v", number, line.Offset, line.Size, line.Terminated, at, size, terminated)
		}
		if oversized := int64(len(content)) > recordBytesMax; oversized != (line.Oversized != nil) {
			t.Fatalf("line %d of %d bytes: got oversized %v, limit %d", number, len(content), line.Oversized != nil, recordBytesMax)
		} else if oversized {
			compareOversized(t, line.Oversized, scanner.Scan(content), content)
			if line.Text != nil {
				t.Fatalf("line %d: oversized, but has text", number)
			}
		} else {
			if terminated {
				content = bytes.TrimSuffix(content, []byte("\r"))
			}
			if !bytes.Equal(line.Text, content) {
				t.Fatalf("line %d: got %q, want %q", number, line.Text, content)
			}
		}
		at += size
		if number%3 == 0 {
			r.Sync()
			complete := data[:at]
			if !terminated {
				complete = data[:line.Offset]
			}
			if got, want := digest.Sum64(), xxhash.Sum64(complete); got != want {
				t.Fatalf("line %d: digest after Sync: got %016x, want %016x", number, got, want)
			}
		}
	}
	if at != len(data) {
		t.Fatalf("got lines of %d bytes, want %d", at, len(data))
	}
	if got, want := digest.Sum64(), xxhash.Sum64(data[:bytes.LastIndexByte(data, '\n')+1]); got != want {
		t.Fatalf("digest at the end: got %016x, want %016x", got, want)
	}
}

func TestReader_Random(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 1_000 {
		var data []byte
		for range rnd.IntN(20) {
			data = append(data, mutate(rnd, []byte(sampleLines[rnd.IntN(len(sampleLines))]))...)
			data = append(data, []string{"\n", "\n", "\r\n", ""}[rnd.IntN(4)]...)
		}
		checkReader(t, data, 1+rnd.IntN(300), int64(1+rnd.IntN(400)))
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("a\r\nb\n\nc"), uint16(2), uint16(1))
	f.Add([]byte(strings.Join(sampleLines, "\n")), uint16(64), uint16(100))
	f.Fuzz(func(t *testing.T, data []byte, bufferBytes, recordBytesMax uint16) {
		if len(data) <= 4<<10 { // the check is quadratic
			checkReader(t, data, 1+int(bufferBytes), 1+int64(recordBytesMax))
		}
	})
}

// source counts the reads of a ReaderAt, and fails from an offset on.
type source struct {
	io.ReaderAt
	reads   []int64 // ends
	bytes   int64
	failAt  int64
	failure error
}

func (s *source) ReadAt(p []byte, at int64) (int, error) {
	if s.failure != nil && at+int64(len(p)) > s.failAt {
		return 0, s.failure
	}
	s.reads = append(s.reads, at+int64(len(p)))
	s.bytes += int64(len(p))
	return s.ReaderAt.ReadAt(p, at)
}

func TestReader_Errors(t *testing.T) {
	data := []byte(strings.Repeat("0123456789\n", 100))
	broken := errors.New("broken disk")
	tests := []struct {
		name string
		src  io.ReaderAt
		to   int64
		want error
	}{
		{"read error", &source{ReaderAt: bytes.NewReader(data), failAt: 500, failure: broken}, int64(len(data)), broken},
		{"shorter than the range", bytes.NewReader(data[:600]), int64(len(data)), io.ErrUnexpectedEOF},
		{"an EOF in the middle", &source{ReaderAt: bytes.NewReader(data), failAt: 500, failure: io.EOF}, int64(len(data)), io.ErrUnexpectedEOF},
	}
	for _, tt := range tests {
		for _, o := range []ReaderOptions{{BufferBytes: 64}, {BufferBytes: 4}, {BufferBytes: 64, RecordBytesMax: 5}} {
			t.Run(fmt.Sprintf("%s/%d/%d", tt.name, o.BufferBytes, o.RecordBytesMax), func(t *testing.T) {
				r := NewReader(tt.src, 0, tt.to, o)
				lines := 0
				var err error
				for err == nil {
					if _, err = r.Next(); err == nil {
						lines++
					}
				}
				if !errors.Is(err, tt.want) || errors.Is(err, io.EOF) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
				if lines < 35 || lines > 55 {
					t.Errorf("got %d lines before the error, want about 45", lines)
				}
				if _, again := r.Next(); !errors.Is(again, tt.want) {
					t.Errorf("Next after an error: got %v, want %v", again, tt.want)
				}
			})
		}
	}
}

func TestReader_LargeAlignedReads(t *testing.T) {
	data := []byte(strings.Repeat(strings.Repeat("x", 198)+"\n", 50_000))
	src := &source{ReaderAt: bytes.NewReader(data)}
	r := NewReader(src, 199, int64(len(data)), ReaderOptions{})
	for {
		if _, err := r.Next(); err != nil {
			break
		}
	}
	if got, want := len(src.reads), len(data)/defaultBufferBytes+2; got > want {
		t.Errorf("got %d reads, want at most %d", got, want)
	}
	if got, want := src.bytes, int64(len(data)-199); got != want {
		t.Errorf("got %d bytes read, want each once: %d", got, want)
	}
	for _, end := range src.reads[:len(src.reads)-1] {
		if end%pageBytes != 0 {
			t.Errorf("a read ends at %d, not at a page", end)
		}
	}
}

func TestReader_LongLines(t *testing.T) {
	small := strings.Repeat("a small line\n", 300_000) // over two buffers
	for _, size := range []int{carryBytesMax, defaultBufferBytes - 1, defaultBufferBytes, 5 << 20} {
		long := strings.Repeat("y", size)
		data := "first\n" + small + long + "\r\n" + long + "\n" + small + "last\n"
		digest := xxhash.New()
		r := NewReader(strings.NewReader(data), 0, int64(len(data)), ReaderOptions{Digest: digest})
		seen := 0
		for {
			line, err := r.Next()
			if err != nil {
				break
			}
			if len(line.Text) >= size {
				seen++
				if string(line.Text) != long {
					t.Errorf("size %d: got another text of %d bytes", size, len(line.Text))
				}
			}
			if string(line.Text) == "last" && r.long.buf != nil {
				t.Errorf("size %d: %d bytes are still held after many small lines", size, cap(r.long.buf))
			}
		}
		if seen != 2 {
			t.Errorf("size %d: got %d long lines, want 2", size, seen)
		}
		if got, want := digest.Sum64(), xxhash.Sum64String(data); got != want {
			t.Errorf("size %d: digest: got %016x, want %016x", size, got, want)
		}
	}
}

// giant is a source of one record, made on demand: a unit that is repeated
// between a head and a tail. It counts what is read.
type giant struct {
	head, unit, tail string
	size             int64 // of the units
	read             int64
}

func (g *giant) len() int64 { return int64(len(g.head)) + g.size + int64(len(g.tail)) }

func (g *giant) ReadAt(p []byte, at int64) (n int, err error) {
	head, units := int64(len(g.head)), int64(len(g.head))+g.size
	for n < len(p) {
		switch at := at + int64(n); {
		case at < head:
			n += copy(p[n:], g.head[at:])
		case at < units:
			n += copy(p[n:min(int64(len(p)), int64(n)+units-at)], g.unit[(at-head)%int64(len(g.unit)):])
		case at < g.len():
			n += copy(p[n:], g.tail[at-units:])
		default:
			return n, io.EOF
		}
	}
	g.read += int64(n)
	return n, nil
}

func TestReader_OversizedNeverHeld(t *testing.T) {
	const head, tail = "{}\n" + `{"type":"message","message":{"role":"user","content":`, `},"id":"late"}` + "\n{}\n"
	const call = `{"id":"x","arguments":{"text":"größe\n","n":[12,true]}},`
	for _, tt := range []struct {
		name  string
		g     giant
		lines int
		valid bool
		reads int64 // how often each byte is read at the most
	}{
		{"text", giant{head: head + `"`, unit: "ggggggggggggggg\\n", size: 100 << 20, tail: `"` + tail}, 3, true, 2},
		{"structure", giant{head: head + `[`, unit: call, size: int64(len(call)) << 21, tail: `0]` + tail}, 3, true, 2},
		{"NULs", giant{head: "{}\n", unit: strings.Repeat("\x00", 4<<10), size: 1 << 30, tail: "\n"}, 2, false, 2},
		{"NULs without an end", giant{head: "{}\n", unit: strings.Repeat("\x00", 4<<10), size: 1 << 30}, 2, false, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := &tt.g
			r := NewReader(g, 0, g.len(), ReaderOptions{Keys: testKeys})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var got *Oversized
			lines := 0
			for ; ; lines++ {
				line, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if line.Oversized != nil {
					got = line.Oversized
				}
			}
			runtime.ReadMemStats(&after)
			if lines != tt.lines || got == nil || got.Valid != tt.valid {
				t.Fatalf("got %d lines, oversized %+v, want %d, valid %v", lines, got, tt.lines, tt.valid)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
				t.Errorf("got %d bytes allocated, want less than a MiB", used)
			}
			if most := tt.reads*g.len() + 4*defaultBufferBytes; g.read > most {
				t.Errorf("got %d bytes read of %d, want at most %d", g.read, g.len(), most)
			}
			if !tt.valid {
				return
			}
			if string(got.Top[0].Raw) != `"message"` || string(got.Top[1].Raw) != `"late"` || string(got.Sub[0].Raw) != `"user"` {
				t.Errorf("got type %q, id %q, role %q", got.Top[0].Raw, got.Top[1].Raw, got.Sub[0].Raw)
			}
			if m := got.Top[4]; m.Kind != Object || m.End-m.Start < g.size || m.Raw != nil {
				t.Errorf("got message %v of %d bytes, want an object of over %d", m.Kind, m.End-m.Start, g.size)
			}
		})
	}
}

// What was not asked for is left to the machine, as far as it is whole in a
// piece: the stream steps over it at once, and over the rest byte by byte.
func TestStream_StepsOverWholeValues(t *testing.T) {
	const call = `{"id":"x","arguments":{"text":"a","n":[12,true]}}`
	text := `{"message":{"content":[` + strings.Repeat(call+",", 1000) + `0]}}`
	v := newStream(testKeys)
	steps := 0
	for p := []byte(text); len(p) > 0; p = p[min(len(p), 700):] {
		before := v.offset
		v.write(p[:min(len(p), 700)])
		if v.offset-before < int64(min(len(p), 700)) {
			t.Fatalf("stopped at %d", v.offset)
		}
		steps += v.missed
	}
	if !v.complete() || steps == 0 || steps > missesMax*(len(text)/700+1) {
		t.Errorf("complete %v, %d values were tried in vain, want some and at most %d a piece", v.complete(), steps, missesMax)
	}
}

func TestReader_NoAllocationPerLine(t *testing.T) {
	data := []byte(strings.Repeat(sampleLines[1]+"\n", 20_000))
	digest := xxhash.New()
	r := NewReader(bytes.NewReader(data), 0, int64(len(data)), ReaderOptions{Digest: digest})
	s := NewScanner(testKeys)
	if n := testing.AllocsPerRun(15_000, func() {
		line, err := r.Next()
		if err != nil || s.Scan(line.Text).Kind != Object {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("got %v allocations a line, want 0", n)
	}
}
