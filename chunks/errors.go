package chunks

import (
	"errors"
	"fmt"
)

var (
	// ErrNotYet: the snapshot is open and does not have the chunk yet.
	ErrNotYet = errors.New("chunks: chunk is not packed yet")
	// ErrNoChunk: the snapshot is complete and has no such chunk.
	ErrNoChunk = errors.New("chunks: no such chunk")
	// ErrNotOpen: the snapshot takes no more chunks.
	ErrNotOpen = errors.New("chunks: snapshot is not open")
	// ErrDisposed: the snapshot is gone.
	ErrDisposed = errors.New("chunks: snapshot is disposed of")
	// ErrDiffers: the source packs other bytes than it did.
	ErrDiffers = errors.New("chunks: packed again, the chunk is another")
	// ErrBlob: not what Save made.
	ErrBlob = errors.New("chunks: not a saved log")
	// ErrNotKept: there is no spill to keep it in, or it is too large.
	ErrNotKept = errors.New("chunks: not kept")
)

// DamageError is a chunk in a segment file that is not what was written.
type DamageError struct {
	Segment   string
	Offset    int64
	Got, Want uint64 // xxh64
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("chunks: %s at offset %d: xxh64 %016x, want %016x", e.Segment, e.Offset, e.Got, e.Want)
}
