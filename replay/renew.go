package replay

import (
	"context"
	"errors"
	"fmt"
	"io"

	"sessiond/replay/stamp"
)

// Source is a session file as a replay is loaded from it.
type Source struct {
	io.ReaderAt
	Size   int64       // how far it may be read
	Stamp  stamp.Stamp // taken before anything of it is read
	Writes uint64      // write generation: durable appends and rotations of this process
}

// Known says under what a replay's content was read.
type Known struct {
	Stamp  stamp.Stamp
	Writes uint64
	Proof  stamp.Proof // that an equal stamp proves equal content
}

// Renew makes a replay that was read under was one of src, at the least cost:
//
//   - stamp and write generation equal, and the stamp proves the content:
//     nothing is read;
//   - the file only became longer: its beginning and the last stretch before
//     the head are compared and the new bytes parsed, which proves nothing of
//     what lies between;
//   - anything else: all that was read before is compared, and what is new
//     parsed.
//
// stamp.ErrMismatch says that the file has another history; the replay is as
// it was then, and of no use for this file. After any other error it stands at
// a complete record.
func (r *Replay) Renew(ctx context.Context, src Source, was Known, trust *stamp.Trust) (Known, error) {
	// What waits for NUL bytes to be filled is read again though the file is as it was.
	if was.Stamp == src.Stamp && was.Writes == src.Writes && trust.Holds(was.Proof) && !r.Tail().Hole {
		return was, nil
	}
	now := Known{Stamp: src.Stamp, Writes: src.Writes, Proof: trust.Prove(src.Stamp)}
	grown := src.Stamp.SameFile(was.Stamp) && src.Stamp.Size > was.Stamp.Size
	if err := r.Compare(ctx, src, !grown); err != nil {
		return was, err
	}
	if grown {
		now.Proof = 0
	}
	if err := r.Extend(ctx, src, src.Size); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) { // it was cut meanwhile
			err = fmt.Errorf("%w: %w", stamp.ErrMismatch, err)
		}
		return was, err
	}
	return now, nil
}

// comparePiece is how much Compare reads between two looks at its context.
const comparePiece = 8 << 20

// Compare reads what a file has in place of what was read before, all of it
// or its beginning and the last stretch before the head, and parses nothing.
// stamp.ErrMismatch says that it differs or ends before the head.
func (r *Replay) Compare(ctx context.Context, src io.ReaderAt, all bool) error {
	r.mu.RLock()
	head, front, near := r.head, r.front, r.near
	r.mu.RUnlock()
	r.opt.Counters.DigestReads.Add(1)
	if all || len(near) == 0 || head.Offset-near[0].Offset < nearBytes || front.Offset >= near[0].Offset {
		return r.compare(ctx, src, stamp.Start, stamp.NewDigest(), head)
	}
	if err := r.compare(ctx, src, stamp.Start, stamp.NewDigest(), front); err != nil {
		return err
	}
	return r.compare(ctx, src, near[0].Point, near[0].digest.Clone(), head)
}

// compare reads from a point, with the digest there, to another.
func (r *Replay) compare(ctx context.Context, src io.ReaderAt, from stamp.Point, d *stamp.Digest, to stamp.Point) error {
	for at := from.Offset; at < to.Offset; {
		if err := ctx.Err(); err != nil {
			return err
		}
		next := min(to.Offset, at+comparePiece)
		_, _, err := stamp.Advance(src, d, at, next)
		r.opt.Counters.CheckBytes.Add(uint64(next - at))
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: the file ends before offset %d", stamp.ErrMismatch, to.Offset)
		}
		if err != nil {
			return fmt.Errorf("replay: comparing at offset %d: %w", at, err)
		}
		at = next
	}
	return d.Check(to)
}

// Block returns the points between which an offset before the head lies and
// whose digests are known, with the digest at the first.
func (r *Replay) Block(offset int64) (from stamp.Point, d *stamp.Digest, to stamp.Point) {
	m := r.marks.Load()
	from, d = m.checkpoints.Before(offset)
	to = m.head
	if i := m.checkpoints.After(offset); i < len(m.checkpoints) {
		to = m.checkpoints[i].Point
	}
	return from, d, to
}
