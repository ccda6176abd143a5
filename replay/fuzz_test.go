package replay_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
)

// FuzzBuild holds a replay of any bytes to what every replay keeps: it ends,
// its counts add up, its messages are JSON, and one that grew by pieces, cut
// where cuts says, equals one that was read at once.
func FuzzBuild(f *testing.F) {
	f.Add([]byte{}, []byte{})
	f.Add(smallSession(), []byte{40, 7, 0, 255})
	f.Add(file(header(1), v1(user("a", "")), compactionAt(1), v1(user("b", ""))), []byte{3})
	f.Add(file(user("a", ""), header(2), user("a", "b"), user("b", "a")), []byte{100, 100})
	f.Add(append([]byte(jsonl.BOM), file("\x00"+user("a", "")+user("b", "a"), "", "{", "42")...), []byte{9})
	f.Add(append(file(header(3)), user("tail", "x")...), []byte{200})
	f.Add(file(`{"type":"event","n":1}`), []byte{1})
	f.Add(smallLog(), []byte{90, 7, 0, 255, 255})
	f.Add(append(file(input("a"), rewindTo("b", "a")), logCompaction("c", "1")...), []byte{100})
	f.Fuzz(func(t *testing.T, data, cuts []byte) {
		const recordBytesMax = 1 << 10 // so that some are over it
		opt := replay.Options{RecordBytesMax: recordBytesMax, BufferBytes: 512}
		grown := buildWith(t, nil, opt)
		size := 0
		for i, cut := range cuts {
			if size += int(cut) + 1; size >= len(data) || i == 16 {
				break
			}
			extend(t, grown, data[:size])
			for _, v := range bothViews {
				slotMessages(t, grown, data[:size], v)
			}
		}
		extend(t, grown, data)
		equalReplays(t, buildWith(t, data, opt), grown, data)

		opt.Tail = true
		summarise(t, buildWith(t, data, opt), data)
		for _, v := range bothViews {
			checkTail(t, grown, data, v)
		}
	})
}

// checkTail renders the preview of a tail, if there is one.
func checkTail(t *testing.T, r *replay.Replay, data []byte, v dialect.View) {
	t.Helper()
	w := dialect.NewWindow(bytes.NewReader(data))
	p, ok, err := r.Preview(v, w)
	if err != nil {
		t.Fatalf("Preview: %v", err)
	}
	if ok && p.Body != nil {
		render(t, *p.Body, w)
	}
	if end := r.Tail(); end.Offset != r.Head().Offset || end.Offset+end.Bytes != int64(len(data)) {
		t.Fatalf("tail: got %+v behind %+v, in %d bytes", end, r.Head(), len(data))
	}
	if _, err := r.Verify(bytes.NewReader(data), r.Head()); err != nil {
		t.Fatalf("Verify: %v", err)
	}
}

// kinds is a value of every kind of JSON.
var kinds = []string{`null`, `false`, `true`, `-1.5e3`, `2`, `""`, `"2"`, `"\ud800"`, `[]`, `[{"text":1}]`, `{}`, `{"text":[]}`}

// fields are the members of an event, those of its payload after a dot.
var fields = []string{
	"event_type", "event_id", "session_id", "cwd", "timestamp", "payload", ".text", ".call_id", ".name", ".arguments", ".ok", ".output",
	".status", ".detail", ".title", ".summary", ".retained_from", ".tokens_before", ".to", ".reasoning_selection", ".content",
}

var eventTypes = []string{
	"user_input", "assistant_output", "tool_call", "tool_result", "turn_status", "compaction", "rewind", "session_title",
	"hook_context_injection", "provider_context_item", "reasoning_summary", "assistant_chunk", "invented",
}

// oddEvent is an event of a type with a member of another kind.
func oddEvent(typ, field, value string) string {
	top := map[string]string{
		"event_type": `"` + typ + `"`, "event_id": `"3"`, "session_id": `"s"`, "cwd": `"/w"`, "timestamp": `"2026-01-02T03:04:05Z"`,
	}
	payload := map[string]string{
		"text": `"t"`, "call_id": `"k"`, "name": `"n"`, "output": `"o"`, "status": `"failed"`, "retained_from": `"1"`, "to": `"2"`, "title": `"t"`,
	}
	object := func(m map[string]string) string {
		var b strings.Builder
		for _, k := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(&b, `,"%s":%s`, k, m[k])
		}
		return "{" + strings.TrimPrefix(b.String(), ",") + "}"
	}
	if name, inner := strings.CutPrefix(field, "."); inner {
		payload[name] = value
	}
	top["payload"] = object(payload)
	if !strings.HasPrefix(field, ".") {
		top[field] = value
	}
	return object(top)
}

func TestEventLog_EveryFieldOfEveryKind(t *testing.T) {
	for _, typ := range eventTypes {
		for _, field := range fields {
			for i, value := range kinds {
				if i%scaleDivisor != 0 {
					continue // too slow with the race detector
				}
				checkOddEvent(t, oddEvent(typ, field, value))
			}
		}
	}
}

// FuzzEventLog gives any value to any member of an event.
func FuzzEventLog(f *testing.F) {
	for i, typ := range eventTypes {
		f.Add(typ, uint8(i), kinds[i%len(kinds)])
	}
	f.Fuzz(func(t *testing.T, typ string, field uint8, value string) {
		checkOddEvent(t, oddEvent(typ, fields[int(field)%len(fields)], value))
	})
}

// checkOddEvent puts an event between good ones: these are read, and what was
// extended equals what was read at once.
func checkOddEvent(t *testing.T, odd string) {
	t.Helper()
	before := file(input("1"), toolCall("2", "k"))
	data := append(bytes.Clone(before), file(odd, output("4"))...)
	r := online(t, before)
	for _, v := range bothViews {
		slotMessages(t, r, before, v)
		checkTail(t, online(t, append(bytes.Clone(before), odd...)), append(bytes.Clone(before), odd...), v)
	}
	extend(t, r, data)
	equalReplays(t, online(t, data), r, data)
	if got := slotMessages(t, r, data, dialect.Transcript); !strings.Contains(got[len(got)-1], `"4"`) {
		t.Fatalf("the event behind %s is not shown: %v", odd, got)
	}
	scan := buildWith(t, data, replay.Options{RecordBytesMax: 150, Observe: func(rec replay.Record) {
		for _, o := range rec.Objects {
			if rec.Family != nil {
				rec.Family.Facts(o)
			}
		}
	}})
	summarise(t, scan, data)
}
