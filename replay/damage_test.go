package replay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sessiond/replay"
	"sessiond/replay/dialect"
)

// smallSession has one branch, a compaction, edits and usage.
func smallSession() []byte {
	return file(
		header(3),
		entry("model_change", "m", "", `"provider":"p","modelId":"x"`),
		user("a", "m"),
		user("side", "a"),
		entry("message", "b", "a", `"message":{"role":"assistant","content":[{"type":"toolCall","id":"k","name":"n","arguments":{}}],"usage":{"input":1}}`),
		entry("message", "c", "b", `"message":{"role":"toolResult","toolCallId":"k","content":"é 😀"}`),
		childUsage("u", "c", "b", 9),
		user("d", "u"),
		compaction("e", "d", "c"),
		message("f", "e", "assistant", `quoted "text" \ and {"type":"message"}`),
		contextEdit("g", "f", "d", `{"content":"edited"}`),
		entry("session_info", "h", "g", `"name":"a name"`),
		entry("custom_message", "i", "h", `"content":"note"`),
		entry("branch_summary", "j", "i", `"summary":"what was","fromId":"side"`),
		user("k", "j"),
	)
}

// smallLog has a rewind, a compaction, and results of all sorts.
func smallLog() []byte {
	return file(
		event("1", "user_input", `{"text":"a","reasoning_selection":"high"}`),
		toolCall("2", "k"),
		toolResult("3", "k"),
		toolResult("4", "k"),
		output("5"),
		turnStatus("6", "completed", ""),
		input("7"),
		rewindTo("8", "7"),
		logCompaction("9", `"2"`),
		event("a", "assistant_output", `{"text":"quoted \"text\" {\"event_type\":\"x\"} é 😀"}`),
		turnStatus("b", "failed", "part"),
		event("c", "session_title", `{"title":"a title"}`),
		event("d", "provider_context_item", `{"x":1}`),
		toolResult("e", "none"),
	)
}

func TestDamage_EveryTruncation(t *testing.T) {
	t.Run("pi", func(t *testing.T) { everyTruncation(t, smallSession()) })
	t.Run("eventlog", func(t *testing.T) { everyTruncation(t, smallLog()) })
}

func everyTruncation(t *testing.T, data []byte) {
	ends := recordEnds(data)
	whole := online(t, data)
	records := 0
	var atRecord summary
	for size := range len(data) + 1 {
		if records+1 < len(ends) && ends[records+1] == size {
			records++
		} else if size%scaleDivisor != 0 {
			continue
		}
		r := online(t, data[:size])
		if ends[records] == size {
			atRecord = summarise(t, r, data[:size])
		} else {
			// The torn line adds a tail and perhaps its diagnostic, nothing else.
			got := summarise(t, r, data[:size])
			got.Tail, got.Diagnostics = atRecord.Tail, atRecord.Diagnostics
			for v := range got.Views {
				got.Views[v].Diagnostics = atRecord.Views[v].Diagnostics
			}
			if diff := diffSummaries(atRecord, got); diff != "" && records > 0 {
				t.Fatalf("cut at byte %d (-at the last record +got):\n%s", size, diff)
			}
		}
		if got := r.Head(); got.Sequence != uint64(records) {
			t.Fatalf("cut at byte %d: got %d records, want %d", size, got.Sequence, records)
		}
		for _, v := range bothViews {
			slotMessages(t, build(t, data[:size]), data[:size], v)
		}
		extend(t, r, data)
		equalReplays(t, whole, r, data)
	}
}

// TestDamage_EveryByteFlip flips each byte of a session in three ways: to a
// neighbour, to the other case, out of ASCII. A line that was not touched is
// read as before, and a line that cannot be read is reported.
func TestDamage_EveryByteFlip(t *testing.T) {
	t.Run("pi", func(t *testing.T) { everyByteFlip(t, smallSession()) })
	t.Run("eventlog", func(t *testing.T) { everyByteFlip(t, smallLog()) })
}

func everyByteFlip(t *testing.T, good []byte) {
	lines := bytes.SplitAfter(good, []byte("\n"))
	lines = lines[:len(lines)-1]
	at := 0
	for i, line := range lines {
		for k := range line {
			for _, bit := range []int{0, 5, 7} {
				data := bytes.Clone(good)
				data[at+k] ^= 1 << bit
				checkFlip(t, data, lines, i, k == len(line)-1, fmt.Sprintf("byte %d of line %d, bit %d", k, i+1, bit))
			}
		}
		at += len(line)
	}
}

func checkFlip(t *testing.T, data []byte, lines [][]byte, touched int, lf bool, what string) {
	t.Helper()
	objects := map[string]bool{}
	unread := map[int64]bool{}
	r := buildWith(t, data, replay.Options{Tail: true, Observe: func(rec replay.Record) {
		for _, o := range rec.Objects {
			objects[string(o.Text)] = true
		}
		if rec.Class == replay.ClassMalformed || rec.Class == replay.ClassNonObject || rec.Class == replay.ClassSalvaged {
			unread[int64(rec.Sequence)] = true
		}
	}})
	for i, line := range lines {
		if i != touched && (!lf || i != touched+1) && !objects[strings.TrimSuffix(string(line), "\n")] {
			t.Fatalf("%s: line %d, which is good, was not read", what, i+1)
		}
	}
	list := findings(t, r)
	for _, d := range list {
		delete(unread, d.Line)
	}
	if len(unread) > 0 {
		t.Fatalf("%s: lines %v have no diagnostic", what, unread)
	}
	summarise(t, r, data)
	if name, _ := r.Dialect(); name != "pi" || lf || linksChanged(lines[touched], data, lines, touched) {
		return
	}
	shown := strings.Join(slotMessages(t, r, data, dialect.Transcript), "\n")
	for i, line := range lines {
		if text := contentOf(line); i != touched && text != "" && !strings.Contains(string(line), `"id":"side"`) && !strings.Contains(shown, text) {
			t.Fatalf("%s: the message of line %d, which is good, is not in the transcript:\n%s", what, i+1, shown)
		}
	}
}

// contentOf returns the content or summary of a line as it is written.
func contentOf(line []byte) string {
	var v struct {
		Content, Summary json.RawMessage
		Message          struct{ Content json.RawMessage }
	}
	_ = json.Unmarshal(line, &v)
	return string(v.Content) + string(v.Summary) + string(v.Message.Content)
}

// linksChanged reports whether the touched line is a good one that hangs
// elsewhere now or took the id of another: then others may rightly be out of
// the branch.
func linksChanged(line, data []byte, lines [][]byte, touched int) bool {
	var was map[string]any // keys of structs would match in any case
	_ = json.Unmarshal(line, &was)
	ids := map[any]bool{}
	for i, other := range lines {
		var l map[string]any
		if _ = json.Unmarshal(other, &l); i != touched {
			ids[l["id"]] = true
		}
	}
	at := len(bytes.Join(lines[:touched], nil))
	for _, part := range bytes.Split(data[at:at+len(line)-1], []byte("\n")) {
		var now map[string]any
		if json.Unmarshal(part, &now) == nil && (now["parentId"] != was["parentId"] || ids[now["id"]]) {
			return true
		}
	}
	return false
}

func TestDamage_SalvageKeepsTheNext(t *testing.T) {
	for _, tc := range []struct {
		name       string
		line       string
		transcript string
		codes      string
	}{
		{"joined", user("b", "a") + user("c", "b"), "a b c d", "joined_objects@3"},
		{"fused", user("b", "a")[:70] + user("c", "a"), "a c d", "fused_line@3"},
		{"hole", strings.Repeat("\x00", 512) + user("c", "a"), "a c d", "nul_run@3"},
		{"only a hole", strings.Repeat("\x00", 512), "a [gap] d", "nul_run@3 dangling_parent@4"},
		{"garbage behind", user("c", "a") + "xx", "a c d", "trailing_garbage@3"},
		{"cut short", user("c", "a")[:70], "a [gap] d", "malformed_line@3 dangling_parent@4"},
		{"nested object at the end", strings.TrimSuffix(entry("x", "b", "a", `"data":`+user("c", "a")), "}"), "a [gap] d", "malformed_line@3 dangling_parent@4"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data := file(header(3), user("a", ""), tc.line, user("d", "c"))
			r := build(t, data)
			if got := texts(t, r, data, dialect.Transcript); got != tc.transcript {
				t.Errorf("got %q, want %q", got, tc.transcript)
			}
			if got := codesOf(r); got != tc.codes {
				t.Errorf("diagnostics: got %q, want %q", got, tc.codes)
			}
		})
	}
}
