package stamp

import (
	"sync"
	"time"
)

// Proof says that content was read under a stamp which, found equal later,
// proves equal content. The zero Proof proves nothing.
type Proof uint32

// Clock gives the wall clock, in which stamps are, and the time since some
// start that no step of the wall clock touches.
type Clock func() (wall time.Time, steady time.Duration)

// SystemClock is the clock of the machine.
func SystemClock() Clock {
	start := time.Now()
	return func() (time.Time, time.Duration) {
		now := time.Now()
		return now, now.Sub(start)
	}
}

// stepMax is by how much wall and steady clock may part between two looks
// before the wall clock counts as stepped; slewing stays far below.
const stepMax = 100 * time.Millisecond

// Trust decides what stamps prove. An in-place writer moves the stamp before
// the bytes, and with a coarse clock twice to the same value: so a stamp is
// believed only on a device whose change metadata is known to be fine-grained,
// only when the last change was Settled before the reading began, and only as
// long as the wall clock was not seen to step. It is safe for concurrent use.
type Trust struct {
	clock Clock

	mu      sync.Mutex
	fine    map[uint64]bool // devices
	epoch   Proof           // of the wall clock between two steps
	behind  time.Duration   // wall - steady at the last look
	looked  bool
	stepped time.Duration // steady time of the last step; with hasStep
	hasStep bool
}

// NewTrust returns a Trust that believes in no device yet. A nil clock is the
// machine's.
func NewTrust(clock Clock) *Trust {
	if clock == nil {
		clock = SystemClock()
	}
	return &Trust{clock: clock, fine: map[uint64]bool{}, epoch: 1}
}

// Believe takes a device's change metadata for fine-grained.
func (t *Trust) Believe(device uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fine[device] = true
}

// Observe looks at the clock, so that a step is noticed. It is to be called
// about every second.
func (t *Trust) Observe() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.observeLocked()
}

func (t *Trust) observeLocked() (wall time.Time, steady time.Duration) {
	wall, steady = t.clock()
	behind := time.Duration(wall.UnixNano()) - steady
	if parted := behind - t.behind; t.looked && (parted > stepMax || parted < -stepMax) {
		t.epoch++
		t.stepped, t.hasStep = steady, true
	}
	t.behind, t.looked = behind, true
	return wall, steady
}

// Prove is asked with a stamp taken now, before the content is read. What is
// read while the stamp stays is proven, as long as the Proof holds, by the
// stamp being found again.
func (t *Trust) Prove(s Stamp) Proof {
	t.mu.Lock()
	defer t.mu.Unlock()
	wall, steady := t.observeLocked()
	switch {
	case !s.TrustedAt(wall), !t.fine[s.Device]:
		return 0
	case t.hasStep && steady-t.stepped < Settled: // what rested in the old time may be hot in the new
		return 0
	}
	return t.epoch
}

// Vouch returns a Proof for content that this process has written itself,
// however hot.
func (t *Trust) Vouch(s Stamp) Proof {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.observeLocked()
	if s.IsMissing() || !t.fine[s.Device] {
		return 0
	}
	return t.epoch
}

// Holds reports whether a proof given earlier is still one.
func (t *Trust) Holds(p Proof) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.observeLocked()
	return p != 0 && p == t.epoch
}
