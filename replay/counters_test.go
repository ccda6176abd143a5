package replay_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sessiond/replay"
	"sessiond/replay/dialect"
)

func TestCounters_Cutoff(t *testing.T) {
	for _, tc := range []struct {
		name          string
		lines         []string // of which the last two are read later
		before, after [2]uint64
	}{
		{"no compaction", []string{input("a"), output("b"), input("c")}, [2]uint64{}, [2]uint64{}},
		{"once for a compaction", []string{input("a"), output("b"), logCompaction("c", `"b"`), input("d"), output("e")}, [2]uint64{1, 1}, [2]uint64{2, 2}},
		{"again for another", []string{input("a"), output("b"), logCompaction("c", `"b"`), input("d"), logCompaction("e", `"d"`)}, [2]uint64{1, 4}, [2]uint64{2, 4}},
		{"not for one that is ignored", []string{input("a"), output("b"), input("c"), logCompaction("d", `"x"`)}, [2]uint64{}, [2]uint64{}},
		{"pi", []string{header(3), user("a", ""), user("b", "a"), compaction("c", "b", "b"), user("d", "c"), user("e", "d")}, [2]uint64{1, 1}, [2]uint64{2, 2}},
		{"pi, nothing retained", []string{header(3), user("a", ""), user("b", "a"), compaction("c", "b", "x"), user("d", "c"), user("e", "d")}, [2]uint64{2, 2}, [2]uint64{1, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := new(replay.Counters)
			n := len(tc.lines) - 2
			early, data := file(tc.lines[:n]...), file(tc.lines...)
			r := buildWith(t, early, replay.Options{Counters: c})
			var got [2][2]uint64
			look := func(k int) {
				r.View(dialect.Transcript)
				if values := c.Values(); k == 0 && values["events_before_cutoff"]+values["events_after_cutoff"] != 0 {
					t.Errorf("counted before the context was asked for: %v", values)
				}
				for range 2 {
					r.View(dialect.Context)
					r.Slots(dialect.Context)
					r.Delta(dialect.Context, 1)
				}
				got[0][k], got[1][k] = c.EventsBefore.Load(), c.EventsAfter.Load()
			}
			look(0)
			extend(t, r, data)
			look(1)
			if diff := cmp.Diff([2][2]uint64{tc.before, tc.after}, got); diff != "" {
				t.Errorf("before and after the cutoff (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCounters_EventsParsed(t *testing.T) {
	data := file(input("a"), "", "{", "42", output("b")+output("c"), `{"x":1}`)
	c := new(replay.Counters)
	r := buildWith(t, data, replay.Options{Counters: c})
	if got := c.Values(); got["events_parsed"] != 4 || got["lines_parsed"] != 6 {
		t.Errorf("got %v, want 4 events of 6 lines", got)
	}
	extend(t, r, append(bytes.Clone(data), file(output("d"))...))
	if got := c.Values()["events_parsed"]; got != 5 {
		t.Errorf("after one more: got %d events", got)
	}
	c = new(replay.Counters)
	buildWith(t, file(`{"x":1}`), replay.Options{Counters: c})
	if got := c.EventsParsed.Load(); got != 0 {
		t.Errorf("without a dialect: got %d events", got)
	}
}
