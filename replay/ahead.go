package replay

import (
	"errors"
	"io"
	"runtime"

	"sessiond/replay/jsonl"
	"sessiond/replay/stamp"
)

// Lines are read and scanned in batches, for a long way by a goroutine of its
// own, so that one core scans while another understands. A batch owns its
// text.
const (
	batchLines   = 512
	batchBytes   = 256 << 10
	batchesAhead = 3
	aheadBytes   = 1 << 20 // a shorter way is not worth a goroutine
)

// batch is some lines with what a scan found in them.
type batch struct {
	lines  []scanned
	text   []byte
	values []jsonl.Value
	digest *stamp.Digest // at the end of the lines
	err    error         // what followed them; io.EOF after the last
	check  bool          // their end is a checkpoint
}

// newBatch returns a batch for a way of so many bytes.
func newBatch(way int64) *batch {
	return &batch{text: make([]byte, 0, min(way, batchBytes+batchBytes/4))}
}

// scanned is one line; scan counts where ok is set.
type scanned struct {
	jsonl.Line
	scan   jsonl.Scan
	ok     bool
	digest *stamp.Digest // at the end of an oversized one, whose text is not held
}

// producer fills batches.
type producer struct {
	lines  *jsonl.Reader
	digest *stamp.Digest
	keys   *jsonl.Scanner
	last   int64 // offset of the last checkpoint
}

// fill takes the next lines, at least one unless there is none, and not beyond
// a checkpoint: where those are must depend on the lines alone.
func (p *producer) fill(b *batch) {
	b.lines, b.text, b.values, b.err, b.check = b.lines[:0], b.text[:0], b.values[:0], nil, false
	for len(b.lines) < batchLines && len(b.text) < batchBytes && !b.check {
		line, err := p.lines.Next()
		if err != nil {
			b.err = err
			break
		}
		b.add(line, p.keys)
		if line.Oversized != nil {
			p.lines.Sync()
			b.lines[len(b.lines)-1].digest = p.digest.Clone()
		}
		if !line.Terminated { // the last, and known to be it by this batch
			b.err = io.EOF
			break
		}
		if end := line.Offset + line.Size; line.Terminated && end-p.last >= stamp.CheckpointBytes {
			p.last, b.check = end, true
		}
	}
	if b.err == nil || errors.Is(b.err, io.EOF) {
		p.lines.Sync()
	}
	b.digest = p.digest.Clone()
}

// add copies a line and scans it.
func (b *batch) add(line jsonl.Line, keys *jsonl.Scanner) {
	s := scanned{Line: line}
	if line.Text != nil {
		s.Text = b.keep(line.Text)
	}
	if line.Terminated && line.Oversized == nil {
		s.scan, s.ok = *keys.Scan(s.Text), true
		s.scan.Top, s.scan.Sub = b.keepValues(s.scan.Top), b.keepValues(s.scan.Sub)
	}
	b.lines = append(b.lines, s)
}

// keep copies a text; what was kept before stays where it is.
func (b *batch) keep(text []byte) []byte {
	n := len(b.text)
	if n+len(text) > cap(b.text) {
		return append([]byte(nil), text...)
	}
	b.text = append(b.text, text...)
	return b.text[n:len(b.text):len(b.text)]
}

func (b *batch) keepValues(values []jsonl.Value) []jsonl.Value {
	if cap(b.values)-len(b.values) < len(values) {
		b.values = make([]jsonl.Value, 0, max(2*cap(b.values), 8*len(values)))
	}
	n := len(b.values)
	b.values = append(b.values, values...)
	return b.values[n:len(b.values):len(b.values)]
}

// batches gives the batches of a way of so many bytes in order: next returns
// nil after the last, and stop ends it. The batch before is used again.
func (p *producer) batches(way int64) (next func() *batch, stop func()) {
	if way < aheadBytes || runtime.GOMAXPROCS(0) == 1 {
		b := newBatch(way)
		return func() *batch {
			if b.err != nil {
				return nil
			}
			p.fill(b)
			return b
		}, func() {}
	}
	full, empty := make(chan *batch, batchesAhead), make(chan *batch, batchesAhead)
	for range batchesAhead {
		empty <- newBatch(way)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(full)
		for b := range empty {
			p.fill(b)
			full <- b // has room for all there are
			if b.err != nil {
				return
			}
		}
	}()
	var last *batch
	next = func() *batch {
		if last != nil {
			empty <- last
		}
		last = <-full
		return last
	}
	return next, func() {
		close(empty)
		<-done
	}
}
