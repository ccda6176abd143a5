package jsonl

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
	values   []Value // of both levels

	m      machine
	unseen seenKeys
	repeat bool   // a key was met that has perhaps been seen
	buf    []byte // decoded keys
	second *stream
	out    Scan
	plain  Scan // what Plain returns
}

// NewScanner returns a scanner that reports the members k.
func NewScanner(k Keys) *Scanner {
	top, sub, subOf := newKeySets(k)
	s := &Scanner{
		keys:   k,
		values: make([]Value, len(top.names)+len(sub.names)),
		top:    newLevel(top, 1, subOf+1),
		sub:    newLevel(sub, 2, -1),
		second: newStream(Keys{}),
	}
	if subOf < 0 {
		s.top.sub = -1
	}
	s.out.Top, s.out.Sub = s.asked(s.values)
	s.plain = Scan{Kind: Object, Value: Value{Kind: Object}, InvalidUTF8: -1, LoneSurrogate: -1, DuplicateKey: -1}
	return s
}

// Scan validates text as exactly one JSON value with optional white space
// around it and reports the chosen members. It accepts exactly what
// encoding/json.Valid accepts. The result is good until the next Scan.
func (s *Scanner) Scan(text []byte) *Scan {
	s.begin(s.values)
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
	s.out.Kind, s.out.Value = v.Kind, v
	s.out.InvalidUTF8, s.out.LoneSurrogate = s.m.invalidUTF8, s.m.loneSurrogate
	s.out.DuplicateKey, s.out.ErrOffset, s.out.AtEnd = -1, 0, false
	if s.repeat {
		s.out.DuplicateKey = s.firstDuplicate(text)
	}
	return &s.out
}

// Object is Scan for the usual text and nothing else: one object without white
// space around it of which there is nothing to tell but its members. It writes
// their values, for Plain, where it is told; there must be room for Values.
// Where it reports false they are void, and Scan says what the text is.
func (s *Scanner) Object(text []byte, values []Value) bool {
	if len(text) == 0 || text[0] != '{' {
		return false
	}
	s.begin(values)
	return s.members(text, 1, &s.top) == len(text) &&
		s.m.invalidUTF8 < 0 && s.m.loneSurrogate < 0 && !s.repeat
}

// Values is how many values Object writes.
func (s *Scanner) Values() int { return len(s.values) }

// Plain returns the Scan of a text, with the values that Object wrote for it,
// in this scanner or another for the same keys. It is good until the next
// Plain.
func (s *Scanner) Plain(text []byte, values []Value) *Scan {
	s.plain.Value.End = len(text)
	s.plain.Top, s.plain.Sub = s.asked(values)
	return &s.plain
}

// asked returns those of the values that were asked for, parallel to Keys.
func (s *Scanner) asked(values []Value) (top, sub []Value) {
	n := len(values) - len(s.keys.Sub)
	return values[:len(s.keys.Top):len(s.keys.Top)], values[n:]
}

// Clone returns another scanner for the same keys.
func (s *Scanner) Clone() *Scanner { return NewScanner(s.keys) }

func (s *Scanner) begin(values []Value) {
	n := len(values) - len(s.keys.Sub)
	s.top.values, s.sub.values = values[:n], values[n:]
	clear(values)
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
				clear(s.sub.values)
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
		if j := k - 1; uint(j) < uint(len(l.values)) {
			l.values[j] = v
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
	clear(s.values)
	s.out.Kind, s.out.Value = Invalid, Value{}
	s.out.InvalidUTF8, s.out.LoneSurrogate, s.out.DuplicateKey = -1, -1, -1
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
