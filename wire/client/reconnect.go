package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	backoffMinDefault = 50 * time.Millisecond
	backoffMaxDefault = 5 * time.Second
	attemptMin        = time.Second
)

// Reconnect says how long and how often to try again. The zero value: for
// ever, with waits of up to 50 ms at first, doubled up to 5 s.
type Reconnect struct {
	For      time.Duration // since the last contact; 0: for ever; negative: never
	Min, Max time.Duration // ceiling of the first wait, and of any

	// Jitter chooses a wait up to a ceiling; nil: any, equally likely, so
	// that the clients of a restarted daemon do not come all at once.
	Jitter func(ceiling time.Duration) time.Duration
}

func (r Reconnect) withDefaults() Reconnect {
	if r.Min <= 0 {
		r.Min = backoffMinDefault
	}
	if r.Max <= 0 {
		r.Max = backoffMaxDefault
	}
	r.Max = max(r.Min, r.Max)
	if r.Jitter == nil {
		r.Jitter = func(ceiling time.Duration) time.Duration { return rand.N(ceiling) }
	}
	return r
}

// backoff is a Reconnect under way.
type backoff struct {
	Reconnect
	ceiling time.Duration // of the next wait
	contact time.Time     // the last
}

func newBackoff(r Reconnect) backoff {
	r = r.withDefaults()
	return backoff{Reconnect: r, ceiling: r.Min, contact: time.Now()}
}

// progressed notes that a contact led somewhere: waits begin small again.
func (b *backoff) progressed() { b.ceiling = b.Min }

// bound limits one attempt to the time that is left, or attemptMin.
func (b *backoff) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if b.For <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, max(attemptMin, time.Until(b.contact.Add(b.For))))
}

// wait sleeps before the next attempt. It returns an error when there is to
// be none: the context's, or the cause.
func (b *backoff) wait(ctx context.Context, cause error) error {
	if b.For < 0 {
		return cause
	}
	pause := b.Jitter(b.ceiling)
	b.ceiling = min(2*b.ceiling, b.Max)
	if b.For > 0 {
		left := time.Until(b.contact.Add(b.For))
		if left <= 0 {
			return fmt.Errorf("client: gave up %v after the last contact: %w", b.For, cause)
		}
		pause = min(pause, left)
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
