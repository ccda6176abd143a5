package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sessiond/kv"
	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/wire"
)

// openIndex opens the index. Nothing that is wrong with it stops the daemon,
// but for another process that holds it.
func (e *Engine) openIndex(ctx context.Context) error {
	log := e.o.Logger
	index, err := kv.Open(ctx, filepath.Join(e.o.StateDir, "index.db"), kv.Options{
		Now: e.o.Now,
		Listener: kv.Listener{
			SetAside: func(a kv.SetAside) {
				log.Error("index set aside and begun anew; sessions are not touched", "path", a.Path, "aside", a.Aside, "cause", a.Cause)
			},
			Migrated:  func(path string, from, to int) { log.Info("index migrated", "path", path, "from", from, "to", to) },
			Degraded:  func(err error) { log.Error("index is not available; sessions are served without it", "error", err) },
			Recovered: func() { log.Info("index is available again") },
			BadValue: func(bucket, key string, err error) {
				log.Warn("index value dropped", "bucket", bucket, "key", key, "error", err)
			},
		},
	})
	if err != nil {
		return fmt.Errorf("engine: index: %w", err)
	}
	e.index = index
	e.behind = &behind{index: index, dirty: map[string]change{}, kick: make(chan struct{}, 1)}
	e.work.Go(func() { e.behind.run(e.ctx) })
	return nil
}

// behindDelay is how late the index may be.
const behindDelay = time.Second

// behind writes the index, at most behindDelay after a change; of several
// changes of one session the last counts.
type behind struct {
	index *kv.Index
	kick  chan struct{}

	mu    sync.Mutex
	dirty map[string]change // guarded by mu
}

// change is what is due for one session. write returns what to call when it is
// on disk, if anything. done is called once, whether it was written or
// overtaken.
type change struct {
	write func(*kv.Batch) (written func())
	done  func()
	last  bool // of a generation that is closed: nobody can say it again
}

func (b *behind) put(key string, c change) {
	b.mu.Lock()
	old, overtaken := b.dirty[key]
	b.dirty[key] = c
	b.mu.Unlock()
	if overtaken {
		old.done()
	}
	select {
	case b.kick <- struct{}{}:
	default:
	}
}

func (b *behind) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.kick:
		}
		pause := time.NewTimer(behindDelay)
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		b.flush(context.WithoutCancel(ctx)) // what was taken is not to be lost at the end
	}
}

// flush writes what is due. A failure is kv's to report and to get over: all
// of it can be computed again.
func (b *behind) flush(ctx context.Context) {
	b.mu.Lock()
	dirty := b.dirty
	b.dirty = map[string]change{}
	b.mu.Unlock()
	if len(dirty) == 0 {
		return
	}
	b.writeAll(ctx, dirty)
}

// writeAll writes changes in one batch.
func (b *behind) writeAll(ctx context.Context, dirty map[string]change) {
	var batch kv.Batch
	var written []func()
	for _, c := range dirty {
		if f := c.write(&batch); f != nil {
			written = append(written, f)
		}
		c.done()
	}
	if b.index.Put(ctx, &batch) != nil {
		return
	}
	for _, f := range written {
		f()
	}
}

// flushLast writes what a session's closed generation has left to be written,
// for the next one to find.
func (b *behind) flushLast(ctx context.Context, key string) {
	b.mu.Lock()
	c, ok := b.dirty[key]
	if ok = ok && c.last; ok {
		delete(b.dirty, key)
	}
	b.mu.Unlock()
	if ok {
		b.writeAll(ctx, map[string]change{key: c})
	}
}

// remember gives what is known of a generation, when it is written, to the
// index.
func (s *session) remember(g *generation) {
	if !s.isCurrent(g) { // what came after it is not to be overtaken
		return
	}
	g.retain()
	s.e.behind.put(s.key, change{done: g.release, write: func(b *kv.Batch) func() {
		if !s.isCurrent(g) {
			return nil
		}
		return s.knowledge(g)(b)
	}})
}

// isCurrent reports whether a generation is the session's, and the session has
// a file.
func (s *session) isCurrent(g *generation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gen == g && !s.gone && !g.ended.Load()
}

// rememberNow is remember for a generation that is about to be closed.
func (s *session) rememberNow(g *generation) {
	s.e.behind.put(s.key, change{done: func() {}, write: s.knowledge(g), last: true})
}

// knowledge reads what the index is to hold. The stamp is read first: what
// comes later is at least as new, so a file that has this stamp has no other.
func (s *session) knowledge(g *generation) func(*kv.Batch) func() {
	known := g.known()
	head, points := checkpoints(g.replay)
	name, rules := g.replay.Dialect()
	signature := kv.Signature{
		Stamp: known.Stamp, ReadAt: s.e.o.Now(), BootID: s.e.bootID, Head: head,
		Generation: g.id, Dialect: name, Rules: rules,
		Trusted: s.e.trust.Holds(known.Proof),
	}
	listing, logs := listingOf(g), g.keepLogs() // now: a log that is closed has nothing to keep
	if g.replay.Lost() {                        // what the index has is more
		return func(*kv.Batch) func() { return nil }
	}
	s.setLabel(listing.ID)
	return func(b *kv.Batch) func() {
		b.PutSignature(s.key, signature)
		b.PutListing(s.key, listing)
		b.PutCheckpoints(s.key, points)
		b.DeleteTombstone(s.key)
		return logs(b)
	}
}

// forgotten leaves of a session in the index that it was there. Head and size
// are those that were read last, if it was open, else those that the index
// knows.
func (s *session) forgotten(g *generation) {
	t := kv.Tombstone{Removed: s.e.o.Now(), ID: s.id()}
	if g != nil {
		t.Generation, t.Head, t.Bytes = g.id, g.replay.Head(), g.known().Stamp.Size
	} else if sig, ok := s.e.index.Signature(s.e.ctx, s.key); ok {
		t.Generation, t.Head, t.Bytes = sig.Generation, sig.Head, sig.Stamp.Size
	} else {
		return // nobody has ever read it: it may have been no session at all
	}
	s.e.behind.put(s.key, change{done: func() {}, write: func(b *kv.Batch) func() {
		b.PutTombstone(s.key, t)
		return nil
	}})
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if len(s.e.buriedNow) >= kv.TombstonesMax {
		clear(s.e.buriedNow)
	}
	s.e.buriedNow[s.key] = t
}

// reconcile leaves tombstones of the sessions that the index knows and that
// went while no daemon ran: their files are looked for, so that a root or a
// folder that cannot be listed now says nothing.
func (e *Engine) reconcile() error {
	paths := map[string]string{}
	for _, r := range e.roots {
		paths[r.Name] = r.Path
	}
	gone := 0
	err := e.index.Sessions(e.ctx, func(key string, sig kv.Signature) error {
		root, rel, _ := strings.Cut(key, ":")
		path, rooted := paths[root]
		if e.knows(key) || !rooted {
			return nil
		}
		if _, err := e.o.FS.Stat(path); err != nil {
			return nil //nolint:nilerr // the root is not there: nothing is known
		}
		if _, err := e.o.FS.Stat(filepath.Join(path, filepath.FromSlash(rel))); !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		l, _ := e.index.Listing(e.ctx, key)
		t := kv.Tombstone{Removed: e.o.Now(), ID: l.ID, Generation: sig.Generation, Head: sig.Head, Bytes: sig.Stamp.Size}
		e.behind.put(key, change{done: func() {}, write: func(b *kv.Batch) func() {
			if !e.knows(key) {
				b.PutTombstone(key, t)
			}
			return nil
		}})
		gone++
		return nil
	})
	if gone > 0 {
		e.o.Logger.Info("sessions went while no daemon ran", "sessions", gone)
	}
	return err
}

// knows reports whether there is a session of the key.
func (e *Engine) knows(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sessions[key] != nil
}

// isNamed reports whether a session that is gone was found by a name.
func isNamed(key string, t kv.Tombstone, name string) bool {
	file := key[strings.LastIndexAny(key, ":/")+1:]
	return name != "" && (name == key || name == t.ID || name == file || name == strings.TrimSuffix(file, fileEnding))
}

// buried returns the tombstone of a session by its key, id or file name, the
// newest of several.
func (e *Engine) buried(name string) (t kv.Tombstone, ok bool) {
	e.mu.Lock()
	for key, other := range e.buriedNow {
		if isNamed(key, other, name) && (!ok || other.Removed.After(t.Removed)) {
			t, ok = other, true
		}
	}
	e.mu.Unlock()
	if ok {
		return t, true
	}
	if t, ok = e.index.Tombstone(e.ctx, name); ok {
		return t, true
	}
	_ = e.index.Tombstones(e.ctx, func(key string, other kv.Tombstone) error {
		if isNamed(key, other, name) && (!ok || other.Removed.After(t.Removed)) {
			t, ok = other, true
		}
		return nil
	})
	return t, ok
}

// generationOf returns the name of a file's history: that of the index when
// the file still holds what the index saw, else a new one.
func (e *Engine) generationOf(ctx context.Context, key string, r *replay.Replay, src io.ReaderAt) wire.Generation {
	sig, ok := e.index.Signature(ctx, key)
	if ok && !sig.Generation.IsZero() && sig.Head.Offset <= r.Head().Offset {
		if sig.Head.Offset == 0 {
			return sig.Generation
		}
		if _, err := r.Verify(src, sig.Head); err == nil {
			return sig.Generation
		}
	}
	return newGenerationID()
}

// listingOf derives the listing fields from a replay. What cannot be read is
// left out.
func listingOf(g *generation) kv.Listing {
	w := windows.Get().(*dialect.Window)
	defer windows.Put(w)
	w.Reset(g.file)
	counts := g.replay.Counts()
	l := kv.Listing{Path: g.file.Name(), RecordCount: &counts.Records, Tail: g.replay.Tail().Bytes > 0}
	n, err := g.replay.DiagnosticsCount()
	if err != nil {
		return l
	}
	l.DiagnosticsCount = &n
	in, ok, err := g.replay.Info(w)
	if err != nil || !ok {
		return l
	}
	if len(in.ID) <= wire.SessionIDMax {
		l.ID = in.ID
	}
	l.Title, l.CWD = optional(in.Title), optional(in.CWD)
	l.MessageCount, l.ContextCount = &in.Messages[dialect.Transcript], &in.Messages[dialect.Context]
	l.Created, l.Modified = timeText(in.Created), timeText(in.Modified)
	if st, err := g.stateNow(w); err == nil {
		l.State = st.State
	}
	if leaf, err := g.leafNow(w); err == nil {
		l.Leaf = leaf
	}
	return l
}

// leafBytesMax is the longest id of a leaf that is told.
const leafBytesMax = 1 << 10

func leafOf(id string) *string {
	if len(id) > leafBytesMax {
		return nil
	}
	return optional(id)
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func timeText(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format(time.RFC3339Nano)
	return &s
}

// stateIDBytesMax bounds the ids in a state: it is part of frames that are
// bounded themselves.
const stateIDBytesMax = 8 << 10

// within returns the ids at the front that have so many bytes together.
func within(ids []string, bytes int) []string {
	for i, id := range ids {
		if bytes -= len(id) + 1; bytes < 0 {
			return ids[:i]
		}
	}
	return ids
}

// stateOf returns the turn state at the head in its form on the wire.
func stateOf(r *replay.Replay, w *dialect.Window) (*wire.State, error) {
	st, err := r.State(w)
	if err != nil {
		return nil, err
	}
	list := func(s []string) []string {
		if s == nil {
			return []string{}
		}
		return s
	}
	settings := st.Settings
	if len(settings) == 0 {
		settings = []byte("{}")
	}
	return &wire.State{
		Turn: st.Turn, OpenCalls: list(within(st.OpenCalls, stateIDBytesMax)), PendingRequests: list(st.PendingRequests),
		Queued: list(st.Queued), Settings: settings,
	}, nil
}

// listing returns the listing fields, live where the session is open, else
// from the index if the file is as it was then.
func (s *session) listing() (kv.Listing, bool) {
	s.mu.Lock()
	g, st := s.gen, s.info.Stamp
	if g != nil {
		g.retain()
	}
	s.mu.Unlock()
	if g != nil {
		defer g.release()
		return listingOf(g), true
	}
	sig, ok := s.e.index.Signature(s.e.ctx, s.key)
	if !ok || sig.Stamp != st {
		return kv.Listing{}, false
	}
	return s.e.index.Listing(s.e.ctx, s.key)
}

// activity returns when each session that the index knows was last active, by
// its records.
func (e *Engine) activity(ctx context.Context) map[string]time.Time {
	out := map[string]time.Time{}
	e.mu.Lock()
	keys := make([]string, 0, len(e.sessions))
	for key := range e.sessions {
		keys = append(keys, key)
	}
	e.mu.Unlock()
	limit := e.o.Now().Add(24 * time.Hour) // later is no plausible time
	for _, key := range keys {
		l, ok := e.index.Listing(ctx, key)
		if !ok || l.Modified == nil {
			continue
		}
		if t, err := time.Parse(time.RFC3339Nano, *l.Modified); err == nil && t.Before(limit) {
			out[key] = t
		}
	}
	return out
}
