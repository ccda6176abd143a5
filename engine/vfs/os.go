package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"sessiond/replay/stamp"
)

// OS is the operating system's file system.
type OS struct{}

var _ FS = OS{}

// never are the flags of every open: no blocking on a FIFO, no terminal to
// take over.
const never = syscall.O_NONBLOCK | syscall.O_NOCTTY | syscall.O_CLOEXEC

// OpenRead implements FS.
func (OS) OpenRead(path string) (File, error) {
	return open(path, os.O_RDONLY|never)
}

// OpenAppend implements FS.
func (OS) OpenAppend(path string) (File, error) {
	return open(path, os.O_RDWR|os.O_APPEND|syscall.O_NOFOLLOW|never)
}

// Create implements FS.
func (OS) Create(path string, mode fs.FileMode) (File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL|never, mode)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(mode); err != nil { // the umask may have taken the owner's bits
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return &osFile{f}, nil
}

func open(path string, flags int) (File, error) {
	f, err := os.OpenFile(path, flags, 0)
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENXIO):
		return nil, fmt.Errorf("%w: %w", ErrNotRegular, err)
	case err != nil:
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is %s", ErrNotRegular, path, info.Mode().Type())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &osFile{f}, nil
}

// Scratch implements FS. Where the file system makes no file without a name,
// the name is taken away at once.
func (OS) Scratch(dir string) (Scratch, error) {
	if f, err := unnamed(dir); err == nil {
		return f, nil
	}
	f, err := os.CreateTemp(dir, ".scratch-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Stat implements FS.
func (OS) Stat(path string) (Info, error) { return infoOf(os.Stat(path)) }

// Lstat implements FS.
func (OS) Lstat(path string) (Info, error) { return infoOf(os.Lstat(path)) }

// Resolve implements FS.
func (OS) Resolve(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil { // of a loop it tells in words only
		if _, why := os.Stat(path); why != nil {
			err = why
		}
	}
	return real, err
}

// ReadDir implements FS.
func (OS) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }

// Link implements FS.
func (OS) Link(oldPath, newPath string) error { return os.Link(oldPath, newPath) }

// Rename implements FS.
func (OS) Rename(oldPath, newPath string) error { return os.Rename(oldPath, newPath) }

// Remove implements FS. It removes no folder.
func (OS) Remove(path string) error {
	if err := ignoringEINTR(func() error { return unix.Unlink(path) }); err != nil {
		return &fs.PathError{Op: "unlink", Path: path, Err: err}
	}
	return nil
}

// MkdirAll implements FS.
func (o OS) MkdirAll(path string, mode fs.FileMode) error {
	if isDir, err := isFolder(path); isDir || err != nil {
		return err
	}
	parent := filepath.Dir(path)
	if err := o.MkdirAll(parent, mode); err != nil {
		return err
	}
	if err := os.Mkdir(path, mode); err != nil {
		if isDir, _ := isFolder(path); isDir {
			return nil // another made it just now
		}
		return err
	}
	if err := os.Chmod(path, mode); err != nil { // the umask may have taken the owner's bits
		return err
	}
	return o.SyncDir(parent)
}

// isFolder reports whether path is a folder; what is there and is none is an
// error.
func isFolder(path string) (bool, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !info.IsDir():
		return false, &fs.PathError{Op: "mkdir", Path: path, Err: unix.ENOTDIR}
	}
	return true, nil
}

// SyncDir implements FS.
func (OS) SyncDir(path string) error {
	d, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|never, 0)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Type implements FS.
func (OS) Type(path string) (string, error) {
	var st unix.Statfs_t
	if err := ignoringEINTR(func() error { return unix.Statfs(path, &st) }); err != nil {
		return "", &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return typeName(&st), nil
}

// Free implements FS.
func (OS) Free(path string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := ignoringEINTR(func() error { return unix.Statfs(path, &st) }); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	block := int64(st.Bsize) //nolint:unconvert // uint32 on some platforms
	return int64(st.Bavail) * block, int64(st.Blocks) * block, nil
}

// osFile is a File of the operating system.
type osFile struct{ *os.File }

var _ File = (*osFile)(nil)

// Datasync implements File.
func (f *osFile) Datasync() error {
	if err := datasync(f.File); err != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

// Position implements File: an O_APPEND write leaves the descriptor's offset
// behind its last byte.
func (f *osFile) Position() (int64, error) { return f.Seek(0, io.SeekCurrent) }

// Allocate implements File.
func (f *osFile) Allocate(size int64) error {
	err := allocate(f.File, size)
	if err == nil || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return &fs.PathError{Op: "fallocate", Path: f.Name(), Err: err}
}

// Info implements File.
func (f *osFile) Info() (Info, error) { return infoOf(f.Stat()) }

// TryLock implements File.
func (f *osFile) TryLock() error {
	err := tryLock(f.Fd())
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: %s", ErrLocked, f.Name())
	case err != nil:
		return &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return nil
}

func infoOf(info fs.FileInfo, err error) (Info, error) {
	if err != nil {
		return Info{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Info{}, fmt.Errorf("vfs: stat of %s gave a %T", info.Name(), info.Sys())
	}
	dev := uint64(st.Dev)
	return Info{
		Stamp: stamp.Stamp{
			Size:      info.Size(),
			MTimeNano: info.ModTime().UnixNano(),
			CTimeNano: ctimeNano(st),
			Device:    uint64(unix.Major(dev))<<32 | uint64(unix.Minor(dev)),
			Inode:     st.Ino,
		},
		Mode:  info.Mode(),
		UID:   st.Uid,
		Links: uint64(st.Nlink),
	}, nil
}

func ignoringEINTR(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
