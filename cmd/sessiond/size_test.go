package main

import "testing"

func TestByteSize(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want int64
		text string // "": refused
	}{
		{"0", 0, "0"},
		{"5", 5, "5"},
		{"1024", 1 << 10, "1KiB"},
		{"512KiB", 512 << 10, "512KiB"},
		{"1536KiB", 1536 << 10, "1536KiB"},
		{"4MiB", 4 << 20, "4MiB"},
		{"2GiB", 2 << 30, "2GiB"},
		{"0MiB", 0, "0"},
		{"8589934591GiB", 8589934591 << 30, "8589934591GiB"},
		{"8589934592GiB", 0, ""},
		{"-1", 0, ""},
		{"", 0, ""},
		{"MiB", 0, ""},
		{"4MB", 0, ""},
		{"4 MiB", 0, ""},
		{"1.5MiB", 0, ""},
	} {
		t.Run(tt.in, func(t *testing.T) {
			var b byteSize
			err := b.Set(tt.in)
			if (err == nil) != (tt.text != "") {
				t.Fatalf("Set(%q): got %v", tt.in, err)
			}
			if err != nil {
				return
			}
			if int64(b) != tt.want || b.String() != tt.text {
				t.Errorf("Set(%q): got %d as %q, want %d as %q", tt.in, int64(b), b.String(), tt.want, tt.text)
			}
		})
	}
}
