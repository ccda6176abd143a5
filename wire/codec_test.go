package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeCommand_Good(t *testing.T) {
	no := false
	for name, c := range map[string]struct {
		in   string
		want Command
	}{
		"string id":     {`{"id":"x1","type":"list"}`, Command{ID: "x1", Type: "list"}},
		"number id":     {`{"id":7,"type":"list","limit":3}`, Command{ID: "7", Type: "list", Limit: 3}},
		"large number":  {`{"id":12345678901234567890,"type":"ping"}`, Command{ID: "12345678901234567890", Type: "ping"}},
		"no id":         {`{"type":"ping"}`, Command{Type: "ping"}},
		"null id":       {`{"id":null,"type":"ping"}`, Command{Type: "ping"}},
		"unknown field": {`{"type":"ping","later":{"a":[1]}}`, Command{Type: "ping"}},
		"CR":            {"{\"type\":\"ping\"}\r", Command{Type: "ping"}},
		"entries": {
			`{"type":"append","entries":["{\"a\":\"\\ud83d\"}","\ud83d\ude00","\ufffd"]}`,
			Command{Type: "append", Entries: []string{`{"a":"\ud83d"}`, "😀", "\ufffd"}},
		},
		"attach": {
			`{"type":"attach","view":"context","have":0,"live":false}`,
			Command{Type: "attach", View: ViewContext, Have: new(int), Live: &no},
		},
		"header verbatim": {
			`{"type":"create","header":{"t": "\ud83d<"}}`,
			Command{Type: "create", Header: json.RawMessage(`{"t": "\ud83d<"}`)},
		},
	} {
		got, err := DecodeCommand([]byte(c.in))
		if err != nil {
			t.Errorf("%s: got %v, want no error", name, err)
			continue
		}
		if diff := cmp.Diff(&c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestDecodeCommand_Bad(t *testing.T) {
	for name, c := range map[string]struct {
		in, id string
		code   Code
	}{
		"empty":                {``, "", CodeBadFrame},
		"text":                 {`hello`, "", CodeBadFrame},
		"array":                {`[1]`, "", CodeBadFrame},
		"null":                 {`null`, "", CodeBadFrame},
		"cut after id":         {`{"id":"9","type":"li`, "9", CodeBadFrame},
		"number id, cut":       {`{"id":9,"entries":["`, "9", CodeBadFrame},
		"id after the damage":  {`{"type":lis,"id":"9"}`, "", CodeBadFrame},
		"nested id only":       {`{"a":{"id":"9"},`, "", CodeBadFrame},
		"two objects":          {`{"id":"1","type":"ping"}{}`, "1", CodeBadFrame},
		"raw control byte":     {"{\"id\":\"1\",\"type\":\"a\x01\"}", "1", CodeBadFrame},
		"no type":              {`{"id":"1"}`, "1", CodeBadFrame},
		"invalid UTF-8":        {"{\"id\":\"1\",\"type\":\"\xff\"}", "1", CodeBadFrame},
		"type of a wrong kind": {`{"id":"1","type":7}`, "1", CodeBadArgument},
		"limit of wrong kind":  {`{"id":"1","type":"list","limit":"x"}`, "1", CodeBadArgument},
		"object as id":         {`{"id":{},"type":"list"}`, "", CodeBadArgument},
		"long id":              {`{"id":"` + strings.Repeat("x", 300) + `","type":"list"}`, "", CodeBadArgument},
		"impossible cursor":    {`{"id":"1","type":"attach","resume":{"sequence":9,"offset":1}}`, "1", CodeBadArgument},
		"bad position":         {`{"id":"1","type":"attach","position":{}}`, "1", CodeBadArgument},
		"entry no string":      {`{"id":"1","type":"append","entries":["{}",{}]}`, "1", CodeBadArgument},
		"entry null":           {`{"id":"1","type":"append","entries":[null]}`, "1", CodeBadArgument},
		"half pair, high":      {`{"id":"1","type":"append","entries":["\ud83d"]}`, "1", CodeBadArgument},
		"half pair, low":       {`{"id":"1","type":"append","entries":["a\ude00b"]}`, "1", CodeBadArgument},
		"half pair, twice":     {`{"id":"1","type":"append","entries":["\ud83d\ud83d\ude00"]}`, "1", CodeBadArgument},
		"half pair, then text": {`{"id":"1","type":"append","entries":["\ud83d\n"]}`, "1", CodeBadArgument},
	} {
		got, err := DecodeCommand([]byte(c.in))
		if err == nil || err.Code != c.code || got == nil || got.ID != c.id {
			t.Errorf("%s: got %+v, %v, want the code %s and the id %q", name, got, err, c.code, c.id)
		}
	}
}

func TestAppendLine_LeavesHTML(t *testing.T) {
	b, err := AppendLine([]byte("x"), map[string]any{"a": "<&>\u2028"})
	const want = "x{\"a\":\"<&>\\u2028\"}\n"
	if err != nil || string(b) != want {
		t.Errorf("got %q, %v, want %q", b, err, want)
	}
	if _, err := AppendLine(nil, make(chan int)); err == nil {
		t.Error("a channel: got no error, want one")
	}
}

func TestFrameType(t *testing.T) {
	for in, want := range map[string]string{
		`{"type":"ping"}`:             "ping",
		`{ "a":1, "type" : "x" }`:     "x",
		`{"type":"pi\u006eg"}`:        "ping",
		`{"type":"`:                   "",
		`{"type":7}`:                  "",
		`[]`:                          "",
		`{"type":"session_live","x":`: "session_live", // the rest is the decoder's to refuse
	} {
		if got := FrameType([]byte(in)); got != want {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
}

func TestCutLast(t *testing.T) {
	for name, c := range map[string]struct {
		in, head, value string
		ok              bool
	}{
		"usual":             {`{"type":"c","meta":[{"m":1}],"messages":[{"a":"]}"}]}`, `{"type":"c","meta":[{"m":1}]}`, `[{"a":"]}"}]`, true},
		"only member":       {`{"messages":[]}`, `{}`, `[]`, true},
		"key inside a text": {`{"a":",\"messages\":[","messages":[1]}`, `{"a":",\"messages\":["}`, `[1]`, true},
		"key nested":        {`{"a":{"messages":[0]},"messages":[1]}`, `{"a":{"messages":[0]}}`, `[1]`, true},
		"key as a value":    {`{"a":"messages","messages":[1]}`, `{"a":"messages"}`, `[1]`, true},
		"absent":            {`{"a":1}`, ``, ``, false},
		"no object":         {`[]`, ``, ``, false},
		"cut":               {`{"messages":[`, ``, ``, false},
	} {
		head, value, ok := CutLast([]byte(c.in), "messages")
		if string(head) != c.head || string(value) != c.value || ok != c.ok {
			t.Errorf("%s: got %s, %s, %v, want %s, %s, %v", name, head, value, ok, c.head, c.value, c.ok)
		}
	}
}

func FuzzDecodeCommand(f *testing.F) {
	f.Add([]byte(`{"id":"7","type":"attach","session":"owned:a","view":"transcript","resume":{"generation":"00000000000000000000000000000000","sequence":1,"offset":2,"digest":"0000000000000000"},"have":3}`))
	f.Add([]byte(`{"id":1,"type":"append","entries":["\ud83d\ude00"],"expect":null}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		c, err := DecodeCommand(line)
		if c == nil {
			t.Fatal("got no command")
		}
		if err != nil {
			if err.Code != CodeBadFrame && err.Code != CodeBadArgument {
				t.Errorf("got the code %s", err.Code)
			}
			return
		}
		for _, e := range c.Entries {
			if !utf8.ValidString(e) {
				t.Errorf("entry %q is no UTF-8", e)
			}
		}
		again, encodeErr := AppendLine(nil, c)
		if encodeErr != nil {
			t.Fatal(encodeErr)
		}
		if _, err := DecodeCommand(again); err != nil {
			t.Errorf("%s does not decode again: %v", again, err)
		}
	})
}

func FuzzCutLast(f *testing.F) {
	f.Add([]byte(`{"type":"c","a":"\"","messages":[1]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		head, value, ok := CutLast(line, "messages")
		if !ok || !json.Valid(line) {
			return
		}
		if !json.Valid(head) {
			t.Errorf("%s: head %s is no JSON", line, head)
		}
		if !strings.HasSuffix(string(line), `"messages":`+string(value)+"}") {
			t.Errorf("%s: value %s is not what follows the key", line, value)
		}
	})
}
