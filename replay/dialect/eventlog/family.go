package eventlog

import (
	"strings"
	"time"

	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
	"sessiond/replay/pages"
)

// Family is the event-log family.
type Family struct{}

var _ dialect.Family = Family{}

// Rules is the rules revision of this package: it changes with every change
// of what a slot is or how its message is made.
const Rules = "eventlog/1"

// Name implements dialect.Family.
func (Family) Name() string { return "eventlog" }

// Rules implements dialect.Family.
func (Family) Rules() string { return Rules }

// Members that a scan reports, in this order.
const (
	keyType = iota
	keyID
	keySession
	keyCWD
	keyTime
	keyPayload
)

// Members of the payload that a scan reports, in this order.
const (
	subCall = iota
	subStatus
	subText
	subTo
	subKept
	subReasoning
	subTitle
)

// Keys implements dialect.Family.
func (Family) Keys(bool) jsonl.Keys {
	return jsonl.Keys{
		Top:   []string{"event_type", "event_id", "session_id", "cwd", "timestamp", "payload"},
		SubOf: "payload",
		Sub:   []string{"call_id", "status", "text", "to", "retained_from", "reasoning_selection", "title"},
	}
}

// Envelope implements dialect.Family. A salvaged object must have a time too:
// type and payload alone may be a part of something larger.
func (Family) Envelope(s *jsonl.Scan, _ []byte) bool {
	return s.Kind == jsonl.Object && s.Top[keyType].Kind == jsonl.String &&
		s.Top[keyPayload].Kind == jsonl.Object && s.Top[keyTime].Kind == jsonl.String
}

// New implements dialect.Family; there are no hints.
func (Family) New(_ int, space *pages.Space) dialect.Session { return newSession(space) }

// Detect implements dialect.Family. An object that has a parent is of a family
// of trees, whatever else it carries.
func (Family) Detect(_ int, object []byte) bool {
	var v [3]jsonl.Value
	jsonl.Pick(object, []string{"event_type", "payload", "parentId"}, v[:])
	return v[0].Kind == jsonl.String && v[1].Kind == jsonl.Object && !v[2].Present()
}

// Header implements dialect.Family: an event log begins with its first event.
func (Family) Header(string, string, time.Time) ([]byte, error) { return nil, nil }

type kind uint8

const (
	kindUnknown   kind = iota
	kindSilent         // known, and shows nothing
	kindNoMessage      // shows a message, but has none
	kindUser
	kindOutput
	kindCall
	kindResult
	kindStatus
	kindInjection
	kindContextItem
	kindReasoning
	kindCompaction
	kindRewind
	kindTitle
)

// kindOf tells the kind of an event by its type.
func kindOf(typ string) kind {
	switch typ {
	case "user_input":
		return kindUser
	case "assistant_output":
		return kindOutput
	case "tool_call":
		return kindCall
	case "tool_result":
		return kindResult
	case "turn_status":
		return kindStatus
	case "hook_context_injection":
		return kindInjection
	case "provider_context_item":
		return kindContextItem
	case "reasoning_summary":
		return kindReasoning
	case "compaction":
		return kindCompaction
	case "rewind":
		return kindRewind
	case "session_title":
		return kindTitle
	case "assistant_chunk", "provider_response_item", "tool_display_result",
		"hook_diagnostic", "hook_lifecycle", "context_cache", "diagnostic", "active_time":
		return kindSilent
	}
	for _, local := range []string{"usage", "preference", "preferences"} {
		if typ == local || strings.HasSuffix(typ, "_"+local) {
			return kindSilent
		}
	}
	return kindUnknown
}
