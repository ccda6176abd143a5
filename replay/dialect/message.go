package dialect

import (
	"bytes"
	"cmp"
	"slices"

	"sessiond/replay/jsonl"
)

// Messages of every dialect have one shape, that of the pi family: an object
// with a role, and content that is a string or a list of typed blocks. A tool
// call is a block {type toolCall, id, name, arguments} of an assistant
// message; its result is a message of role toolResult with a toolCallId.

// MayPair reports whether a message can be of a call or a result at all: the
// cheap question before Calls and Answers.
func MayPair(m []byte) bool { return mayName(m, `"tool`) }

// mayName reports whether a message can hold the member or value name at all.
// Only an escape could hide it.
func mayName(m []byte, name string) bool {
	return bytes.Contains(m, []byte(name)) || bytes.Contains(m, []byte(`\u00`))
}

var callMembers = []string{"id", "type", "name"}

// Calls lists the tool calls of an assistant message.
func Calls(m []byte) []Call {
	if !mayName(m, `"toolCall"`) {
		return nil
	}
	var message [2]jsonl.Value
	jsonl.Pick(m, []string{"role", "content"}, message[:])
	content := message[1]
	if !isText(m, message[0], "assistant") || content.Kind != jsonl.Array {
		return nil
	}
	return CallsIn(content.Bytes(m))
}

// CallsIn lists the tool calls of an assistant message's content, a list of
// blocks.
func CallsIn(blocks []byte) (out []Call) {
	if !mayName(blocks, `"toolCall"`) {
		return nil
	}
	for v := range jsonl.Elements(blocks) {
		if v.Kind != jsonl.Object {
			continue
		}
		b := v.Bytes(blocks)
		var call [3]jsonl.Value
		jsonl.Pick(b, callMembers, call[:])
		if id := call[0]; id.Kind == jsonl.String && isText(b, call[1], "toolCall") {
			out = append(out, Call{ID: id.Text(b), Name: call[2].Text(b)})
		}
	}
	return out
}

// Answers returns the id of the call that a message is the result of.
func Answers(m []byte) (id string, ok bool) {
	if !mayName(m, `"toolResult"`) {
		return "", false
	}
	var message [2]jsonl.Value
	jsonl.Pick(m, []string{"role", "toolCallId"}, message[:])
	if !isText(m, message[0], "toolResult") {
		return "", false
	}
	v := message[1]
	return v.Text(m), v.Kind == jsonl.String
}

func isText(line []byte, v jsonl.Value, s string) bool {
	return v.Kind == jsonl.String && string(v.Plain(line)) == s
}

// Pairs finds calls without a result along a view, fed with its messages in
// order: a result answers the nearest earlier unanswered call of its id.
type Pairs struct {
	open map[string][]uint64
	n    int // unanswered
}

// Add takes the next message.
func (p *Pairs) Add(sequence uint64, m []byte) {
	if id, ok := Answers(m); ok {
		if list := p.open[id]; len(list) > 0 {
			p.open[id] = list[:len(list)-1]
			p.n--
			if len(list) == 1 {
				delete(p.open, id)
			}
		}
		return
	}
	for _, c := range Calls(m) {
		if p.open == nil {
			p.open = map[string][]uint64{}
		}
		p.open[c.ID] = append(p.open[c.ID], sequence)
		p.n++
	}
}

// Unanswered is a call without a result.
type Unanswered struct {
	Sequence uint64
	CallID   string
}

// List returns the calls that have no result so far, in order.
func (p *Pairs) List() []Unanswered {
	out := make([]Unanswered, 0, p.n)
	for id, list := range p.open {
		for _, seq := range list {
			out = append(out, Unanswered{seq, id})
		}
	}
	sortUnanswered(out)
	return out
}

// Restore begins with calls that List gave.
func (p *Pairs) Restore(list []Unanswered) {
	*p = Pairs{n: len(list)}
	for _, u := range list {
		if p.open == nil {
			p.open = map[string][]uint64{}
		}
		p.open[u.CallID] = append(p.open[u.CallID], u.Sequence)
	}
}

func sortUnanswered(list []Unanswered) {
	slices.SortFunc(list, func(a, b Unanswered) int {
		return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.CallID, b.CallID))
	})
}
