package kv

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"sessiond/replay/stamp"
	"sessiond/wire"
)

// Signature is what proves, with one stat, that nothing of a session needs to
// be read again.
type Signature struct {
	Stamp      stamp.Stamp
	ReadAt     time.Time // when the content under Stamp was read; wall clock
	BootID     [16]byte  // of the boot in which it was read; zero: not known
	Head       stamp.Point
	Generation wire.Generation
	Dialect    string
	Rules      string // rules revision of what was derived from the content
}

// Listing is what a listing shows of a session beyond its signature. Nil means
// not known without a scan. It holds no transcript text beyond a title.
type Listing struct {
	ID               string          `json:"id,omitempty"`
	Title            *string         `json:"title,omitempty"`
	CWD              *string         `json:"cwd,omitempty"`
	MessageCount     *int            `json:"messageCount,omitempty"`
	RecordCount      *int64          `json:"recordCount,omitempty"`
	Created          *string         `json:"created,omitempty"`
	Modified         *string         `json:"modified,omitempty"`
	DiagnosticsCount *int            `json:"diagnosticsCount,omitempty"`
	State            *wire.State     `json:"state,omitempty"`
	DialectState     json.RawMessage `json:"dialectState,omitempty"` // of the dialect that Signature names
}

// Value versions, the first byte of every value.
const (
	signatureVersion   = 1
	listingVersion     = 1
	checkpointsVersion = 1
)

const (
	checksumBytes       = 8
	signatureFixedBytes = 1 + 5*8 + 8 + 16 + 3*8 + 16
	textBytesMax        = 255 // of a signature's dialect and rules revision
)

var errBadValue = errors.New("kv: bad value")

// seal appends the checksum that ties a value to its place, so that neither a
// flipped bit nor a value under another's key is taken for true: bbolt has no
// page checksums.
func seal(bucket, key, payload []byte) []byte {
	return binary.BigEndian.AppendUint64(payload, checksum(bucket, key, payload))
}

// unseal returns a sealed value's payload, which has at least a version byte.
func unseal(bucket, key, stored []byte) ([]byte, error) {
	n := len(stored) - checksumBytes
	if n < 1 {
		return nil, fmt.Errorf("%w: %d bytes", errBadValue, len(stored))
	}
	got, want := checksum(bucket, key, stored[:n]), binary.BigEndian.Uint64(stored[n:])
	if got != want {
		return nil, fmt.Errorf("%w: checksum %016x, want %016x", errBadValue, got, want)
	}
	return stored[:n], nil
}

func checksum(bucket, key, payload []byte) uint64 {
	var d xxhash.Digest
	d.Reset()
	d.Write(bucket)
	d.Write([]byte{0})
	d.Write(key)
	d.Write([]byte{0})
	d.Write(payload)
	return d.Sum64()
}

// encodeSignature returns a signature's fixed form (see doc.go); a text that
// does not fit its length byte is refused.
func encodeSignature(s Signature) ([]byte, error) {
	if len(s.Dialect) > textBytesMax || len(s.Rules) > textBytesMax {
		return nil, fmt.Errorf("kv: dialect of %d, rules revision of %d bytes, want at most %d",
			len(s.Dialect), len(s.Rules), textBytesMax)
	}
	b := make([]byte, 0, signatureFixedBytes+2+len(s.Dialect)+len(s.Rules)+checksumBytes)
	b = append(b, signatureVersion)
	for _, v := range [...]uint64{
		uint64(s.Stamp.Size), uint64(s.Stamp.MTimeNano), uint64(s.Stamp.CTimeNano), s.Stamp.Device, s.Stamp.Inode,
		uint64(s.ReadAt.UnixNano()), s.Head.Sequence, uint64(s.Head.Offset), s.Head.Digest,
	} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	b = append(b, s.BootID[:]...)
	b = append(b, s.Generation[:]...)
	b = append(append(b, byte(len(s.Dialect))), s.Dialect...)
	return append(append(b, byte(len(s.Rules))), s.Rules...), nil
}

func decodeSignature(b []byte) (Signature, error) {
	if len(b) < signatureFixedBytes || b[0] != signatureVersion {
		return Signature{}, fmt.Errorf("%w: signature of %d bytes", errBadValue, len(b))
	}
	var v [9]uint64
	b = b[1:]
	for i := range v {
		v[i], b = binary.BigEndian.Uint64(b), b[8:]
	}
	s := Signature{
		Stamp: stamp.Stamp{
			Size: int64(v[0]), MTimeNano: int64(v[1]), CTimeNano: int64(v[2]), Device: v[3], Inode: v[4],
		},
		ReadAt: time.Unix(0, int64(v[5])),
		Head:   stamp.Point{Sequence: v[6], Offset: int64(v[7]), Digest: v[8]},
	}
	b = b[copy(s.BootID[:], b):]
	b = b[copy(s.Generation[:], b):]
	var ok1, ok2 bool
	s.Dialect, b, ok1 = cutText(b)
	s.Rules, b, ok2 = cutText(b)
	if !ok1 || !ok2 || len(b) != 0 {
		return Signature{}, fmt.Errorf("%w: signature's texts do not fit its length", errBadValue)
	}
	if s.Head.Offset < 0 || s.Stamp.Size < 0 {
		return Signature{}, fmt.Errorf("%w: signature of size %d, head at %d", errBadValue, s.Stamp.Size, s.Head.Offset)
	}
	return s, nil
}

// cutText takes a text with its length byte off b.
func cutText(b []byte) (text string, rest []byte, ok bool) {
	if len(b) == 0 || len(b)-1 < int(b[0]) {
		return "", nil, false
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], true
}

func encodeListing(l Listing) ([]byte, error) {
	b, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("kv: listing: %w", err)
	}
	return append([]byte{listingVersion}, b...), nil
}

func decodeListing(b []byte) (Listing, error) {
	if len(b) < 1 || b[0] != listingVersion {
		return Listing{}, fmt.Errorf("%w: listing of %d bytes", errBadValue, len(b))
	}
	var l Listing
	if err := json.Unmarshal(b[1:], &l); err != nil {
		return Listing{}, fmt.Errorf("%w: listing: %w", errBadValue, err)
	}
	return l, nil
}

func encodeCheckpoints(c stamp.Checkpoints) ([]byte, error) {
	b := []byte{checkpointsVersion}
	var err error
	for _, p := range c {
		if b, err = p.AppendBinary(b); err != nil {
			return nil, fmt.Errorf("kv: checkpoint at %d: %w", p.Offset, err)
		}
	}
	return b, nil
}

func decodeCheckpoints(b []byte) (stamp.Checkpoints, error) {
	if len(b) < 1 || b[0] != checkpointsVersion {
		return nil, fmt.Errorf("%w: checkpoints of %d bytes", errBadValue, len(b))
	}
	c, err := stamp.ParseCheckpoints(b[1:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBadValue, err)
	}
	return c, nil
}
