package jsonl

import "encoding/binary"

const (
	// levelKeysMax bounds the keys that a level knows; a bit of a word tells
	// which of them an object has had.
	levelKeysMax = 63

	// quotedBytesMax is how long a key is as it stands in a line, with its
	// quotes and its colon, that is compared as two words.
	quotedBytesMax = 16
)

// level is an object whose members are reported.
//
// Lines of a session repeat their keys in the same order. So a level learns
// the keys that it meets, asked for or not, and which came next the last time:
// that one is compared first, as it stands in a line, and only a surprise is
// scanned and looked up. Keys are numbered by 1 + their index in the set; 0 is
// a key that is not in it.
type level struct {
	keySet
	depth int
	sub   int // number of the key that holds the level below, or -1
	asked int // keys that are reported: the first of the set
	base  int // index of the first of them among those of both levels

	seen   uint64                     // a bit for each key that the object at hand has had
	follow [levelKeysMax + 1][2]uint8 // by the key before: what came next the last times
	quoted [levelKeysMax + 1]quoted
}

// quoted is a key as it stands in a line: "name": in two words.
type quoted struct {
	x, y, maskX, maskY uint64
	size               int
}

func newLevel(k keySet, depth, sub, base int) level {
	l := level{keySet: k, depth: depth, sub: sub, asked: len(k.names), base: base}
	for i := range l.quoted {
		l.quoted[i].x = 1 // that no mask lets through: it is at no place
	}
	for i, name := range k.names {
		if learnable([]byte(name)) {
			l.quoted[i+1] = newQuoted(name)
		}
	}
	return l
}

// learnable reports whether a name may be learned. That depends on the name
// alone and not on how it is spelled, so that a key is either always known to
// a level or never, and no repeated one is missed.
func learnable(name []byte) bool {
	for _, c := range name {
		if c < ' ' || c == '"' || c == '\\' || c >= 0x80 {
			return false
		}
	}
	return len(name)+len(`"":`) <= quotedBytesMax
}

// learn adds a key that is not in the set, if it can, and returns its number.
func (l *level) learn(name []byte) int {
	if len(l.names) == levelKeysMax || !learnable(name) {
		return 0
	}
	l.add(string(name))
	n := len(l.names)
	l.quoted[n] = newQuoted(l.names[n-1])
	return n
}

func newQuoted(name string) quoted {
	var text, mask [quotedBytesMax]byte
	n := copy(text[:], `"`+name+`":`)
	for i := range n {
		mask[i] = 0xFF
	}
	return quoted{
		binary.LittleEndian.Uint64(text[:]), binary.LittleEndian.Uint64(text[8:]),
		binary.LittleEndian.Uint64(mask[:]), binary.LittleEndian.Uint64(mask[8:]), n,
	}
}

// at reports whether the key stands in a text at i.
func (q *quoted) at(t []byte, i int) bool {
	if uint(i) > uint(len(t)) || len(t)-i < quotedBytesMax {
		return false // or perhaps: near the end it is looked up
	}
	p := t[i:]
	x, y := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
	return (x&q.maskX^q.x)|(y&q.maskY^q.y) == 0
}
