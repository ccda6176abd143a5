package replay

import (
	"errors"
	"io"
	"runtime"
	"sync"

	"sessiond/replay/jsonl"
	"sessiond/replay/stamp"
)

// Lines are read and scanned in batches, for a long way by two goroutines, of
// which the caller's is one: it understands the batches in order and scans
// others while the next is not ready. A batch owns its text.
const (
	batchBytes   = 256 << 10 // read at once
	batchLines   = 2048
	batchesAhead = 4
	aheadBytes   = 1 << 20 // a shorter way is not worth a goroutine
)

// batch is some lines with what a scan found in them.
type batch struct {
	lines  []scanned
	buf    []byte         // that holds the lines; nil where they are the reader's
	found  []jsonl.Member // in the lines
	digest *stamp.Digest  // at the end of the lines
	err    error          // what followed them; io.EOF after the last
	check  bool           // their end is a checkpoint
	done   chan struct{}  // gets one when they are scanned
}

// scanned is one line.
type scanned struct {
	jsonl.Line
	members []jsonl.Member
	plain   bool // an object with these members of which there is nothing else to tell
}

// producer fills batches.
type producer struct {
	mu     sync.Mutex // of all below
	lines  *jsonl.Reader
	digest *stamp.Digest
	last   int64 // offset of the last checkpoint
	over   bool  // there are no more batches
}

// split takes the next lines, at least one unless there is none, and not
// beyond a checkpoint: where those are must depend on the lines alone. An
// oversized line and one that is not terminated are alone.
func (p *producer) split(b *batch) {
	b.lines, b.check = b.lines[:0], false
	line, err := p.lines.Next()
	b.err = err
	for more := err == nil; more; line, more = p.lines.AtHand() {
		b.lines = append(b.lines, scanned{Line: line})
		if !line.Terminated {
			b.err = io.EOF
		} else if end := line.Offset + line.Size; end-p.last >= stamp.CheckpointBytes {
			p.last, b.check = end, true
		}
		if b.err != nil || b.check || len(b.lines) == batchLines {
			break
		}
	}
	if b.err == nil || errors.Is(b.err, io.EOF) {
		p.lines.Sync()
	}
	b.digest, p.over = p.digest.Clone(), b.err != nil
}

// scan scans the lines.
func (b *batch) scan(keys *jsonl.Scanner) {
	b.found = b.found[:0]
	for i := range b.lines {
		if line := &b.lines[i]; line.Terminated {
			n := len(b.found)
			b.found, line.plain = keys.Object(line.Text, b.found)
			line.members = b.found[n:len(b.found):len(b.found)]
		}
	}
}

// batches gives the batches of a way of so many bytes in order; stop ends it.
// The batch before is used again.
func (p *producer) batches(way int64, keys func() *jsonl.Scanner) (next func() *batch, stop func()) {
	if way <= aheadBytes || runtime.GOMAXPROCS(0) == 1 {
		b := &batch{}
		return func() *batch {
			p.split(b)
			b.scan(keys())
			return b
		}, func() {}
	}
	split, empty := make(chan *batch, batchesAhead), make(chan *batch, batchesAhead) // each has room for all
	for range batchesAhead {
		empty <- &batch{done: make(chan struct{}, 1)}
	}
	produce := func(b *batch, keys *jsonl.Scanner) {
		p.mu.Lock()
		over := p.over
		if !over {
			p.split(b)
			b.buf = p.lines.Swap(b.buf)
			split <- b
		}
		p.mu.Unlock()
		if !over {
			b.scan(keys)
			b.done <- struct{}{}
		}
	}
	done := make(chan struct{})
	go func(keys *jsonl.Scanner) {
		defer close(done)
		for b := range empty {
			produce(b, keys)
		}
	}(keys().Clone())
	help := func() bool { // rather than wait
		select {
		case b := <-empty:
			produce(b, keys())
			return true
		default:
			return false
		}
	}
	var b *batch
	next = func() *batch {
		if b != nil {
			empty <- b
		}
		for len(split) == 0 && help() {
		}
		b = <-split
		for len(b.done) == 0 && help() {
		}
		<-b.done
		return b
	}
	return next, func() {
		p.mu.Lock()
		p.over = true
		p.mu.Unlock()
		close(empty)
		<-done
	}
}
