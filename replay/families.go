package replay

import (
	"errors"
	"fmt"
	"io"

	"sessiond/replay/dialect"
	"sessiond/replay/dialect/eventlog"
	"sessiond/replay/dialect/pi"
	"sessiond/replay/jsonl"
)

// Families are the dialects there are, in the order in which they are asked.
var Families = []dialect.Family{pi.Family{}, eventlog.Family{}}

// Unknown is the dialect name of a file that no family knows. It is served in
// view records only.
const Unknown = "unknown"

// FamilyOf finds a family by name.
func FamilyOf(name string) (dialect.Family, bool) {
	for _, f := range Families {
		if f.Name() == name {
			return f, true
		}
	}
	return nil, false
}

// FamilyOfEntries finds the family of a file by the entries that are to be its
// first.
func FamilyOfEntries(entries [][]byte) (dialect.Family, bool) {
	for n, e := range entries[:min(len(entries), detectObjects)] {
		for _, f := range Families {
			if f.Detect(n, e) {
				return f, true
			}
		}
	}
	return nil, false
}

// Bounds of detection: it looks at so many objects and bytes of a file.
const (
	detectObjects = 20
	detectBytes   = 256 << 10
)

// detect finds the family of a file by its records, and by its unterminated
// tail if that counts. final is false when the file is still too short to say
// that no family knows it.
func detect(src io.ReaderAt, size int64, opt Options) (family dialect.Family, final bool, err error) {
	scanner := jsonl.NewScanner(jsonl.Keys{Top: []string{"type"}})
	r := jsonl.NewReader(src, 0, size, jsonl.ReaderOptions{BufferBytes: 64 << 10, RecordBytesMax: opt.RecordBytesMax})
	for n := 0; n < detectObjects; {
		line, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, fmt.Errorf("replay: detect: %w", err)
		}
		if !line.Terminated && !opt.Tail {
			return nil, false, nil
		}
		for _, object := range detectable(line, scanner) {
			for _, f := range Families {
				if f.Detect(n, object) {
					return f, true, nil
				}
			}
			n++
		}
		if line.Offset+line.Size >= detectBytes {
			break
		}
	}
	return nil, true, nil
}

// detectable returns the whole objects of a line.
func detectable(line jsonl.Line, s *jsonl.Scanner) [][]byte {
	text := line.Text
	if line.Offset == 0 {
		text = trimBOM(text)
	}
	scan := s.Scan(text)
	switch {
	case scan.Kind == jsonl.Object:
		return [][]byte{scan.Value.Bytes(text)}
	case scan.Kind != jsonl.Invalid || scan.AtEnd || len(text) == 0:
		return nil
	}
	_, values := jsonl.Salvage(text, s, func(object []byte) bool {
		return jsonl.Get(object, "type").Kind == jsonl.String || jsonl.Get(object, "event_type").Kind == jsonl.String
	})
	out := make([][]byte, 0, len(values))
	for _, v := range values {
		out = append(out, v.Bytes(text))
	}
	return out
}
