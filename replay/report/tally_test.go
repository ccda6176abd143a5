package report

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"sessiond/replay/dialect"
)

func never() bool { return false }

func TestTally_Calls(t *testing.T) {
	call := func(ids ...string) dialect.Facts {
		var f dialect.Facts
		for _, id := range ids {
			f.Calls = append(f.Calls, dialect.Call{ID: id})
		}
		return f
	}
	result := func(id string) dialect.Facts { return dialect.Facts{Results: []string{id}} }
	for _, tt := range []struct {
		name  string
		facts []dialect.Facts
		want  Tools
	}{
		{"none", nil, Tools{}},
		{"answered", []dialect.Facts{call("a"), result("a")}, Tools{Calls: 1, Results: 1}},
		{"one of three unanswered", []dialect.Facts{call("a", "b", "c"), result("c"), result("a")}, Tools{Calls: 3, Results: 2, Unanswered: 1}},
		{"id of another turn", []dialect.Facts{call("a"), result("a"), call("a"), result("a")}, Tools{Calls: 2, Results: 2}},
		{"id twice, one answer", []dialect.Facts{call("a", "a"), result("a")}, Tools{Calls: 2, Results: 1, Unanswered: 1}},
		{"second answer", []dialect.Facts{call("a"), result("a"), result("a")}, Tools{Calls: 1, Results: 2, OrphanResults: 1}},
		{"result before call", []dialect.Facts{result("a"), call("a")}, Tools{Calls: 1, Results: 1, Unanswered: 1, OrphanResults: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tally := newTally()
			for _, f := range tt.facts {
				tally.object(f, never)
			}
			got := tally.tools
			got.Unanswered = tally.calls.unanswered()
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestTally_CallsBounded gives up the oldest of very many open calls, counts
// them all the same, and still knows the newest.
func TestTally_CallsBounded(t *testing.T) {
	c := callTable{young: map[uint64]int64{}}
	const n = 5 * openCallsMax
	for i := range n {
		c.open(strconv.Itoa(i))
	}
	if held := len(c.young) + len(c.old); held > 2*openCallsMax {
		t.Errorf("held: got %d, want at most %d", held, 2*openCallsMax)
	}
	if got := c.unanswered(); got != n {
		t.Errorf("unanswered: got %d, want %d", got, n)
	}
	if !c.answer(strconv.Itoa(n-openCallsMax)) || c.answer("0") {
		t.Error("answer: want a recent call to be open and the first to be given up")
	}
	if got := c.unanswered(); got != n-1 {
		t.Errorf("unanswered after an answer: got %d, want %d", got, n-1)
	}
}

func TestTally_NamesBounded(t *testing.T) {
	n := names{count: map[string]int64{}}
	for i := range 10 * namesMax {
		n.add("type " + strconv.Itoa(i))
	}
	table := n.table()
	if len(table) > namesMax+1 {
		t.Errorf("names: got %d, want at most %d", len(table), namesMax+1)
	}
	if got := total(table); got != 10*namesMax {
		t.Errorf("counted: got %d, want %d", got, 10*namesMax)
	}
	n.add(strings.Repeat("x", 1<<20))
	for name := range n.table() {
		if len(name) > nameBytesMax {
			t.Errorf("a name of %d bytes is held", len(name))
		}
	}
}

func TestTally_Time(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	mtime := at("2026-03-04T05:06:07Z")
	one, two := at("2026-01-02T03:04:05Z"), at("2026-01-02T03:04:06Z")
	for _, tt := range []struct {
		name  string
		times []time.Time
		want  Time
	}{
		{"none", nil, Time{mtime, mtime, "mtime"}},
		{"one", []time.Time{one}, Time{one, one, "records"}},
		{"out of order", []time.Time{two, one}, Time{one, two, "records"}},
		{"no year that JSON can have", []time.Time{one.AddDate(10000, 0, 0), one}, Time{one, one, "records"}},
		{"before there were sessions", []time.Time{time.UnixMilli(-1), one}, Time{one, one, "records"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tally := newTally()
			for _, v := range tt.times {
				tally.object(dialect.Facts{Time: v}, never)
			}
			if got := tally.span(File{ModTime: mtime}); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
