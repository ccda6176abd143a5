package kv

import (
	"bytes"
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
	Trusted    bool   // an equal Stamp proves equal content; see stamp.Trust
}

// Listing is what a listing shows of a session beyond its signature. Nil means
// not known without a scan. It holds no transcript text beyond a title.
type Listing struct {
	ID               string      `json:"id,omitempty"`
	Path             string      `json:"path,omitempty"` // of the file, absolute
	Title            *string     `json:"title,omitempty"`
	CWD              *string     `json:"cwd,omitempty"`
	Leaf             *string     `json:"leaf,omitempty"`
	MessageCount     *int        `json:"messageCount,omitempty"`
	ContextCount     *int        `json:"contextCount,omitempty"` // messages of the context
	RecordCount      *int64      `json:"recordCount,omitempty"`
	Created          *string     `json:"created,omitempty"`
	Modified         *string     `json:"modified,omitempty"`
	DiagnosticsCount *int        `json:"diagnosticsCount,omitempty"`
	State            *wire.State `json:"state,omitempty"`
	Tail             bool        `json:"tail,omitempty"` // bytes followed the head when this was written
}

// View is the list of the packed chunks of one view of a session. The chunks
// lie in spill files; Data says where.
type View struct {
	Rules    string      // rules revision that they were packed by
	Target   int         // chunk target, bytes
	At       stamp.Point // the head up to which the view was packed
	Segments []string    // names of the spill files that Data refers to
	Chunks   int
	Bytes    int64  // of all chunks
	Data     []byte // in the form of package chunks
}

// Tombstone is what is left of a session whose file was removed.
type Tombstone struct {
	Removed    time.Time
	ID         string
	Generation wire.Generation
	Head       stamp.Point // the last that was known
	Bytes      int64       // of the file
}

// Value versions, the first byte of every value.
const (
	signatureVersion    = 2
	signatureVersionOne = 1 // without flags
	listingVersion      = 1
	checkpointsVersion  = 1
	viewVersion         = 1
	tombstoneVersion    = 1
)

const (
	checksumBytes       = 8
	signatureFixedBytes = 1 + 5*8 + 8 + pointBytes + 16 + 16 // without flags
	viewFixedBytes      = 1 + 8 + pointBytes + 8 + 8
	tombstoneFixedBytes = 1 + 8 + 16 + pointBytes + 8
	pointBytes          = 3 * 8
	textBytesMax        = 255 // of a text with a length byte
	segmentsMax         = 1<<16 - 1

	flagTrusted = 1 << 0 // of a signature
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
	b := make([]byte, 0, signatureFixedBytes+3+len(s.Dialect)+len(s.Rules)+checksumBytes)
	b = append(b, signatureVersion)
	for _, v := range [...]uint64{
		uint64(s.Stamp.Size), uint64(s.Stamp.MTimeNano), uint64(s.Stamp.CTimeNano), s.Stamp.Device, s.Stamp.Inode,
		uint64(s.ReadAt.UnixNano()), s.Head.Sequence, uint64(s.Head.Offset), s.Head.Digest,
	} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	b = append(b, s.BootID[:]...)
	b = append(b, s.Generation[:]...)
	var flags byte
	if s.Trusted {
		flags |= flagTrusted
	}
	return appendText(appendText(append(b, flags), s.Dialect), s.Rules), nil
}

func decodeSignature(b []byte) (Signature, error) {
	if len(b) < signatureFixedBytes+1 || b[0] != signatureVersion && b[0] != signatureVersionOne {
		return Signature{}, fmt.Errorf("%w: signature of %d bytes", errBadValue, len(b))
	}
	var v [9]uint64
	version, b := b[0], b[1:]
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
	if version != signatureVersionOne {
		if b[0]&^flagTrusted != 0 {
			return Signature{}, fmt.Errorf("%w: signature with flags %02x", errBadValue, b[0])
		}
		s.Trusted, b = b[0]&flagTrusted != 0, b[1:]
	}
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

// appendText appends a text behind its length byte.
func appendText(b []byte, text string) []byte {
	return append(append(b, byte(len(text))), text...)
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

// encodeView returns a view's form (see doc.go).
func encodeView(v View) ([]byte, error) {
	if v.Target < 0 || v.At.Offset < 0 || v.Chunks < 0 || v.Bytes < 0 {
		return nil, fmt.Errorf("kv: view with target %d, head at %d, %d chunks of %d bytes", v.Target, v.At.Offset, v.Chunks, v.Bytes)
	}
	size := viewFixedBytes + 1 + len(v.Rules) + 2 + len(v.Data)
	longest := len(v.Rules)
	for _, name := range v.Segments {
		size += 1 + len(name)
		longest = max(longest, len(name))
	}
	if longest > textBytesMax || len(v.Segments) > segmentsMax {
		return nil, fmt.Errorf("kv: view with a text of %d bytes, want at most %d, and %d segments, want at most %d",
			longest, textBytesMax, len(v.Segments), segmentsMax)
	}
	b := append(make([]byte, 0, size+checksumBytes), viewVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(v.Target))
	b = appendPoint(b, v.At)
	b = binary.BigEndian.AppendUint64(b, uint64(v.Chunks))
	b = binary.BigEndian.AppendUint64(b, uint64(v.Bytes))
	b = appendText(b, v.Rules)
	b = binary.BigEndian.AppendUint16(b, uint16(len(v.Segments)))
	for _, name := range v.Segments {
		b = appendText(b, name)
	}
	return append(b, v.Data...), nil
}

func decodeView(b []byte) (View, error) {
	v, data, err := decodeViewHead(b)
	if len(data) > 0 {
		v.Data = bytes.Clone(data)
	}
	return v, err
}

// decodeViewHead returns a view without its Data, which stays where it is in b.
func decodeViewHead(b []byte) (v View, data []byte, err error) {
	bad := func() (View, []byte, error) {
		return View{}, nil, fmt.Errorf("%w: view of %d bytes", errBadValue, len(b))
	}
	if len(b) < viewFixedBytes || b[0] != viewVersion {
		return bad()
	}
	v = View{
		Target: int(binary.BigEndian.Uint64(b[1:])), At: pointAt(b[9:]),
		Chunks: int(binary.BigEndian.Uint64(b[33:])), Bytes: int64(binary.BigEndian.Uint64(b[41:])),
	}
	rules, rest, ok := cutText(b[viewFixedBytes:])
	if !ok || len(rest) < 2 || v.Target < 0 || v.At.Offset < 0 || v.Chunks < 0 || v.Bytes < 0 {
		return bad()
	}
	v.Rules = rules
	n, rest := binary.BigEndian.Uint16(rest), rest[2:]
	for range n {
		var name string
		if name, rest, ok = cutText(rest); !ok {
			return bad()
		}
		v.Segments = append(v.Segments, name)
	}
	return v, rest, nil
}

// encodeTombstone returns a tombstone's fixed form (see doc.go).
func encodeTombstone(t Tombstone) ([]byte, error) {
	if len(t.ID) > textBytesMax || t.Head.Offset < 0 || t.Bytes < 0 {
		return nil, fmt.Errorf("kv: tombstone with an id of %d bytes, head at %d, %d bytes", len(t.ID), t.Head.Offset, t.Bytes)
	}
	b := append(make([]byte, 0, tombstoneFixedBytes+1+len(t.ID)+checksumBytes), tombstoneVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(t.Removed.UnixNano()))
	b = append(b, t.Generation[:]...)
	b = appendPoint(b, t.Head)
	b = binary.BigEndian.AppendUint64(b, uint64(t.Bytes))
	return appendText(b, t.ID), nil
}

func decodeTombstone(b []byte) (Tombstone, error) {
	if len(b) < tombstoneFixedBytes || b[0] != tombstoneVersion {
		return Tombstone{}, fmt.Errorf("%w: tombstone of %d bytes", errBadValue, len(b))
	}
	t := Tombstone{
		Removed: time.Unix(0, int64(binary.BigEndian.Uint64(b[1:]))),
		Head:    pointAt(b[25:]), Bytes: int64(binary.BigEndian.Uint64(b[49:])),
	}
	copy(t.Generation[:], b[9:])
	id, rest, ok := cutText(b[tombstoneFixedBytes:])
	if !ok || len(rest) != 0 || t.Head.Offset < 0 || t.Bytes < 0 {
		return Tombstone{}, fmt.Errorf("%w: tombstone of %d bytes", errBadValue, len(b))
	}
	t.ID = id
	return t, nil
}

// appendPoint appends a point: sequence, offset, digest.
func appendPoint(b []byte, p stamp.Point) []byte {
	for _, v := range [...]uint64{p.Sequence, uint64(p.Offset), p.Digest} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

func pointAt(b []byte) stamp.Point {
	return stamp.Point{
		Sequence: binary.BigEndian.Uint64(b), Offset: int64(binary.BigEndian.Uint64(b[8:])), Digest: binary.BigEndian.Uint64(b[16:]),
	}
}
