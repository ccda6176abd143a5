package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"sessiond/engine/journal"
	"sessiond/engine/vfs"
	"sessiond/replay"
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

// look compares the session with its file.
func (s *session) look(ctx context.Context) {
	err := s.lookNow(ctx)
	if err == nil {
		err = s.ingest(ctx)
	}
	if err != nil && ctx.Err() == nil {
		s.e.o.Logger.Warn("session not brought up to its file", "session", s.key, "error", err)
	}
}

// comeBack asks for a look after a while, unless one is asked for earlier.
func (s *session) comeBack(wait time.Duration) {
	due := time.Now().Add(wait)
	s.mu.Lock()
	if !s.again.IsZero() && !s.again.After(due) {
		s.mu.Unlock()
		return
	}
	s.again = due
	s.mu.Unlock()
	forget := func() {
		s.mu.Lock()
		if s.again.Equal(due) {
			s.again = time.Time{}
		}
		s.mu.Unlock()
	}
	begun := s.e.begin(func() {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
			forget()
			s.kick()
		case <-s.e.ctx.Done():
		}
	})
	if !begun {
		forget()
	}
}

// lookNow compares the session with its file.
func (s *session) lookNow(ctx context.Context) error {
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.releaseToken()
	return s.refresh(ctx, false)
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
	wrote := j == s.journal && n > s.foreignSeen
	due := j == s.journal && n > s.foreign && now.Sub(s.foreignAt) >= writerReportEvery
	if wrote {
		s.foreignSeen = n
	}
	if due {
		s.foreign, s.foreignAt = n, now
	}
	s.mu.Unlock()
	if wrote { // it may have written elsewhere too
		s.restless()
	}
	if due {
		s.e.o.Logger.Warn("another program writes to an owned session", "code", "concurrent_writers",
			"session", s.key, "times", n)
	}
}

// refresh brings a session up to its file. Where the stamp is as it was but
// proves nothing, the content is compared only if that is asked for. Called
// with the token.
func (s *session) refresh(ctx context.Context, prove bool) error {
	// What is known comes before the look, so that an append between the two
	// is not taken for another program's work.
	s.mu.Lock()
	gone, g, j := s.gone, s.gen, s.journal
	prove, s.doubted = prove || s.doubted, false
	s.mu.Unlock()
	if gone {
		return nil
	}
	var known replay.Known
	if g != nil {
		known = g.known()
	}
	var head *journal.Head
	if j != nil {
		head = j.Head()
	}
	info, err := s.e.o.FS.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if s.suspect(stamp.Missing) {
			return s.remove(ctx)
		}
		return nil
	case err != nil:
		s.setInfo(vfs.Info{}, err)
		return s.openError(err)
	}
	s.e.setInfo(s, info)
	p, suspected := s.suspicion()
	switch {
	case suspected && p.stamp.IsMissing(): // it is back
		s.trustAgain()
	case suspected && !s.suspect(info.Stamp):
		return nil
	}
	switch {
	case g == nil:
		s.trustAgain()
		return nil
	case j != nil && (suspected || isLost(j)):
		return s.reopenJournal(ctx, g)
	case g.replay.Lost():
		return s.rebuild(ctx, g)
	case j != nil && info.Stamp == known.Stamp:
		return nil
	case j != nil:
		return s.refreshOwned(ctx, g, j, head, info.Stamp)
	case info.Stamp == known.Stamp && !prove && !suspected && !g.replay.Tail().Hole:
		return nil
	}
	if suspected {
		known = replay.Known{} // so that all is compared
	}
	return s.renew(ctx, g, known)
}

// remove ends a session whose file has been gone for a while.
func (s *session) remove(ctx context.Context) error {
	s.e.o.Logger.Info("session removed", "session", s.key) // before anybody can see it
	// First: who is told that it is gone may make it anew, or come by another
	// name of the file.
	for _, path := range s.e.forget(s) {
		s.e.changed(path)
	}
	s.mu.Lock()
	s.gone = true
	g := s.gen
	if g != nil {
		g.ended.Store(true)
		g.retain()
	}
	s.mu.Unlock()
	err := s.shut(ctx)
	s.e.cache.Drop(s.key)
	s.discardViews()
	s.forgotten(g)
	if g != nil {
		g.release()
	}
	s.wake()
	return err
}

// renew takes in what a followed file is now. A difference from what was read
// is only suspected at first; once it is believed, it makes a new generation.
func (s *session) renew(ctx context.Context, g *generation, known replay.Known) error {
	if g.replay.Lost() {
		return s.rebuild(ctx, g)
	}
	f := g.file
	info, err := s.e.o.FS.Stat(s.path)
	if err == nil && !info.Stamp.SameFile(g.known().Stamp) {
		if f, err = s.openRead(); err == nil {
			info, err = f.Info()
		}
	}
	closeOther := func() {
		if f != nil && f != g.file {
			_ = f.Close() // read only
		}
	}
	if errors.Is(err, fs.ErrNotExist) { // it went meanwhile; the next look tells
		s.suspect(stamp.Missing)
		closeOther()
		return nil
	}
	if err != nil {
		closeOther()
		s.setUnreadable(err)
		return s.openError(err)
	}
	head, tail := g.replay.Head(), g.replay.Tail()
	now, err := g.replay.Renew(ctx, s.source(f, info.Stamp), known, s.e.trust)
	if errors.Is(err, stamp.ErrMismatch) {
		closeOther()
		g.setKnown(replay.Known{Stamp: g.known().Stamp}) // nothing is proven any more
		if s.suspect(info.Stamp) {
			return s.replace(ctx, g)
		}
		return nil
	}
	if err != nil {
		closeOther()
		if g.replay.Lost() {
			return s.rebuild(ctx, g)
		}
		return s.openError(err)
	}
	s.trustAgain()
	changed := f != g.file || now != g.known() || g.replay.Tail() != tail
	if f != g.file { // the same history in another file: it goes on there
		next := s.newGeneration(g.id, f, g.replay, now)
		g.moveLogs(next)
		g = next
		s.install(g)
	}
	g.setKnown(now)
	grown := g.replay.Head() != head
	if grown {
		g.unserved.Store(true)
	}
	if grown || g.replay.Tail() != tail {
		s.wake()
	}
	if hot := s.e.o.Now().UnixNano()-now.Stamp.CTimeNano < int64(stamp.Settled); now.Proof == 0 &&
		(hot || now.Stamp.Size > known.Stamp.Size) {
		s.restless()
	}
	if changed || grown { // else the index has it
		s.remember(g)
	}
	return nil
}

// refreshOwned looks at an owned session's file after its stamp has changed.
// head is that of before the look: what is behind it is the journal's to take
// in. A file that was replaced, cut or rewritten gets another journal.
func (s *session) refreshOwned(ctx context.Context, g *generation, j *journal.Journal, head *journal.Head, now stamp.Stamp) error {
	same := now.SameFile(head.Stamp) && now.Size >= head.Offset
	switch grown := now.Size > head.Offset; {
	case same && now == head.Stamp:
		return nil
	case same && grown && (j.IsCommitting() || j.Head().Offset >= now.Size):
		return nil // by an append; the next look tells what else has changed
	case same:
		under := replay.Known{Stamp: now, Writes: s.writes.Load(), Proof: s.e.trust.Prove(now)}
		err := g.replay.Compare(ctx, g.file, !grown)
		if err == nil && !grown { // else what came is the journal's to take in
			g.setKnown(under)
		}
		if !errors.Is(err, stamp.ErrMismatch) {
			return err
		}
	}
	s.e.o.Logger.Warn("owned session was changed by another program", "session", s.key,
		"was", head.Stamp.String(), "is", now.String())
	return s.reopenJournal(ctx, g)
}

// isLost reports whether a journal has given up its file for good.
func isLost(j *journal.Journal) bool {
	err := j.Failure()
	return errors.Is(err, journal.ErrGone) || errors.Is(err, journal.ErrRewritten)
}

// reopenJournal opens an owned session again that has lost its journal or
// never got it. Where that fails, the file is followed as it is. What the
// journal has found is so: it holds the file's lock, so a difference from what
// was read makes a new generation at once.
func (s *session) reopenJournal(ctx context.Context, g *generation) error {
	s.dropJournal(ctx)
	s.writes.Add(1)
	if err := s.openJournal(ctx); err != nil {
		s.setDegraded(err)
		return s.renew(ctx, g, replay.Known{})
	}
	ctx = s.e.ctx // what was begun is not left half done for a caller that gives up
	err := s.renew(ctx, g, replay.Known{})
	if err == nil && s.unsure() {
		err = s.replace(ctx, g)
	}
	if err != nil { // the journal's file and the replay are not of one history
		s.dropJournal(ctx)
		s.setDegraded(err)
	}
	return err
}

// dropJournal gives up the journal, if there is one.
func (s *session) dropJournal(ctx context.Context) {
	s.mu.Lock()
	j := s.journal
	s.journal = nil
	s.mu.Unlock()
	if j == nil {
		return
	}
	if err := j.Close(ctx); err != nil {
		s.e.o.Logger.Warn("closing journal", "session", s.key, "error", err)
	}
}

// rebuild reads the file anew for a generation whose replay has lost a page of
// its index. To clients it is the generation that it was: what was lost is
// none of the file's. Called with the token.
func (s *session) rebuild(ctx context.Context, old *generation) error {
	s.e.cache.Drop(s.key)
	g, err := s.openGeneration(ctx)
	if err != nil {
		return s.openError(err)
	}
	err = s.takeOver(ctx, old, g)
	if errors.Is(err, stamp.ErrMismatch) {
		if s.suspect(g.known().Stamp) {
			return s.replace(ctx, old)
		}
		return nil
	}
	if err != nil {
		return s.openError(err)
	}
	s.e.o.Logger.Warn("session read anew: a page of its record index was lost", "session", s.key)
	return nil
}

// takeOver puts a generation with a fresh replay in the place of one of the
// same history; stamp.ErrMismatch says that it is another.
func (s *session) takeOver(ctx context.Context, old, g *generation) (err error) {
	defer func() {
		if err != nil {
			g.release()
		}
	}()
	if err := g.replay.Wake(ctx, g.file); err != nil { // streams that go on in it need its records
		return err
	}
	_, err = g.replay.Verify(g.file, old.replay.Head())
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: %w", stamp.ErrMismatch, err)
	}
	if err != nil {
		return err
	}
	s.trustAgain()
	g.id, g.reason, g.oldBytes = old.id, old.reason, old.oldBytes
	old.moveLogs(g)
	s.install(g)
	if j := s.journalOf(); j != nil { // what was committed meanwhile, the old one was to read
		if end := j.Head().Offset; end > g.replay.Head().Offset {
			if err := g.replay.Extend(s.e.ctx, g.file, end); err != nil && g.replay.Head().Offset < end {
				s.e.o.Logger.Error("appended records not read back", "session", s.key, "error", err)
			}
			s.wake()
		}
	}
	return nil
}

// replace makes a new generation of a file whose history is another.
func (s *session) replace(ctx context.Context, old *generation) error {
	s.e.cache.Drop(s.key)
	s.e.counters.Invalidate.Add(1)
	s.writes.Add(1)
	g, err := s.openGeneration(ctx)
	if err != nil {
		return s.openError(err)
	}
	s.trustAgain()
	g.id = newGenerationID()
	old.ended.Store(true)
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
