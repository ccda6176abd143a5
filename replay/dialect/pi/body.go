package pi

import (
	"strconv"

	"sessiond/replay/dialect"
	"sessiond/replay/dialect/tree"
	"sessiond/replay/jsonl"
)

// Body implements dialect.Session.
func (s *Session) Body(v dialect.View, slot dialect.Slot, amended bool) dialect.Body {
	return s.entryBody(v, *s.entries.At(slot.Entry), slot.Entry, slot.Part, amended)
}

// entryBody describes a part of an entry; i is None for one that is not in
// the index.
func (s *Session) entryBody(v dialect.View, e entry, i int32, part uint8, amended bool) dialect.Body {
	b := dialect.Body{Sequence: e.sequence, Object: e.offset}
	if e.flags&flagProvisional != 0 {
		b.Notes = append(b.Notes, "provisional")
	}
	if e.flags&flagSalvaged != 0 {
		b.Notes = append(b.Notes, "salvaged")
	}
	if e.flags&flagBranch != 0 && part == partMessage {
		b.Notes = append(b.Notes, "branch")
	}
	switch {
	case part == partGap:
		b.Role = "sessiond"
		b.Render = func(dst []byte, w *dialect.Window) ([]byte, error) {
			dst = append(dst, `{"role":"sessiond","kind":"gap"`...)
			if e.flags&flagBig == 0 {
				object, err := w.Bytes(e.offset, int(e.bytes))
				if err != nil {
					return dst, err
				}
				dst = appendMember(dst, "missing", jsonl.Get(object, "parentId").Bytes(object))
			}
			return append(dst, '}'), nil
		}
		return s.mend(b, e)
	case e.flags&flagBig != 0:
		b.Role = "sessiond"
		size := s.big[i]
		b.Render = func(dst []byte, _ *dialect.Window) ([]byte, error) {
			dst = append(dst, `{"role":"sessiond","kind":"oversized","sequence":`...)
			dst = strconv.AppendUint(dst, e.sequence, 10)
			dst = append(dst, `,"bytes":`...)
			return append(strconv.AppendInt(dst, size, 10), '}'), nil
		}
		return b
	case e.kind == kindMessage:
		return s.messageBody(b, v, e, i, amended)
	}
	b.Role, b.Render = s.generated(v, e, i, part)
	if amended {
		b = s.amendedBody(b, v, e, i)
	}
	return s.mend(b, e)
}

// messageBody describes the writer's own message.
func (s *Session) messageBody(b dialect.Body, v dialect.View, e entry, i int32, amended bool) dialect.Body {
	b.Offset, b.Bytes = e.offset+int64(e.bodyAt), int64(e.bodyLen)
	b.Fix = e.flags&flagFix != 0
	if e.role == roleHook {
		at, n := b.Offset, int(b.Bytes)
		b.Bytes = 0
		b.Render = func(dst []byte, w *dialect.Window) ([]byte, error) {
			m, err := w.Bytes(at, n)
			if err != nil {
				return dst, err
			}
			return setMember(dst, m, "role", []byte(`"custom"`)), nil
		}
	}
	if amended && i != tree.None {
		b = s.amendedBody(b, v, e, i)
	}
	if b.Render != nil {
		return s.mend(b, e)
	}
	return b
}

// mend makes what Render gives valid UTF-8 where the object is not.
func (s *Session) mend(b dialect.Body, e entry) dialect.Body {
	if e.flags&flagFix == 0 {
		return b
	}
	render := b.Render
	b.Fix = false
	b.Render = func(dst []byte, w *dialect.Window) ([]byte, error) {
		m, err := render(nil, w)
		return jsonl.AppendValidUTF8(dst, m), err
	}
	return b
}

// amendedBody lays over a body what later records changed.
func (s *Session) amendedBody(b dialect.Body, v dialect.View, e entry, i int32) dialect.Body {
	usage, edited := s.amendment(v, i)
	if !usage.known() && edited == nil {
		return b
	}
	if edited != nil && edited.drop {
		b.Bytes, b.Fix = 0, false
		b.Render = func(dst []byte, _ *dialect.Window) ([]byte, error) { return append(dst, "null"...), nil }
		return b
	}
	var replacement place
	if edited != nil {
		by := s.entries.At(edited.entry)
		replacement = place{by.sequence, by.offset, int64(by.bytes)}
	}
	plain := b
	b.Bytes, b.Fix = 0, false
	b.Render = func(dst []byte, w *dialect.Window) ([]byte, error) {
		m, err := dialect.AppendBody(nil, plain, w)
		if err != nil {
			return dst, err
		}
		if usage.known() {
			object, err := w.Bytes(usage.offset, int(usage.bytes))
			if err != nil {
				return dst, err
			}
			aggregate := jsonl.Get(object, "aggregateUsage").Bytes(object)
			m = setMember(nil, m, "usage", jsonl.AppendValidUTF8(nil, cleanUsage(aggregate)))
		}
		if replacement.known() {
			object, err := w.Bytes(replacement.offset, int(replacement.bytes))
			if err != nil {
				return dst, err
			}
			r := jsonl.Get(object, "replacement").Bytes(object)
			if c := jsonl.Get(r, "content"); c.Present() && hasContent(m) {
				m = setMember(nil, m, "content", jsonl.AppendValidUTF8(nil, c.Bytes(r)))
			}
		}
		return append(dst, m...), nil
	}
	return b
}

// generated makes the messages that the agent builds from entries.
func (s *Session) generated(v dialect.View, e entry, i int32, part uint8) (role string, render func([]byte, *dialect.Window) ([]byte, error)) {
	of, retained := &marker, -1
	switch {
	case part == partSystem:
		return "system", func(dst []byte, w *dialect.Window) ([]byte, error) {
			object, err := w.Bytes(e.offset, int(e.bytes))
			if err != nil {
				return dst, err
			}
			return append(dst, jsonl.Get(object, "systemMessage").Bytes(object)...), nil
		}
	case e.kind == kindCustomMessage:
		of = &custom
	case e.kind == kindBranchSummary:
		of = &branchSummary
	case v == dialect.Context:
		of, retained = &compactionSummary, 0
		if i != tree.None {
			retained = s.retained(i)
		}
	}
	return of.role, func(dst []byte, w *dialect.Window) ([]byte, error) {
		object, err := w.Bytes(e.offset, int(e.bytes))
		if err != nil {
			return dst, err
		}
		return of.append(dst, object, retained), nil
	}
}

// generated messages copy members of their entry as they are written, absent
// ones left out, and end with its time.
type generated struct {
	role    string
	head    string
	members []string // the time last
}

var (
	custom            = generated{"custom", `{"role":"custom"`, []string{"customType", "content", "display", "details", "timestamp"}}
	branchSummary     = generated{"branchSummary", `{"role":"branchSummary"`, []string{"summary", "fromId", "timestamp"}}
	compactionSummary = generated{"compactionSummary", `{"role":"compactionSummary"`, []string{"summary", "tokensBefore", "customInstructions", "timestamp"}}
	marker            = generated{"sessiond", `{"role":"sessiond","kind":"compaction"`, []string{"summary", "tokensBefore", "timestamp"}}
)

// append makes the message of an entry; retained below 0 is left out.
func (g *generated) append(dst, object []byte, retained int) []byte {
	var room [6]jsonl.Value
	values := room[:len(g.members)]
	jsonl.Pick(object, g.members, values)
	dst = append(dst, g.head...)
	last := len(g.members) - 1
	for i, name := range g.members[:last] {
		dst = appendMember(dst, name, values[i].Bytes(object))
	}
	if retained >= 0 {
		dst = append(dst, `,"retainedMessageCount":`...)
		dst = strconv.AppendInt(dst, int64(retained), 10)
	}
	dst = append(dst, `,"timestamp":`...)
	ms, ok := jsTime(object, values[last])
	if !ok {
		return append(dst, "null}"...)
	}
	return append(strconv.AppendInt(dst, ms, 10), '}')
}

// appendMember appends a member unless its value is absent.
func appendMember(dst []byte, name string, value []byte) []byte {
	if len(value) == 0 {
		return dst
	}
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	dst = append(dst, '"', ':')
	return append(dst, value...)
}

// hasContent reports whether a message is of a role that has content; others,
// such as bashExecution, are not rewritten by an edit.
func hasContent(m []byte) bool {
	if jsonl.Get(m, "content").Present() {
		return true
	}
	r := jsonl.Get(m, "role")
	return is(m, r, "user") || is(m, r, "assistant") || is(m, r, "toolResult") || is(m, r, "custom")
}
