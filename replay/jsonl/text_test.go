package jsonl

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestAppendValidUTF8(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"empty", "", ""},
		{"ascii", "abc", "abc"},
		{"valid", "zürich 鍵 🚀", "zürich 鍵 🚀"},
		{"a real replacement character", "a\uFFFDb", "a\uFFFDb"},
		{"cut sequence", "\xE2\x82A", "\uFFFDA"},
		{"cut sequence at the end", "x\xF0\x9F\x9A", "x\uFFFD"},
		{"never valid bytes", "\xFF\xFE", "\uFFFD\uFFFD"},
		{"lone continuations", "a\x80\xBFb", "a\uFFFD\uFFFDb"},
		{"overlong", "\xC0\xAF\xE0\x80\xAF", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"},
		{"surrogate", "\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
		{"over the last character", "\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
		{"two cut ones", "\xE2\x82\xE2\x82\xAC", "\uFFFD€"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(AppendValidUTF8([]byte(">"), []byte(tt.in))); got != ">"+tt.want {
				t.Errorf("AppendValidUTF8(%q): got %q, want %q", tt.in, got[1:], tt.want)
			}
		})
	}
}

func TestAppendText(t *testing.T) {
	tests := []struct{ name, raw, want string }{
		{"plain", `"abc"`, "abc"},
		{"simple escapes", `"\"\\\/\b\f\n\r\t"`, "\"\\/\b\f\n\r\t"},
		{"unicode escapes", `"\u0041\u00E9\u20ac\u0000"`, "Aé€\x00"},
		{"pair", `"\ud83d\ude80"`, "🚀"},
		{"high half", `"a\ud83db"`, "a\uFFFDb"},
		{"low half", `"\ude80\ud83d"`, "\uFFFD\uFFFD"},
		{"high half before a pair", `"\ud83d\ud83d\ude80"`, "\uFFFD🚀"},
		{"high half before another escape", `"\ud83d\u0041\n"`, "\uFFFDA\n"},
		{"cut sequence before an escape", "\"\xE2\x82\\u0041\"", "\uFFFDA"},
		{"bad bytes", "\"\xFF\xFE\"", "\uFFFD\uFFFD"},
		{"no strings: nothing", ``, ""},
		{"no strings: a quote", `"`, ""},
		{"no strings: cut escape", `"\`, "\uFFFD"},
		{"no strings: bad escape", `"\x\u12"`, "\uFFFDx\uFFFDu12"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(AppendText([]byte(">"), []byte(tt.raw))); got != ">"+tt.want {
				t.Errorf("AppendText(%q): got %q, want %q", tt.raw, got[1:], tt.want)
			}
		})
	}
}

// AppendText agrees with the standard library once bad bytes, which the
// library counts one by one, are replaced.
func FuzzAppendText(f *testing.F) {
	for _, s := range []string{`"a\n"`, `"\ud83d\ude80"`, `"\ud83d"`, "\"\xE2\x82A\"", `"\u0000\/"`, `"`, `\`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := AppendText(nil, raw)
		if !utf8.Valid(got) {
			t.Fatalf("AppendText(%q): got %q, not valid UTF-8", raw, got)
		}
		var want string
		if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(AppendValidUTF8(nil, raw), &want) != nil {
			return
		}
		if raw = bytes.TrimRight(raw, " \t\r\n"); string(AppendText(nil, raw)) != want {
			t.Fatalf("AppendText(%q): got %q, want %q", raw, AppendText(nil, raw), want)
		}
	})
}

// FuzzAppendValidUTF8 checks the replacement against a second rule for it: at
// each place take the longest prefix of any well-formed character.
func FuzzAppendValidUTF8(f *testing.F) {
	for _, s := range []string{"a", "\xE2\x82A", "\xFF\xFE", "\xF0\x9F\x9A", "\xED\xA0\x80é"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		var want strings.Builder
		for p := src; len(p) > 0; {
			if r, n := utf8.DecodeRune(p); r != utf8.RuneError || n > 1 {
				want.Write(p[:n])
				p = p[n:]
				continue
			}
			want.WriteRune(utf8.RuneError)
			n := 1
			for n < len(p) && n < 3 && canContinue(p[:n+1]) {
				n++
			}
			p = p[n:]
		}
		if got := string(AppendValidUTF8(nil, src)); got != want.String() {
			t.Fatalf("AppendValidUTF8(%q): got %q, want %q", src, got, want.String())
		}
	})
}

// canContinue reports whether p begins some character: tried out.
func canContinue(p []byte) bool {
	tails := []string{"", "\x80", "\x90", "\xA0", "\x80\x80", "\x90\x80", "\xA0\x80"}
	for _, tail := range tails {
		if r, n := utf8.DecodeRune(append(bytes.Clone(p), tail...)); r != utf8.RuneError && n == len(p)+len(tail) {
			return true
		}
	}
	return false
}

func TestStops(t *testing.T) {
	for c := range 256 {
		for at := range 8 {
			b := []byte("abcdefgh")
			b[at] = byte(c)
			want := c == '"' || c == '\\' || c < ' '
			if got := stops(word(b, 0)) != 0; got != want {
				t.Errorf("byte %#x at %d: got stop %v, want %v", c, at, got, want)
			}
		}
	}
}

func TestWord(t *testing.T) {
	text := []byte("0123456789")
	for n := range len(text) + 1 {
		for i := range n + 1 {
			var want [8]byte
			copy(want[:], text[i:n])
			if got := word(text[:n], i); got != firstWord(want[:]) {
				t.Errorf("word(%q, %d): got %#x, want %#x", text[:n], i, got, firstWord(want[:]))
			}
		}
	}
}
