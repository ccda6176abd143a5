package gen

import (
	"fmt"
	"strings"
)

// Prompts is how many prompts the growing session has.
const Prompts = 40

// promptBytes is the length of the three lines of a prompt whose index has one
// digit, LFs included.
const promptBytes = 4905

// Prompt returns the three events that the i-th prompt appends to the growing
// session: an input, its answer and the turn's end. Their length does not
// depend on i but for its digits, which stand in two of them.
func Prompt(i int) []string {
	n := 0
	event := func(kind, payload string) string {
		n++
		return fmt.Sprintf(`{"event_id":"%04d-%d","event_type":%q,"session_id":"growing","cwd":"/home/user/project",`+
			`"timestamp":"2026-01-02T03:04:05.000001Z","payload":%s}`, i, n, kind, payload)
	}
	input := event("user_input", fmt.Sprintf(`{"text":"prompt %d %s"}`, i, strings.Repeat("ask ", 200)))
	output := event("assistant_output", fmt.Sprintf(`{"text":"answer %d "}`, i))
	end := event("turn_status", `{"status":"completed"}`)
	digits := len(fmt.Sprint(i)) - 1
	fill := promptBytes + 2*digits - len(input) - len(output) - len(end) - 3
	output = strings.TrimSuffix(output, `"}}`) + strings.Repeat("x", fill) + `"}}`
	return []string{input, output, end}
}

// PromptLines is Prompt as bytes of a file.
func PromptLines(i int) []byte { return []byte(strings.Join(Prompt(i), "\n") + "\n") }
