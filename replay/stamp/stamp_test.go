package stamp

import (
	"testing"
	"time"
)

func TestTrustedAt(t *testing.T) {
	changed := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := Stamp{Size: 1, MTimeNano: 1, CTimeNano: changed.UnixNano(), Inode: 1}
	for _, tc := range []struct {
		name   string
		stamp  Stamp
		readAt time.Time
		want   bool
	}{
		{"rested", s, changed.Add(time.Hour), true},
		{"rested just long enough", s, changed.Add(Settled), true},
		{"hot", s, changed.Add(Settled - 1), false},
		{"read when it changed", s, changed, false},
		{"changed in the future", s, changed.Add(-time.Hour), false},
		{"missing", Missing, changed.Add(time.Hour), false},
		{"another zone", s, changed.Add(Settled).In(time.FixedZone("", 3600)), true},
	} {
		if got := tc.stamp.TrustedAt(tc.readAt); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestSameFile(t *testing.T) {
	s := Stamp{Size: 1, Device: 2, Inode: 3}
	for _, tc := range []struct {
		name string
		a, b Stamp
		want bool
	}{
		{"itself", s, s, true},
		{"grown", s, Stamp{Size: 9, CTimeNano: 5, Device: 2, Inode: 3}, true},
		{"another inode", s, Stamp{Size: 1, Device: 2, Inode: 4}, false},
		{"another device", s, Stamp{Size: 1, Device: 3, Inode: 3}, false},
		{"missing", Missing, Missing, false},
		{"gone", s, Missing, false},
	} {
		if got := tc.a.SameFile(tc.b); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestStamp_String(t *testing.T) {
	s := Stamp{Size: 5, CTimeNano: 1767323045678000000, Device: 8<<32 | 1, Inode: 7}
	if got, want := s.String(), "size 5, inode 34359738369:7, ctime 2026-01-02T03:04:05.678Z"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Missing.String(); got != "missing" {
		t.Errorf("got %q, want missing", got)
	}
}
