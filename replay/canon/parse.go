package canon

import (
	"bytes"
	"fmt"

	"sessiond/replay/jsonl"
)

// node is a value or a key of a text, in the order of the text: what is in a
// container follows it directly, in an object as key, value, key, value.
type node struct {
	kind       jsonl.Kind
	start, end int // bytes, a string's with its quotes
	next       int // index of the first node that is not part of this one
}

// parse takes a text apart into w.nodes, one flat slice whatever the nesting:
// nothing here recurses.
func (w *hasher) parse(text []byte) error {
	// After this check the code below may rely on the form of the text.
	if scan := w.scanner.Scan(text); scan.Kind == jsonl.Invalid {
		return fmt.Errorf("%w: wrong at byte %d of %d", ErrInvalid, scan.ErrOffset, len(text))
	}
	nodes, open := w.nodes[:0], w.open[:0]
	for i := 0; i < len(text); {
		switch c := text[i]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
			i++
		case '{', '[':
			kind := jsonl.Object
			if c == '[' {
				kind = jsonl.Array
			}
			open = append(open, len(nodes))
			nodes = append(nodes, node{kind: kind, start: i})
			i++
		case '}', ']':
			i++
			n := &nodes[open[len(open)-1]]
			n.end, n.next = i, len(nodes)
			open = open[:len(open)-1]
		default:
			kind, end := scalar(text, i)
			nodes = append(nodes, node{kind: kind, start: i, end: end, next: len(nodes) + 1})
			i = end
		}
	}
	w.nodes, w.open = nodes, open
	return nil
}

// scalar returns the kind and the end of the string, number or word at i.
func scalar(text []byte, i int) (jsonl.Kind, int) {
	switch text[i] {
	case '"':
		return jsonl.String, stringEnd(text, i)
	case 'n':
		return jsonl.Null, i + len("null")
	case 't':
		return jsonl.True, i + len("true")
	case 'f':
		return jsonl.False, i + len("false")
	}
	end := i + 1
	for end < len(text) && isNumberByte(text[end]) {
		end++
	}
	return jsonl.Number, end
}

// stringEnd returns the index after the closing quote of the string at i.
func stringEnd(text []byte, i int) int {
	for i++; ; {
		i += bytes.IndexByte(text[i:], '"')
		slashes := 0
		for text[i-1-slashes] == '\\' {
			slashes++
		}
		i++
		if slashes%2 == 0 {
			return i
		}
	}
}

func isNumberByte(c byte) bool {
	return '0' <= c && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-'
}
