package gen

import "strconv"

// The events of an event log. A turn is an input, a call with its result, what
// a log holds beside messages, an answer and the turn's end.

var events = []func(*session){
	(*session).input, (*session).toolCall, (*session).toolResult, (*session).chunk,
	(*session).tokenUsage, (*session).output, (*session).turnStatus,
}

// nextEvent makes the next event of a log: its title first, then turn after
// turn. Between two turns the last one may be taken back, and the context may
// be compacted to it.
func (s *session) nextEvent() []byte {
	s.buf = s.buf[:0]
	due := func(turns int) bool { return s.step == 0 && turns > 0 && s.turns > 0 && s.turns%turns == 0 }
	switch {
	case s.count == 0:
		s.event("session_title")
		s.buf = append(s.buf, `"title":"A made-up session"`...)
	case due(s.o.TurnsPerCompaction) && !s.compacted:
		s.compacted = true
		s.event("compaction")
		s.buf = append(s.buf, `"summary":"`...)
		s.text(s.size(500, 1500, 20, 60))
		s.buf = append(s.buf, `","retained_from":"`...)
		s.eventID(s.lastInput)
		s.buf = append(s.buf, `","aggregate":{"user_input_count":`...)
		s.int(int64(s.turns))
		s.buf = append(s.buf, '}')
	case due(s.o.TurnsPerFork) && !s.rewound && !s.compacted: // what a compaction retains stays
		s.rewound = true
		s.event("rewind")
		s.buf = append(s.buf, `"to":"`...)
		s.eventID(s.lastInput)
		s.buf = append(s.buf, '"')
	default:
		events[s.step](s)
		if s.step++; s.step == len(events) {
			s.step, s.rewound, s.compacted = 0, false, false
			s.turns++
		}
	}
	s.count++
	return s.end(`}}`)
}

// event opens an event up to the members of its payload.
func (s *session) event(kind string) {
	s.buf = append(s.buf, `{"event_id":"`...)
	s.eventID(s.count)
	s.buf = append(s.buf, `","event_type":"`...)
	s.buf = append(s.buf, kind...)
	s.buf = append(s.buf, `","session_id":"log-`...)
	s.buf = strconv.AppendUint(s.buf, s.o.Seed, 16)
	s.buf = append(s.buf, `","cwd":"/home/user/project","timestamp":"`...)
	s.time()
	s.buf = append(s.buf, `","payload":{`...)
}

func (s *session) eventID(ordinal int) { s.buf = strconv.AppendInt(s.buf, int64(ordinal)+1, 16) }

func (s *session) input() {
	s.lastInput = s.count
	s.event("user_input")
	if s.turns%8 == 0 {
		s.buf = append(s.buf, `"reasoning_selection":"medium",`...)
	}
	s.textMember(s.size(100, 700, 8, 40))
}

func (s *session) toolCall() {
	s.event("tool_call")
	s.buf = append(s.buf, `"call_id":"call_`...)
	s.eventID(s.count)
	s.buf = append(s.buf, `","name":"run","arguments":{"command":"`...)
	s.text(s.size(20, 200, 8, 30))
	s.buf = append(s.buf, `"}`...)
}

func (s *session) toolResult() {
	s.event("tool_result")
	s.buf = append(s.buf, `"call_id":"call_`...)
	s.eventID(s.count - 1)
	s.buf = append(s.buf, `","ok":true,"output":"`...)
	s.text(s.size(500, 5900, 0, 30))
	s.buf = append(s.buf, '"')
}

func (s *session) chunk() {
	s.event("assistant_chunk")
	s.textMember(s.size(20, 200, 8, 30))
}

func (s *session) tokenUsage() {
	s.event("token_usage")
	s.buf = append(s.buf, `"input":`...)
	s.int(int64(s.rng.IntN(5000)))
}

func (s *session) output() {
	s.event("assistant_output")
	s.textMember(s.size(200, 2200, 8, 60))
}

// turnStatus ends a turn, one in eight of them early and with a part of a text.
func (s *session) turnStatus() {
	s.event("turn_status")
	if s.rng.IntN(8) > 0 {
		s.buf = append(s.buf, `"status":"completed"`...)
		return
	}
	s.buf = append(s.buf, `"status":"cancelled",`...)
	s.textMember(s.size(20, 200, 8, 30))
}

func (s *session) textMember(n int) {
	s.buf = append(s.buf, `"text":"`...)
	s.text(n)
	s.buf = append(s.buf, '"')
}
