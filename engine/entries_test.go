package engine

import (
	"fmt"
	"strings"
)

// Entries of pi sessions.

const stampText = `"timestamp":"2026-01-02T03:04:05.000Z"`

const header = `{"type":"session","version":3,"id":"s1",` + stampText + `,"cwd":"/w"}`

func entry(typ, id, parent, more string) string {
	p := "null"
	if parent != "" {
		p = fmt.Sprintf("%q", parent)
	}
	if more != "" {
		more = "," + more
	}
	return fmt.Sprintf(`{"type":%q,"id":%q,"parentId":%s,%s%s}`, typ, id, p, stampText, more)
}

func message(id, parent, role, text string) string {
	more := ""
	if role == "assistant" {
		more = `,"provider":"p","model":"m","usage":{"input":1,"cost":{"total":0}}`
	}
	return entry("message", id, parent, fmt.Sprintf(`"message":{"role":%q,"content":%q%s}`, role, text, more))
}

func user(id, parent, text string) string { return message(id, parent, "user", text) }

func assistant(id, parent, text string) string { return message(id, parent, "assistant", text) }

func compaction(id, parent, kept string) string {
	return entry("compaction", id, parent, fmt.Sprintf(`"summary":"sum-%s","firstKeptEntryId":%q,"tokensBefore":7`, id, kept))
}

func contextEdit(id, parent, target, replacement string) string {
	return entry("context_edit", id, parent, fmt.Sprintf(`"targetId":%q,"replacement":%s`, target, replacement))
}

func childUsage(id, parent, target string, n int) string {
	return entry("child_usage_attributed", id, parent,
		fmt.Sprintf(`"targetId":%q,"aggregateUsage":{"input":%d,"cost":{"total":0.5}}`, target, n))
}

func toolCalls(id, parent string, calls ...string) string {
	blocks := make([]string, len(calls))
	for i, c := range calls {
		blocks[i] = fmt.Sprintf(`{"type":"toolCall","id":%q,"name":"n","arguments":{}}`, c)
	}
	return entry("message", id, parent, `"message":{"role":"assistant","provider":"p","model":"m","content":[`+strings.Join(blocks, ",")+`]}`)
}

func toolResult(id, parent, call string) string {
	return entry("message", id, parent, fmt.Sprintf(`"message":{"role":"toolResult","toolCallId":%q,"content":[]}`, call))
}

// chain is n user messages from e<from> on, each below the one before.
func chain(from, n int) []string {
	out := make([]string, n)
	for i := range out {
		parent := ""
		if from+i > 0 {
			parent = fmt.Sprintf("e%d", from+i-1)
		}
		out[i] = user(fmt.Sprintf("e%d", from+i), parent, fmt.Sprintf("message %d", from+i))
	}
	return out
}

// lines ends each line.
func lines(list ...string) string {
	if len(list) == 0 {
		return ""
	}
	return strings.Join(list, "\n") + "\n"
}

// session of n messages, header first.
func sessionText(n int) string { return lines(append([]string{header}, chain(0, n)...)...) }
