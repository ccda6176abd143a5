package engine

import (
	"context"
	"time"

	"sessiond/replay/stamp"
	"sessiond/wire"
)

// suspicion is that a session's file is missing, shorter than what was read of
// it, or different. A writer that replaces or rewrites a file passes through
// such states, so nothing is declared before the file was quiet for a while,
// or was so for long.
type suspicion struct {
	since   time.Time // zero: there is none
	stamp   stamp.Stamp
	changed time.Time // when the file was seen to take that stamp
}

// due reports whether a suspicion is to be believed. A missing file may be
// between removing and creating, however long that goes on.
func (p suspicion) due(now time.Time, t Timing) bool {
	return now.Sub(p.changed) >= t.Quiet || now.Sub(p.since) >= t.Declare && !p.stamp.IsMissing()
}

// wait is how long it is until a suspicion may be due.
func (p suspicion) wait(now time.Time, t Timing) time.Duration {
	wait := p.changed.Add(t.Quiet).Sub(now)
	if !p.stamp.IsMissing() {
		wait = min(wait, p.since.Add(t.Declare).Sub(now))
	}
	return max(wait, time.Millisecond)
}

// lookAgainMax bounds the pauses between looks at a file that cannot be read.
const lookAgainMax = 30 * time.Second

// lostAgain is when a file is read anew again whose record index was lost,
// where that has failed.
const lostAgain = 2 * time.Second

// suspect notes what the file looks like, and reports whether it is time to
// believe it.
func (s *session) suspect(st stamp.Stamp) (due bool) {
	now := s.e.o.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.suspected
	if p.since.IsZero() {
		*p = suspicion{since: now, stamp: st, changed: now}
	} else if p.stamp != st {
		p.stamp, p.changed = st, now
	}
	return p.due(now, s.e.o.Timing)
}

// suspicion returns what is suspected of the file; ok is false where nothing
// is.
func (s *session) suspicion() (p suspicion, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.suspected, !s.suspected.since.IsZero()
}

// trustAgain ends a suspicion.
func (s *session) trustAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspected = suspicion{}
}

// unsure reports whether the file is suspected of not being what was read, so
// that what is read of it now may be of neither history.
func (s *session) unsure() bool {
	p, ok := s.suspicion()
	return ok && !p.stamp.IsMissing()
}

// settle waits, with the token, until a file that differs is the old one again
// or another history; it lasts at most until the suspicion must be believed.
func (s *session) settle(ctx context.Context) error {
	for tries := s.e.o.Timing.Declare/s.e.o.Timing.Quiet + 2; s.unsure(); tries-- {
		if tries == 0 {
			return wire.Errorf(wire.CodeUnstable, "session %s goes on changing; try again", s.key)
		}
		p, _ := s.suspicion()
		timer := time.NewTimer(p.wait(s.e.o.Now(), s.e.o.Timing))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		if err := s.refresh(ctx, false); err != nil {
			return err
		}
	}
	return nil
}

// holes are records with NUL bytes that wait in a followed file: a file system
// may show a length before the bytes, which then fill the hole.
type holes struct {
	since time.Time // when those that wait were found; zero: none wait
	size  int64     // of the file then
	over  int64     // bytes before which nothing waits any more
}

// waitsForHole reports whether the record at an offset, which holds NUL bytes,
// is to wait. It is asked by the replay while it reads.
func (s *session) waitsForHole(offset int64) bool {
	now, guard := s.e.o.Now(), s.e.o.Timing.Hole
	s.mu.Lock()
	defer s.mu.Unlock()
	h, st := &s.holes, s.info.Stamp
	if now.UnixNano()-min(st.CTimeNano, st.MTimeNano) >= int64(guard) { // nobody has written since
		*h = holes{over: st.Size}
	}
	if offset < h.over {
		return false
	}
	if h.since.IsZero() {
		h.since, h.size = now, st.Size
	}
	if now.Sub(h.since) < guard {
		return true
	}
	*h = holes{over: h.size}
	return offset >= h.over
}

// passHoles reads records that wait for their NUL bytes to be filled, if a
// client has seen them: before a restart they were waited for.
func (s *session) passHoles(ctx context.Context, g *generation, c wire.Command) error {
	var at stamp.Point
	switch {
	case c.Resume != nil:
		at = pointOf(*c.Resume)
	case c.Position != nil:
		at = pointOf(c.Position.Cut)
	}
	if tail := g.replay.Tail(); !tail.Hole || at.Offset <= tail.Offset || at.Offset > tail.Offset+tail.Bytes {
		return nil
	}
	if _, err := g.replay.Verify(g.file, at); err != nil {
		return nil //nolint:nilerr // it is none of this file, which attach tells
	}
	s.mu.Lock()
	s.holes.over = max(s.holes.over, at.Offset)
	s.mu.Unlock()
	return g.replay.Extend(ctx, g.file, g.known().Stamp.Size)
}

// nextLook is when the session must be looked at again though nothing happens
// to its file; ok is false where it need not.
func (s *session) nextLook() (wait time.Duration, ok bool) {
	now := s.e.o.Now()
	s.mu.Lock()
	g := s.gen
	s.mu.Unlock()
	waits := g != nil && g.replay.Tail().Hole
	lost := g != nil && g.replay.Lost() // and could not be read anew
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return 0, false
	}
	if !waits { // what was there has been filled or taken back
		s.holes.since = time.Time{}
	}
	if lost && len(s.streams) > 0 {
		wait, ok = lostAgain, true
	}
	if p := s.suspected; !p.since.IsZero() {
		wait, ok = p.wait(now, s.e.o.Timing), true
		if p.due(now, s.e.o.Timing) { // it could not be resolved: the longer that lasts, the later
			wait = min(max(now.Sub(p.changed), s.e.o.Timing.Quiet), lookAgainMax)
		}
	}
	if h := s.holes; !h.since.IsZero() {
		left := max(h.since.Add(s.e.o.Timing.Hole).Sub(now), time.Millisecond)
		if !ok || left < wait {
			wait, ok = left, true
		}
	}
	return wait, ok
}
