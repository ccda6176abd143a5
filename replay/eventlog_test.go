package replay_test

import (
	"bytes"
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"sessiond/replay/jsonl"
)

// event is a line of an event log; an id of "" is left out.
func event(id, typ, payload string) string {
	if id != "" {
		id = fmt.Sprintf(`"event_id":%q,`, id)
	}
	return fmt.Sprintf(`{%s"event_type":%q,"session_id":"s1","cwd":"/w","timestamp":"2026-01-02T03:04:05.000001Z","payload":%s}`, id, typ, payload)
}

func said(id, typ string) string { return event(id, typ, fmt.Sprintf(`{"text":%q}`, id)) }

func input(id string) string { return said(id, "user_input") }

func output(id string) string { return said(id, "assistant_output") }

func toolCall(id, call string) string {
	return event(id, "tool_call", fmt.Sprintf(`{"call_id":%q,"name":"run","arguments":{"a":1}}`, call))
}

func toolResult(id, call string) string {
	return event(id, "tool_result", fmt.Sprintf(`{"call_id":%q,"ok":true,"output":%q}`, call, id))
}

func turnStatus(id, status, text string) string {
	return event(id, "turn_status", fmt.Sprintf(`{"status":%q,"text":%q}`, status, text))
}

func logCompaction(id, from string) string {
	return event(id, "compaction", fmt.Sprintf(`{"summary":"sum-%s","retained_from":%s,"aggregate":{"user_input_count":2}}`, id, from))
}

func rewindTo(id, to string) string { return event(id, "rewind", fmt.Sprintf(`{"to":%q}`, to)) }

// logDraw draws the lines of an event log, most of them plain turns.
type logDraw struct {
	sessionDraw
	calls int
}

func drawLog(t *rapid.T) []byte {
	d := &logDraw{sessionDraw: sessionDraw{t: t, kinds: rapid.SampledFrom([]int{24, 14}).Draw(t, "kinds")}}
	var b bytes.Buffer
	if rapid.IntRange(0, 5).Draw(t, "bom") == 5 {
		b.WriteString(jsonl.BOM)
	}
	b.WriteString(input("first") + "\n") // so that the dialect is known
	for range rapid.IntRange(1, 25).Draw(t, "lines") {
		b.WriteString(d.line())
		b.WriteString(rapid.SampledFrom([]string{"\n", "\n", "\n", "\r\n"}).Draw(t, "end"))
	}
	switch rapid.IntRange(0, 3).Draw(t, "tail") {
	case 3:
		b.WriteString(d.event())
	case 2:
		tail := d.event()
		b.WriteString(tail[:rapid.IntRange(0, len(tail)).Draw(t, "cut")])
	}
	return b.Bytes()
}

func (d *logDraw) line() string {
	switch d.odd("line", 24) {
	case 0:
		return d.pick("blank", "", "  ", "\t", "\x00\x00\x00")
	case 1:
		return d.pick("bad", `{"event_type":"user_input"`, `x{}`, `42`, `null`, `[]`, `{"a":1}}`, `{"event_type":5,"payload":[]}`, `{}`)
	case 2:
		return "\x00\x00" + d.event()
	case 3:
		return d.event() + d.pick("between", "", " ") + d.event()
	case 4:
		return d.event() + "garbage"
	case 5:
		torn := d.event()
		return torn[:rapid.IntRange(1, len(torn)-1).Draw(d.t, "torn")] + d.event()
	case 6:
		return " " + d.event() + " "
	}
	return d.event()
}

// anyCall is the id of one of a few calls, so that results meet them.
func (d *logDraw) anyCall() string {
	return fmt.Sprintf("c%d", rapid.IntRange(0, d.calls+1).Draw(d.t, "call"))
}

func (d *logDraw) event() string {
	d.n++
	id := fmt.Sprintf("e%d", d.n)
	switch d.odd("id", 15) {
	case 0:
		id = d.anyID("id")
	case 1:
		id = ""
	}
	text := fmt.Sprintf(`{"text":"t%d"}`, d.n)
	switch d.odd("kind", d.kinds) {
	case 0, 1:
		from := fmt.Sprintf("%q", d.anyID("from"))
		if rapid.IntRange(0, 3).Draw(d.t, "by sequence") == 0 {
			from = fmt.Sprint(rapid.IntRange(-1, d.n+3).Draw(d.t, "sequence"))
		}
		return logCompaction(id, d.pick("retained", from, from, from, from, `null`, `{}`, `1.5`))
	case 2, 3, 4:
		return rewindTo(id, d.anyID("to"))
	case 5:
		return event(id, "user_input", strings.Replace(text, `{`, `{"reasoning_selection":`+d.pick("selection", `"high"`, `{"effort":"low"}`, `null`)+`,`, 1))
	case 6:
		return event(id, d.pick("context", "hook_context_injection", "provider_context_item", "reasoning_summary"), d.pick("payload", text, `{}`, `{"content":[1]}`, `5`))
	case 7:
		return event(id, d.pick("local", "hook_diagnostic", "assistant_chunk", "session_usage", "tool_display_result"), text)
	case 8:
		return event(id, "invented", d.pick("payload", text, `null`, `[]`))
	case 9:
		return event(id, d.pick("text kind", "user_input", "assistant_output"), d.pick("no text", `{}`, `{"text":null}`, `{"text":5}`, `null`, `"s"`))
	case 10:
		return event(id, "session_title", d.pick("title", `{"title":" a title "}`, `{"title":5}`))
	case 11:
		return event(id, "assistant_output", "{\"text\":\"bad \xff\"}")
	case 12:
		return event(id, "tool_result", d.pick("odd result", `{}`, `{"call_id":1,"output":[1,"\ud83d"]}`, `{"call_id":"c1","ok":false,"output":{"a":1}}`))
	case 13, 14:
		return turnStatus(id, d.pick("status", "completed", "cancelled", "failed", "incomplete", "running"), d.pick("partial", "", "so far"))
	case 15, 16, 17, 18:
		d.calls++
		return toolCall(id, d.anyCall())
	case 19, 20, 21:
		return toolResult(id, d.anyCall())
	case 22:
		return event(id, "user_input", text)
	}
	return event(id, "assistant_output", text)
}
