package report

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
)

// hashing is a source whose bytes are hashed as they are first read. The
// replay reads from start to end, some bytes more than once.
type hashing struct {
	src io.ReaderAt
	h   hash.Hash
	at  int64 // bytes hashed
}

func newHashing(src io.ReaderAt) *hashing { return &hashing{src: src, h: sha256.New()} }

// ReadAt implements io.ReaderAt for one goroutine.
func (s *hashing) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.src.ReadAt(p, off)
	if end := off + int64(n); off <= s.at && s.at < end {
		s.h.Write(p[s.at-off : n])
		s.at = end
	}
	return n, err
}

// sum returns the hash of the first size bytes, reading what was not read.
func (s *hashing) sum(size int64) (string, error) {
	n, err := io.Copy(s.h, io.NewSectionReader(s.src, s.at, size-s.at))
	if err == nil && n < size-s.at {
		err = io.ErrUnexpectedEOF
	}
	return hex.EncodeToString(s.h.Sum(nil)), err
}
