package pi

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
	"sessiond/replay/pages"
)

func TestDetect(t *testing.T) {
	for _, tc := range []struct {
		name, object string
		want         bool
	}{
		{"header", `{"type":"session","id":"x","version":3}`, true},
		{"old header", `{"type":"session","id":"x","timestamp":"t"}`, true},
		{"header with a folder only", `{"type":"session","id":"x","cwd":"/"}`, true},
		{"session of another kind", `{"type":"session","id":"x"}`, false},
		{"id that is no string", `{"type":"session","id":5,"version":3}`, false},
		{"entry", `{"type":"label","parentId":null,"timestamp":"t"}`, true},
		{"entry of a type that is not known", `{"type":"progress","parentId":null,"timestamp":"t"}`, false},
		{"entry without a parent", `{"type":"message","timestamp":"t"}`, false},
		{"no type", `{"parentId":null,"timestamp":"t"}`, false},
		{"empty", `{}`, false},
	} {
		if got := (Family{}).Detect(0, []byte(tc.object)); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestEnvelope(t *testing.T) {
	scanner := jsonl.NewScanner(Family{}.Keys(true))
	for _, tc := range []struct {
		name, object string
		want         bool
	}{
		{"entry", `{"type":"x","id":"a","parentId":null,"timestamp":1}`, true},
		{"number as id", `{"type":"x","id":1,"parentId":null,"timestamp":1}`, true},
		{"null as id", `{"type":"x","id":null,"parentId":null,"timestamp":1}`, false},
		{"no parent", `{"type":"x","id":"a","timestamp":1}`, false},
		{"no timestamp", `{"type":"x","id":"a","parentId":"b"}`, false},
		{"a type that is no string", `{"type":1,"id":"a","parentId":"b","timestamp":1}`, false},
		{"header", `{"type":"session","id":"a"}`, true},
		{"header with a number as id", `{"type":"session","id":1}`, false},
		{"content block", `{"type":"toolCall","id":"a","name":"x"}`, false},
		{"no object", `[]`, false},
	} {
		if got := (Family{}).Envelope(scanner.Scan([]byte(tc.object)), []byte(tc.object)); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestHeader_IsReadBack(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.FixedZone("", 3600))
	h, err := Family{}.Header("x", "/a <b> & \"c\"", now)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"type":"session","version":3,"id":"x","timestamp":"2026-01-02T02:04:05.678Z","cwd":"/a <b> & \"c\""}` + "\n"
	if diff := cmp.Diff(want, string(h)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if version, newer := headerVersion(h); version != 3 || newer {
		t.Errorf("version: got %d %v", version, newer)
	}
	if !(Family{}).Detect(0, h) {
		t.Error("its own header is not detected")
	}
}

func TestHeaderVersion(t *testing.T) {
	for _, tc := range []struct {
		json  string
		want  int
		newer bool
	}{
		{`1`, 1, false},
		{`0`, 1, false},
		{`-5`, 1, false},
		{`1.99`, 1, false},
		{`2`, 2, false},
		{`2.99`, 2, false},
		{`3`, 3, false},
		{`3.0`, 3, false},
		{`3.1`, 3, true},
		{`99`, 3, true},
		{`""`, 1, false},
		{`"3"`, 3, false},
		{`"\u0032"`, 2, false},
		{`"v3"`, 3, false},
		{`null`, 1, false},
		{`false`, 1, false},
		{`[]`, 3, false},
	} {
		if got, newer := headerVersion([]byte(`{"version":` + tc.json + `}`)); got != tc.want || newer != tc.newer {
			t.Errorf("headerVersion(%s): got %d %v, want %d %v", tc.json, got, newer, tc.want, tc.newer)
		}
	}
}

func TestLabel(t *testing.T) {
	for _, tc := range []struct{ name, json, want string }{
		{"plain", `"a b"`, "a b"},
		{"trimmed", `" \t\n\u00a0\u2003\ufeff\u3000a\u2028 "`, "a"},
		{"not trimmed", `"\u0085a\u200b"`, "\u0085a\u200b"},
		{"only white space", `"  "`, ""},
		{"no string", `5`, ""},
		{"escapes", `"\u0041\n\ud83d\ude00"`, "A\n😀"},
		{"half a pair", `"a\ud83d"`, "a\ufffd"},
		{"long", `"` + strings.Repeat("ü", labelBytesMax) + `"`, strings.Repeat("ü", labelBytesMax/2)},
		{"cut inside a character", `"a` + strings.Repeat("ü", labelBytesMax) + `"`, "a" + strings.Repeat("ü", labelBytesMax/2-1)},
	} {
		if got := label([]byte(`{"name":`+tc.json+`}`), "name"); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestStatus(t *testing.T) {
	for _, tc := range []struct{ state, want string }{
		{`{"status":"active"}`, "active"},
		{`{"status":"archived"}`, "archived"},
		{`{"status":"crash"}`, "crash"},
		{`{"status":"hidden"}`, "archived"},
		{`{"status":"sleep"}`, "archived"},
		{`{"status":"other"}`, ""},
		{`{"status":1}`, ""},
		{`"active"`, ""},
	} {
		if got := statusOf([]byte(`{"state":` + tc.state + `}`)); got != tc.want {
			t.Errorf("statusOf(%s): got %q, want %q", tc.state, got, tc.want)
		}
	}
}

func TestFacts(t *testing.T) {
	scanner := jsonl.NewScanner(Family{}.Keys(true))
	at := time.UnixMilli(1767323045678).UTC()
	for _, tc := range []struct {
		name, object string
		want         dialect.Facts
	}{
		{"header", `{"type":"session","id":"x","timestamp":"2026-01-02T03:04:05.678Z"}`, dialect.Facts{Type: "session", Known: true, Time: at}},
		{"unknown", `{"type":"progress","id":"x"}`, dialect.Facts{Type: "progress", Entry: true}},
		{"result", `{"type":"message","id":"x","message":{"role":"toolResult","toolCallId":"k"}}`, dialect.Facts{Type: "message", Known: true, Entry: true, Role: "toolResult", Results: []string{"k"}}},
		{
			"assistant", `{"type":"message","id":"x","message":{"role":"assistant","content":[5,{"type":"toolCall","id":"k","name":"n"},{"type":"toolCall"}],` +
				`"usage":{"input":1,"output":2.9,"cacheRead":-1,"cacheWrite":"x","cost":{"total":0.0000015}}}}`,
			dialect.Facts{
				Type: "message", Known: true, Entry: true, Role: "assistant", Calls: []dialect.Call{{ID: "k", Name: "n"}},
				Usage: &dialect.Usage{Input: 1, Output: 2, CostMicroUSD: 2, HasCost: true},
			},
		},
		{"message that is none", `{"type":"message","id":"x","message":5}`, dialect.Facts{Type: "message", Known: true, Entry: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := []byte(tc.object)
			got := newSession(0, new(pages.Space)).Facts(dialect.Object{Text: text, Bytes: int64(len(text)), Scan: scanner.Scan(text)})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSetMember(t *testing.T) {
	for _, tc := range []struct{ name, object, want string }{
		{"replaced", `{"a":1,"b":2}`, `{"a":[],"b":2}`},
		{"added", `{"b":2}`, `{"b":2,"a":[]}`},
		{"added to none", `{ }`, `{ "a":[]}`},
		{"the last of two", `{"a":1,"a":2}`, `{"a":1,"a":[]}`},
	} {
		if got := string(setMember(nil, []byte(tc.object), "a", []byte("[]"))); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}
