package main

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestEscaper(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"plain", `{"a":"é"}`, `{"a":"é"}`},
		{"C1", "\"\u009b31m\"", `"\u009b31m"`},
		{"bidi", "\"\u202e\"", `"\u202e"`},
		{"DEL", "\"\x7f\"", `"\u007f"`},
		{"beyond the basic plane", "\"\U000e0041\"", `"\udb40\udc41"`},
		{"no UTF-8", "\"\xff\"", `"` + "\ufffd" + `"`},
		{"between values", "[1,\r\n\t2]", "[1, \n\t2]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var whole, pieces bytes.Buffer
			for _, w := range []struct {
				out  *bytes.Buffer
				step int
			}{{&whole, len(tt.in)}, {&pieces, 1}} {
				e := &escaper{w: w.out}
				for at := 0; at < len(tt.in); at += w.step {
					if n, err := e.Write([]byte(tt.in[at : at+w.step])); n != w.step || err != nil {
						t.Fatalf("Write: got %d, %v, want %d", n, err, w.step)
					}
				}
				if w.out.String() != tt.want {
					t.Errorf("in steps of %d: got %q, want %q", w.step, w.out, tt.want)
				}
			}
			var in, out any
			if json.Unmarshal([]byte(tt.in), &in) == nil {
				if err := json.Unmarshal(whole.Bytes(), &out); err != nil {
					t.Errorf("escaped: %v", err)
				}
			}
		})
	}
}
