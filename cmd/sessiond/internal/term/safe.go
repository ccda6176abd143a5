package term

import (
	"fmt"
	"io"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Safe returns s for one line: LF and tab are shown as escapes too.
func Safe(s string) string { return string(appendSafe(nil, s, false)) }

// Lines returns s for any number of lines.
func Lines(s string) string { return string(appendSafe(nil, s, true)) }

const tab = "    "

func appendSafe(dst []byte, s string, lines bool) []byte {
	for i := 0; i < len(s); {
		start := i
		for i < len(s) && ' ' <= s[i] && s[i] < 0x7f { // most text is this
			i++
		}
		if dst = append(dst, s[start:i]...); i == len(s) {
			break
		}
		r, n := utf8.DecodeRuneInString(s[i:]) // a bad byte is U+FFFD
		i += n
		switch {
		case unicode.IsGraphic(r): // IsPrint refuses the spaces of other scripts
			dst = utf8.AppendRune(dst, r)
		case lines && r == '\n':
			dst = append(dst, '\n')
		case lines && r == '\t':
			dst = append(dst, tab...)
		default:
			dst = appendEscape(dst, r)
		}
	}
	return dst
}

// appendEscape appends a rune that is not graphic as Go spells it.
func appendEscape(dst []byte, r rune) []byte {
	if 0x80 <= r && r < 0x100 { // strconv would write \u0085
		return fmt.Appendf(dst, `\x%02x`, r)
	}
	q := strconv.QuoteRuneToASCII(r)
	return append(dst, q[1:len(q)-1]...)
}

// Writer passes text on as Lines does. A character may be split between two
// writes; Flush after the last one shows half a character as U+FFFD.
type Writer struct {
	w    io.Writer
	buf  []byte
	rest []byte // the start of a character, at most three bytes
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write returns len(p), or an error of the underlying writer and 0: how much
// of p got through cannot be told, as escapes are longer than what they show.
func (w *Writer) Write(p []byte) (int, error) {
	text := append(w.rest, p...)
	whole := len(text) - partial(text)
	w.buf = appendSafe(w.buf[:0], string(text[:whole]), true)
	w.rest = append([]byte(nil), text[whole:]...)
	if len(w.buf) == 0 {
		return len(p), nil
	}
	if _, err := w.w.Write(w.buf); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes what the last Write held back.
func (w *Writer) Flush() error {
	rest := w.rest
	w.rest = nil
	if len(rest) == 0 {
		return nil
	}
	_, err := w.w.Write(appendSafe(nil, string(rest), true))
	return err
}

// partial returns how many bytes at the end of p may be the start of a
// character that goes on.
func partial(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if tail := p[len(p)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
