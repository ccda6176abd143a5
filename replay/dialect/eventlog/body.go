package eventlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
)

// Body implements dialect.Session.
func (s *Session) Body(v dialect.View, slot dialect.Slot, _ bool) dialect.Body {
	return s.body(v, *s.entries.At(slot.Entry), slot.Entry, slot.Part)
}

// body describes a part of an entry; i is none for one that is not in the
// index.
func (s *Session) body(v dialect.View, e entry, i int32, part uint8) dialect.Body {
	b := dialect.Body{Sequence: e.sequence, Object: e.offset, Notes: notes(&e, v, part)}
	if e.flags&flagBig != 0 {
		b.Role = "sessiond"
		size := s.big[i]
		b.Render = func(dst []byte, _ *dialect.Window) ([]byte, error) {
			return fmt.Appendf(dst, `{"role":"sessiond","kind":"oversized","sequence":%d,"bytes":%d}`, e.sequence, size), nil
		}
		return b
	}
	b.Bytes = int64(e.bytes)
	r := render{entry: e, fix: e.flags&flagFix != 0, cut: v == dialect.Context}
	switch e.kind {
	case kindUser:
		b.Role, r.append = "user", appendUser
		if part == partReasoning {
			b.Role, r.append = "custom", appendReasoningSelection
		}
	case kindOutput, kindStatus:
		b.Role, r.append = "assistant", appendOutput
	case kindCall:
		b.Role, r.append = "assistant", appendCall
	case kindResult:
		b.Role, r.append = "toolResult", appendResult
		if e.link != none {
			r.call = *s.entries.At(e.link)
			r.fix = r.fix || r.call.flags&flagFix != 0
		}
	case kindInjection, kindContextItem:
		b.Role, r.append = "custom", appendCustom
	case kindReasoning:
		b.Role, r.append = "sessiond", appendReasoning
	case kindCompaction:
		b.Role, r.append = "sessiond", appendMarker
		if v == dialect.Context {
			b.Role, r.append = "compactionSummary", appendSummary
			r.retained = s.retained(&e)
		}
	}
	b.Render = r.message
	return b
}

func notes(e *entry, v dialect.View, part uint8) (list []string) {
	add := func(is bool, note string) {
		if is {
			list = append(list, note)
		}
	}
	add(e.flags&flagProvisional != 0, "provisional")
	add(e.flags&flagSalvaged != 0, "salvaged")
	add(e.flags&flagBranch != 0 && (part == partReasoning || e.flags&flagReasoning == 0) && (v == dialect.Transcript || e.kind != kindCompaction), "branch")
	add(e.status == statusCancelled, "aborted")
	add(e.status == statusFailed, "failed")
	add(e.status == statusIncomplete, "incomplete")
	add(e.flags&flagDuplicate != 0, "duplicate")
	add(e.flags&flagOrphan != 0, "orphan")
	add(e.kind == kindCompaction && e.link == none, "ignored")
	return list
}

// render makes the message of an entry from the bytes of the file.
type render struct {
	entry
	call     entry // that a result answers; no bytes: none
	retained int
	fix      bool // something that it reads holds bad UTF-8
	cut      bool // long outputs are cut
	append   func(dst []byte, r *render, o event) []byte
}

// event is the text of an event, read again.
type event struct {
	object, payload []byte
	tool            []byte // name of the tool whose result it is, as JSON
}

func (o event) get(name string) jsonl.Value { return jsonl.Get(o.payload, name) }

func (r *render) message(dst []byte, w *dialect.Window) ([]byte, error) {
	var o event
	if r.call.bytes > 0 && r.call.flags&flagBig == 0 {
		object, err := w.Bytes(r.call.offset, int(r.call.bytes))
		if err != nil {
			return dst, err
		}
		payload := jsonl.Get(object, "payload").Bytes(object)
		if v := jsonl.Get(payload, "name"); v.Kind == jsonl.String {
			o.tool = slices.Clone(v.Bytes(payload))
		}
	}
	var err error
	if o.object, err = w.Bytes(r.offset, int(r.bytes)); err != nil {
		return dst, err
	}
	o.payload = jsonl.Get(o.object, "payload").Bytes(o.object)
	if r.fix {
		m := append(r.append(nil, r, o), '}')
		return jsonl.AppendValidUTF8(dst, m), nil
	}
	return append(r.append(dst, r, o), '}'), nil
}

// The messages. Each is an object that is left open behind its time.

func appendUser(dst []byte, _ *render, o event) []byte {
	dst = append(dst, `{"role":"user","content":`...)
	return o.appendTime(o.appendString(dst, "text"))
}

func appendReasoningSelection(dst []byte, _ *render, o event) []byte {
	dst = append(dst, `{"role":"custom","customType":"reasoning_selection","content":`...)
	dst = o.appendString(dst, "reasoning_selection")
	dst = append(dst, `,"display":false,"details":`...)
	return o.appendTime(append(dst, o.get("reasoning_selection").Bytes(o.payload)...))
}

// appendOutput makes an assistant's text, whole or what is left of it.
func appendOutput(dst []byte, r *render, o event) []byte {
	dst = append(dst, `{"role":"assistant","content":[{"type":"text","text":`...)
	dst = append(o.appendString(dst, "text"), `}]`...)
	switch r.status {
	case statusCancelled:
		dst = append(dst, `,"stopReason":"aborted"`...)
	case statusFailed:
		dst = append(dst, `,"stopReason":"error"`...)
	case statusIncomplete:
		dst = append(dst, `,"stopReason":"incomplete"`...)
	}
	if v := o.get("detail"); r.kind == kindStatus && v.Kind == jsonl.String {
		dst = append(append(dst, `,"errorMessage":`...), v.Bytes(o.payload)...)
	}
	return o.appendTime(dst)
}

func appendCall(dst []byte, _ *render, o event) []byte {
	dst = append(dst, `{"role":"assistant","content":[{"type":"toolCall","id":`...)
	dst = append(o.appendCallID(dst), `,"name":`...)
	dst = append(o.appendString(dst, "name"), `,"arguments":`...)
	if v := o.get("arguments"); v.Present() {
		dst = append(dst, v.Bytes(o.payload)...)
	} else {
		dst = append(dst, "null"...)
	}
	return o.appendTime(append(dst, `}]`...))
}

func appendResult(dst []byte, r *render, o event) []byte {
	dst = o.appendCallID(append(dst, `{"role":"toolResult","toolCallId":`...))
	if len(o.tool) > 0 {
		dst = append(append(dst, `,"toolName":`...), o.tool...)
	}
	dst = append(dst, `,"content":[{"type":"text","text":`...)
	dst = r.appendToolOutput(dst, o.payload, o.get("output"))
	dst = append(dst, `}],"isError":`...)
	dst = strconv.AppendBool(dst, o.get("ok").Kind == jsonl.False)
	return o.appendTime(dst)
}

// appendCustom makes a message of what a hook or a provider put into the
// context: its text, or all of it where that is not text.
func appendCustom(dst []byte, r *render, o event) []byte {
	dst = append(dst, `{"role":"custom","customType":`...)
	content, details := jsonl.Value{}, o.payload
	if r.kind == kindInjection {
		dst = append(dst, `"hook_context_injection"`...)
		for _, name := range []string{"text", "content"} {
			if v := o.get(name); v.Kind == jsonl.String && !content.Present() {
				content, details = v, nil
			}
		}
	} else {
		dst = append(dst, `"provider_context_item"`...)
	}
	dst = append(dst, `,"content":`...)
	if content.Present() {
		dst = append(dst, content.Bytes(o.payload)...)
	} else {
		dst = append(dst, `""`...)
	}
	dst = append(dst, `,"display":false`...)
	if details != nil {
		dst = append(append(dst, `,"details":`...), details...)
	}
	return o.appendTime(dst)
}

func appendReasoning(dst []byte, _ *render, o event) []byte {
	dst = append(dst, `{"role":"sessiond","kind":"reasoning_summary","summary":`...)
	name := "text"
	if o.get(name).Kind != jsonl.String {
		name = "summary"
	}
	return o.appendTime(o.appendString(dst, name))
}

func appendMarker(dst []byte, _ *render, o event) []byte {
	dst = append(dst, `{"role":"sessiond","kind":"compaction","summary":`...)
	return o.appendTime(o.appendTokens(o.appendString(dst, "summary")))
}

func appendSummary(dst []byte, r *render, o event) []byte {
	dst = append(dst, `{"role":"compactionSummary","summary":`...)
	dst = o.appendTokens(o.appendString(dst, "summary"))
	dst = append(dst, `,"retainedMessageCount":`...)
	return o.appendTime(strconv.AppendInt(dst, int64(r.retained), 10))
}

// appendString appends a member of the payload that should be a string; "" for
// another.
func (o event) appendString(dst []byte, name string) []byte {
	if v := o.get(name); v.Kind == jsonl.String {
		return append(dst, v.Bytes(o.payload)...)
	}
	return append(dst, `""`...)
}

func (o event) appendCallID(dst []byte) []byte {
	if v := o.get("call_id"); v.Kind == jsonl.Number {
		dst = append(dst, '"')
		return append(append(dst, v.Bytes(o.payload)...), '"')
	}
	return o.appendString(dst, "call_id")
}

func (o event) appendTokens(dst []byte) []byte {
	if v := o.get("tokens_before"); v.Kind == jsonl.Number {
		return append(append(dst, `,"tokensBefore":`...), v.Bytes(o.payload)...)
	}
	return dst
}

func (o event) appendTime(dst []byte) []byte {
	dst = append(dst, `,"timestamp":`...)
	if ms, ok := timeOf(o.object, jsonl.Get(o.object, "timestamp")); ok {
		return strconv.AppendInt(dst, ms, 10)
	}
	return append(dst, "null"...)
}

// Outputs of more characters than outputMax are cut in the context to the
// first and last outputKept.
const (
	outputMax  = 24_000
	outputKept = 6_000
)

// appendToolOutput appends a tool's output as a JSON string; what is no text
// is given as the JSON that it is.
func (r *render) appendToolOutput(dst, payload []byte, v jsonl.Value) []byte {
	raw := v.Bytes(payload)
	var text []byte
	switch v.Kind {
	case jsonl.Invalid, jsonl.Null:
		return append(dst, `""`...)
	case jsonl.String:
		if !r.cut || len(raw) <= outputMax+len(`""`) {
			return append(dst, raw...)
		}
		if text = jsonl.AppendText(nil, raw); utf8.RuneCount(text) <= outputMax {
			return append(dst, raw...)
		}
	default:
		text = jsonl.AppendValidUTF8(nil, raw)
	}
	if r.cut {
		text = cutOutput(text, r.sequence)
	}
	return appendQuoted(dst, text)
}

// cutOutput leaves the middle of a long output out and says so.
func cutOutput(text []byte, sequence uint64) []byte {
	n := utf8.RuneCount(text)
	if n <= outputMax {
		return text
	}
	head, tail := 0, len(text)
	for range outputKept {
		_, size := utf8.DecodeRune(text[head:])
		head += size
		_, size = utf8.DecodeLastRune(text[:tail])
		tail -= size
	}
	out := slices.Clone(text[:head])
	out = fmt.Appendf(out, "\n[... %d characters (%d bytes) left out; record %d has the whole output ...]\n",
		n-2*outputKept, tail-head, sequence)
	return append(out, text[tail:]...)
}

func appendQuoted(dst, text []byte) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(string(text)) // a string never fails
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}

// timeOf reads a timestamp in milliseconds since 1970.
func timeOf(line []byte, v jsonl.Value) (ms int64, ok bool) {
	if v.Kind != jsonl.String {
		return 0, false
	}
	t, err := time.Parse(time.RFC3339Nano, string(v.Plain(line)))
	return t.UnixMilli(), err == nil
}

// moment is a time that may not be known.
type moment struct {
	ms  int64
	set bool
}

func (m moment) time() time.Time {
	if !m.set {
		return time.Time{}
	}
	return time.UnixMilli(m.ms).UTC()
}
