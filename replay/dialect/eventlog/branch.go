package eventlog

import (
	"math"
	"sort"

	"github.com/cespare/xxhash/v2"

	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
)

// piece is a range of entries that are all on the active branch.
type piece struct{ from, to int32 } // half open

// turn of the active branch.
type turn struct {
	calls     int32 // the first of its calls
	open      int32 // its calls without a result
	status    int32 // the entry of its last status, none while it is open
	reasoning int32 // the last user_input so far with a reasoning selection
}

// call of the active branch.
type call struct {
	key    uint64
	entry  int32
	shadow int32 // what waiting held of the key before it; absent
	result int32 // the entry that answers it
}

// Values of waiting and shadow that are no call.
const (
	answered int32 = -1 // all calls of the key have results
	absent   int32 = -2 // there is no call of the key
)

// key names the calls of an id in the turn at hand: calls and results pair
// within a turn only. All turns share a map, so that leaving a turn by a
// rewind costs nothing that grows with the turn before it.
func (s *Session) key(id []byte) uint64 {
	const odd = 0x9e37_79b9_7f4a_7c15
	return xxhash.Sum64(id) + uint64(len(s.turns))*odd
}

// waits returns what waiting holds of a key.
func (s *Session) waits(key uint64) int32 {
	if c, ok := s.waiting[key]; ok {
		return c
	}
	return absent
}

// setWaits is waits the other way.
func (s *Session) setWaits(key uint64, c int32) {
	if c == absent {
		delete(s.waiting, key)
	} else {
		s.waiting[key] = c
	}
}

// match finds the call that a result with these flags would answer.
func (s *Session) match(f flags, id []byte) (link int32, _ flags) {
	switch c := s.waits(s.key(id)); c {
	case absent:
		return none, f | flagOrphan
	case answered:
		return none, f | flagDuplicate
	default:
		return s.calls[c].entry, f
	}
}

// turnNow is the turn at hand.
func (s *Session) turnNow() *turn { return &s.turns[len(s.turns)-1] }

// apply lets the next entry of the branch do what it does.
func (s *Session) apply(i int32, o dialect.Object, id []byte) {
	e := s.entries.Mut(i)
	switch e.kind {
	case kindUser:
		t := turn{calls: int32(len(s.calls)), status: none, reasoning: s.turnNow().reasoning}
		if e.flags&flagReasoning != 0 {
			t.reasoning = i
		}
		s.turns = append(s.turns, t)
	case kindCall:
		key := s.key(id)
		e.link = int32(len(s.calls))
		s.calls = append(s.calls, call{key: key, entry: i, shadow: s.waits(key), result: none})
		s.waiting[key] = e.link
		s.turnNow().open++
	case kindResult:
		switch {
		case e.flags&flagOrphan != 0:
			s.report(jsonl.CodeOrphanResult, o, "no call of this turn has the result's id; it is not in the context")
		case e.flags&flagDuplicate != 0:
			s.report(jsonl.CodeDuplicateResult, o, "the call has a result already, which counts; this one is not in the context")
		default:
			c := &s.calls[s.entries.At(e.link).link]
			c.result = i
			s.setWaits(c.key, max(c.shadow, answered))
			s.turnNow().open--
		}
	case kindStatus:
		if t := s.turnNow(); e.status != statusOpen {
			e.link, t.status = t.status, i
		}
	case kindCompaction:
		s.compacted = append(s.compacted, i)
		if e.link != none {
			s.compact(i)
		}
	}
}

// undo takes the last entry of the branch back.
func (s *Session) undo(i int32) {
	e := s.entries.At(i)
	switch e.kind {
	case kindUser:
		s.turns = s.turns[:len(s.turns)-1]
	case kindCall:
		n := len(s.calls) - 1
		s.setWaits(s.calls[n].key, s.calls[n].shadow)
		s.calls = s.calls[:n]
		s.turnNow().open--
	case kindResult:
		if e.link != none {
			k := s.entries.At(e.link).link
			s.calls[k].result = none
			s.setWaits(s.calls[k].key, k)
			s.turnNow().open++
		}
	case kindStatus:
		if e.status != statusOpen {
			s.turnNow().status = e.link
		}
	case kindCompaction:
		if e.link != none {
			s.valid = s.valid[:len(s.valid)-1]
		}
	}
}

// active reports whether an entry is on the active branch.
func (s *Session) active(i int32) bool {
	k := sort.Search(len(s.pieces), func(k int) bool { return s.pieces[k].from > i })
	return k > 0 && i < s.pieces[k-1].to && i < s.entries.Len()
}

// rewind takes the branch back to just before the event with the id. Every
// entry is taken back at most once, so all rewinds together are linear.
func (s *Session) rewind(o dialect.Object, id uint64) {
	target := none
	if id != 0 {
		target = s.ids.Last(id)
	}
	if target == none || !s.active(target) {
		s.report(jsonl.CodeRewindTarget, o, "the event to go back to is not before this one on the branch; nothing changes")
		return
	}
	ruled, had := s.ruling(), [dialect.Views]int{s.count(dialect.Transcript), s.count(dialect.Context)}
	next := s.entries.Len()
	for done := false; !done; {
		p := &s.pieces[len(s.pieces)-1]
		end := min(p.to, next)
		for end > max(p.from, target) {
			end--
			s.undo(end)
		}
		done = end == target
		p.to = end
		if p.to == p.from {
			s.pieces = s.pieces[:len(s.pieces)-1]
		}
	}
	s.top = none
	if n := len(s.pieces); n > 0 {
		s.top = s.pieces[n-1].to - 1
	}
	s.pieces = append(s.pieces, piece{next, math.MaxInt32})
	s.branched = true
	s.rewinds++
	for v := range dialect.Views {
		keep := 0
		if v == dialect.Transcript || s.ruling() == ruled {
			keep = s.count(v)
		}
		if keep < had[v] {
			s.cut(v, o.Sequence, keep, dialect.ReasonBranch)
		}
	}
}

// compact lets compaction i rule the context.
func (s *Session) compact(i int32) {
	s.valid = append(s.valid, i)
	s.cut(dialect.Context, s.entries.At(i).sequence, 0, dialect.ReasonCompaction)
}

// ruling is the compaction that the context begins with, or none.
func (s *Session) ruling() int32 {
	if n := len(s.valid); n > 0 {
		return s.valid[n-1]
	}
	return none
}

// retained counts the messages of the context that a compaction retains.
func (s *Session) retained(e *entry) int {
	from := s.entries.At(e.link)
	return int(e.sum[dialect.Context] - from.sum[dialect.Context] + from.weight(dialect.Context))
}

// through is how many slots a view has up to entry i of the branch, which is
// not before the compaction that rules the context.
func (s *Session) through(v dialect.View, i int32) int {
	if i == none {
		return 0
	}
	n := int(s.entries.At(i).sum[v])
	if c := s.ruling(); v == dialect.Context && c != none {
		e := s.entries.At(c)
		n += 1 + s.retained(e) - int(e.sum[v])
	}
	return n
}

// count is how many slots a view has.
func (s *Session) count(v dialect.View) int { return s.through(v, s.top) }
