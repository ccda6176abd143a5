package follow

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"sessiond/replay/stamp"
)

// flush reports what events have named.
func (w *Watcher) flush() {
	w.mu.Lock()
	pending, overflow := w.pending, w.overflow
	w.pending, w.overflow = nil, false
	clear(w.queued)
	w.mu.Unlock()
	if overflow {
		// Watches may be under names that folders had before.
		w.unwatch(func(string) bool { return true })
		for _, root := range w.rootNames() {
			w.sweep(root)
			w.o.Events.Rescan(root)
		}
	}
	for _, path := range pending {
		if w.ctx.Err() != nil {
			return
		}
		if IsSessionName(filepath.Base(path)) {
			w.differs(path)
			w.o.Events.Changed(path)
		} else {
			w.report(w.folderChanged(path))
		}
	}
}

func (w *Watcher) report(paths []string) {
	for _, path := range paths {
		if w.ctx.Err() != nil {
			return
		}
		w.o.Events.Changed(path)
	}
}

// sweepHot reports the hot paths whose stamps have changed.
func (w *Watcher) sweepHot() {
	w.mu.Lock()
	hot := slices.Sorted(maps.Keys(w.hot))
	w.mu.Unlock()
	for _, path := range hot {
		if w.differs(path) {
			w.o.Events.Changed(path)
		}
	}
}

// sweep walks a root and returns what has changed.
func (w *Watcher) sweep(root string) []string {
	entries, err := w.walk(w.ctx, root, root)
	if w.ctx.Err() != nil || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil // what was not listed is not known to be gone
	}
	return w.compare(root, root, entries)
}

// folderChanged takes in that a folder came, went or moved, and returns the
// session files that this concerns. Any other path it ignores.
func (w *Watcher) folderChanged(path string) []string {
	info, err := w.o.FS.Lstat(path)
	isFolder := err == nil && info.Mode.IsDir()
	w.mu.Lock()
	root := w.rootOfLocked(path)
	known := w.folders[path]
	w.mu.Unlock()
	if root == "" || !isFolder && !known {
		return nil
	}
	// The kernel goes on watching a folder that moved, and would report it
	// under its old name.
	w.unwatch(func(p string) bool { return p == path || isBelow(p, path) })
	if !isFolder {
		return w.compare(root, path, nil)
	}
	entries, err := w.walk(w.ctx, root, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return w.compare(root, path, entries)
}

// unwatch drops the watches of folders.
func (w *Watcher) unwatch(gone func(folder string) bool) {
	w.mu.Lock()
	var paths []string
	for path := range w.folders {
		if gone(path) {
			paths = append(paths, path)
			delete(w.folders, path)
		}
	}
	w.mu.Unlock()
	if w.notify != nil {
		for _, path := range paths {
			_ = w.notify.Remove(path) // it may have gone by itself
		}
	}
}

// walk lists a root from one of its folders down and watches what it enters:
// each folder before it is read, so that nothing falls between.
func (w *Watcher) walk(ctx context.Context, root, folder string) ([]Entry, error) {
	why := w.pollingWhy
	if why == nil && givesNoEvents(root) {
		why = ErrNoEvents
	}
	polled := why != nil
	entered := map[string]bool{}
	entries, err := walk(ctx, w.o.FS, root, folder, func(path string) {
		entered[path] = true
		if polled {
			return
		}
		if err := w.notify.Add(path); err != nil && !unlisted(err) {
			why = err
		}
	})
	if err == nil {
		w.unwatch(func(path string) bool { return isBelow(path, folder) && !entered[path] })
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.Copy(w.folders, entered)
	if folder == root || why != nil { // a part's success says nothing of the rest
		w.roots[root] = why
	}
	return entries, err
}

// unlisted reports errors that concern a single folder; the listing shows
// them.
func unlisted(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOTDIR)
}

// compare replaces what is known below a folder of a root by what a walk has
// found there, and returns the paths that differ, in order.
func (w *Watcher) compare(root, folder string, entries []Entry) []string {
	found := make(map[string]stamp.Stamp, len(entries))
	for _, e := range entries {
		if path := filepath.Join(root, e.Path); IsSessionName(filepath.Base(path)) {
			found[path] = e.Info.Stamp // missing, if it cannot be read
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var changed []string
	for path, now := range found {
		if before, ok := w.seen[path]; !ok || before != now {
			w.seen[path] = now
			changed = append(changed, path)
		}
	}
	for path := range w.seen {
		if _, ok := found[path]; !ok && isBelow(path, folder) {
			delete(w.seen, path)
			changed = append(changed, path)
		}
	}
	slices.Sort(changed)
	return changed
}

// look takes the stamp of what is at a path; it is there, with no stamp, if
// it cannot be looked at.
func (w *Watcher) look(path string) (now stamp.Stamp, there bool) {
	info, err := w.o.FS.Stat(path)
	return info.Stamp, !errors.Is(err, fs.ErrNotExist)
}

// differs looks at a path and reports whether it is as last reported.
func (w *Watcher) differs(path string) bool {
	now, there := w.look(path)
	w.mu.Lock()
	defer w.mu.Unlock()
	before, known := w.seen[path]
	if there {
		w.seen[path] = now
	} else {
		delete(w.seen, path)
	}
	return known != there || before != now
}

func (w *Watcher) rootNames() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.roots))
}

// rootOfLocked returns the innermost root that a path is or lies in, if any.
func (w *Watcher) rootOfLocked(path string) string {
	best := ""
	for root := range w.roots {
		if (path == root || isBelow(path, root)) && len(root) > len(best) {
			best = root
		}
	}
	return best
}
