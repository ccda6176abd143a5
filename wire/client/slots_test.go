package client

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sessiond/wire"
)

func texts(s *Slots) []string {
	out := []string{}
	for _, m := range s.Messages() {
		out = append(out, string(m))
	}
	return out
}

func TestSlots_CutReplaceAppend(t *testing.T) {
	n := func(i int) *int { return &i }
	amend := func(i int, m string) []wire.Amendment {
		return []wire.Amendment{{Index: i, Message: json.RawMessage(m)}}
	}
	var s Slots
	for _, step := range []struct {
		name string
		item Item
		want []string
		bad  bool
	}{
		{"begin", &wire.SnapshotBegin{}, []string{}, false},
		{"chunk", &wire.SnapshotChunk{Messages: json.RawMessage(`[1,2,null,4]`)}, []string{"1", "2", "4"}, false},
		{"amend", &wire.SnapshotAmend{Amendments: amend(2, `"three"`)}, []string{"1", "2", `"three"`, "4"}, false},
		{"end", &wire.SnapshotEnd{MessageCount: 4}, []string{"1", "2", `"three"`, "4"}, false},
		{"wrong end", &wire.SnapshotEnd{MessageCount: 3}, []string{"1", "2", `"three"`, "4"}, true},
		{"append", &wire.Event{Have: n(5), Messages: json.RawMessage(`[5]`)}, []string{"1", "2", `"three"`, "4", "5"}, false},
		{"leave out", &wire.Event{Have: n(5), Amended: amend(0, "null")}, []string{"2", `"three"`, "4", "5"}, false},
		{"cut, replace, append", &wire.Event{Keep: n(2), Amended: amend(0, "0"), Have: n(3), Messages: json.RawMessage(`["x"]`)}, []string{"0", "2", `"x"`}, false},
		{"wrong have", &wire.Event{Have: n(9), Messages: json.RawMessage(`[1]`)}, []string{"0", "2", `"x"`}, true},
		{"keep too much", &wire.Event{Keep: n(4), Have: n(4)}, []string{"0", "2", `"x"`}, true},
		{"amend what is cut", &wire.Event{Keep: n(1), Have: n(1), Amended: amend(1, "1")}, []string{"0", "2", `"x"`}, true},
		{"no array", &wire.Event{Have: n(3), Messages: json.RawMessage(`{}`)}, []string{"0", "2", `"x"`}, true},
		{"record", &wire.Event{Record: json.RawMessage(`{}`)}, []string{"0", "2", `"x"`, "{}"}, false},
		{"continued begin", &wire.SnapshotBegin{FirstIndex: 1}, []string{"0", "2", `"x"`, "{}"}, false},
		{"begin again", &wire.SnapshotBegin{}, []string{}, false},
	} {
		err := s.Apply(step.item)
		if diff := cmp.Diff(step.want, texts(&s)); diff != "" || (err != nil) != step.bad {
			t.Fatalf("%s: got error %v, want one: %v; slots (-want +got):\n%s", step.name, err, step.bad, diff)
		}
	}
}

func TestSlots_ProvisionalIsThrownAway(t *testing.T) {
	var s Slots
	p := &wire.Provisional{Bytes: 3}
	if err := s.Apply(p); err != nil || s.Provisional() != p {
		t.Errorf("got %v, %v, want it laid over", s.Provisional(), err)
	}
	if err := s.Apply(&wire.Event{Record: json.RawMessage(`{}`)}); err != nil || s.Provisional() != nil {
		t.Errorf("after its line: got %v, %v, want none", s.Provisional(), err)
	}
}
