package chunks

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// spill moves what is in memory and one body more to segments. It reports
// whether that one is held then.
func (l *Log) spill(i int, v sealed, body []byte) bool {
	l.spilling.Lock()
	defer l.spilling.Unlock()
	for {
		l.mu.Lock()
		l.spilled = true
		if l.closed {
			l.mu.Unlock()
			return false
		}
		if len(l.order) == 0 {
			l.mu.Unlock()
			break
		}
		j := l.order[0]
		e := l.sealed[j]
		l.mu.Unlock()
		if !l.write(j, e.sealed, e.body) {
			return false
		}
	}
	l.mu.Lock()
	lacks := l.lacksLocked(i, v)
	l.mu.Unlock()
	return !lacks || l.write(i, v, body)
}

// write writes the body of chunk i to spill, and forgets it in memory. Called
// with spilling.
func (l *Log) write(i int, v sealed, body []byte) bool {
	at, err := l.append(body)
	if err != nil {
		return false
	}
	l.store.spilled.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case at.seg.gone:
		return l.closed || i >= len(l.sealed) || l.sealed[i].sealed != v
	case i >= len(l.sealed) || l.sealed[i].sealed != v || l.sealed[i].seg != nil:
		l.garbage += int64(len(body)) // cut meanwhile
		return true
	}
	l.sealed[i].place = at
	l.revision++
	if l.sealed[i].body == nil {
		return true
	}
	for k, j := range l.order {
		if j == i {
			l.order = append(l.order[:k], l.order[k+1:]...)
			break
		}
	}
	l.dropBodyLocked(i)
	return true
}

// append appends bytes to the segment that is written, or to a new one. A
// failure turns spilling off for a while. Called with spilling.
func (l *Log) append(b []byte) (place, error) {
	at, err := l.tryAppend(b)
	switch {
	case err == nil:
		l.store.spillWorked()
	case !errors.Is(err, errNoBudget):
		l.store.spillFailed(err)
	}
	return at, err
}

func (l *Log) tryAppend(b []byte) (place, error) {
	n := int64(len(b))
	l.mu.Lock()
	seg, closed := l.writing, l.closed
	full := seg != nil && (seg.broken.Load() || seg.size+n > l.store.lim.segmentBytes)
	l.mu.Unlock()
	if closed {
		return place{}, errNoBudget
	}
	if full {
		l.endWriting(seg)
		seg = nil
	}
	if seg == nil {
		var err error
		if seg, err = l.newSegment(n); err != nil {
			return place{}, err
		}
	}
	if l.spare.Load() < n {
		if err := l.grow(seg, n); err != nil {
			return place{}, err
		}
	}
	f, err := seg.open()
	if err == nil {
		_, err = f.Write(b)
	}
	l.mu.Lock()
	at := place{seg, seg.size}
	gone := seg.gone
	if err == nil && !gone {
		seg.size += n
		l.written += n
		l.spare.Store(seg.reserved - seg.size)
	}
	l.mu.Unlock()
	switch {
	case gone: // the store took the file away: that is no failure of the disk
		return place{}, errNoBudget
	case err != nil:
		l.endWriting(seg)
		return place{}, err
	}
	l.store.wrote(seg, n)
	return at, nil
}

// stepBytesMin is what a log asks for at first.
const stepBytesMin = 1 << 20

// step is how much a log asks for at once: as much again as it has, so that
// small logs do not take the budget of others.
func (l *Log) step() int64 {
	return min(l.store.lim.stepBytes, max(stepBytesMin, l.reserved.Load()), l.store.o.SpillBytes/16)
}

// grow asks for room for n bytes more in a segment, in steps. Called with
// spilling.
func (l *Log) grow(seg *segment, n int64) error {
	l.mu.Lock()
	size, reserved := seg.size, seg.reserved
	l.mu.Unlock()
	least := n - (reserved - size)
	most := max(least, min(l.step(), l.store.lim.segmentBytes-reserved))
	got, err := l.store.reserve(l, least, most)
	if err != nil {
		return err
	}
	l.mu.Lock()
	gone := seg.gone
	if !gone {
		seg.reserved += got
		l.reserved.Add(got)
		l.spare.Store(seg.reserved - seg.size)
		reserved = seg.reserved
	}
	l.mu.Unlock()
	if gone {
		l.store.giveBack(got)
		return errNoBudget
	}
	f, err := seg.open()
	if err == nil {
		err = f.Allocate(reserved)
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		l.endWriting(seg)
		return err
	}
	return nil
}

// newSegment begins a segment that has room for n bytes. Called with spilling.
func (l *Log) newSegment(n int64) (*segment, error) {
	l.mu.Lock()
	number := l.next
	l.next++
	l.mu.Unlock()
	got, err := l.store.reserve(l, headerBytes+n, max(headerBytes+n, l.step()))
	if err != nil {
		return nil, err
	}
	fsys := l.store.o.FS
	seg := &segment{
		fs: fsys, path: filepath.Join(l.store.o.Dir, segmentName(l.id, number)), log: l.id, n: number,
		size: headerBytes, reserved: got,
	}
	if err := seg.create(); err != nil {
		l.store.giveBack(got)
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments[number], l.writing = seg, seg
	l.segmentCount.Add(1)
	l.reserved.Add(got)
	l.spare.Store(got - headerBytes)
	return seg, nil
}

// create makes the file, with its header and its first blocks.
func (g *segment) create() error {
	f, err := g.fs.Create(g.path, 0o600)
	if errors.Is(err, fs.ErrNotExist) { // somebody removed the folder, or it could not be made at start
		if err = g.fs.MkdirAll(filepath.Dir(g.path), 0o700); err == nil {
			f, err = g.fs.Create(g.path, 0o600)
		}
	}
	if err != nil {
		return err
	}
	if err := f.Allocate(g.reserved); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return errors.Join(err, f.Close(), g.fs.Remove(g.path))
	}
	if _, err := f.Write(segmentHeader(g.log, g.n)); err != nil {
		return errors.Join(err, f.Close(), g.fs.Remove(g.path))
	}
	g.file = f
	return nil
}

// endWriting lets no more be written to a segment: it is full, or what is
// behind its size is not known. Called with spilling.
func (l *Log) endWriting(seg *segment) {
	trim(seg)
	l.mu.Lock()
	if l.writing == seg {
		l.writing = nil
		l.spare.Store(0)
	}
	var rest int64
	if !seg.gone {
		rest = seg.reserved - seg.size
		seg.reserved -= rest
		l.reserved.Add(-rest)
	}
	l.mu.Unlock()
	l.store.giveBack(rest)
}

// trim gives back the blocks behind a segment's last body. What fails here
// costs blocks only.
func trim(seg *segment) {
	seg.mu.Lock()
	f := seg.file
	seg.mu.Unlock()
	if f != nil {
		_ = f.Truncate(seg.size)
	}
}
