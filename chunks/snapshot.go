package chunks

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/cespare/xxhash/v2"

	"sessiond/wire"
)

// builders are used again, so that a snapshot that waits for its client holds
// no buffer.
var builders = sync.Pool{New: func() any { return &Builder{} }}

// Snapshot is one cut of a Log. What it learned of its chunks stays true for
// it when the Log is cut back.
type Snapshot struct {
	log      *Log
	src      Source
	epoch    uint64   // of the log when the snapshot began
	seen     []sealed // chunks from the first on
	complete bool     // seen holds all
}

// Snapshot begins a snapshot at the source's cut.
func (l *Log) Snapshot(src Source) *Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &Snapshot{log: l, src: src, epoch: l.epoch}
}

// Chunk returns the chunk with the index; ok is false behind the last. Chunks
// before it are packed on the way if nobody has packed them yet.
func (s *Snapshot) Chunk(ctx context.Context, index int) (c Chunk, ok bool, err error) {
	s.learn()
	for i := min(index, len(s.seen)); ; i++ {
		if s.complete && i >= len(s.seen) {
			return Chunk{}, false, nil
		}
		if i == index && s.isFull(i) {
			if c, held := s.log.body(s.epoch, i); held {
				return c, true, nil
			}
		}
		if c, err = s.pack(ctx, i); err != nil {
			return Chunk{}, false, err
		}
		if i == index && c.Count > 0 {
			return c, true, nil
		}
	}
}

// isFull reports whether a chunk is known and is not the snapshot's own last
// one: the log may have a fuller one in its place.
func (s *Snapshot) isFull(i int) bool {
	n := len(s.seen)
	if s.complete {
		n--
	}
	return i < n
}

// learn takes over full chunks before the cut that others have packed. A
// chunk that ends at the cut may be one that nothing follows, so it is the
// last.
func (s *Snapshot) learn() {
	if s.complete {
		return
	}
	for _, v := range s.log.after(s.epoch, len(s.seen)) {
		if !s.src.Before(v.end) {
			return
		}
		s.seen = append(s.seen, v)
	}
}

// pack packs chunk i, of which at least the start is known.
func (s *Snapshot) pack(ctx context.Context, i int) (Chunk, error) {
	if err := ctx.Err(); err != nil {
		return Chunk{}, err
	}
	var at Place
	if i > 0 {
		at = s.seen[i-1].end
	}
	b := builders.Get().(*Builder)
	defer builders.Put(b)
	b.reset(s.log.o.Target)
	next, end, err := s.src.Pack(ctx, b, at)
	if err != nil {
		return Chunk{}, err
	}
	s.complete = s.complete || end
	if b.count == 0 {
		return Chunk{}, nil
	}
	c := b.chunk()
	v := sealed{next, uint64(c.Digest), c.Count}
	if i == len(s.seen) {
		s.seen = append(s.seen, v)
	}
	s.log.share(s.epoch, i, v, c, !end)
	return c, nil
}

// Totals are what the end of a snapshot tells of all its chunks.
type Totals struct {
	Chunks, Messages int
	Digest           wire.Digest // xxh64 of the chunks' digests, 8 bytes big-endian each
}

// Totals packs what is left and returns the totals.
func (s *Snapshot) Totals(ctx context.Context) (Totals, error) {
	for s.learn(); !s.complete; {
		if _, err := s.pack(ctx, len(s.seen)); err != nil {
			return Totals{}, err
		}
	}
	t := Totals{Chunks: len(s.seen)}
	sum := xxhash.New()
	for _, v := range s.seen {
		t.Messages += v.count
		_, _ = sum.Write(binary.BigEndian.AppendUint64(nil, v.digest)) // never fails
	}
	t.Digest = wire.Digest(sum.Sum64())
	return t, nil
}
