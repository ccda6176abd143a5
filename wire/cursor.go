package wire

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Generation is the random name of one incarnation of a session file's
// history. It is a hint that saves work, never a proof; the digest is the
// proof. The zero Generation means "not known".
type Generation [16]byte

// String returns 32 lower-case hex digits.
func (g Generation) String() string { return hex.EncodeToString(g[:]) }

// IsZero reports whether the generation is not known.
func (g Generation) IsZero() bool { return g == Generation{} }

// MarshalText implements encoding.TextMarshaler.
func (g Generation) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler; it accepts what
// ParseGeneration accepts.
func (g *Generation) UnmarshalText(b []byte) error {
	v, err := ParseGeneration(string(b))
	if err == nil {
		*g = v
	}
	return err
}

// ParseGeneration parses exactly 32 lower-case hex digits.
func ParseGeneration(s string) (Generation, error) {
	var g Generation
	if len(s) != 2*len(g) || !isLowerHex(s) {
		return Generation{}, fmt.Errorf("wire: generation %q: want 32 lower-case hex digits", clip(s))
	}
	_, err := hex.Decode(g[:], []byte(s))
	return g, err
}

// Digest is a linear xxh64 (seed 0) of all bytes of the file up to an offset.
type Digest uint64

// String returns 16 lower-case hex digits.
func (d Digest) String() string { return fmt.Sprintf("%016x", uint64(d)) }

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Digest) UnmarshalText(b []byte) error {
	v, err := ParseDigest(string(b))
	if err == nil {
		*d = v
	}
	return err
}

// ParseDigest parses exactly 16 lower-case hex digits.
func ParseDigest(s string) (Digest, error) {
	if len(s) != 16 || !isLowerHex(s) {
		return 0, fmt.Errorf("wire: digest %q: want 16 lower-case hex digits", clip(s))
	}
	v, err := strconv.ParseUint(s, 16, 64)
	return Digest(v), err
}

// Sequence counts records (LF-terminated lines) from 1; 0 is before the first.
type Sequence uint64

// Cursor is a position at a record's end that proves itself: it is valid for
// a file iff the file's first Offset bytes have this Digest and hold Sequence
// records. The zero Cursor (with any generation) is the start of every file.
type Cursor struct {
	Generation Generation `json:"generation"`
	Sequence   Sequence   `json:"sequence"`
	Offset     int64      `json:"offset"` // bytes, up to and including the record's LF
	Digest     Digest     `json:"digest"`
}

const cursorPrefix = "s1."

// String returns the text form, which ParseCursor reads back.
func (c Cursor) String() string { return cursorPrefix + c.fields() }

func (c Cursor) fields() string {
	return c.Generation.String() + "." + strconv.FormatUint(uint64(c.Sequence), 10) + "." +
		strconv.FormatInt(c.Offset, 10) + "." + c.Digest.String()
}

// Same reports whether both cursors name the same bytes, whatever their
// generation hints say.
func (c Cursor) Same(d Cursor) bool {
	return c.Sequence == d.Sequence && c.Offset == d.Offset && c.Digest == d.Digest
}

// ParseCursor parses the text form of a cursor.
func ParseCursor(s string) (Cursor, error) {
	rest, ok := strings.CutPrefix(s, cursorPrefix)
	if !ok {
		return Cursor{}, fmt.Errorf("wire: cursor %q: want the prefix %q", clip(s), cursorPrefix)
	}
	return parseCursorFields(rest, s)
}

func parseCursorFields(rest, whole string) (Cursor, error) {
	f := strings.Split(rest, ".")
	if len(f) != 4 {
		return Cursor{}, fmt.Errorf("wire: cursor %q: want generation.sequence.offset.digest", clip(whole))
	}
	var c Cursor
	var err error
	if c.Generation, err = ParseGeneration(f[0]); err != nil {
		return Cursor{}, err
	}
	n, err := parseCount(f[1])
	if err != nil {
		return Cursor{}, fmt.Errorf("wire: cursor sequence: %w", err)
	}
	off, err := parseCount(f[2])
	if err != nil {
		return Cursor{}, fmt.Errorf("wire: cursor offset: %w", err)
	}
	c.Sequence, c.Offset = Sequence(n), int64(off)
	if c.Digest, err = ParseDigest(f[3]); err != nil {
		return Cursor{}, err
	}
	return c, c.check()
}

// check refuses what no file can have: each record is at least one byte.
func (c Cursor) check() error {
	if c.Offset < 0 || uint64(c.Sequence) > uint64(c.Offset) || (c.Sequence == 0) != (c.Offset == 0) {
		return fmt.Errorf("wire: cursor of %d records in %d bytes is impossible", c.Sequence, c.Offset)
	}
	return nil
}

// UnmarshalJSON refuses impossible cursors.
func (c *Cursor) UnmarshalJSON(b []byte) error {
	type plain Cursor
	var p plain
	if err := json.Unmarshal(b, &p); err != nil {
		return fmt.Errorf("wire: cursor: %w", err)
	}
	if err := Cursor(p).check(); err != nil {
		return err
	}
	*c = Cursor(p)
	return nil
}

// SnapshotID names a snapshot by content: equal ids have equal chunks.
type SnapshotID uint64

// String returns 16 lower-case hex digits.
func (s SnapshotID) String() string { return Digest(s).String() }

// MarshalText implements encoding.TextMarshaler.
func (s SnapshotID) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *SnapshotID) UnmarshalText(b []byte) error { return (*Digest)(s).UnmarshalText(b) }

// Position is a place inside a snapshot: Index is the next chunk wanted.
type Position struct {
	SnapshotID SnapshotID `json:"snapshotId"`
	View       View       `json:"view"`
	Target     int        `json:"target"` // chunk target, bytes
	Cut        Cursor     `json:"cut"`
	Index      int        `json:"index"`
}

const positionPrefix = "p1."

// String returns the text form, which ParsePosition reads back.
func (p Position) String() string {
	return positionPrefix + p.SnapshotID.String() + "." + string(p.View) + "." +
		strconv.Itoa(p.Target) + "." + strconv.Itoa(p.Index) + "." + p.Cut.fields()
}

// ParsePosition parses the text form of a position.
func ParsePosition(s string) (Position, error) {
	rest, ok := strings.CutPrefix(s, positionPrefix)
	if !ok {
		return Position{}, fmt.Errorf("wire: position %q: want the prefix %q", clip(s), positionPrefix)
	}
	f := strings.SplitN(rest, ".", 5)
	if len(f) != 5 {
		return Position{}, fmt.Errorf("wire: position %q: want id.view.target.index.cut", clip(s))
	}
	var p Position
	id, err := ParseDigest(f[0])
	if err != nil {
		return Position{}, err
	}
	p.SnapshotID, p.View = SnapshotID(id), View(f[1])
	if !p.View.Valid() {
		return Position{}, fmt.Errorf("wire: position view %q: want records, transcript or context", clip(f[1]))
	}
	target, err := parseCount(f[2])
	if err != nil || target == 0 || target > math.MaxInt32 {
		return Position{}, fmt.Errorf("wire: position target %q: want a number of bytes", clip(f[2]))
	}
	index, err := parseCount(f[3])
	if err != nil || index > math.MaxInt32 {
		return Position{}, fmt.Errorf("wire: position index %q: want a chunk number", clip(f[3]))
	}
	p.Target, p.Index = int(target), int(index)
	p.Cut, err = parseCursorFields(f[4], s)
	return p, err
}

// UnmarshalJSON refuses what ParsePosition refuses.
func (p *Position) UnmarshalJSON(b []byte) error {
	type plain Position
	var q plain
	if err := json.Unmarshal(b, &q); err != nil {
		return fmt.Errorf("wire: position: %w", err)
	}
	v, err := ParsePosition(Position(q).String())
	if err == nil {
		*p = v
	}
	return err
}

// parseCount reads a decimal below 2^63 in its one canonical spelling.
func parseCount(s string) (uint64, error) {
	if s == "" || (len(s) > 1 && s[0] == '0') || strings.Trim(s, "0123456789") != "" {
		return 0, fmt.Errorf("%q is no plain decimal", clip(s))
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%q: %w", clip(s), strconv.ErrRange)
	}
	return n, nil
}

func isLowerHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// clip bounds hostile text in error messages; %q at the call escapes it.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
