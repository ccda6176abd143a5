package canon

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"sync"
)

// Hash is a canonical hash.
type Hash [sha256.Size]byte

// String returns 64 lower-case hex digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// hashers keeps the working memory of Sum between calls.
var hashers = sync.Pool{New: func() any { return newHasher(sha256.New()) }}

// Sum returns the canonical hash of one JSON value; white space around it is
// allowed. The error is ErrInvalid.
func Sum(text []byte) (Hash, error) {
	w := hashers.Get().(*hasher)
	defer hashers.Put(w)
	if err := w.parse(text); err != nil {
		return Hash{}, err
	}
	w.h.Reset()
	w.write(text)
	return w.sum(), nil
}

// ArrayHasher hashes an array whose items come one by one, such as a view's
// messages: after Add of each, Sum is the hash of the array. The zero
// ArrayHasher is the empty array.
type ArrayHasher struct {
	w     *hasher
	count int
}

// Add appends one item. A text that is not one JSON value is ErrInvalid and
// leaves the array as it was.
func (a *ArrayHasher) Add(text []byte) error {
	a.open()
	if err := a.w.parse(text); err != nil {
		return err
	}
	a.w.write(text)
	a.count++
	return nil
}

// Len returns the number of items.
func (a *ArrayHasher) Len() int { return a.count }

// Sum returns the hash of the array so far; more items may follow.
func (a *ArrayHasher) Sum() Hash {
	a.open()
	a.w.flush()
	h, err := a.w.h.(hash.Cloner).Clone()
	if err != nil {
		panic("canon: sha256 refuses to be cloned: " + err.Error()) // it cannot
	}
	h.Write([]byte{']'})
	return Hash(h.Sum(nil))
}

func (a *ArrayHasher) open() {
	if a.w == nil {
		a.w = newHasher(sha256.New())
		a.w.buf = append(a.w.buf, '[')
	}
}
