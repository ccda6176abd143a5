package journal

import (
	"errors"
	"fmt"
	"io/fs"

	"sessiond/replay/stamp"
)

// catchUp makes the file ready for a group: nothing suspect is behind the
// head, and whole lines of another program are before it. It sets j.end;
// ragged says that an unfinished line of another program is left between the
// head and the end.
func (j *Journal) catchUp() (ragged bool, err error) {
	if j.lost != nil {
		return false, j.lost
	}
	if j.suspect != nil {
		if _, err := j.cut(); err != nil {
			return false, err
		}
	}
	info, err := j.file.Info()
	if err != nil {
		return false, err
	}
	head, size := j.Head(), info.Stamp.Size
	if size < head.Offset {
		return false, j.lose(fmt.Errorf("%w: %d bytes, head at %d", ErrRewritten, size, head.Offset))
	}
	if size != j.end {
		j.interleavings.Add(1)
	}
	j.end = size
	whole, err := lastRecordEnd(j.file, head.Offset, size)
	if err != nil {
		return false, err
	}
	if whole > head.Offset {
		if err := j.ingest(whole); err != nil {
			return false, err
		}
	}
	return whole < size, nil
}

// ingest makes another program's records up to an offset durable and
// publishes them.
func (j *Journal) ingest(offset int64) error {
	at, digest, err := j.pointAt(offset)
	if err != nil {
		return err
	}
	if err := j.sync(); err != nil {
		return j.latch(err, suspect{from: j.end, to: j.end, unproven: true})
	}
	return j.publish(at, digest, nil)
}

// pointAt returns the point and the digest at an offset at or behind the
// head, reading what lies between.
func (j *Journal) pointAt(offset int64) (stamp.Point, *stamp.Digest, error) {
	head := j.Head()
	digest := head.Digest()
	lfs, _, err := stamp.Advance(j.file, digest, head.Offset, offset)
	if err != nil {
		return stamp.Point{}, nil, fmt.Errorf("journal: reading %s from %d to %d: %w", j.path, head.Offset, offset, err)
	}
	return stamp.Point{Sequence: head.Sequence + lfs, Offset: offset, Digest: digest.Sum64()}, digest, nil
}

// write writes a group, makes it durable and publishes its end. It returns
// the request whose first line another program's unfinished line took with it,
// if one did; or an *AppendError.
func (j *Journal) write(g *group) (spoilt *request, err error) {
	j.keep(g.buf)
	if g.lines == 0 {
		if _, err := j.checkPath(j.Head().Offset); err != nil {
			return nil, &AppendError{OutcomeNone, err}
		}
		return nil, nil
	}
	n, err := j.file.Write(g.buf)
	ours := suspect{from: j.end, to: j.end + int64(n)}
	if err != nil {
		return nil, j.fail(err, ours)
	}
	end, err := j.file.Position()
	if err != nil {
		return nil, j.fail(err, ours)
	}
	ours = suspect{from: end - int64(n), to: end}
	batch := g.buf
	if ours.from != j.Head().Offset {
		batch = nil
	}
	if ours.from != j.end {
		if spoilt, err = j.interleaved(g, ours.from); err != nil {
			return nil, j.fail(err, ours)
		}
	}
	if err := j.sync(); err != nil {
		ours.unproven = true
		return nil, j.fail(err, ours)
	}
	if err := j.publish(g.at, g.digest, batch); err != nil {
		return nil, j.fail(err, ours)
	}
	return spoilt, nil
}

// interleaved deals with a group that did not land at the end as last seen.
func (j *Journal) interleaved(g *group, offset int64) (spoilt *request, err error) {
	if offset < j.end {
		return nil, j.lose(fmt.Errorf("%w: wrote at %d, want %d", ErrRewritten, offset, j.end))
	}
	j.interleavings.Add(1)
	return g.move(j, offset)
}

// keep keeps a group's buffer for the next one.
func (j *Journal) keep(buf []byte) {
	j.buf = nil
	if cap(buf) <= bufferKeepBytes {
		j.buf = buf
	}
}

// sync makes the file durable. After a failure the descriptor is gone: a
// second sync of it would succeed and prove nothing.
func (j *Journal) sync() error {
	err := j.o.Syncs.do(j.id.Device, j.file.Datasync)
	if err != nil {
		err = errors.Join(err, j.file.Close())
		j.file = nil
	}
	return err
}

// publish makes a durable point the head, if the path still names the file.
func (j *Journal) publish(at stamp.Point, digest *stamp.Digest, batch []byte) error {
	seen, err := j.checkPath(at.Offset)
	if err != nil {
		return err
	}
	head := &Head{Point: at, Stamp: seen, digest: digest}
	j.end = max(j.end, at.Offset)
	j.head.Store(head)
	j.o.OnCommit(head, batch)
	return nil
}

// checkPath returns the stamp of what the path names, which must be the open
// file with at least so many bytes.
func (j *Journal) checkPath(bytesMin int64) (stamp.Stamp, error) {
	info, err := j.o.FS.Stat(j.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return stamp.Missing, j.lose(fmt.Errorf("%w: %w", ErrGone, err))
	case err != nil:
		return stamp.Missing, err
	case !info.Stamp.SameFile(j.id):
		return stamp.Missing, j.lose(fmt.Errorf("%w: %s is %v now, was %v", ErrGone, j.path, info.Stamp, j.id))
	case info.Stamp.Size < bytesMin:
		return stamp.Missing, j.lose(fmt.Errorf("%w: %d bytes, want %d", ErrRewritten, info.Stamp.Size, bytesMin))
	}
	return info.Stamp, nil
}
