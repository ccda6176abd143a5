package gen

import (
	"bytes"
	"encoding/json"
	"testing"
)

// TestWrite_Log checks that every event has what it should, that results
// answer the call before them, and that what is named is there.
func TestWrite_Log(t *testing.T) {
	data := write(t, Options{Profile: Log, Seed: 5, Bytes: 1 << 20, TurnsPerFork: 3, TurnsPerCompaction: 4})
	ids := map[string]bool{}
	kinds := map[string]int{}
	call := ""
	n := 0
	for line := range bytes.Lines(data) {
		n++
		var e struct {
			EventID   string `json:"event_id"`
			EventType string `json:"event_type"`
			SessionID string `json:"session_id"`
			CWD       string
			Timestamp string
			Payload   struct {
				CallID       string `json:"call_id"`
				RetainedFrom string `json:"retained_from"`
				To, Status   string
			}
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		if e.EventID == "" || ids[e.EventID] || e.SessionID == "" || e.CWD == "" || e.Timestamp == "" {
			t.Fatalf("line %d: %s", n, line)
		}
		switch p := e.Payload; e.EventType {
		case "tool_call":
			call = p.CallID
		case "tool_result":
			if p.CallID != call {
				t.Fatalf("line %d: result of %q, want %q", n, p.CallID, call)
			}
		case "rewind":
			if !ids[p.To] {
				t.Fatalf("line %d: back to %q, which is not there", n, p.To)
			}
		case "compaction":
			if !ids[p.RetainedFrom] {
				t.Fatalf("line %d: from %q, which is not there", n, p.RetainedFrom)
			}
		}
		kinds[e.EventType]++
		ids[e.EventID] = true
	}
	if mean := len(data) / n; mean < 800 || mean > 1100 {
		t.Errorf("mean line: got %d bytes", mean)
	}
	for _, kind := range []string{"rewind", "compaction", "turn_status", "assistant_output", "session_title"} {
		if kinds[kind] == 0 {
			t.Errorf("no %s", kind)
		}
	}
}
