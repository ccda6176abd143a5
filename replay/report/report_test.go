package report

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
	"sessiond/testdata/gen"
)

const header = `{"type":"session","version":3,"id":"s","timestamp":"2026-01-02T03:04:05.000Z","cwd":"/x"}` + "\n"

// message is the line of a user's message.
func message(id, parent string) string {
	if parent != "null" {
		parent = `"` + parent + `"`
	}
	return fmt.Sprintf(`{"type":"message","id":"%s","parentId":%s,"timestamp":"2026-01-02T03:04:06.000Z","message":{"role":"user","content":"text of %s"}}`+"\n", id, parent, id)
}

func file(text string) File {
	return File{Path: "dir/name.jsonl", Source: strings.NewReader(text), Size: int64(len(text)), ModTime: time.Unix(1000, 0)}
}

func summarize(t *testing.T, text string, opt Options) *Summary {
	t.Helper()
	s, err := Summarize(t.Context(), file(text), opt)
	if err != nil {
		t.Fatalf("Summarize: %v", err)
	}
	if r := s.Records; r.Total != r.Entries+r.Blank+r.Malformed+r.Salvaged {
		t.Errorf("records do not add up: %+v", r)
	}
	if want := strings.Count(text, "\n"); s.Records.Total != int64(want) {
		t.Errorf("records: got %d, want %d", s.Records.Total, want)
	}
	sum := sha256.Sum256([]byte(text))
	if want := hex.EncodeToString(sum[:]); s.SHA256 != want {
		t.Errorf("sha256: got %s, want %s", s.SHA256, want)
	}
	return s
}

func TestSummarize_EveryCut(t *testing.T) {
	var b bytes.Buffer
	if _, err := gen.Write(&b, gen.Options{Profile: gen.Small, Bytes: 3 << 10, TurnsPerFork: 2}); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for n := range len(text) + 1 {
		s := summarize(t, text[:n], Options{})
		tail := int64(n - strings.LastIndexByte(text[:n], '\n') - 1)
		if s.Tail.Bytes != tail || s.Tail.Offset != int64(n)-tail {
			t.Fatalf("cut at %d: tail %+v, want %d bytes", n, s.Tail, tail)
		}
		want := OK
		if s.Tail.State == "unterminated" {
			want = Unfinished
		}
		if s.Health() != want {
			t.Fatalf("cut at %d: health %v, want %v", n, s.Health(), want)
		}
	}
}

func TestSummarize_Tail(t *testing.T) {
	mtime := time.Unix(1000, 0)
	for _, tt := range []struct {
		name, tail string
		age        time.Duration
		want       string
	}{
		{"clean", "", time.Hour, "clean"},
		{"whole", `{"a":1}`, time.Hour, "provisional"},
		{"in flight", `{"a":`, 5 * time.Second, "unterminated"},
		{"torn", `{"a":`, 5*time.Second + 1, "torn"},
		{"from the future", `{"a":`, -time.Hour, "unterminated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := summarize(t, header+tt.tail, Options{Now: mtime.Add(tt.age)})
			if s.Tail.State != tt.want {
				t.Errorf("state: got %s, want %s", s.Tail.State, tt.want)
			}
		})
	}
}

func TestSummarize_Names(t *testing.T) {
	for _, tt := range []struct{ name, text, dialect, id string }{
		{"header", header, "pi", "s"},
		{"no header", message("u", "null"), "pi", "name"},
		{"unknown", "{}\n", "unknown", "name"},
		{"empty", "", "unknown", "name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := summarize(t, tt.text, Options{})
			if s.Dialect != tt.dialect || s.SessionID != tt.id {
				t.Errorf("got %s %s, want %s %s", s.Dialect, s.SessionID, tt.dialect, tt.id)
			}
		})
	}
}

// TestSummarize_HeaderLate reads the file twice, because the header changes
// what the entries before it are; they count once.
func TestSummarize_HeaderLate(t *testing.T) {
	early := `{"type":"message","parentId":null,"timestamp":"2026-01-02T03:04:06.000Z","message":{"role":"user","content":"x"}}` + "\n"
	s := summarize(t, early+header+message("u", "null"), Options{})
	if diff := cmp.Diff(map[string]int64{"message": 2, "session": 1}, s.Types); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
	if s.FormatVersion != 3 {
		t.Errorf("version: got %d, want 3", s.FormatVersion)
	}
}

// TestSummarize_WrittenTwice counts what a response cost once.
func TestSummarize_WrittenTwice(t *testing.T) {
	response := func(cost string) string {
		return `{"type":"message","id":"a","parentId":null,"timestamp":"2026-01-02T03:04:06.000Z","message":{"role":"assistant",` +
			`"content":[{"type":"toolCall","id":"c","name":"x","arguments":{}}],"usage":{"input":5,"output":7,"cost":{"total":` + cost + `}}}}` + "\n"
	}
	cost := int64(250_000)
	for _, tt := range []struct {
		name, text string
		calls      int64
		want       Usage
	}{
		{"once", response("0.25"), 1, Usage{Responses: 1, Input: 5, Output: 7, CostMicroUSD: &cost}},
		{"twice", response("0.25") + response("0.25"), 1, Usage{Responses: 1, Input: 5, Output: 7, CostMicroUSD: &cost}},
		{"same id, another response", response("0.25") + response("0"), 2, Usage{Responses: 2, Input: 10, Output: 14, CostMicroUSD: &cost}},
		{"no cost", response("null"), 1, Usage{Responses: 1, Input: 5, Output: 7}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := summarize(t, header+tt.text, Options{})
			if diff := cmp.Diff(tt.want, s.Usage); diff != "" {
				t.Errorf("usage (-want +got):\n%s", diff)
			}
			if s.Tools.Calls != tt.calls {
				t.Errorf("calls: got %d, want %d", s.Tools.Calls, tt.calls)
			}
		})
	}
}

// manyFindings has more findings than are held, of lines and of entries, one
// after the other.
func manyFindings(n int) string {
	var b strings.Builder
	b.WriteString(header)
	for i := range n {
		b.WriteString("{\n")
		b.WriteString(message(fmt.Sprintf("m%d", i), fmt.Sprintf("lost%d", i)))
	}
	return b.String()
}

func TestSummarize_Truncated(t *testing.T) {
	for _, tt := range []struct {
		name string
		n    int
		want bool
	}{
		{"at the bound", DiagnosticsMax / 2, false},
		{"over the bound", DiagnosticsMax/2 + 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := summarize(t, manyFindings(tt.n), Options{})
			if s.DiagnosticsTruncated != tt.want || len(s.Diagnostics) != DiagnosticsMax {
				t.Errorf("got %d findings, truncated %v, want %d, %v", len(s.Diagnostics), s.DiagnosticsTruncated, DiagnosticsMax, tt.want)
			}
			if s.Health() != Damaged {
				t.Errorf("health: got %v, want damaged", s.Health())
			}
		})
	}
}

// TestCheck_Each gives every finding once and in order, however many.
func TestCheck_Each(t *testing.T) {
	for _, n := range []int{0, 10, DiagnosticsMax - 1, DiagnosticsMax, DiagnosticsMax + 500} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c, err := Examine(t.Context(), file(manyFindings(n)), Options{})
			if err != nil {
				t.Fatal(err)
			}
			got := map[jsonl.Code]int{}
			line := int64(0)
			err = c.Each(t.Context(), func(f Finding) error {
				if f.Line < line {
					t.Fatalf("line %d after line %d", f.Line, line)
				}
				line = f.Line
				got[f.Code]++
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if got[jsonl.CodeMalformedLine] != n || got[jsonl.CodeDanglingParent] != min(n, DiagnosticsMax) {
				t.Errorf("got %v, want %d of each, or as many as a dialect holds", got, n)
			}
			if want := n >= DiagnosticsMax; c.Truncated != want {
				t.Errorf("truncated: got %v, want %v", c.Truncated, want)
			}
		})
	}
}

func TestCheck_EachStops(t *testing.T) {
	stop := errors.New("stop")
	for _, n := range []int{10, DiagnosticsMax + 500} {
		c, err := Examine(t.Context(), file(manyFindings(n)), Options{})
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		if err := c.Each(t.Context(), func(Finding) error { seen++; return stop }); !errors.Is(err, stop) || seen != 1 {
			t.Errorf("%d findings: got %v after %d, want %v after 1", n, err, seen, stop)
		}
	}
}

// shrinking is a source that ends early from the given read on.
type shrinking struct {
	io.ReaderAt
	reads, at int
}

func (s *shrinking) ReadAt(p []byte, off int64) (int, error) {
	if s.reads++; s.reads > s.at {
		return 0, io.EOF
	}
	return s.ReaderAt.ReadAt(p, off)
}

func TestChanged(t *testing.T) {
	forms := map[string]func(File) error{
		"summary": func(f File) error { _, err := Summarize(t.Context(), f, Options{}); return err },
		"check":   func(f File) error { _, err := Examine(t.Context(), f, Options{}); return err },
		"messages": func(f File) error {
			return EachMessage(t.Context(), f, dialect.Transcript, Options{}, func(Message) error { return nil })
		},
		"records": func(f File) error {
			return EachRecord(t.Context(), f, Selection{}, Options{}, func(Record) error { return nil })
		},
	}
	for name, run := range forms {
		t.Run(name, func(t *testing.T) {
			whole := shrinking{ReaderAt: strings.NewReader(header + message("u", "null")), at: 1 << 30}
			f := file(header + message("u", "null"))
			f.Source = &whole
			if err := run(f); err != nil {
				t.Fatalf("whole: %v", err)
			}
			for at := range whole.reads {
				f.Source = &shrinking{ReaderAt: strings.NewReader(header + message("u", "null")), at: at}
				if err := run(f); !errors.Is(err, ErrChanged) {
					t.Errorf("shrinks after %d reads: got %v, want %v", at, err, ErrChanged)
				}
			}
		})
	}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Summarize(ctx, file(header), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestHashing(t *testing.T) {
	const text = "0123456789"
	sum := sha256.Sum256([]byte(text))
	want := hex.EncodeToString(sum[:])
	for _, tt := range []struct {
		name  string
		reads [][2]int // offset, length
	}{
		{"nothing read", nil},
		{"in pieces", [][2]int{{0, 3}, {3, 7}}},
		{"again and over", [][2]int{{0, 3}, {0, 3}, {2, 4}, {1, 2}, {4, 6}}},
		{"a gap", [][2]int{{5, 2}, {0, 2}}},
		{"beyond the end", [][2]int{{0, 20}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHashing(strings.NewReader(text))
			for _, r := range tt.reads {
				if _, err := h.ReadAt(make([]byte, r[1]), int64(r[0])); err != nil && !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
			}
			if got, err := h.sum(int64(len(text))); err != nil || got != want {
				t.Errorf("got %s, %v, want %s", got, err, want)
			}
		})
	}
}

func TestEachRecord(t *testing.T) {
	text := "\xef\xbb\xbf" + `{"type":"a"}` + "\n\n" + `{"type":"b"}` + "\r\n[1]\n{\"type\":\"a\xff\"}\n" + `{"type":"a","x":1}`
	all := []Record{
		{Sequence: 1, Offset: 0, Size: 16, Type: "a", JSON: true},
		{Sequence: 2, Offset: 16, Size: 1},
		{Sequence: 3, Offset: 17, Size: 14, Type: "b", JSON: true},
		{Sequence: 4, Offset: 31, Size: 4, JSON: true},
		{Sequence: 5, Offset: 35, Size: 14, Type: "a"},
		{Sequence: 0, Offset: 49, Size: 18, Type: "a", JSON: true},
	}
	for _, tt := range []struct {
		name string
		sel  Selection
		want []int
	}{
		{"all", Selection{}, []int{0, 1, 2, 3, 4, 5}},
		{"range", Selection{From: 2, To: 3}, []int{1, 2}},
		{"to the tail", Selection{From: 5}, []int{4, 5}},
		{"past the end, without the tail", Selection{From: 5, To: 99}, []int{4}},
		{"type", Selection{Type: "b"}, []int{2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got, want []Record
			for _, i := range tt.want {
				want = append(want, all[i])
			}
			err := EachRecord(t.Context(), file(text), tt.sel, Options{}, func(r Record) error {
				if r.Text == nil || r.Content != int64(len(r.Text)) {
					t.Errorf("record at %d: content %d, text %q", r.Offset, r.Content, r.Text)
				}
				if r.Type != "" {
					r.Type = r.Type[:1]
				}
				r.Text, r.Content = nil, 0
				got = append(got, r)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEachMessage_Unknown(t *testing.T) {
	err := EachMessage(t.Context(), file("{}\n"), dialect.Context, Options{}, nil)
	if !errors.Is(err, ErrNoMessages) {
		t.Errorf("got %v, want %v", err, ErrNoMessages)
	}
}

// TestEachMessage_Edited leaves out what a later edit dropped, and the indexes
// follow.
func TestEachMessage_Edited(t *testing.T) {
	text := header + message("a", "null") + message("b", "a") + message("c", "b") +
		`{"type":"context_edit","id":"e","parentId":"c","timestamp":"2026-01-02T03:04:07.000Z","targetId":"b","replacement":null}` + "\n"
	type seen struct {
		Index    int
		Sequence uint64
	}
	for _, tt := range []struct {
		view dialect.View
		want []seen
	}{
		{dialect.Context, []seen{{0, 2}, {1, 4}}},
		{dialect.Transcript, []seen{{0, 2}, {1, 3}, {2, 4}}},
	} {
		t.Run(tt.view.String(), func(t *testing.T) {
			var got []seen
			err := EachMessage(t.Context(), file(text), tt.view, Options{}, func(m Message) error {
				if !json.Valid(m.Text) {
					t.Errorf("message %d is no JSON: %q", m.Index, m.Text)
				}
				got = append(got, seen{m.Index, m.Sequence})
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
		})
	}
}

// Responses that share an id are told apart by looking at the first of them,
// not at all of them each time.
func TestSummarize_OneIDForAllIsLinear(t *testing.T) {
	const response = `{"type":"message","id":"a","parentId":null,"timestamp":"2026-01-02T03:04:06.000Z","message":{"role":"assistant",` +
		`"content":[{"type":"toolCall","id":"c","name":"x","arguments":{}}]}}` + "\n"
	allocated := func(n int) (bytes uint64) {
		text := header + strings.Repeat(response, n)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if s := summarize(t, text, Options{}); s.Tools.Calls != 1 {
			t.Errorf("calls: got %d, want 1", s.Tools.Calls)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	allocated(1)
	if few, many := allocated(2_000), allocated(8_000); many > 8*few {
		t.Errorf("allocated %d bytes for 2,000 responses, %d for 8,000", few, many)
	}
}
