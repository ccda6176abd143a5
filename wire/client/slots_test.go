package client

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

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

func TestSlots_Bounded(t *testing.T) {
	n := func(i int) *int { return &i }
	amend := func(i int, m string) []wire.Amendment {
		return []wire.Amendment{{Index: i, Message: json.RawMessage(m)}}
	}
	var s Slots
	for _, step := range []struct {
		name  string
		item  Item
		first int
		want  []string
		bad   bool
	}{
		{"begin", &wire.SnapshotBegin{Bounded: &wire.Bounded{First: 10}}, 10, []string{}, false},
		{"chunk", &wire.SnapshotChunk{Messages: json.RawMessage(`[10,11,12]`)}, 10, []string{"10", "11", "12"}, false},
		{"amend", &wire.SnapshotAmend{Amendments: amend(11, `"b"`)}, 10, []string{"10", `"b"`, "12"}, false},
		{"end", &wire.SnapshotEnd{MessageCount: 3}, 10, []string{"10", `"b"`, "12"}, false},
		{"append", &wire.Event{Have: n(14), Messages: json.RawMessage(`[13]`)}, 10, []string{"10", `"b"`, "12", "13"}, false},
		{"amend what is absent", &wire.Event{Have: n(14), Amended: amend(9, "9")}, 10, []string{"10", `"b"`, "12", "13"}, false},
		{"amend what is not", &wire.Event{Have: n(14), Amended: amend(14, "14")}, 10, []string{"10", `"b"`, "12", "13"}, true},
		{"cut above first", &wire.Event{Keep: n(12), Have: n(12)}, 10, []string{"10", `"b"`}, false},
		{"cut at first", &wire.Event{Keep: n(10), Have: n(11), Messages: json.RawMessage(`["x"]`)}, 10, []string{`"x"`}, false},
		{"a wrong count below first", &wire.Event{Keep: n(4), Have: n(11), Messages: json.RawMessage(`["y"]`)}, 10, []string{`"x"`}, true},
		{"cut below first", &wire.Event{Keep: n(4), Amended: amend(3, "3"), Have: n(5), Messages: json.RawMessage(`["y"]`)}, 4, []string{`"y"`}, false},
		{"whole again", &wire.SnapshotBegin{}, 0, []string{}, false},
	} {
		err := s.Apply(step.item)
		if diff := cmp.Diff(step.want, texts(&s)); diff != "" || (err != nil) != step.bad || s.First() != step.first || s.Len() != step.first+len(step.want) {
			t.Fatalf("%s: got error %v, want one: %v; slots %d to %d, want from %d (-want +got):\n%s", step.name, err, step.bad, s.First(), s.Len(), step.first, diff)
		}
	}
}

// Whatever happens, what is held is the whole view from First on.
func TestSlots_BoundedIsTheEndOfTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var whole []string
		var s Slots
		n := 0
		more := func() []json.RawMessage {
			list := []json.RawMessage{}
			for range rapid.IntRange(0, 4).Draw(t, "messages") {
				n++
				list = append(list, json.RawMessage(fmt.Sprint(n)))
			}
			return list
		}
		add := func(list []json.RawMessage) json.RawMessage {
			for _, m := range list {
				whole = append(whole, string(m))
			}
			text, err := json.Marshal(list)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		apply := func(item Item) {
			if err := s.Apply(item); err != nil {
				t.Fatalf("%+v: %v", item, err)
			}
		}
		snapshot := func(*rapid.T) {
			first := rapid.IntRange(0, len(whole)).Draw(t, "first")
			text, err := json.Marshal(append([]json.RawMessage{}, rawMessages(whole[first:])...))
			if err != nil {
				t.Fatal(err)
			}
			apply(&wire.SnapshotBegin{Bounded: &wire.Bounded{First: first}})
			apply(&wire.SnapshotChunk{Messages: text})
			apply(&wire.SnapshotEnd{MessageCount: len(whole) - first})
		}
		event := func(t *rapid.T) {
			e := &wire.Event{}
			if rapid.IntRange(0, 3).Draw(t, "cut") == 0 {
				keep := rapid.IntRange(0, len(whole)).Draw(t, "keep")
				e.Keep, whole = &keep, whole[:keep:keep]
			}
			if len(whole) > 0 && rapid.Bool().Draw(t, "amend") {
				n++
				i, m := rapid.IntRange(0, len(whole)-1).Draw(t, "index"), fmt.Sprint(n)
				whole[i] = m
				e.Amended = []wire.Amendment{{Index: i, Message: json.RawMessage(m)}}
			}
			e.Messages = add(more())
			have := len(whole)
			e.Have = &have
			apply(e)
		}
		t.Repeat(map[string]func(*rapid.T){
			"snapshot": snapshot, "event": event, "another event": event,
			"": func(t *rapid.T) {
				if s.Len() != len(whole) || s.First() > len(whole) {
					t.Fatalf("slots %d to %d, want up to %d", s.First(), s.Len(), len(whole))
				}
				if diff := cmp.Diff(append([]string{}, whole[s.First():]...), texts(&s)); diff != "" {
					t.Fatalf("(-want +got):\n%s", diff)
				}
			},
		})
	})
}

func rawMessages(list []string) []json.RawMessage {
	out := make([]json.RawMessage, len(list))
	for i, m := range list {
		out[i] = json.RawMessage(m)
	}
	return out
}
