package gen_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"sessiond/testdata/gen"
)

func TestPrompt(t *testing.T) {
	total := 0
	for i := range gen.Prompts {
		want := 4905
		if i >= 10 {
			want = 4907
		}
		text := gen.PromptLines(i)
		if len(text) != want || bytes.Count(text, []byte{'\n'}) != 3 {
			t.Errorf("prompt %d: got %d bytes, %d lines; want %d, 3", i, len(text), bytes.Count(text, []byte{'\n'}), want)
		}
		for _, line := range gen.Prompt(i) {
			if !json.Valid([]byte(line)) {
				t.Errorf("prompt %d: no JSON: %s", i, line)
			}
		}
		total += len(text)
	}
	if total != 196_260 {
		t.Errorf("got %d bytes in all, want 196260", total)
	}
}
