package vfs

import (
	"io"
	"io/fs"

	"sessiond/replay/stamp"
)

// FS is the file system as sessiond uses it. Paths are absolute and cleaned
// by the caller. Errors wrap the operating system's and satisfy errors.Is for
// fs.ErrNotExist, fs.ErrExist and fs.ErrPermission.
type FS interface {
	// OpenRead opens a regular file for reading without ever blocking on a
	// FIFO or device; anything but a regular file is ErrNotRegular.
	OpenRead(path string) (File, error)
	// OpenAppend opens an existing regular file for reading and appending
	// (O_APPEND); symbolic links in the last element are refused.
	OpenAppend(path string) (File, error)
	// Create makes a new file for reading and appending and fails where the
	// name exists. The directory entry is durable only after SyncDir.
	Create(path string, mode fs.FileMode) (File, error)
	// Scratch makes a file without a name on the device of a folder.
	Scratch(dir string) (Scratch, error)
	// Stat follows symbolic links.
	Stat(path string) (Info, error)
	// Lstat does not follow the last element.
	Lstat(path string) (Info, error)
	// Resolve returns the path with every symbolic link followed.
	Resolve(path string) (string, error)
	// ReadDir lists a folder, sorted by name.
	ReadDir(path string) ([]fs.DirEntry, error)
	// Link makes a hard link and never replaces.
	Link(oldPath, newPath string) error
	// Rename replaces newPath atomically; durable only after SyncDir.
	Rename(oldPath, newPath string) error
	// Remove removes a file; fs.ErrNotExist where there is none.
	Remove(path string) error
	// MkdirAll makes a folder and its parents, syncing each new entry.
	MkdirAll(path string, mode fs.FileMode) error
	// SyncDir makes the entries of a folder durable.
	SyncDir(path string) error
	// Type names the type of the file system that a path is on ("ext4"), ""
	// for one that is not known here.
	Type(path string) (string, error)
	// Free is how many bytes this user may still write to the file system
	// that holds path, and its size.
	Free(path string) (free, total int64, err error)
}

// Scratch is a file without a name, for what is worth nothing when the process
// ends. Reads and writes are safe for concurrent use.
type Scratch interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// File is one open file. ReadAt, Datasync and Close are safe for concurrent
// use; the rest belongs to one goroutine.
type File interface {
	io.ReaderAt
	io.Closer
	// Write appends at the end of the file (O_APPEND). Bytes of one call are
	// contiguous, also when other programs append; fewer than len(p) only
	// with an error.
	Write(p []byte) (int, error)
	// Position is the offset behind the last byte that Write appended, also
	// when other programs have appended before or after it.
	Position() (int64, error)
	// Datasync makes bytes and length durable (fdatasync). After a failure
	// the file must be closed: a second call proves nothing.
	Datasync() error
	// Truncate cuts the file; durable only after Datasync.
	Truncate(size int64) error
	// Allocate asks for blocks for the first size bytes and leaves the length
	// as it is. Where the platform or the file system cannot, it does nothing.
	Allocate(size int64) error
	// Info is fstat of the open file.
	Info() (Info, error)
	// TryLock takes an exclusive kernel lock that dies with the descriptor;
	// ErrLocked where another holds it.
	TryLock() error
	// Name is the path it was opened by.
	Name() string
}

// Info is what a stat tells.
type Info struct {
	Stamp stamp.Stamp
	Mode  fs.FileMode
	UID   uint32
	Links uint64
}
