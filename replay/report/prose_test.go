package report

import (
	"strings"
	"testing"
)

func TestAppendProse(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, tt := range []struct{ name, message, want string }{
		{"text", `{"role":"user","content":"one\ntwo"}`, "one\ntwo"},
		{"blocks", `{"content":[{"type":"text","text":"a"},{"type":"thinking","thinking":"b"}]}`, "a\n(thinking) b"},
		{"call", `{"content":[{"type":"toolCall","name":"read","arguments":{"p":"x"}}]}`, `(calls read {"p":"x"})`},
		{"call without arguments", `{"content":[{"type":"toolCall","name":"read"}]}`, "(calls read arguments missing)"},
		{"long arguments", `{"content":[{"type":"toolCall","name":"w","arguments":"` + long + `"}]}`, "(calls w \"" + long[:199] + "… 302 bytes)"},
		{"result", `{"role":"toolResult","toolName":"read","content":[{"type":"text","text":"ok"}]}`, "(tool: read)\nok"},
		{"image", `{"content":[{"type":"image","mimeType":"image/png","data":"abcd"}]}`, "(image image/png, 4 characters)"},
		{"other block", `{"content":[{"type":"audio"},{"x":1},7]}`, "(audio)\n(a block without a type)\n(a block without a type)"},
		{"summary", `{"role":"compactionSummary","summary":"before"}`, "before"},
		{"shell", `{"role":"bashExecution","command":"ls","output":"a\n"}`, "(command: ls)\na\n"},
		{"marker", `{"role":"sessiond","kind":"gap"}`, "(kind: gap)"},
		{"failed", `{"content":[],"errorMessage":"aborted"}`, "(error: aborted)"},
		{"content of another kind", `{"content":{"a":1}}`, "(content: object)"},
		{"nothing", `{}`, ""},
		{"null", `{"content":null}`, ""},
		{"no object", `[1]`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(AppendProse([]byte("before"), []byte(tt.message))); got != "before"+tt.want {
				t.Errorf("got %q, want %q", got, "before"+tt.want)
			}
		})
	}
}

func FuzzAppendProse(f *testing.F) {
	f.Add([]byte(`{"content":[{"type":"toolCall","name":"read","arguments":null},{"type":"image","data":1}]}`))
	f.Add([]byte(`{"content":[{"type":"text","text":{}},{"type":"thinking"}],"summary":[],"kind":1}`))
	f.Fuzz(func(t *testing.T, message []byte) {
		if got := AppendProse([]byte("x"), message); got[0] != 'x' {
			t.Errorf("got %q, want what stood before to stay", got)
		}
	})
}
