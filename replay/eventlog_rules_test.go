package replay_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/testdata/gen"
)

func TestEventLog_Views(t *testing.T) {
	abc := []string{input("a"), output("b"), input("c")}
	with := func(more ...string) []byte { return file(slices.Concat(abc, more)...) }
	for _, tc := range []struct {
		name                string
		data                []byte
		transcript, context string
		codes               string
	}{
		{"plain turns", with(output("d"), turnStatus("e", "completed", "")), "a b c d", "a b c d", ""},
		{"local kinds", with(said("d", "hook_diagnostic"), said("e", "hook_lifecycle"), said("f", "context_cache"), said("g", "diagnostic"), said("h", "token_usage"), said("i", "preferences"), event("j", "session_title", `{"title":"t"}`)), "a b c", "a b c", ""},
		{"unknown kinds", with(said("d", "invented"), event("e", "invented", "null")), "a b c", "a b c", ""},
		{"said again", with(said("d", "assistant_chunk"), said("e", "provider_response_item"), said("f", "tool_display_result"), output("g")), "a b c g", "a b c g", ""},
		{"no event", with(`{"a":1}`, `{"event_type":7,"payload":{}}`), "a b c", "a b c", ""},
		{"reasoning selection", with(event("d", "user_input", `{"text":"d","reasoning_selection":"high"}`)), "a b c high d", "a b c high d", ""},
		{"reasoning summary", with(said("d", "reasoning_summary")), "a b c [reasoning_summary]", "a b c", ""},
		{"injected context", with(said("d", "hook_context_injection"), event("e", "hook_context_injection", `{"content":"e"}`)), "a b c d e", "a b c d e", ""},
		{"provider context", with(event("d", "provider_context_item", `{"blob":"x"}`)), "a b c", "a b c ", ""},
		{"text that is none", with(event("d", "user_input", `{"text":5}`), event("e", "assistant_output", `"s"`), output("f")), "a b c f", "a b c f", "message_missing@4 message_missing@5"},
		{"cancelled keeps what there is", with(said("d", "assistant_chunk"), turnStatus("e", "cancelled", "part")), "a b c [map[text:part type:text]]", "a b c [map[text:part type:text]]", ""},
		{"completed keeps nothing", with(turnStatus("e", "completed", "part")), "a b c", "a b c", ""},
		{"unknown status keeps nothing", with(turnStatus("e", "invented", "part")), "a b c", "a b c", ""},
		{"failed without text", with(turnStatus("e", "failed", "")), "a b c", "a b c", ""},
		{"first result wins", with(toolCall("d", "k"), toolResult("e", "k"), toolResult("f", "k")), "a b c <k> =e =f", "a b c <k> =e", "duplicate_result@6"},
		{"orphan", with(toolResult("d", "k")), "a b c =d", "a b c", "orphan_result@4"},
		{"a result of another turn is an orphan", with(toolCall("d", "k"), input("e"), toolResult("f", "k")), "a b c <k> e =f", "a b c <k> e", "unanswered_call@4 orphan_result@6"},
		{"late results answer", with(toolCall("d", "k"), turnStatus("e", "completed", ""), toolResult("f", "k")), "a b c <k> =f", "a b c <k> =f", ""},
		{"an id called twice", with(toolCall("d", "k"), toolCall("e", "k"), toolResult("f", "k"), toolResult("g", "k"), toolResult("h", "k")), "a b c <k> <k> =f =g =h", "a b c <k> <k> =f =g", "duplicate_result@8"},
		{"before the first input", file(toolCall("a", "k"), toolResult("b", "k"), output("c")), "<k> =b c", "<k> =b c", ""},
		{"unanswered in a closed turn", with(toolCall("d", "k"), turnStatus("e", "failed", "")), "a b c <k>", "a b c <k>", "unanswered_call@4"},
		{"compaction", with(logCompaction("d", `"b"`), output("e")), "a b c [compaction] e", "(sum-d) b c e", ""},
		{"compaction by sequence", with(logCompaction("d", `3`), output("e")), "a b c [compaction] e", "(sum-d) c e", ""},
		{"compaction from nothing", with(logCompaction("d", `"x"`), output("e")), "a b c [compaction] e", "a b c e", "compaction_unanchored@4"},
		{"compaction from itself", with(logCompaction("d", `"d"`)), "a b c [compaction]", "a b c", "compaction_unanchored@4"},
		{"compaction from later", with(logCompaction("d", `5`), output("e")), "a b c [compaction] e", "a b c e", "compaction_unanchored@4"},
		{"compaction without an anchor", with(logCompaction("d", `null`)), "a b c [compaction]", "a b c", "compaction_unanchored@4"},
		{"the last valid one rules", with(logCompaction("d", `"b"`), output("e"), logCompaction("f", `"c"`), logCompaction("g", `"x"`), output("h")), "a b c [compaction] e [compaction] [compaction] h", "(sum-f) c e h", "compaction_unanchored@7"},
		{"rewind", with(output("d"), rewindTo("e", "c"), input("f")), "a b f", "a b f", ""},
		{"rewind to nothing", with(rewindTo("d", "x"), rewindTo("e", "e"), event("f", "rewind", `{}`)), "a b c", "a b c", "rewind_target@4 rewind_target@5 rewind_target@6"},
		{"rewind to the start", with(rewindTo("d", "a"), output("e")), "e", "e", ""},
		{"rewind to what was taken back", with(rewindTo("d", "b"), rewindTo("e", "c"), output("f")), "a f", "a f", "rewind_target@5"},
		{"rewind to a rewind", with(rewindTo("d", "b"), output("e"), rewindTo("f", "d"), output("g")), "a g", "a g", ""},
		{"rewind past a compaction", with(logCompaction("d", `"b"`), output("e"), rewindTo("f", "d"), output("g")), "a b c g", "a b c g", ""},
		{"rewind behind a compaction", with(logCompaction("d", `"b"`), output("e"), output("f"), rewindTo("g", "f"), output("h")), "a b c [compaction] e h", "(sum-d) b c e h", ""},
		{"compaction from what was taken back", with(rewindTo("d", "c"), logCompaction("e", `"c"`)), "a b [compaction]", "a b", "compaction_unanchored@5"},
		{"compaction across a rewind", with(rewindTo("d", "c"), output("e"), logCompaction("f", `"b"`), output("g")), "a b e [compaction] g", "(sum-f) b e g", ""},
		{"a rewound result leaves its call open", with(toolCall("d", "k"), toolResult("e", "k"), rewindTo("f", "e"), toolResult("g", "k")), "a b c <k> =g", "a b c <k> =g", ""},
		{"a rewound input leaves the turn before", with(toolCall("d", "k"), input("e"), rewindTo("f", "e"), toolResult("g", "k")), "a b c <k> =g", "a b c <k> =g", ""},
		{"repeated id: the last one counts", with(output("b"), rewindTo("d", "b"), output("e")), "a b c e", "a b c e", "duplicate_id@4"},
		{"escapes", with(strings.Replace(output("d"), `assistant_output`, `assistant\u005foutput`, 1), rewindTo("e", `d`), strings.Replace(input("f"), `"text"`, `"te\u0078t"`, 1)), "a b c f", "a b c f", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := build(t, tc.data)
			if name, rules := r.Dialect(); name != "eventlog" || rules != "eventlog/1" {
				t.Fatalf("dialect: got %s, %s", name, rules)
			}
			if got := logTexts(t, r, tc.data, dialect.Transcript); got != tc.transcript {
				t.Errorf("transcript:\n got %q\nwant %q", got, tc.transcript)
			}
			if got := logTexts(t, r, tc.data, dialect.Context); got != tc.context {
				t.Errorf("context:\n got %q\nwant %q", got, tc.context)
			}
			if got := codesOf(r); got != tc.codes {
				t.Errorf("diagnostics: got %q, want %q", got, tc.codes)
			}
		})
	}
}

// logTexts is texts, with calls and results in a short form.
func logTexts(t tb, r *replay.Replay, data []byte, v dialect.View) string {
	t.Helper()
	var out []string
	for _, m := range messages(t, r, data, v) {
		var x struct {
			Role, Kind, Summary string
			Content             any
		}
		if err := json.Unmarshal(m, &x); err != nil {
			t.Fatalf("%q: %v", m, err)
		}
		var blocks []struct{ ID, Text string }
		if list, ok := x.Content.([]any); ok && len(list) == 1 {
			raw, _ := json.Marshal(x.Content)
			_ = json.Unmarshal(raw, &blocks)
		}
		switch {
		case x.Kind != "":
			out = append(out, "["+x.Kind+"]")
		case x.Summary != "":
			out = append(out, "("+x.Summary+")")
		case x.Role == "toolResult":
			out = append(out, "="+blocks[0].Text)
		case len(blocks) == 1 && blocks[0].ID != "":
			out = append(out, "<"+blocks[0].ID+">")
		case len(blocks) == 1 && blocks[0].Text != "part":
			out = append(out, blocks[0].Text)
		default:
			out = append(out, fmt.Sprint(x.Content))
		}
	}
	return strings.Join(out, " ")
}

func TestEventLog_Messages(t *testing.T) {
	const at = `"timestamp":1767323045000}`
	for _, tc := range []struct {
		name, line string
		view       dialect.View
		want       []string
		notes      string
	}{
		{"input", input("a"), 0, []string{`{"role":"user","content":"a",` + at}, ""},
		{
			"selection", event("a", "user_input", `{"text":"a","reasoning_selection":{"effort":"low"}}`), 1,
			[]string{`{"role":"custom","customType":"reasoning_selection","content":"","display":false,"details":{"effort":"low"},` + at, `{"role":"user","content":"a",` + at},
			"",
		},
		{"output", output("a"), 0, []string{`{"role":"assistant","content":[{"type":"text","text":"a"}],` + at}, ""},
		{"call", toolCall("a", "k"), 0, []string{`{"role":"assistant","content":[{"type":"toolCall","id":"k","name":"run","arguments":{"a":1}}],` + at}, ""},
		{"empty call", event("a", "tool_call", `{}`), 0, []string{`{"role":"assistant","content":[{"type":"toolCall","id":"","name":"","arguments":null}],` + at}, ""},
		{"number as call id", event("a", "tool_call", `{"call_id":7}`), 0, []string{`{"role":"assistant","content":[{"type":"toolCall","id":"7","name":"","arguments":null}],` + at}, ""},
		{"orphan", event("a", "tool_result", `{"call_id":"k","ok":false,"output":{"x":"<&>"}}`), 0, []string{`{"role":"toolResult","toolCallId":"k","content":[{"type":"text","text":"{\"x\":\"<&>\"}"}],"isError":true,` + at}, "orphan"},
		{"failed", event("a", "turn_status", `{"status":"failed","text":"so far","detail":"it broke"}`), 1, []string{`{"role":"assistant","content":[{"type":"text","text":"so far"}],"stopReason":"error","errorMessage":"it broke",` + at}, "failed"},
		{"cancelled", turnStatus("a", "cancelled", "x"), 1, []string{`{"role":"assistant","content":[{"type":"text","text":"x"}],"stopReason":"aborted",` + at}, "aborted"},
		{"incomplete", turnStatus("a", "incomplete", "x"), 1, []string{`{"role":"assistant","content":[{"type":"text","text":"x"}],"stopReason":"incomplete",` + at}, "incomplete"},
		{"injection", event("a", "hook_context_injection", `{"items":[1]}`), 1, []string{`{"role":"custom","customType":"hook_context_injection","content":"","display":false,"details":{"items":[1]},` + at}, ""},
		{"provider's item", event("a", "provider_context_item", `{"x":1}`), 1, []string{`{"role":"custom","customType":"provider_context_item","content":"","display":false,"details":{"x":1},` + at}, ""},
		{"reasoning", said("a", "reasoning_summary"), 0, []string{`{"role":"sessiond","kind":"reasoning_summary","summary":"a",` + at}, ""},
		{"ignored compaction", logCompaction("a", "9"), 0, []string{`{"role":"sessiond","kind":"compaction","summary":"sum-a",` + at}, "ignored"},
		{"no time", strings.Replace(input("a"), "2026-01-02T", "yesterday ", 1), 0, []string{`{"role":"user","content":"a","timestamp":null}`}, ""},
		{"offset", strings.Replace(input("a"), "05.000001Z", "05+01:00", 1), 0, []string{`{"role":"user","content":"a","timestamp":1767319445000}`}, ""},
		{"bad UTF-8", strings.Replace(input("a"), `"text":"a"`, "\"text\":\"a\xff\"", 1), 0, []string{"{\"role\":\"user\",\"content\":\"a\uFFFD\"," + at}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data := file(tc.line)
			r := build(t, data)
			if diff := cmp.Diff(tc.want, slotMessages(t, r, data, tc.view)); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
			slots := slotsOf(t, r, tc.view)
			if got := strings.Join(bodyOf(t, r, tc.view, slots[len(slots)-1], false).Notes, " "); got != tc.notes {
				t.Errorf("notes: got %q, want %q", got, tc.notes)
			}
		})
	}
	data := file(input("a"), toolCall("b", "k"), toolResult("c", "k"), logCompaction("d", `"b"`), rewindTo("e", "d"), logCompaction("f", `"c"`))
	r := build(t, data)
	if got, want := slotMessages(t, r, data, dialect.Context), []string{
		`{"role":"compactionSummary","summary":"sum-f","retainedMessageCount":1,` + at,
		`{"role":"toolResult","toolCallId":"k","toolName":"run","content":[{"type":"text","text":"c"}],"isError":false,` + at,
	}; !cmp.Equal(want, got) {
		t.Errorf("summary and result: %s", cmp.Diff(want, got))
	}
	slots := slotsOf(t, r, dialect.Transcript)
	if got := bodyOf(t, r, dialect.Transcript, slots[len(slots)-1], false).Notes; !slices.Equal(got, []string{"branch"}) {
		t.Errorf("notes behind a rewind: got %v", got)
	}
}

func TestEventLog_LongOutputsAreCutInTheContext(t *testing.T) {
	for _, tc := range []struct {
		name   string
		output any
		want   string // of the context; "": the whole
	}{
		{"at the limit", strings.Repeat("é", 24_000), ""},
		{"one more", strings.Repeat("a", 6_000) + strings.Repeat("é", 12_001) + strings.Repeat("z", 6_000), strings.Repeat("a", 6_000) + "\n[... 12001 characters (24002 bytes) left out; record 2 has the whole output ...]\n" + strings.Repeat("z", 6_000)},
		{"escapes count once", strings.Repeat("\n", 24_000), ""},
		{"no text", []string{strings.Repeat("x", 30_000)}, `["` + strings.Repeat("x", 5_998) + "\n[... 18004 characters (18004 bytes) left out; record 2 has the whole output ...]\n" + strings.Repeat("x", 5_998) + `"]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			raw, err := json.Marshal(tc.output)
			if err != nil {
				t.Fatal(err)
			}
			whole, ok := tc.output.(string)
			if !ok {
				whole = string(raw)
			}
			data := file(toolCall("a", "k"), event("b", "tool_result", fmt.Sprintf(`{"call_id":"k","ok":true,"output":%s}`, raw)))
			r := online(t, data)
			for _, v := range bothViews {
				want := tc.want
				if want == "" || v == dialect.Transcript {
					want = whole
				}
				var m struct{ Content []struct{ Text string } }
				if err := json.Unmarshal([]byte(slotMessages(t, r, data, v)[1]), &m); err != nil {
					t.Fatal(err)
				}
				if got := m.Content[0].Text; got != want {
					t.Errorf("%v: got %d bytes, want %d", v, len(got), len(want))
				}
			}
		})
	}
}

func TestEventLog_State(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lines []string
		turn  string
		open  []string
	}{
		{"local only", []string{said("a", "diagnostic")}, "idle", nil},
		{"output only", []string{output("a")}, "idle", nil},
		{"open turn", []string{input("a"), output("b")}, "running", nil},
		{"completed", []string{input("a"), output("b"), turnStatus("c", "completed", "")}, "idle", nil},
		{"cancelled", []string{input("a"), turnStatus("c", "cancelled", "")}, "interrupted", nil},
		{"failed", []string{input("a"), turnStatus("c", "failed", "x")}, "interrupted", nil},
		{"incomplete", []string{input("a"), turnStatus("c", "incomplete", "")}, "interrupted", nil},
		{"unknown status", []string{input("a"), turnStatus("c", "resting", "")}, "running", nil},
		{"next turn", []string{input("a"), turnStatus("c", "failed", ""), input("d")}, "running", nil},
		{"open calls", []string{input("a"), toolCall("b", "k"), toolCall("c", "l"), toolCall("d", "m"), toolResult("e", "l")}, "awaiting_tool", []string{"k", "m"}},
		{"answered", []string{input("a"), toolCall("b", "k"), toolResult("e", "k")}, "running", nil},
		{"calls of the turn before", []string{input("a"), toolCall("b", "k"), input("c")}, "running", nil},
		{"calls of a closed turn", []string{input("a"), toolCall("b", "k"), turnStatus("c", "cancelled", "")}, "interrupted", nil},
		{"rewound", []string{input("a"), toolCall("b", "k"), toolResult("c", "k"), turnStatus("d", "completed", ""), rewindTo("e", "c")}, "awaiting_tool", []string{"k"}},
		{"rewound to nothing", []string{input("a"), rewindTo("b", "a")}, "idle", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data := file(tc.lines...)
			got, err := build(t, data).State(dialect.NewWindow(bytes.NewReader(data)))
			if err != nil {
				t.Fatal(err)
			}
			if got.Turn != tc.turn || !slices.Equal(got.OpenCalls, tc.open) || string(got.Settings) != `{"reasoningSelection":null}` {
				t.Errorf("got %+v, want %s %v", got, tc.turn, tc.open)
			}
		})
	}
	data := file(event("a", "user_input", `{"text":"a","reasoning_selection":"high"}`), input("b"),
		event("c", "user_input", `{"text":"c","reasoning_selection":"low"}`), rewindTo("d", "c"))
	if got, _ := build(t, data).State(dialect.NewWindow(bytes.NewReader(data))); string(got.Settings) != `{"reasoningSelection":"high"}` {
		t.Errorf("settings: got %s", got.Settings)
	}
}

func TestEventLog_InfoAndIDs(t *testing.T) {
	lines := []string{
		event("1", "session_title", `{"title":"first"}`), input("2"), strings.Replace(output("3"), "03:04:05", "03:05:05", 1),
		logCompaction("4", `"2"`), logCompaction("5", `"x"`), event("6", "compaction", `{"tokens_before":7}`),
		event("7", "session_title", `{"title":" newest "}`), rewindTo("8", "7"), said("", "diagnostic"), toolCall("9", "k") + output("9"),
	}
	data := file(lines...)
	r := build(t, data)
	w := dialect.NewWindow(bytes.NewReader(data))
	got, _, err := r.Info(w)
	if err != nil {
		t.Fatal(err)
	}
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := dialect.Info{
		ID: "s1", CWD: "/w", Title: "newest", Version: 1, Created: created, Modified: created.Add(time.Minute),
		Entries: 11, Messages: [2]int{7, 5}, Branches: 1,
		Compactions: []dialect.Compaction{
			{Sequence: 4, State: "anchored"},
			{Sequence: 5, State: "broken"},
			{Sequence: 6, TokensBefore: json.RawMessage("7"), State: "unanchored"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("info (-want +got):\n%s", diff)
	}
	if leaf, err := r.Leaf(w); err != nil || leaf != "9" {
		t.Errorf("leaf: got %q, %v", leaf, err)
	}
	for _, tc := range []struct {
		entry, id string
		held      []uint64
	}{
		{input("2"), "2", []uint64{2}},
		{input("new"), "new", nil},
		{input(""), "", nil},
		{`{"event_id":5}`, "", nil},
		{output("9"), "9", nil}, // inside a line of two
	} {
		id, places, ok, err := r.Held([]byte(tc.entry))
		if err != nil {
			t.Fatal(err)
		}
		var at []uint64
		for _, p := range places {
			at = append(at, p.Sequence)
		}
		if !ok || id != tc.id || !slices.Equal(at, tc.held) {
			t.Errorf("Held(%s): got %q %v %v, want %q %v", tc.entry, id, at, ok, tc.id, tc.held)
		}
	}
}

func TestEventLog_Detection(t *testing.T) {
	for _, tc := range []struct {
		name string
		data []byte
		want string
	}{
		{"event", file(`{"event_type":"x","payload":{}}`), "eventlog"},
		{"behind noise", file("{", "", `{"a":1}`, input("a")), "eventlog"},
		{"fused", file(input("torn")[:30] + input("a")), "eventlog"},
		{"a pi header before", file(header(3), input("a")), "pi"},
		{"a pi entry with the members of an event", file(strings.Replace(user("a", ""), "{", `{"event_type":"x","payload":{},`, 1)), "pi"},
		{"a custom entry of a tree", file(strings.Replace(entry("unheard", "a", "", ""), "{", `{"event_type":"x","payload":{},`, 1), user("b", "a")), "pi"},
		{"payload that is no object", file(`{"event_type":"x","payload":[]}`), replay.Unknown},
		{"type that is no string", file(`{"event_type":1,"payload":{}}`), replay.Unknown},
	} {
		if got, _ := online(t, tc.data).Dialect(); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestEventLog_OversizedRecords: what is over the limit is a marker, and its
// id, call and cutoff count all the same.
func TestEventLog_OversizedRecords(t *testing.T) {
	big := func(line string) string {
		return strings.Replace(line, `"payload":{`, `"payload":{"filler":"`+strings.Repeat("x", 2_000)+`",`, 1)
	}
	data := file(input("a"), big(toolCall("b", "k")), big(toolResult("c", "k")), big(logCompaction("d", `"b"`)),
		big(event("e", "user_input", `{"text":"e","reasoning_selection":"low"}`)), big(turnStatus("f", "failed", "x")), big(rewindTo("g", "f")))
	r := buildWith(t, data, replay.Options{RecordBytesMax: 1_000})
	if got, want := texts(t, r, data, dialect.Context), "[oversized] [oversized] [oversized] [oversized]"; got != want {
		t.Errorf("context: got %q, want %q", got, want)
	}
	if got, want := texts(t, r, data, dialect.Transcript), "a [oversized] [oversized] [oversized] [oversized]"; got != want {
		t.Errorf("transcript: got %q, want %q", got, want)
	}
	if _, held, _, _ := r.Held([]byte(`{"event_id":"c"}`)); len(held) != 1 || held[0].Sequence != 3 {
		t.Errorf("held: got %v", held)
	}
}

var update = flag.Bool("update", false, "write golden files anew")

// TestEventLog_Golden pins both views, their notes, the listing and the
// findings of whole sessions.
func TestEventLog_Golden(t *testing.T) {
	paths, err := filepath.Glob("testdata/eventlog/*.jsonl")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no sessions: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := golden(t, build(t, data), data)
			name := strings.TrimSuffix(path, ".jsonl") + ".golden"
			if *update {
				if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func golden(t *testing.T, r *replay.Replay, data []byte) string {
	t.Helper()
	w := dialect.NewWindow(bytes.NewReader(data))
	var b strings.Builder
	for _, v := range bothViews {
		slots := slotsOf(t, r, v)
		fmt.Fprintf(&b, "%v: %d messages\n", v, len(slots))
		for _, s := range slots {
			body := bodyOf(t, r, v, s, true)
			fmt.Fprintf(&b, "%d.%d %v %s\n", body.Sequence, s.Part, body.Notes, render(t, body, w))
		}
	}
	s := summarise(t, r, data)
	for _, part := range []any{s.Info, s.State, s.Counts, s.Tail} {
		line, err := json.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", line)
	}
	fmt.Fprintf(&b, "leaf %q\n", s.Leaf)
	for _, d := range s.Diagnostics {
		fmt.Fprintf(&b, "%s %s line %d, %d bytes at %d: %s\n", d.Severity, d.Code, d.Line, d.Length, d.Offset, d.Detail)
	}
	return b.String()
}

// TestEventLog_GrowsByAnyCut extends a made-up log at every cut of its last
// turns, in the middle of lines too, and compares with a fresh replay; clients
// of every record before come along by deltas.
func TestEventLog_GrowsByAnyCut(t *testing.T) {
	var b bytes.Buffer
	if _, err := gen.Write(&b, gen.Options{Profile: gen.Log, Seed: 7, Bytes: 40_000, TurnsPerFork: 2, TurnsPerCompaction: 3}); err != nil {
		t.Fatal(err)
	}
	data := b.Bytes()
	if list := findings(t, online(t, data)); len(list) > 0 {
		t.Fatalf("the log is not clean: %v", list)
	}
	ends := recordEnds(data)
	past := make([][2]held, len(ends))
	for seq, end := range ends {
		r := online(t, data[:end])
		for _, v := range bothViews {
			past[seq][v] = holdings(t, r, data, v)
		}
	}
	r, w := online(t, nil), dialect.NewWindow(bytes.NewReader(data))
	size := 0
	for step := 1; size < len(data); step = step*7%997 + 1 {
		size = min(size+step, len(data))
		extend(t, r, data[:size])
		equalReplays(t, online(t, data[:size]), r, data[:size])
		head := r.Head().Sequence
		for _, v := range bothViews {
			for seq := range head + 1 {
				got, _ := apply(t, r, w, v, seq, past[seq][v].messages)
				if !slices.Equal(got, past[head][v].messages) {
					t.Fatalf("%v: a client of record %d at %d has\n%s", v, seq, head, strings.Join(got, "\n"))
				}
			}
		}
	}
}
