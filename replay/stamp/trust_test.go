package stamp

import (
	"testing"
	"time"
)

// fakeClock is a wall clock that can be set, beside one that cannot.
type fakeClock struct {
	wall   time.Time
	steady time.Duration
}

func newFakeClock() *fakeClock {
	return &fakeClock{wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

func (c *fakeClock) now() (time.Time, time.Duration) { return c.wall, c.steady }

// pass lets time go by.
func (c *fakeClock) pass(d time.Duration) { c.wall, c.steady = c.wall.Add(d), c.steady+d }

// set moves the wall clock alone.
func (c *fakeClock) set(d time.Duration) { c.wall = c.wall.Add(d) }

// changedAgo is the stamp of a file that changed so long ago.
func (c *fakeClock) changedAgo(d time.Duration) Stamp {
	return Stamp{Size: 1, CTimeNano: c.wall.Add(-d).UnixNano(), Device: 1, Inode: 1}
}

func TestTrust_Prove(t *testing.T) {
	with := func(s Stamp, device uint64) Stamp { s.Device = device; return s }
	for _, tc := range []struct {
		name            string
		stamp           func(c *fakeClock, tr *Trust) Stamp
		proves, vouched bool
	}{
		{"rested", func(c *fakeClock, _ *Trust) Stamp { return c.changedAgo(time.Hour) }, true, true},
		{"rested just long enough", func(c *fakeClock, _ *Trust) Stamp { return c.changedAgo(Settled) }, true, true},
		{"hot", func(c *fakeClock, _ *Trust) Stamp { return c.changedAgo(Settled - 1) }, false, true},
		{"changed now", func(c *fakeClock, _ *Trust) Stamp { return c.changedAgo(0) }, false, true},
		{"changed in the future", func(c *fakeClock, _ *Trust) Stamp { return c.changedAgo(-time.Hour) }, false, true},
		{"of a device that nobody believes", func(c *fakeClock, _ *Trust) Stamp { return with(c.changedAgo(time.Hour), 2) }, false, false},
		{"of a device that is believed too", func(c *fakeClock, tr *Trust) Stamp {
			tr.Believe(2)
			return with(c.changedAgo(time.Hour), 2)
		}, true, true},
		{"missing", func(*fakeClock, *Trust) Stamp { return Missing }, false, false},
		{"missing, and no device believed by number", func(_ *fakeClock, tr *Trust) Stamp { tr.Believe(0); return Missing }, false, false},
		{"just after a step forward", func(c *fakeClock, tr *Trust) Stamp {
			tr.Observe()
			c.set(time.Hour) // a hot file looks rested
			return c.changedAgo(time.Hour)
		}, false, true},
		{"just after a step back", func(c *fakeClock, tr *Trust) Stamp {
			tr.Observe()
			c.set(-time.Hour)
			return c.changedAgo(2 * time.Hour)
		}, false, true},
		{"a while after a step", func(c *fakeClock, tr *Trust) Stamp {
			tr.Observe()
			c.set(time.Hour)
			tr.Observe()
			c.pass(Settled)
			return c.changedAgo(Settled)
		}, true, true},
		{"changed before a step back, which made it future", func(c *fakeClock, tr *Trust) Stamp {
			tr.Observe()
			s := c.changedAgo(time.Minute)
			c.set(-time.Hour)
			tr.Observe()
			c.pass(Settled)
			return s
		}, false, true},
		{"set before the first look", func(c *fakeClock, _ *Trust) Stamp { c.set(time.Hour); return c.changedAgo(time.Hour) }, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newFakeClock()
			tr := NewTrust(c.now)
			tr.Believe(1)
			s := tc.stamp(c, tr)
			if got := tr.Holds(tr.Prove(s)); got != tc.proves {
				t.Errorf("proven: got %v, want %v", got, tc.proves)
			}
			if got := tr.Holds(tr.Vouch(s)); got != tc.vouched {
				t.Errorf("vouched for: got %v, want %v", got, tc.vouched)
			}
		})
	}
}

// What was proven or vouched for holds until the wall clock steps, and no
// longer, though it steps back to where it was.
func TestTrust_Holds(t *testing.T) {
	for _, tc := range []struct {
		name   string
		happen func(c *fakeClock, tr *Trust)
		want   bool
	}{
		{"nothing", func(*fakeClock, *Trust) {}, true},
		{"a day", func(c *fakeClock, _ *Trust) { c.pass(24 * time.Hour) }, true},
		{"a step forward", func(c *fakeClock, _ *Trust) { c.set(time.Minute) }, false},
		{"a step back", func(c *fakeClock, _ *Trust) { c.set(-time.Minute) }, false},
		{"the least step", func(c *fakeClock, _ *Trust) { c.set(stepMax + 1) }, false},
		{"the least step back", func(c *fakeClock, _ *Trust) { c.set(-stepMax - 1) }, false},
		{"less than a step", func(c *fakeClock, _ *Trust) { c.set(stepMax) }, true},
		{"slewing, seconds in all", func(c *fakeClock, tr *Trust) {
			for range 4000 { // half a thousandth, as adjtime does
				c.pass(time.Second)
				c.set(500 * time.Microsecond)
				tr.Observe()
			}
		}, true},
		{"slewing back", func(c *fakeClock, tr *Trust) {
			for range 4000 {
				c.pass(time.Second)
				c.set(-500 * time.Microsecond)
				tr.Observe()
			}
		}, true},
		{"a step and a step back, both seen", func(c *fakeClock, tr *Trust) {
			c.set(time.Minute)
			tr.Observe()
			c.set(-time.Minute)
		}, false},
		{"a step that is seen, long ago", func(c *fakeClock, tr *Trust) {
			c.set(time.Minute)
			tr.Observe()
			c.pass(time.Hour)
		}, false},
		{"a suspend, which the steady clock sleeps through", func(c *fakeClock, _ *Trust) { c.set(8 * time.Hour) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newFakeClock()
			tr := NewTrust(c.now)
			tr.Believe(1)
			proven, vouched := tr.Prove(c.changedAgo(time.Hour)), tr.Vouch(c.changedAgo(0))
			if !tr.Holds(proven) || !tr.Holds(vouched) {
				t.Fatal("nothing is proven to begin with")
			}
			tc.happen(c, tr)
			if p, v := tr.Holds(proven), tr.Holds(vouched); p != tc.want || v != tc.want {
				t.Errorf("holds: got %v, vouched for %v; want %v", p, v, tc.want)
			}
			if tr.Holds(0) {
				t.Error("no proof holds")
			}
		})
	}
}

func TestTrust_MachinesClock(t *testing.T) {
	tr := NewTrust(nil)
	tr.Believe(1)
	s := Stamp{Size: 1, CTimeNano: time.Now().Add(-time.Hour).UnixNano(), Device: 1, Inode: 1}
	p := tr.Prove(s)
	tr.Observe()
	if !tr.Holds(p) {
		t.Error("an old file is not proven")
	}
}
