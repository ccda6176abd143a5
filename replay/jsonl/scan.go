package jsonl

import "slices"

// Scan is what a Scanner found in a text. It refers to the text by offsets.
type Scan struct {
	Kind  Kind  // of the whole text; Invalid when it is no JSON
	Value Value // the outermost value without white space around it

	// The members that were asked for, parallel to Keys. The last duplicate
	// wins. All absent when Kind is Invalid.
	Top, Sub []Value

	// Offsets of the first bad UTF-8 sequence, the first escape that is half
	// a surrogate pair, and the first key that repeats an earlier one of its
	// object; -1 when there is none, and when Kind is Invalid.
	InvalidUTF8, LoneSurrogate, DuplicateKey int

	// Where scanning stopped when Kind is Invalid: the offset of the byte that
	// cannot stand there, or the text's length when it ended too early, AtEnd.
	ErrOffset int
	AtEnd     bool
}

// Scanner scans texts for a choice of keys. It is made to be reused, by one
// goroutine at a time.
type Scanner struct {
	keys     Keys
	top, sub level
	values   []Value  // of both levels, for out and plain
	found    []Member // from own on those of the text at hand
	own      int

	m      machine
	unseen seenKeys
	repeat bool   // a key was met that has perhaps been seen
	buf    []byte // decoded keys
	second *stream
	out    Scan
}

// NewScanner returns a scanner that reports the members k.
func NewScanner(k Keys) *Scanner {
	top, sub, subOf := newKeySets(k)
	s := &Scanner{
		keys:   k,
		values: make([]Value, len(top.names)+len(sub.names)),
		top:    newLevel(top, 1, subOf+1, 0),
		sub:    newLevel(sub, 2, -1, len(top.names)),
		second: newStream(Keys{}),
	}
	if subOf < 0 {
		s.top.sub = -1
	}
	s.out.Top, s.out.Sub = s.values[:len(k.Top):len(k.Top)], s.values[len(top.names):]
	return s
}

// Scan validates text as exactly one JSON value with optional white space
// around it and reports the chosen members. It accepts exactly what
// encoding/json.Valid accepts. The result is good until the next Scan.
func (s *Scanner) Scan(text []byte) *Scan {
	s.begin(s.found[:0])
	i := space(text, 0)
	v := Value{Start: i}
	if i < len(text) && text[i] == '{' {
		v.Kind, v.End = Object, s.members(text, i+1, &s.top)
	} else {
		v = s.m.value(text, i, 0)
	}
	if v.Kind == Invalid || v.End < 0 || space(text, v.End) < len(text) {
		return s.fail(text)
	}
	s.tell(v, s.found)
	s.out.InvalidUTF8, s.out.LoneSurrogate = s.m.invalidUTF8, s.m.loneSurrogate
	if s.repeat {
		s.out.DuplicateKey = s.firstDuplicate(text)
	}
	return &s.out
}

// Member is a member that was asked for, with its value in the text.
type Member struct {
	index      uint8 // among those of both levels
	kind       Kind
	escaped    bool
	start, end int
}

// Object is Scan for the usual text and nothing else: one object without white
// space around it of which there is nothing to tell but its members. It appends
// those that were asked for and are there, for Plain, to members. Where ok is
// false, Scan says what the text is.
func (s *Scanner) Object(text []byte, members []Member) (_ []Member, ok bool) {
	if len(text) == 0 || text[0] != '{' {
		return members, false
	}
	kept := s.found
	s.begin(members)
	if s.members(text, 1, &s.top) == len(text) && s.m.invalidUTF8 < 0 && s.m.loneSurrogate < 0 && !s.repeat {
		members, ok = s.found, true
	}
	s.found = kept
	return members, ok
}

// Plain returns the Scan of a text in which Object, of this scanner or another
// for the same keys, found the members. It is good until the next Scan.
func (s *Scanner) Plain(text []byte, members []Member) *Scan {
	s.tell(Value{Kind: Object, End: len(text)}, members)
	return &s.out
}

// tell reports a value of which there is nothing to tell but its members.
func (s *Scanner) tell(v Value, members []Member) {
	clear(s.values)
	for i := range members {
		m := &members[i]
		s.values[m.index] = Value{m.kind, m.escaped, m.start, m.end}
	}
	s.out.Kind, s.out.Value = v.Kind, v
	s.out.InvalidUTF8, s.out.LoneSurrogate, s.out.DuplicateKey = -1, -1, -1
	s.out.ErrOffset, s.out.AtEnd = 0, false
}

// Clone returns another scanner for the same keys.
func (s *Scanner) Clone() *Scanner { return NewScanner(s.keys) }

// begin makes ready for a text whose members are appended to found.
func (s *Scanner) begin(found []Member) {
	s.found, s.own = found, len(found)
	s.m.reset()
	s.unseen.reset()
	s.repeat = false
}

// members reads a reported object from behind its opening bracket. It is
// machine.container for one object, with a look at each key.
func (s *Scanner) members(t []byte, i int, l *level) int {
	l.seen = 0
	if i = space(t, i); uint(i) < uint(len(t)) && t[i] == '}' {
		return i + 1
	}
	for k := 0; ; {
		follow := &l.follow[k&levelKeysMax]
		k = int(follow[0])
		q := &l.quoted[k&levelKeysMax]
		if !q.at(t, i) {
			follow[0], follow[1] = follow[1], follow[0]
			k = int(follow[0])
			q = &l.quoted[k&levelKeysMax]
			if !q.at(t, i) {
				if k, i = s.key(t, i, l); i < 0 {
					return -1
				}
				follow[0] = uint8(k)
				q = &l.quoted[0]
			}
		}
		i += q.size
		bit := uint64(1) << (k & levelKeysMax) &^ 1 // none for a key that is not in the set
		if l.seen&bit != 0 {
			s.repeat = true
			if k == l.sub {
				s.forgetSub()
			}
		}
		l.seen |= bit

		if i = space(t, i); uint(i) >= uint(len(t)) {
			return -1
		}
		v := Value{Start: i}
		switch t[i] {
		case '"':
			v.Kind = String
			v.End, v.Escaped = s.m.str(t, i+1)
		case '{':
			v.Kind = Object
			if k != l.sub {
				v.End = s.m.container(t, i, l.depth)
			} else {
				v.End = s.members(t, i+1, &s.sub)
			}
		case '[':
			v.Kind = Array
			v.End = s.m.container(t, i, l.depth)
		default:
			v.Kind, v.End = scalar(t, i)
		}
		if j := k - 1; uint(j) < uint(l.asked) {
			s.found = append(s.found, Member{uint8(l.base + j), v.Kind, v.Escaped, v.Start, v.End})
		}
		if i = space(t, v.End); uint(i) >= uint(len(t)) { // also v.End < 0
			return -1
		}
		if t[i] != ',' {
			if t[i] == '}' {
				return i + 1
			}
			return -1
		}
		i = space(t, i+1)
	}
}

// forgetSub forgets what was found in a member SubOf: there is another.
func (s *Scanner) forgetSub() {
	own := slices.DeleteFunc(s.found[s.own:], func(m Member) bool { return int(m.index) >= s.sub.base })
	s.found = s.found[:s.own+len(own)]
}

// key reads a key with its colon. It returns the key's number in the level,
// and notes whether a key that has none may be a repeated one.
func (s *Scanner) key(t []byte, i int, l *level) (k, next int) {
	if uint(i) >= uint(len(t)) || t[i] != '"' {
		return 0, -1
	}
	end, escaped := s.m.str(t, i+1)
	next = space(t, end)
	if uint(next) >= uint(len(t)) || t[next] != ':' { // also end < 0
		return 0, -1
	}
	name := t[i+1 : end-1]
	first := word(t, i+1)
	if len(name) < 8 {
		first &= 1<<(8*len(name)) - 1
	}
	if escaped || first&highBits != 0 || len(name) > 8 && !ascii(name[8:]) {
		s.buf = keyText(s.buf[:0], t[i:end])
		name, first = s.buf, firstWord(s.buf)
	}
	if k = l.find(name, first) + 1; k > 0 {
		return k, next + 1
	}
	if k = l.learn(name); k == 0 && s.unseen.add(name, first, uint64(l.depth)<<62) {
		s.repeat = true
	}
	return k, next + 1
}

func ascii(p []byte) bool {
	var all byte
	for _, c := range p {
		all |= c
	}
	return all < 0x80
}

// fail is the second look at a text that is no JSON.
func (s *Scanner) fail(text []byte) *Scan {
	s.tell(Value{}, nil)
	s.second.reset()
	s.second.write(text)
	s.out.AtEnd = !s.second.failed
	s.out.ErrOffset = int(s.second.offset)
	return &s.out
}

// firstDuplicate is the second look at an object in which a key seemed to
// repeat: the offset of the first key that really does, or -1.
func (s *Scanner) firstDuplicate(text []byte) int {
	first := -1
	look := func(object []byte, at int, each func(name string, v Value)) {
		seen := make(map[string]bool)
		eachMember(object, func(k, v Value) bool {
			name := string(keyText(nil, object[k.Start:k.End]))
			if seen[name] && (first < 0 || at+k.Start < first) {
				first = at + k.Start
			}
			seen[name] = true
			if each != nil {
				each(name, v)
			}
			return true
		})
	}
	look(text, 0, func(name string, v Value) {
		if s.top.sub > 0 && name == s.keys.SubOf && v.Kind == Object {
			look(v.Bytes(text), v.Start, nil)
		}
	})
	return first
}
