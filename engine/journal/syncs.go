package journal

import "sync"

// SyncsMax is how many syncs run at once on one device by default: more gain
// nothing.
const SyncsMax = 16

// Syncs bounds the syncs that run at once on each device, so that one hanging
// disk does not hold the sessions of another. All journals of a process share
// one.
type Syncs struct {
	perDeviceMax int

	mu    sync.Mutex
	slots map[uint64]chan struct{} // by device; guarded by mu
}

// NewSyncs returns a bound; zero means SyncsMax.
func NewSyncs(perDeviceMax int) *Syncs {
	if perDeviceMax <= 0 {
		perDeviceMax = SyncsMax
	}
	return &Syncs{perDeviceMax: perDeviceMax, slots: map[uint64]chan struct{}{}}
}

func (s *Syncs) do(device uint64, sync func() error) error {
	slot := s.of(device)
	slot <- struct{}{}
	defer func() { <-slot }()
	return sync()
}

func (s *Syncs) of(device uint64) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot, ok := s.slots[device]
	if !ok {
		slot = make(chan struct{}, s.perDeviceMax)
		s.slots[device] = slot
	}
	return slot
}
