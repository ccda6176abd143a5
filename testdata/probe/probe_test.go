package probe

import (
	"bytes"
	"testing"

	"github.com/cespare/xxhash/v2"
)

func TestL_ReadsEveryByte(t *testing.T) {
	// Lines across the ends of the reads, and a last one without an end.
	data := bytes.Repeat([]byte("seventeen bytes.\n"), 200_000)
	data = append(data, "tail"...)
	got, err := L(bytes.NewReader(data), int64(len(data)))
	if want := xxhash.Sum64(data); err != nil || got != want {
		t.Errorf("got %016x, %v, want %016x", got, err, want)
	}
}
