package jsonl

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// depthMax is how deep containers may nest, as in encoding/json.
const depthMax = 10_000

// machine checks JSON values inside a text, forwards, each byte once. Every
// method takes the text and a position and returns the position after what it
// read, or -1 if that is not there. Where and why a text fails is not its
// business: bad lines are rare and get a slower second look.
//
// It writes down what it meets and JSON allows: the first offset of invalid
// UTF-8 and of half a surrogate pair (-1: none). Only positions before a
// failure are meaningful.
type machine struct {
	invalidUTF8, loneSurrogate int

	stack [(depthMax + 63) / 64]uint64 // bit d: the container at depth d is an object
}

func (m *machine) reset() { m.invalidUTF8, m.loneSurrogate = -1, -1 }

// space skips white space.
func space(t []byte, i int) int {
	if uint(i) < uint(len(t)) && t[i] <= ' ' {
		return skipSpace(t, i)
	}
	return i
}

func skipSpace(t []byte, i int) int {
	for i < len(t) && (t[i] == ' ' || t[i] == '\t' || t[i] == '\r' || t[i] == '\n') {
		i++
	}
	return i
}

// value reads any value; depth containers are open around it. Its Kind is
// Invalid when there is none.
func (m *machine) value(t []byte, i, depth int) Value {
	if uint(i) >= uint(len(t)) {
		return Value{}
	}
	v := Value{Start: i}
	switch t[i] {
	case '"':
		v.Kind = String
		v.End, v.Escaped = m.str(t, i+1)
	case '{':
		v.Kind = Object
		v.End = m.container(t, i, depth)
	case '[':
		v.Kind = Array
		v.End = m.container(t, i, depth)
	default:
		v.Kind, v.End = scalar(t, i)
	}
	if v.End < 0 {
		return Value{}
	}
	return v
}

// container reads the object or array that starts at t[i], with all inside.
// It is a state machine in gotos with the open containers as a bit stack: no
// recursion, so depth costs nothing, and no state variable to dispatch on.
func (m *machine) container(t []byte, i, depth int) int {
	base := depth
	object := false
open: // at a bracket
	if depth == depthMax {
		return -1
	}
	object = t[i] == '{'
	m.push(depth, object)
	depth++
	i = space(t, i+1)
	if uint(i) >= uint(len(t)) {
		return -1
	}
	if object {
		if t[i] == '}' {
			goto closed
		}
		goto key
	}
	if t[i] == ']' {
		goto closed
	}
value: // at a value
	if uint(i) >= uint(len(t)) {
		return -1
	}
	switch t[i] {
	case '"':
		i, _ = m.str(t, i+1)
	case '{', '[':
		goto open
	default:
		_, i = scalar(t, i)
	}
after: // behind a value
	i = space(t, i)
	if uint(i) >= uint(len(t)) { // also i < 0
		return -1
	}
	if t[i] == ',' {
		i = space(t, i+1)
		if !object {
			goto value
		}
		goto key
	}
	if object && t[i] != '}' || !object && t[i] != ']' {
		return -1
	}
closed: // at a closing bracket
	i++
	depth--
	if depth == base {
		return i
	}
	object = m.object(depth - 1)
	goto after
key: // at a key
	if uint(i) >= uint(len(t)) || t[i] != '"' {
		return -1
	}
	i, _ = m.str(t, i+1)
	i = space(t, i)
	if uint(i) >= uint(len(t)) || t[i] != ':' {
		return -1
	}
	i = space(t, i+1)
	goto value
}

func (m *machine) push(depth int, object bool) {
	bit := uint64(1) << (depth % 64)
	if object {
		m.stack[depth/64] |= bit
	} else {
		m.stack[depth/64] &^= bit
	}
}

func (m *machine) object(depth int) bool { return m.stack[depth/64]>>(depth%64)&1 != 0 }

// str reads a string from behind its opening quote to behind its closing one.
func (m *machine) str(t []byte, i int) (end int, escaped bool) {
	start := i
	var seen uint64 // all bytes or-ed, some behind the end too: the high bits say whether to check UTF-8
	for {
		// Two words a turn; most keys and ids end in the first turn. Which of
		// the words has the stop is chance, so it is not asked in a branch.
		if p := t[i:]; len(p) >= 16 {
			x, y := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
			stopX, stopY := stops(x), stops(y)
			seen |= x | y
			if stopX|stopY == 0 {
				i += 16
				continue
			}
			inY := -((stopX - 1) &^ stopX >> 63) // all ones if x has no stop
			i += bits.TrailingZeros64(stopX)/8 + bits.TrailingZeros64(stopY)/8&int(inY)
		} else { // the end of t is near
			x := word(t, i)
			stop := stops(x)
			seen |= x
			i += bits.TrailingZeros64(stop) / 8
			if stop == 0 {
				continue
			}
			if i >= len(t) {
				return -1, false
			}
		}
		switch t[i] {
		case '"':
			if seen&highBits != 0 {
				m.checkUTF8(t, start, i)
			}
			return i + 1, escaped
		case '\\':
			escaped = true
			if i+1 < len(t) && simpleEscape[t[i+1]] != 0 {
				i += 2
			} else if i = m.unicode(t, i); i < 0 {
				return -1, false
			}
		default: // a control character
			return -1, false
		}
	}
}

// unicode reads the escape \uXXXX at t[i], or both of a pair.
func (m *machine) unicode(t []byte, i int) int {
	_, n, lone := unicodeEscape(t[i:])
	if n == 0 {
		return -1
	}
	if lone && m.loneSurrogate < 0 {
		m.loneSurrogate = i
	}
	return i + n
}

// checkUTF8 notes the first bad sequence of a string's text.
func (m *machine) checkUTF8(t []byte, start, end int) {
	if m.invalidUTF8 >= 0 || utf8.Valid(t[start:end]) {
		return
	}
	for start < end {
		r, n := utf8.DecodeRune(t[start:end])
		if r == utf8.RuneError && n == 1 {
			break
		}
		start += n
	}
	m.invalidUTF8 = start
}

// scalar reads a number or a literal.
func scalar(t []byte, i int) (Kind, int) {
	switch t[i] {
	case 't':
		if i+4 <= len(t) && string(t[i:i+4]) == "true" {
			return True, i + 4
		}
	case 'f':
		if i+5 <= len(t) && string(t[i:i+5]) == "false" {
			return False, i + 5
		}
	case 'n':
		if i+4 <= len(t) && string(t[i:i+4]) == "null" {
			return Null, i + 4
		}
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return Number, number(t, i)
	}
	return Invalid, -1
}

func number(t []byte, i int) int {
	if t[i] == '-' {
		i++
	}
	if i < len(t) && t[i] == '0' {
		i++
	} else if i = digits(t, i); i < 0 {
		return -1
	}
	if i < len(t) && t[i] == '.' {
		if i = digits(t, i+1); i < 0 {
			return -1
		}
	}
	if i < len(t) && t[i]|0x20 == 'e' {
		i++
		if i < len(t) && (t[i] == '+' || t[i] == '-') {
			i++
		}
		i = digits(t, i)
	}
	return i
}

// digits reads one digit or more.
func digits(t []byte, i int) int {
	start := i
	for i+8 <= len(t) {
		n := bits.TrailingZeros64(noDigits(binary.LittleEndian.Uint64(t[i:]))) / 8
		if i += n; n < 8 {
			break
		}
	}
	for i < len(t) && t[i]-'0' <= 9 {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// noDigits marks the first byte of a word that is no digit, as stops does.
func noDigits(x uint64) uint64 {
	x ^= '0' * lowBits
	return (x + (0x80-10)*lowBits | x) & highBits
}
