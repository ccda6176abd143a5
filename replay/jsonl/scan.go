package jsonl

import (
	"strings"
	"unicode/utf8"
)

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
	subOf    int     // index in top of the member that holds sub, or -1
	values   []Value // of both levels

	m      machine
	seen   seenKeys
	repeat bool   // a key was met that has perhaps been seen
	buf    []byte // decoded keys
	second *stream
	out    Scan
}

// level is an object whose members are reported.
type level struct {
	keySet
	depth  int
	values []Value // by name

	// Lines of a session repeat their keys in the same order. So the key that
	// came next the last time is compared first, as it stands in a line, and
	// only a surprise is scanned and looked up.
	quoted []string // by name: "name": ; empty for a name that needs escapes
	follow []int    // by 1 + index of the key before: the expected index or -1
}

func newLevel(k keySet, depth int, values []Value) level {
	l := level{keySet: k, depth: depth, values: values, follow: []int{-1}}
	for _, name := range k.names {
		quoted := ""
		if utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' }) {
			quoted = `"` + name + `":`
		}
		l.quoted = append(l.quoted, quoted)
		l.follow = append(l.follow, -1)
	}
	return l
}

// NewScanner returns a scanner that reports the members k.
func NewScanner(k Keys) *Scanner {
	top, sub, subOf := newKeySets(k)
	values := make([]Value, len(top.names)+len(sub.names))
	s := &Scanner{
		keys:   k,
		top:    newLevel(top, 1, values[:len(top.names)]),
		sub:    newLevel(sub, 2, values[len(top.names):]),
		subOf:  subOf,
		values: values,
		second: newStream(Keys{}),
	}
	s.out.Top, s.out.Sub = s.top.values[:len(k.Top):len(k.Top)], s.sub.values
	return s
}

// Scan validates text as exactly one JSON value with optional white space
// around it and reports the chosen members. It accepts exactly what
// encoding/json.Valid accepts. The result is good until the next Scan.
func (s *Scanner) Scan(text []byte) *Scan {
	s.begin()
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
	if s.repeat {
		s.out.DuplicateKey = s.firstDuplicate(text)
	}
	return &s.out
}

func (s *Scanner) begin() {
	s.m.reset()
	s.seen.reset()
	s.repeat = false
	clear(s.values)
	s.out.Kind, s.out.Value = Invalid, Value{}
	s.out.InvalidUTF8, s.out.LoneSurrogate, s.out.DuplicateKey = -1, -1, -1
	s.out.ErrOffset, s.out.AtEnd = 0, false
}

// members reads a reported object from behind its opening bracket. It is
// machine.container for one object, with a look at each key.
func (s *Scanner) members(t []byte, i int, l *level) int {
	if i = space(t, i); i < len(t) && t[i] == '}' {
		return i + 1
	}
	for previous := -1; ; {
		k := l.follow[previous+1]
		if k >= 0 && i+len(l.quoted[k]) <= len(t) && string(t[i:i+len(l.quoted[k])]) == l.quoted[k] {
			i += len(l.quoted[k])
			s.repeat = s.repeat || l.values[k].Kind != Invalid
		} else {
			if k, i = s.key(t, i, l); i < 0 {
				return -1
			}
			if k >= 0 && l.quoted[k] != "" {
				l.follow[previous+1] = k
			}
		}
		previous = k

		var v Value
		if i = space(t, i); k < 0 || k != s.subOf || l.depth != 1 {
			v = s.m.value(t, i, l.depth)
		} else {
			v = s.subValue(t, i)
		}
		if v.Kind == Invalid {
			return -1
		}
		if k >= 0 {
			l.values[k] = v
		}
		i = space(t, v.End)
		if uint(i) >= uint(len(t)) {
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

// subValue reads the value of the member SubOf.
func (s *Scanner) subValue(t []byte, i int) Value {
	if s.top.values[s.subOf].Present() { // a duplicate came before
		clear(s.sub.values)
	}
	if i >= len(t) || t[i] != '{' {
		return s.m.value(t, i, 1)
	}
	end := s.members(t, i+1, &s.sub)
	if end < 0 {
		return Value{}
	}
	return Value{Kind: Object, Start: i, End: end}
}

// key reads a key with its colon. It returns the key's index in the level, or
// -1, and notes whether it may be a repeated one.
func (s *Scanner) key(t []byte, i int, l *level) (k, next int) {
	if uint(i) >= uint(len(t)) || t[i] != '"' {
		return -1, -1
	}
	end, escaped := s.m.str(t, i+1)
	next = space(t, end)
	if uint(next) >= uint(len(t)) || t[next] != ':' { // also end < 0
		return -1, -1
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
	if k = l.find(name, first); k >= 0 {
		s.repeat = s.repeat || l.values[k].Kind != Invalid
	} else if s.seen.add(name, first, uint64(l.depth)<<62) {
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
	s.begin()
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
		if s.subOf >= 0 && name == s.keys.SubOf && v.Kind == Object {
			look(v.Bytes(text), v.Start, nil)
		}
	})
	return first
}
