package term

import (
	"strings"
	"unicode"
)

// Width returns how many columns a safe text of one line takes.
func Width(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// Truncate returns Safe(s) in at most columns columns; what is cut off is
// shown as one "…".
func Truncate(s string, columns int) string {
	s = Safe(s)
	if Width(s) <= columns {
		return s
	}
	var b strings.Builder
	left := columns - 1 // for the ellipsis
	for _, r := range s {
		if left -= runeWidth(r); left < 0 {
			break
		}
		b.WriteRune(r)
	}
	if columns > 0 {
		b.WriteRune('…')
	}
	return b.String()
}

func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

// wide holds the blocks whose characters take two columns.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x115f, Stride: 1}, // Hangul Jamo
		{Lo: 0x2e80, Hi: 0x303e, Stride: 1}, // CJK radicals, symbols
		{Lo: 0x3041, Hi: 0xa4cf, Stride: 1}, // Kana, CJK, Yi
		{Lo: 0xac00, Hi: 0xd7a3, Stride: 1}, // Hangul
		{Lo: 0xf900, Hi: 0xfaff, Stride: 1}, // CJK compatibility
		{Lo: 0xfe30, Hi: 0xfe6f, Stride: 1}, // vertical and small forms
		{Lo: 0xff00, Hi: 0xff60, Stride: 1}, // full-width forms
		{Lo: 0xffe0, Hi: 0xffe6, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x1f300, Hi: 0x1f64f, Stride: 1}, // pictographs, emoticons
		{Lo: 0x1f680, Hi: 0x1f6ff, Stride: 1}, // transport
		{Lo: 0x1f900, Hi: 0x1f9ff, Stride: 1}, // more pictographs
		{Lo: 0x20000, Hi: 0x3fffd, Stride: 1}, // CJK extensions
	},
}
