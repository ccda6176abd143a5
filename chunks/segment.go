package chunks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"sessiond/engine/vfs"
)

// A segment file begins with its header: magic, version, log, number.
const (
	segmentMagic   = "sdspill\n"
	segmentVersion = 1
	headerBytes    = 32
	segmentExt     = ".spill"
)

func segmentName(log, n uint64) string { return fmt.Sprintf("%016x-%d%s", log, n, segmentExt) }

func parseSegmentName(name string) (log, n uint64, ok bool) {
	base, isSegment := strings.CutSuffix(name, segmentExt)
	id, number, cut := strings.Cut(base, "-")
	if !isSegment || !cut {
		return 0, 0, false
	}
	log, err := strconv.ParseUint(id, 16, 64)
	if err != nil {
		return 0, 0, false
	}
	n, err = strconv.ParseUint(number, 10, 64)
	return log, n, err == nil && segmentName(log, n) == name
}

func segmentHeader(log, n uint64) []byte {
	b := make([]byte, headerBytes)
	copy(b, segmentMagic)
	binary.BigEndian.PutUint32(b[8:], segmentVersion)
	binary.BigEndian.PutUint64(b[16:], log)
	binary.BigEndian.PutUint64(b[24:], n)
	return b
}

// segment is one file of a log's bodies. It is appended to by the log's
// writer, never written twice, and read by anyone.
type segment struct {
	// Set at construction.
	fs   vfs.FS
	path string
	log  uint64
	n    uint64

	broken atomic.Bool // a sync failed: not written any more

	size     int64 // guarded by Log.mu
	reserved int64 // guarded by Log.mu
	gone     bool  // of the log no more; guarded by Log.mu

	dirty     int64 // guarded by Store.mu
	syncing   bool  // guarded by Store.mu
	forgotten bool  // guarded by Store.mu

	mu     sync.Mutex // held while the file is opened
	file   vfs.File   // nil until it is needed; guarded by mu
	closed bool       // guarded by mu
}

func (g *segment) name() string { return segmentName(g.log, g.n) }

// open returns the file; a file that is another's is an error.
func (g *segment) open() (vfs.File, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, fs.ErrClosed
	}
	if g.file != nil {
		return g.file, nil
	}
	f, err := openSegment(g.fs, g.path, g.log, g.n)
	if err == nil {
		g.file = f
	}
	return f, err
}

func openSegment(fsys vfs.FS, path string, log, n uint64) (vfs.File, error) {
	f, err := fsys.OpenRead(path)
	if err != nil {
		return nil, err
	}
	head := make([]byte, headerBytes)
	if got, err := f.ReadAt(head, 0); got < headerBytes {
		return nil, errors.Join(err, f.Close())
	}
	if string(head) != string(segmentHeader(log, n)) {
		return nil, errors.Join(fmt.Errorf("chunks: %s is no segment of this version and log", path), f.Close())
	}
	return f, nil
}

// readAt reads a whole body.
func (g *segment) readAt(b []byte, off int64) error {
	f, err := g.open()
	if err != nil {
		return err
	}
	if n, err := f.ReadAt(b, off); n < len(b) {
		return fmt.Errorf("chunks: %d of %d bytes: %w", n, len(b), err)
	}
	return nil
}

func (g *segment) sync() error {
	f, err := g.open()
	if err != nil {
		return err
	}
	return f.Datasync()
}

// close closes the file, which readers may be using: they fail then.
func (g *segment) close() {
	g.mu.Lock()
	f := g.file
	g.file, g.closed = nil, true
	g.mu.Unlock()
	if f != nil {
		_ = f.Close() // its content is proved by hashes
	}
}

// remove closes and removes the file. One that stays is swept at a later
// start.
func (g *segment) remove() {
	g.close()
	_ = g.fs.Remove(g.path)
}

// parked are segment files of a log that is not open.
type parked struct {
	segments map[uint64]int64 // sizes, by number
	bytes    int64
	used     uint64
	found    bool // at OpenStore
}

// Sweep removes the segment files that were there when the store was opened,
// that no log has adopted, and that named does not know; nil: no file is
// named.
func (s *Store) Sweep(named func(segment string) bool) {
	s.mu.Lock()
	drop := map[uint64]*parked{}
	for id, p := range s.parked {
		if !p.found {
			continue
		}
		gone := &parked{segments: map[uint64]int64{}}
		for n, size := range p.segments {
			if named == nil || !named(segmentName(id, n)) {
				gone.segments[n] = size
				delete(p.segments, n)
				p.bytes -= size
				s.spill -= size
			}
		}
		if drop[id] = gone; len(p.segments) == 0 {
			delete(s.parked, id)
		}
	}
	s.mu.Unlock()
	for id, p := range drop {
		s.removeFiles(id, p)
	}
}

// Discard removes the segment files of a saved log that no log has adopted.
func (s *Store) Discard(saved []byte) {
	b, err := decodeBlob(saved)
	if err != nil {
		return
	}
	s.mu.Lock()
	p := s.parked[b.id]
	if p != nil {
		delete(s.parked, b.id)
		s.spill -= p.bytes
	}
	s.mu.Unlock()
	if p != nil {
		s.removeFiles(b.id, p)
	}
}

func (s *Store) removeFiles(log uint64, p *parked) {
	for n := range p.segments {
		_ = s.o.FS.Remove(filepath.Join(s.o.Dir, segmentName(log, n))) // or at a later start
	}
}
