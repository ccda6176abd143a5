package engine

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sessiond/engine/journal"
	"sessiond/engine/vfs"
	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/wire"
)

// fileEnding is what the names of session files end with.
const fileEnding = ".jsonl"

// session is one session file.
type session struct {
	// Set at construction.
	e     *Engine
	key   string // root:path
	root  string
	path  string
	stem  string // file name without .jsonl
	owned bool

	group group // of the journal's goroutine

	opening chan struct{} // one token: who has it may open, check or close
	writes  atomic.Uint64 // write generation: durable appends, and losses of the file

	mu          sync.Mutex
	label       string               // the header's id, "" while not known; guarded by mu
	labelled    bool                 // the index was asked for it; guarded by mu
	info        vfs.Info             // of the file as last seen; guarded by mu
	infoErr     error                // why it cannot be read; guarded by mu
	aliases     []string             // guarded by mu
	gen         *generation          // nil: not open; guarded by mu
	journal     *journal.Journal     // owned and open; guarded by mu
	foreignSeen uint64               // writes of other programs that journal knows of; guarded by mu
	foreign     uint64               // of these, those that were reported; guarded by mu
	foreignAt   time.Time            // when they were reported; guarded by mu
	degraded    error                // why an owned session is read-only; guarded by mu
	streams     map[*stream]struct{} // guarded by mu
	pins        int                  // commands and streams that need gen to stay open; guarded by mu
	used        time.Time            // guarded by mu
	gone        bool                 // no file any more; guarded by mu
	suspected   suspicion            // of the file; guarded by mu
	holes       holes                // that wait in it; guarded by mu
	rest        rest                 // when it is compared in the background; guarded by mu
	doubted     bool                 // the next look is to compare the content; guarded by mu
	again       time.Time            // for when a look is asked for; guarded by mu
	asked       uint64               // looks at the file that were asked for; guarded by mu
	looked      uint64               // of these, those that are done; guarded by mu
	looking     bool                 // one runs; guarded by mu
}

func keyOf(r Root, rel string) string { return r.Name + ":" + filepath.ToSlash(rel) }

func newSession(e *Engine, r Root, rel, path string) *session {
	s := &session{
		e: e, key: keyOf(r, rel), root: r.Name, path: path,
		stem: strings.TrimSuffix(filepath.Base(path), fileEnding), owned: r.Name == OwnedRoot,
		opening: make(chan struct{}, 1), streams: map[*stream]struct{}{},
	}
	return s
}

func (s *session) setInfo(info vfs.Info, err error) (was vfs.Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was = s.info
	s.info, s.infoErr = info, err
	return was
}

func (s *session) addAlias(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aliases = append(s.aliases, path)
}

func (s *session) dropAlias(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aliases = slices.DeleteFunc(s.aliases, func(p string) bool { return p == path })
}

func (s *session) lastUse() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// acquire takes the token for opening and checking.
func (s *session) acquire(ctx context.Context) error {
	select {
	case s.opening <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// releaseToken gives the token back, and asks for another look where one has
// to be though nothing may happen to the file.
func (s *session) releaseToken() {
	<-s.opening
	if wait, ok := s.nextLook(); ok {
		s.comeBack(wait)
	}
}

// use opens the session if needed, brings a followed one up to its file, and
// returns its generation, retained for the caller and kept open until done.
// prove asks for the content to be compared where the stamp proves nothing:
// who begins to read does, who goes on needs not.
func (s *session) use(ctx context.Context, prove bool) (*generation, error) {
	if err := s.acquire(ctx); err != nil {
		return nil, err
	}
	defer s.releaseToken()
	s.mu.Lock()
	open := s.gen != nil
	s.mu.Unlock()
	if err := s.ready(ctx, prove); err != nil {
		return nil, err
	}
	g, err := s.pin()
	if err == nil && !g.unserved.Swap(false) && open { // what opening found, the cache has counted
		s.e.counters.CacheHits.Add(1)
	}
	return g, err
}

// done ends what use began, with the generation that is held now.
func (s *session) done(g *generation) {
	s.mu.Lock()
	s.pins--
	s.used = s.e.o.Now()
	s.mu.Unlock()
	g.release()
}

// ready makes the current generation what the file is. Called with the token.
func (s *session) ready(ctx context.Context, prove bool) error {
	s.mu.Lock()
	gone, g, j := s.gone, s.gen, s.journal
	s.mu.Unlock()
	switch {
	case s.e.ctx.Err() != nil:
		return s.e.ctx.Err() // Close has shut what was open
	case gone:
		return s.goneError()
	case g == nil:
		return s.open(ctx)
	case j == nil || g.replay.Lost(): // else only the journal moves the head
		if err := s.refresh(ctx, prove); err != nil {
			return err
		}
		return s.settle(ctx)
	}
	return nil
}

func (s *session) pin() (*generation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gen == nil {
		return nil, s.goneError()
	}
	s.pins++
	s.used = s.e.o.Now()
	return s.gen.retain(), nil
}

func (s *session) goneError() error {
	return wire.Errorf(wire.CodeSessionGone, "session %s has no file any more", s.key)
}

// open opens the file for reading, an owned one too: attaching changes no
// file, and only the first append locks, repairs and syncs it. Called with the
// token.
func (s *session) open(ctx context.Context) error {
	g, err := s.openGeneration(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.setUnreadable(err)
		}
		return s.openError(err)
	}
	s.install(g)
	s.e.closeOver()
	return nil
}

// setUnreadable lets the listing say why a file could not be opened.
func (s *session) setUnreadable(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.infoErr = err
}

func (s *session) setDegraded(err error) {
	s.mu.Lock()
	changed := errText(s.degraded) != errText(err)
	s.degraded = err
	s.mu.Unlock()
	if err != nil && changed {
		s.e.o.Logger.Error("session is read-only", "session", s.key, "error", err)
	}
}

// install makes a generation the current one.
func (s *session) install(g *generation) {
	s.mu.Lock()
	old := s.gen
	s.gen = g
	s.infoErr = nil
	s.mu.Unlock()
	s.e.mu.Lock()
	s.e.open[s] = struct{}{}
	s.e.mu.Unlock()
	if old != nil {
		old.release()
	}
	s.e.watcher.Hot(s.path, s.hasStreams())
	if g.known().Proof == 0 {
		s.restless()
	}
	s.learnLabel(g)
	s.remember(g)
	s.wake()
}

func (s *session) openError(err error) error {
	var w *wire.Error
	switch {
	case errors.As(err, &w):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return wire.Errorf(wire.CodeSessionGone, "session %s: the file is not there", s.key)
	}
	w = wire.Errorf(wire.CodeIO, "session %s cannot be read: %v", s.key, err)
	w.Retryable = !lasting(err)
	return w
}

// hasStreams reports whether anybody is attached.
func (s *session) hasStreams() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams) > 0
}

// wake wakes all streams.
func (s *session) wake() {
	s.mu.Lock()
	list := make([]*stream, 0, len(s.streams))
	for st := range s.streams {
		list = append(list, st)
	}
	s.mu.Unlock()
	for _, st := range list {
		st.wakeUp()
	}
}

// addStream registers a stream before it looks at the head, so that no change
// is missed.
func (s *session) addStream(st *stream) {
	s.mu.Lock()
	s.streams[st] = struct{}{}
	first := len(s.streams) == 1
	s.mu.Unlock()
	if first {
		s.e.watcher.Hot(s.path, true)
	}
}

func (s *session) removeStream(st *stream) {
	s.mu.Lock()
	_, had := s.streams[st]
	delete(s.streams, st)
	last := had && len(s.streams) == 0
	s.mu.Unlock()
	if last {
		s.e.watcher.Hot(s.path, false)
	}
}

// closeIfIdle closes a session that nobody has used for a while. It does not
// wait for one that is being opened or looked at.
func (s *session) closeIfIdle(ctx context.Context, now time.Time, after time.Duration) bool {
	if !s.isIdle(now, after) {
		return false
	}
	select {
	case s.opening <- struct{}{}:
	default:
		return false
	}
	defer s.releaseToken()
	// Pins are set with the token alone, so it stays idle.
	if !s.isIdle(now, after) {
		return false
	}
	if err := s.shut(ctx); err != nil {
		s.e.o.Logger.Warn("closing session", "session", s.key, "error", err)
	}
	return true
}

func (s *session) isIdle(now time.Time, after time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gen != nil && s.pins == 0 && now.Sub(s.used) >= after
}

// close ends the session for good.
func (s *session) close(ctx context.Context) error {
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.releaseToken()
	return s.shut(ctx)
}

// shut gives up journal and generation. Called with the token.
func (s *session) shut(ctx context.Context) error {
	s.mu.Lock()
	j, g := s.journal, s.gen
	s.journal, s.gen = nil, nil
	s.mu.Unlock()
	s.e.mu.Lock()
	delete(s.e.open, s)
	s.e.mu.Unlock()
	var err error
	if j != nil {
		err = j.Close(ctx)
	}
	if g != nil {
		s.rememberNow(g)
		s.keepReplay(g)
		g.release()
	}
	return err
}

// keepReplay gives the replay to the cache.
func (s *session) keepReplay(g *generation) {
	known := g.known()
	info, err := g.file.Info()
	if err != nil || info.Stamp != known.Stamp {
		return
	}
	s.e.cache.Put(s.key, g.replay, known)
}

// dialectOf returns the replay's dialect, nil while the file is too short to
// tell.
func dialectOf(r *replay.Replay) *string {
	name, _ := r.Dialect()
	if name == replay.Unknown && !r.Decided() {
		return nil
	}
	return &name
}

// learnLabel finds the session by its header's id from now on.
func (s *session) learnLabel(g *generation) {
	w := windows.Get().(*dialect.Window)
	defer windows.Put(w)
	w.Reset(g.file)
	if in, ok, err := g.replay.Info(w); err == nil && ok {
		s.setLabel(in.ID)
	}
}

func (s *session) setLabel(id string) {
	if id == "" || len(id) > wire.SessionIDMax { // frames carry it
		return
	}
	s.mu.Lock()
	s.label = id
	s.mu.Unlock()
	s.e.call(s, id)
}
