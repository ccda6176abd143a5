package replay_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sessiond/replay"
	"sessiond/replay/dialect"
)

func TestAdmit(t *testing.T) {
	log := file(input("a"), output("b"), "", logCompaction("c", `"b"`), input("d"))
	one := int64(len(input("a")) + 1)
	tree := file(header(3), user("a", ""), user("b", "a"), compaction("c", "b", "b"), user("d", "c"))
	both := func(e replay.BudgetError) [2]*replay.BudgetError {
		t, c := e, e
		t.View, c.View = dialect.Transcript, dialect.Context
		return [2]*replay.BudgetError{&t, &c}
	}
	transcript := func(e replay.BudgetError) [2]*replay.BudgetError { return [2]*replay.BudgetError{&e} }
	var none [2]*replay.BudgetError
	for _, tc := range []struct {
		name string
		data []byte
		opt  replay.Options
		want [2]*replay.BudgetError
	}{
		{"no limits", log, replay.Options{}, none},
		{"at the limits", log, replay.Options{MaxRecords: 5, MaxBytes: int64(len(log))}, none},
		{"records", log, replay.Options{MaxRecords: 4}, transcript(replay.BudgetError{Unit: "records", Limit: 4, Seen: 5})},
		{"records of the context, too", log, replay.Options{MaxRecords: 3}, [2]*replay.BudgetError{
			{View: dialect.Transcript, Unit: "records", Limit: 3, Seen: 5}, {View: dialect.Context, Unit: "records", Limit: 3, Seen: 4},
		}},
		{"bytes", log, replay.Options{MaxBytes: int64(len(log)) - one}, transcript(replay.BudgetError{Unit: "bytes", Limit: int64(len(log)) - one, Seen: int64(len(log))})},
		{"without a compaction", file(input("a"), output("b")), replay.Options{MaxRecords: 1}, both(replay.BudgetError{Unit: "records", Limit: 1, Seen: 2})},
		{"an ignored compaction", file(input("a"), output("b"), logCompaction("c", `"x"`)), replay.Options{MaxRecords: 2}, both(replay.BudgetError{Unit: "records", Limit: 2, Seen: 3})},
		{"pi", tree, replay.Options{MaxRecords: 4}, transcript(replay.BudgetError{Unit: "records", Limit: 4, Seen: 5})},
		{"an unknown format has no message views", file(`{"x":1}`, `{}`), replay.Options{MaxRecords: 1}, none},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := buildWith(t, tc.data, tc.opt)
			for _, v := range bothViews {
				var got *replay.BudgetError
				if err := r.Admit(v); err != nil && !errors.As(err, &got) {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want[v], got); diff != "" {
					t.Errorf("%v (-want +got):\n%s", v, diff)
				}
			}
		})
	}
}

// What a budget leaves of a view is the longest end of it whose records, from
// the first one's on, are within the limits.
func TestBudget_First(t *testing.T) {
	log := file(input("a"), output("b"), "", input("c"), output("d"))
	compacted := file(input("a"), output("b"), logCompaction("c", `"b"`), input("d"), output("e"))
	tree := file(header(3), user("a", ""), user("b", "a"), user("c", "b"), user("d", "a"))
	after := func(data []byte, records int) int64 { // bytes behind so many records
		rest := data
		for range records {
			rest = rest[bytes.IndexByte(rest, '\n')+1:]
		}
		return int64(len(rest))
	}
	for _, tc := range []struct {
		name                string
		data                []byte
		opt                 replay.Options
		transcript, context int
	}{
		{"no limits", log, replay.Options{}, 0, 0},
		{"all records", log, replay.Options{MaxRecords: 5}, 0, 0},
		{"but one", log, replay.Options{MaxRecords: 4}, 1, 1},
		{"a blank line counts", log, replay.Options{MaxRecords: 3}, 2, 2},
		{"the last", log, replay.Options{MaxRecords: 1}, 3, 3},
		{"all bytes", log, replay.Options{MaxBytes: int64(len(log))}, 0, 0},
		{"but one byte", log, replay.Options{MaxBytes: int64(len(log)) - 1}, 1, 1},
		{"bytes of two", log, replay.Options{MaxBytes: after(log, 3)}, 2, 2},
		{"not even the last", log, replay.Options{MaxBytes: after(log, 4) - 1}, 4, 4},
		{"the stricter of two", log, replay.Options{MaxRecords: 4, MaxBytes: after(log, 3)}, 2, 2},
		{"a summary stands before older records", compacted, replay.Options{MaxRecords: 3}, 2, 2},
		{"a branch", tree, replay.Options{MaxRecords: 1}, 1, 1},
		{"a branch goes far back", tree, replay.Options{MaxRecords: 3}, 1, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := buildWith(t, tc.data, tc.opt)
			for _, v := range bothViews {
				view := viewOf(t, r, v)
				got, err := view.Budget.First(view.Cut, &view.Slots, view.Bodies)
				if want := []int{tc.transcript, tc.context}[v]; err != nil || got != want {
					t.Errorf("%v: got %d, %v, want %d", v, got, err, want)
				}
			}
		})
	}
}
