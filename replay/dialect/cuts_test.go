package dialect

import (
	"testing"

	"pgregory.net/rapid"
)

// TestCuts_EqualsTheMinimum compares with the plain rule: the least keep of
// all later cuts.
func TestCuts_EqualsTheMinimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type note struct {
			seq  uint64
			keep int
		}
		var c Cuts
		var all []note
		seq := uint64(0)
		for range rapid.IntRange(0, 40).Draw(t, "cuts") {
			seq += rapid.Uint64Range(0, 3).Draw(t, "later")
			n := note{seq, rapid.IntRange(0, 20).Draw(t, "keep")}
			all = append(all, n)
			c.Add(n.seq, n.keep, ReasonBranch)
		}
		for after := range seq + 2 {
			want := All
			for _, n := range all {
				if n.seq > after {
					want = min(want, n.keep)
				}
			}
			if got := c.Keep(after); got.Keep != want || (got.Reason == "") != (want == All) {
				t.Fatalf("Keep(%d): got %+v, want %d", after, got, want)
			}
		}
		if len(c.cuts) > 21 {
			t.Fatalf("%d cuts are held, want no more than there are depths", len(c.cuts))
		}
	})
}

func TestCuts_Zones(t *testing.T) {
	var c Cuts
	const zones = 3 * zonesMax
	for i := range uint64(zones) {
		c.AddZone(10*i+2, 10*i+6)
	}
	if len(c.zones) > zonesMax {
		t.Errorf("%d zones are held, want at most %d", len(c.zones), zonesMax)
	}
	for i := range uint64(zones) {
		for at := range uint64(10) {
			inside := at > 2 && at < 6
			got := c.Keep(10*i + at).Keep
			if inside && got != 0 {
				t.Errorf("Keep(%d): got %d inside of a zone", 10*i+at, got)
			}
			if !inside && got != All && i > zones-zonesMax {
				t.Errorf("Keep(%d): got %d outside of the zones", 10*i+at, got)
			}
		}
	}
}
