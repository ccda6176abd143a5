package jsonl

import "unicode/utf8"

// beginToken starts a string, number or literal, held or not.
func (v *stream) beginToken(state streamState, holding bool) {
	v.state = state
	v.token = tokenState{raw: v.token.raw[:0], holding: holding}
}

// hold keeps bytes of a token that is asked for, until it is too long.
func (v *stream) hold(p []byte) {
	if !v.token.holding {
		return
	}
	if len(v.token.raw)+len(p) > v.rawBytesMax {
		v.token.holding = false
		return
	}
	v.token.raw = append(v.token.raw, p...)
}

// stepToken takes one byte inside a token.
func (v *stream) stepToken(c byte) bool {
	t := &v.token
	switch v.state {
	case inString, inEscape, inHex:
		v.hold([]byte{c})
		return v.stepString(c)
	case inLiteral:
		ok := c == t.literal[0]
		v.hold([]byte{c})
		if t.literal = t.literal[1:]; ok && t.literal == "" {
			v.endValue(v.offset + 1)
		}
		return ok
	}
	next, ok := v.stepNumber(c)
	if !ok {
		return false
	}
	if next == afterValue { // c is the first byte behind the number
		v.endValue(v.offset)
		return v.step(c)
	}
	v.state = next
	v.hold([]byte{c})
	return true
}

// stepNumber returns the state after a byte in or behind a number.
func (v *stream) stepNumber(c byte) (streamState, bool) {
	digit := '0' <= c && c <= '9'
	exponent := c == 'e' || c == 'E'
	switch v.state {
	case inMinus:
		if c == '0' {
			return inZero, true
		}
		return inDigits, digit
	case inPoint:
		return inFraction, digit
	case inE:
		if c == '+' || c == '-' {
			return inSign, true
		}
		return inExponent, digit
	case inSign:
		return inExponent, digit
	}
	switch {
	case digit && v.state != inZero:
		return v.state, true
	case c == '.' && (v.state == inZero || v.state == inDigits):
		return inPoint, true
	case exponent && v.state != inExponent:
		return inE, true
	}
	return afterValue, true
}

// stepString takes one byte of a string behind its opening quote.
func (v *stream) stepString(c byte) bool {
	t := &v.token
	switch v.state {
	case inEscape:
		if c == 'u' {
			v.state, t.hex, t.digits = inHex, 0, 4
			return true
		}
		v.endHalf()
		v.state = inString
		return simpleEscape[c] != 0
	case inHex:
		return v.stepHex(c)
	}
	if c != '\\' {
		v.endHalf()
	}
	if !t.utf8.next(c) {
		v.invalidUTF8 = true
		t.utf8.next(c) // it may begin a character of its own
	}
	switch {
	case c == '"':
		v.endString()
	case c == '\\':
		v.state, t.escaped = inEscape, true
	default:
		return c >= ' '
	}
	return true
}

// endHalf notes that the first half of a surrogate pair, if the string's last
// escape was one, stays alone.
func (v *stream) endHalf() {
	v.loneSurrogate = v.loneSurrogate || v.token.high
	v.token.high = false
}

// stepHex takes a digit of a unicode escape.
func (v *stream) stepHex(c byte) bool {
	t := &v.token
	digit := hexDigit(c)
	if digit < 0 {
		return false
	}
	t.hex = t.hex<<4 | digit
	if t.digits--; t.digits > 0 {
		return true
	}
	v.state = inString
	high, low := 0xD800 <= t.hex && t.hex < 0xDC00, 0xDC00 <= t.hex && t.hex < 0xE000
	if t.high != low { // a half without its other half, before or here
		v.loneSurrogate = true
	}
	t.high = high
	return true
}

// endString ends a key or a string value at its closing quote.
func (v *stream) endString() {
	t := &v.token
	if !t.isKey {
		v.endValue(v.offset + 1)
		return
	}
	v.state = atColon
	v.key = -1
	if !t.holding || len(t.raw) < 2 || t.raw[len(t.raw)-1] != '"' {
		return
	}
	name := t.raw[1 : len(t.raw)-1]
	if t.escaped || !utf8.Valid(name) {
		name = AppendText(nil, t.raw)
	}
	if v.depth == 1 {
		v.key = v.top.find(name, firstWord(name))
	} else {
		v.key = v.sub.find(name, firstWord(name))
	}
}
