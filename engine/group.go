package engine

import (
	"bytes"

	"sessiond/replay/stamp"
)

// group is what the journal has taken and not yet committed: lines that come
// after the durable head in one write. It belongs to the journal's goroutine.
type group struct{ lines pendingLines }

type pendingLine struct {
	offset int64  // where it will begin
	text   []byte // with LF
	id     string // of the entry, "" for none
}

// pendingLines follow each other from the durable head on.
type pendingLines []pendingLine

// add notes a line that will begin at offset.
func (g *group) add(offset int64, line []byte, id string) {
	g.lines = append(g.lines, pendingLine{offset, append(bytes.Clone(line), '\n'), id})
}

// between drops what is durable or failed, and returns the lines between the
// durable head and the head that a request gets.
func (g *group) between(durable, head int64) pendingLines {
	kept := g.lines[:0]
	for _, l := range g.lines {
		if l.offset >= durable && l.offset < head {
			kept = append(kept, l)
		}
	}
	g.lines = kept
	return kept
}

// bytes returns all pending bytes.
func (p pendingLines) bytes() []byte {
	var out []byte
	for _, l := range p {
		out = append(out, l.text...)
	}
	return out
}

// points calls f with every line and its end, until f returns false. d is the
// digest at the durable head, and is used up.
func (p pendingLines) points(durable stamp.Point, d *stamp.Digest, f func(l pendingLine, end stamp.Point) bool) {
	at := durable
	for _, l := range p {
		_, _ = d.Write(l.text) // never fails
		at = stamp.Point{Sequence: at.Sequence + 1, Offset: at.Offset + int64(len(l.text)), Digest: d.Sum64()}
		if !f(l, at) {
			return
		}
	}
}
