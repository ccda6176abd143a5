package engine

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// logEvent draws an event: most of them are turns, the rest takes them back or
// compacts them.
func (d *draw) logEvent() string {
	id := fmt.Sprintf("%s%d", d.id, d.n)
	if d.odd("id", 14) == 0 {
		id = d.anyID("id")
	}
	text := fmt.Sprintf("t%d ", d.n)
	if d.odd("long", 4) == 0 {
		text += strings.Repeat("x", rapid.IntRange(0, 1500).Draw(d.t, "more"))
	}
	said := fmt.Sprintf(`{"text":%q}`, text)
	call := rapid.SampledFrom([]string{"c1", "c2"}).Draw(d.t, "call")
	switch d.odd("kind", 20) {
	case 0, 1:
		return logCompaction(id, d.anyID("from"))
	case 2, 3, 4:
		return logEvent(id, "rewind", fmt.Sprintf(`{"to":%q}`, d.anyID("to")))
	case 5:
		return logEvent(id, "user_input", strings.Replace(said, "{", `{"reasoning_selection":"high",`, 1))
	case 6:
		return logEvent(id, "turn_status", strings.Replace(said, "{", `{"status":"failed",`, 1))
	case 7:
		return logEvent(id, "turn_status", `{"status":"completed"}`)
	case 8, 9, 10:
		return logEvent(id, "tool_call", fmt.Sprintf(`{"call_id":%q,"name":"run"}`, call))
	case 11, 12:
		return logEvent(id, "tool_result", fmt.Sprintf(`{"call_id":%q,"ok":true,"output":%q}`, call, text))
	case 13:
		return logEvent(id, rapid.SampledFrom([]string{"invented", "assistant_chunk", "reasoning_summary", "provider_context_item"}).Draw(d.t, "other"), said)
	case 14, 15:
		return logEvent(id, "user_input", said)
	}
	return logEvent(id, "assistant_output", said)
}

func TestStreams_OwnedLog(t *testing.T)    { testStreamsOf(t, "eventlog", true) }
func TestStreams_FollowedLog(t *testing.T) { testStreamsOf(t, "eventlog", false) }
