package kv

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Names beside the index.
const (
	tempSuffix   = ".new"
	badInfix     = ".bad-"
	schemaInfix  = ".schema-"
	asideFileMax = 3 // kept of each kind, the newest
)

// files are the calls that change the folder of the index; tests replace them.
type files struct {
	open    func(path string, flag int, mode fs.FileMode) (*os.File, error)
	rename  func(from, to string) error
	remove  func(path string) error
	syncDir func(path string) error
}

var osFiles = files{open: os.OpenFile, rename: os.Rename, remove: os.Remove, syncDir: syncDir}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// moveAside renames the index to a free name that begins with its path and
// infix, and removes the oldest of more than asideFileMax such files.
func (f files) moveAside(path, infix, mark string) (aside string, err error) {
	aside = path + infix + mark
	for n := 2; ; n++ {
		if _, err := os.Lstat(aside); err != nil {
			break // free, or rename will say what is wrong
		}
		aside = fmt.Sprintf("%s%s%s-%d", path, infix, mark, n)
	}
	if err := f.rename(path, aside); err != nil {
		return "", fmt.Errorf("kv: set index aside: %w", err)
	}
	f.pruneAside(path, infix, aside)
	if err := f.syncDir(filepath.Dir(path)); err != nil {
		return "", fmt.Errorf("kv: set index aside: sync folder: %w", err)
	}
	return aside, nil
}

// pruneAside is best effort: a file that stays is removed the next time.
func (f files) pruneAside(path, infix, keep string) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return
	}
	var infos []fs.FileInfo
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), filepath.Base(path)+infix) || e.Name() == filepath.Base(keep) {
			continue
		}
		if i, err := e.Info(); err == nil {
			infos = append(infos, i)
		}
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, i := range infos[min(len(infos), asideFileMax-1):] {
		_ = f.remove(filepath.Join(filepath.Dir(path), i.Name()))
	}
}
