package engine

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"sessiond/engine/vfs"
	"sessiond/replay/stamp"
)

// content is a generation's file as it is sent to clients. Of a file that
// another program writes, only bytes that are those that were read before go
// out: its stamp proves it, or else the digests that were made then; what
// differs is stamp.ErrMismatch. What lies behind the head was never read.
type content struct {
	g *generation
	s *session
}

var _ io.ReaderAt = content{}

// ReadAt implements io.ReaderAt.
func (c content) ReadAt(p []byte, off int64) (int, error) {
	if c.s.journalOf() != nil {
		return c.g.file.ReadAt(p, off) // nobody else writes there
	}
	if under := c.g.known(); c.s.e.trust.Holds(under.Proof) {
		n, err := c.g.file.ReadAt(p, off)
		// A writer moves the stamp before the bytes.
		if info, ierr := c.g.file.Info(); ierr == nil && info.Stamp == under.Stamp {
			return n, err
		}
	}
	head := c.g.replay.Head().Offset
	n := 0
	for n < len(p) && off+int64(n) < head {
		got, err := c.s.e.blocks.read(c.g, p[n:], off+int64(n))
		n += got
		if err != nil {
			return n, err
		}
	}
	if n < len(p) {
		got, err := c.g.file.ReadAt(p[n:], off+int64(n))
		return n + got, err
	}
	return n, nil
}

// blocks are the stretches of files, between two points whose digests are
// known, that were compared last. Clients that read the same hot file share
// them, and one that grew is read on from where it ended.
type blocks struct {
	mu   sync.Mutex
	held []*block // the one used last in front; guarded by mu
}

type block struct {
	key blockKey // what it is to hold; guarded by blocks.mu

	mu     sync.Mutex
	holds  blockKey      // what buf is of; guarded by mu
	buf    []byte        // guarded by mu
	digest *stamp.Digest // at the end of buf; guarded by mu
	whole  wholeBlock    // instead of buf, of a large one; guarded by mu
}

// wholeBlock says that a block too large to be held had its digest while the
// file had a stamp. It is believed as long as that stays: reading all of it for
// every part would cost its square.
type wholeBlock struct {
	to    stamp.Point
	under stamp.Stamp
}

type blockKey struct {
	g    *generation
	from int64
}

const (
	blocksMax     = 4
	blockBytesMax = 2 << 20 // a larger one is not held
)

// take returns the block for a stretch: the one that was for it, or the one
// that nobody has used for longest.
func (b *blocks) take(key blockKey) *block {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.held, func(k *block) bool { return k.key == key })
	if i < 0 && len(b.held) < blocksMax {
		b.held = append(b.held, &block{})
	}
	if i < 0 {
		i = len(b.held) - 1
	}
	k := b.held[i]
	copy(b.held[1:i+1], b.held[:i])
	b.held[0], k.key = k, key
	return k
}

// read copies bytes from an offset before the head up to the end of their
// block at the most.
func (b *blocks) read(g *generation, p []byte, off int64) (int, error) {
	from, d, to := g.replay.Block(off)
	if off >= to.Offset {
		return 0, io.ErrUnexpectedEOF
	}
	key := blockKey{g, from.Offset}
	k := b.take(key)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.holds != key {
		k.holds, k.buf, k.digest, k.whole = key, k.buf[:0], d, wholeBlock{}
	}
	if to.Offset-from.Offset > blockBytesMax {
		p = p[:min(int64(len(p)), to.Offset-off)]
		return k.readLarge(g.file, p, off, from.Offset, d, to)
	}
	if err := k.fill(g.file, to); err != nil {
		k.holds = blockKey{}
		return 0, err
	}
	return copy(p, k.buf[off-from.Offset:to.Offset-from.Offset]), nil
}

// fill reads on to a point and compares.
func (k *block) fill(src io.ReaderAt, to stamp.Point) error {
	have := len(k.buf)
	want := int(to.Offset - k.holds.from)
	if have >= want {
		return nil
	}
	if cap(k.buf) < want {
		k.buf = append(make([]byte, 0, min(2*want, blockBytesMax)), k.buf...)
	}
	k.buf = k.buf[:want]
	if err := readFull(src, k.buf[have:], k.holds.from+int64(have)); err != nil {
		return fmt.Errorf("%w: %w", stamp.ErrMismatch, err)
	}
	_, _ = k.digest.Write(k.buf[have:]) // never fails
	return k.digest.Check(to)
}

// readLarge reads from a block that is not held.
func (k *block) readLarge(f vfs.File, p []byte, off, from int64, d *stamp.Digest, to stamp.Point) (int, error) {
	before, err := f.Info()
	if err != nil {
		return 0, err
	}
	if k.whole != (wholeBlock{to, before.Stamp}) {
		_, _, err := stamp.Advance(f, d, from, to.Offset)
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			err = fmt.Errorf("%w: %w", stamp.ErrMismatch, err)
		case err == nil:
			err = d.Check(to)
		}
		if err != nil {
			return 0, err
		}
		k.whole = wholeBlock{to, before.Stamp}
	}
	if err := readFull(f, p, off); err != nil {
		return 0, err
	}
	after, err := f.Info()
	if err == nil && after.Stamp != before.Stamp {
		k.whole = wholeBlock{}
		err = fmt.Errorf("%w: the file changes while it is read", stamp.ErrMismatch)
	}
	return len(p), err
}

// forget lets go of a generation's blocks.
func (b *blocks) forget(g *generation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = slices.DeleteFunc(b.held, func(k *block) bool { return k.key.g == g })
}
