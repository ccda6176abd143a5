package eventlog

import (
	"math"
	"sort"

	"sessiond/replay/dialect"
	"sessiond/replay/dialect/tree"
	"sessiond/replay/jsonl"
	"sessiond/replay/pages"
)

// Session is the understanding of one event log.
type Session struct {
	space   *pages.Space
	entries pages.List[entry]
	ids     tree.IDs
	big     map[int32]int64 // length of entries over the record limit

	// The active branch: the pieces of the file that rewinds left of it.
	pieces   []piece
	top      int32 // its last entry
	branched bool  // a rewind came, and no message since
	turns    []turn
	calls    []call
	waiting  map[uint64]int32 // call key -> its newest call without a result, or answered
	valid    []int32          // compactions of the branch that are valid

	views     [dialect.Views]view
	compacted []int32 // all compactions of the file
	rewinds   int     // that had an effect

	named, placed, title int32 // the entries that say the session's id, folder and title
	first, newest        moment
	diagnostics          []jsonl.Diagnostic
	dropped              bool // there were more diagnostics than are held
}

// diagnosticsMax bounds the findings that a session holds.
const diagnosticsMax = 10_000

func newSession(space *pages.Space) *Session {
	s := &Session{
		space: space, entries: pages.New[entry](space), ids: tree.NewIDs(space),
		big: map[int32]int64{}, waiting: map[uint64]int32{}, top: none,
		pieces: []piece{{0, math.MaxInt32}}, turns: []turn{{status: none, reasoning: none}},
		named: none, placed: none, title: none,
	}
	for v := range s.views {
		s.views[v].keep = dialect.All
		s.views[v].slots = pages.New[dialect.Slot](space)
	}
	return s
}

// Add implements dialect.Session.
func (s *Session) Add(o *dialect.Object) (again bool, err error) {
	top, sub, line := values(*o)
	var e entry
	s.classify(&e, *o, top, sub, line)
	id := idHash(line, top[keyID])
	switch e.kind {
	case kindNoMessage:
		s.report(jsonl.CodeMessageMissing, *o, "an event without the payload of its type shows nothing")
	case kindCompaction:
		if e.link = s.retainedFrom(sub[subKept], line); e.link == none {
			s.report(jsonl.CodeUnanchored, *o, "what this compaction retains from is no event before it on the branch; it is ignored")
		}
	case kindRewind:
		s.rewind(*o, idHash(line, sub[subTo]))
	}
	i, at := s.entries.Add()
	for v := range dialect.Views {
		if s.top != none {
			e.sum[v] = s.entries.At(s.top).sum[v]
		}
		e.sum[v] += e.weight(v)
	}
	*at = e
	if e.flags&flagBig != 0 {
		s.big[i] = o.Bytes
	}
	if id != 0 {
		if again = s.ids.Add(id, i) != none; again {
			s.report(jsonl.CodeDuplicateID, *o, "an earlier event has the same id; the last one counts")
		}
	}
	if e.flags&flagBranch != 0 {
		s.branched = false
	}
	s.apply(i, *o, callID(line, sub[subCall]))
	s.top = i
	s.note(i, top, sub, line)
	return again, nil
}

// note keeps what the listing says of the session.
func (s *Session) note(i int32, top, sub []jsonl.Value, line []byte) {
	if s.named == none && top[keySession].Kind == jsonl.String {
		s.named = i
	}
	if s.placed == none && top[keyCWD].Kind == jsonl.String {
		s.placed = i
	}
	k := s.entries.At(i).kind
	if k == kindTitle && sub[subTitle].Kind == jsonl.String {
		s.title = i
	}
	told := k == kindUser || k == kindOutput
	if s.first.set && !told {
		return
	}
	ms, ok := timeOf(line, top[keyTime])
	if !ok {
		return
	}
	if !s.first.set {
		s.first = moment{ms, true}
	}
	if told && (!s.newest.set || ms > s.newest.ms) {
		s.newest = moment{ms, true}
	}
}

// retainedFrom finds the event that a compaction names, by id or by sequence,
// on the active branch.
func (s *Session) retainedFrom(v jsonl.Value, line []byte) int32 {
	i := none
	switch v.Kind {
	case jsonl.String:
		if h := idHash(line, v); h != 0 {
			i = s.ids.Last(h)
		}
	case jsonl.Number:
		i = s.at(number(v.Bytes(line)))
	}
	if i == none || !s.active(i) {
		return none
	}
	return i
}

// at returns the first entry of a record.
func (s *Session) at(sequence uint64) int32 {
	n := int(s.entries.Len())
	i := sort.Search(n, func(i int) bool { return s.entries.At(int32(i)).sequence >= sequence })
	if i == n || s.entries.At(int32(i)).sequence != sequence {
		return none
	}
	return int32(i)
}

// report notes a finding about an object.
func (s *Session) report(code jsonl.Code, o dialect.Object, detail string) {
	if len(s.diagnostics) >= diagnosticsMax {
		s.dropped = true
		return
	}
	s.diagnostics = append(s.diagnostics, jsonl.Diagnostic{
		Code: code, Severity: code.Severity(), Line: int64(o.Sequence),
		Offset: o.Offset, Length: o.Bytes, Detail: detail,
	})
}

// What the elements of the lists and maps cost, about.
const (
	callBytes        = 24
	mapBytes         = 24
	turnBytes        = 20
	rareBytes        = 64
	diagnosticsBytes = 160
	sessionBytes     = 2 << 10
)

// Bytes implements dialect.Session.
func (s *Session) Bytes() int64 {
	n := s.entries.Bytes() + s.ids.Bytes() +
		int64(cap(s.calls))*callBytes + int64(len(s.waiting))*mapBytes + int64(cap(s.turns))*turnBytes
	for v := range s.views {
		n += s.views[v].bytes()
	}
	rare := len(s.big) + len(s.pieces) + len(s.compacted)
	return n + int64(rare)*rareBytes + int64(len(s.diagnostics))*diagnosticsBytes + sessionBytes
}
