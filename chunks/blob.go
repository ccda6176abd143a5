package chunks

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/cespare/xxhash/v2"

	"sessiond/engine/vfs"
)

// A saved log, numbers as uvarints where nothing else is said:
//
//	magic    "sdlog", 1 byte version
//	id       8 bytes
//	target
//	segments count, then each: number, size
//	chunks   count, then each: slot, offset, sequence of the end; digest, sum
//	         (8 bytes each), messages, size, segment (0: none, else index + 1),
//	         offset in it
//	end      0, or 1: sequence, offset, digest (8 bytes) of the cut; full
//	         chunks; 0, or 1 and the last chunk; size, sum (8 bytes), segment,
//	         offset of the extra bytes
//	check    8 bytes: xxh64 of all before
const (
	blobMagic   = "sdlog"
	blobVersion = 1
	// What each item takes at least: what is counted cannot be more than the
	// bytes that are there.
	segmentBytesMin = 2
	chunkBytesMin   = 3 + 16 + 4
	// No body is larger: a message over the inline limit is a ref.
	bodyBytesMax = 64 << 20
)

// blob is a saved log.
type blob struct {
	id       uint64
	target   int
	segments []blobSegment
	chunks   []blobChunk
	end      *blobEnd
}

type blobSegment struct {
	n    uint64
	size int64
}

// blobPlace names a segment by its index + 1, or none by 0.
type blobPlace struct {
	segment int
	off     int64
}

type blobChunk struct {
	sealed
	blobPlace
}

type blobEnd struct {
	cut   Cut
	full  int
	last  *blobChunk
	size  int // of the extra bytes
	sum   uint64
	extra blobPlace
}

// Save returns what Adopt needs to go on with the log: which chunks there are
// and where in its files their bodies.
func (l *Log) Save() []byte {
	l.mu.Lock()
	b := l.blobLocked()
	l.mu.Unlock()
	return b.encode()
}

func (l *Log) blobLocked() blob {
	b := blob{id: l.id, target: l.o.Target}
	index := map[*segment]int{}
	for _, seg := range l.segments {
		b.segments = append(b.segments, blobSegment{seg.n, seg.size})
	}
	slices.SortFunc(b.segments, func(x, y blobSegment) int { return cmp.Compare(x.n, y.n) })
	for i, x := range b.segments {
		index[l.segments[x.n]] = i + 1
	}
	at := func(p place) blobPlace {
		if p.seg == nil {
			return blobPlace{}
		}
		return blobPlace{index[p.seg], p.off}
	}
	b.chunks = make([]blobChunk, 0, len(l.sealed))
	for _, e := range l.sealed {
		b.chunks = append(b.chunks, blobChunk{e.sealed, at(e.place)})
	}
	if l.end == nil {
		return b
	}
	b.end = &blobEnd{cut: l.end.cut, full: l.end.full, size: l.end.extra.size, sum: l.end.extra.sum, extra: at(l.end.extra.place)}
	if last := l.end.last; last != nil {
		b.end.last = &blobChunk{last.sealed, at(last.place)}
	}
	return b
}

func (b blob) encode() []byte {
	out := append(make([]byte, 0, 64+len(b.chunks)*48), blobMagic...)
	out = append(out, blobVersion)
	out = binary.BigEndian.AppendUint64(out, b.id)
	out = binary.AppendUvarint(out, uint64(b.target))
	out = binary.AppendUvarint(out, uint64(len(b.segments)))
	for _, s := range b.segments {
		out = binary.AppendUvarint(out, s.n)
		out = binary.AppendUvarint(out, uint64(s.size))
	}
	out = binary.AppendUvarint(out, uint64(len(b.chunks)))
	for _, c := range b.chunks {
		out = c.append(out)
	}
	if b.end == nil {
		out = append(out, 0)
	} else {
		out = b.end.append(append(out, 1))
	}
	return sumUp(out)
}

func sumUp(b []byte) []byte { return binary.BigEndian.AppendUint64(b, xxhash.Sum64(b)) }

func (p blobPlace) append(out []byte) []byte {
	out = binary.AppendUvarint(out, uint64(p.segment))
	return binary.AppendUvarint(out, uint64(p.off))
}

func (c blobChunk) append(out []byte) []byte {
	out = binary.AppendUvarint(out, uint64(c.end.Slot))
	out = binary.AppendUvarint(out, uint64(c.end.Offset))
	out = binary.AppendUvarint(out, c.end.Sequence)
	out = binary.BigEndian.AppendUint64(out, c.digest)
	out = binary.BigEndian.AppendUint64(out, c.sum)
	out = binary.AppendUvarint(out, uint64(c.count))
	out = binary.AppendUvarint(out, uint64(c.size))
	return c.blobPlace.append(out)
}

func (e blobEnd) append(out []byte) []byte {
	out = binary.AppendUvarint(out, e.cut.Sequence)
	out = binary.AppendUvarint(out, uint64(e.cut.Offset))
	out = binary.BigEndian.AppendUint64(out, e.cut.Digest)
	out = binary.AppendUvarint(out, uint64(e.full))
	if e.last == nil {
		out = append(out, 0)
	} else {
		out = e.last.append(append(out, 1))
	}
	out = binary.AppendUvarint(out, uint64(e.size))
	out = binary.BigEndian.AppendUint64(out, e.sum)
	return e.extra.append(out)
}

// decoder reads numbers until one is wrong.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) number(most uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > most {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) fixed() uint64 {
	if len(d.b) < 8 {
		d.bad, d.b = true, nil
		return 0
	}
	v := binary.BigEndian.Uint64(d.b)
	d.b = d.b[8:]
	return v
}

// count reads how many items follow, of at least so many bytes each.
func (d *decoder) count(each int) int { return int(d.number(uint64(len(d.b) / each))) }

func decodeBlob(in []byte) (blob, error) {
	var out blob
	n := len(blobMagic)
	switch {
	case len(in) < n+1+8 || string(in[:n]) != blobMagic:
		return out, fmt.Errorf("%w: no magic", ErrBlob)
	case in[n] != blobVersion:
		return out, fmt.Errorf("%w: version %d, this is %d", ErrBlob, in[n], blobVersion)
	}
	body := in[:len(in)-8]
	if got, want := xxhash.Sum64(body), binary.BigEndian.Uint64(in[len(in)-8:]); got != want {
		return out, fmt.Errorf("%w: xxh64 %016x, want %016x", ErrBlob, got, want)
	}
	d := &decoder{b: body[n+1:]}
	out.id, out.target = d.fixed(), int(d.number(math.MaxInt32))
	out.segments = make([]blobSegment, d.count(segmentBytesMin))
	for i := range out.segments {
		s := &out.segments[i]
		s.n, s.size = d.number(math.MaxInt64), int64(d.number(math.MaxInt64))
		d.bad = d.bad || s.size < headerBytes || i > 0 && s.n <= out.segments[i-1].n
	}
	out.chunks = make([]blobChunk, d.count(chunkBytesMin))
	for i := range out.chunks {
		out.chunks[i] = d.chunk(out.segments)
	}
	if d.number(1) == 1 {
		out.end = d.end(out.segments, len(out.chunks))
	}
	if d.bad || len(d.b) > 0 {
		return blob{}, fmt.Errorf("%w: malformed", ErrBlob)
	}
	return out, nil
}

func (d *decoder) chunk(segments []blobSegment) blobChunk {
	var c blobChunk
	c.end = Place{Slot: int(d.number(math.MaxInt)), Offset: int64(d.number(math.MaxInt64)), Sequence: d.number(math.MaxUint64)}
	c.digest, c.sum = d.fixed(), d.fixed()
	c.count, c.size = int(d.number(math.MaxInt32)), int(d.number(bodyBytesMax))
	c.blobPlace = d.place(segments, c.size)
	return c
}

// place reads a place of so many bytes, which are in the segment.
func (d *decoder) place(segments []blobSegment, size int) blobPlace {
	p := blobPlace{int(d.number(uint64(len(segments)))), int64(d.number(math.MaxInt64))}
	if p.segment > 0 {
		end := segments[p.segment-1].size
		d.bad = d.bad || p.off < headerBytes || p.off > end || int64(size) > end-p.off
	}
	return p
}

func (d *decoder) end(segments []blobSegment, chunks int) *blobEnd {
	e := &blobEnd{cut: Cut{Sequence: d.number(math.MaxUint64), Offset: int64(d.number(math.MaxInt64))}}
	e.cut.Digest = d.fixed()
	e.full = int(d.number(uint64(chunks)))
	if d.number(1) == 1 {
		c := d.chunk(segments)
		e.last = &c
	}
	e.size, e.sum = int(d.number(extraBytesMax)), d.fixed()
	e.extra = d.place(segments, e.size)
	d.bad = d.bad || e.size > 0 && e.extra.segment == 0
	return e
}

// Adopt opens a saved log. Segments that are missing or too short make only
// their chunks absent: they are packed again when they are asked for. An error
// is one of the blob, and leaves the files to Sweep.
func (s *Store) Adopt(saved []byte, o LogOptions) (*Log, error) {
	b, err := decodeBlob(saved)
	if err != nil {
		return nil, err
	}
	if b.target != o.Target {
		return nil, fmt.Errorf("%w: packed for %d bytes, want %d", ErrBlob, b.target, o.Target)
	}
	l := &Log{store: s, o: o, id: b.id, segments: map[uint64]*segment{}, next: 1}
	l.touch()
	s.mu.Lock()
	_, taken := s.logs[b.id]
	p := s.parked[b.id]
	switch {
	case taken: // adopted before: this one packs for itself
		l.id, p = newID(), nil
	case p != nil:
		delete(s.parked, b.id)
	}
	s.logs[l.id] = l
	s.mu.Unlock()
	if p == nil {
		p = &parked{}
	}
	rest := &parked{segments: map[uint64]int64{}}
	for n, size := range p.segments {
		l.next = max(l.next, n+1)
		if size < headerBytes || !slices.ContainsFunc(b.segments, func(x blobSegment) bool { return x.n == n }) {
			rest.segments[n] = size
			s.giveBack(size)
			continue
		}
		l.segments[n] = &segment{
			fs: s.o.FS, path: filepath.Join(s.o.Dir, segmentName(l.id, n)), log: l.id, n: n, size: size, reserved: size,
		}
		l.reserved.Add(size)
		l.segmentCount.Add(1)
		l.written += max(0, size-headerBytes)
	}
	s.removeFiles(l.id, rest)
	l.spilled = len(l.segments) > 0
	l.restore(b)
	return l, nil
}

// restore fills an adopted log.
func (l *Log) restore(b blob) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.garbage = l.written
	at := func(p blobPlace, size int) place {
		if p.segment == 0 {
			return place{}
		}
		seg := l.segments[b.segments[p.segment-1].n]
		if seg == nil || p.off+int64(size) > seg.size {
			return place{}
		}
		l.garbage -= int64(size)
		return place{seg, p.off}
	}
	for _, c := range b.chunks {
		l.sealed = append(l.sealed, entry{sealed: c.sealed, place: at(c.blobPlace, c.size)})
	}
	if b.end == nil {
		return
	}
	end := &logEnd{cut: b.end.cut, full: b.end.full, extra: extraPlace{at(b.end.extra, b.end.size), b.end.size, b.end.sum}}
	if c := b.end.last; c != nil {
		end.last = &entry{sealed: c.sealed, place: at(c.blobPlace, c.size)}
	}
	if end.extra.size == 0 || end.extra.seg != nil { // else what was kept with it is lost
		l.end = end
	}
}

// Segments names the segment files of a saved log; none if it is not one.
func Segments(saved []byte) []string {
	b, err := decodeBlob(saved)
	if err != nil {
		return nil
	}
	out := make([]string, 0, len(b.segments))
	for _, s := range b.segments {
		out = append(out, segmentName(b.id, s.n))
	}
	return out
}

// Report is what Verify finds.
type Report struct {
	Chunks   int      // of the log
	Absent   int      // of them, without a body in spill, or in a file that is missing
	Bytes    int64    // of bodies that are what was written
	Segments int      // named
	Missing  []string // segment files that cannot be opened
	End      *Cut     // of the whole snapshot that SetEnd kept; nil: none
	Damaged  []DamagedChunk
}

// DamagedChunk is one whose body is not what was written; Index -1 is what is
// kept beside the chunks.
type DamagedChunk struct {
	Index   int
	Segment string
	Offset  int64
	Err     error
}

// Verify reads all bodies of a saved log and compares their hashes, without a
// Store. It changes nothing.
func Verify(fsys vfs.FS, dir string, saved []byte) (Report, error) {
	b, err := decodeBlob(saved)
	if err != nil {
		return Report{}, err
	}
	r := Report{Chunks: len(b.chunks), Segments: len(b.segments)}
	files := make([]*segment, len(b.segments))
	for i, s := range b.segments {
		seg := &segment{fs: fsys, path: filepath.Join(dir, segmentName(b.id, s.n)), log: b.id, n: s.n}
		defer seg.close()
		if _, err := seg.open(); err != nil {
			r.Missing = append(r.Missing, seg.name())
			continue
		}
		files[i] = seg
	}
	check := func(index int, p blobPlace, size int, sum uint64) {
		if p.segment == 0 || files[p.segment-1] == nil {
			if index >= 0 {
				r.Absent++
			}
			return
		}
		seg := files[p.segment-1]
		buf := borrow(size)
		defer buffers.Put(buf.buf)
		err := seg.readAt(*buf.buf, p.off)
		if err == nil {
			if got := xxhash.Sum64(*buf.buf); got != sum {
				err = &DamageError{Segment: seg.name(), Offset: p.off, Got: got, Want: sum}
			}
		}
		if err != nil {
			r.Damaged = append(r.Damaged, DamagedChunk{index, seg.name(), p.off, err})
			return
		}
		r.Bytes += int64(size)
	}
	for i, c := range b.chunks {
		check(i, c.blobPlace, c.size, c.sum)
	}
	if e := b.end; e != nil {
		r.End = &e.cut
		if e.last != nil {
			check(-1, e.last.blobPlace, e.last.size, e.last.sum)
		}
		if e.size > 0 {
			check(-1, e.extra, e.size, e.sum)
		}
	}
	return r, nil
}
