package stamp

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// pointAt is the true point before an offset.
func pointAt(data []byte, offset int) Point {
	return Point{
		Sequence: uint64(bytes.Count(data[:offset], []byte("\n"))), Offset: int64(offset), Digest: xxhash.Sum64(data[:offset]),
	}
}

func checkpointAt(data []byte, offset int) Checkpoint {
	d := NewDigest()
	_, _ = d.Write(data[:offset])
	return Checkpoint{pointAt(data, offset), d.State()}
}

func TestDigest_SavedAnywhereGoesOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "data")
		at := rapid.IntRange(0, len(data)).Draw(t, "at")
		d := NewDigest()
		_, _ = d.Write(data[:at])
		saved, clone := d.State(), d.Clone()
		_, _ = d.Write([]byte("elsewhere"))
		resumed, err := saved.Resume()
		if err != nil {
			t.Fatal(err)
		}
		for name, d := range map[string]*Digest{"resumed": resumed, "cloned": clone} {
			if _, _ = d.Write(data[at:]); d.Sum64() != xxhash.Sum64(data) {
				t.Fatalf("%s at %d: got %x, want %x", name, at, d.Sum64(), xxhash.Sum64(data))
			}
		}
	})
	if got := NewDigest().Sum64(); got != Start.Digest {
		t.Errorf("digest of nothing: got %x, want %x", got, Start.Digest)
	}
	if _, err := State("nonsense").Resume(); err == nil {
		t.Error("a state that is none was resumed")
	}
}

func TestVerify(t *testing.T) {
	data := []byte("one\ntwo\n\nfour\nfive\nsix")
	edit := func(p Point, f func(*Point)) Point { f(&p); return p }
	for _, tc := range []struct {
		name  string
		point Point
		want  error
	}{
		{"start", Start, nil},
		{"first record", pointAt(data, 4), nil},
		{"blank record", pointAt(data, 9), nil},
		{"last record", pointAt(data, 19), nil},
		{"inside a record", pointAt(data, 6), ErrMismatch},
		{"the tail", pointAt(data, len(data)), ErrMismatch},
		{"beyond the end", edit(pointAt(data, 19), func(p *Point) { p.Offset = 100 }), ErrMismatch},
		{"far beyond the end", edit(pointAt(data, 19), func(p *Point) { p.Offset = 1 << 62 }), ErrMismatch},
		{"before the start", edit(pointAt(data, 4), func(p *Point) { p.Offset = -4 }), ErrMismatch},
		{"too many records", edit(pointAt(data, 19), func(p *Point) { p.Sequence++ }), ErrMismatch},
		{"too few records", edit(pointAt(data, 19), func(p *Point) { p.Sequence-- }), ErrMismatch},
		{"no records", edit(pointAt(data, 19), func(p *Point) { p.Sequence = 0 }), ErrMismatch},
		{"other content", edit(pointAt(data, 19), func(p *Point) { p.Digest++ }), ErrMismatch},
		{"records before the start", edit(Start, func(p *Point) { p.Sequence = 1 }), ErrMismatch},
		{"zero", Point{}, ErrMismatch},
	} {
		for name, c := range map[string]Checkpoints{
			"no checkpoints": nil,
			"checkpoints":    {checkpointAt(data, 4), checkpointAt(data, 9), checkpointAt(data, 14)},
			"one that lies":  {{Point: pointAt(data, 4), State: State("nonsense")}},
		} {
			d, _, err := Verify(bytes.NewReader(data), c, tc.point)
			if !errors.Is(err, tc.want) {
				t.Errorf("%s, %s: got %v, want %v", tc.name, name, err, tc.want)
			}
			if tc.want == nil && (d == nil || d.Sum64() != tc.point.Digest) {
				t.Errorf("%s, %s: no digest there", tc.name, name)
			}
		}
	}
}

type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

func TestVerify_ReadErrorIsNoMismatch(t *testing.T) {
	failure := errors.New("bad sector")
	_, _, err := Verify(failing{failure}, nil, Point{Sequence: 1, Offset: 4})
	if !errors.Is(err, failure) || errors.Is(err, ErrMismatch) {
		t.Errorf("got %v, want %v", err, failure)
	}
}

func TestVerify_ReadsFromTheNearestCheckpoint(t *testing.T) {
	data := bytes.Repeat([]byte("a line\n"), 100_000)
	c := Checkpoints{checkpointAt(data, 70_000), checkpointAt(data, 350_000)}
	for _, tc := range []struct {
		offset int
		want   int64
	}{
		{0, 0}, {7, 7}, {70_000, 0}, {70_007, 7}, {349_993, 279_993}, {350_000, 0}, {len(data), 350_000},
	} {
		_, read, err := Verify(bytes.NewReader(data), c, pointAt(data, tc.offset))
		if err != nil || read != tc.want {
			t.Errorf("offset %d: read %d bytes, %v; want %d", tc.offset, read, err, tc.want)
		}
	}
}

func TestAdvance(t *testing.T) {
	data := []byte("one\ntwo\n")
	for _, tc := range []struct {
		name     string
		from, to int64
		lfs      uint64
		last     byte
		err      error
	}{
		{"nothing", 3, 3, 0, 0, nil},
		{"a record", 0, 4, 1, '\n', nil},
		{"part of one", 1, 3, 0, 'e', nil},
		{"all", 0, 8, 2, '\n', nil},
		{"too much", 0, 9, 0, 0, io.ErrUnexpectedEOF},
	} {
		d := NewDigest()
		_, _ = d.Write(data[:tc.from])
		lfs, last, err := Advance(bytes.NewReader(data), d, tc.from, tc.to)
		if lfs != tc.lfs || last != tc.last || !errors.Is(err, tc.err) {
			t.Errorf("%s: got %d LFs, last %q, %v", tc.name, lfs, last, err)
		}
		if err == nil && d.Sum64() != xxhash.Sum64(data[:tc.to]) {
			t.Errorf("%s: the digest is another", tc.name)
		}
	}
}

func encode(t testing.TB, c Checkpoints) []byte {
	t.Helper()
	var b []byte
	for _, one := range c {
		var err error
		if b, err = one.AppendBinary(b); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func TestParseCheckpoints(t *testing.T) {
	data := []byte("one\ntwo\n\nfour\n")
	good := Checkpoints{checkpointAt(data, 4), checkpointAt(data, 9)}
	b := encode(t, good)
	got, err := ParseCheckpoints(b)
	if diff := cmp.Diff(good, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err := ParseCheckpoints(nil); len(got) != 0 || err != nil {
		t.Errorf("nothing: got %v %v", got, err)
	}
	for size := 1; size < len(b); size++ {
		if size != len(b)/2 { // one of the two
			if got, err := ParseCheckpoints(b[:size]); err == nil {
				t.Errorf("cut after %d bytes: got %v", size, got)
			}
		}
	}
	one, two := checkpointAt(data, 4), checkpointAt(data, 9)
	negative, digest, sequence := one, one, two
	negative.Offset, digest.Digest, sequence.Sequence = -4, 1, 1
	for name, c := range map[string]Checkpoints{
		"twice the same":      {one, one},
		"out of order":        {two, one},
		"records go back":     {one, sequence},
		"at the start":        {checkpointAt(data, 0)},
		"negative offset":     {negative},
		"digest of something": {digest},
	} {
		if got, err := ParseCheckpoints(encode(t, c)); err == nil {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func FuzzParseCheckpoints(f *testing.F) {
	data := []byte("one\ntwo\n\nfour\n")
	f.Add([]byte{})
	f.Add(encode(f, Checkpoints{checkpointAt(data, 4)}))
	f.Add(encode(f, Checkpoints{checkpointAt(data, 4), checkpointAt(data, 14)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseCheckpoints(b)
		if err != nil {
			return
		}
		if again := encode(t, c); !bytes.Equal(again, b) {
			t.Errorf("got %x, want %x", again, b)
		}
		for _, p := range c {
			at, d := c.Before(p.Offset)
			if at != p.Point || d.Sum64() != p.Digest {
				t.Errorf("Before(%d): got %+v, want %+v", p.Offset, at, p.Point)
			}
		}
	})
}
