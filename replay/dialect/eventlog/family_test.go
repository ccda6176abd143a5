package eventlog

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"sessiond/replay/jsonl"
)

func TestFamily_Envelope(t *testing.T) {
	whole := `{"event_type":"user_input","timestamp":"2026-01-02T03:04:05Z","payload":{}}`
	for _, tc := range []struct {
		object string
		want   bool
	}{
		{whole, true},
		{strings.Replace(whole, "user_input", "invented", 1), true},
		{strings.Replace(whole, `"user_input"`, `1`, 1), false},
		{strings.Replace(whole, `{}`, `[]`, 1), false},
		{strings.Replace(whole, `"timestamp"`, `"time"`, 1), false},
		{`[` + whole + `]`, false},
		{`{}`, false},
	} {
		scan := jsonl.NewScanner(Family{}.Keys(false)).Scan([]byte(tc.object))
		if got := (Family{}).Envelope(scan, []byte(tc.object)); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.object, got, tc.want)
		}
	}
}

func TestFamily_HasNoHeader(t *testing.T) {
	if h, err := (Family{}).Header("s1", "/w", time.Now()); len(h) > 0 || err != nil {
		t.Errorf("got %q, %v", h, err)
	}
}

func TestKindOf_Local(t *testing.T) {
	for typ, want := range map[string]kind{
		"usage": kindSilent, "token_usage": kindSilent, "preference": kindSilent, "user_preferences": kindSilent, "active_time": kindSilent,
		"usages": kindUnknown, "usage_of": kindUnknown, "": kindUnknown, "USER_INPUT": kindUnknown,
	} {
		if got := kindOf(typ); got != want {
			t.Errorf("%q: got kind %d, want %d", typ, got, want)
		}
	}
}

// TestCutOutput_KeepsBothEnds compares with the plain rule over runes.
func TestCutOutput_KeepsBothEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]string{"a", "é", "語", "🙂", "a🙂"}).Draw(t, "unit")
		text := strings.Repeat(unit, rapid.IntRange(0, 2*outputMax).Draw(t, "n"))
		got, runes := string(cutOutput([]byte(text), 7)), []rune(text)
		if len(runes) <= outputMax {
			if got != text {
				t.Fatalf("%d characters were cut", len(runes))
			}
			return
		}
		head, tail := string(runes[:outputKept]), string(runes[len(runes)-outputKept:])
		if !strings.HasPrefix(got, head+"\n[... ") || !strings.HasSuffix(got, " ...]\n"+tail) || !utf8.ValidString(got) {
			t.Fatalf("%d characters: got %d bytes that do not keep both ends", len(runes), len(got))
		}
	})
}
