package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// AppendLine appends v as one frame: JSON that leaves <, > and & as they are,
// and LF.
func AppendLine(dst []byte, v any) ([]byte, error) {
	b := bytes.NewBuffer(dst)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return dst, fmt.Errorf("wire: encode %T: %w", v, err)
	}
	return b.Bytes(), nil
}

// DecodeCommand decodes a client's frame. An id may be a JSON string or a
// number; it is kept as text. When the frame cannot be decoded, the command
// still has the id where one is readable, so that the error reply finds its
// caller.
func DecodeCommand(line []byte) (*Command, *Error) {
	if !utf8.Valid(line) {
		return &Command{ID: salvageID(line)}, Errorf(CodeBadFrame, "the frame is no valid UTF-8")
	}
	var in struct {
		Command
		ID      commandID         `json:"id"`
		Entries []json.RawMessage `json:"entries"`
	}
	if err := json.Unmarshal(line, &in); err != nil {
		c := &Command{ID: salvageID(line)}
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			return c, Errorf(CodeBadFrame, "the frame is no JSON object: %v at byte %d", err, syntax.Offset)
		}
		if bytes.IndexByte(bytes.TrimLeft(line, " \t\r\n"), '{') != 0 {
			return c, Errorf(CodeBadFrame, "the frame is no JSON object")
		}
		return c, Errorf(CodeBadArgument, "%s", clip(err.Error()))
	}
	c := &in.Command
	c.ID = string(in.ID)
	if c.Type == "" {
		return c, Errorf(CodeBadFrame, "the frame has no type")
	}
	var e *Error
	c.Entries, e = decodeEntries(in.Entries)
	return c, e
}

// decodeEntries decodes the strings whose bytes go into a file. The standard
// decoder replaces the escape of half a surrogate pair by U+FFFD; here that
// would change what is stored, so it is refused.
func decodeEntries(raw []json.RawMessage) ([]string, *Error) {
	if raw == nil {
		return nil, nil
	}
	out := make([]string, len(raw))
	for i, r := range raw {
		if err := json.Unmarshal(r, &out[i]); err != nil || r[0] != '"' {
			return nil, Errorf(CodeBadArgument, "entry %d is no JSON string", i)
		}
		if strings.ContainsRune(out[i], utf8.RuneError) && hasLoneSurrogate(r) {
			return nil, Errorf(CodeBadArgument, "entry %d escapes half a surrogate pair, which no UTF-8 text can hold", i)
		}
	}
	return out, nil
}

// hasLoneSurrogate reports whether a valid JSON string holds a \u escape of
// one half of a surrogate pair alone.
func hasLoneSurrogate(s []byte) bool {
	high := false // the last thing was the escape of a high half
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			if high {
				return true
			}
			continue
		}
		i++
		var unit uint64
		if s[i] == 'u' {
			unit, _ = strconv.ParseUint(string(s[i+1:i+5]), 16, 16)
			i += 4
		}
		low := unit >= 0xDC00 && unit <= 0xDFFF
		if low != high {
			return true
		}
		high = unit >= 0xD800 && unit <= 0xDBFF
	}
	return high
}

// commandID is an id as clients spell it: a string or a number.
type commandID string

// UnmarshalJSON implements json.Unmarshaler.
func (id *commandID) UnmarshalJSON(b []byte) error {
	var s string
	switch b[0] {
	case '"':
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
	case 'n': // null: no id
	case '{', '[', 't', 'f':
		return errors.New("id: want a string or a number")
	default:
		s = string(b)
	}
	if len(s) > IDBytesMax {
		return fmt.Errorf("id of %d bytes: the limit is %d", len(s), IDBytesMax)
	}
	*id = commandID(s)
	return nil
}

// salvageID looks for the id in the start of a frame that does not decode.
func salvageID(line []byte) string {
	const most = 64 << 10
	d := json.NewDecoder(io.LimitReader(bytes.NewReader(line), most))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return ""
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return ""
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return ""
		}
		var id commandID
		if key == "id" && id.UnmarshalJSON(value) == nil {
			return string(id)
		}
	}
	return ""
}

// FrameType returns the type of a frame, "" where it has none.
func FrameType(line []byte) string {
	if rest, ok := bytes.CutPrefix(line, []byte(`{"type":"`)); ok {
		if i := bytes.IndexAny(rest, `"\`); i >= 0 && rest[i] == '"' {
			return string(rest[:i])
		}
	}
	var f struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(line, &f) != nil {
		return ""
	}
	return f.Type
}

// CutLast cuts the last member of a frame off, by its key: head is a copy of
// the object without it, value its bytes verbatim. The value is not validated.
// ok is false where the object has no such member; compact JSON is assumed.
func CutLast(line []byte, key string) (head, value []byte, ok bool) {
	end := len(line) - 1
	if end < 1 || line[0] != '{' || line[end] != '}' {
		return nil, nil, false
	}
	depth := 0
	for i := 0; i < end; i++ {
		switch line[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			start := i
			for i++; i < end && line[i] != '"'; i++ {
				if line[i] == '\\' {
					i++
				}
			}
			if depth != 1 || i+1 >= end || line[i+1] != ':' || string(line[start+1:i]) != key {
				continue
			}
			head = append(bytes.Clone(bytes.TrimSuffix(line[:start], []byte{','})), '}')
			return head, line[i+2 : end], true
		}
	}
	return nil, nil, false
}
