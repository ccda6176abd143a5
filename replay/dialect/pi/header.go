package pi

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"sessiond/replay/dialect"
	"sessiond/replay/dialect/tree"
	"sessiond/replay/jsonl"
)

// versionMax is the newest format version that this build knows.
const versionMax = 3

// addHeader takes a record of type session. The first with a string id is
// the header wherever it stands; the first of all says the version.
func (s *Session) addHeader(o dialect.Object, top []jsonl.Value, line []byte) error {
	good := top[keyID].Kind == jsonl.String
	h := &s.header
	s.noteIndex(o.Index, tree.None)
	if h.found {
		s.report(jsonl.CodeSecondHeader, o, "the first header rules; this one is no entry")
		return nil
	}
	if !h.versionSet && o.Oversized == nil {
		version, newer := headerVersion(o.Text)
		if s.version != 0 && s.version != version && int64(s.entries.Len())+s.skipped > 0 {
			return &dialect.Restart{Hint: version}
		}
		s.version, h.versionSet = version, true
		if newer {
			s.report(jsonl.CodeNewerVersion, o, fmt.Sprintf("format version %.10g; this build knows up to %d and reads it so", writtenVersion(o.Text), versionMax))
			h.newer = true
		}
	}
	if !good {
		if !h.badID {
			h.badID, h.place = true, placeOf(o)
		}
		s.report(jsonl.CodeHeaderBadID, o, "the header has no string id; the file name stands for it")
		return nil
	}
	h.found, h.place, h.id = true, placeOf(o), idHash(line, top[keyID])
	s.lastHash = 0 // the session's id names no entry any more
	if s.entries.Len() > 0 || s.skipped > 0 {
		s.report(jsonl.CodeHeaderLate, o, "entries stand before the header")
	}
	s.noteTime(roleOther, line, top[keyTime])
	return nil
}

// headerVersion reads the version as the reference's language compares it:
// absent and null are 1, strings count as numbers, everything from 3 on or
// not comparable is read as 3.
func headerVersion(object []byte) (version int, newer bool) {
	n := writtenVersion(object)
	switch {
	case n < 2:
		return 1, false
	case n < 3:
		return 2, false
	}
	return versionMax, n > versionMax
}

// writtenVersion is the version that a header names; NaN is none.
func writtenVersion(object []byte) float64 {
	v := jsonl.Get(object, "version")
	switch v.Kind {
	case jsonl.Invalid, jsonl.Null, jsonl.True:
		return 1
	case jsonl.False:
		return 0
	case jsonl.Number:
		return number(v.Bytes(object))
	case jsonl.String:
		t, _ := text(object, v)
		if t = strings.TrimSpace(t); t == "" {
			return 0
		}
		if f, err := strconv.ParseFloat(t, 64); err == nil {
			return f
		}
	}
	return math.NaN()
}

// number parses a JSON number as a double; what overflows is infinite.
func number(raw []byte) float64 {
	f, _ := strconv.ParseFloat(string(raw), 64) // on ErrRange f is ±Inf
	return f
}

// truthy is the reference language's notion of a value that counts as set.
func truthy(line []byte, v jsonl.Value) bool {
	switch v.Kind {
	case jsonl.Invalid, jsonl.Null, jsonl.False:
		return false
	case jsonl.String:
		return v.End-v.Start > 2
	case jsonl.Number:
		return number(v.Bytes(line)) != 0
	}
	return true
}
