package chunks

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/goleak"

	"sessiond/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// view is a view at a cut: messages as they are written.
type view []string

func metaOf(slot int) string { return fmt.Sprintf(`{"sequences":[%d]}`, slot+1) }

// Pack implements Source.
func (v view) Pack(ctx context.Context, b *Builder, from Place) (Place, bool, error) {
	for i := from.Slot; i < len(v); i++ {
		if err := ctx.Err(); err != nil {
			return from, false, err
		}
		if !b.End(append(b.Begin(), v[i]...), []byte(metaOf(i))) {
			return Place{Slot: i}, false, nil
		}
	}
	return Place{Slot: len(v)}, true, nil
}

// Before implements Source.
func (v view) Before(p Place) bool { return p.Slot < len(v) }

// pack packs the view by the rule alone.
func (v view) pack(target int) []Chunk {
	var out []Chunk
	for from := 0; from < len(v); {
		var meta, messages []string
		size := 0
		to := from
		for ; to < len(v); to++ {
			more := len(v[to]) + len(metaOf(to))
			if to > from {
				more += len(",") + len(",")
			}
			if to > from && size+more > target {
				break
			}
			size += more
			meta, messages = append(meta, metaOf(to)), append(messages, v[to])
		}
		array := "[" + strings.Join(messages, ",") + "]"
		out = append(out, Chunk{
			Body:   []byte(`"meta":[` + strings.Join(meta, ",") + `],"messages":` + array),
			Digest: wire.Digest(xxhash.Sum64String(array)), Count: to - from,
		})
		from = to
	}
	return out
}

func totalsOf(list []Chunk) Totals {
	t := Totals{Chunks: len(list)}
	var digests []byte
	for _, c := range list {
		t.Messages += c.Count
		digests = binary.BigEndian.AppendUint64(digests, uint64(c.Digest))
	}
	t.Digest = wire.Digest(xxhash.Sum64(digests))
	return t
}

// tb is what helpers need of a *testing.T or a *rapid.T.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkChunk demands that a snapshot's chunk is that of packing alone.
func checkChunk(t tb, s *Snapshot, want []Chunk, index int) {
	t.Helper()
	c, ok, err := s.Chunk(context.Background(), index)
	if err != nil {
		t.Fatalf("chunk %d: %v", index, err)
	}
	if ok != (index < len(want)) {
		t.Fatalf("chunk %d: got %v, want %v; there are %d", index, ok, !ok, len(want))
	}
	if !ok {
		return
	}
	w := want[index]
	if !bytes.Equal(c.Body, w.Body) || c.Digest != w.Digest || c.Count != w.Count {
		t.Fatalf("chunk %d: got %d messages, digest %s\n%s\nwant %d, %s\n%s", index, c.Count, c.Digest, c.Body, w.Count, w.Digest, w.Body)
	}
}

func checkTotals(t tb, s *Snapshot, want []Chunk) {
	t.Helper()
	got, err := s.Totals(context.Background())
	if err != nil {
		t.Fatalf("totals: %v", err)
	}
	if got != totalsOf(want) {
		t.Fatalf("totals: got %+v, want %+v", got, totalsOf(want))
	}
}

func checkWhole(t tb, s *Snapshot, want []Chunk) {
	t.Helper()
	for i := range len(want) + 1 {
		checkChunk(t, s, want, i)
	}
	checkTotals(t, s, want)
}

func messages(n, size int) view {
	v := make(view, n)
	for i := range v {
		v[i] = fmt.Sprintf("%q", fmt.Sprintf("%0*d", size-2, i))
	}
	return v
}
