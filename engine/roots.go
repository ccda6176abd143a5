package engine

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sessiond/engine/follow"
	"sessiond/engine/vfs"
)

// listRoots lists and follows all roots. A root that cannot be read is
// reported in status and looked for again.
func (e *Engine) listRoots(ctx context.Context) error {
	e.watcher = follow.New(follow.Options{
		FS: e.o.FS, Polling: e.o.Polling,
		Events: follow.Events{Changed: e.changed, Rescan: func(root string) { e.rescan(root) }},
	})
	e.roots = append([]Root{{OwnedRoot, e.o.SessionsDir}}, e.o.Roots...)
	for i := range e.roots {
		e.roots[i].Path = e.resolveRoot(e.roots[i].Path)
	}
	e.o.SessionsDir, e.o.Roots = e.roots[0].Path, e.roots[1:]
	for _, r := range e.roots {
		entries, err := e.watcher.AddRoot(ctx, r.Path)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		e.setRootErr(r.Name, err)
		for _, found := range entries {
			e.found(r, found)
		}
		e.o.Logger.Info("root", "name", r.Name, "path", r.Path, "sessions", len(entries), "owned", r.Name == OwnedRoot, "error", errText(err))
	}
	return nil
}

// resolveRoot follows the symbolic links of a root's path as far as it is
// there.
func (e *Engine) resolveRoot(path string) string {
	rest := ""
	for at := path; ; {
		if real, err := e.o.FS.Resolve(at); err == nil {
			return filepath.Join(real, rest)
		}
		up := filepath.Dir(at)
		if up == at {
			return path
		}
		rest, at = filepath.Join(filepath.Base(at), rest), up
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (e *Engine) setRootErr(name string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rootErr[name] = err
}

// rootOf finds the root of a path, the deepest where roots are nested.
func (e *Engine) rootOf(path string) (Root, string, bool) {
	best := Root{}
	for _, r := range e.roots {
		if isBelow(path, r.Path) && len(r.Path) > len(best.Path) {
			best = r
		}
	}
	if best.Path == "" {
		return Root{}, "", false
	}
	return best, path[len(best.Path)+1:], true
}

// found takes what a scan found.
func (e *Engine) found(r Root, f follow.Entry) {
	if f.Err != nil && !follow.IsSessionName(filepath.Base(f.Path)) {
		e.o.Logger.Warn("folder not listed", "root", r.Name, "path", f.Path, "error", f.Err)
		return
	}
	path := filepath.Join(r.Path, f.Path)
	owner, rel, ok := e.rootOf(path)
	if !ok {
		return
	}
	e.add(owner, rel, path, f.Info, f.Err)
}

// add makes a path known as a session or as an alias of one.
func (e *Engine) add(r Root, rel, path string, info vfs.Info, ferr error) {
	id := fileID{info.Stamp.Device, info.Stamp.Inode}
	file := ferr == nil && !info.Stamp.IsMissing()
	e.mu.Lock()
	known, first := e.paths[path], e.files[id]
	e.mu.Unlock()
	if known != nil {
		switch {
		case path != known.path: // an alias
		case file:
			e.setInfo(known, info)
		default:
			known.setInfo(info, ferr)
		}
		return
	}
	alias := file && first != nil && e.stillThere(first, id)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.paths[path] != nil: // found twice at once
	case alias:
		first.addAlias(path)
		e.paths[path] = first
		name := keyOf(r, rel)
		e.names[name] = append(e.names[name], first)
	default:
		s := newSession(e, r, rel, path)
		s.setInfo(info, ferr)
		e.sessions[s.key], e.paths[path] = s, s
		e.names[s.stem] = append(e.names[s.stem], s)
		if id := stemID(s.stem); id != s.stem {
			e.names[id] = append(e.names[id], s)
		}
		if file {
			e.files[id] = s
		}
	}
}

// setInfo notes what a session's file is now.
func (e *Engine) setInfo(s *session, info vfs.Info) {
	was := s.setInfo(info, nil)
	if info.Stamp.SameFile(was.Stamp) {
		return
	}
	old, id := fileID{was.Stamp.Device, was.Stamp.Inode}, fileID{info.Stamp.Device, info.Stamp.Inode}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.files[old] == s {
		delete(e.files, old)
	}
	if e.sessions[s.key] == s && e.files[id] == nil {
		e.files[id] = s
	}
}

// stillThere reports whether a session's own path still names the file, so
// that another path of it is an alias and not the session moved.
func (e *Engine) stillThere(s *session, id fileID) bool {
	info, err := e.o.FS.Stat(s.path)
	return err == nil && info.Stamp.Device == id.device && info.Stamp.Inode == id.inode
}

// forget removes a session that has no file any more, and returns the paths
// that it had.
func (e *Engine) forget(s *session) (paths []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.sessions, s.key)
	for path, other := range e.paths {
		if other == s {
			delete(e.paths, path)
			paths = append(paths, path)
		}
	}
	maps.DeleteFunc(e.files, func(_ fileID, other *session) bool { return other == s })
	for name := range e.names {
		e.dropNameLocked(name, s)
	}
	delete(e.open, s)
	return paths
}

func (e *Engine) dropNameLocked(name string, s *session) {
	list := slices.DeleteFunc(e.names[name], func(o *session) bool { return o == s })
	if e.names[name] = list; len(list) == 0 {
		delete(e.names, name)
	}
}

// changed is told that a session file may have changed. It runs in the
// watcher's goroutine.
func (e *Engine) changed(path string) {
	e.mu.Lock()
	s := e.paths[path]
	e.mu.Unlock()
	if s != nil {
		s.kick()
		if path == s.path || e.isAlias(s, path) {
			return
		}
	}
	r, rel, ok := e.rootOf(path)
	if !ok || !follow.IsSessionName(filepath.Base(path)) {
		return
	}
	info, err := e.o.FS.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil && !info.Mode.IsRegular() {
		err = vfs.ErrNotRegular
	}
	if err == nil && !e.inside(r, path) {
		return
	}
	e.add(r, rel, path, info, err)
}

// isAlias reports whether a path is still another name of a session's file; if
// not, it is none any more.
func (e *Engine) isAlias(s *session, path string) bool {
	alias, err := e.o.FS.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return true // for all that is known
	}
	own, ownErr := e.o.FS.Stat(s.path)
	if ownErr != nil || err == nil && own.Stamp.SameFile(alias.Stamp) {
		return true // a session that goes takes all its names with it
	}
	e.mu.Lock()
	delete(e.paths, path)
	if r, rel, ok := e.rootOf(path); ok {
		e.dropNameLocked(keyOf(r, rel), s)
	}
	e.mu.Unlock()
	s.dropAlias(path)
	return false
}

// inside reports whether a path stays below its root when links are followed.
func (e *Engine) inside(r Root, path string) bool {
	real, err := e.o.FS.Resolve(path)
	return err == nil && isBelow(real, e.resolveRoot(r.Path))
}

func isBelow(path, folder string) bool {
	return strings.HasPrefix(path, folder+string(filepath.Separator))
}

// rescan is told that changes below a root were missed.
func (e *Engine) rescan(path string) {
	for _, r := range e.roots {
		if r.Path != path {
			continue
		}
		entries, err := follow.Scan(e.ctx, e.o.FS, r.Path)
		e.setRootErr(r.Name, err)
		for _, f := range entries {
			e.found(r, f)
		}
	}
	e.mu.Lock()
	list := make([]*session, 0, len(e.sessions))
	for _, s := range e.sessions {
		if isBelow(s.path, path) {
			list = append(list, s)
		}
	}
	e.mu.Unlock()
	for _, s := range list {
		s.kick()
	}
}

func sortByUse(list []*session) {
	used := make(map[*session]int64, len(list))
	for _, s := range list {
		used[s] = s.lastUse().UnixNano()
	}
	slices.SortFunc(list, func(a, b *session) int { return int(min(max(used[a]-used[b], -1), 1)) })
}

func readBootID() (id [16]byte) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id
	}
	n := 0
	for _, c := range strings.TrimSpace(string(text)) {
		d := strings.IndexRune("0123456789abcdef", c)
		if d < 0 || n >= 32 {
			continue
		}
		id[n/2] = id[n/2]<<4 | byte(d)
		n++
	}
	return id
}
