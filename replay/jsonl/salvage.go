package jsonl

import "bytes"

const (
	// salvageStartsMax is how many places in a line are tried as the start of
	// a record.
	salvageStartsMax = 256

	// salvageWorkBytesMax bounds what those tries may read together, so that
	// a giant line made for it does not cost 256 times its length.
	salvageWorkBytesMax = 256 << 20
)

// Salvage looks for whole objects in a line that is malformed before its end:
// one for which Scan says Invalid and not AtEnd. (A record that was cut short
// and then ended fails at its end. It holds nothing to take: its last nested
// object must not become a record.) It returns what is wrong with the line and
// the objects in order, with offsets into line:
//
//	CodeNulRun           whole records with NULs before them; or NULs only,
//	                     then there is no object
//	CodeJoinedObjects    whole records, perhaps with white space between them
//	CodeFusedLine        something torn in the middle, then the last record,
//	                     which reaches the end of the line
//	CodeTrailingGarbage  whole records, then something else
//	CodeMalformedLine    nothing to take
//
// envelope says whether an object carries the dialect's full envelope; only
// such objects are taken. It may use s; what s.Scan returned before is void.
func Salvage(line []byte, s *Scanner, envelope func(obj []byte) bool) (Code, []Value) {
	whole, end, nuls := wholeObjects(line, s)
	if len(whole) == 0 && end == len(line) && nuls {
		return CodeNulRun, nil
	}
	var values []Value
	for _, v := range whole {
		if envelope(v.Bytes(line)) {
			values = append(values, v)
		}
	}
	if last := fusedObject(line, end, s, envelope); last.Present() {
		return CodeFusedLine, append(values, last)
	}
	switch {
	case len(values) == 0:
		return CodeMalformedLine, nil
	case end < len(line) || values[len(values)-1] != whole[len(whole)-1]:
		return CodeTrailingGarbage, values
	case len(values) < len(whole):
		return CodeFusedLine, values
	case nuls:
		return CodeNulRun, values
	}
	return CodeJoinedObjects, values
}

// wholeObjects returns the objects that a line starts with, with nothing but
// white space and NULs before each, where they end, white space included, and
// whether there were NULs.
func wholeObjects(line []byte, s *Scanner) (values []Value, end int, nuls bool) {
	for {
		end = space(line, end)
		start := end
		for start < len(line) && line[start] == 0 {
			start = space(line, start+1)
		}
		if start < len(line) && line[start] != '{' || start == len(line) && len(values) > 0 {
			return values, end, nuls
		}
		nuls = nuls || start > end
		if start == len(line) {
			return values, start, nuls
		}
		v := s.m.value(line, start, 0)
		if !v.Present() {
			return values, start, nuls
		}
		values = append(values, v)
		end = v.End
	}
}

// fusedObject returns the one object that reaches the end of the line behind a
// record that was torn: absent when there is none, or more than one.
//
// The torn record starts at line[at]. Everything before the place where
// scanning it fails is the beginning of some JSON, nothing after it is; so the
// record was torn, and the next one starts, at that place or before it.
// NULs may fill the gap: the room of what was never written.
//
// An object nested in the torn record is never taken. If one reached the end
// of the line, scanning the torn record would have, too. What remains are
// starts inside of what that scan took for a string, whose end was in truth
// the first quote of the next record, and the place of failure.
func fusedObject(line []byte, at int, s *Scanner, envelope func(obj []byte) bool) Value {
	if at >= len(line) || line[at] != '{' {
		return Value{}
	}
	torn := s.fail(line[at:])
	if torn.AtEnd || s.second.depth == depthMax { // too deep: what follows may be nested in it
		return Value{}
	}
	limit := at + torn.ErrOffset
	for limit < len(line)-1 && line[limit] == 0 {
		limit++
	}
	var found Value
	work := 0
	for starts := 0; starts < salvageStartsMax && work < salvageWorkBytesMax; starts++ {
		i := bytes.LastIndexByte(line[at+1:limit+1], '{') + at + 1
		if i == at {
			break
		}
		limit = i - 1
		work += len(line) - i
		v := s.m.value(line, i, 0)
		if v.Kind != Object || space(line, v.End) < len(line) || !envelope(v.Bytes(line)) {
			continue
		}
		if found.Present() {
			return Value{}
		}
		found = v
	}
	return found
}
