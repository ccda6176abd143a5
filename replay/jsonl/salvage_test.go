package jsonl

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testEnvelope wants what pi entries have.
func testEnvelope(obj []byte) bool {
	return Get(obj, "type").Kind == String && Get(obj, "id").Kind == String
}

const (
	recA = `{"type":"message","id":"a","message":{"role":"user","content":[{"type":"text","text":"x \"y\" {z"}]}}`
	recB = `{"type":"message","id":"b","message":{"type":"inner","id":"n","content":"ok"}}`
	recC = `{"type":"label","id":"c"}`
)

func TestSalvage(t *testing.T) {
	nul := strings.Repeat("\x00", 512)
	tests := []struct {
		name, line string
		code       Code
		want       []string
	}{
		{"torn in a text", `{"id":"a","type":"t","text":"abc` + recB, CodeFusedLine, []string{recB}},
		{"torn in a key", `{"type":"message","i` + recB, CodeFusedLine, []string{recB}},
		{"torn in an escape", `{"type":"message","id":"a\` + recB, CodeFusedLine, []string{recB}},
		{"torn in a unicode escape", `{"type":"message","id":"a\ud8` + recB, CodeFusedLine, []string{recB}},
		{"torn in a literal", `{"type":"message","x":tr` + recB, CodeFusedLine, []string{recB}},
		{"torn in a number", `{"type":"message","x":-1` + recB, CodeFusedLine, []string{recB}},
		{"torn behind a key", `{"type":"message","x"` + recB, CodeFusedLine, []string{recB}},
		{"torn behind a value", `{"type":"message"` + recB, CodeFusedLine, []string{recB}},
		{"torn behind a comma", `{"type":"message",` + recB, CodeFusedLine, []string{recB}},
		{"torn at once", `{` + recB, CodeFusedLine, []string{recB}},
		{"torn in a character", "{\"type\":\"z\xC3" + recB, CodeFusedLine, []string{recB}},
		{"torn before the last bracket", recA[:len(recA)-1] + recB, CodeFusedLine, []string{recB}},
		{"torn deep inside", `{"type":"m","message":{"content":[{"type":"text","` + recB, CodeFusedLine, []string{recB}},
		{"the fragment holds escaped records", `{"type":"m","text":"say {\"type\":\"t\",\"id\":\"trap\"} \` + recB, CodeFusedLine, []string{recB}},
		{"the fragment holds a whole inner object", `{"type":"m","x":{"type":"t","id":"n"},"y":"` + recB, CodeFusedLine, []string{recB}},
		{"the record has space around it", `{"type":"m","x":1 ` + recB + " \r", CodeFusedLine, []string{recB}},
		{"the gap was never written", `{"type":"m","text":"ab` + nul + recB, CodeFusedLine, []string{recB}},
		{"torn between two", recA + `{"type":"m","text":"ab` + recB, CodeFusedLine, []string{recA, recB}},
		{"NULs, then torn", nul + `{"type":"m","te` + recB, CodeFusedLine, []string{recB}},

		{"two", recA + recB, CodeJoinedObjects, []string{recA, recB}},
		{"three with blanks", recA + " " + recB + "\t" + recC + " ", CodeJoinedObjects, []string{recA, recB, recC}},
		{"header and entry", recC + recA, CodeJoinedObjects, []string{recC, recA}},
		{"one is no record", recA + `{"x":1}` + recB, CodeFusedLine, []string{recA, recB}},
		{"the first is no record", `{"x":1}` + recB, CodeFusedLine, []string{recB}},
		{"the last is no record", recA + `{"x":1}`, CodeTrailingGarbage, []string{recA}},
		{"none is a record", `{"x":1}{"x":2}`, CodeMalformedLine, nil},

		{"a bracket too many", recA + "}", CodeTrailingGarbage, []string{recA}},
		{"a space and a bracket", recA + " }", CodeTrailingGarbage, []string{recA}},
		{"words behind", recA + " and more", CodeTrailingGarbage, []string{recA}},
		{"a torn record behind", recA + `{"type":"me`, CodeTrailingGarbage, []string{recA}},
		{"NULs behind", recA + nul, CodeTrailingGarbage, []string{recA}},
		{"garbage before the second", recA + "}" + recB, CodeTrailingGarbage, []string{recA}},
		{"garbage behind no record", `{"x":1} more`, CodeMalformedLine, nil},

		{"NULs only", nul, CodeNulRun, nil},
		{"NULs and a CR", nul + "\r", CodeNulRun, nil},
		{"NULs before a record", nul + recA, CodeNulRun, []string{recA}},
		{"NULs, space, NULs", nul + " " + nul + recA + " ", CodeNulRun, []string{recA}},
		{"NULs before two", nul + recA + recB, CodeNulRun, []string{recA, recB}},
		{"NULs between two", recA + nul + recB, CodeNulRun, []string{recA, recB}},
		{"NULs before no record", nul + `{"x":1}`, CodeMalformedLine, nil},
		{"NULs before a torn record", nul + `{"type":"me`, CodeMalformedLine, nil},
		{"NULs before words", nul + "words", CodeMalformedLine, nil},
		{"NULs in the middle of a record", `{"type":"m","id":"a","x":"b` + nul + `c","y":{"type":"n","id":"n"}}`, CodeMalformedLine, nil},
		{"NULs in the middle, then cut", `{"type":"m","id":"a","x":"b` + nul + `c","y":{"type":"n","id":"n"}`, CodeMalformedLine, nil},

		{"words before a record", "words " + recA, CodeMalformedLine, nil},
		{"an array before a record", "[1]" + recA, CodeMalformedLine, nil},
		{"a byte-order mark", BOM + recA, CodeMalformedLine, nil},
		{"a tail of a record before one", `ok"}}` + recA, CodeMalformedLine, nil},
		{"nested, behind a control character, cut", "{\"type\":\"m\",\"id\":\"a\",\"x\":\"\x01\",\"y\":{\"type\":\"n\",\"id\":\"n\"}", CodeMalformedLine, nil},
		{"nested, behind a stray quote, cut", `{"type":"m","id":"a","x":"b"c","y":{"type":"n","id":"n"}`, CodeMalformedLine, nil},
		{"a raw control character", "{\"type\":\"m\",\"id\":\"a\x01\"}", CodeMalformedLine, nil},
		{"fused before a record without envelope", `{"type":"m","te{"type":"text","text":"x"}`, CodeMalformedLine, nil},
		{"fused record with garbage behind", `{"type":"m","te` + recB + "}", CodeMalformedLine, nil},
		{"fused record torn again", `{"type":"m","te` + recB[:40], CodeMalformedLine, nil},
		{"too deep, and an inner object at the end", `{"type":"m","id":"a","x":` + strings.Repeat("[", depthMax-2) + `{"type":"n","id":"n","y":[[]]}`, CodeMalformedLine, nil},
		{"cut short: nested object at the end", `{"type":"m","id":"a","x":{"type":"n","id":"n"}`, CodeMalformedLine, nil},
		{"cut short: record in the place of a value", `{"type":"m","id":"a","x":` + recB, CodeMalformedLine, nil},
	}
	s := NewScanner(testKeys)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			line := []byte(tt.line)
			code, values := Salvage(line, s, testEnvelope)
			var got []string
			for _, v := range values {
				got = append(got, string(v.Bytes(line)))
			}
			if code != tt.code {
				t.Errorf("got code %s, want %s", code, tt.code)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

// A record torn anywhere before another gives the other, or nothing where it
// stands in the place of a value of the first; it never gives anything else.
func TestSalvage_EveryCut(t *testing.T) {
	s := NewScanner(testKeys)
	for cut := 1; cut < len(recA); cut++ {
		line := []byte(recA[:cut] + recB)
		if scan := s.Scan(line); scan.Kind != Invalid {
			t.Fatalf("cut at %d: a whole line", cut)
		} else if scan.AtEnd {
			if last := strings.TrimRight(recA[:cut], " ")[cut-1]; last != ':' && last != '[' {
				t.Errorf("cut at %d behind %q: fails only at the end", cut, last)
			}
			continue
		}
		code, values := Salvage(line, s, testEnvelope)
		if code != CodeFusedLine || len(values) != 1 || string(values[0].Bytes(line)) != recB {
			t.Errorf("cut at %d: got %s and %d objects, want fused_line and the second record", cut, code, len(values))
		}
	}
}

// The envelope may use the scanner that Salvage uses.
func TestSalvage_SharedScanner(t *testing.T) {
	s := NewScanner(testKeys)
	line := []byte(recA + recB + `{"type":"x` + recC)
	code, values := Salvage(line, s, func(obj []byte) bool { return s.Scan(obj).Top[0].Present() })
	if code != CodeFusedLine || len(values) != 3 {
		t.Errorf("got %s and %d objects, want fused_line and 3", code, len(values))
	}
}

// Lines made to be slow are given up in bounded time.
func TestSalvage_Bounded(t *testing.T) {
	s := NewScanner(testKeys)
	tries := 0
	count := func(obj []byte) bool { tries++; return false }
	for name, line := range map[string]string{
		"open brackets":  strings.Repeat("{", 1<<20),
		"nested starts":  strings.Repeat(`{"a":`, 1<<16) + `"` + strings.Repeat("x", 1<<20) + "\x01",
		"starts in text": `{"a":"` + strings.Repeat("{ ", 1<<20) + `"b`,
	} {
		if code, _ := Salvage([]byte(line), s, count); code != CodeMalformedLine {
			t.Errorf("%s: got %s, want malformed_line", name, code)
		}
	}
	if tries > 0 {
		t.Errorf("got %d whole objects, want 0", tries)
	}
}

func FuzzSalvage(f *testing.F) {
	for _, line := range []string{
		recA + recB, `{"type":"m","te` + recB, recA + "}", "\x00\x00" + recA, `{"type":"m","x":"\x00\x00` + recC,
		`{"type":"m","x":{"type":"n","id":"n"},"y":"` + recC, "[]" + recA, `{"":{"{":1}`,
	} {
		f.Add([]byte(line))
	}
	s := NewScanner(testKeys)
	f.Fuzz(func(t *testing.T, line []byte) {
		code, values := Salvage(line, s, testEnvelope)
		at := 0
		for _, v := range values {
			if v.Kind != Object || v.Start < at || v.End > len(line) || !json.Valid(v.Bytes(line)) || !testEnvelope(v.Bytes(line)) {
				t.Fatalf("Salvage(%q): %s: value %+v is no record behind %d", line, code, v, at)
			}
			at = v.End
		}
		if (code == CodeMalformedLine) != (len(values) == 0) && code != CodeNulRun {
			t.Fatalf("Salvage(%q): got %s with %d values", line, code, len(values))
		}
	})
}
