package jsonl

import (
	"bytes"
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"
)

// BOM is the UTF-8 byte-order mark. The reader leaves it in the first line;
// whoever reads from offset 0 skips it and says so.
const BOM = "\xEF\xBB\xBF"

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// stops marks, with its high bit, the first byte of a word (little-endian)
// that is no plain string text: a quote, a backslash or a control character.
// Marks above the first one are meaningless, because a subtraction that
// borrows disturbs the bytes above it. Bytes over 0x7F are plain here. A quote
// with bit 1 flipped is 0x20, so one subtraction finds it and the controls.
func stops(x uint64) uint64 {
	quoteOrControl := (x ^ 0x02*lowBits) - 0x21*lowBits
	backslash := (x ^ '\\'*lowBits) - lowBits
	return (quoteOrControl | backslash) &^ x & highBits
}

// word returns the eight bytes of t from i on, little-endian, with zeros,
// which stop a scan, after the end of t. i is at most len(t).
func word(t []byte, i int) uint64 {
	if i+8 <= len(t) {
		return binary.LittleEndian.Uint64(t[i:])
	}
	return lastWord(t, i)
}

func lastWord(t []byte, i int) uint64 {
	if len(t) < 8 {
		return firstWord(t[i:])
	}
	return binary.LittleEndian.Uint64(t[len(t)-8:]) >> (uint(i+8-len(t)) * 8)
}

// simpleEscape holds what each two-byte escape stands for, by its second byte.
var simpleEscape = [256]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// hexValue returns the value of the four hexadecimal digits that p starts
// with, or -1.
func hexValue(p []byte) rune {
	if len(p) < 4 {
		return -1
	}
	var r rune
	for _, c := range p[:4] {
		digit := hexDigit(c)
		if digit < 0 {
			return -1
		}
		r = r<<4 | digit
	}
	return r
}

func hexDigit(c byte) rune {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0')
	case 'a' <= c && c <= 'f':
		return rune(c - 'a' + 10)
	case 'A' <= c && c <= 'F':
		return rune(c - 'A' + 10)
	}
	return -1
}

// unicodeEscape reads the escape \uXXXX that p starts with, and the second
// half of a surrogate pair if one follows. It returns the rune, U+FFFD for half
// a pair, and how many bytes it took, 0 when p does not start with an escape.
func unicodeEscape(p []byte) (r rune, n int, lone bool) {
	if len(p) < 6 || p[0] != '\\' || p[1] != 'u' {
		return 0, 0, false
	}
	if r = hexValue(p[2:]); r < 0 {
		return 0, 0, false
	}
	if !utf16.IsSurrogate(r) {
		return r, 6, false
	}
	if len(p) >= 12 && p[6] == '\\' && p[7] == 'u' {
		if pair := utf16.DecodeRune(r, hexValue(p[8:])); pair != utf8.RuneError {
			return pair, 12, false
		}
	}
	return utf8.RuneError, 6, true
}

// AppendText appends the text of a JSON string, given with its quotes:
// escapes are resolved; half a surrogate pair and each maximal bad UTF-8
// sequence become one U+FFFD. What is no valid JSON string gives some text and
// no panic.
func AppendText(dst, raw []byte) []byte {
	if len(raw) > 0 && raw[0] == '"' {
		raw = raw[1:]
	}
	if n := len(raw); n > 0 && raw[n-1] == '"' {
		raw = raw[:n-1]
	}
	for {
		n := bytes.IndexByte(raw, '\\')
		if n < 0 {
			return AppendValidUTF8(dst, raw)
		}
		dst = AppendValidUTF8(dst, raw[:n])
		raw = raw[n:]
		if r, n, _ := unicodeEscape(raw); n > 0 {
			dst = utf8.AppendRune(dst, r)
			raw = raw[n:]
			continue
		}
		if len(raw) < 2 || simpleEscape[raw[1]] == 0 {
			dst = utf8.AppendRune(dst, utf8.RuneError) // no JSON string
			raw = raw[1:]
			continue
		}
		dst = append(dst, simpleEscape[raw[1]])
		raw = raw[2:]
	}
}

// keyText appends the decoded text of a key, given with its quotes. It is
// AppendText with a short cut for plain keys.
func keyText(dst, raw []byte) []byte {
	if plainKey(raw[1 : len(raw)-1]) {
		return append(dst, raw[1:len(raw)-1]...)
	}
	return AppendText(dst, raw)
}

// plainKey reports whether a key's raw text, without quotes, is its text.
func plainKey(raw []byte) bool {
	return bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw)
}

// AppendValidUTF8 appends src, with one U+FFFD in the place of each maximal
// subpart of an ill-formed sequence (as decoders on the web count them): the
// longest prefix of a well-formed sequence, else a single byte. E2 82 41 gives
// U+FFFD A, FF FE gives two U+FFFD.
func AppendValidUTF8(dst, src []byte) []byte {
	if utf8.Valid(src) {
		return append(dst, src...)
	}
	from := 0
	for i := 0; i < len(src); {
		if src[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRune(src[i:])
		if r != utf8.RuneError || n > 1 {
			i += n
			continue
		}
		dst = append(dst, src[from:i]...)
		dst = utf8.AppendRune(dst, utf8.RuneError)
		i += badSequence(src[i:])
		from = i
	}
	return append(dst, src[from:]...)
}

// badSequence returns the length of the maximal subpart that the ill-formed
// text p starts with.
func badSequence(p []byte) int {
	var u utf8State
	for n, c := range p {
		if !u.next(c) {
			return max(n, 1)
		}
	}
	return len(p)
}

// utf8State is UTF-8 validation byte by byte: how many continuation bytes are
// wanted and the range of the next one. The zero value is between characters.
type utf8State struct {
	want   uint8
	lo, hi byte
}

// next takes a byte and reports whether it fits; after one that does not, the
// state is between characters.
func (u *utf8State) next(c byte) bool {
	if u.want > 0 {
		ok := u.lo <= c && c <= u.hi
		u.want--
		if !ok {
			u.want = 0
		}
		u.lo, u.hi = 0x80, 0xBF
		return ok
	}
	u.lo, u.hi = 0x80, 0xBF
	switch {
	case c < utf8.RuneSelf:
		return true
	case c < 0xC2 || c > 0xF4:
		return false
	case c < 0xE0:
		u.want = 1
	case c < 0xF0:
		u.want = 2
		if c == 0xE0 {
			u.lo = 0xA0
		} else if c == 0xED {
			u.hi = 0x9F
		}
	default:
		u.want = 3
		if c == 0xF0 {
			u.lo = 0x90
		} else if c == 0xF4 {
			u.hi = 0x8F
		}
	}
	return true
}
