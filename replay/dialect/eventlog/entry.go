package eventlog

import (
	"github.com/cespare/xxhash/v2"

	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
)

// none is the ordinal of no entry.
const none int32 = -1

// entry is what the index holds of an event.
type entry struct {
	offset   int64  // of the object in the file
	sequence uint64 // of its line
	bytes    uint32 // of the object; see flagBig
	sum      [dialect.Views]int32
	link     int32 // see below; none where there is nothing
	flags    flags
	kind     kind
	status   status // of a turn_status
}

// What link is, by kind:
//
//	call        its index in Session.calls while it is on the active branch
//	result      the entry of the call that it answers
//	status      the status that ruled the turn before it
//	compaction  the entry retained from; none: not valid
//
// sum counts the slots of the branch up to and including the entry, the
// summaries of compactions aside.

type flags uint16

const (
	flagFix         flags = 1 << iota // the object holds bad UTF-8
	flagBig                           // over the record limit: its length is in Session.big
	flagProvisional                   // the unterminated last line
	flagSalvaged
	flagBranch    // the first message after a rewind
	flagReasoning // a user_input with a reasoning selection
	flagPartial   // a turn_status with text to keep
	flagDuplicate // a result of a call that has one
	flagOrphan    // a result without a call
)

// status of a turn.
type status uint8

const (
	statusOpen status = iota
	statusCompleted
	statusCancelled
	statusFailed
	statusIncomplete
)

func statusOf(text string) status {
	switch text {
	case "completed":
		return statusCompleted
	case "cancelled":
		return statusCancelled
	case "failed":
		return statusFailed
	case "incomplete":
		return statusIncomplete
	}
	return statusOpen
}

// Parts of an entry that are slots.
const (
	partMessage uint8 = iota
	partReasoning
)

// weight says how many slots an entry is in a view.
func (e *entry) weight(v dialect.View) int32 {
	switch e.kind {
	case kindUser:
		if e.flags&flagReasoning != 0 {
			return 2
		}
		return 1
	case kindOutput, kindCall, kindInjection:
		return 1
	case kindStatus:
		if e.flags&flagPartial != 0 {
			return 1
		}
	case kindResult:
		if v == dialect.Transcript || e.flags&(flagDuplicate|flagOrphan) == 0 {
			return 1
		}
	case kindContextItem:
		if v == dialect.Context {
			return 1
		}
	case kindReasoning, kindCompaction:
		if v == dialect.Transcript {
			return 1
		}
	}
	return 0
}

func (e *entry) appendSlots(slots *dialect.Slots, v dialect.View, i int32) {
	if e.kind == kindUser && e.flags&flagReasoning != 0 {
		slots.Append(dialect.Slot{Entry: i, Part: partReasoning})
	}
	if e.weight(v) > 0 {
		slots.Append(dialect.Slot{Entry: i, Part: partMessage})
	}
}

// idHash hashes an event's id or one that names it; 0 stands for none.
func idHash(line []byte, v jsonl.Value) uint64 {
	if v.Kind != jsonl.String {
		return 0
	}
	raw := v.Plain(line)
	if len(raw) == 0 {
		return 0
	}
	return max(1, xxhash.Sum64(raw))
}

// callID is the text of a call's id: a string's, a number's as it is written,
// and "" for everything else, which pairs like any other.
func callID(line []byte, v jsonl.Value) []byte {
	switch v.Kind {
	case jsonl.String:
		return v.Plain(line)
	case jsonl.Number:
		return v.Bytes(line)
	}
	return nil
}

// values returns the members of an object and the text that they refer to.
// Those of an oversized object that are not held are present, with no text.
func values(o dialect.Object) (top, sub []jsonl.Value, line []byte) {
	if o.Oversized == nil {
		return o.Scan.Top, o.Scan.Sub, o.Text
	}
	held := func(in []jsonl.OversizedValue) []jsonl.Value {
		out := make([]jsonl.Value, len(in))
		for i, v := range in {
			raw := v.Raw
			if v.Kind == jsonl.String && len(raw) < 2 { // too long to be held
				raw = []byte(`""`)
			}
			out[i] = jsonl.Value{Kind: v.Kind, Escaped: v.Escaped, Start: len(line), End: len(line) + len(raw)}
			line = append(line, raw...)
		}
		return out
	}
	top, sub = held(o.Oversized.Top), held(o.Oversized.Sub)
	return top, sub, line
}

// classify fills the index entry of an object as it would be if it came next.
// It changes nothing else.
func (s *Session) classify(e *entry, o dialect.Object, top, sub []jsonl.Value, line []byte) {
	e.offset, e.sequence, e.bytes, e.link = o.Offset, o.Sequence, uint32(len(o.Text)), none
	if o.Oversized != nil {
		e.flags |= flagBig
	}
	if o.HasInvalidUTF8() {
		e.flags |= flagFix
	}
	if o.Provisional {
		e.flags |= flagProvisional
	}
	if o.Salvaged {
		e.flags |= flagSalvaged
	}
	if typ := top[keyType]; typ.Kind == jsonl.String {
		e.kind = kindOf(string(typ.Plain(line)))
	}
	if e.kind > kindNoMessage && top[keyPayload].Kind != jsonl.Object {
		e.kind = kindNoMessage
	}
	s.classifyKind(e, sub, line)
	if s.branched && e.weight(dialect.Transcript) > 0 {
		e.flags |= flagBranch
	}
}

func (s *Session) classifyKind(e *entry, sub []jsonl.Value, line []byte) {
	hasText := sub[subText].Kind == jsonl.String
	switch e.kind {
	case kindUser:
		if r := sub[subReasoning]; e.flags&flagBig == 0 && r.Present() && r.Kind != jsonl.Null {
			e.flags |= flagReasoning
		}
		if !hasText {
			e.kind, e.flags = kindNoMessage, e.flags&^flagReasoning
		}
	case kindOutput:
		if !hasText {
			e.kind = kindNoMessage
		}
	case kindStatus:
		if v := sub[subStatus]; v.Kind == jsonl.String {
			e.status = statusOf(string(v.Plain(line)))
		}
		t := sub[subText]
		if e.status > statusCompleted && hasText && (t.End-t.Start > 2 || e.flags&flagBig != 0) {
			e.flags |= flagPartial
		}
	case kindResult:
		e.link, e.flags = s.match(e.flags, callID(line, sub[subCall]))
	}
}
