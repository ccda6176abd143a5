package engine

import (
	"io"
	"sync"
	"time"

	"sessiond/wire"
)

// objects remembers where the objects of refs are that clients read in pieces,
// so that each is looked for and proven once, not for every piece. They are
// found one at a time: one that is not in the file as it is lies in memory,
// and of those there is one.
type objects struct {
	mu   sync.Mutex
	held map[objectKey]*object // guarded by mu
}

type objectKey struct {
	g    *generation
	view wire.View
	ref  wire.Ref
}

type object struct {
	*io.SectionReader
	inMemory bool
	used     time.Time
}

const (
	objectsMax     = 64
	objectsExpired = 5 * time.Second
)

// find returns the object that a ref stands for.
func (o *objects) find(now time.Time, g *generation, view wire.View, ref wire.Ref) (*object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := objectKey{g, view, ref}
	if found := o.held[key]; found != nil {
		found.used = now
		return found, nil
	}
	o.dropLocked(func(other *object) bool { return other.inMemory || len(o.held) >= objectsMax })
	found, err := g.object(view, ref)
	if err != nil {
		return nil, err
	}
	found.used = now
	if o.held == nil {
		o.held = map[objectKey]*object{}
	}
	o.held[key] = found
	return found, nil
}

// expire forgets what nobody has read for a while.
func (o *objects) expire(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropLocked(func(other *object) bool { return now.Sub(other.used) > objectsExpired })
}

func (o *objects) dropLocked(which func(*object) bool) {
	for key, other := range o.held {
		if which(other) {
			delete(o.held, key)
		}
	}
}
