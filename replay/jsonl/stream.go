package jsonl

import (
	"math/bits"
	"unicode/utf8"
)

// scalarBytesMax is how long the raw text of a scalar in an oversized record
// may be to be held.
const scalarBytesMax = 1 << 10

// Oversized is what a scan in passing found in a record over the record limit.
type Oversized struct {
	Valid bool // exactly one JSON value, as Scanner.Scan has it
	Kind  Kind // of the value; of what it began as when it is not valid
	AtEnd bool // not valid because it ended too early

	// The members that were asked for, parallel to Keys; the last duplicate
	// wins. All absent when the record is not valid.
	Top, Sub []OversizedValue

	InvalidUTF8, LoneSurrogate bool
}

// OversizedValue is a value of an oversized record: its place relative to the
// start of the line, and the raw text of a scalar of at most 1 KiB.
type OversizedValue struct {
	Kind       Kind
	Escaped    bool
	Start, End int64
	Raw        []byte
}

// Present reports whether there is a value.
func (v OversizedValue) Present() bool { return v.Kind != Invalid }

// stream validates a text that arrives in pieces, in constant memory but for
// the chosen scalars. It is the second scanner of this package: it serves
// records that are never held, and it finds the place where bad ones fail, so
// it is written for that, a state per byte, and not for speed. What is whole
// in a piece and was not asked for, it leaves to a machine, whose verdict is
// its own.
type stream struct {
	top, sub    keySet
	subOf       int
	topLen      int // without a SubOf that nobody asked for itself
	rawBytesMax int // of a token that is held

	offset int64 // bytes taken; the failing byte's offset after a failure
	failed bool
	state  streamState
	depth  int
	stack  [(depthMax + 63) / 64]uint64
	kind   Kind // of the outermost value

	topValues, subValues []OversizedValue
	key                  int                // index of the last key read at the reported levels, or -1
	inSub                bool               // inside the member SubOf, an object
	held                 [3]*OversizedValue // by depth: the value being read there
	token                tokenState
	invalidUTF8          bool
	loneSurrogate        bool

	m      machine
	missed int // values that were not whole in the piece at hand
}

// missesMax is how many values of a piece the machine may try in vain: each
// may reach to the end of the piece, and contain the next.
const missesMax = 4

// tokenState is the token being read.
type tokenState struct {
	raw     []byte // its text, while holding
	holding bool
	isKey   bool
	escaped bool
	literal string    // what is still to come of a literal
	utf8    utf8State // of a string's bytes
	hex     rune      // of a unicode escape, so far
	digits  int       // of a unicode escape, still to come
	high    bool      // a string's last escape was the first half of a pair
}

type streamState uint8

const (
	atValue    streamState = iota
	atElement              // a value or the end of an empty array
	atMember               // a key or the end of an empty object
	atKey                  // a key
	atColon                // behind a key
	afterValue             // inside a container
	atEnd                  // behind the outermost value
	inString
	inEscape
	inHex
	inLiteral
	inMinus
	inZero
	inDigits
	inPoint
	inFraction
	inE
	inSign
	inExponent
)

func newStream(k Keys) *stream {
	v := &stream{topLen: len(k.Top), rawBytesMax: scalarBytesMax}
	v.top, v.sub, v.subOf = newKeySets(k)
	for _, names := range [][]string{v.top.names, v.sub.names} {
		for _, name := range names {
			v.rawBytesMax = max(v.rawBytesMax, 6*len(name)+2) // all of it escaped
		}
	}
	v.topValues = make([]OversizedValue, len(v.top.names))
	v.subValues = make([]OversizedValue, len(v.sub.names))
	v.reset()
	return v
}

func (v *stream) reset() {
	clear(v.topValues)
	clear(v.subValues)
	clear(v.held[:])
	v.offset, v.failed, v.state, v.depth, v.kind = 0, false, atValue, 0, Invalid
	v.key, v.inSub = -1, false
	v.token = tokenState{raw: v.token.raw[:0]}
	v.invalidUTF8, v.loneSurrogate = false, false
}

// write takes the next piece. It stops at the first byte that cannot stand
// where it does: failed, and offset is its place.
func (v *stream) write(p []byte) {
	v.missed = 0
	for len(p) > 0 && !v.failed {
		n := 0
		switch v.state {
		case inString:
			n = v.plain(p)
		case atValue, atElement:
			n = v.whole(p)
		}
		if n == 0 {
			n = 1
			if v.failed = !v.step(p[0]); v.failed {
				return
			}
		}
		v.offset += int64(n)
		p = p[n:]
	}
}

// plain takes the text that p starts with, as far as it is whole characters
// and escapes of two bytes; what is plain ASCII, eight bytes a turn.
func (v *stream) plain(p []byte) int {
	if v.token.utf8.want > 0 || v.token.high {
		return 0
	}
	n := 0
	for more := true; more && n < len(p); {
		x := word(p, n)
		stop := stops(x) | x&highBits
		n += bits.TrailingZeros64(stop) / 8 // 8 when there is none
		if stop == 0 || n == len(p) {
			continue
		}
		size := 0
		if p[n] >= utf8.RuneSelf {
			if r, width := utf8.DecodeRune(p[n:]); r != utf8.RuneError || width > 1 {
				size = width
			}
		} else if p[n] == '\\' && n+1 < len(p) && simpleEscape[p[n+1]] != 0 {
			v.token.escaped = true
			size = 2
		}
		n += size
		more = size > 0
	}
	v.hold(p[:n])
	return n
}

// whole takes the value that p starts with if nobody asked for it and all of
// it is there, else nothing.
func (v *stream) whole(p []byte) int {
	asked := v.depth == 0 || v.depth < len(v.held) && v.key >= 0 && v.object(v.depth-1)
	if asked || v.missed == missesMax || p[0] <= ' ' || p[0] == ']' {
		return 0
	}
	v.m.reset()
	value := v.m.value(p, 0, v.depth)
	if !value.Present() || value.Kind == Number && value.End == len(p) {
		v.missed++
		return 0
	}
	v.state = afterValue
	v.invalidUTF8 = v.invalidUTF8 || v.m.invalidUTF8 >= 0
	v.loneSurrogate = v.loneSurrogate || v.m.loneSurrogate >= 0
	return value.End
}

// result reports what was seen once the last piece was written.
func (v *stream) result() *Oversized {
	valid := !v.failed && v.complete()
	o := &Oversized{
		Valid: valid, Kind: v.kind, AtEnd: !valid && !v.failed,
		Top: make([]OversizedValue, v.topLen), Sub: make([]OversizedValue, len(v.subValues)),
	}
	if valid {
		copy(o.Top, v.topValues)
		copy(o.Sub, v.subValues)
		o.InvalidUTF8, o.LoneSurrogate = v.invalidUTF8, v.loneSurrogate
	}
	return o
}

// complete reports whether the text may end here.
func (v *stream) complete() bool {
	switch v.state {
	case atEnd:
		return true
	case inZero, inDigits, inFraction, inExponent:
		return v.depth == 0 // only now is an outermost number over
	}
	return false
}

// step takes one byte and reports whether it can stand here.
func (v *stream) step(c byte) bool {
	if v.state >= inString {
		return v.stepToken(c)
	}
	if c == ' ' || c == '\t' || c == '\r' || c == '\n' {
		return true
	}
	switch v.state {
	case atValue:
		return v.beginValue(c)
	case atElement:
		if c == ']' {
			return v.close()
		}
		return v.beginValue(c)
	case atMember:
		if c == '}' {
			return v.close()
		}
		return v.beginKey(c)
	case atKey:
		return v.beginKey(c)
	case atColon:
		v.state = atValue
		return c == ':'
	case afterValue:
		object := v.object(v.depth - 1)
		switch {
		case c == ',' && object:
			v.state = atKey
			return true
		case c == ',':
			v.state = atValue
			return true
		case c == '}' && object, c == ']' && !object:
			return v.close()
		}
	}
	return false
}

func (v *stream) object(depth int) bool { return v.stack[depth/64]>>(depth%64)&1 != 0 }

// beginKey starts a key.
func (v *stream) beginKey(c byte) bool {
	reported := v.depth == 1 || v.depth == 2 && v.inSub
	v.beginToken(inString, reported)
	v.token.isKey = true
	v.hold([]byte{c})
	return c == '"'
}

// beginValue starts a value at its first byte.
func (v *stream) beginValue(c byte) bool {
	kind, state, literal := Number, inDigits, ""
	switch {
	case c == '"':
		kind, state = String, inString
	case c == '{':
		return v.open(Object)
	case c == '[':
		return v.open(Array)
	case c == 't':
		kind, state, literal = True, inLiteral, "rue"
	case c == 'f':
		kind, state, literal = False, inLiteral, "alse"
	case c == 'n':
		kind, state, literal = Null, inLiteral, "ull"
	case c == '-':
		state = inMinus
	case c == '0':
		state = inZero
	case c < '1' || c > '9':
		return false
	}
	v.beginToken(state, v.slot(kind) != nil)
	v.token.literal = literal
	v.hold([]byte{c})
	return true
}

// slot prepares the place of a value that starts here: nil when nobody asked.
func (v *stream) slot(kind Kind) *OversizedValue {
	if v.depth == 0 {
		v.kind = kind
		return nil
	}
	if v.depth >= len(v.held) {
		return nil
	}
	v.held[v.depth] = nil
	if v.key < 0 || !v.object(v.depth-1) {
		return nil
	}
	var o *OversizedValue
	if v.depth == 1 && v.object(0) {
		o = &v.topValues[v.key]
		if v.key == v.subOf {
			clear(v.subValues) // of a duplicate before
		}
	} else if v.depth == 2 && v.inSub {
		o = &v.subValues[v.key]
	}
	if o != nil {
		*o = OversizedValue{Kind: kind, Start: v.offset}
	}
	v.held[v.depth] = o
	return o
}

// open starts a container.
func (v *stream) open(kind Kind) bool {
	v.slot(kind)
	if v.depth == depthMax {
		return false
	}
	if v.depth == 1 && kind == Object && v.object(0) && v.key >= 0 && v.key == v.subOf {
		v.inSub = true
	}
	bit := uint64(1) << (v.depth % 64)
	v.stack[v.depth/64] &^= bit
	v.state = atElement
	if kind == Object {
		v.stack[v.depth/64] |= bit
		v.state = atMember
	}
	v.depth++
	return true
}

// close ends a container at its bracket.
func (v *stream) close() bool {
	v.depth--
	if v.depth == 1 {
		v.inSub = false
	}
	v.endValue(v.offset + 1)
	return true
}

// endValue ends a value at an offset.
func (v *stream) endValue(end int64) {
	v.state = afterValue
	if v.depth == 0 {
		v.state = atEnd
	}
	if v.depth >= len(v.held) || v.held[v.depth] == nil {
		return
	}
	o := v.held[v.depth]
	v.held[v.depth] = nil
	o.End = end
	if o.Kind < Array {
		o.Escaped = v.token.escaped
		if v.token.holding && len(v.token.raw) <= scalarBytesMax {
			o.Raw = append([]byte(nil), v.token.raw...)
		}
	}
}
