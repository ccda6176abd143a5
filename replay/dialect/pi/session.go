package pi

import (
	"math"

	"sessiond/replay/dialect"
	"sessiond/replay/dialect/tree"
	"sessiond/replay/jsonl"
	"sessiond/replay/pages"
)

// Session is the understanding of one pi file.
type Session struct {
	version int // 0: not known yet
	header  header
	space   *pages.Space
	entries pages.List[entry]
	tree    *tree.Index
	linked  uint64          // sequence of the last entry at the last commit
	big     map[int32]int64 // length of entries over the record limit
	skipped int64           // entries without an id

	// v1 only: index among the parsed lines -> entry, None for other lines.
	byIndex pages.List[int32]

	lastID   []byte // of the last entry, as it is written
	lastHash uint64 // 0: lastID is of no use

	leaf        int32
	was         int32 // the leaf at the last commit
	heads       heads
	views       [dialect.Views]view
	compactions map[int32]*compaction
	compacted   []int32         // the compactions, in file order
	edits       []edit          // in file order
	edited      map[uint64]bool // hashes of ids that edits name
	active      map[int32]int   // edited entry -> its edit in the context's range
	stale       bool            // active must be computed again
	usages      []attribution   // in file order
	usageOf     map[int32]int   // assistant entry -> its last attribution

	name, status place
	newest       timeMax
	first        timeMin
	branches     int
	diagnostics  []jsonl.Diagnostic
	dropped      bool // there were more diagnostics than are held
}

// diagnosticsMax bounds the findings that a session holds.
const diagnosticsMax = 10_000

type header struct {
	found      bool   // a session record with a string id
	id         uint64 // its hash
	place      place
	badID      bool
	newer      bool
	versionSet bool
}

// place is a range of the file that is read again when it is wanted.
type place struct {
	sequence uint64
	offset   int64
	bytes    int64
}

func placeOf(o dialect.Object) place { return place{o.Sequence, o.Offset, o.Bytes} }

func (p place) known() bool { return p.bytes > 0 }

func newSession(hint int, space *pages.Space) *Session {
	s := &Session{
		version:     hint,
		space:       space,
		entries:     pages.New[entry](space),
		byIndex:     pages.New[int32](space),
		tree:        tree.New(space),
		big:         map[int32]int64{},
		leaf:        tree.None,
		was:         tree.None,
		heads:       noHeads(),
		edited:      map[uint64]bool{},
		compactions: map[int32]*compaction{},
		usageOf:     map[int32]int{},
	}
	for v := range s.views {
		s.views[v].keep = dialect.All
		s.views[v].slots = pages.New[dialect.Slot](space)
	}
	return s
}

// Add implements dialect.Session.
func (s *Session) Add(o *dialect.Object) (again bool, err error) {
	top, sub, line := s.values(o)
	if is(line, top[keyType], "session") {
		return false, s.addHeader(*o, top, line)
	}
	if s.version == 0 {
		s.version = 1
		if top[keyID].Present() && top[keyID].Kind != jsonl.Null {
			s.version = 3
		}
	}
	id := idHash(line, top[keyID])
	if s.version > 1 && id == 0 {
		s.skipped++
		s.report(jsonl.CodeEntryWithoutID, *o, "an entry without an id is no place in the tree")
		return false, nil
	}
	var e entry
	s.classify(&e, o, top, sub, line)
	if e.kind == kindNoMessage {
		s.report(jsonl.CodeMessageMissing, *o, "a message entry without a message shows nothing; its place in the tree stays")
	}
	link := tree.Entry{ID: id, Linear: true}
	if s.version > 1 { // before, ids are no links, but amendments name them
		link = s.linkOf(id, top, line)
	}
	link.Marked = e.kind == kindCompaction
	link.Weight = weight(&e)
	branch, opens := s.branchAt(link)
	if branch {
		e.flags |= flagBranch
	}
	if opens {
		s.branches++
	}
	s.stale = s.stale || (len(s.edited) > 0 && s.edited[link.ID])
	i, at := s.entries.Add()
	*at = e
	if e.flags&flagBig != 0 {
		s.big[i] = o.Bytes
	}
	s.noteIndex(o.Index, i)
	if _, again = s.tree.Add(link); again {
		s.report(jsonl.CodeDuplicateID, *o, "an earlier entry has the same id; links go to the last one")
	}
	if e.kind > kindBranchSummary { // the kinds before are nothing special
		s.special(i, *o, top, line)
	}
	s.noteTime(e.role, line, top[keyTime])
	if !s.tree.Dirty() {
		s.advance(i)
	}
	return again, nil
}

// linkOf says what an entry names: nearly always the entry before it, whose id
// is not hashed and looked up again.
func (s *Session) linkOf(id uint64, top []jsonl.Value, line []byte) tree.Entry {
	link := tree.Entry{ID: id}
	parent := top[keyParent]
	if n := s.entries.Len(); parent.Kind == jsonl.String && s.lastHash != 0 && string(parent.Bytes(line)) == string(s.lastID) {
		link.Parent, link.Found = s.lastHash, n-1
	} else {
		link.Parent = s.parentHash(line, parent)
		link.Found = s.tree.Find(link.Parent)
	}
	s.lastHash = 0
	if v := top[keyID]; v.Kind == jsonl.String && v.End-v.Start <= lastIDMax && !(s.header.found && id == s.header.id) {
		s.lastID, s.lastHash = append(s.lastID[:0], v.Bytes(line)...), id
	}
	return link
}

// lastIDMax bounds the id that is held, quotes included.
const lastIDMax = 64

// classify fills the index entry of an object. It changes nothing else.
func (s *Session) classify(e *entry, o *dialect.Object, top, sub []jsonl.Value, line []byte) {
	e.offset, e.sequence, e.bytes, e.kind = o.Offset, o.Sequence, uint32(len(o.Text)), kindUnknown
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
	if e.kind == kindBranchSummary && o.Oversized == nil && !truthy(line, top[keySummary]) {
		e.kind = kindSilent
	}
	if e.kind == kindMessage {
		s.classifyMessage(e, o, top[keyMessage], sub, line)
	}
}

func (s *Session) classifyMessage(e *entry, o *dialect.Object, m jsonl.Value, sub []jsonl.Value, line []byte) {
	if m.Kind != jsonl.Object {
		e.kind = kindNoMessage
		return
	}
	if o.Oversized == nil {
		e.bodyAt, e.bodyLen = uint32(m.Start), uint32(m.End-m.Start)
	}
	if r := sub[subRole]; r.Kind == jsonl.String {
		e.role = roleOf(string(r.Plain(line)))
	}
	if e.role == roleHook && s.version >= 3 {
		e.role = roleOther
	}
}

// weightSystem is the weight of system messages, beside those of the views.
const weightSystem = int(dialect.Views)

// weight says how many slots an entry is in each view, but for the summary
// that a compaction puts before the context, and whether it is a system
// message, which some compactions leave out.
func weight(e *entry) tree.Weight {
	switch e.kind {
	case kindMessage, kindCustomMessage, kindBranchSummary:
		if e.role == roleSystem {
			return tree.Weight{1, 1, 1}
		}
		return tree.Weight{1, 1}
	case kindCompaction:
		return tree.Weight{1}
	}
	return tree.Weight{}
}

// branchAt reports whether the next entry is on a branch of which no message
// was seen yet, and whether it opens that branch. It looks at what stands in
// the file up to here only, so that a message's meta never changes.
func (s *Session) branchAt(link tree.Entry) (branch, opens bool) {
	if link.Linear || link.Parent == 0 {
		return false, false
	}
	last := s.entries.Len() - 1
	switch link.Found {
	case tree.None:
		return false, false
	case last:
	default:
		return true, true
	}
	prev := s.entries.At(last)
	return prev.flags&flagBranch != 0 && weight(prev)[dialect.Transcript] == 0, false
}

// noteIndex keeps the version-1 table of parsed lines.
func (s *Session) noteIndex(index int64, i int32) {
	if s.version != 1 || index < 0 {
		return
	}
	for int64(s.byIndex.Len()) < min(index, math.MaxInt32) {
		s.space.RelaxEvery(s.byIndex.Len())
		s.byIndex.Append(tree.None)
	}
	if index >= math.MaxInt32 { // further on nothing is found by its index
		return
	}
	s.byIndex.Append(i)
}

// special keeps what a few kinds of entries say.
func (s *Session) special(i int32, o dialect.Object, top []jsonl.Value, line []byte) {
	e := s.entries.At(i)
	if e.kind == kindCompaction {
		s.compactions[i] = readCompaction(o, top, line)
		s.compacted = append(s.compacted, i)
		return
	}
	if o.Oversized != nil { // of the other kinds none is believed at such a size
		return
	}
	switch e.kind {
	case kindContextEdit:
		s.addEdit(i, o)
	case kindChildUsage:
		s.addUsage(i, o)
	case kindInfo:
		if name := jsonl.Get(o.Text, "name"); name.Present() && name.Kind != jsonl.String {
			s.report(jsonl.CodeNameNotString, o, "a name that is no string is no name")
		}
		s.name = placeOf(o)
	case kindState:
		if statusOf(o.Text) == "" {
			s.report(jsonl.CodeStateMissing, o, "a session_state without a valid state changes nothing")
			return
		}
		s.status = placeOf(o)
	}
}

// Commit implements dialect.Session.
func (s *Session) Commit() {
	if s.tree.Dirty() {
		s.relink()
	} else {
		s.updateSlots()
	}
	if s.heads.leaf != s.leaf {
		s.findHeads()
	}
	s.activateEdits()
	if n := s.entries.Len(); n > 0 {
		s.linked = s.entries.At(n - 1).sequence
	}
	s.was = s.leaf
	s.space.Relax()
}

// report notes a finding about an object.
func (s *Session) report(code jsonl.Code, o dialect.Object, detail string) {
	s.diagnose(code, placeOf(o), detail)
}

func (s *Session) diagnose(code jsonl.Code, p place, detail string) {
	if len(s.diagnostics) >= diagnosticsMax {
		s.dropped = true
		return
	}
	s.diagnostics = append(s.diagnostics, jsonl.Diagnostic{
		Code: code, Severity: code.Severity(), Line: int64(p.sequence),
		Offset: p.offset, Length: p.bytes, Detail: detail,
	})
}

// What an element of the maps and lists of rarer things costs, about.
const (
	rareBytes        = 64
	diagnosticsBytes = 160
	sessionBytes     = 2 << 10
)

// Bytes implements dialect.Session.
func (s *Session) Bytes() int64 {
	n := s.entries.Bytes() + s.tree.Bytes() + s.byIndex.Bytes()
	for v := range s.views {
		n += s.views[v].bytes()
	}
	rare := len(s.big) + 2*len(s.compactions) + 2*len(s.edits) + 2*len(s.usages)
	return n + int64(rare)*rareBytes + int64(len(s.diagnostics))*diagnosticsBytes + sessionBytes
}
