package replay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
)

// v1 drops the ids that version 1 does not have.
func v1(line string) string {
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		panic(err)
	}
	delete(m, "id")
	delete(m, "parentId")
	out, _ := json.Marshal(m)
	return string(out)
}

func compactionAt(index any) string {
	return fmt.Sprintf(`{"type":"compaction",%s,"summary":"sum","firstKeptEntryIndex":%v}`, stamp1, index)
}

func systemCompaction(id, parent, kept string) string {
	return strings.Replace(compaction(id, parent, kept), `"summary"`, `"systemMessage":{"role":"system","content":"new rules"},"summary"`, 1)
}

func TestRules_Views(t *testing.T) {
	abc := []string{header(3), user("a", ""), user("b", "a"), user("c", "b")}
	with := func(more ...string) []byte { return file(append(append([]string{}, abc...), more...)...) }
	for _, tc := range []struct {
		name                string
		data                []byte
		transcript, context string
		codes               string
	}{
		{"compaction keeps from its anchor on", with(compaction("d", "c", "b"), user("e", "d")), "a b c [compaction] e", "(sum-d) b c e", ""},
		{"compaction without an anchor", with(strings.Replace(compaction("d", "c", "b"), `"firstKeptEntryId":"b",`, "", 1), user("e", "d")), "a b c [compaction] e", "(sum-d) e", ""},
		{"compaction anchored at nothing", with(compaction("d", "c", "x"), user("e", "d")), "a b c [compaction] e", "(sum-d) e", "compaction_unanchored@5"},
		{"compaction anchored at itself", with(compaction("d", "c", "d"), user("e", "d")), "a b c [compaction] e", "(sum-d) e", ""},
		{"compaction anchored off the path", with(user("x", "a"), compaction("d", "c", "x")), "a b c [compaction]", "(sum-d)", ""},
		{"compaction anchored after itself", with(compaction("d", "c", "e"), user("e", "d")), "a b c [compaction] e", "(sum-d) e", ""},
		{
			"an older compaction shows nothing", with(compaction("d", "c", "b"), user("e", "d"), compaction("f", "e", "c"), user("g", "f")),
			"a b c [compaction] e [compaction] g", "(sum-f) c e g", "",
		},
		{"branch before the compaction", with(compaction("d", "c", "b"), user("e", "b")), "a b e", "a b e", ""},
		{
			"system messages of the retained part stay out", file(header(3), message("a", "", "system", "rules"), user("b", "a"), message("s", "b", "system", "more"),
				systemCompaction("d", "s", "a"), message("e", "d", "system", "last")),
			"rules b more [compaction] last", "new rules (sum-d) b last", "",
		},
		{"edit that drops", with(contextEdit("d", "c", "b", "null")), "a b c", "a c", ""},
		{"edit that rewrites", with(contextEdit("d", "c", "b", `{"content":"B"}`)), "a b c", "a B c", ""},
		{"the last edit wins", with(contextEdit("d", "c", "b", "null"), contextEdit("e", "d", "b", `{"content":"B"}`)), "a b c", "a B c", ""},
		{"edit of another branch", with(contextEdit("d", "c", "b", "null"), user("e", "c")), "a b c e", "a b c e", ""},
		{"edit before its target", with(contextEdit("d", "c", "e", "null"), user("e", "d")), "a b c e", "a b c", ""},
		{"edit of a compaction", with(compaction("d", "c", "b"), contextEdit("e", "d", "d", "null")), "a b c [compaction]", "(sum-d) b c", ""},
		{"edit that is none", with(contextEdit("d", "c", "b", "5"), contextEdit("e", "d", "x", "null")), "a b c", "a b c", ""},
		{"unknown parent", with(user("d", "x"), user("e", "d")), "a b c [gap] d e", "d e", "dangling_parent@5"},
		{"parent that is no id", with(strings.Replace(user("d", "x"), `"x"`, `[1]`, 1)), "a b c [gap] d", "d", "dangling_parent@5"},
		{"late parent", file(header(3), user("a", ""), user("c", "b"), user("b", "a"), user("d", "c")), "a b c d", "a b c d", ""},
		{"its own parent", with(user("d", "d")), "a b c [gap] d", "d", "cycle@5"},
		{"ring", file(header(3), user("a", ""), user("x", "y"), user("y", "x"), user("z", "y")), "a [gap] x y z", "x y z", "cycle@3"},
		{"repeated id: links go to the last", with(user("b", "a"), user("d", "b")), "a b d", "a b d", "duplicate_id@5"},
		{"number as id", with(strings.Replace(user("d", "c"), `"id":"d"`, `"id":7`, 1), strings.Replace(user("e", "7"), `"7"`, `7`, 1)), "a b c d e", "a b c d e", ""},
		{"string is not the number", with(strings.Replace(user("d", "c"), `"id":"d"`, `"id":7`, 1), user("e", "7")), "a b c d [gap] e", "e", "dangling_parent@6"},
		{"entry without an id", with(strings.Replace(user("d", "c"), `"id":"d",`, "", 1), user("e", "c")), "a b c e", "a b c e", "entry_without_id@5"},
		{"escaped ids and types", with(strings.NewReplacer(`"d"`, `"\u0064"`, `"message","id"`, `"mess\u0061ge","id"`).Replace(user("d", "c")), user("e", "d")), "a b c d e", "a b c d e", ""},
		{"message without a message", with(entry("message", "d", "c", ""), user("e", "d")), "a b c e", "a b c e", "message_missing@5"},
		{"unknown type", with(entry("invented", "d", "c", ""), user("e", "d")), "a b c e", "a b c e", ""},
		{"custom message", with(entry("custom_message", "d", "c", `"customType":"x","content":"note","display":true`)), "a b c note", "a b c note", ""},
		{"branch summaries", with(entry("branch_summary", "d", "a", `"fromId":"c","summary":"was"`), entry("branch_summary", "e", "d", `"summary":""`)), "a (was)", "a (was)", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := build(t, tc.data)
			if got := texts(t, r, tc.data, dialect.Transcript); got != tc.transcript {
				t.Errorf("transcript: got %q, want %q", got, tc.transcript)
			}
			if got := texts(t, r, tc.data, dialect.Context); got != tc.context {
				t.Errorf("context: got %q, want %q", got, tc.context)
			}
			if got := codesOf(r); got != tc.codes {
				t.Errorf("diagnostics: got %q, want %q", got, tc.codes)
			}
		})
	}
}

func TestRules_Version1(t *testing.T) {
	lines := func(more ...string) []byte {
		out := []string{header(1), v1(user("a", "")), v1(user("b", ""))}
		return file(append(out, more...)...)
	}
	for _, tc := range []struct {
		name    string
		data    []byte
		context string
	}{
		{"linear", lines(v1(user("c", ""))), "a b c"},
		{"index of an entry", lines(compactionAt(2), v1(user("c", ""))), "(sum) b c"},
		{"index of the header", lines(compactionAt(0), v1(user("c", ""))), "(sum) c"},
		{"index out of range", lines(compactionAt(99), v1(user("c", ""))), "(sum) c"},
		{"index of a later entry", lines(compactionAt(4), v1(user("c", ""))), "(sum) c"},
		{"negative index", lines(compactionAt(-1)), "(sum)"},
		{"index that is no whole number", lines(compactionAt(1.5)), "(sum)"},
		{"index that is no number", lines(compactionAt(`"2"`)), "(sum)"},
		{"malformed and blank lines do not count", lines("{", "", v1(user("c", "")), compactionAt(3)), "(sum) c"},
		{"values that are no objects count", lines("42", v1(user("c", "")), compactionAt(4)), "(sum) c"},
		{"salvaged entries do not count", file(header(1), "\x00"+user("x", ""), v1(user("a", "")), compactionAt(1)), "(sum) a"},
		{"an id names nothing to edit", lines(user("x", ""), contextEdit("e", "x", "x", "null")), "a b x"},
		{"an id is no link", lines(user("c", "nowhere")), "a b c"},
		{"no header, entries without ids", file(strings.Replace(user("a", ""), `"id":"a",`, "", 1), user("b", "")), "a b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := texts(t, build(t, tc.data), tc.data, dialect.Context); got != tc.context {
				t.Errorf("got %q, want %q", got, tc.context)
			}
		})
	}
}

func TestRules_RetainedCount(t *testing.T) {
	for _, tc := range []struct {
		name string
		data []byte
		want int
	}{
		{"three", file(header(3), user("a", ""), user("b", "a"), entry("label", "l", "b", ""), user("c", "l"), compaction("d", "c", "a")), 3},
		{"from a silent entry on", file(header(3), user("a", ""), entry("label", "l", "a", ""), user("c", "l"), compaction("d", "c", "l")), 1},
		{"over an older compaction", file(header(3), user("a", ""), compaction("b", "a", "a"), user("c", "b"), compaction("d", "c", "a")), 2},
		{"without system messages", file(header(3), message("a", "", "system", "x"), user("b", "a"), systemCompaction("d", "b", "a")), 1},
		{"none", file(header(3), user("a", ""), compaction("d", "a", "")), 0},
		{"in a ring", file(header(3), user("x", "z"), user("y", "x"), user("z", "y"), compaction("d", "z", "y")), 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := build(t, tc.data)
			found := false
			for _, m := range messages(t, r, tc.data, dialect.Context) {
				var v struct {
					Role  string
					Count int `json:"retainedMessageCount"`
				}
				if err := json.Unmarshal(m, &v); err != nil {
					t.Fatal(err)
				}
				if v.Role == "compactionSummary" {
					found = true
					if v.Count != tc.want {
						t.Errorf("got %d, want %d", v.Count, tc.want)
					}
				}
			}
			if !found {
				t.Error("no summary")
			}
			view := len(slotsOf(t, r, dialect.Context))
			if info, _, _ := r.Info(dialect.NewWindow(bytes.NewReader(tc.data))); info.Messages[dialect.Context] != view {
				t.Errorf("Info counts %d, the view has %d", info.Messages[dialect.Context], view)
			}
		})
	}
}

func TestRules_State(t *testing.T) {
	call := entry("message", "c", "a", `"message":{"role":"assistant","provider":"p","model":"m2","content":[{"type":"toolCall","id":"k1","name":"x"},{"type":"toolCall","id":"k2"}]}`)
	result := func(id, parent, k string) string {
		return entry("message", id, parent, `"message":{"role":"toolResult","toolCallId":"`+k+`"}`)
	}
	stop := func(reason string) string {
		return entry("message", "c", "a", `"message":{"role":"assistant","stopReason":"`+reason+`","content":"x"}`)
	}
	for _, tc := range []struct {
		name  string
		lines []string
		turn  string
		open  []string
	}{
		{"no message", nil, "idle", nil},
		{"user", []string{user("a", "")}, "running", nil},
		{"calls", []string{user("a", ""), call}, "awaiting_tool", []string{"k1", "k2"}},
		{"one result", []string{user("a", ""), call, result("d", "c", "k2")}, "running", []string{"k1"}},
		{"all results", []string{user("a", ""), call, result("d", "c", "k2"), entry("label", "l", "d", ""), result("e", "l", "k1")}, "running", nil},
		{"aborted", []string{user("a", ""), stop("aborted")}, "interrupted", nil},
		{"error", []string{user("a", ""), stop("error")}, "interrupted", nil},
		{"answer", []string{user("a", ""), stop("stop")}, "idle", nil},
		{"silent entries after it", []string{user("a", ""), stop("stop"), compaction("d", "c", "a"), entry("custom", "e", "d", "")}, "idle", nil},
		{"another role", []string{user("a", ""), message("b", "a", "bashExecution", "x")}, "unknown", nil},
		{"generated message", []string{user("a", ""), entry("custom_message", "b", "a", "")}, "unknown", nil},
		{"branch", []string{user("a", ""), call, user("d", "a")}, "running", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data := file(append([]string{header(3)}, tc.lines...)...)
			st, err := build(t, data).State(dialect.NewWindow(bytes.NewReader(data)))
			if err != nil {
				t.Fatal(err)
			}
			if st.Turn != tc.turn {
				t.Errorf("turn: got %q, want %q", st.Turn, tc.turn)
			}
			if diff := cmp.Diff(tc.open, st.OpenCalls); diff != "" {
				t.Errorf("open calls (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRules_Settings(t *testing.T) {
	model := func(id, parent, m string) string {
		return entry("model_change", id, parent, `"provider":"p","modelId":"`+m+`"`)
	}
	answer := func(id, parent, m string) string {
		return entry("message", id, parent, `"message":{"role":"assistant","provider":"q","model":"`+m+`"}`)
	}
	for _, tc := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"none", nil, `null null "off" "default"`},
		{"change", []string{model("a", "", "m1")}, `"p" "m1" "off" "default"`},
		{"assistant after a change", []string{model("a", "", "m1"), answer("b", "a", "m2")}, `"q" "m2" "off" "default"`},
		{"change after an assistant", []string{answer("a", "", "m2"), model("b", "a", "m1")}, `"p" "m1" "off" "default"`},
		{"a branch takes its own", []string{user("r", ""), model("a", "r", "m1"), model("b", "r", "m2"), user("c", "a")}, `"p" "m1" "off" "default"`},
		{"over a compaction", []string{model("a", "", "m1"), compaction("b", "a", "")}, `"p" "m1" "off" "default"`},
		{"level and tier", []string{entry("thinking_level_change", "a", "", `"thinkingLevel":"high"`), entry("service_tier_change", "b", "a", `"serviceTier":null`)}, `null null "high" null`},
		{"in what a ring holds above its cut", []string{model("x", "z", "m0"), model("y", "x", "m1"), user("z", "y"), user("e", "x")}, `"p" "m0" "off" "default"`},
		{"only above the cut of a ring", []string{user("x", "z"), model("y", "x", "m1"), user("z", "y"), user("e", "x")}, `"p" "m1" "off" "default"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data := file(append([]string{header(3)}, tc.lines...)...)
			st, err := build(t, data).State(dialect.NewWindow(bytes.NewReader(data)))
			if err != nil {
				t.Fatal(err)
			}
			var s struct{ Provider, Model, ThinkingLevel, ServiceTier json.RawMessage }
			if err := json.Unmarshal(st.Settings, &s); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("%s %s %s %s", s.Provider, s.Model, s.ThinkingLevel, s.ServiceTier); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestRules_Header(t *testing.T) {
	typed := func(members string) string { return `{"type":"session",` + members + `}` }
	for _, tc := range []struct {
		name    string
		data    []byte
		id, cwd string
		version int
		newer   bool
		codes   string
	}{
		{"version 3", file(header(3)), "s1", "/home/user", 3, false, ""},
		{"no version", file(header(1)), "s1", "/home/user", 1, false, ""},
		{"null version", file(typed(`"id":"x","version":null`)), "x", "", 1, false, ""},
		{"string version", file(typed(`"id":"x","version":" 2 "`)), "x", "", 2, false, ""},
		{"fraction", file(typed(`"id":"x","version":2.5`)), "x", "", 2, false, ""},
		{"newer", file(typed(`"id":"x","version":99`)), "x", "", 99, true, "newer_version@1"},
		{"infinite", file(typed(`"id":"x","version":1e999`)), "x", "", 3, true, "newer_version@1"},
		{"not comparable", file(typed(`"id":"x","version":{}`)), "x", "", 3, false, ""},
		{"true", file(typed(`"id":"x","version":true`)), "x", "", 1, false, ""},
		{"id that is no string", file(typed(`"id":5,"version":3,"cwd":"/c"`), user("a", "")), "", "/c", 3, false, "header_bad_id@1"},
		{"a good one after it", file(typed(`"id":5,"version":2,"cwd":"/c"`), user("a", ""), header(3)), "s1", "/home/user", 2, false, "header_bad_id@1 header_late@3"},
		{"late", file(user("a", ""), header(3)), "s1", "/home/user", 3, false, "header_late@2"},
		{"second", file(header(3), typed(`"id":"y"`)), "s1", "/home/user", 3, false, "second_header@2"},
		{"missing", file(user("a", "")), "", "", 3, false, "header_missing@0"},
		{"byte-order mark", append([]byte(jsonl.BOM), file(header(3))...), "s1", "/home/user", 3, false, "bom@1"},
		{"CRLF", []byte(header(3) + "\r\n"), "s1", "/home/user", 3, false, ""},
		{"escaped", file(strings.Replace(header(3), `"s1"`, `"\u0073\u0031"`, 1)), "s1", "/home/user", 3, false, ""},
		{"without its LF", []byte(header(3)), "s1", "/home/user", 3, false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := build(t, tc.data)
			in, _, err := r.Info(dialect.NewWindow(bytes.NewReader(tc.data)))
			if err != nil {
				t.Fatal(err)
			}
			if in.ID != tc.id || in.CWD != tc.cwd || in.Version != tc.version || in.Newer != tc.newer {
				t.Errorf("got id %q cwd %q version %d newer %v, want %q %q %d %v",
					in.ID, in.CWD, in.Version, in.Newer, tc.id, tc.cwd, tc.version, tc.newer)
			}
			if got := codesOf(r); got != tc.codes {
				t.Errorf("diagnostics: got %q, want %q", got, tc.codes)
			}
		})
	}
}

func TestRules_HeldByID(t *testing.T) {
	data := file(header(3), user("a", ""), user("b", "a"), user("a", "b"), "\x00"+user("salvaged", "a"), entry("label", "l", "a", ""))
	ends := recordEnds(data)
	place := func(line int) dialect.Place {
		return dialect.Place{Sequence: uint64(line), Offset: int64(ends[line-1]), Bytes: int64(ends[line] - ends[line-1] - 1)}
	}
	r := online(t, append(bytes.Clone(data), user("tail", "a")...))
	for _, tc := range []struct {
		name, entry, id string
		want            []dialect.Place
	}{
		{"once", user("b", "x"), "b", []dialect.Place{place(3)}},
		{"twice", user("a", "x"), "a", []dialect.Place{place(2), place(4)}},
		{"escaped", `{"id":"\u0062"}`, "b", []dialect.Place{place(3)}},
		{"of any type", `{"id":"l"}`, "l", []dialect.Place{place(6)}},
		{"not at all", user("new", "a"), "new", nil},
		{"salvaged", user("salvaged", "a"), "salvaged", nil},
		{"the tail", user("tail", "a"), "tail", nil},
		{"no id", `{"type":"message"}`, "", nil},
		{"null", `{"id":null}`, "", nil},
		{"number", `{"id":7}`, "7", nil},
		{"the header", header(3), "s1", []dialect.Place{place(1)}},
		{"another header", `{"type":"session","id":"s2"}`, "s2", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			id, held, ok, err := r.Held([]byte(tc.entry))
			if err != nil {
				t.Fatal(err)
			}
			if id != tc.id || !ok {
				t.Errorf("got id %q %v, want %q", id, ok, tc.id)
			}
			if diff := cmp.Diff(tc.want, held); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	old := file(header(1), v1(user("a", "")))
	if _, _, ok, _ := online(t, old).Held([]byte(user("a", ""))); ok {
		t.Error("version 1: got ok, but it has no ids")
	}
}

func TestRules_Notes(t *testing.T) {
	data := file(header(3), user("a", ""), user("b", "a"), user("c", "a"), entry("label", "l", "b", ""), user("d", "l"), "\x00"+user("e", "d"))
	data = append(data, user("f", "e")...)
	r := build(t, data)
	var got []string
	for _, s := range slotsOf(t, r, dialect.Transcript) {
		b := bodyOf(t, r, dialect.Transcript, s, false)
		got = append(got, fmt.Sprint(b.Sequence, b.Notes))
	}
	want := []string{"2 []", "3 []", "6 [branch]", "7 [salvaged]", "8 [provisional]"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	in, _, err := r.Info(dialect.NewWindow(bytes.NewReader(data)))
	if err != nil || in.Branches != 2 {
		t.Errorf("branches: got %d %v, want 2", in.Branches, err)
	}
}

func TestRules_OversizedRecords(t *testing.T) {
	long := strings.Repeat("x", 3000)
	data := file(header(3), user("a", ""), message("big", "a", "assistant", long), user("c", "big"),
		`{"type":"message","id":"`+long+`"`, `"`+long+`"`, user("d", "c"))
	r := buildWith(t, data, replay.Options{RecordBytesMax: 1000})
	if got, want := texts(t, r, data, dialect.Transcript), "a [oversized] c d"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := codesOf(r), "oversized_record@3 malformed_line@5 non_object_line@6"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	c := r.Counts()
	if want := (replay.Counts{Records: 7, Entries: 5, Malformed: 1, NonObject: 1, Oversized: 3}); c != want {
		t.Errorf("got %+v, want %+v", c, want)
	}
	_, held, _, _ := r.Held([]byte(`{"id":"big"}`))
	ends := recordEnds(data)
	if want := []dialect.Place{{Sequence: 3, Offset: int64(ends[2]), Bytes: int64(ends[3] - ends[2] - 1)}}; !cmp.Equal(held, want) {
		t.Errorf("held: got %v, want %v", held, want)
	}
	tail := append(file(header(3), user("a", "")), message("big", "a", "user", long)...)
	r = buildWith(t, tail, replay.Options{RecordBytesMax: 1000, Tail: true})
	if got, want := texts(t, r, tail, dialect.Transcript), "a [oversized]"; got != want {
		t.Errorf("tail: got %q, want %q", got, want)
	}
	if got := r.Counts(); got.Oversized != 0 || got.Records != 2 {
		t.Errorf("tail: got counts %+v", got)
	}
	r = buildWith(t, tail, replay.Options{RecordBytesMax: 1000})
	if p, ok, err := r.Preview(dialect.Transcript, dialect.NewWindow(bytes.NewReader(tail))); ok || err != nil {
		t.Errorf("preview: got %+v %v", p, err)
	}
}

func TestRules_ChildUsage(t *testing.T) {
	usage := `"usage":{"input":1,"note":"kept only where no child adds"}`
	answer := entry("message", "a", "", `"message":{"role":"assistant",`+usage+`,"content":"x"}`)
	bare := entry("message", "b", "a", `"message":{}`)
	data := file(header(3), answer, bare, childUsage("c", "b", "a", 5), childUsage("d", "c", "a", 6), childUsage("e", "d", "b", 7),
		entry("child_usage_attributed", "f", "e", `"targetId":"a","aggregateUsage":{"input":1}`))
	r := build(t, data)
	for _, v := range bothViews {
		list := slotMessages(t, r, data, v)
		want := []string{`{"role":"assistant","usage":{"input":6,"cost":{"total":0.5}},"content":"x"}`, `{}`}
		if diff := cmp.Diff(want, list); diff != "" {
			t.Errorf("%v (-want +got):\n%s", v, diff)
		}
		if diff := cmp.Diff([]dialect.Amendment{{Index: 0, Sequence: 5}}, deltaOf(t, r, v, 4).Amendments); diff != "" {
			t.Errorf("%v: amendments after 4 (-want +got):\n%s", v, diff)
		}
		if got := deltaOf(t, r, v, 5).Amendments; len(got) != 0 {
			t.Errorf("%v: amendments after 5: got %v", v, got)
		}
	}
	if got, want := codesOf(r), "usage_missing@7"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRules_GeneratedTimestamps(t *testing.T) {
	for _, tc := range []struct{ name, value, want string }{
		{"string", `"2026-01-02T03:04:05.678Z"`, "1767323045678"},
		{"number", "12.9", "12"},
		{"null", "null", "0"},
		{"no date", `"soon"`, "null"},
		{"object", "{}", "null"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data := file(header(3), strings.Replace(entry("custom_message", "a", "", ""), `"2026-01-02T03:04:05.678Z"`, tc.value, 1))
			got := slotMessages(t, build(t, data), data, dialect.Context)[0]
			if want := `{"role":"custom","timestamp":` + tc.want + `}`; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestRules_InvalidUTF8IsMended(t *testing.T) {
	bad := "\xe2\x82A\xff\xfe"
	data := file(header(3), strings.Replace(user("a", ""), `"content":"a"`, `"content":"`+bad+`"`, 1),
		strings.Replace(compaction("c", "a", "a"), "sum-c", bad, 1),
		strings.Replace(contextEdit("e", "c", "a", `{"content":"x"}`), `"x"`, `"`+bad+`"`, 1))
	r := build(t, data)
	good := "\ufffdA\ufffd\ufffd"
	if got, want := texts(t, r, data, dialect.Context), "("+good+") "+good; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := codesOf(r), "invalid_utf8@2 invalid_utf8@3 invalid_utf8@4"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
