package chunks

import (
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// extraBytesMax bounds what is kept with an end.
const extraBytesMax = 4 << 20

// Cut is where in a file a view was cut: a cursor as plain numbers.
type Cut struct {
	Sequence uint64
	Offset   int64
	Digest   uint64
}

// logEnd is a complete snapshot at one cut: full chunks, a last one of its
// own, and what the caller keeps with it.
type logEnd struct {
	cut   Cut
	full  int
	last  *entry // nil: none
	extra extraPlace
}

// extraPlace is where the extra bytes are.
type extraPlace struct {
	place
	size int
	sum  uint64
}

// SetEnd keeps what a complete snapshot of this log at a cut has beside the
// full chunks, so that EndAt gives the snapshot again: also from a saved log
// that was adopted, and without packing. Extra is the caller's own. An end
// takes the place of the one before. ErrNotKept: there is no spill, the
// snapshot is not the log's any more, or extra is over 4 MiB.
func (l *Log) SetEnd(cut Cut, s *Snapshot, extra []byte) error {
	if len(extra) > extraBytesMax {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrNotKept, len(extra), extraBytesMax)
	}
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	s.mu.Lock()
	seen, st, body := s.seen, s.state, s.last
	s.mu.Unlock()
	if st != complete {
		return ErrNotYet
	}
	end := &logEnd{cut: cut, full: len(seen)}
	var v sealed
	if n := len(seen); n > 0 && !l.has(n-1, seen[n-1]) {
		end.full, v = n-1, seen[n-1]
	}
	for i := range end.full {
		if !l.has(i, seen[i]) {
			return fmt.Errorf("%w: the log was cut back", ErrNotKept)
		}
	}
	return l.keepEnd(end, v, body, extra)
}

// keepEnd writes last chunk and extra bytes to spill.
func (l *Log) keepEnd(end *logEnd, v sealed, body, extra []byte) error {
	if !l.store.maySpill(l, int64(len(body)+len(extra))) {
		return fmt.Errorf("%w: no spill", ErrNotKept)
	}
	l.spilling.Lock()
	defer l.spilling.Unlock()
	if v.size > 0 {
		end.last = &entry{sealed: v}
		if body != nil { // else it is packed again when it is asked for
			at, err := l.append(body)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrNotKept, err)
			}
			end.last.place = at
		}
	}
	if len(extra) > 0 {
		at, err := l.append(extra)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNotKept, err)
		}
		end.extra = extraPlace{at, len(extra), xxhash.Sum64(extra)}
	}
	l.mu.Lock()
	stands := !l.closed && len(l.sealed) >= end.full &&
		(end.last == nil || end.last.seg == nil || !end.last.seg.gone) && (end.extra.seg == nil || !end.extra.seg.gone)
	if stands {
		l.dropEndLocked()
		l.end = end
		l.revision++
	}
	drop := l.tooMuchGarbageLocked()
	l.mu.Unlock()
	l.discard(drop)
	if !stands {
		return fmt.Errorf("%w: the log was cut back or its files removed", ErrNotKept)
	}
	return nil
}

// has reports whether a chunk is a full one of the log.
func (l *Log) has(i int, v sealed) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return i < len(l.sealed) && l.sealed[i].sealed == v
}

func (l *Log) dropEndLocked() {
	if l.end == nil {
		return
	}
	if l.end.last != nil {
		l.dropPlaceLocked(l.end.last)
	}
	if l.end.extra.seg != nil {
		l.garbage += int64(l.end.extra.size)
	}
	l.end = nil
	l.revision++
}

// EndAt gives the complete snapshot that SetEnd kept at a cut, as Begin does,
// and the extra bytes. The source packs again what was lost, and is not used
// else.
func (l *Log) EndAt(cut Cut, o SnapshotOptions) (s *Snapshot, release func(), extra []byte, ok bool) {
	l.mu.Lock()
	end := l.end
	if end == nil || end.cut != cut || l.closed {
		l.mu.Unlock()
		return nil, nil, nil, false
	}
	seen := make([]sealed, 0, end.full+1)
	for _, e := range l.sealed[:end.full] {
		seen = append(seen, e.sealed)
	}
	if end.last != nil {
		seen = append(seen, end.last.sealed)
	}
	at := end.extra
	l.mu.Unlock()
	if at.size > 0 {
		extra = make([]byte, at.size)
		if err := l.readAt(at.place, extra, at.sum); err != nil {
			l.mu.Lock()
			if l.end == end {
				l.dropEndLocked()
			}
			gone := at.seg.gone
			l.mu.Unlock()
			if !gone {
				l.store.damagedAt(at.seg.name(), at.off, err)
			}
			return nil, nil, nil, false
		}
	}
	s, release, _ = l.begin(o, func(s *Snapshot) { s.seen, s.state = seen, complete })
	return s, release, extra, true
}
