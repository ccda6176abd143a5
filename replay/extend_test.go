package replay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"

	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
	"sessiond/replay/stamp"
)

func TestDelta_Cut(t *testing.T) {
	base := []string{header(3), user("a", ""), user("b", "a"), user("c", "b")}
	all := dialect.Cut{Keep: dialect.All}
	branch := func(keep int) dialect.Cut { return dialect.Cut{Keep: keep, Reason: dialect.ReasonBranch} }
	for _, tc := range []struct {
		name                string
		before, after       []string // beside base
		transcript, context dialect.Cut
	}{
		{"append", nil, []string{user("d", "c")}, all, all},
		{"silent entry", nil, []string{entry("label", "d", "c", "")}, all, all},
		{"blank and malformed lines", nil, []string{"", "{", "42"}, all, all},
		{"branch back", nil, []string{user("d", "a")}, branch(1), branch(1)},
		{"branch back below silent entries only", []string{entry("custom", "d", "c", "")}, []string{user("e", "c")}, all, all},
		{"new root", nil, []string{user("d", "")}, branch(0), branch(0)},
		{"unknown parent", nil, []string{user("d", "x")}, all, branch(0)},
		{"compaction", nil, []string{compaction("d", "c", "b")}, all, dialect.Cut{Reason: dialect.ReasonCompaction}},
		{"branch behind a compaction", []string{compaction("d", "c", "b"), user("e", "d"), user("f", "e")}, []string{user("g", "e")}, branch(5), branch(4)},
		{"branch before a compaction", []string{compaction("d", "c", "b"), user("e", "d")}, []string{user("f", "c")}, branch(3), branch(0)},
		{"repeat of the leaf's id", nil, []string{user("c", "b")}, branch(2), branch(2)},
		{"branch that leaves an edit", []string{contextEdit("d", "c", "a", "null")}, []string{user("e", "c")}, all, branch(0)},
		{"repeat that leaves an edit", []string{contextEdit("d", "c", "a", "null"), user("e", "d")}, []string{user("e", "a")}, branch(1), branch(0)},
		{"header that changes the version", nil, []string{header(2)}, all, all}, // the second header is none
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := file(slices.Concat(base, tc.before)...)
			data := file(slices.Concat(base, tc.before, tc.after)...)
			r := online(t, before)
			client := [2][]string{slotMessages(t, r, before, 0), slotMessages(t, r, before, 1)}
			seq := r.Head().Sequence
			extend(t, r, data)
			for _, v := range bothViews {
				want := [2]dialect.Cut{tc.transcript, tc.context}[v]
				if got := deltaOf(t, r, v, seq).Cut; got != want {
					t.Errorf("%v: cut: got %+v, want %+v", v, got, want)
				}
				got, _ := apply(t, r, dialect.NewWindow(bytes.NewReader(data)), v, seq, client[v])
				if diff := cmp.Diff(slotMessages(t, online(t, data), data, v), got); diff != "" {
					t.Errorf("%v (-fresh +client):\n%s", v, diff)
				}
			}
		})
	}
}

func TestExtend_LateHeaderReadsAnew(t *testing.T) {
	before := file(strings.Replace(user("a", ""), `"id":"a",`, "", 1), user("b", "x"), "")
	data := append(bytes.Clone(before), file(header(3), user("c", "b"))...)
	var seen []uint64
	var found []jsonl.Diagnostic
	opt := replay.Options{
		Observe:     func(r replay.Record) { seen = append(seen, r.Sequence) },
		Diagnostics: func(d jsonl.Diagnostic) { found = append(found, d) },
	}
	r := buildWith(t, before, opt)
	if got, want := texts(t, r, before, dialect.Context), "a b"; got != want {
		t.Errorf("as version 1: got %q, want %q", got, want)
	}
	extend(t, r, data)
	if got, want := texts(t, r, data, dialect.Context), "b c"; got != want {
		t.Errorf("as version 3: got %q, want %q", got, want)
	}
	d := deltaOf(t, r, dialect.Context, 3)
	if want := (dialect.Cut{Reason: dialect.ReasonHeader}); d.Cut != want {
		t.Errorf("cut: got %+v, want %+v", d.Cut, want)
	}
	if d := deltaOf(t, r, dialect.Context, 4); d.Cut.Keep != dialect.All {
		t.Errorf("cut after the header: got %+v", d.Cut)
	}
	if diff := cmp.Diff([]uint64{1, 2, 3, 4, 5}, seen); diff != "" {
		t.Errorf("records observed (-want +got):\n%s", diff)
	}
	if len(found) != 0 {
		t.Errorf("diagnostics of lines: got %v", found)
	}
	equalReplays(t, online(t, data), r, data)
}

// TestExtend_HeadNeverGoesBack watches a replay while it is read anew.
func TestExtend_HeadNeverGoesBack(t *testing.T) {
	lines := []string{strings.Replace(user("a", ""), `"id":"a",`, "", 1)}
	for i := range 100 {
		lines = append(lines, message(fmt.Sprint("m", i), "", "user", strings.Repeat("x", 100<<10)))
	}
	before := file(lines...)
	data := append(bytes.Clone(before), file(header(3))...)
	r := online(t, before)
	head := r.Head()
	checks := 0
	src := readerFunc(func(p []byte, off int64) (int, error) {
		if off < head.Offset { // what is below is read for the second time
			checks++
			if got := r.Head(); got != head {
				t.Errorf("head during the second reading: got %+v, want %+v", got, head)
			}
		}
		return bytes.NewReader(data).ReadAt(p, off)
	})
	if err := r.Extend(t.Context(), src, int64(len(data))); err != nil {
		t.Fatal(err)
	}
	if checks == 0 {
		t.Error("the file was not read a second time")
	}
	if got := r.Head().Sequence; got != head.Sequence+1 {
		t.Errorf("head: got %d, want %d", got, head.Sequence+1)
	}
}

type readerFunc func(p []byte, off int64) (int, error)

func (f readerFunc) ReadAt(p []byte, off int64) (int, error) { return f(p, off) }

func TestExtend_DetectionWaits(t *testing.T) {
	long := message("a", "", "user", strings.Repeat("x", 300<<10))
	data := file(long, user("b", "a"))
	for _, tc := range []struct {
		name  string
		sizes []int
	}{
		{"a first line that comes in pieces", []int{0, 10, 280 << 10, len(long), len(data)}},
		{"a first line without its LF", []int{len(long), len(long) + 1, len(data)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := online(t, nil)
			for _, size := range tc.sizes {
				extend(t, r, data[:size])
				equalReplays(t, online(t, data[:size]), r, data[:size])
			}
			if name, _ := r.Dialect(); name != "pi" {
				t.Errorf("dialect: got %q", name)
			}
		})
	}
}

func TestExtend_LongTailIsNotReadAgain(t *testing.T) {
	data := file(header(3), message("a", "", "user", strings.Repeat("x", 3<<20)), user("b", "a"))
	step := 64 << 10
	r := online(t, nil)
	var read int64
	for size := 0; size < len(data); {
		size = min(size+step, len(data))
		counted := readerFunc(func(p []byte, off int64) (int, error) {
			read += int64(len(p))
			return bytes.NewReader(data[:size]).ReadAt(p, off)
		})
		if err := r.Extend(t.Context(), counted, int64(size)); err != nil {
			t.Fatal(err)
		}
		equalReplays(t, online(t, data[:size]), r, data[:size])
	}
	// Up to 1 MiB every step reads the tail again, above none does.
	if most := int64(24 << 20); read > most {
		t.Errorf("read %d bytes of %d, want at most %d", read, len(data), most)
	}
}

// A tail that is too long to be looked into may be taken back as any other:
// the record in its place is not lost.
func TestExtend_LongTailIsTakenBack(t *testing.T) {
	base := file(header(3), user("a", ""))
	data := slices.Concat(base, bytes.Repeat([]byte("x"), 1200<<10))
	r := online(t, data)
	data = slices.Concat(base, file(user("b", "a")), bytes.Repeat([]byte("y"), 1300<<10))
	extend(t, r, data)
	if got, want := r.Head(), online(t, data).Head(); got != want {
		t.Errorf("head: got %+v, want %+v", got, want)
	}
}

// TestExtend_AfterReadErrors fails each read in turn, half done, then lets the
// replay go on.
func TestExtend_AfterReadErrors(t *testing.T) {
	lines := []string{header(3)}
	for i := range 30 {
		lines = append(lines, message(fmt.Sprint("m", i), fmt.Sprint("m", i-1), "user", strings.Repeat("x", 500*(i%7))))
	}
	data := file(lines...)
	opt := replay.Options{BufferBytes: 512, RecordBytesMax: 2000}
	want := buildWith(t, data, opt)
	failure := errors.New("bad sector")
	for n, failed := 0, true; failed; n++ {
		reads := 0
		failed = false
		src := readerFunc(func(p []byte, off int64) (int, error) {
			reads++
			if reads == n {
				failed = true
				return 0, failure
			}
			return bytes.NewReader(data).ReadAt(p, off)
		})
		r := buildWith(t, data[:recordEnds(data)[3]], opt)
		if n == 0 {
			failed = true // this turn fails nothing
		}
		err := r.Extend(t.Context(), src, int64(len(data)))
		if n > 0 && failed != errors.Is(err, failure) {
			t.Fatalf("read %d fails: got %v", n, err)
		}
		if _, _, err := stamp.Verify(bytes.NewReader(data), nil, r.Head()); err != nil {
			t.Fatalf("head after read %d: %v", n, err)
		}
		extend(t, r, data)
		equalReplays(t, want, r, data)
	}
}

func TestExtend_CancelledGoesOn(t *testing.T) {
	var lines []string
	for i := range 300 {
		lines = append(lines, message(fmt.Sprint("m", i), fmt.Sprint("m", i-1), "user", strings.Repeat("x", 50<<10)))
	}
	first := file(lines[:1]...)
	data := file(lines...)
	r := online(t, first)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Extend(ctx, bytes.NewReader(data), int64(len(data))); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want %v", err, context.Canceled)
	}
	if got := r.Head(); got.Offset == 0 || got.Offset >= int64(len(data)) {
		t.Errorf("head: got %+v, want one inside the file", got)
	}
	if got := r.Tail(); got.State != replay.TailClean || got.Offset != r.Head().Offset {
		t.Errorf("tail: got %+v", got)
	}
	extend(t, r, data)
	equalReplays(t, online(t, data), r, data)
}

func TestExtend_RefusesAShorterFile(t *testing.T) {
	data := file(header(3), user("a", ""))
	r := online(t, data)
	if err := r.Extend(t.Context(), bytes.NewReader(data), 10); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("size 10: got %v", err)
	}
	if err := r.Extend(t.Context(), bytes.NewReader(data), int64(len(data))+1); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a source shorter than said: got %v", err)
	}
	equalReplays(t, online(t, data), r, data)
}

// TestView_StaysWhileTheReplayGrows holds old slices to their word.
func TestView_StaysWhileTheReplayGrows(t *testing.T) {
	lines := []string{header(3), user("a", ""), user("b", "a")}
	data := file(lines...)
	r := online(t, data)
	type old struct {
		got  dialect.Slots
		want []dialect.Slot
	}
	var views []old
	for i := range 200 {
		for _, v := range bothViews {
			s := viewOf(t, r, v).Slots
			views = append(views, old{s, s.AppendTo(nil, 0, s.Len())})
		}
		parent := "b"
		if i%3 > 0 {
			parent = fmt.Sprint("m", i-1)
		}
		data = append(data, file(user(fmt.Sprint("m", i), parent))...)
		extend(t, r, data)
	}
	for i, v := range views {
		if got := v.got.AppendTo(nil, 0, v.got.Len()); !slices.Equal(got, v.want) {
			t.Fatalf("view %d: got %v, want %v", i, got, v.want)
		}
	}
}

// TestReplay_ReadersBesideExtend lets the race detector watch all readers
// beside a growing replay.
func TestReplay_ReadersBesideExtend(t *testing.T) {
	lines := bytes.SplitAfter(smallSession(), []byte("\n"))
	var data []byte
	for range 20 { // ids repeat, so that links change too
		data = append(data, bytes.Join(lines, nil)...)
	}
	r := online(t, nil)
	grown := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			w := dialect.NewWindow(bytes.NewReader(data))
			for {
				for _, v := range bothViews {
					d := deltaOf(t, r, v, r.Head().Sequence/2)
					for _, s := range d.Slots.All() {
						render(t, bodyOf(t, r, v, s, true), w)
					}
					if p, ok, err := r.Preview(v, w); err != nil || (ok && p.Body != nil && p.Body.Sequence == 0) {
						t.Errorf("Preview: got %+v %v", p, err)
					}
				}
				_, _, errInfo := r.Info(w)
				_, errState := r.State(w)
				_, errLeaf := r.Leaf(w)
				if err := errors.Join(errInfo, errState, errLeaf); err != nil {
					t.Error(err)
				}
				r.Held([]byte(`{"id":"a"}`))
				r.Diagnostics()
				r.Bytes()
				select {
				case <-grown:
					return
				default:
				}
			}
		})
	}
	for size := 0; size < len(data); {
		size = min(size+100, len(data))
		extend(t, r, data[:size])
	}
	close(grown)
	wg.Wait()
	equalReplays(t, online(t, data), r, data)
}

// A last line that just fills what is read at a time is a tail all the same.
func TestBuild_TailThatFillsABatch(t *testing.T) {
	data := file(header(3), message("a", "", "user", strings.Repeat("x", 200<<10)))
	for _, tail := range []int{50 << 10, 56 << 10, 60 << 10} {
		torn := append(bytes.Clone(data), message("b", "a", "user", strings.Repeat("y", 80<<10))[:tail]...)
		if got := online(t, torn).Tail(); got.State != replay.TailUnterminated || got.Bytes != int64(tail) {
			t.Errorf("%d bytes behind the last LF: got %+v", tail, got)
		}
	}
}

// A file that is cut while it is read leaves the replay at the records that it
// has, with their digest: what is written there then is another history.
func TestExtend_CutWhileItIsReadIsNotForgotten(t *testing.T) {
	big := strings.Repeat("x", 100<<10)
	data := file(header(3), user("a", ""))
	r := online(t, data)
	long := append(bytes.Clone(data), file(message("b", "a", "user", big), message("c", "b", "user", big), message("d", "c", "user", big), message("e", "d", "user", big))...)
	cut := len(data) + 250<<10
	first := true
	src := readerFunc(func(p []byte, off int64) (int, error) {
		if end := int(off) + len(p); end > cut && !first || int(off) >= cut {
			return 0, io.ErrUnexpectedEOF
		}
		first = false
		return bytes.NewReader(long[:cut]).ReadAt(p, off)
	})
	if err := r.Extend(t.Context(), src, int64(len(long))); err == nil {
		t.Fatal("no error")
	}
	head := r.Head()
	if head.Offset < int64(len(data)) || head.Digest != xxhash.Sum64(long[:head.Offset]) {
		t.Fatalf("head %+v, want one of the file that was read", head)
	}
	other := file(header(3), user("z", ""), user("y", "z"))
	if err := r.Compare(t.Context(), bytes.NewReader(other), true); !errors.Is(err, stamp.ErrMismatch) {
		t.Errorf("another history: got %v, want %v", err, stamp.ErrMismatch)
	}
	extend(t, r, long)
	equalReplays(t, online(t, long), r, long)
}
