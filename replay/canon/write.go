package canon

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math"
	"slices"
	"strconv"

	"sessiond/replay/jsonl"
)

// flushBytes is how much of the token stream is held before it is hashed:
// tokens are short, and hashing is cheap only in larger pieces.
const flushBytes = 8 << 10

// hasher turns values into tokens and hashes them: parse, write, sum. Its
// slices are working memory that is used again.
type hasher struct {
	scanner *jsonl.Scanner
	nodes   []node // of the value that was parsed last
	open    []int  // parse: indexes of the containers around

	h       hash.Hash
	buf     []byte   // tokens that are not hashed yet
	str     []byte   // the string in work, decoded
	keys    []byte   // the decoded keys of one value
	members []member // of its objects, those of each together
	stack   []frame
}

// member is one member of an object.
type member struct {
	key   []byte // part of keys
	value int    // node
}

// frame is a container that is being written, and what is left of it: a range
// of nodes for an array, of members for an object.
type frame struct {
	closing   byte // ']' or '}'; 0 around the outermost value
	next, end int
}

func newHasher(h hash.Hash) *hasher {
	return &hasher{scanner: jsonl.NewScanner(jsonl.Keys{}), h: h}
}

// write writes the tokens of the text that was parsed last.
func (w *hasher) write(text []byte) {
	w.keys, w.members = w.keys[:0], w.members[:0]
	w.stack = append(w.stack[:0], frame{end: len(w.nodes)})
	for len(w.stack) > 0 {
		if len(w.buf) >= flushBytes {
			w.flush()
		}
		f := &w.stack[len(w.stack)-1]
		if f.next >= f.end {
			if f.closing != 0 {
				w.buf = append(w.buf, f.closing)
			}
			w.stack = w.stack[:len(w.stack)-1]
			continue
		}
		at := f.next
		if f.closing == '}' {
			m := w.members[f.next]
			w.string(m.key)
			at = m.value
			f.next++
		} else {
			f.next = w.nodes[at].next
		}
		switch n := w.nodes[at]; n.kind {
		case jsonl.Array:
			w.buf = append(w.buf, '[')
			w.stack = append(w.stack, frame{']', at + 1, n.next})
		case jsonl.Object:
			w.buf = append(w.buf, '{')
			next, end := w.sortMembers(text, at)
			w.stack = append(w.stack, frame{'}', next, end})
		default:
			w.scalar(n.kind, text[n.start:n.end])
		}
	}
}

// sortMembers adds an object's members to w.members, sorted by key, each key
// once with the last value it has, and returns their range.
func (w *hasher) sortMembers(text []byte, object int) (next, end int) {
	next = len(w.members)
	for k := object + 1; k < w.nodes[object].next; k = w.nodes[k+1].next {
		from := len(w.keys)
		w.keys = jsonl.AppendText(w.keys, text[w.nodes[k].start:w.nodes[k].end])
		w.members = append(w.members, member{key: w.keys[from:], value: k + 1})
	}
	slices.SortFunc(w.members[next:], func(a, b member) int {
		if c := bytes.Compare(a.key, b.key); c != 0 {
			return c
		}
		return b.value - a.value // the last one first, for CompactFunc keeps the first
	})
	kept := slices.CompactFunc(w.members[next:], func(a, b member) bool { return bytes.Equal(a.key, b.key) })
	end = next + len(kept)
	w.members = w.members[:end]
	return next, end
}

func (w *hasher) scalar(kind jsonl.Kind, text []byte) {
	switch kind {
	case jsonl.String:
		w.str = jsonl.AppendText(w.str[:0], text)
		w.string(w.str)
	case jsonl.Number:
		w.number(text)
	case jsonl.True:
		w.buf = append(w.buf, "t;"...)
	case jsonl.False:
		w.buf = append(w.buf, "f;"...)
	default:
		w.buf = append(w.buf, "n;"...)
	}
}

func (w *hasher) string(s []byte) {
	w.buf = append(w.buf, 's')
	w.buf = strconv.AppendInt(w.buf, int64(len(s)), 10)
	w.buf = append(w.buf, ':')
	if len(s) < flushBytes {
		w.buf = append(w.buf, s...)
		return
	}
	w.flush()
	w.h.Write(s)
}

func (w *hasher) number(text []byte) {
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil { // out of range
		w.buf = append(w.buf, "n;"...)
		return
	}
	if v == 0 {
		v = 0 // -0 too
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], math.Float64bits(v))
	w.buf = append(w.buf, 'd')
	w.buf = hex.AppendEncode(w.buf, b[:])
	w.buf = append(w.buf, ';')
}

func (w *hasher) flush() {
	w.h.Write(w.buf)
	w.buf = w.buf[:0]
}

func (w *hasher) sum() Hash {
	w.flush()
	return Hash(w.h.Sum(nil))
}
