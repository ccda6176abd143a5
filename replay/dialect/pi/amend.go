package pi

import (
	"bytes"
	"slices"

	"sessiond/replay/dialect"
	"sessiond/replay/dialect/tree"
	"sessiond/replay/jsonl"
)

// edit is a context_edit entry.
type edit struct {
	entry  int32
	target uint64
	drop   bool // replacement null
}

// attribution is a child_usage_attributed entry that found its target.
type attribution struct {
	target   int32
	sequence uint64
	place    place
}

// addEdit takes a context_edit. Version 1 has none: there every entry gets a
// new id, so that nothing is named by one.
func (s *Session) addEdit(i int32, o dialect.Object) {
	if s.version == 1 {
		return
	}
	target := idHash(o.Text, jsonl.Get(o.Text, "targetId"))
	r := jsonl.Get(o.Text, "replacement")
	if target == 0 || (r.Kind != jsonl.Null && r.Kind != jsonl.Object) {
		return
	}
	s.edits = append(s.edits, edit{i, target, r.Kind == jsonl.Null})
	s.edited[target] = true
	s.stale = true
}

func (s *Session) addUsage(_ int32, o dialect.Object) {
	a := jsonl.Get(o.Text, "aggregateUsage")
	if a.Kind != jsonl.Object || jsonl.Get(a.Bytes(o.Text), "cost").Kind != jsonl.Object {
		s.report(jsonl.CodeUsageMissing, o, "an attribution without a usage and its cost changes nothing")
		return
	}
	target := s.tree.Find(idHash(o.Text, jsonl.Get(o.Text, "targetId")))
	if target == tree.None {
		return
	}
	if e := s.entries.At(target); e.kind != kindMessage || e.role != roleAssistant {
		return
	}
	s.usageOf[target] = len(s.usages)
	s.usages = append(s.usages, attribution{target, o.Sequence, placeOf(o)})
}

// activateEdits finds, for every edited entry of the context's range, the
// last edit in that range. A summary is no entry's content: edits of a
// compaction change nothing.
func (s *Session) activateEdits() {
	if !s.stale || s.leaf == tree.None {
		return
	}
	s.stale = false
	s.active = nil
	n := s.tree.Node(s.leaf)
	from := int32(0) // depth from which on entries are in the context
	if n.Mark != tree.None {
		from = s.tree.Node(n.Mark).Depth
		if k := s.firstKept(n.Mark); s.tree.OnStrict(k, n.Mark) {
			from = s.tree.Node(k).Depth
		}
	}
	for k, e := range s.edits {
		if s.tree.Node(e.entry).Depth < from || !s.tree.OnStrict(e.entry, s.leaf) {
			continue
		}
		if target := s.tree.Find(e.target); target != tree.None && weight(s.entries.At(target))[dialect.Context] > 0 {
			if s.active == nil {
				s.active = map[int32]int{}
			}
			s.active[target] = k
		}
	}
}

// Amendments implements dialect.Session.
func (s *Session) Amendments(v dialect.View, after uint64) []dialect.Amendment {
	newest := map[int]uint64{}
	note := func(i int32, sequence uint64) {
		if at, ok := s.slotOf(v, i); ok && sequence > after {
			newest[at] = max(newest[at], sequence)
		}
	}
	for k := len(s.usages) - 1; k >= 0 && s.usages[k].sequence > after; k-- {
		s.space.RelaxEvery(int32(k))
		note(s.usages[k].target, s.usages[k].sequence)
	}
	if v == dialect.Context {
		for target, k := range s.active {
			note(target, s.entries.At(s.edits[k].entry).sequence)
		}
	}
	out := make([]dialect.Amendment, 0, len(newest))
	for at, sequence := range newest {
		out = append(out, dialect.Amendment{Index: at, Sequence: sequence})
	}
	slices.SortFunc(out, func(a, b dialect.Amendment) int { return a.Index - b.Index })
	return out
}

// amendment returns what changed entry i after its own record.
func (s *Session) amendment(v dialect.View, i int32) (usage place, edited *edit) {
	if k, ok := s.usageOf[i]; ok {
		usage = s.usages[k].place
	}
	if v == dialect.Context {
		if k, ok := s.active[i]; ok {
			edited = &s.edits[k]
		}
	}
	return usage, edited
}

// usageMembers and costMembers are what an attribution copies.
var (
	usageMembers = []string{"input", "output", "cacheRead", "cacheWrite", "totalTokens"}
	costMembers  = []string{"input", "output", "cacheRead", "cacheWrite", "total"}
)

// cleanUsage copies the five counters and five costs of an aggregate.
func cleanUsage(aggregate []byte) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	copyMembers(&b, aggregate, usageMembers)
	if b.Len() > 1 {
		b.WriteByte(',')
	}
	b.WriteString(`"cost":{`)
	cost := jsonl.Get(aggregate, "cost")
	copyMembers(&b, cost.Bytes(aggregate), costMembers)
	b.WriteString("}}")
	return b.Bytes()
}

func copyMembers(b *bytes.Buffer, object []byte, names []string) {
	sep := ""
	for _, name := range names {
		if v := jsonl.Get(object, name); v.Present() {
			b.WriteString(sep + `"` + name + `":`)
			b.Write(v.Bytes(object))
			sep = ","
		}
	}
}

// setMember appends object to dst with one member replaced or added.
func setMember(dst, object []byte, name string, value []byte) []byte {
	if v := jsonl.Get(object, name); v.Present() {
		dst = append(dst, object[:v.Start]...)
		dst = append(dst, value...)
		return append(dst, object[v.End:]...)
	}
	end := bytes.LastIndexByte(object, '}')
	dst = append(dst, object[:end]...)
	if !bytes.Equal(bytes.TrimSpace(object[:end]), []byte("{")) {
		dst = append(dst, ',')
	}
	dst = append(dst, '"')
	dst = append(dst, name...)
	dst = append(dst, '"', ':')
	dst = append(dst, value...)
	return append(dst, '}')
}
