package jsonl

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var testKeys = Keys{
	Top:   []string{"type", "id", "parentId", "timestamp", "message"},
	SubOf: "message",
	Sub:   []string{"role", "stopReason", "model", "provider", "usage"},
}

// checkScan compares a scan of text with the standard library and with the
// scan in passing.
func checkScan(t *testing.T, s *Scanner, text []byte) {
	t.Helper()
	checkObject(t, s, text)
	got := s.Scan(text)
	checkStream(t, got, text)

	var syntax *json.SyntaxError
	err := json.Unmarshal(text, new(json.RawMessage))
	if err == nil != (got.Kind != Invalid) {
		t.Fatalf("Scan(%q): got kind %v, want error %v", text, got.Kind, err)
	}
	if errors.As(err, &syntax) {
		at := int(syntax.Offset)
		// The library ends a text by a space of its own, which it may blame.
		atEnd := strings.HasPrefix(syntax.Error(), "unexpected end") ||
			strings.HasPrefix(syntax.Error(), "invalid character ' '") && at == len(text) && text[at-1] != ' '
		if !atEnd {
			at-- // it counts the bad byte
		}
		if got.ErrOffset != at || got.AtEnd != atEnd {
			t.Fatalf("Scan(%q): got error at %d (end %v), want %d (%v)", text, got.ErrOffset, got.AtEnd, at, atEnd)
		}
		for i, v := range append(append([]Value(nil), got.Top...), got.Sub...) {
			if v.Present() {
				t.Fatalf("Scan(%q): invalid, but key %d is present", text, i)
			}
		}
		return
	}
	if want := bytes.Trim(text, " \t\r\n"); !bytes.Equal(got.Value.Bytes(text), want) {
		t.Fatalf("Scan(%q): got value %q, want %q", text, got.Value.Bytes(text), want)
	}
	if want := firstInvalidUTF8(text); got.InvalidUTF8 != want {
		t.Fatalf("Scan(%q): got invalid UTF-8 at %d, want %d", text, got.InvalidUTF8, want)
	}
	if want := firstLoneSurrogate(text); got.LoneSurrogate != want {
		t.Fatalf("Scan(%q): got lone surrogate at %d, want %d", text, got.LoneSurrogate, want)
	}
	if got.Kind == Object && got.InvalidUTF8 < 0 { // the library merges bad keys differently
		checkMembers(t, s.keys, got, text)
	}
}

// checkObject checks that Object takes the usual text and no other, that Plain
// then returns what Scan does, and that members of texts before stay.
func checkObject(t *testing.T, s *Scanner, text []byte) {
	t.Helper()
	before := []Member{{index: uint8(s.sub.base), kind: String, start: 1, end: 3}}
	members, ok := s.Object(text, before)
	suspected := s.repeat
	want := *s.Scan(text)
	want.Top, want.Sub = slices.Clone(want.Top), slices.Clone(want.Sub)
	usual := want.Value == Value{Kind: Object, End: len(text)} &&
		want.InvalidUTF8 < 0 && want.LoneSurrogate < 0 && want.DuplicateKey < 0
	if ok && !usual || !ok && usual && !suspected {
		t.Fatalf("Object(%q): got %v for %+v", text, ok, want)
	}
	if members[0] != before[0] || !ok && len(members) > 1 {
		t.Fatalf("Object(%q): got members %+v", text, members)
	}
	if ok {
		if diff := cmp.Diff(want, *s.Plain(text, members[1:])); diff != "" {
			t.Fatalf("Plain(%q) (-Scan +Plain):\n%s", text, diff)
		}
	}
}

// checkMembers compares the reported members with the standard library's.
func checkMembers(t *testing.T, keys Keys, got *Scan, text []byte) {
	t.Helper()
	top, duplicate := decodeObject(t, text)
	compare := func(level string, names []string, got []Value, want map[string]string) {
		t.Helper()
		for i, name := range names {
			if g, w := string(got[i].Bytes(text)), want[name]; g != w {
				t.Fatalf("Scan(%q): %s %s: got %q, want %q", text, level, name, g, w)
			}
		}
	}
	compare("top", keys.Top, got.Top, top)
	if sub := top[keys.SubOf]; strings.HasPrefix(sub, "{") {
		values, _ := decodeObject(t, []byte(sub))
		compare("sub", keys.Sub, got.Sub, values)
	} else {
		compare("sub", keys.Sub, got.Sub, nil)
	}
	for name, v := range Members(text) { // every object that SubOf ever was
		if name == keys.SubOf && v.Kind == Object && len(keys.Sub) > 0 {
			_, d := decodeObject(t, v.Bytes(text))
			duplicate = duplicate || d
		}
	}
	if duplicate != (got.DuplicateKey >= 0) {
		t.Fatalf("Scan(%q): got duplicate key at %d, want one: %v", text, got.DuplicateKey, duplicate)
	}
	if d := got.DuplicateKey; d >= 0 && text[d] != '"' {
		t.Fatalf("Scan(%q): duplicate key at %d is none", text, d)
	}
}

// decodeObject decodes an object with the standard library: raw values by key,
// the last one wins, and whether a key repeats.
func decodeObject(t *testing.T, text []byte) (values map[string]string, duplicate bool) {
	t.Helper()
	values = make(map[string]string)
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		_, seen := values[key.(string)]
		duplicate = duplicate || seen
		values[key.(string)] = string(raw)
	}
	return values, duplicate
}

func firstInvalidUTF8(text []byte) int {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// firstLoneSurrogate looks through valid JSON, where a backslash starts an
// escape wherever it stands.
func firstLoneSurrogate(text []byte) int {
	unit := func(i int) int64 {
		if i+6 > len(text) || text[i] != '\\' || text[i+1] != 'u' {
			return -1
		}
		var v int64
		for _, c := range text[i+2 : i+6] {
			v = v<<4 | int64(strings.IndexByte("0123456789abcdef", bytes.ToLower([]byte{c})[0]))
		}
		return v
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		switch u := unit(i); {
		case 0xD800 <= u && u < 0xDC00:
			if low := unit(i + 6); low < 0xDC00 || low >= 0xE000 {
				return i
			}
			i += 11
		case 0xDC00 <= u && u < 0xE000:
			return i
		default:
			i++
		}
	}
	return -1
}

// checkStream writes text in pieces and compares with a scan of the whole.
func checkStream(t *testing.T, want *Scan, text []byte) {
	t.Helper()
	for _, size := range []int{len(text) + 1, 1, 7} {
		v := newStream(testKeys)
		for p := text; len(p) > 0; {
			n := min(size, len(p))
			v.write(p[:n])
			p = p[n:]
		}
		compareOversized(t, v.result(), want, text)
	}
}

func compareOversized(t *testing.T, got *Oversized, want *Scan, text []byte) {
	t.Helper()
	if got.Valid != (want.Kind != Invalid) || got.AtEnd != want.AtEnd || got.Valid && got.Kind != want.Kind {
		t.Fatalf("stream %q: got valid %v, kind %v, end %v, want kind %v, end %v", text, got.Valid, got.Kind, got.AtEnd, want.Kind, want.AtEnd)
	}
	if got.InvalidUTF8 != (want.InvalidUTF8 >= 0) || got.LoneSurrogate != (want.LoneSurrogate >= 0) {
		t.Fatalf("stream %q: got invalid UTF-8 %v, lone surrogate %v, want offsets %d, %d",
			text, got.InvalidUTF8, got.LoneSurrogate, want.InvalidUTF8, want.LoneSurrogate)
	}
	compare := func(level string, got []OversizedValue, want []Value) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("stream %q: got %d %s values, want %d", text, len(got), level, len(want))
		}
		for i, w := range want {
			exp := OversizedValue{Kind: w.Kind, Escaped: w.Escaped, Start: int64(w.Start), End: int64(w.End)}
			if w.Present() && w.Kind < Array && w.End-w.Start <= scalarBytesMax {
				exp.Raw = w.Bytes(text)
			}
			g := got[i]
			if g.Kind != exp.Kind || g.Escaped != exp.Escaped || g.Start != exp.Start || g.End != exp.End || !bytes.Equal(g.Raw, exp.Raw) {
				t.Fatalf("stream %q: %s %d: got %+v, want %+v", text, level, i, g, exp)
			}
		}
	}
	compare("top", got.Top, want.Top)
	compare("sub", got.Sub, want.Sub)
}

// sampleLines are the seeds of the differential tests: the shapes of session
// lines, and the odd corners of JSON.
var sampleLines = []string{
	`{"type":"session","version":3,"id":"019c3851-1bef-7610-82f4-85732ba4f430","timestamp":"2026-05-03T14:54:06.784Z","cwd":"/w/b"}`,
	`{"type":"message","id":"658a2de2","parentId":null,"timestamp":"2026-05-03T14:54:48.095Z","message":{"role":"user","content":"m1 token 🚀 index queue zürich","timestamp":1777820046784}}`,
	`{"type":"message","id":"8af42705","parentId":"658a2de2","timestamp":"t","message":{"role":"assistant","content":[{"type":"text","text":"m2 \"x\" \\ \n café"}],"api":"x","provider":"pv","model":"m1","usage":{"input":7532,"output":63,"cost":{"input":0.007532,"total":-0.5e-3}},"stopReason":"stop"}}`,
	`{"\u0069d":"escaped key","message":{"r\u006fle":"user","role":"again"},"message":{"usage":{}},"message":null}`,
	`{"id":1,"id":2,"x":[1,[2,[3,{"a":{}}]]],"x":true,"y":false}`,
	`{"note":"ship it \ud83d","pair":"\ud83d\ude00","low":"\ude00x","two":"\ud83d\ud83d\ude00"}`,
	"{\"id\":\"raw \u2028 \u2029 \u0085 inside\",\"bad\":\"\xFF\xFE \xE2\x82A\"}",
	` [ 1 , -0 , 0.10 , 1E+2 , 1e-2 , "\/\b\f\n\r\t" , { } , [ ] , null ] ` + "\r",
	`"a string of more than sixteen plain bytes, without an end in sight"`,
	`{"a":{"b":{"c":{"d":[{"e":[[[{"f":"g"}]]]}]}}}}`,
	`-12.5e+7`, `true`, `0`, ``, ` `, `{}`, `[]`, `""`, `{"":""}`,
	"\xEF\xBB\xBF{}", "\x00\x00{}", `{"a":01}`, `{"a":1.}`, `[1,]`, `{"a":1,}`, `{,}`, `{"a" "b"}`, `nul`, `"\x"`, `"\u12g4"`,
	`{"id":"a"}{"id":"b"}`,
}

func TestScan_Samples(t *testing.T) {
	s := NewScanner(testKeys)
	for _, line := range sampleLines {
		checkScan(t, s, []byte(line))
		for i := range line { // every cut, and every byte turned
			checkScan(t, s, []byte(line[:i]))
			b := []byte(line)
			b[i] ^= 1 << (i % 8)
			checkScan(t, s, b)
		}
	}
}

func TestScan_MutatedLines(t *testing.T) {
	const lines = 120_000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	s := NewScanner(testKeys)
	for range lines {
		checkScan(t, s, mutate(rnd, []byte(sampleLines[rnd.IntN(len(sampleLines))])))
	}
}

// mutate changes a line in one to four places.
func mutate(rnd *rand.Rand, line []byte) []byte {
	pieces := []string{
		`"`, `\`, `{`, `}`, `[`, `]`, `,`, `:`, `\u`, `\ud83d`, `\ude00`, `\u0069`, `\"`, "\x00", "\x1f", "\x7f", "\n", " ",
		"\x80", "\xff", "\xe2\x82", "\xf0\x9f\x9a\x80", "é", `-`, `0`, `1`, `.`, `e`, `E+`, `null`, `true`, `false`, `"id":`, `,"id":1`,
		`"message":{"role":1}`, `12345678`, `plain text to sixteen and more bytes`,
	}
	for range 1 + rnd.IntN(4) {
		at := rnd.IntN(len(line) + 1)
		end := min(len(line), at+rnd.IntN(12))
		switch rnd.IntN(5) {
		case 0: // cut out
			line = append(line[:at:at], line[end:]...)
		case 1: // repeat
			line = append(line[:end:end], line[at:]...)
		case 2: // cut off
			if rnd.IntN(4) == 0 {
				line = line[:at]
			}
		case 3: // one byte
			if at < len(line) {
				line = bytes.Clone(line)
				line[at] = byte(rnd.Uint32())
			}
		default: // insert
			piece := pieces[rnd.IntN(len(pieces))]
			line = append(line[:at:at], append([]byte(piece), line[at:]...)...)
		}
	}
	return line
}

func FuzzScan(f *testing.F) {
	for _, line := range sampleLines {
		f.Add([]byte(line))
	}
	s := NewScanner(testKeys)
	f.Fuzz(func(t *testing.T, text []byte) { checkScan(t, s, text) })
}

func TestScan_Depth(t *testing.T) {
	s := NewScanner(testKeys)
	for _, open := range []string{"[", `{"message":`, `{"a":`} {
		for depth, want := range map[int]bool{depthMax: true, depthMax + 1: false} {
			text := strings.Repeat(open, depth-1) + "[]"
			if open == "[" {
				text += strings.Repeat("]", depth-1)
			} else {
				text += strings.Repeat("}", depth-1)
			}
			if got := s.Scan([]byte(text)).Kind != Invalid; got != want {
				t.Errorf("%d times %s: got valid %v, want %v", depth, open, got, want)
			}
			checkScan(t, s, []byte(text))
		}
	}
}

func TestScan_Diagnostics(t *testing.T) {
	tests := []struct {
		name, text               string
		utf8, lone, duplicateKey int
	}{
		{"clean", `{"a":1,"b":2}`, -1, -1, -1},
		{"raw line separators are text", "{\"a\":\"\u2028\u2029\u0085\"}", -1, -1, -1},
		{"bad bytes", "{\"a\":\"x\xFF\xFE\"}", 7, -1, -1},
		{"cut sequence at the end of a string", "{\"a\":\"x\xE2\x82\",\"b\":\"\xFF\"}", 7, -1, -1},
		{"bad bytes in a key", "{\"\xFF\":1}", 2, -1, -1},
		{"high half alone", `{"a":"\ud83d"}`, -1, 6, -1},
		{"low half alone", `{"a":"x\ude00"}`, -1, 7, -1},
		{"high half twice", `{"a":"\ud83d\ud83d\ude00"}`, -1, 6, -1},
		{"pair", `{"a":"\ud83d\ude00"}`, -1, -1, -1},
		{"reported key twice", `{"id":1,"id":2}`, -1, -1, 8},
		{"other key twice", `{"other":1,"other":2}`, -1, -1, 11},
		{"escaped twin", `{"other":1,"\u006fther":2}`, -1, -1, 11},
		{"twice inside the message", `{"message":{"x":1,"x":2}}`, -1, -1, 18},
		{"same key in two objects", `{"x":1,"message":{"x":1}}`, -1, -1, -1},
		{"same key in two messages", `{"message":{"x":1},"message":{"x":1}}`, -1, -1, 19},
		{"deeper ones are not looked at", `{"message":{"usage":{"x":1,"x":2}},"z":{"x":1,"x":2}}`, -1, -1, -1},
	}
	s := NewScanner(testKeys)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := s.Scan([]byte(tt.text))
			if got.Kind != Object || got.InvalidUTF8 != tt.utf8 || got.LoneSurrogate != tt.lone || got.DuplicateKey != tt.duplicateKey {
				t.Errorf("got kind %v, offsets %d %d %d, want object, %d %d %d",
					got.Kind, got.InvalidUTF8, got.LoneSurrogate, got.DuplicateKey, tt.utf8, tt.lone, tt.duplicateKey)
			}
		})
	}
}

// Many keys are more than the memory of one scan holds: still exact.
func TestScan_ManyKeys(t *testing.T) {
	s := NewScanner(testKeys)
	for _, n := range []int{100, 128, 129, 2000} {
		text := []byte("{")
		for i := range n {
			text = append(text, `"key number `...)
			text = append(text, []byte(strings.Repeat("x", i))...)
			text = append(text, `":1,`...)
		}
		text = append(text, `"last":1`...)
		whole := append(bytes.Clone(text), '}')
		if got := s.Scan(whole); got.Kind != Object || got.DuplicateKey != -1 {
			t.Errorf("%d keys: got kind %v, duplicate at %d, want none", n, got.Kind, got.DuplicateKey)
		}
		twice := append(bytes.Clone(text), `,"key number x":2}`...)
		if got, want := s.Scan(twice).DuplicateKey, len(text)+1; got != want {
			t.Errorf("%d keys: got duplicate at %d, want %d", n, got, want)
		}
	}
}

// What a scanner learns from one line never changes the result of another.
func TestScan_Reuse(t *testing.T) {
	lines := sampleLines
	used := NewScanner(testKeys)
	for i := range lines {
		for j := range lines {
			used.Scan([]byte(lines[i]))
			got := *used.Scan([]byte(lines[j]))
			want := *NewScanner(testKeys).Scan([]byte(lines[j]))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%q after %q (-want +got):\n%s", lines[j], lines[i], diff)
			}
		}
	}
}

func TestScan_OddKeys(t *testing.T) {
	s := NewScanner(Keys{
		Top:   []string{"", `quo"te`, `back\slash`, "a rather long name, longer than two words", "a rather long name, longer than two worlds", "zürich"},
		SubOf: "hidden", Sub: []string{"x"},
	})
	text := []byte(`{"":0,"quo\"te":1,"back\\slash":2,"a rather long name, longer than two words":3,` +
		`"a rather long name, longer than two worlds":4,"zürich":5,"hidden":{"x":6}}`)
	for range 2 {
		got := s.Scan(text)
		if got.Kind != Object || got.DuplicateKey != -1 || len(got.Top) != 6 {
			t.Fatalf("got kind %v, duplicate %d, %d values, want object, -1, 6", got.Kind, got.DuplicateKey, len(got.Top))
		}
		for i, v := range append(append([]Value(nil), got.Top...), got.Sub...) {
			if v := string(v.Bytes(text)); v != string(rune('0'+i)) {
				t.Errorf("key %d: got %q, want %d", i, v, i)
			}
		}
	}
}

func TestScan_NoAllocation(t *testing.T) {
	s := NewScanner(testKeys)
	for _, line := range sampleLines {
		text := []byte(line)
		if s.Scan(text).DuplicateKey >= 0 {
			continue // takes a second look
		}
		if n := testing.AllocsPerRun(10, func() { s.Scan(text) }); n != 0 {
			t.Errorf("Scan(%q): got %v allocations, want 0", line, n)
		}
	}
}

func TestMembers(t *testing.T) {
	text := []byte(` { "a" : 1 , "\u0062":[ 2 , {} ],"a":"x\n" } `)
	var got []string
	for k, v := range Members(text) {
		got = append(got, k+"="+string(v.Bytes(text)))
	}
	if diff := cmp.Diff([]string{"a=1", "b=[ 2 , {} ]", `a="x\n"`}, got); diff != "" {
		t.Errorf("Members (-want +got):\n%s", diff)
	}
	b := Get(text, "b")
	array := b.Bytes(text)
	got = nil
	for v := range Elements(array) {
		got = append(got, string(v.Bytes(array)))
	}
	if diff := cmp.Diff([]string{"2", "{}"}, got); diff != "" {
		t.Errorf("Elements (-want +got):\n%s", diff)
	}
	if got := string(Get(text, "a").Bytes(text)); got != `"x\n"` {
		t.Errorf("Get: got %s, want the last duplicate", got)
	}
	if got := Get(text, "c"); got.Present() || got.Bytes(text) != nil {
		t.Errorf("Get: got %v, want absent", got)
	}
}

// Slow accessors on any bytes: no panic, and all of a valid value.
func FuzzMembers(f *testing.F) {
	for _, line := range sampleLines {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		members, elements := 0, 0
		for _, v := range Members(text) {
			members++
			if !json.Valid(v.Bytes(text)) {
				t.Fatalf("member %q of %q is no JSON", v.Bytes(text), text)
			}
		}
		for v := range Elements(text) {
			elements++
			if !json.Valid(v.Bytes(text)) {
				t.Fatalf("element %q of %q is no JSON", v.Bytes(text), text)
			}
		}
		Get(text, "id")
		if !json.Valid(text) {
			return
		}
		want := countDirect(t, text)
		if members+elements != want {
			t.Fatalf("%q: got %d members, %d elements, want %d together", text, members, elements, want)
		}
	})
}

// countDirect counts the values directly inside a container.
func countDirect(t *testing.T, text []byte) int {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	open, err := d.Token()
	if err != nil {
		t.Fatal(err)
	}
	delim, ok := open.(json.Delim)
	if !ok {
		return 0
	}
	n := 0
	for ; d.More(); n++ {
		if delim == '{' {
			if _, err := d.Token(); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Decode(new(json.RawMessage)); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	return n
}
