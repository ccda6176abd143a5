package replay_test

import (
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
