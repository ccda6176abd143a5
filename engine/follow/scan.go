package follow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"sessiond/engine/vfs"
)

// DepthMax is how many folders below its root a session file may be.
const DepthMax = 16

// Entry is one thing that a scan found.
type Entry struct {
	Path string   // relative to the root
	Info vfs.Info // of the file; with an Err, as far as it is known
	// Err is why this is no session that can be read, or a folder whose
	// sessions cannot be listed.
	Err error
}

// IsSessionName reports whether a base name is one of a session file.
func IsSessionName(name string) bool {
	return strings.HasSuffix(name, ".jsonl") && !strings.HasPrefix(name, ".")
}

// Scan lists the session files below a root, in the order of a walk. What
// cannot be listed is an Entry with an Err; what vanishes meanwhile is none.
// The error says that the root itself could not be read, or that the context
// ended; the entries so far are returned with it.
func Scan(ctx context.Context, fsys vfs.FS, root string) ([]Entry, error) {
	return walk(ctx, fsys, root, root, func(string) {})
}

// walker lists one root.
type walker struct {
	fs       vfs.FS
	root     string
	resolved string // root without links, when first needed
	enter    func(folder string)
	entries  []Entry
}

// walk lists the session files of a root from one of its folders down. enter
// is told of each folder before it is read.
func walk(ctx context.Context, fsys vfs.FS, root, folder string, enter func(folder string)) ([]Entry, error) {
	w := &walker{fs: fsys, root: root, enter: enter}
	depth := 0
	if folder != root {
		depth = strings.Count(w.rel(folder), string(filepath.Separator)) + 1
	}
	err := w.folder(ctx, folder, depth)
	if err != nil && ctx.Err() == nil && folder == root {
		err = fmt.Errorf("follow: listing %s: %w", root, err)
	}
	return w.entries, err
}

func (w *walker) rel(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, w.root), string(filepath.Separator))
}

func (w *walker) add(path string, info vfs.Info, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return // vanished
	}
	w.entries = append(w.entries, Entry{Path: w.rel(path), Info: info, Err: err})
}

// folder lists a folder; the error is that of reading it, or the context's.
func (w *walker) folder(ctx context.Context, path string, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if depth > DepthMax {
		return fmt.Errorf("%w: %d folders below the root, at most %d", ErrDeep, depth, DepthMax)
	}
	w.enter(path)
	list, err := w.fs.ReadDir(path)
	for _, d := range list { // also those before an error
		below := filepath.Join(path, d.Name())
		switch session := IsSessionName(d.Name()); {
		case d.Type()&fs.ModeSymlink != 0:
			w.link(below, session)
		case session:
			w.file(below)
		case d.IsDir():
			err := w.folder(ctx, below, depth+1)
			if ctx.Err() != nil {
				return err
			}
			if err != nil {
				w.add(below, vfs.Info{}, err)
			}
		}
	}
	return err
}

func (w *walker) file(path string) {
	info, err := w.fs.Lstat(path)
	if err == nil && !info.Mode.IsRegular() {
		err = notRegular(info)
	}
	w.add(path, info, err)
}

func notRegular(info vfs.Info) error {
	return fmt.Errorf("%w: %s", vfs.ErrNotRegular, info.Mode.Type())
}

// link takes a symbolic link: to a session file inside the root, or an entry
// with the reason why not.
func (w *walker) link(path string, session bool) {
	info, err := w.fs.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, lerr := w.fs.Lstat(path); session && lerr == nil {
			w.add(path, vfs.Info{}, errors.New("follow: link leads nowhere"))
		}
	case errors.Is(err, unix.ELOOP):
		w.add(path, vfs.Info{}, err)
	case err == nil && info.Mode.IsDir():
		w.add(path, vfs.Info{}, ErrFolderLink)
	case !session:
	case err != nil:
		w.add(path, vfs.Info{}, err)
	case !info.Mode.IsRegular():
		w.add(path, vfs.Info{}, notRegular(info))
	default:
		w.add(path, info, w.inside(path))
	}
}

// inside checks that a link's target lies in the root.
func (w *walker) inside(path string) error {
	var err error
	if w.resolved == "" {
		if w.resolved, err = w.fs.Resolve(w.root); err != nil {
			return err
		}
	}
	target, err := w.fs.Resolve(path)
	if err != nil {
		return err
	}
	if !isBelow(target, w.resolved) {
		return ErrOutside
	}
	return nil
}

// isBelow reports whether a path lies in a folder.
func isBelow(path, folder string) bool {
	rest, ok := strings.CutPrefix(path, folder)
	return ok && (strings.HasPrefix(rest, string(filepath.Separator)) ||
		rest != "" && strings.HasSuffix(folder, string(filepath.Separator)))
}
