package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// tempTriesMax bounds the search for a free temporary name.
const tempTriesMax = 10_000

// IsTemp reports whether a base name is one that ReplaceFile and PublishFile
// use on the way.
func IsTemp(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".tmp")
}

// ReplaceFile makes path a file with this content, durably, in place of what
// it named before. A reader sees the old file or the new one, never a part.
// After an error path is one of the two, and only the old one if the error
// came before the rename.
func ReplaceFile(fsys FS, path string, data []byte, mode fs.FileMode) error {
	temp, err := writeTemp(fsys, path, data, mode)
	if err != nil {
		return err
	}
	if err := fsys.Rename(temp, path); err != nil {
		return errors.Join(err, fsys.Remove(temp))
	}
	return fsys.SyncDir(filepath.Dir(path))
}

// PublishFile makes a new file with this content, durably and whole, and
// never replaces: fs.ErrExist where the name is taken. Any other error may
// leave the file in place without proof that it outlives a power cut; doing it
// again then gives fs.ErrExist.
func PublishFile(fsys FS, path string, data []byte, mode fs.FileMode) error {
	temp, err := writeTemp(fsys, path, data, mode)
	if err != nil {
		return err
	}
	err = fsys.Link(temp, path)
	removeErr := fsys.Remove(temp)
	if err != nil {
		return errors.Join(err, removeErr)
	}
	// A temporary name that stays is no harm to what was published.
	return fsys.SyncDir(filepath.Dir(path))
}

// writeTemp writes and syncs a file under a free temporary name beside path.
// Whole means whole: what cannot be completed is removed again.
func writeTemp(fsys FS, path string, data []byte, mode fs.FileMode) (string, error) {
	dir, base := filepath.Split(path)
	for n := range tempTriesMax {
		temp := filepath.Join(dir, fmt.Sprintf(".%s.%d.tmp", base, n))
		f, err := fsys.Create(temp, mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(data)
		if err == nil {
			err = f.Datasync()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return "", errors.Join(err, fsys.Remove(temp))
		}
		return temp, nil
	}
	return "", fmt.Errorf("vfs: %d temporary names of %s are taken", tempTriesMax, path)
}
