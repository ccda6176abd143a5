package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// byteSize is the value of a flag that takes a number of bytes: plain, or with
// KiB, MiB or GiB behind it.
type byteSize int64

var byteUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// String returns the shortest spelling.
func (b *byteSize) String() string {
	for _, u := range byteUnits {
		if n := int64(*b); n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(*b), 10)
}

// Set reads what String wrote, among other spellings.
func (b *byteSize) Set(s string) error {
	digits, unit := s, int64(1)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			digits, unit = rest, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is no size; want bytes, or a number with KiB, MiB or GiB", s)
	}
	if n > math.MaxInt64/unit {
		return fmt.Errorf("%q is too large", s)
	}
	*b = byteSize(n * unit)
	return nil
}

// Type is the placeholder in the help text.
func (b *byteSize) Type() string { return "bytes" }
