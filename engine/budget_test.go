package engine

import (
	"testing"

	"sessiond/wire"
)

func withMaxRecords(n int64) func(*Options) {
	return func(o *Options) { o.MaxReplayRecords = n }
}

func wantOver(t *testing.T, e *wire.Error, limit, seen int64) {
	t.Helper()
	number := func(v any) int64 {
		switch n := v.(type) {
		case int64:
			return n
		case float64: // from a frame
			return int64(n)
		}
		return -1
	}
	if e == nil || e.Code != wire.CodeHistoryBudgetExceeded || e.Retryable ||
		number(e.Detail["limit"]) != limit || number(e.Detail["seen"]) != seen {
		t.Errorf("got %+v, want %s of %d, %d seen", e, wire.CodeHistoryBudgetExceeded, limit, seen)
	}
}

func TestBudget_AttachIsRefused(t *testing.T) {
	t.Parallel()
	w := newStoppedWorld(t, withoutSync, withMaxRecords(4))
	w.write("tree.jsonl", lines(append([]string{header}, chain(0, 4)...)...))
	w.write("log.jsonl", lines(logInput("1"), logInput("2"), logInput("3"), logCompaction("4", "3"), logInput("5")))
	w.start()
	for _, view := range []wire.View{wire.ViewTranscript, wire.ViewContext} {
		wantOver(t, w.refuse(wire.Command{Type: wire.CmdAttach, Session: "f:tree.jsonl", View: view}, wire.CodeHistoryBudgetExceeded), 4, 5)
	}
	wantOver(t, w.refuse(wire.Command{Type: wire.CmdAttach, Session: "f:log.jsonl", View: wire.ViewTranscript}, wire.CodeHistoryBudgetExceeded), 4, 5)
	f := w.attach(wire.Command{Session: "f:log.jsonl", View: wire.ViewContext})
	if f.untilLive(); len(f.slots) != 3 {
		t.Errorf("context behind a compaction: got %q", f.slots)
	}
	for _, name := range []string{"f:tree.jsonl", "f:log.jsonl"} {
		r := w.attach(wire.Command{Session: name, View: wire.ViewRecords})
		if r.untilLive(); len(r.slots) != 5 {
			t.Errorf("%s: got %d records, want 5", name, len(r.slots))
		}
		if s, ok := w.listed(name); !ok || s.RecordCount == nil || *s.RecordCount != 5 {
			t.Errorf("%s: listed as %+v", name, s)
		}
	}
}

func TestBudget_ViewThatGrowsOverIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutSync, withMaxRecords(4))
	w.create("s1")
	w.append("s1", chain(0, 2)...)
	f := w.attach(wire.Command{Session: "s1", View: wire.ViewTranscript})
	f.untilLive()
	records := w.attach(wire.Command{Session: "s1", View: wire.ViewRecords})
	records.untilLive()
	w.append("s1", chain(2, 1)...)
	f.untilSequence(4)
	place := f.resume()
	w.append("s1", chain(3, 1)...)
	f.untilOver()
	wantOver(t, f.failed.Error, 4, 5)
	if n := f.count(wire.TypeSnapshotFailed); n != 1 || f.count(wire.TypeSnapshotChunk) != 1 {
		t.Errorf("frames %v", f.frames)
	}
	records.untilSequence(5)
	place.Type = wire.CmdAttach
	wantOver(t, w.refuse(place, wire.CodeHistoryBudgetExceeded), 4, 5)
	w.append("s1", compaction("c", "e3", "e3"), user("u", "c", "u")) // the context is small again
	context := w.attach(wire.Command{Session: "s1", View: wire.ViewContext})
	if context.untilLive(); len(context.slots) != 3 {
		t.Errorf("context behind a compaction: got %q", context.slots)
	}
}

func TestBudget_ReplacementOverIt(t *testing.T) {
	t.Parallel()
	w := newStoppedWorld(t, withoutSync, withMaxRecords(4))
	path := w.write("log.jsonl", lines(logInput("1"), logInput("2")))
	w.start()
	f := w.attach(wire.Command{Session: "f:log.jsonl", View: wire.ViewTranscript})
	f.untilLive()
	w.replaceFile(path, lines(logInput("a"), logInput("b"), logInput("c"), logInput("d"), logInput("e")))
	w.look("f:log.jsonl")
	f.untilOver()
	wantOver(t, f.failed.Error, 4, 5)
	if len(f.slots) > 0 || f.begin.Purpose != wire.PurposeReplacement {
		t.Errorf("got %q, purpose %s", f.slots, f.begin.Purpose)
	}
}
