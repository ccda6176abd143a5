package engine

import (
	"context"
	"errors"
	"time"

	"sessiond/replay/stamp"
)

// rest says when a file is compared in the background. Growth is taken in
// after a look at the file's ends only, and a stamp of a hot file proves
// nothing: so once the file rests, all that was read of it is compared.
type rest struct {
	due   bool
	since time.Time     // when the file was last seen to change
	cost  time.Duration // of the last comparison
	ended time.Time     // when that was
}

// restShare spaces comparisons of a file that grows all the time: they take at
// most about this part of the time.
const restShare = 20

// restless says that what was read of the file is not proven.
func (s *session) restless() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest.due, s.rest.since = true, s.e.o.Now()
}

// isResting reports whether it is time to compare.
func (s *session) isResting(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rest
	return r.due && s.gen != nil && s.suspected.since.IsZero() &&
		now.Sub(r.since) >= s.e.o.Timing.Rest && now.Sub(r.ended) >= restShare*r.cost &&
		now.UnixNano()-s.info.Stamp.CTimeNano >= int64(stamp.Settled)
}

// scrub compares, one after the other, the files that rest.
func (e *Engine) scrub() {
	for _, s := range e.openSessions() {
		if s.isResting(e.o.Now()) {
			if err := s.compareAll(e.ctx); err != nil && e.ctx.Err() == nil {
				e.o.Logger.Warn("session not compared with its file", "session", s.key, "error", err)
			}
		}
		s.keepEnds(e.ctx)
	}
}

// compareAll compares all that was read of a file with what is there now, and
// from then on believes its stamp. It holds no token while it reads.
func (s *session) compareAll(ctx context.Context) error {
	g, from := s.resting(), s.e.o.Now()
	if g == nil {
		return nil
	}
	defer g.release()
	info, err := g.file.Info()
	if err != nil {
		return err
	}
	under := g.known()
	if info.Stamp != under.Stamp {
		s.kick()
		return nil
	}
	under.Proof = s.e.trust.Prove(info.Stamp)
	err = g.replay.Compare(ctx, g.file, true)
	s.mu.Lock()
	s.rest.ended = s.e.o.Now()
	s.rest.cost = s.rest.ended.Sub(from)
	s.mu.Unlock()
	if errors.Is(err, stamp.ErrMismatch) {
		s.suspect(info.Stamp)
		s.kick()
		return nil
	}
	if err == nil {
		g.mu.Lock()
		if g.under.Stamp == under.Stamp && g.under.Writes == under.Writes {
			g.under = under
		}
		g.mu.Unlock()
		s.remember(g)
	}
	return err
}

// resting takes the generation that is to be compared.
func (s *session) resting() *generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest.due = false
	if s.gen == nil {
		return nil
	}
	return s.gen.retain()
}
