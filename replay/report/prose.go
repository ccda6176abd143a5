package report

import (
	"strconv"

	"sessiond/replay/jsonl"
)

// argumentBytesMax is how much of a call's arguments prose shows.
const argumentBytesMax = 200

// AppendProse appends what a message says for a person to read: its text,
// what it calls, and for the rest what it is. The text is the session's, so it
// is not fit for a terminal as it is. It takes any JSON value; what is not as
// it should be is named, never an error.
func AppendProse(dst, message []byte) []byte {
	start := len(dst)
	line := func(parts ...string) {
		if len(dst) > start && dst[len(dst)-1] != '\n' {
			dst = append(dst, '\n')
		}
		for _, p := range parts {
			dst = append(dst, p...)
		}
	}
	for _, name := range []string{"kind", "toolName", "customType", "command", "errorMessage"} {
		if s, ok := member(message, name); ok && s != "" {
			line("(", label(name), ": ", s, ")")
		}
	}
	for _, name := range []string{"summary", "output"} {
		if s, ok := member(message, name); ok && s != "" {
			line(s)
		}
	}
	switch c := jsonl.Get(message, "content"); c.Kind {
	case jsonl.String:
		s, _ := member(message, "content")
		line(s)
	case jsonl.Array:
		blocks := c.Bytes(message)
		for v := range jsonl.Elements(blocks) {
			block(v.Bytes(blocks), line)
		}
	case jsonl.Invalid, jsonl.Null:
	default:
		line("(content: ", c.Kind.String(), ")")
	}
	return dst
}

// label is how prose names a member.
func label(name string) string {
	switch name {
	case "toolName":
		return "tool"
	case "customType":
		return "type"
	case "errorMessage":
		return "error"
	}
	return name
}

// block writes one block of a message's content.
func block(b []byte, line func(...string)) {
	typ, _ := member(b, "type")
	switch typ {
	case "text":
		s, _ := member(b, "text")
		line(s)
	case "thinking":
		s, _ := member(b, "thinking")
		line("(thinking) ", s)
	case "toolCall":
		name, _ := member(b, "name")
		line("(calls ", name, " ", arguments(b), ")")
	case "image":
		mime, _ := member(b, "mimeType")
		data := jsonl.Get(b, "data")
		line("(image ", mime, ", ", strconv.Itoa(max(data.End-data.Start-2, 0)), " characters)")
	case "":
		line("(a block without a type)")
	default:
		line("(", typ, ")")
	}
}

// arguments is the beginning of a call's arguments.
func arguments(b []byte) string {
	v := jsonl.Get(b, "arguments")
	raw := v.Bytes(b)
	switch {
	case !v.Present(), v.Kind == jsonl.Null:
		return "arguments missing"
	case len(raw) > argumentBytesMax:
		return string(raw[:argumentBytesMax]) + "… " + strconv.Itoa(len(raw)) + " bytes"
	}
	return string(raw)
}
