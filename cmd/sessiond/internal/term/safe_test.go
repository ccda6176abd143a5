package term

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestSafe(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"plain", "plain text, 100 %", "plain text, 100 %"},
		{"empty", "", ""},
		{"other scripts", "Größe 漢字\u3000かな é\u0301 😀\u00a0", "Größe 漢字\u3000かな é\u0301 😀\u00a0"},
		{"backslash stays", `C:\new`, `C:\new`},
		{"clear screen", "a\x1b[2Jb", `a\x1b[2Jb`},
		{"set the title", "\x1b]0;owned\x07", `\x1b]0;owned\a`},
		{"C0", "\x00\x01\b\r\n\t\x1f", `\x00\x01\b\r\n\t\x1f`},
		{"DEL", "\x7f", `\x7f`},
		{"C1", "\u0080\u009b31m\u009f", `\x80\x9b31m\x9f`},
		{"soft hyphen", "a\u00adb", `a\xadb`},
		{"bidi overrides", "\u202a\u202b\u202c\u202d\u202e", `\u202a\u202b\u202c\u202d\u202e`},
		{"bidi isolates", "\u2066\u2067\u2068\u2069", `\u2066\u2067\u2068\u2069`},
		{"bidi marks", "\u200e\u200f\u061c", `\u200e\u200f\u061c`},
		{"separators", "\u2028\u2029", `\u2028\u2029`},
		{"byte-order mark", "\ufeff{}", `\ufeff{}`},
		{"tag characters", "\U000e0041", `\U000e0041`},
		{"private use", "\ue000", `\ue000`},
		{"bad UTF-8", "a\xff\xfeb\xe2\x82", "a\uFFFD\uFFFDb\uFFFD\uFFFD"},
		{"C1 as a raw byte", "\x9b31m", "\uFFFD31m"},
		{"encoded surrogate", "\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Safe(tt.in); got != tt.want {
				t.Errorf("Safe(%q): got %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

func TestLines(t *testing.T) {
	got, want := Lines("a\tb\r\nc\x1b[0m\n"), "a    b\\r\nc\\x1b[0m\n"
	if got != want {
		t.Errorf("Lines: got %q, want %q", got, want)
	}
}

func TestTruncate(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		columns  int
		want     string
	}{
		{"fits", "abc", 3, "abc"},
		{"cut", "abcd", 3, "ab…"},
		{"wide", "漢字漢字", 5, "漢字…"},
		{"wide at the edge", "漢字漢字", 4, "漢…"},
		{"marks take nothing", "e\u0301e\u0301e\u0301", 2, "e\u0301…"},
		{"escapes count as shown", "\x1b\x1b", 4, `\x1…`},
		{"one column", "abc", 1, "…"},
		{"none", "abc", 0, ""},
		{"less than none", "abc", -1, ""},
		{"nothing in nothing", "", 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Truncate(tt.in, tt.columns)
			if got != tt.want {
				t.Errorf("Truncate(%q, %d): got %q, want %q", tt.in, tt.columns, got, tt.want)
			}
			if w := Width(got); w > max(tt.columns, 0) {
				t.Errorf("Width(%q): got %d, want at most %d", got, w, tt.columns)
			}
		})
	}
}

func TestWriter_SplitAnywhere(t *testing.T) {
	text := "é漢😀\x1b\xff\xe2\x82A\n\t\u202e end \xf0\x9f"
	for i := range len(text) {
		for j := i; j <= len(text); j++ {
			var out bytes.Buffer
			w := NewWriter(&out)
			for _, part := range []string{text[:i], text[i:j], text[j:]} {
				if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
					t.Fatalf("Write(%q): got %d, %v", part, n, err)
				}
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			if got, want := out.String(), Lines(text); got != want {
				t.Fatalf("split at %d and %d: got %q, want %q", i, j, got, want)
			}
		}
	}
}

func TestWriter_Error(t *testing.T) {
	want := errors.New("gone")
	w := NewWriter(failing{want})
	if n, err := w.Write([]byte("a")); n != 0 || !errors.Is(err, want) {
		t.Errorf("Write: got %d, %v, want 0, %v", n, err, want)
	}
}

// FuzzSafe: whatever comes in, nothing that a terminal acts on goes out.
func FuzzSafe(f *testing.F) {
	f.Add("plain", 10)
	f.Add("\x1b]8;;http://x\x07\u202e\u2066\ufeff\xff\x9b\r\n", 7)
	f.Add("漢😀\u0301\U000e0041", 3)
	f.Fuzz(func(t *testing.T, in string, columns int) {
		outs := map[string]string{"Safe": Safe(in), "Truncate": Truncate(in, columns), "Lines": Lines(in)}
		for name, out := range outs {
			if name == "Lines" {
				out = strings.ReplaceAll(out, "\n", "")
			}
			if !utf8.ValidString(out) {
				t.Errorf("%s(%q): got %q, which is no UTF-8", name, in, out)
			}
			for _, r := range out {
				if !unicode.IsGraphic(r) || unicode.Is(unicode.Bidi_Control, r) {
					t.Errorf("%s(%q): got %q, which holds %U", name, in, out, r)
				}
			}
		}
		if got := Width(outs["Truncate"]); got > max(columns, 0) {
			t.Errorf("Truncate(%q, %d): got %d columns", in, columns, got)
		}
		if again := Safe(outs["Safe"]); again != outs["Safe"] {
			t.Errorf("Safe of %q: got %q, want the same", outs["Safe"], again)
		}
	})
}

// failing refuses every write.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
