package kv

import "errors"

var (
	// ErrLocked says that another process holds the index.
	ErrLocked = errors.New("kv: index is locked")
	// ErrClosed is returned by Put after Close.
	ErrClosed = errors.New("kv: index is closed")
	// ErrUnavailable is returned by Put while there is no index to write to.
	ErrUnavailable = errors.New("kv: index is not available")
	// ErrDamaged is the cause of an index that was set aside as damaged.
	ErrDamaged = errors.New("kv: index is damaged")
	// ErrNewerSchema is the cause of an index that was set aside because a
	// newer version of the program wrote it.
	ErrNewerSchema = errors.New("kv: index has a newer schema")
	// ErrChanged ends an Offline whose file another process wrote meanwhile.
	ErrChanged = errors.New("kv: index changed while it was read")
	// ErrOutgrown is the cause of an index that was removed at BytesMax.
	ErrOutgrown = errors.New("kv: index has outgrown its bound")
)
