package stamp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// Point is a record's end in a file: Sequence records in Offset bytes that
// have this Digest. The zero Point is not valid as such; see Start.
type Point struct {
	Sequence uint64
	Offset   int64
	Digest   uint64
}

// Start is the point before the first record: the digest of no bytes.
var Start = Point{Digest: xxhash.Sum64(nil)}

// Digest is the linear digest on its way through a file.
type Digest struct{ x xxhash.Digest }

// NewDigest returns the digest of no bytes.
func NewDigest() *Digest {
	d := &Digest{}
	d.x.Reset()
	return d
}

// Write adds bytes; it never fails.
func (d *Digest) Write(p []byte) (int, error) { return d.x.Write(p) }

// Sum64 returns the digest of all bytes written.
func (d *Digest) Sum64() uint64 { return d.x.Sum64() }

// Clone returns an independent copy.
func (d *Digest) Clone() *Digest {
	c := *d
	return &c
}

// State is a saved Digest.
type State []byte

// State saves the digest.
func (d *Digest) State() State {
	b, err := d.x.MarshalBinary()
	if err != nil {
		panic(fmt.Sprintf("stamp: xxhash refuses to save its state: %v", err)) // it cannot
	}
	return b
}

// Resume restores a saved digest.
func (s State) Resume() (*Digest, error) {
	d := &Digest{}
	if err := d.x.UnmarshalBinary(s); err != nil {
		return nil, fmt.Errorf("stamp: digest state: %w", err)
	}
	return d, nil
}

// Checkpoint is a point with the digest's state there.
type Checkpoint struct {
	Point
	State State
}

// CheckpointBytes is the least distance between two checkpoints.
const CheckpointBytes = 1 << 20

// Checkpoints are ordered by offset. Only the owner appends; a slice header
// that was handed out stays valid.
type Checkpoints []Checkpoint

// After returns the index of the first checkpoint behind offset.
func (c Checkpoints) After(offset int64) int {
	return sort.Search(len(c), func(i int) bool { return c[i].Offset > offset })
}

// Before returns the last checkpoint at or before offset, else the start.
func (c Checkpoints) Before(offset int64) (Point, *Digest) {
	for i := c.After(offset) - 1; i >= 0; i-- {
		if d, err := c[i].State.Resume(); err == nil {
			return c[i].Point, d
		}
	}
	return Start, NewDigest()
}

// ErrMismatch says that a file does not hold what a point claims.
var ErrMismatch = errors.New("stamp: content differs")

// Check returns nil if the digest is that of a point, else ErrMismatch.
func (d *Digest) Check(p Point) error {
	if got := d.Sum64(); got != p.Digest {
		return fmt.Errorf("%w: digest %016x before offset %d, want %016x", ErrMismatch, got, p.Offset, p.Digest)
	}
	return nil
}

// Verify reads src from the nearest checkpoint to p and reports whether p is
// true of it: it returns the digest at p, or ErrMismatch, or a read error.
// readBytes counts what was read.
func Verify(src io.ReaderAt, c Checkpoints, p Point) (d *Digest, readBytes int64, err error) {
	if p.Offset < 0 {
		return nil, 0, fmt.Errorf("%w: offset %d", ErrMismatch, p.Offset)
	}
	at, d := c.Before(p.Offset)
	if at.Sequence > p.Sequence {
		return nil, 0, fmt.Errorf("%w: %d records before offset %d, want %d", ErrMismatch, at.Sequence, at.Offset, p.Sequence)
	}
	n, last, err := Advance(src, d, at.Offset, p.Offset)
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: file ends before offset %d", ErrMismatch, p.Offset)
		}
		return nil, p.Offset - at.Offset, err
	}
	if p.Offset > at.Offset && last != '\n' {
		return nil, p.Offset - at.Offset, fmt.Errorf("%w: offset %d is inside a record", ErrMismatch, p.Offset)
	}
	if got := at.Sequence + n; got != p.Sequence {
		return nil, p.Offset - at.Offset, fmt.Errorf("%w: %d records before offset %d, want %d", ErrMismatch, got, p.Offset, p.Sequence)
	}
	if err := d.Check(p); err != nil {
		return nil, p.Offset - at.Offset, err
	}
	return d, p.Offset - at.Offset, nil
}

// advanceBytes is how much Advance reads at once.
const advanceBytes = 256 << 10

// buffers are those of Advance: files are compared often, and to make one
// costs more than to read into it.
var buffers = sync.Pool{New: func() any { return new([advanceBytes]byte) }}

// Advance feeds bytes [from, to) of src to d; it returns how many LFs they
// hold and the last byte. A source that ends early is io.ErrUnexpectedEOF.
func Advance(src io.ReaderAt, d *Digest, from, to int64) (lfs uint64, last byte, err error) {
	if from == to {
		return 0, 0, nil
	}
	buf := buffers.Get().(*[advanceBytes]byte)
	defer buffers.Put(buf)
	for from < to {
		p := buf[:min(int64(len(buf)), to-from)]
		n, err := src.ReadAt(p, from)
		if n < len(p) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return lfs, last, err
		}
		d.Write(p)
		lfs += countLF(p)
		last = p[n-1]
		from += int64(n)
	}
	return lfs, last, nil
}

// AppendBinary appends a checkpoint's fixed form: sequence, offset, digest
// (big-endian 64-bit each), state length (16-bit), state.
func (c Checkpoint) AppendBinary(b []byte) ([]byte, error) {
	b = binary.BigEndian.AppendUint64(b, c.Sequence)
	b = binary.BigEndian.AppendUint64(b, uint64(c.Offset))
	b = binary.BigEndian.AppendUint64(b, c.Digest)
	b = binary.BigEndian.AppendUint16(b, uint16(len(c.State)))
	return append(b, c.State...), nil
}

// ParseCheckpoints reads what AppendBinary wrote, any number in a row.
func ParseCheckpoints(b []byte) (Checkpoints, error) {
	var out Checkpoints
	for len(b) > 0 {
		if len(b) < 26 || len(b) < 26+int(binary.BigEndian.Uint16(b[24:])) {
			return nil, fmt.Errorf("stamp: checkpoint cut after %d bytes", len(b))
		}
		n := int(binary.BigEndian.Uint16(b[24:]))
		c := Checkpoint{Point: Point{
			Sequence: binary.BigEndian.Uint64(b),
			Offset:   int64(binary.BigEndian.Uint64(b[8:])),
			Digest:   binary.BigEndian.Uint64(b[16:]),
		}, State: append(State(nil), b[26:26+n]...)}
		if d, err := c.State.Resume(); err != nil || d.Sum64() != c.Digest {
			return nil, fmt.Errorf("stamp: checkpoint at %d: state does not have its digest", c.Offset)
		}
		before := Start
		if k := len(out); k > 0 {
			before = out[k-1].Point
		}
		if c.Offset <= before.Offset || c.Sequence <= before.Sequence {
			return nil, fmt.Errorf("stamp: checkpoint at %d (record %d) not behind that at %d (record %d)",
				c.Offset, c.Sequence, before.Offset, before.Sequence)
		}
		out = append(out, c)
		b = b[26+n:]
	}
	return out, nil
}

func countLF(p []byte) uint64 { return uint64(bytes.Count(p, []byte{'\n'})) }
