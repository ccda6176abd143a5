package vfs

import "errors"

var (
	// ErrNotRegular: the path names a folder, a FIFO, a device, a socket or,
	// where links are refused, a symbolic link.
	ErrNotRegular = errors.New("vfs: not a regular file")
	// ErrLocked: another open file holds the lock.
	ErrLocked = errors.New("vfs: locked by another")
)
