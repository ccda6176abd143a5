package pi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
	"sessiond/replay/pages"
)

// Family is the pi family of formats.
type Family struct{}

var _ dialect.Family = Family{}

// Rules is the rules revision of this package: it changes with every change
// of what a slot is or how its message is made.
const Rules = "pi/1"

// Name implements dialect.Family.
func (Family) Name() string { return "pi" }

// Rules implements dialect.Family.
func (Family) Rules() string { return Rules }

// Members that a scan reports, in this order.
const (
	keyType = iota
	keyID
	keyParent
	keyTime
	keyMessage
	keySummary
	keyKept
)

const (
	subRole    = iota
	subContent // this and the next for Facts only
	subUsage
	subCall
)

// Keys implements dialect.Family.
func (Family) Keys(facts bool) jsonl.Keys {
	k := jsonl.Keys{
		Top:   []string{"type", "id", "parentId", "timestamp", "message", "summary", "firstKeptEntryId"},
		SubOf: "message",
		Sub:   []string{"role"},
	}
	if facts {
		k.Sub = append(k.Sub, "content", "usage", "toolCallId")
	}
	return k
}

// Envelope implements dialect.Family: an entry has all four members, a header
// its type and a string id.
func (Family) Envelope(s *jsonl.Scan, text []byte) bool {
	if s.Kind != jsonl.Object || s.Top[keyType].Kind != jsonl.String || !scalar(s.Top[keyID].Kind) {
		return false
	}
	if is(text, s.Top[keyType], "session") {
		return s.Top[keyID].Kind == jsonl.String
	}
	return s.Top[keyParent].Present() && s.Top[keyTime].Present()
}

// New implements dialect.Family; the hint is a format version.
func (Family) New(hint int, space *pages.Space) dialect.Session { return newSession(hint, space) }

// kindOf tells the kind of an entry by its type; "session" is none.
func kindOf(typ string) kind {
	switch typ {
	case "message":
		return kindMessage
	case "custom_message":
		return kindCustomMessage
	case "branch_summary":
		return kindBranchSummary
	case "compaction":
		return kindCompaction
	case "context_edit":
		return kindContextEdit
	case "child_usage_attributed":
		return kindChildUsage
	case "model_change":
		return kindModel
	case "thinking_level_change":
		return kindThinking
	case "service_tier_change":
		return kindTier
	case "session_info":
		return kindInfo
	case "session_state":
		return kindState
	case "custom", "label", "agent_status", "git_state":
		return kindSilent
	}
	return kindUnknown
}

// Detect implements dialect.Family.
func (Family) Detect(n int, object []byte) bool {
	typ, _ := text(object, jsonl.Get(object, "type"))
	if typ == "session" {
		if jsonl.Get(object, "id").Kind == jsonl.String &&
			(jsonl.Get(object, "cwd").Present() || jsonl.Get(object, "timestamp").Present() || jsonl.Get(object, "version").Present()) {
			return true
		}
	}
	if kindOf(typ) == kindUnknown {
		return false
	}
	return jsonl.Get(object, "parentId").Present() && jsonl.Get(object, "timestamp").Present()
}

// Header implements dialect.Family: the header of a new version-3 session.
func (Family) Header(id, cwd string, now time.Time) ([]byte, error) {
	h := struct {
		Type      string `json:"type"`
		Version   int    `json:"version"`
		ID        string `json:"id"`
		Timestamp string `json:"timestamp"`
		CWD       string `json:"cwd"`
	}{"session", 3, id, now.UTC().Format("2006-01-02T15:04:05.000Z"), cwd}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(h); err != nil {
		return nil, fmt.Errorf("pi: header: %w", err)
	}
	return b.Bytes(), nil
}

func scalar(k jsonl.Kind) bool {
	switch k {
	case jsonl.String, jsonl.Number, jsonl.True, jsonl.False:
		return true
	}
	return false
}

// is reports whether v is the string s, written without escapes or with.
func is(line []byte, v jsonl.Value, s string) bool {
	return v.Kind == jsonl.String && string(v.Plain(line)) == s
}

// text decodes a string value; ok is false for any other.
func text(line []byte, v jsonl.Value) (s string, ok bool) {
	if v.Kind != jsonl.String {
		return "", false
	}
	return v.Text(line), true
}
