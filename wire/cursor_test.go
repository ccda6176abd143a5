package wire

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var testGeneration = Generation{0x01, 0x9b, 15: 0xff}

func testCursor() Cursor {
	return Cursor{Generation: testGeneration, Sequence: 1200, Offset: 4812345, Digest: 0x9c0f}
}

func testPosition() Position {
	return Position{SnapshotID: 0xabc, View: ViewTranscript, Target: 524288, Cut: testCursor(), Index: 7}
}

func TestCursor_RoundTrips(t *testing.T) {
	for name, c := range map[string]Cursor{
		"start":   {},
		"usual":   testCursor(),
		"largest": {Sequence: 1<<63 - 1, Offset: 1<<63 - 1, Digest: 1<<64 - 1},
	} {
		got, err := ParseCursor(c.String())
		if err != nil || got != c {
			t.Errorf("%s: text: got %+v, %v, want %+v", name, got, err, c)
		}
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		got = Cursor{}
		if err := json.Unmarshal(b, &got); err != nil || got != c {
			t.Errorf("%s: JSON %s: got %+v, %v, want %+v", name, b, got, err, c)
		}
	}
}

func TestCursor_TextForm(t *testing.T) {
	const want = "s1.019b00000000000000000000000000ff.1200.4812345.0000000000009c0f"
	if got := testCursor().String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	const wantPosition = "p1.0000000000000abc.transcript.524288.7.019b00000000000000000000000000ff.1200.4812345.0000000000009c0f"
	if got := testPosition().String(); got != wantPosition {
		t.Errorf("got %s, want %s", got, wantPosition)
	}
}

func TestParseCursor_Refuses(t *testing.T) {
	const g, d = "019b00000000000000000000000000ff", "0000000000009c0f"
	for name, s := range map[string]string{
		"empty":              "",
		"other version":      "s2." + g + ".1.2." + d,
		"position":           testPosition().String(),
		"upper-case digest":  "s1." + g + ".1.2.0000000000009C0F",
		"short digest":       "s1." + g + ".1.2.9c0f",
		"short generation":   "s1.019b.1.2." + d,
		"leading zero":       "s1." + g + ".01.2." + d,
		"sign":               "s1." + g + ".+1.2." + d,
		"negative":           "s1." + g + ".1.-2." + d,
		"overflow":           "s1." + g + ".1.9223372036854775808." + d,
		"missing field":      "s1." + g + ".1.2",
		"more fields":        "s1." + g + ".1.2." + d + ".x",
		"more records":       "s1." + g + ".3.2." + d,
		"records in nothing": "s1." + g + ".1.0." + d,
		"bytes in none":      "s1." + g + ".0.1." + d,
		"space":              " " + testCursor().String(),
		"long hostile text":  strings.Repeat("\x1b[2J", 1000),
	} {
		got, err := ParseCursor(s)
		if err == nil {
			t.Errorf("%s: got %+v, want an error", name, got)
			continue
		}
		if msg := err.Error(); len(msg) > 700 || strings.ContainsRune(msg, 0x1b) {
			t.Errorf("%s: got the error %q, want it short and escaped", name, msg)
		}
	}
}

func TestPosition_RoundTrips(t *testing.T) {
	want := testPosition()
	got, err := ParsePosition(want.String())
	if err != nil || got != want {
		t.Errorf("text: got %+v, %v, want %+v", got, err, want)
	}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got = Position{}
	if err := json.Unmarshal(b, &got); err != nil || got != want {
		t.Errorf("JSON %s: got %+v, %v, want %+v", b, got, err, want)
	}
}

func TestPosition_Refuses(t *testing.T) {
	good := testPosition().String()
	for name, change := range map[string][2]string{
		"view":           {".transcript.", ".everything."},
		"zero target":    {".524288.", ".0."},
		"giant target":   {".524288.", ".2147483648."},
		"negative index": {".7.", ".-7."},
		"snapshot id":    {"abc.", "abg."},
		"cut":            {".1200.", ".x."},
		"prefix":         {"p1.", "p2."},
	} {
		s := strings.Replace(good, change[0], change[1], 1)
		if got, err := ParsePosition(s); err == nil {
			t.Errorf("%s: got %+v for %s, want an error", name, got, s)
		}
	}
	for name, s := range map[string]string{
		"empty object":   `{}`,
		"negative index": `{"snapshotId":"0000000000000abc","view":"records","target":1,"index":-1,"cut":{}}`,
		"no object":      `"p1"`,
	} {
		var p Position
		if err := json.Unmarshal([]byte(s), &p); err == nil {
			t.Errorf("%s: got %+v, want an error", name, p)
		}
	}
}

func TestCursor_JSONRefusesImpossible(t *testing.T) {
	var c Cursor
	for _, s := range []string{`{"sequence":2,"offset":1}`, `{"offset":-1}`, `{"digest":"zz"}`, `[]`, `{"generation":"00"}`} {
		if err := json.Unmarshal([]byte(s), &c); err == nil {
			t.Errorf("%s: got %+v, want an error", s, c)
		}
	}
}

func TestCursor_SameIgnoresGeneration(t *testing.T) {
	a, b := testCursor(), testCursor()
	b.Generation = Generation{}
	if !a.Same(b) {
		t.Error("cursors that differ in generation only: got different, want the same")
	}
	b.Digest++
	if a.Same(b) {
		t.Error("cursors that differ in digest: got the same, want different")
	}
}

func TestGeneration_Text(t *testing.T) {
	var g Generation
	if err := g.UnmarshalText([]byte(testGeneration.String())); err != nil || g != testGeneration {
		t.Errorf("got %v, %v, want %v", g, err, testGeneration)
	}
	if !(Generation{}).IsZero() || g.IsZero() {
		t.Error("IsZero: got it wrong")
	}
	b, err := json.Marshal(map[string]any{"g": g, "s": SnapshotID(1), "d": Digest(2)})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"d":"0000000000000002","g":"019b00000000000000000000000000ff","s":"0000000000000001"}`
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

func FuzzParseCursor(f *testing.F) {
	f.Add(testCursor().String())
	f.Add("s1.00000000000000000000000000000000.0.0.0000000000000000")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseCursor(s)
		if err == nil && c.String() != s {
			t.Errorf("got %s back for %q", c, s)
		}
	})
}

func FuzzParsePosition(f *testing.F) {
	f.Add(testPosition().String())
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePosition(s)
		if err == nil && p.String() != s {
			t.Errorf("got %s back for %q", p, s)
		}
	})
}
