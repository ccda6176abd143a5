package pi

import (
	"math"

	"sessiond/replay/dialect"
	"sessiond/replay/dialect/tree"
	"sessiond/replay/jsonl"
)

// compaction is what the index holds of a compaction entry.
type compaction struct {
	kept    uint64 // hash of firstKeptEntryId, 0: absent
	index   int64  // version 1: firstKeptEntryIndex; -1: absent or no place
	indexed bool   // version 1: firstKeptEntryIndex is a number
	system  bool   // a system message stands before the summary
}

func readCompaction(o dialect.Object, top []jsonl.Value, line []byte) *compaction {
	c := &compaction{kept: idHash(line, top[keyKept]), index: -1}
	if o.Oversized != nil {
		return c
	}
	if v := jsonl.Get(o.Text, "firstKeptEntryIndex"); v.Kind == jsonl.Number {
		c.indexed = true
		if n := number(v.Bytes(o.Text)); n >= 0 && n == math.Trunc(n) && n < math.MaxInt32 {
			c.index = int64(n)
		}
	}
	c.system = jsonl.Get(o.Text, "systemMessage").Kind == jsonl.Object
	return c
}

// firstKept returns the entry from which on compaction c retains, or None.
// In version 1 it is named by index; an id there names an entry that had to
// get another id.
func (s *Session) firstKept(c int32) int32 {
	k := s.compactions[c]
	if s.version == 1 {
		if k.index < 0 || k.index >= int64(s.byIndex.Len()) {
			return tree.None
		}
		return *s.byIndex.At(int32(k.index))
	}
	if k.kept == 0 {
		return tree.None
	}
	return s.tree.Find(k.kept)
}

// leftOut reports whether entry i of the retained part stays out because the
// compaction brings its own system message.
func (s *Session) leftOut(c, i int32) bool {
	return s.compactions[c].system && s.entries.At(i).role == roleSystem
}

// headSlots is the number of slots that a compaction puts before what it
// retains.
func (s *Session) headSlots(c int32) int {
	if s.compactions[c].system {
		return 2
	}
	return 1
}

// retained counts the messages that compaction c retains.
func (s *Session) retained(c int32) int {
	k := s.firstKept(c)
	if k == tree.None || k == c {
		return 0
	}
	if s.tree.Node(s.tree.Node(c).Strict).Ring() {
		return s.countRetained(c, k)
	}
	if !s.tree.OnStrict(k, c) {
		return 0
	}
	from := func(weightOf int) int {
		return int(s.tree.Node(c).Sum[weightOf]-s.tree.Node(k).Sum[weightOf]) + int(weight(s.entries.At(k))[weightOf])
	}
	n := from(int(dialect.Context))
	if s.compactions[c].system {
		n -= from(weightSystem)
	}
	return n
}

// countRetained counts entry by entry, as a ring demands.
func (s *Session) countRetained(c, k int32) int {
	n, in := 0, false
	for i := range s.strictChain(c) {
		if i == c {
			break
		}
		if in = in || i == k; in && !s.leftOut(c, i) {
			n += int(weight(s.entries.At(i))[1])
		}
	}
	return n
}

// base is the number of context slots up to and including what compaction c
// retains.
func (s *Session) base(c int32) int { return s.headSlots(c) + s.retained(c) }

// compactionState says what a compaction's anchor is worth.
func (s *Session) compactionState(c int32) string {
	k := s.compactions[c]
	at := s.firstKept(c)
	switch {
	case at != tree.None && at != c && s.tree.OnStrict(at, c):
		return "anchored"
	case at == tree.None && (k.kept != 0 || k.indexed):
		return "broken"
	}
	return "unanchored"
}

// Cutoff implements dialect.Session. A context that begins in a ring counts as
// one of the whole file.
func (s *Session) Cutoff(v dialect.View) (dialect.Cutoff, bool) {
	if v != dialect.Context || s.leaf == tree.None {
		return dialect.Cutoff{}, false
	}
	n := s.tree.Node(s.leaf)
	c := n.Mark
	if c == tree.None || s.tree.Node(n.Strict).Ring() {
		return dialect.Cutoff{}, false
	}
	from := s.firstKept(c)
	if from == tree.None || !s.tree.OnStrict(from, c) {
		from = c
	}
	e := s.entries.At(from)
	return dialect.Cutoff{
		By: s.entries.At(c).sequence, Sequence: e.sequence, Offset: e.offset,
		Before: int64(from), After: int64(s.entries.Len() - from),
	}, true
}
