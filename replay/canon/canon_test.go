package canon

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"sessiond/replay/internal/oracle"
)

// The worked examples of the format; they never change.
var examples = []struct{ name, json, stream, hash string }{
	{
		"message", `{"role":"user","content":"hi","timestamp":1}`,
		`{s7:contents2:his4:roles4:users9:timestampd3ff0000000000000;}`,
		"345ba9093a5e41334ece4f8fbd1cc60f708c44f2806fb8be41cbcccf0649fd96",
	},
	{
		"numbers", `[1.0,-0,1e400,-1e999,12345678901234567890,9007199254740993,1e-400,0.1]`,
		`[d3ff0000000000000;d0000000000000000;n;n;d43e56a95319d63e1;d4340000000000000;d0000000000000000;d3fb999999999999a;]`,
		"684026fbb25d0c12faacd53dc61bed7676aa02b4323d867553d63f1d99974dfd",
	},
	{
		"escapes", `{"s":"\ud800x","t":"\ud83d\ude00","u":"a\u2028b","v":"\u0000\/","w":"\udc00\ud83d"}`,
		"{s1:ss4:\uFFFDxs1:ts4:😀s1:us5:a\u2028bs1:vs2:\x00/s1:ws6:\uFFFD\uFFFD}",
		"bdd7eb91db7fae7d7efe80a372c91c5ef203aee2a29839b2e5237dd23726d243",
	},
	{
		"key order", `{"b":{"z":null,"a":[true,false,{}],"10":1,"9":2},"￮":1,"😀":2,"é":3,"B":4,"":5}`,
		`{s0:d4014000000000000;s1:Bd4010000000000000;s1:b{s2:10d3ff0000000000000;s1:9d4000000000000000;s1:a[t;f;{}]s1:zn;}` +
			`s2:éd4008000000000000;s3:￮d3ff0000000000000;s4:😀d4000000000000000;}`,
		"51c44b0da91af5850b332208c37ef729fcfb12d20aa29574da46c73ebffd5ed7",
	},
	{
		"duplicate keys", `{"a":1,"a":{"x":1,"x":2},"b":[],"__proto__":{"k":1}}`,
		`{s9:__proto__{s1:kd3ff0000000000000;}s1:a{s1:xd4000000000000000;}s1:b[]}`,
		"3f333a9756cc43889b19e5ea37053788a07941ab3fa6a6751e3747b5d30160c3",
	},
	{
		"empty context", `[]`, `[]`,
		"4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945",
	},
	{
		"nulls", `{"role":"custom","customType":"t","content":null,"display":true,"timestamp":null}`,
		`{s7:contentn;s10:customTypes1:ts7:displayt;s4:roles6:customs9:timestampn;}`,
		"53af9872efa7c098971cd1f0c0acdf5089a4749b8bc8fe276f661c0fe34add4b",
	},
}

func TestSum_Examples(t *testing.T) {
	for _, tt := range examples {
		t.Run(tt.name, func(t *testing.T) {
			if got := stream(t, tt.json); got != tt.stream {
				t.Errorf("stream: got %q, want %q", got, tt.stream)
			}
			if got := sum(t, tt.json); got.String() != tt.hash {
				t.Errorf("Sum: got %s, want %s", got, tt.hash)
			}
		})
	}
}

func TestSum_OracleExamples(t *testing.T) {
	f, err := os.Open(oracle.Dir(t, "hash_examples.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	count := 0
	for lines := bufio.NewScanner(f); lines.Scan(); count++ {
		var example struct{ JSON, Stream, Hash string }
		if err := json.Unmarshal(lines.Bytes(), &example); err != nil {
			t.Fatal(err)
		}
		if got := stream(t, example.JSON); got != example.Stream {
			t.Errorf("stream of %s: got %q, want %q", example.JSON, got, example.Stream)
		}
		if got := sum(t, example.JSON); got.String() != example.Hash {
			t.Errorf("Sum(%s): got %s, want %s", example.JSON, got, example.Hash)
		}
	}
	if count != 7 {
		t.Errorf("got %d examples, want 7", count)
	}
}

func TestSum_SameValue(t *testing.T) {
	for _, tt := range []struct{ name, a, b string }{
		{"white space", "{\"a\":[1,2]}", " {\t\"a\" :\r\n[ 1 , 2 ] } "},
		{"spelling of numbers", `[100,0.5,0]`, `[1e2,5E-1,-0.0e9]`},
		{"underflow is zero", `[0]`, `[-1e-999]`},
		{"overflow is null", `[null]`, `[1e309]`},
		{"largest double stays", `[1.7976931348623157e308]`, `[17976931348623157e292]`},
		{"escaped key", `{"id":1}`, `{"\u0069d":1}`},
		{"duplicate through an escape", `{"id":2}`, `{"id":1,"\u0069\u0064":2}`},
		{"maximal subpart is one", "[\"\uFFFDA\"]", "[\"\xe2\x82A\"]"},
		{"two bad bytes are two", "[\"\uFFFD\uFFFD\"]", "[\"\xff\xfe\"]"},
		{"lone surrogate is bad text", `["\ud800"]`, "[\"\xff\"]"},
		{"quote after backslashes", `["\\\"",1]`, `["\u005c\u0022",1]`},
		{"keys that decode alike", "{\"\uFFFD\":2}", "{\"\xff\":1,\"\\udfff\":2}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if a, b := sum(t, tt.a), sum(t, tt.b); a != b {
				t.Errorf("Sum: got %s for %q, want that of %q, %s", b, tt.b, tt.a, a)
			}
		})
	}
}

func TestSum_OtherValue(t *testing.T) {
	seen := map[Hash]string{}
	for _, text := range []string{
		`null`, `false`, `0`, `""`, `[]`, `{}`, `[[]]`, `[[],[]]`, `[{}]`, `"0"`, `"n;"`,
		`["a","b"]`, `["ab"]`, `["as1:b"]`, `{"a":"b"}`, `{"a":null}`, `{"":"a"}`, `1`, `1.0000000000000002`,
	} {
		h := sum(t, text)
		if other, ok := seen[h]; ok {
			t.Errorf("Sum: got the same for %s and %s", text, other)
		}
		seen[h] = text
	}
}

func TestSum_Invalid(t *testing.T) {
	for _, text := range []string{"", " ", "{", `{"a"}`, "[1,]", "01", "nul", "[] []", "\"\n\"", `"\x"`, deep(10001)} {
		if _, err := Sum([]byte(text)); !errors.Is(err, ErrInvalid) {
			t.Errorf("Sum(%.20q): got error %v, want %v", text, err, ErrInvalid)
		}
	}
}

func TestSum_DeepNesting(t *testing.T) {
	text := deep(10000)
	if got := stream(t, text); got != text {
		t.Errorf("stream: got %d bytes, want the %d brackets", len(got), len(text))
	}
}

func TestSum_LongString(t *testing.T) {
	long := strings.Repeat("x", 3*flushBytes)
	got, want := stream(t, `["a","`+long+`","b"]`), fmt.Sprintf("[s1:as%d:%ss1:b]", len(long), long)
	if got != want {
		t.Errorf("stream: got %d bytes, want %d", len(got), len(want))
	}
}

func TestArrayHasher(t *testing.T) {
	items := []string{`{"role":"user"}`, ` 1 `, `[]`, `"` + strings.Repeat("y", 2*flushBytes) + `"`}
	var a ArrayHasher
	for i := 0; ; i++ {
		want := sum(t, "["+strings.Join(items[:i], ",")+"]")
		for range 2 { // Sum changes nothing
			if got := a.Sum(); got != want {
				t.Fatalf("Sum of %d items: got %s, want %s", i, got, want)
			}
		}
		if a.Len() != i {
			t.Fatalf("Len: got %d, want %d", a.Len(), i)
		}
		if i == len(items) {
			return
		}
		if err := a.Add([]byte("{")); !errors.Is(err, ErrInvalid) {
			t.Fatalf("Add of half an object: got error %v, want %v", err, ErrInvalid)
		}
		if err := a.Add([]byte(items[i])); err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzSum: what the standard library takes for JSON has a hash, and the same
// one when the standard library has written it anew.
func FuzzSum(f *testing.F) {
	for _, tt := range examples {
		f.Add([]byte(tt.json))
	}
	f.Add([]byte("{\"a\\\"\":\"\xe2\x82A\",\"\\u0061\\u0022\":[1e400,{}]}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := Sum(text)
		if valid := json.Valid(text); valid != (err == nil) {
			t.Fatalf("Sum(%q): got error %v, want valid %v", text, err, valid)
		}
		var v any
		if err != nil || json.Unmarshal(text, &v) != nil { // a number out of range
			return
		}
		again, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsRune(string(again), '\uFFFD') || strings.Contains(string(again), `\ufffd`) {
			return // the library counts bad sequences by bytes
		}
		if want := sum(t, string(again)); got != want {
			t.Errorf("Sum(%q): got %s, want that of %q, %s", text, got, again, want)
		}
	})
}

func BenchmarkSum(b *testing.B) {
	text := []byte(`{"role":"assistant","content":[{"type":"text","text":"` + strings.Repeat("some words\\n", 100) +
		`"}],"usage":{"input":12,"output":7,"cost":{"total":0.25}},"timestamp":1778547747721}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Sum(text); err != nil {
			b.Fatal(err)
		}
	}
}

func sum(t *testing.T, text string) Hash {
	t.Helper()
	h, err := Sum([]byte(text))
	if err != nil {
		t.Fatalf("Sum(%.100q): %v", text, err)
	}
	return h
}

// stream returns the tokens that Sum hashes.
func stream(t *testing.T, text string) string {
	t.Helper()
	var tokens recorder
	w := newHasher(&tokens)
	if err := w.parse([]byte(text)); err != nil {
		t.Fatalf("parse(%.100q): %v", text, err)
	}
	w.write([]byte(text))
	w.flush()
	return string(tokens)
}

func deep(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// recorder is a hash that keeps what it is given.
type recorder []byte

func (r *recorder) Write(p []byte) (int, error) { *r = append(*r, p...); return len(p), nil }
func (r *recorder) Sum(b []byte) []byte         { return append(b, *r...) }
func (r *recorder) Reset()                      { *r = nil }
func (r *recorder) Size() int                   { return len(*r) }
func (r *recorder) BlockSize() int              { return 1 }
