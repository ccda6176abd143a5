package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"sessiond/chunks"
	"sessiond/engine/follow"
	"sessiond/engine/journal"
	"sessiond/engine/vfs"
	"sessiond/kv"
	"sessiond/replay"
	"sessiond/replay/pages"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

// Engine is the sessions of one daemon.
type Engine struct {
	// Set at construction.
	o        Options
	started  time.Time
	lock     vfs.File
	counters *replay.Counters
	trust    *stamp.Trust
	cache    *replay.Cache
	pages    *pages.Pool // of the record indexes
	index    *kv.Index
	behind   *behind
	watcher  *follow.Watcher
	roots    []Root // with that of owned sessions; set before any is followed
	syncs    *journal.Syncs
	chunks   *chunks.Store
	bootID   [16]byte
	objects  objects
	blocks   blocks
	ctx      context.Context // ends with Close: the daemon's own, no command's
	stop     context.CancelFunc
	work     sync.WaitGroup

	mu        sync.Mutex
	sessions  map[string]*session     // by key; guarded by mu
	paths     map[string]*session     // by path, aliases too; guarded by mu
	names     map[string][]*session   // by file name and by the ids known; guarded by mu
	files     map[fileID]*session     // by device and inode; guarded by mu
	rootErr   map[string]error        // by root name; guarded by mu
	buriedNow map[string]kv.Tombstone // of this process, which the index may not have yet; guarded by mu
	closed    bool                    // guarded by mu
	open      map[*session]struct{}   // those with a generation; guarded by mu
}

type fileID struct{ device, inode uint64 }

// Open starts an engine: it locks the state folder, opens the index, lists
// the roots and begins to follow them. No session file is read.
func Open(ctx context.Context, o Options) (*Engine, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		o: o, started: o.Now(), counters: new(replay.Counters), trust: stamp.NewTrust(o.Clock), bootID: readBootID(),
		syncs:    journal.NewSyncs(0),
		sessions: map[string]*session{}, paths: map[string]*session{}, files: map[fileID]*session{}, names: map[string][]*session{},
		rootErr: map[string]error{}, buriedNow: map[string]kv.Tombstone{}, open: map[*session]struct{}{},
	}
	e.ctx, e.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := e.start(ctx); err != nil {
		return nil, errors.Join(err, e.Close(ctx))
	}
	return e, nil
}

func (e *Engine) start(ctx context.Context) error {
	stage := func(name string, f func() error) error {
		from := time.Now()
		err := f()
		if err == nil {
			e.o.Logger.Info("start", "stage", name, "duration", time.Since(from).Round(time.Microsecond))
		}
		return err
	}
	for _, s := range []struct {
		name string
		run  func() error
	}{
		{"lock", func() (err error) { e.lock, err = lockState(ctx, e.o); return err }},
		{"folders", e.makeFolders},
		{"probe", e.learnStamps},
		{"cache", func() (err error) {
			e.cache, err = replay.NewCache(e.o.ReplayCacheBytes, e.trust, e.counters)
			return err
		}},
		{"spill", e.openChunks},
		{"pages", e.openPages},
		{"index", func() error { return e.openIndex(ctx) }},
		{"roots", func() error { return e.listRoots(ctx) }},
	} {
		if err := stage(s.name, s.run); err != nil {
			return err
		}
	}
	e.work.Go(e.sweepSpill)
	e.work.Go(e.housekeeping)
	e.work.Go(func() { e.every(min(time.Second, e.o.Timing.Rest), e.scrub) })
	return nil
}

func (e *Engine) makeFolders() error {
	if err := privateDir(e.o.FS, filepath.Join(e.o.StateDir, "torn")); err != nil {
		return err
	}
	if err := e.o.FS.MkdirAll(e.o.SessionsDir, 0o700); err != nil {
		return fmt.Errorf("engine: sessions folder %s: %w", e.o.SessionsDir, err)
	}
	return nil
}

// learnStamps finds out what stamps prove. Where it cannot, they prove nothing.
func (e *Engine) learnStamps() error {
	if err := e.believe(); err != nil {
		e.o.Logger.Warn("change times not probed: unchanged files are read again to be sure", "error", err)
	}
	return nil
}

// openChunks opens the snapshot cache. Of a spill folder that cannot be used
// the status tells; one that others may look into is refused.
func (e *Engine) openChunks() error {
	log := e.o.Logger
	if err := privateDir(e.o.FS, e.o.SpillDir); errors.Is(err, ErrStateDir) {
		return err
	}
	e.chunks = chunks.OpenStore(chunks.StoreOptions{
		FS: e.o.FS, Dir: e.o.SpillDir, MemoryBytes: e.o.ChunkTotalBytes, SpillBytes: e.o.SpillBytes, Now: e.o.Now,
		Listener: chunks.Listener{
			Degraded: func(err error) {
				log.Error("snapshots are not spilled, but packed again when they are asked for", "error", err)
			},
			Recovered: func() { log.Info("snapshots are spilled again") },
			Damaged: func(segment string, offset int64, err error) {
				log.Warn("spilled chunk is packed again", "segment", segment, "offset", offset, "error", err)
			},
		},
	})
	return nil
}

// openPages makes the pool of the record indexes. Its file is made when it is
// needed, and worth nothing to the next daemon.
func (e *Engine) openPages() error {
	e.pages = pages.NewPool(pages.Options{
		Bytes: e.o.IndexMemoryBytes, PageBytes: e.o.IndexPageBytes,
		Open: func() (pages.Store, error) {
			f, err := e.o.FS.Scratch(e.o.SpillDir)
			if err != nil { // tried again and again: the status tells
				return nil, err
			}
			e.o.Logger.Info("record indexes are paged out", "folder", e.o.SpillDir)
			return f, nil
		},
	})
	return nil
}

// housekeeping closes what nobody uses.
func (e *Engine) housekeeping() {
	paging := ""
	e.every(time.Second, func() {
		e.trust.Observe()
		e.closeIdle(e.o.Now())
		e.objects.expire(e.o.Now())
		e.pages.Relax()
		was := paging
		switch paging = e.pages.Stats().Failed; {
		case was == "" && paging != "":
			e.o.Logger.Error("record indexes stay in memory", "error", paging)
		case was != "" && paging == "":
			e.o.Logger.Info("record indexes are paged out again")
		}
	})
}

// every does work again and again until Close.
func (e *Engine) every(pause time.Duration, work func()) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-tick.C:
			work()
		}
	}
}

// openSessions are those with a generation.
func (e *Engine) openSessions() []*session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.open))
}

// closeOver closes what is over the bound of open generations.
func (e *Engine) closeOver() {
	e.mu.Lock()
	over := len(e.open) > e.o.OpenMax
	e.mu.Unlock()
	if over {
		e.closeIdle(e.o.Now())
	}
}

// closeIdle closes generations that were not used for a while, and the least
// recently used over the bound.
func (e *Engine) closeIdle(now time.Time) {
	list := e.openSessions()
	over := len(list) - e.o.OpenMax
	sortByUse(list)
	for _, s := range list {
		limit := e.o.IdleAfter
		if over > 0 {
			limit = 0
		}
		if s.closeIfIdle(e.ctx, now, limit) {
			over--
		}
	}
}

// begin starts work that Close waits for; false after Close.
func (e *Engine) begin(work func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.work.Go(work)
	}
	return !e.closed
}

// Close ends the engine: journals are drained, the index written, the lock
// given back. Streams must have been closed before. It may be called twice.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	list := make([]*session, 0, len(e.sessions))
	for _, s := range e.sessions {
		list = append(list, s)
	}
	e.mu.Unlock()
	var errs []error
	e.stop()
	if e.watcher != nil {
		errs = append(errs, e.watcher.Close())
	}
	e.work.Wait()
	for _, s := range list {
		errs = append(errs, s.close(ctx))
	}
	if e.behind != nil {
		e.behind.flush(ctx)
	}
	if e.index != nil {
		errs = append(errs, e.index.Close(ctx))
	}
	if e.chunks != nil {
		errs = append(errs, e.chunks.Close(ctx))
	}
	if e.cache != nil {
		e.cache.Close()
	}
	if e.pages != nil {
		errs = append(errs, e.pages.Close())
	}
	if e.lock != nil {
		errs = append(errs, e.lock.Close())
	}
	return errors.Join(errs...)
}

func newGenerationID() (g wire.Generation) {
	_, _ = rand.Read(g[:]) // never fails
	return g
}
