package engine

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"sessiond/wire"
)

// attachAt resumes at a cursor.
func (w *world) attachAt(session string, view wire.View, at wire.Cursor, have int, rules string) *follower {
	w.t.Helper()
	c := wire.Command{Session: session, View: view, Resume: &at, RulesRevision: rules}
	if view != wire.ViewRecords {
		c.Have = &have
	}
	f := w.attach(c)
	f.slots = slices.Repeat([]string{"held"}, have)
	return f
}

func TestCursor_WhyASnapshotAnswersIt(t *testing.T) {
	w := newWorld(t)
	path := w.write("a.jsonl", sessionText(20))
	w.e.changed(path)
	const key = followedRoot + ":a.jsonl"
	first := w.attach(wire.Command{Session: key, View: wire.ViewTranscript})
	if first.reason() != wire.ReasonNoCursor {
		t.Errorf("without a cursor: reason %q, want %s", first.reason(), wire.ReasonNoCursor)
	}
	first.untilLive()
	if first.begin.Purpose != wire.PurposeAttach || first.begin.OldBytes != nil {
		t.Errorf("without a cursor: begin %+v", first.begin)
	}
	good, rules := first.cursor, first.result.RulesRevision
	middle := pointAt(t, w, key, 10)
	for _, row := range []struct {
		name   string
		change func(c *wire.Cursor, rules *string)
		want   string
	}{
		{"valid", func(*wire.Cursor, *string) {}, ""},
		{"valid, of another generation: a copy with the same prefix", func(c *wire.Cursor, _ *string) { c.Generation[0]++ }, ""},
		{"valid, rules revision not told", func(_ *wire.Cursor, r *string) { *r = "" }, ""},
		{"valid, in the middle", func(c *wire.Cursor, _ *string) { *c = middle }, ""},
		{"other bytes", func(c *wire.Cursor, _ *string) { c.Digest++ }, wire.ReasonRewritten},
		{"other count of records", func(c *wire.Cursor, _ *string) { c.Sequence-- }, wire.ReasonRewritten},
		{"inside a record", func(c *wire.Cursor, _ *string) { c.Offset-- }, wire.ReasonRewritten},
		{"beyond the file, same generation", func(c *wire.Cursor, _ *string) { c.Offset++ }, wire.ReasonAhead},
		{"beyond the file, another generation", func(c *wire.Cursor, _ *string) { c.Offset++; c.Generation[0]++ }, wire.ReasonTruncated},
		{"other rules revision", func(_ *wire.Cursor, r *string) { *r = "pi/0" }, wire.ReasonExpired},
		{"from the start", func(c *wire.Cursor, _ *string) { c.Sequence, c.Offset, c.Digest = 0, 0, startDigest }, wire.ReasonFarBehind},
	} {
		t.Run(row.name, func(t *testing.T) {
			at, r := good, rules
			row.change(&at, &r)
			f := w.attachAt(key, wire.ViewTranscript, at, 20, r)
			if f.reason() != row.want || (f.result.Mode == wire.ModeTail) != (row.want == "") {
				t.Fatalf("got mode %s, reason %q; want reason %q", f.result.Mode, f.reason(), row.want)
			}
			f.untilLive()
			if row.want != "" && (f.begin.Purpose != wire.PurposeResync || *f.begin.Reason != row.want || len(f.slots) != 20) {
				t.Errorf("begin: purpose %s, reason %s; %d slots", f.begin.Purpose, *f.begin.Reason, len(f.slots))
			}
			if row.want == "" && f.count(wire.TypeSnapshotBegin) > 0 {
				t.Errorf("frames %v, want no snapshot", f.frames)
			}
		})
	}
}

const startDigest = 0xef46db3751d8e999 // xxh64 of nothing

// pointAt is the cursor of a record.
func pointAt(t *testing.T, w *world, key string, sequence uint64) wire.Cursor {
	t.Helper()
	s := w.session(key)
	g, err := s.use(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer s.done(g)
	p, err := g.pointOf(sequence)
	if err != nil {
		t.Fatal(err)
	}
	return g.cursor(p)
}

// The rules of messages do not concern the records.
func TestCursor_RecordsHaveNoRules(t *testing.T) {
	w := newWorld(t)
	head := w.create("s1").Head
	w.append("s1", chain(0, 3)...)
	f := w.attachAt("s1", wire.ViewRecords, head, 0, "pi/0")
	f.untilLive()
	if f.result.Mode != wire.ModeTail || len(f.slots) != 3 {
		t.Errorf("got mode %s, %d records; want the 3 missed", f.result.Mode, len(f.slots))
	}
}

// A copy of a file is another session, but what a client knows of one is true
// of the other as far as they are equal.
func TestCursor_HoldsInACopyWithTheSamePrefix(t *testing.T) {
	w := newWorld(t)
	w.e.changed(w.write("a.jsonl", sessionText(10)))
	f := w.attach(wire.Command{Session: "f:a.jsonl", View: wire.ViewTranscript})
	f.untilLive()
	w.e.changed(w.write("b.jsonl", sessionText(10)+lines(user("b0", "e9", "other"))))
	g := w.attachAt("f:b.jsonl", wire.ViewTranscript, f.cursor, f.have, f.result.RulesRevision)
	g.untilLive()
	if g.result.Mode != wire.ModeTail || len(g.slots) != 11 || g.result.Generation == f.result.Generation {
		t.Errorf("got mode %s, slots %v", g.result.Mode, g.slots)
	}
}

// A tail larger than the view it leads to is answered by the view.
func TestCursor_FarBehind(t *testing.T) {
	big := strings.Repeat("x", 900<<10)
	text := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(user(fmt.Sprintf("b%d", i), "e0", big) + "\n") // each branches back
		}
		return b.String()
	}
	w := newWorld(t)
	path := w.write("a.jsonl", sessionText(1))
	w.e.changed(path)
	first := w.attach(wire.Command{Session: "f:a.jsonl", View: wire.ViewContext})
	first.untilLive()
	first.st.Close()
	w.extendFile(path, text(5))
	w.look("a")
	few := w.attachAt("f:a.jsonl", wire.ViewContext, first.cursor, first.have, "")
	few.untilLive()
	if few.result.Mode != wire.ModeTail {
		t.Errorf("4.5 MiB behind: got %s for %q, want tail", few.result.Mode, few.reason())
	}
	w.extendFile(path, text(10))
	w.look("a")
	for _, view := range []wire.View{wire.ViewContext, wire.ViewRecords} {
		f := w.attachAt("f:a.jsonl", view, first.cursor, first.have, "")
		want := ""
		if view == wire.ViewContext {
			want = wire.ReasonFarBehind
		}
		if f.reason() != want {
			t.Errorf("%s, 13 MiB behind: got reason %q, want %q", view, f.reason(), want)
		}
		f.untilLive()
	}
}

func TestAttach_Refuses(t *testing.T) {
	w := newWorld(t)
	w.create("s1")
	head := w.append("s1", chain(0, 3)...).Head
	w.e.changed(w.write("alien.jsonl", strings.Repeat(`{"a":1}`+"\n", 30)))
	less := -1
	for _, row := range []struct {
		name string
		c    wire.Command
		want wire.Code
	}{
		{"no session", wire.Command{View: wire.ViewRecords}, wire.CodeBadArgument},
		{"unknown session", wire.Command{Session: "nobody", View: wire.ViewRecords}, wire.CodeUnknownSession},
		{"no view", wire.Command{Session: "s1"}, wire.CodeBadArgument},
		{"unknown encoding", wire.Command{Session: "s1", View: wire.ViewRecords, Encoding: "xml"}, wire.CodeBadArgument},
		{"raw messages", wire.Command{Session: "s1", View: wire.ViewContext, Encoding: wire.EncodingRaw}, wire.CodeBadArgument},
		{"order", wire.Command{Session: "s1", View: wire.ViewContext, Order: "newest"}, wire.CodeBadArgument},
		{"cursor without have", wire.Command{Session: "s1", View: wire.ViewContext, Resume: &head}, wire.CodeBadArgument},
		{"have below zero", wire.Command{Session: "s1", View: wire.ViewContext, Resume: &head, Have: &less}, wire.CodeBadArgument},
		{"cursor and position", wire.Command{Session: "s1", View: wire.ViewContext, Resume: &head, Position: &wire.Position{}}, wire.CodeBadArgument},
		{"messages of an unknown format", wire.Command{Session: "alien", View: wire.ViewContext}, wire.CodeBadArgument},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.c.Type = wire.CmdAttach
			w.refuse(row.c, row.want)
		})
	}
	f := w.attach(wire.Command{Session: "alien", View: wire.ViewRecords})
	f.untilLive()
	if len(f.slots) != 30 {
		t.Errorf("records of an unknown format: got %d, want 30", len(f.slots))
	}
}

// A client may claim to hold more or less than there is.
func TestCursor_HaveIsTheClientsWord(t *testing.T) {
	w := newWorld(t)
	w.create("s1")
	head := w.append("s1", chain(0, 10)...).Head
	w.append("s1", chain(10, 3)...)
	for _, have := range []int{0, 3, 10, 11, 12, 500} {
		f := w.attachAt("s1", wire.ViewTranscript, head, have, "")
		f.untilLive()
		f.drain()
		if len(f.slots) != 13 {
			t.Errorf("have %d: got %d slots, want 13", have, len(f.slots))
		}
	}
}

func TestAttach_WithoutLiveEndsAtTheSeam(t *testing.T) {
	w := newWorld(t)
	head := w.create("s1").Head
	w.append("s1", chain(0, 5)...)
	no := false
	for _, c := range []wire.Command{
		{View: wire.ViewTranscript},
		{View: wire.ViewRecords},
		{View: wire.ViewRecords, Encoding: wire.EncodingRaw},
		{View: wire.ViewRecords, Resume: &head},
		{View: wire.ViewRecords, Encoding: wire.EncodingRaw, Resume: &head},
	} {
		c.Session, c.Live = "s1", &no
		f := w.attach(c)
		f.untilOver()
		if n := f.count(wire.TypeLive); n != 1 || f.frames[len(f.frames)-1] != wire.TypeLive {
			t.Errorf("%s %s: frames %v, want one live, at the end", c.View, c.Encoding, f.frames)
		}
	}
}

// What comes while a snapshot is sent comes after the seam, which is at the
// cut.
func TestAttach_LiveIsAtTheCut(t *testing.T) {
	for _, view := range []wire.View{wire.ViewTranscript, wire.ViewContext, wire.ViewRecords} {
		t.Run(string(view), func(t *testing.T) {
			w := newWorld(t)
			w.create("s1")
			cut := w.append("s1", chain(0, 5)...).Head
			f := w.attach(wire.Command{Session: "s1", View: view})
			f.until("begin", func() bool { return f.snapshot != nil })
			w.append("s1", append(chain(5, 3), user("b", "e1", "branch"))...)
			f.untilLive()
			if !f.lastLive.Cursor.Same(cut) {
				t.Errorf("live at %v, want the cut %v", f.lastLive.Cursor, cut)
			}
			f.drain()
			if f.count(wire.TypeEvent) == 0 {
				t.Errorf("frames %v", f.frames)
			}
		})
	}
}

func TestAttach_NoFileIsMadeByIt(t *testing.T) {
	w := newWorld(t)
	w.refuse(wire.Command{Type: wire.CmdAttach, Session: "../x", View: wire.ViewRecords}, wire.CodeUnknownSession)
	w.refuse(wire.Command{Type: wire.CmdAppend, Session: "new", Entries: []string{"{}"}}, wire.CodeUnknownSession)
	list, err := os.ReadDir(w.e.o.SessionsDir)
	if err != nil || len(list) > 0 {
		t.Errorf("sessions folder: got %v, %v; want nothing", list, err)
	}
}
