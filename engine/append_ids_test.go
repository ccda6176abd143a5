package engine

import (
	"fmt"
	"sync"
	"testing"

	"sessiond/wire"
)

// logEvent is an event of an event log.
func logEvent(id, typ, payload string) string {
	if id != "" {
		id = fmt.Sprintf(`"event_id":%q,`, id)
	}
	return fmt.Sprintf(`{%s"event_type":%q,"session_id":"s1","cwd":"/w","timestamp":"2026-01-02T03:04:05.000001Z","payload":%s}`, id, typ, payload)
}

func logInput(id string) string { return logEvent(id, "user_input", fmt.Sprintf(`{"text":%q}`, id)) }

func logCompaction(id, from string) string {
	return logEvent(id, "compaction", fmt.Sprintf(`{"summary":"sum-%s","retained_from":%q}`, id, from))
}

func (w *world) createAs(id, dialect string) wire.CreateResult {
	w.t.Helper()
	r, err := w.call(wire.Command{Type: wire.CmdCreate, SessionID: id, Dialect: dialect, CWD: "/w"})
	if err != nil {
		w.fail.Fatalf("create %s: %v", id, err)
	}
	return r.(wire.CreateResult)
}

func TestAppend_ByIDToAnEmptyFile(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, dialect string
		entries       []string
		leaf          string
		want          wire.Code // of the refusal
		at            int       // entry that is refused
	}{
		{"event log", "eventlog", []string{logInput("1"), logInput("2")}, "2", "", 0},
		{"event log, an unknown event first", "eventlog", []string{logEvent("1", "invented", `{}`), logInput("2")}, "2", "", 0},
		{"tree without a header", "raw", []string{user("a", "", "a"), user("b", "a", "b")}, "b", "", 0},
		{"no id", "eventlog", []string{logInput("1"), logInput("")}, "", wire.CodeBadArgument, 1},
		{"one id twice", "eventlog", []string{logInput("1"), logInput("1")}, "", wire.CodeBadArgument, 1},
		{"no known format", "raw", []string{`{"x":1}`, `{"event_id":"1"}`}, "", wire.CodeBadArgument, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, withoutSync)
			made := w.createAs("s1", tc.dialect)
			if made.Head.Offset != 0 || made.Existing {
				t.Fatalf("created: %+v", made)
			}
			if tc.want != "" {
				e := w.refuse(wire.Command{Type: wire.CmdAppend, Session: "s1", Entries: tc.entries}, tc.want)
				if e.Detail["index"] != tc.at {
					t.Errorf("refused %+v, want entry %d", e, tc.at)
				}
				return
			}
			r := w.append("s1", tc.entries...)
			if r.Leaf == nil || *r.Leaf != tc.leaf || r.Head.Sequence != 2 {
				t.Errorf("appended: %+v", r)
			}
			for range 2 {
				again := w.append("s1", tc.entries...)
				for i, a := range again.Acks {
					if !a.Duplicate || a.Cursor != r.Acks[i].Cursor {
						t.Errorf("again, entry %d: %+v, want a duplicate at %v", i, a, r.Acks[i].Cursor)
					}
				}
				w.restart()
			}
			f := w.attach(wire.Command{Session: "s1", View: wire.ViewTranscript})
			if f.untilLive(); len(f.slots) == 0 {
				t.Error("the transcript is empty")
			}
		})
	}
}

// TestAppend_ByIDToAnEmptyFileAtOnce: who sends the first entries at the same
// time writes them once.
func TestAppend_ByIDToAnEmptyFileAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.createAs("s1", "eventlog")
	entries := []string{logInput("1"), logInput("2"), logInput("3")}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { w.append("s1", entries...) })
	}
	wg.Wait()
	if got := w.append("s1").Head.Sequence; got != 3 {
		t.Errorf("got %d records, want 3", got)
	}
}

// TestAttach_BeforeTheFirstEvent: a client of an empty session sees it become
// an event log.
func TestAttach_BeforeTheFirstEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutSync)
	w.createAs("s1", "eventlog")
	f := w.attach(wire.Command{Session: "s1", View: wire.ViewContext})
	f.untilLive()
	w.append("s1", logInput("1"), logInput("2"))
	f.untilSequence(2)
	w.append("s1", logCompaction("3", "2"), logInput("4"))
	f.untilSequence(4)
	w.append("s1", logEvent("5", "rewind", `{"to":"3"}`))
	f.untilSequence(5)
	if len(f.slots) != 2 || f.begin.RulesRevision != "eventlog/1" {
		t.Errorf("got %q by %s", f.slots, f.begin.RulesRevision)
	}
}
