package follow

import (
	"context"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"sessiond/engine/vfs"
	"sessiond/replay/stamp"
)

const (
	// HotInterval is the default time between two looks at hot paths.
	HotInterval = time.Second
	// ColdInterval is the default time between two walks of all roots.
	ColdInterval = 30 * time.Second
	// pendingMax bounds the names of events that wait; beyond it the roots
	// are walked instead.
	pendingMax = 1 << 16
)

// Mode is how changes below a root are noticed.
type Mode string

// The modes.
const (
	Inotify Mode = "inotify" // by events, and by sweeps
	Polling Mode = "polling" // by sweeps alone
)

// Events are the callbacks; see the package's contract. A nil one is not
// called.
type Events struct {
	Changed func(path string) // a session file: look at it
	Rescan  func(root string) // events of this root were lost: look at all of it
}

// Options configure a Watcher; the zero value is usable.
type Options struct {
	FS           vfs.FS // default vfs.OS
	Events       Events
	Polling      bool          // use no events
	HotInterval  time.Duration // default HotInterval
	ColdInterval time.Duration // default ColdInterval
	// HotTick and ColdTick replace the tickers of the intervals.
	HotTick, ColdTick <-chan time.Time
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	if o.Events.Changed == nil {
		o.Events.Changed = func(string) {}
	}
	if o.Events.Rescan == nil {
		o.Events.Rescan = func(string) {}
	}
	if o.HotInterval <= 0 {
		o.HotInterval = HotInterval
	}
	if o.ColdInterval <= 0 {
		o.ColdInterval = ColdInterval
	}
	return o
}

// Watcher watches roots.
type Watcher struct {
	// Set at construction.
	o          Options
	notify     *fsnotify.Watcher // nil: polling
	pollingWhy error             // not nil: why notify is nil
	ctx        context.Context   // ends with Close: the watcher's own, no caller's
	stop       context.CancelFunc
	wake       chan struct{} // something is pending
	goroutines sync.WaitGroup

	mu       sync.Mutex
	roots    map[string]error       // root to why it is polled; guarded by mu
	hot      map[string]bool        // guarded by mu
	seen     map[string]stamp.Stamp // what is there under session names, as last reported; guarded by mu
	folders  map[string]bool        // entered and, unless polled, watched; guarded by mu
	pending  []string               // in the order in which they came; guarded by mu
	queued   map[string]bool        // those in pending; guarded by mu
	overflow bool                   // events were lost; guarded by mu
}

// New starts a watcher without roots. It never fails: without events it polls.
func New(o Options) *Watcher {
	notify, err := startNotify(o.Polling)
	return start(o.withDefaults(), notify, err)
}

func startNotify(polling bool) (*fsnotify.Watcher, error) {
	switch {
	case polling:
		return nil, ErrForced
	case runtime.GOOS != "linux":
		return nil, ErrNoEvents // kqueue holds a descriptor for every file
	}
	return fsnotify.NewWatcher()
}

func start(o Options, notify *fsnotify.Watcher, pollingWhy error) *Watcher {
	w := &Watcher{
		o: o, notify: notify, pollingWhy: pollingWhy,
		wake:    make(chan struct{}, 1),
		roots:   map[string]error{},
		hot:     map[string]bool{},
		seen:    map[string]stamp.Stamp{},
		folders: map[string]bool{},
		queued:  map[string]bool{},
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.goroutines.Go(w.run)
	if notify != nil {
		w.goroutines.Go(w.drain)
	}
	return w
}

// AddRoot watches a root and returns what is there, as Scan does: everything
// that changes afterwards is reported. A root that cannot be read is watched
// too, from when it can be.
func (w *Watcher) AddRoot(ctx context.Context, root string) ([]Entry, error) {
	w.mu.Lock()
	w.roots[root] = w.pollingWhy
	w.mu.Unlock()
	entries, err := w.walk(ctx, root, root)
	w.compare(root, root, entries) // what differs is in the entries
	return entries, err
}

// Hot marks or unmarks a path for the quick look, whether below a root or not.
// Changes from then on are reported.
func (w *Watcher) Hot(path string, hot bool) {
	now, there := w.look(path)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !hot {
		delete(w.hot, path)
		if w.rootOfLocked(path) == "" {
			delete(w.seen, path)
		}
		return
	}
	w.hot[path] = true
	if _, known := w.seen[path]; !known && there {
		w.seen[path] = now
	}
}

// Mode returns how a root is watched; why is the reason for polling.
func (w *Watcher) Mode(root string) (mode Mode, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if why := w.roots[root]; why != nil {
		return Polling, why
	}
	return Inotify, nil
}

// Close ends the watch and waits for a callback that runs. It may be called
// twice.
func (w *Watcher) Close() error {
	w.stop()
	var err error
	if w.notify != nil {
		err = w.notify.Close()
	}
	w.goroutines.Wait()
	return err
}

// run makes all reports.
func (w *Watcher) run() {
	hot, cold := w.o.HotTick, w.o.ColdTick
	if hot == nil {
		t := time.NewTicker(w.o.HotInterval)
		defer t.Stop()
		hot = t.C
	}
	if cold == nil {
		t := time.NewTicker(w.o.ColdInterval)
		defer t.Stop()
		cold = t.C
	}
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-w.wake:
			w.flush()
		case <-hot:
			w.sweepHot()
		case <-cold:
			for _, root := range w.rootNames() {
				w.report(w.sweep(root))
			}
		}
	}
}

// drain takes events as fast as they come, so that the kernel's queue stays
// short.
func (w *Watcher) drain() {
	for {
		select {
		case <-w.ctx.Done():
			return
		case e, ok := <-w.notify.Events:
			if !ok {
				return
			}
			isFile := IsSessionName(filepath.Base(e.Name))
			if isFile || e.Has(fsnotify.Create|fsnotify.Remove|fsnotify.Rename) {
				w.enqueue(e.Name)
			}
		case _, ok := <-w.notify.Errors:
			if !ok {
				return
			}
			w.lost() // an overflow, or something that is no better
		}
	}
}

func (w *Watcher) enqueue(path string) {
	w.mu.Lock()
	switch {
	case w.overflow, w.queued[path]:
	case len(w.pending) >= pendingMax:
		w.loseLocked()
	default:
		w.pending = append(w.pending, path)
		w.queued[path] = true
	}
	w.mu.Unlock()
	w.poke()
}

func (w *Watcher) lost() {
	w.mu.Lock()
	w.loseLocked()
	w.mu.Unlock()
	w.poke()
}

// loseLocked replaces single names by a walk of everything.
func (w *Watcher) loseLocked() {
	w.overflow = true
	w.pending = nil
	clear(w.queued)
}

func (w *Watcher) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
