package jsonl

import (
	"encoding/binary"
	"fmt"
)

// keysMax is how many members of an object a scan reports.
const keysMax = 16

// Keys chooses the members that a scan reports. Top are members of the
// outermost object, Sub members of the object that is its member SubOf. The
// names of a list are distinct, at most 16; SubOf need not be in Top.
type Keys struct {
	Top   []string
	SubOf string
	Sub   []string
}

// keySet finds a name among a few. A name is looked up by its first eight
// bytes and its length, which the scan has at hand, so a hit costs one
// multiplication and one comparison.
type keySet struct {
	names []string
	words []uint64  // first eight bytes of each name, little-endian
	next  []uint8   // 1 + index of the next name of the same slot
	slots [64]uint8 // 1 + index of the first name of the slot
}

// newKeySets returns the sets of a choice and the index of SubOf in top, -1
// when there is no Sub. SubOf stands after the names of Top unless it is one.
func newKeySets(k Keys) (top, sub keySet, subOf int) {
	if len(k.Top) > keysMax || len(k.Sub) > keysMax {
		panic(fmt.Sprintf("jsonl: %d and %d keys, want at most %d", len(k.Top), len(k.Sub), keysMax))
	}
	names := append([]string(nil), k.Top...)
	subOf = -1
	if len(k.Sub) > 0 {
		for i, name := range names {
			if name == k.SubOf {
				subOf = i
			}
		}
		if subOf < 0 {
			subOf = len(names)
			names = append(names, k.SubOf)
		}
	}
	return newKeySet(names), newKeySet(k.Sub), subOf
}

func newKeySet(names []string) keySet {
	var k keySet
	for _, name := range names {
		k.add(name)
	}
	return k
}

// add adds a name that is not there.
func (k *keySet) add(name string) {
	word := firstWord([]byte(name))
	slot := &k.slots[keySlot(word, len(name))]
	k.names, k.words, k.next = append(k.names, name), append(k.words, word), append(k.next, *slot)
	*slot = uint8(len(k.names))
}

// find returns the index of name, or -1. word is firstWord(name).
func (k *keySet) find(name []byte, word uint64) int {
	for j := k.slots[keySlot(word, len(name))]; j != 0; j = k.next[j-1] {
		i := int(j) - 1
		if k.words[i] == word && len(k.names[i]) == len(name) &&
			(len(name) <= 8 || k.names[i] == string(name)) {
			return i
		}
	}
	return -1
}

// keyHash spreads words; any odd constant without a pattern does.
const keyHash = 0x9E3779B97F4A7C15

func keySlot(word uint64, n int) uint64 { return (word ^ uint64(n)) * keyHash >> 58 }

// firstWord returns the first eight bytes of name, little-endian, zeros after
// its end.
func firstWord(name []byte) uint64 {
	if len(name) >= 8 {
		return binary.LittleEndian.Uint64(name)
	}
	var w uint64
	for i := len(name) - 1; i >= 0; i-- {
		w = w<<8 | uint64(name[i])
	}
	return w
}

// seenKeys remembers the hashes of those keys of one scan that no level knows.
// It answers "perhaps seen": only keys with equal hashes are suspects, and
// whoever asks verifies.
// Slots of earlier scans are void by their generation, so nothing is cleared.
type seenKeys struct {
	generation uint32
	count      int
	slots      [256]struct{ generation, hash uint32 }
}

func (s *seenKeys) reset() {
	s.generation++
	s.count = 0
	if s.generation == 0 { // wrapped: old slots would look new
		clear(s.slots[:])
		s.generation = 1
	}
}

// add adds a key of an object; salt tells the objects of a scan apart. It
// reports a suspicion of having seen the key, and always when it is too full
// to tell.
func (s *seenKeys) add(name []byte, word uint64, salt uint64) bool {
	if s.count == len(s.slots)/2 {
		return true
	}
	s.count++
	h := (word ^ uint64(len(name)) ^ salt) * keyHash
	for len(name) > 8 {
		name = name[8:]
		h = (h ^ h>>32 ^ firstWord(name)) * keyHash
	}
	hash := uint32(h >> 32)
	for i := hash >> 24; ; i = (i + 1) % uint32(len(s.slots)) {
		slot := &s.slots[i]
		if slot.generation != s.generation {
			slot.generation, slot.hash = s.generation, hash
			return false
		}
		if slot.hash == hash {
			return true
		}
	}
}
