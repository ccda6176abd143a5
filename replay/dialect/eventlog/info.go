package eventlog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
)

// labelBytesMax bounds ids, titles and folders in listings.
const labelBytesMax = 1 << 10

// read reads the object of an entry again; nil where there is none that may
// be held.
func (s *Session) read(w *dialect.Window, i int32) ([]byte, error) {
	if i == none || s.entries.At(i).flags&flagBig != 0 {
		return nil, nil
	}
	e := s.entries.At(i)
	object, err := w.Bytes(e.offset, int(e.bytes))
	if err != nil {
		return nil, fmt.Errorf("eventlog: record %d: %w", e.sequence, err)
	}
	return object, nil
}

func (s *Session) readPayload(w *dialect.Window, i int32) ([]byte, error) {
	object, err := s.read(w, i)
	return jsonl.Get(object, "payload").Bytes(object), err
}

// Info implements dialect.Session.
func (s *Session) Info(w *dialect.Window) (dialect.Info, error) {
	in := dialect.Info{
		Version: 1, Created: s.first.time(), Modified: s.newest.time(),
		Entries: int64(s.entries.Len()), Branches: s.rewinds,
	}
	for v := range dialect.Views {
		in.Messages[v] = s.count(v)
	}
	object, err := s.read(w, s.named)
	if err != nil {
		return in, err
	}
	in.ID = label(object, "session_id")
	if object, err = s.read(w, s.placed); err != nil {
		return in, err
	}
	in.CWD = label(object, "cwd")
	if object, err = s.readPayload(w, s.title); err != nil {
		return in, err
	}
	in.Title = label(object, "title")
	for _, c := range s.compacted {
		e := s.entries.At(c)
		if object, err = s.readPayload(w, c); err != nil {
			return in, err
		}
		d := dialect.Compaction{Sequence: e.sequence, State: "anchored"}
		if v := jsonl.Get(object, "tokens_before"); v.Kind == jsonl.Number {
			d.TokensBefore = json.RawMessage(slices.Clone(v.Bytes(object)))
		}
		if e.link == none {
			d.State = "broken"
			if v := jsonl.Get(object, "retained_from"); object != nil && (!v.Present() || v.Kind == jsonl.Null) {
				d.State = "unanchored"
			}
		}
		in.Compactions = append(in.Compactions, d)
	}
	return in, nil
}

func label(object []byte, name string) string {
	t := jsonl.Get(object, name).Text(object)
	return strings.TrimSpace(strings.ToValidUTF8(t[:min(len(t), labelBytesMax)], ""))
}

// Leaf implements dialect.Session.
func (s *Session) Leaf(w *dialect.Window) (string, error) {
	object, err := s.read(w, s.entries.Len()-1)
	return jsonl.Get(object, "event_id").Text(object), err
}

// settingBytesMax bounds a setting's value; a longer one is shown as null.
const settingBytesMax = 4 << 10

// openCallsMax bounds how many calls of the turn are looked at.
const openCallsMax = 1000

// State implements dialect.Session.
func (s *Session) State(w *dialect.Window) (dialect.State, error) {
	t := s.turnNow()
	st := dialect.State{Turn: "idle"}
	payload, err := s.readPayload(w, t.reasoning)
	if err != nil {
		return st, err
	}
	var settings struct {
		ReasoningSelection json.RawMessage `json:"reasoningSelection"`
	}
	if v := jsonl.Get(payload, "reasoning_selection"); v.End-v.Start <= settingBytesMax {
		settings.ReasoningSelection = jsonl.AppendValidUTF8(nil, v.Bytes(payload))
	}
	if len(settings.ReasoningSelection) == 0 {
		settings.ReasoningSelection = nil
	}
	if st.Settings, err = json.Marshal(settings); err != nil {
		return st, err
	}
	if t.status != none {
		if s.entries.At(t.status).status != statusCompleted {
			st.Turn = "interrupted"
		}
		return st, nil
	}
	switch {
	case t.open > 0:
		st.Turn = "awaiting_tool"
		st.OpenCalls, err = s.openCalls(w, t)
	case len(s.turns) > 1:
		st.Turn = "running"
	}
	return st, err
}

func (s *Session) openCalls(w *dialect.Window, t *turn) ([]string, error) {
	var out []string
	for _, c := range s.calls[max(t.calls, int32(len(s.calls))-openCallsMax):] {
		if c.result != none {
			continue
		}
		payload, err := s.readPayload(w, c.entry)
		if err != nil {
			return out, err
		}
		out = append(out, callText(payload, jsonl.Get(payload, "call_id")))
	}
	return out, nil
}

// callText is the id of a call as messages have it.
func callText(payload []byte, v jsonl.Value) string {
	if v.Kind == jsonl.Number {
		return string(v.Bytes(payload))
	}
	return v.Text(payload)
}

// number reads a JSON number as a record's sequence; 0 is none.
func number(raw []byte) uint64 {
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Held implements dialect.Session.
func (s *Session) Held(entry []byte, most int) (id string, held []dialect.Place, ok bool) {
	v := jsonl.Get(entry, "event_id")
	h := idHash(entry, v)
	if h == 0 {
		return "", nil, true
	}
	for i := range s.ids.All(h) {
		if len(held) >= most {
			break
		}
		e := s.entries.At(i)
		if e.flags&(flagSalvaged|flagProvisional) == 0 {
			held = append(held, dialect.Place{Sequence: e.sequence, Offset: e.offset, Bytes: s.size(i)})
		}
	}
	return v.Text(entry), held, true
}

// size is the length of an entry's object.
func (s *Session) size(i int32) int64 {
	e := s.entries.At(i)
	if e.flags&flagBig != 0 {
		return s.big[i]
	}
	return int64(e.bytes)
}

// Diagnostics implements dialect.Session.
func (s *Session) Diagnostics() (list []jsonl.Diagnostic, truncated bool) {
	list, truncated = slices.Clone(s.diagnostics), s.dropped
	closed := len(s.calls)
	if t := s.turnNow(); t.status == none {
		closed = int(t.calls) // those of the turn at hand may still be answered
	}
	for _, c := range s.calls[:closed] {
		if c.result != none {
			continue
		}
		if len(list) >= diagnosticsMax {
			truncated = true
			break
		}
		list = append(list, jsonl.Diagnostic{
			Code: jsonl.CodeUnansweredCall, Severity: jsonl.CodeUnansweredCall.Severity(), Line: int64(s.entries.At(c.entry).sequence),
			Offset: s.entries.At(c.entry).offset, Length: s.size(c.entry), Detail: "the turn ended without a result of this call",
		})
	}
	slices.SortStableFunc(list, func(a, b jsonl.Diagnostic) int { return cmp.Compare(a.Line, b.Line) })
	return list, truncated
}

// Facts implements dialect.Session.
func (s *Session) Facts(o dialect.Object) dialect.Facts {
	top, sub, line := values(o)
	f := dialect.Facts{Entry: true}
	f.Type = top[keyType].Text(line)
	f.Type = strings.ToValidUTF8(f.Type[:min(len(f.Type), labelBytesMax)], "")
	k := kindOf(f.Type)
	f.Known = k != kindUnknown
	if ms, ok := timeOf(line, top[keyTime]); ok {
		f.Time = moment{ms, true}.time()
	}
	if o.Oversized != nil || top[keyPayload].Kind != jsonl.Object {
		return f
	}
	var e entry
	e.kind = k
	payload := top[keyPayload].Bytes(line)
	id := callText(line, sub[subCall])
	switch k {
	case kindUser:
		f.Role = "user"
	case kindOutput:
		f.Role = "assistant"
	case kindCall:
		f.Role = "assistant"
		f.Calls = []dialect.Call{{ID: id, Name: jsonl.Get(payload, "name").Text(payload)}}
	case kindResult:
		f.Role, f.Results = "toolResult", []string{id}
	case kindStatus:
		if s.classifyKind(&e, sub, line); e.flags&flagPartial != 0 {
			f.Role = "assistant"
		}
	case kindInjection, kindContextItem:
		f.Role = "custom"
	}
	return f
}
