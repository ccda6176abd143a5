package client

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sessiond/wire"
)

func testPlaces() map[string]Place {
	c := wire.Cursor{Generation: wire.Generation{7}, Sequence: 2, Offset: 30, Digest: 9}
	zero, some := 0, 1180
	return map[string]Place{
		"start":    {},
		"cursor":   {Cursor: c},
		"have 0":   {Cursor: c, Have: &zero, RulesRevision: "pi/3"},
		"have":     {Cursor: c, Have: &some},
		"rules":    {Cursor: c, RulesRevision: "pi/3"},
		"position": {Position: &wire.Position{SnapshotID: 5, View: wire.ViewContext, Target: 9, Cut: c, Index: 3}, RulesRevision: "x"},
	}
}

func TestPlace_RoundTrips(t *testing.T) {
	for name, want := range testPlaces() {
		for _, end := range []string{"", "\n"} {
			got, err := ParsePlace(want.String() + end)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%s: %s: %v (-want +got):\n%s", name, want, err, diff)
			}
		}
	}
}

func TestPlace_TextForm(t *testing.T) {
	const want = "s1.07000000000000000000000000000000.2.30.0000000000000009 have=0 rules=pi/3"
	if got := testPlaces()["have 0"].String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestParsePlace_Refuses(t *testing.T) {
	c := testPlaces()["cursor"].String()
	for name, s := range map[string]string{
		"empty":         "",
		"two lines":     c + "\n\n",
		"two cursors":   c + " " + c,
		"space at end":  c + " ",
		"two spaces":    c + "  have=1",
		"negative have": c + " have=-1",
		"have 01":       c + " have=01",
		"giant have":    c + " have=2147483648",
		"other order":   c + " rules=a have=1",
		"empty rules":   c + " rules=",
		"unknown word":  c + " x=1",
		"control byte":  c + " rules=a\x1b",
		"long rules":    c + " rules=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
	} {
		if got, err := ParsePlace(s); err == nil {
			t.Errorf("%s: got %s, want an error", name, got)
		}
	}
}

func FuzzParsePlace(f *testing.F) {
	for _, p := range testPlaces() {
		f.Add(p.String())
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePlace(s)
		if err == nil && p.String() != s && p.String()+"\n" != s {
			t.Errorf("got %q back for %q", p, s)
		}
	})
}
