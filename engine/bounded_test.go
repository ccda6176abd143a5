package engine

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/wire"
)

func withMaxBytes(n int64) func(*Options) {
	return func(o *Options) { o.MaxReplayBytes = n }
}

// attachBounded attaches up to live.
func (w *world) attachBounded(session string, view wire.View, mode string) *follower {
	w.t.Helper()
	f := w.attach(wire.Command{Session: session, View: view, Bounded: mode})
	f.untilLive()
	return f
}

// wholeView is a view of a file without limits.
func wholeView(t tb, content []byte, view wire.View) []string {
	t.Helper()
	src := bytes.NewReader(content)
	r, err := replay.Build(context.Background(), src, int64(len(content)), replay.Options{})
	if err != nil {
		t.Fatalf("Build: %v", err)
	}
	return slotsOf(r, viewOf(view), dialect.NewWindow(src))
}

// wantEnd demands that a follower holds a view from a slot on.
func (f *follower) wantEnd(w *world, session string, first int) {
	w.t.Helper()
	s := w.session(session)
	whole := wholeView(w.fail, readFile(w.t, s.path), f.command.View)
	if f.first != first || f.have != len(whole) || !slices.Equal(f.slots, whole[min(first, len(whole)):]) {
		w.t.Errorf("got %d slots from %d on:\n%s\nwant %d from %d on:\n%s", f.have, f.first, f.text(), len(whole), first, strings.Join(whole, "\n"))
	}
}

func TestBounded_HoldsWhatTheLimitsAllow(t *testing.T) {
	t.Parallel()
	tree := append([]string{header}, chain(0, 9)...) // 10 records
	log := []string{
		logInput("1"), logInput("2"), logInput("3"), logCompaction("4", "2"), logInput("5"), logInput("6"), logInput("7"),
	}
	last := func(list []string, n int) int64 { return int64(len(lines(list[len(list)-n:]...))) }
	for _, tc := range []struct {
		name   string
		file   []string
		view   wire.View
		limit  func(*Options)
		mode   string
		first  int
		unit   string // "": whole
		limits [2]int64
	}{
		{"records: at the limit", tree, wire.ViewTranscript, withMaxRecords(10), wire.BoundedWindow, 0, "", [2]int64{}},
		{"records: one over", tree, wire.ViewTranscript, withMaxRecords(9), wire.BoundedWindow, 0, "records", [2]int64{9, 10}},
		{"records: two over", tree, wire.ViewTranscript, withMaxRecords(8), wire.BoundedWindow, 1, "records", [2]int64{8, 10}},
		{"records: one left", tree, wire.ViewTranscript, withMaxRecords(1), wire.BoundedWindow, 8, "records", [2]int64{1, 10}},
		{"bytes: at the limit", tree, wire.ViewTranscript, withMaxBytes(last(tree, 10)), wire.BoundedWindow, 0, "", [2]int64{}},
		{"bytes: four left", tree, wire.ViewTranscript, withMaxBytes(last(tree, 4)), wire.BoundedWindow, 5, "bytes", [2]int64{last(tree, 4), last(tree, 10)}},
		{"bytes: four do not fit", tree, wire.ViewTranscript, withMaxBytes(last(tree, 4) - 1), wire.BoundedWindow, 6, "bytes", [2]int64{last(tree, 4) - 1, last(tree, 10)}},
		{"bytes: none fits", tree, wire.ViewTranscript, withMaxBytes(5), wire.BoundedWindow, 9, "bytes", [2]int64{5, last(tree, 10)}},
		{"summary", tree, wire.ViewTranscript, withMaxRecords(9), wire.BoundedSummary, 9, "records", [2]int64{9, 10}},
		{"summary: at the limit", tree, wire.ViewTranscript, withMaxRecords(10), wire.BoundedSummary, 0, "", [2]int64{}},
		{"context: the compaction is within", log, wire.ViewContext, withMaxRecords(6), wire.BoundedWindow, 0, "", [2]int64{}},
		{"context: it is not", log, wire.ViewContext, withMaxRecords(5), wire.BoundedWindow, 2, "records", [2]int64{5, 6}},
		{"context: summary", log, wire.ViewContext, withMaxRecords(5), wire.BoundedSummary, 6, "records", [2]int64{5, 6}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newStoppedWorld(t, withoutSync, tc.limit)
			w.write("s.jsonl", lines(tc.file...))
			w.start()
			f := w.attachBounded("f:s.jsonl", tc.view, tc.mode)
			f.wantEnd(w, "f:s.jsonl", tc.first)
			var want *wire.Bounded
			if tc.unit != "" {
				want = &wire.Bounded{Mode: tc.mode, First: tc.first, Unit: tc.unit, Limit: tc.limits[0], Seen: tc.limits[1]}
			}
			for _, got := range []*wire.Bounded{f.result.Bounded, f.begin.Bounded} {
				if (got == nil) != (want == nil) || got != nil && *got != *want {
					t.Errorf("got %+v, want %+v", got, want)
				}
			}
			if f.begin.State == nil || f.begin.State.Turn == wire.TurnUnknown {
				t.Errorf("state %+v", f.begin.State)
			}
		})
	}
}

func TestBounded_IsOfMessageViews(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutSync)
	w.create("s1")
	for _, c := range []wire.Command{
		{View: wire.ViewTranscript, Bounded: "half"},
		{View: wire.ViewRecords, Bounded: wire.BoundedWindow},
	} {
		c.Type, c.Session = wire.CmdAttach, "s1"
		w.refuse(c, wire.CodeBadArgument)
	}
}

// What is unanswered is told of the messages that there are.
func TestBounded_Unanswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutSync, withMaxRecords(3))
	w.create("s1")
	w.append("s1", user("a", "", "a"), toolCalls("b", "a", "old"), toolCalls("c", "b", "c1", "c2"), toolResult("d", "c", "c1"), user("e", "d", "e"))
	f := w.attachBounded("s1", wire.ViewTranscript, wire.BoundedWindow)
	if list := f.end.Unanswered; len(list) != 1 || list[0].CallID != "c2" {
		t.Errorf("got %+v, want the call c2", list)
	}
	// The second client shares the snapshot where it is still there.
	if list := w.attachBounded("s1", wire.ViewTranscript, wire.BoundedWindow).end.Unanswered; len(list) != 1 {
		t.Errorf("then %+v, want one", list)
	}
	if list := w.attachBounded("s1", wire.ViewTranscript, wire.BoundedSummary).end.Unanswered; list == nil || len(list) != 0 {
		t.Errorf("summary: got %+v, want an empty list", list)
	}
}

func TestBounded_GrowsOverTheLimitLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutSync, withMaxRecords(4))
	w.create("s1")
	w.append("s1", chain(0, 2)...)
	f := w.attachBounded("s1", wire.ViewTranscript, wire.BoundedWindow)
	strict := w.attach(wire.Command{Session: "s1", View: wire.ViewTranscript})
	strict.untilLive()
	w.append("s1", chain(2, 5)...)
	f.untilSequence(8)
	f.wantEnd(w, "s1", 0)
	if f.count(wire.TypeSnapshotBegin) != 1 || f.begin.Bounded != nil {
		t.Errorf("frames %v, bounded %+v", f.frames, f.begin.Bounded)
	}
	strict.untilOver()
	wantOver(t, strict.failed.Error, 4, 8)
	if accepts, _ := strict.failed.Error.Detail["accepts"].([]any); len(accepts) != 2 {
		t.Errorf("accepts %v", strict.failed.Error.Detail)
	}
}

func TestBounded_Cut(t *testing.T) {
	for _, tc := range []struct {
		name   string
		mode   string
		since  string
		first  int
		begins int
	}{
		{"of slots that it holds", wire.BoundedWindow, user("b", "e7", "branch"), 6, 1},
		{"at the first slot", wire.BoundedWindow, user("b", "e5", "branch"), 6, 1},
		{"below the first slot", wire.BoundedWindow, user("b", "e4", "branch"), 5, 2},
		{"far below", wire.BoundedWindow, user("b", "", "branch"), 0, 2},
		{"of a summary", wire.BoundedSummary, user("b", "e7", "branch"), 9, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, withoutSync, withMaxRecords(4))
			w.create("s1")
			w.append("s1", chain(0, 10)...)
			f := w.attachBounded("s1", wire.ViewTranscript, tc.mode)
			w.append("s1", tc.since)
			f.until("the new slots", func() bool { return f.live && f.cursor.Sequence == 12 })
			f.wantEnd(w, "s1", tc.first)
			if f.count(wire.TypeSnapshotBegin) != tc.begins {
				t.Errorf("frames %v, want %d snapshots", f.frames, tc.begins)
			}
			if tc.begins > 1 && (f.begin.Purpose != wire.PurposeResync || f.begin.Bounded == nil) {
				t.Errorf("begin %+v", f.begin)
			}
		})
	}
}

// A cut that stays above what the client has, but after which more is to be
// sent again than the limits allow.
func TestBounded_CutThatResendsMoreThanTheLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutSync, withMaxRecords(4))
	w.create("s1")
	w.append("s1", chain(0, 3)...)
	f := w.attachBounded("s1", wire.ViewTranscript, wire.BoundedWindow) // the whole
	batch := []string{user("b0", "e0", "branch")}
	for i := range 6 {
		batch = append(batch, user(fmt.Sprintf("b%d", i+1), fmt.Sprintf("b%d", i), "more"))
	}
	w.append("s1", batch...)
	f.until("the branch", func() bool { return f.live && f.cursor.Sequence == 11 })
	f.wantEnd(w, "s1", 4)
	if f.begin.Purpose != wire.PurposeResync {
		t.Errorf("purpose %s, frames %v", f.begin.Purpose, f.frames)
	}
	// Within the limits again, the whole is sent.
	w.append("s1", compaction("c", "b6", "b6"))
	context := w.attachBounded("s1", wire.ViewContext, wire.BoundedWindow)
	context.wantEnd(w, "s1", 0)
	if context.begin.Bounded != nil {
		t.Errorf("bounded %+v", context.begin.Bounded)
	}
}

func TestBounded_Amendments(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutSync, withMaxRecords(5))
	w.create("s1")
	list := chain(0, 8)
	list[1], list[6] = assistant("e1", "e0", "below"), assistant("e6", "e5", "above")
	w.append("s1", list...)
	w.append("s1", childUsage("u1", "e7", "e1", 1), childUsage("u6", "u1", "e6", 6))
	f := w.attachBounded("s1", wire.ViewTranscript, wire.BoundedWindow)
	f.wantEnd(w, "s1", 5)
	if f.end.AmendmentCount != 1 {
		t.Errorf("got %d amendments, want 1", f.end.AmendmentCount)
	}
	// The follower takes no amendment below its first slot.
	w.append("s1", childUsage("v1", "u6", "e1", 10), childUsage("v6", "v1", "e6", 60))
	f.untilSequence(13)
	f.wantEnd(w, "s1", 5)
	// One who resumes does: the engine does not know what it lacks.
	place := *f
	f.again(w)
	w.append("s1", childUsage("w1", "v6", "e1", 100), childUsage("w6", "w1", "e6", 600))
	f.untilSequence(15)
	f.wantEnd(w, "s1", place.first)
}

func TestBounded_Resume(t *testing.T) {
	for _, tc := range []struct {
		name   string
		more   []string
		reason string
		first  int
	}{
		{"nothing missed", nil, "", 6},
		{"within the limit", chain(10, 4), "", 6},
		{"over the limit", chain(10, 5), wire.ReasonFarBehind, 11},
		{"a branch", []string{user("b", "e7", "branch")}, "", 6},
		{"a branch below the window, little to be sent", []string{user("b", "e2", "branch")}, "", 3},
	} {
		for _, how := range []string{"same daemon", "restart"} {
			t.Run(tc.name+"/"+how, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, withoutSync, withMaxRecords(4))
				w.create("s1")
				w.append("s1", chain(0, 10)...)
				f := w.attachBounded("s1", wire.ViewTranscript, wire.BoundedWindow)
				f.wantEnd(w, "s1", 6)
				f.st.Close()
				head := f.cursor
				if len(tc.more) > 0 {
					head = w.append("s1", tc.more...).Head
				}
				w.startAgain(how)
				f.again(w)
				if f.reason() != tc.reason {
					t.Errorf("reason %q, want %q", f.reason(), tc.reason)
				}
				f.until("the head", func() bool { return f.live && f.cursor.Same(head) })
				f.wantEnd(w, "s1", tc.first)
			})
		}
	}
}

// A client that resumes in front of a cut which takes back more than the
// limits allow to send.
func TestBounded_ResumeBeforeAFarCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutSync, withMaxRecords(4))
	w.create("s1")
	w.append("s1", chain(0, 10)...)
	w.append("s1", user("b", "e0", "branch"), user("b1", "b", "b1"), user("b2", "b1", "b2"))
	f := w.attachBounded("s1", wire.ViewTranscript, wire.BoundedWindow)
	f.wantEnd(w, "s1", 1)
	head := w.append("s1", user("f", "e9", "the first branch again")).Head
	f.again(w)
	if f.result.Mode != wire.ModeTail || f.result.Bounded != nil {
		t.Errorf("mode %s, bounded %+v", f.result.Mode, f.result.Bounded)
	}
	f.until("the head", func() bool { return f.live && f.cursor.Same(head) })
	f.wantEnd(w, "s1", 10)
}

func TestBounded_Position(t *testing.T) {
	for _, how := range []string{"same daemon", "restart", "restart without index", "restart without cache"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, withoutSync, smallChunks, withMaxRecords(60))
			w.create("s1")
			w.append("s1", chain(0, 100)...)
			command := wire.Command{Session: "s1", View: wire.ViewTranscript, Bounded: wire.BoundedWindow}
			whole := w.attachBounded("s1", wire.ViewTranscript, wire.BoundedWindow)
			part := w.attach(command)
			part.until("3 chunks", func() bool { return part.next == 3 })
			head := w.append("s1", chain(100, 5)...).Head
			whole.st.Close()
			part.st.Close()
			w.startAgain(how)
			goOn(t, w, part, whole, head)
			if part.begin.Bounded == nil || part.begin.Bounded.First != 40 {
				t.Errorf("begin %+v", part.begin.Bounded)
			}
		})
	}
}

// A position of a window whose first slot is another now.
func TestBounded_PositionOfAnotherWindow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutSync, smallChunks, withMaxRecords(60))
	w.create("s1")
	w.append("s1", chain(0, 100)...)
	part := w.attach(wire.Command{Session: "s1", View: wire.ViewTranscript, Bounded: wire.BoundedWindow})
	part.until("2 chunks", func() bool { return part.next == 2 })
	id := part.begin.SnapshotID
	position := part.resume()
	part.st.Close()
	for _, tc := range []struct {
		limit int64
		mode  string
		first int
	}{
		{50, wire.BoundedWindow, 50},
		{60, wire.BoundedSummary, 100},
		{0, wire.BoundedWindow, 0},
		{0, "", 0},
	} {
		w.opt.MaxReplayRecords = tc.limit
		w.restart()
		c := position
		c.Bounded = tc.mode
		f := w.attach(c)
		if f.reason() != wire.ReasonExpired {
			t.Errorf("limit %d %s: reason %q, want %s", tc.limit, tc.mode, f.reason(), wire.ReasonExpired)
		}
		f.untilLive()
		f.wantEnd(w, "s1", tc.first)
		if f.begin.SnapshotID == id {
			t.Errorf("limit %d %s: the same id %s for other chunks", tc.limit, tc.mode, id)
		}
	}
}

// A snapshot that began as the whole goes on when the view has grown over the
// limit since.
func TestBounded_PositionOfTheWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutSync, smallChunks, withMaxRecords(101))
	w.create("s1")
	w.append("s1", chain(0, 100)...)
	part := w.attach(wire.Command{Session: "s1", View: wire.ViewTranscript, Bounded: wire.BoundedWindow})
	part.until("3 chunks", func() bool { return part.next == 3 })
	w.append("s1", chain(100, 5)...)
	part.again(w)
	if part.result.Reason != nil {
		t.Fatalf("reason %s", part.reason())
	}
	part.untilLive()
	part.drain()
	part.wantEnd(w, "s1", 0)
}

func TestBounded_Replacement(t *testing.T) {
	t.Parallel()
	w := newStoppedWorld(t, withoutSync, withMaxRecords(4))
	path := w.write("log.jsonl", lines(logInput("1"), logInput("2")))
	w.start()
	f := w.attachBounded("f:log.jsonl", wire.ViewTranscript, wire.BoundedWindow)
	w.replaceFile(path, lines(logInput("a"), logInput("b"), logInput("c"), logInput("d"), logInput("e")))
	w.look("f:log.jsonl")
	f.until("the other file", func() bool { return f.live && f.cursor.Sequence == 5 })
	f.wantEnd(w, "f:log.jsonl", 1)
	if f.begin.Purpose != wire.PurposeReplacement {
		t.Errorf("purpose %s", f.begin.Purpose)
	}
}
