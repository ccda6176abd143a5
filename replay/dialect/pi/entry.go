package pi

import (
	"github.com/cespare/xxhash/v2"

	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
)

type kind uint8

const (
	kindSilent    kind = iota
	kindNoMessage      // a message entry without a message
	kindMessage
	kindCustomMessage
	kindBranchSummary
	kindCompaction
	kindContextEdit
	kindChildUsage
	kindModel
	kindThinking
	kindTier
	kindInfo
	kindState
	kindUnknown
)

// role of a message, as far as rules depend on it.
type role uint8

const (
	roleOther role = iota
	roleUser
	roleAssistant
	roleToolResult
	roleSystem
	roleHook // hookMessage, to be read as custom below version 3
)

func roleOf(text string) role {
	switch text {
	case "user":
		return roleUser
	case "assistant":
		return roleAssistant
	case "toolResult":
		return roleToolResult
	case "system":
		return roleSystem
	case "hookMessage":
		return roleHook
	}
	return roleOther
}

// entry is what the index holds of an entry beside its links.
type entry struct {
	offset   int64  // of the object in the file
	sequence uint64 // of its line
	bytes    uint32 // of the object; see big
	bodyAt   uint32 // of the message within the object
	bodyLen  uint32
	kind     kind
	role     role
	flags    flags
}

type flags uint8

const (
	flagFix         flags = 1 << iota // the object holds bad UTF-8
	flagBranch                        // the first message after a branch point
	flagBig                           // over the record limit: ranges are in Session.big
	flagProvisional                   // the unterminated last line
	flagSalvaged
)

// parts of an entry that are slots.
const (
	partMessage uint8 = iota // the entry's message, summary or marker
	partGap                  // the marker before an entry whose parent is missing
	partSystem               // the system message of a compaction
)

// idHash hashes an id or parent id; 0 stands for none. Strings count by their
// decoded text, other scalars by their JSON text.
func idHash(line []byte, v jsonl.Value) uint64 {
	raw := v.Bytes(line)
	switch v.Kind {
	case jsonl.String:
		if raw = v.Plain(line); len(raw) == 0 {
			return 0
		}
	case jsonl.Number, jsonl.True, jsonl.False:
		return max(1, ^xxhash.Sum64(raw))
	default:
		return 0
	}
	return max(1, xxhash.Sum64(raw))
}

// parentHash is idHash, but an object or array is a parent that is not there,
// and the session's own id is none: so some writers say that an entry is a
// root.
func (s *Session) parentHash(line []byte, v jsonl.Value) uint64 {
	if v.Kind == jsonl.Object || v.Kind == jsonl.Array {
		return 1
	}
	parent := idHash(line, v)
	if s.header.found && parent == s.header.id {
		return 0
	}
	return parent
}

// values returns the members of an object and the text that they refer to.
// Those of an oversized object that are not held are present, with no text.
func (s *Session) values(o *dialect.Object) (top, sub []jsonl.Value, line []byte) {
	if o.Oversized == nil {
		return o.Scan.Top, o.Scan.Sub, o.Text
	}
	held := func(in []jsonl.OversizedValue) []jsonl.Value {
		out := make([]jsonl.Value, len(in))
		for i, v := range in {
			out[i] = jsonl.Value{Kind: v.Kind, Escaped: v.Escaped, Start: len(line), End: len(line) + len(v.Raw)}
			if v.Kind == jsonl.String && len(v.Raw) < 2 { // too long to be held, so it is no id
				out[i].Kind = jsonl.Array
			}
			line = append(line, v.Raw...)
		}
		return out
	}
	top, sub = held(o.Oversized.Top), held(o.Oversized.Sub)
	return top, sub, line
}
