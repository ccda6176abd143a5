package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"sessiond/replay/jsonl"
)

// Record is one line, as it stands in the file.
type Record struct {
	Sequence uint64 // 0: the tail, which has none
	Offset   int64
	Size     int64  // bytes, with the line's ending
	Text     []byte // without its ending; nil where it is over the record limit; good during the call
	Content  int64  // bytes without the LF

	Type string // of the object; "" where there is none
	JSON bool   // the text is valid JSON in valid UTF-8, but for a byte-order mark
}

// Selection chooses records. The zero value is all of them, tail included.
type Selection struct {
	From, To uint64 // sequences, inclusive; 0: from the first, to the tail
	Type     string // "": any
}

// EachRecord calls yield with the records of a selection in order. It holds
// no index, and no line but the one at hand. An error of yield ends it.
func EachRecord(ctx context.Context, f File, sel Selection, opt Options, yield func(Record) error) error {
	keys := jsonl.Keys{Top: typeNames}
	lines := jsonl.NewReader(f.Source, 0, f.Size, jsonl.ReaderOptions{RecordBytesMax: opt.RecordBytesMax, Keys: keys})
	scanner := jsonl.NewScanner(keys)
	to := sel.To
	if to == 0 {
		to = math.MaxUint64
	}
	for seq := uint64(1); seq <= to; seq++ {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		line, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return changed(f, err)
		}
		if seq < sel.From || !line.Terminated && sel.To != 0 {
			continue
		}
		r := describe(line, seq, scanner)
		if sel.Type != "" && sel.Type != r.Type {
			continue
		}
		if err := yield(r); err != nil {
			return err
		}
	}
	return nil
}

// typeNames are the members that families name the type of an object by.
var typeNames = []string{"type", "event_type"}

// describe looks at a line.
func describe(line jsonl.Line, seq uint64, s *jsonl.Scanner) Record {
	r := Record{Sequence: seq, Offset: line.Offset, Size: line.Size, Content: line.Size, Text: line.Text}
	if line.Terminated {
		r.Content--
	} else {
		r.Sequence = 0
	}
	if big := line.Oversized; big != nil {
		r.JSON = big.Valid && !big.InvalidUTF8
		for _, v := range big.Top {
			if v.Kind == jsonl.String && r.Type == "" {
				r.Type = strings.ToValidUTF8(string(jsonl.AppendText(nil, v.Raw)), "")
			}
		}
		return r
	}
	r.Content = int64(len(line.Text))
	text := line.Text
	if line.Offset == 0 {
		text = bytes.TrimPrefix(text, []byte(jsonl.BOM))
	}
	scan := s.Scan(text)
	r.JSON = scan.Kind != jsonl.Invalid && scan.InvalidUTF8 < 0
	if scan.Kind == jsonl.Object {
		r.Type = typeText(text, scan.Top)
	}
	return r
}

// typeText is the text of the first of an object's members typeNames that is a
// string.
func typeText(object []byte, values []jsonl.Value) string {
	for _, v := range values {
		if v.Kind == jsonl.String {
			return strings.ToValidUTF8(string(jsonl.AppendText(nil, v.Bytes(object))), "")
		}
	}
	return ""
}
