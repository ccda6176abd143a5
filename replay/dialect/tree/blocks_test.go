package tree

import "testing"

func TestBlocks_HoldsWhatWasAdded(t *testing.T) {
	var b Blocks[int32]
	const n = 3*blockSize + 5
	for i := range int32(n) {
		got, at := b.Add()
		if got != i || *at != 0 {
			t.Fatalf("Add: got index %d, element %d; want %d, 0", got, *at, i)
		}
		*at = i * 3
		if b.Len() != i+1 {
			t.Fatalf("Len: got %d, want %d", b.Len(), i+1)
		}
		if room := b.Room(); room < int64(i) || room > max(2*int64(i), blockStart)+blockSize {
			t.Fatalf("Room with %d: got %d", i+1, room)
		}
	}
	for i := range int32(n) {
		if got := *b.At(i); got != i*3 {
			t.Fatalf("At(%d): got %d, want %d", i, got, i*3)
		}
	}
}
