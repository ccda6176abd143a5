package journal

import (
	"bytes"
	"errors"
	"fmt"

	"sessiond/replay/stamp"
)

// bufferKeepBytes is the largest buffer that is used for another group.
const bufferKeepBytes = 1 << 20

var lf = []byte{'\n'}

// group is the requests of one write and one sync.
type group struct {
	requests []*request
	buf      []byte // what is written
	behindLF bool   // buf begins with an LF that ends another program's line
	lines    int

	// The end of the group and the digest there.
	at     stamp.Point
	digest *stamp.Digest
}

// commit carries out a request and whatever waits behind it.
func (j *Journal) commit(first *request) {
	j.committing.Store(true)
	defer j.committing.Store(false)
	g, err := j.begin(false)
	if err != nil {
		j.finish(&AppendError{OutcomeNone, err}, first)
		return
	}
	for r := first; r != nil; r = j.next() {
		g.add(r)
		if len(g.buf) >= j.o.BatchBytesMax {
			break
		}
	}
	spoilt, err := j.write(g)
	if spoilt == nil || err != nil {
		j.finish(err, g.requests...)
		return
	}
	for _, r := range g.requests {
		if r != spoilt {
			j.finish(nil, r)
		}
	}
	j.again(spoilt)
}

// again carries out a request whose first line was taken by another program's
// unfinished one. The LF before it makes that impossible this time, at worst
// at the price of a blank record.
func (j *Journal) again(r *request) {
	g, err := j.begin(true)
	if err == nil {
		g.add(r)
		r.result.Interleaved = true
		_, err = j.write(g)
	}
	r.answer(err, j.Head().Point)
	if err != nil {
		r.err = &AppendError{OutcomeUnknown, err} // what was written the first time is in the file
	}
	close(r.done)
}

// begin starts a group at the end of the file.
func (j *Journal) begin(behindLF bool) (*group, error) {
	ragged, err := j.catchUp()
	if err != nil {
		return nil, err
	}
	g := &group{buf: j.buf[:0], behindLF: behindLF || ragged}
	if g.behindLF {
		g.buf = append(g.buf, '\n')
	}
	return g, g.placeAt(j, j.end)
}

// placeAt makes the group begin at an offset at or behind the head.
func (g *group) placeAt(j *Journal, offset int64) (err error) {
	if g.at, g.digest, err = j.pointAt(offset); err != nil {
		return err
	}
	if g.behindLF {
		g.at = next(g.at, g.digest, nil)
	}
	for _, r := range g.requests {
		g.place(r)
	}
	return nil
}

// add prepares a request at the end of the group.
func (g *group) add(r *request) {
	g.requests = append(g.requests, r)
	r.lines, r.err = r.prepare(g.at)
	if r.err == nil {
		r.err = checkLines(r.lines)
	}
	if r.err != nil {
		r.lines = nil
	}
	for _, line := range r.lines {
		g.buf = append(append(g.buf, line...), '\n')
	}
	g.lines += len(r.lines)
	g.place(r)
}

func checkLines(lines [][]byte) error {
	for i, line := range lines {
		if at := bytes.IndexByte(line, '\n'); at >= 0 {
			return &AppendError{OutcomeNone, fmt.Errorf("%w: line %d of %d, at byte %d", ErrLine, i, len(lines), at)}
		}
	}
	return nil
}

// place sets where a request's lines end, from the group's end on.
func (g *group) place(r *request) {
	r.result.Points = make([]stamp.Point, 0, len(r.lines))
	for _, line := range r.lines {
		g.at = next(g.at, g.digest, line)
		r.result.Points = append(r.result.Points, g.at)
	}
}

// move places the whole group anew behind an offset that another program's
// bytes have moved it to. It returns the request whose first line continues
// an unfinished line of theirs, if one does.
func (g *group) move(j *Journal, offset int64) (spoilt *request, err error) {
	if err := g.placeAt(j, offset); err != nil {
		return nil, err
	}
	var last [1]byte
	if _, err := j.file.ReadAt(last[:], offset-1); err != nil {
		return nil, err
	}
	for _, r := range g.requests {
		if len(r.lines) == 0 {
			continue
		}
		r.result.Interleaved = true
		if spoilt == nil && !g.behindLF && last[0] != '\n' {
			spoilt = r
		}
	}
	return spoilt, nil
}

// next returns the point behind one more line and moves the digest there.
func next(at stamp.Point, digest *stamp.Digest, line []byte) stamp.Point {
	digest.Write(line)
	digest.Write(lf)
	return stamp.Point{Sequence: at.Sequence + 1, Offset: at.Offset + int64(len(line)) + 1, Digest: digest.Sum64()}
}

// finish answers requests: as prepared, or with a group's *AppendError.
func (j *Journal) finish(err error, requests ...*request) {
	head := j.Head().Point
	for _, r := range requests {
		r.answer(err, head)
		close(r.done)
	}
}

func (r *request) answer(err error, head stamp.Point) {
	var failed *AppendError
	switch {
	case errors.As(err, &failed) && len(r.lines) == 0:
		// Whatever the others left in the file, it is not of this one.
		r.result, r.err = Result{}, &AppendError{OutcomeNone, failed.Err}
	case err != nil:
		r.result, r.err = Result{}, err
	case r.err != nil:
		r.result = Result{}
	case len(r.lines) > 0:
		r.result.After = r.result.Points[len(r.lines)-1]
	default:
		r.result.After = head
	}
}
