package engine

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"sessiond/engine/journal"
	"sessiond/engine/vfs"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

// kick asks for a look at the file and never blocks. It returns the look's
// number: the streams are woken when hasLooked says that it is done. Looks do
// not overlap, and one that is asked for while another runs is done after it.
func (s *session) kick() (look uint64) {
	s.mu.Lock()
	s.asked++
	look, idle := s.asked, !s.looking
	s.looking = true
	s.mu.Unlock()
	if idle && !s.e.begin(s.lookAsAsked) {
		s.mu.Lock()
		s.looking = false
		s.mu.Unlock()
	}
	return look
}

// hasLooked reports whether a look is done, or none will be any more.
func (s *session) hasLooked(look uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looked >= look || !s.looking
}

func (s *session) lookAsAsked() {
	for more := true; more; {
		s.mu.Lock()
		asked := s.asked
		s.mu.Unlock()
		s.look(s.e.ctx)
		s.mu.Lock()
		s.looked = asked
		more = s.asked > asked && s.e.ctx.Err() == nil
		s.looking = more
		s.mu.Unlock()
		s.wake()
	}
}

// look compares the session with its file, and comes back to one that is
// missing when it has been so for long enough.
func (s *session) look(ctx context.Context) {
	err := s.lookNow(ctx)
	if err == nil {
		err = s.ingest(ctx)
	}
	if err != nil && ctx.Err() == nil {
		s.e.o.Logger.Warn("session not brought up to its file", "session", s.key, "error", err)
	}
	s.mu.Lock()
	missing := !s.missing.IsZero() && !s.gone
	s.mu.Unlock()
	if !missing {
		return
	}
	timer := time.NewTimer(s.e.o.Timing.Quiet)
	defer timer.Stop()
	select {
	case <-timer.C:
		s.mu.Lock()
		s.asked++
		s.mu.Unlock()
	case <-ctx.Done():
	}
}

// lookNow compares the session with its file.
func (s *session) lookNow(ctx context.Context) error {
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.releaseToken()
	return s.refresh(ctx)
}

// ingest lets the journal take in what another program has appended to an
// owned session: only its goroutine looks behind the head. It runs without
// the token, for it waits for the disk.
func (s *session) ingest(ctx context.Context) error {
	s.mu.Lock()
	j, size := s.journal, s.info.Stamp.Size
	s.mu.Unlock()
	if j == nil || size <= j.Head().Offset {
		return nil
	}
	_, err := j.Append(ctx, func(stamp.Point) ([][]byte, error) { return nil, nil })
	s.reportWriter(j)
	return err
}

// writerReportEvery spaces the reports of a program that writes all the time.
const writerReportEvery = time.Minute

// reportWriter says that another program has appended to an owned file.
func (s *session) reportWriter(j *journal.Journal) {
	n, now := j.Interleavings(), s.e.o.Now()
	s.mu.Lock()
	due := j == s.journal && n > s.writes && now.Sub(s.writesAt) >= writerReportEvery
	if due {
		s.writes, s.writesAt = n, now
	}
	s.mu.Unlock()
	if due {
		s.e.o.Logger.Warn("another program writes to an owned session", "code", "concurrent_writers",
			"session", s.key, "times", n)
	}
}

// refresh brings a session up to its file. Called with the token.
func (s *session) refresh(ctx context.Context) error {
	// What is known comes before the look, so that an append between the two
	// is not taken for another program's work.
	s.mu.Lock()
	gone, g, j := s.gone, s.gen, s.journal
	s.mu.Unlock()
	if gone {
		return nil
	}
	var known stamp.Stamp
	if g != nil {
		known, _ = g.known()
	}
	var head *journal.Head
	if j != nil {
		head = j.Head()
	}
	info, err := s.e.o.FS.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s.refreshMissing(ctx)
	case err != nil:
		s.setInfo(vfs.Info{}, err)
		return s.openError(err)
	}
	s.e.setInfo(s, info)
	s.mu.Lock()
	s.missing = time.Time{}
	s.mu.Unlock()
	switch {
	case g == nil:
		return nil
	case j != nil && isLost(j):
		return s.reopenJournal(ctx, g, info.Stamp)
	case info.Stamp == known:
		return nil
	case j != nil:
		return s.refreshOwned(ctx, g, head, info.Stamp)
	case info.Stamp.SameFile(known) && info.Stamp.Size > known.Size:
		return s.grow(ctx, g, info.Stamp)
	}
	return s.changedOtherwise(ctx, g, info.Stamp)
}

// refreshMissing ends a session whose file has been gone for a while.
func (s *session) refreshMissing(ctx context.Context) error {
	now := s.e.o.Now()
	s.mu.Lock()
	if s.missing.IsZero() {
		s.missing = now
	}
	gone := now.Sub(s.missing) >= s.e.o.Timing.Quiet
	s.mu.Unlock()
	if !gone {
		return nil
	}
	// First: who is told that it is gone may make it anew, or come by another
	// name of the file.
	for _, path := range s.e.forget(s) {
		s.e.changed(path)
	}
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
	err := s.shut(ctx)
	s.e.cache.Drop(s.key)
	s.forgotten()
	s.wake()
	s.e.o.Logger.Info("session removed", "session", s.key)
	return err
}

// refreshOwned looks at an owned session's file after its stamp has changed.
// head is that of before the look: what is behind it is the journal's to take
// in. A file that was replaced, cut or rewritten gets another journal.
func (s *session) refreshOwned(ctx context.Context, g *generation, head *journal.Head, now stamp.Stamp) error {
	same := now.SameFile(head.Stamp) && now.Size >= head.Offset
	switch {
	case same && (now.Size > head.Offset || now == head.Stamp):
		return nil
	case same:
		readAt := s.e.o.Now()
		err := s.compare(g.file, g)
		if err == nil {
			g.setKnown(now, readAt)
		}
		if !errors.Is(err, stamp.ErrMismatch) {
			return err
		}
	}
	s.e.o.Logger.Warn("owned session was changed by another program", "session", s.key,
		"was", head.Stamp.String(), "is", now.String())
	return s.reopenJournal(ctx, g, now)
}

// compare reads what a file has in place of what was read before, all of it.
func (s *session) compare(f io.ReaderAt, g *generation) error {
	s.e.counters.DigestReads.Add(1)
	_, _, err := stamp.Verify(f, nil, g.replay.Head())
	return err
}

// isLost reports whether a journal has given up its file for good.
func isLost(j *journal.Journal) bool {
	err := j.Failure()
	return errors.Is(err, journal.ErrGone) || errors.Is(err, journal.ErrRewritten)
}

// reopenJournal opens an owned session again that has lost its journal or
// never got it. Where that fails, the file is followed as it is.
func (s *session) reopenJournal(ctx context.Context, g *generation, now stamp.Stamp) error {
	s.mu.Lock()
	j := s.journal
	s.journal = nil
	s.mu.Unlock()
	if j != nil {
		if err := j.Close(ctx); err != nil {
			s.e.o.Logger.Warn("closing journal", "session", s.key, "error", err)
		}
	}
	if err := s.openJournal(ctx); err != nil {
		s.setDegraded(err)
	} else {
		now = s.journalHead().Stamp
	}
	return s.changedOtherwise(ctx, g, now)
}

// journalHead is the durable head. Called with the token and a journal.
func (s *session) journalHead() *journal.Head {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.journal.Head()
}

// grow takes the new bytes of a file that only became longer, as far as its
// beginning and the last stretch before the head tell.
func (s *session) grow(ctx context.Context, g *generation, now stamp.Stamp) error {
	same, err := s.standsSoFar(g)
	if err != nil {
		return s.openError(err)
	}
	if !same {
		return s.replace(ctx, g)
	}
	return s.extend(ctx, g, now)
}

// standsSoFar compares a file's beginning, and the bytes from the last
// checkpoint to the head, with what was read before.
func (s *session) standsSoFar(g *generation) (bool, error) {
	sum, err := sumRange(g.file, g.headSize)
	if errors.Is(err, errChanged) || (err == nil && sum != g.headSum) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.e.counters.DigestReads.Add(1)
	_, _, err = stamp.Verify(g.file, g.replay.Checkpoints(), g.replay.Head())
	if errors.Is(err, stamp.ErrMismatch) {
		return false, nil
	}
	return err == nil, err
}

// extend reads the new bytes.
func (s *session) extend(ctx context.Context, g *generation, now stamp.Stamp) error {
	readAt := s.e.o.Now()
	err := g.replay.Extend(ctx, g.file, s.readable(now.Size))
	if errors.Is(err, io.ErrUnexpectedEOF) { // cut since the look
		return s.replace(ctx, g)
	}
	if err != nil {
		return s.openError(err)
	}
	g.setKnown(now, readAt)
	if g.headSize < headBytes {
		if err := g.sumHead(); err != nil {
			return s.openError(err)
		}
	}
	s.remember(g)
	s.wake()
	return nil
}

// changedOtherwise handles every change that is no plain growth: only a real
// difference of the content makes a new generation.
func (s *session) changedOtherwise(ctx context.Context, g *generation, now stamp.Stamp) error {
	f, err := s.openRead()
	if err != nil {
		return s.openError(err)
	}
	if err := s.compare(f, g); err != nil {
		_ = f.Close() // read only
		if !errors.Is(err, stamp.ErrMismatch) {
			return s.openError(err)
		}
		return s.replace(ctx, g)
	}
	st, _ := g.known()
	if now.SameFile(st) {
		_ = f.Close() // read only
		return s.extend(ctx, g, now)
	}
	// The same history in another file: it goes on there.
	next := &generation{id: g.id, file: f, replay: g.replay, headSum: g.headSum, headSize: g.headSize, logs: map[logKey]*viewLog{}}
	next.refs.Store(1)
	s.install(next)
	return s.extend(ctx, next, now)
}

// replace makes a new generation of a file whose history is another.
func (s *session) replace(ctx context.Context, old *generation) error {
	s.e.cache.Drop(s.key)
	s.e.counters.Invalidate.Add(1)
	g, err := s.openGeneration(ctx)
	if err != nil {
		return s.openError(err)
	}
	g.id = newGenerationID()
	g.oldBytes = old.replay.Head().Offset
	g.reason = wire.ReasonRewritten
	if g.replay.Head().Offset < g.oldBytes {
		g.reason = wire.ReasonTruncated
	}
	s.install(g)
	s.e.o.Logger.Info("session replaced", "session", s.key, "reason", g.reason,
		"oldBytes", g.oldBytes, "newBytes", g.replay.Head().Offset)
	return nil
}
