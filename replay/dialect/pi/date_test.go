package pi

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"sessiond/replay/jsonl"
)

// The values are what the reference's language makes of these texts, with UTC
// as its zone.
func TestJSTime(t *testing.T) {
	const none = -1 << 62
	for _, tc := range []struct {
		json string
		want int64
	}{
		{`"2026-01-02T03:04:05.678Z"`, 1767323045678},
		{`"2026-01-02T03:04:05.678"`, 1767323045678},
		{`"2026-01-02 03:04:05.678Z"`, 1767323045678},
		{`"2026-01-02t03:04:05.678z"`, 1767323045678},
		{`"2026-01-02T03:04:05.6789999Z"`, 1767323045678},
		{`"2026\u002d01-02T03:04:05.678Z"`, 1767323045678},
		{`"2026-01-01T10:20:30.1Z"`, 1767262830100},
		{`"2026-01-01T10:20:30.Z"`, none},
		{`"2026-01-01T10:20Z"`, 1767262800000},
		{`"2026-01-01T10"`, none},
		{`"2026-01-01T10:20:30+05:30"`, 1767243030000},
		{`"2026-01-01T10:20:30+0530"`, 1767243030000},
		{`"2026-01-01T23:59:59+23:59"`, 1767225659000},
		{`"2026-01-01T23:59:59+24:00"`, none},
		{`"2026-01-01T10:20:30.123+05"`, none},
		{`"2026-01-01T24:00:00Z"`, 1767312000000},
		{`"2026-01-01T24:00:01Z"`, none},
		{`"2026-01-01T10:20:60Z"`, none},
		{`"2026-01-01T10:20:30 Z"`, none},
		{`"2026-01-01T10:20:30,5Z"`, none},
		{`"2026-02-30"`, 1772409600000},
		{`"2026-02-31T00:00:00Z"`, 1772496000000},
		{`"2026-04-31"`, 1777593600000},
		{`"2026-01-32"`, none},
		{`"2026-00-10"`, none},
		{`"2026-13"`, none},
		{`"2026"`, 1767225600000},
		{`"2026T10:00Z"`, 1767261600000},
		{`"+002026-01-01T00:00:00Z"`, 1767225600000},
		{`"-000001-01-01T00:00:00Z"`, -62198755200000},
		{`"-000000-01-01T00:00:00Z"`, none},
		{`"+275760-09-13T00:00:00.000Z"`, 8640000000000000},
		{`"+275760-09-13T00:00:00.001Z"`, none},
		{`"0000-01-01"`, -62167219200000},
		{`""`, none},
		{`"soon"`, none},
		{`"1767323045678"`, none},
		{`1.9`, 1},
		{`-1.9`, -1},
		{`1767323045678`, 1767323045678},
		{`8.64e15`, 8640000000000000},
		{`8640000000000001`, none},
		{`1e999`, none},
		{`null`, 0},
		{`false`, 0},
		{`true`, 1},
		{`{}`, none},
		{`[]`, none},
	} {
		object := []byte(`{"t":` + tc.json + `}`)
		want, wantOK := tc.want, tc.want != none
		got, ok := jsTime(object, jsonl.Get(object, "t"))
		if ok != wantOK || (ok && got != want) {
			t.Errorf("jsTime(%s): got %d %v, want %d %v", tc.json, got, ok, want, wantOK)
		}
	}
	if _, ok := jsTime(nil, jsonl.Value{}); ok {
		t.Error("jsTime(absent): got ok")
	}
}

func TestJSTime_EqualsTheCalendar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(-62_167_219_200_000, 253_402_300_799_999).Draw(t, "ms") // years 0 to 9999
		text := time.UnixMilli(ms).UTC().Format(`"2006-01-02T15:04:05.000Z"`)
		object := []byte(`{"t":` + text + `}`)
		if got, ok := jsTime(object, jsonl.Get(object, "t")); !ok || got != ms {
			t.Fatalf("jsTime(%s): got %d %v, want %d", text, got, ok, ms)
		}
	})
}

func FuzzJSTime(f *testing.F) {
	f.Add("2026-01-02T03:04:05.678Z")
	f.Add("+275760-09-13T00:00:00.000Z")
	f.Add("2026-02-30 24:00")
	f.Fuzz(func(t *testing.T, text string) {
		if ms, ok := isoTime([]byte(text)); ok && (ms > timeMilliMax || ms < -timeMilliMax) {
			t.Errorf("isoTime(%q): got %d, out of range", text, ms)
		}
	})
}
