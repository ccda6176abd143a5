package gen

// The entries of a turn. Each makes one whole entry; sizes are of the text.

func (s *session) user() {
	s.message("user")
	s.buf = append(s.buf, `,"content":[{"type":"text","text":"`...)
	s.text(s.size(100, 700, 8, 40))
	s.buf = append(s.buf, `"}]`...)
	s.endMessage()
}

func (s *session) call() {
	s.message("assistant")
	s.buf = append(s.buf, `,"content":[`...)
	if s.o.Profile == Brief {
		s.buf = append(s.buf, `{"type":"thinking","thinking":"`...)
		s.text(s.size(100, 900, 0, 0))
		s.buf = append(s.buf, `"},`...)
	}
	s.buf = append(s.buf, `{"type":"toolCall","id":"call_`...)
	s.id(s.count)
	s.buf = append(s.buf, `","name":"bash","arguments":{"command":"`...)
	s.text(s.size(20, 200, 8, 30))
	s.buf = append(s.buf, `"}}]`...)
	s.usage("toolUse")
	s.endMessage()
}

func (s *session) result() {
	s.message("toolResult")
	s.buf = append(s.buf, `,"toolCallId":"call_`...)
	s.id(s.count - 1)
	s.buf = append(s.buf, `","toolName":"bash","content":[{"type":"text","text":"`...)
	s.text(s.size(500, 5900, 0, 30))
	s.buf = append(s.buf, `"}],"isError":false`...)
	s.endMessage()
}

func (s *session) answer() {
	s.message("assistant")
	s.buf = append(s.buf, `,"content":[{"type":"text","text":"`...)
	s.text(s.size(200, 2200, 0, 0))
	s.buf = append(s.buf, `"}]`...)
	s.usage("stop")
	s.endMessage()
}

// note is a short message of an extension.
func (s *session) note() {
	s.entry("custom_message")
	s.buf = append(s.buf, `,"customType":"note","content":"`...)
	s.text(s.size(0, 0, 8, 40))
	s.buf = append(s.buf, `","display":true}`...)
}

// custom is an entry that no view shows.
func (s *session) custom() {
	s.entry("custom")
	s.buf = append(s.buf, `,"customType":"progress","data":{"step":`...)
	s.int(int64(s.count))
	s.buf = append(s.buf, `}}`...)
}

func (s *session) message(role string) {
	s.entry("message")
	s.buf = append(s.buf, `,"message":{"role":"`...)
	s.buf = append(s.buf, role...)
	s.buf = append(s.buf, '"')
}

func (s *session) endMessage() {
	s.buf = append(s.buf, `,"timestamp":`...)
	s.int(s.milli())
	s.buf = append(s.buf, `}}`...)
}

// usage appends what an assistant message has beside its content.
func (s *session) usage(stopReason string) {
	input, output := int64(s.rng.IntN(5000)), int64(s.rng.IntN(800))
	s.buf = append(s.buf, `,"provider":"example","model":"example-1","usage":{"input":`...)
	s.int(input)
	s.buf = append(s.buf, `,"output":`...)
	s.int(output)
	s.buf = append(s.buf, `,"cacheRead":0,"cacheWrite":0`...)
	if s.o.Profile == Brief {
		s.buf = append(s.buf, `,"totalTokens":`...)
		s.int(input + output)
		s.buf = append(s.buf, `,"cost":{"input":0.0125,"output":0.0075,"cacheRead":0,"cacheWrite":0,"total":0.02}`...)
	}
	s.buf = append(s.buf, `},"stopReason":"`...)
	s.buf = append(s.buf, stopReason...)
	s.buf = append(s.buf, '"')
}

// size draws a number of bytes between the bounds of the profile.
func (s *session) size(briefMin, briefMax, smallMin, smallMax int) int {
	if s.o.Profile == Small {
		return smallMin + s.rng.IntN(smallMax-smallMin+1)
	}
	return briefMin + s.rng.IntN(briefMax-briefMin+1)
}

// text appends about n bytes of words as the inside of a JSON string.
func (s *session) text(n int) {
	for end := len(s.buf) + n; len(s.buf) < end; {
		r := s.rng.Uint64()
		if r&63 == 0 {
			s.buf = append(s.buf, rare[(r>>6)%uint64(len(rare))]...)
			continue
		}
		s.buf = append(s.buf, words[(r>>6)%uint64(len(words))]...)
		s.buf = append(s.buf, ' ')
	}
}

var words = [...]string{
	"the", "session", "of", "a", "test", "function", "returns", "file", "and", "error", "when", "read",
	"line", "is", "not", "found", "in", "package", "value", "with", "if", "build", "passes", "so", "we",
	"change", "this", "index", "for", "each", "record", "while", "writing", "only", "once", "then", "more",
}

// rare holds what strings of real sessions need: escapes, and text beyond
// ASCII both raw and escaped.
var rare = [...]string{
	`\n`, `\n\n`, `\t`, `\"quoted\" `, `C:\\path `, `\u001b[1m`, `größer `, `naïve — `, `会话記録 `, `слово `, `→ `, `🙂 `, `\u00e9t\u00e9 `, `\ud83d\ude80 `,
}
