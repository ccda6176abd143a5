package kv

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
			if again, err := encodeSignature(s); err != nil || !bytes.Equal(again, b) {
				t.Errorf("signature %+v: encoded again %x, %v, want %x", s, again, err, b)
			}
		}
		if c, err := decodeCheckpoints(b); err == nil {
			if again, err := encodeCheckpoints(c); err != nil || !bytes.Equal(again, b) {
				t.Errorf("checkpoints: encoded again %x, %v, want %x", again, err, b)
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
