package tree

const (
	blockBits = 12
	blockSize = 1 << blockBits

	// blockStart is the size of the first block at first: most sessions are
	// small, and a daemon holds many.
	blockStart = 32
)

// Blocks is a list that grows by blocks, so that a long one is never copied
// and leaves no room unused. The zero value is empty.
type Blocks[T any] struct {
	blocks [][]T
	n      int32
}

// Len is the number of elements.
func (b *Blocks[T]) Len() int32 { return b.n }

// At returns an element; the pointer is good until the next Add.
func (b *Blocks[T]) At(i int32) *T { return &b.blocks[i>>blockBits][i&(blockSize-1)] }

// Add appends a zero element, to be filled in place, and returns its index.
func (b *Blocks[T]) Add() (int32, *T) {
	i := b.n
	at, off := int(i>>blockBits), int(i&(blockSize-1))
	switch {
	case at == len(b.blocks) && at == 0:
		b.blocks = append(b.blocks, make([]T, blockStart))
	case at == len(b.blocks):
		b.blocks = append(b.blocks, make([]T, blockSize))
	case off == len(b.blocks[at]): // only the first block grows
		grown := make([]T, 2*off)
		copy(grown, b.blocks[at])
		b.blocks[at] = grown
	}
	b.n++
	return i, &b.blocks[at][off]
}

// Room is the number of elements that memory is held for.
func (b *Blocks[T]) Room() int64 {
	if len(b.blocks) == 0 {
		return 0
	}
	return int64(len(b.blocks)-1)*blockSize + int64(len(b.blocks[0]))
}
