package kv

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sessiond/replay/stamp"
)

func TestValues_RoundTrip(t *testing.T) {
	b, err := encodeSignature(signature(7))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeSignature(b); err != nil || got != signature(7) {
		t.Errorf("signature: got %+v, %v, want %+v", got, err, signature(7))
	}
	if b, err = encodeListing(listing(7)); err != nil {
		t.Fatal(err)
	}
	got, err := decodeListing(b)
	if diff := cmp.Diff(listing(7), got); err != nil || diff != "" {
		t.Errorf("listing: %v (-want +got):\n%s", err, diff)
	}
	for _, want := range []View{sampleView(7, 0), sampleView(7, 1), {}} {
		if b, err = encodeView(want); err != nil {
			t.Fatal(err)
		}
		got, err := decodeView(b)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("view: %v (-want +got):\n%s", err, diff)
		}
	}
	if b, err = encodeTombstone(tombstone(7)); err != nil {
		t.Fatal(err)
	}
	if got, err := decodeTombstone(b); err != nil || got != tombstone(7) {
		t.Errorf("tombstone: got %+v, %v, want %+v", got, err, tombstone(7))
	}
	for _, n := range []int{0, 1, 5} {
		if b, err = encodeCheckpoints(checkpoints(n)); err != nil {
			t.Fatal(err)
		}
		got, err := decodeCheckpoints(b)
		if diff := cmp.Diff(checkpoints(n), got); err != nil || diff != "" {
			t.Errorf("%d checkpoints: %v (-want +got):\n%s", n, err, diff)
		}
	}
}

func TestSignature_TextTooLong(t *testing.T) {
	s := signature(1)
	s.Dialect = strings.Repeat("d", textBytesMax)
	s.Rules = strings.Repeat("r", textBytesMax)
	b, err := encodeSignature(s)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeSignature(b); err != nil || got != s {
		t.Errorf("longest texts: got %+v, %v", got, err)
	}
	s.Rules += "r"
	if _, err := encodeSignature(s); err == nil {
		t.Error("rules revision of 256 bytes: got no error")
	}
}

// Version 1 had no flags byte.
func TestSignature_VersionOne(t *testing.T) {
	want := signature(3)
	b, err := encodeSignature(want)
	if err != nil {
		t.Fatal(err)
	}
	old := slices.Concat([]byte{signatureVersionOne}, b[1:signatureFixedBytes], b[signatureFixedBytes+1:])
	want.Trusted = false
	if got, err := decodeSignature(old); err != nil || got != want {
		t.Errorf("version 1: got %+v, %v, want %+v", got, err, want)
	}
	for name, bad := range map[string][]byte{
		"version 3":          patched(b, 0, signatureVersion^3),
		"version 1 as 2":     slices.Concat([]byte{signatureVersion}, old[1:]),
		"version 2 as 1":     slices.Concat([]byte{signatureVersionOne}, b[1:]),
		"a flag not yet set": patched(b, signatureFixedBytes, 1<<1),
		"nothing but a head": old[:signatureFixedBytes],
	} {
		if got, err := decodeSignature(bad); !errors.Is(err, errBadValue) {
			t.Errorf("%s: got %+v, %v, want %v", name, got, err, errBadValue)
		}
	}
}

// A value that is cut anywhere is bad, but for a view's data, which has no
// length: there the checksum tells.
func TestValues_CutAnywhere(t *testing.T) {
	v := sampleView(3, 1)
	b, err := encodeView(v)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(b) - len(v.Data) {
		if _, err := decodeView(b[:n]); !errors.Is(err, errBadValue) {
			t.Errorf("view cut to %d: got %v, want %v", n, err, errBadValue)
		}
	}
	if b, err = encodeTombstone(tombstone(3)); err != nil {
		t.Fatal(err)
	}
	for n := range b {
		if _, err := decodeTombstone(b[:n]); !errors.Is(err, errBadValue) {
			t.Errorf("tombstone cut to %d: got %v, want %v", n, err, errBadValue)
		}
	}
	for _, v := range []View{
		{Target: -1},
		{Chunks: -1},
		{Bytes: -1},
		{At: stamp.Point{Offset: -1}},
		{Segments: []string{strings.Repeat("s", textBytesMax+1)}},
		{Segments: make([]string, segmentsMax+1)},
	} {
		if _, err := encodeView(v); err == nil {
			t.Errorf("view %+.60v: got no error", v)
		}
	}
}

// A flip anywhere, and a value in another's place, is no value.
func TestUnseal_EveryFlip(t *testing.T) {
	payload, err := encodeSignature(signature(3))
	if err != nil {
		t.Fatal(err)
	}
	stored := seal(bucketSignatures, []byte("k"), payload)
	if got, err := unseal(bucketSignatures, []byte("k"), stored); err != nil || !bytes.Equal(got, payload[:len(payload):len(payload)]) {
		t.Fatalf("got %x, %v, want %x", got, err, payload)
	}
	for at := range stored {
		for bit := range 8 {
			if _, err := unseal(bucketSignatures, []byte("k"), patched(stored, at, 1<<bit)); !errors.Is(err, errBadValue) {
				t.Errorf("bit %d of byte %d: got %v, want %v", bit, at, err, errBadValue)
			}
		}
	}
	for n := range stored {
		if _, err := unseal(bucketSignatures, []byte("k"), stored[:n]); !errors.Is(err, errBadValue) {
			t.Errorf("cut to %d: got %v, want %v", n, err, errBadValue)
		}
	}
	if _, err := unseal(bucketSignatures, []byte("l"), stored); !errors.Is(err, errBadValue) {
		t.Errorf("under another key: got %v, want %v", err, errBadValue)
	}
	if _, err := unseal(bucketListings, []byte("k"), stored); !errors.Is(err, errBadValue) {
		t.Errorf("in another bucket: got %v, want %v", err, errBadValue)
	}
}

func FuzzValue(f *testing.F) {
	for _, encode := range []func() ([]byte, error){
		func() ([]byte, error) { return encodeSignature(signature(3)) },
		func() ([]byte, error) { return encodeListing(listing(3)) },
		func() ([]byte, error) { return encodeCheckpoints(checkpoints(3)) },
		func() ([]byte, error) { return encodeView(sampleView(3, 1)) },
		func() ([]byte, error) { return encodeTombstone(tombstone(3)) },
	} {
		b, err := encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(seal(bucketSignatures, []byte("key"), b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if payload, err := unseal(bucketSignatures, []byte("key"), b); err == nil {
			if !bytes.Equal(seal(bucketSignatures, []byte("key"), bytes.Clone(payload)), b) {
				t.Errorf("sealed value %x is not what seal makes of %x", b, payload)
			}
		}
		if s, err := decodeSignature(b); err == nil {
			again, err := encodeSignature(s)
			if b[0] == signatureVersionOne && err == nil {
				again = slices.Concat([]byte{signatureVersionOne}, again[1:signatureFixedBytes], again[signatureFixedBytes+1:])
			}
			if err != nil || !bytes.Equal(again, b) {
				t.Errorf("signature %+v: encoded again %x, %v, want %x", s, again, err, b)
			}
		}
		if c, err := decodeCheckpoints(b); err == nil {
			if again, err := encodeCheckpoints(c); err != nil || !bytes.Equal(again, b) {
				t.Errorf("checkpoints: encoded again %x, %v, want %x", again, err, b)
			}
		}
		if v, err := decodeView(b); err == nil {
			if again, err := encodeView(v); err != nil || !bytes.Equal(again, b) {
				t.Errorf("view %+v: encoded again %x, %v, want %x", v, again, err, b)
			}
		}
		if s, err := decodeTombstone(b); err == nil {
			if again, err := encodeTombstone(s); err != nil || !bytes.Equal(again, b) {
				t.Errorf("tombstone %+v: encoded again %x, %v, want %x", s, again, err, b)
			}
		}
		if l, err := decodeListing(b); err == nil {
			again, err := encodeListing(l)
			if err != nil {
				t.Fatalf("listing %+v: %v", l, err)
			}
			if _, err := decodeListing(again); err != nil {
				t.Errorf("listing %s: %v", again, err)
			}
		}
	})
}
