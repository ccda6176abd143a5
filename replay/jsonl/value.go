package jsonl

import (
	"iter"
	"unicode/utf8"
)

// Kind is the kind of a JSON value.
type Kind uint8

// The kinds. Invalid is the zero value: no value, or no JSON.
const (
	Invalid Kind = iota
	Null
	False
	True
	Number
	String
	Array
	Object
)

var kindNames = [...]string{"invalid", "null", "false", "true", "number", "string", "array", "object"}

// String returns the kind's lower-case name.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return kindNames[Invalid]
}

// Value is a JSON value inside a scanned text: the half-open byte range
// [Start, End). The zero Value (Kind Invalid) means absent.
type Value struct {
	Kind       Kind
	Escaped    bool // a string with at least one backslash
	Start, End int
}

// Present reports whether there is a value.
func (v Value) Present() bool { return v.Kind != Invalid }

// Bytes returns the value's raw text in line, nil when it is absent. The
// bytes are line's own.
func (v Value) Bytes(line []byte) []byte {
	if v.Kind == Invalid {
		return nil
	}
	return line[v.Start:v.End:v.End]
}

// Plain returns the text of a string for comparisons: without a copy, and with
// what is no UTF-8 as it stands, where there are no escapes.
func (v Value) Plain(line []byte) []byte {
	if v.Escaped {
		return v.decoded(line)
	}
	return line[v.Start+1 : v.End-1]
}

// Text decodes a string; "" for any other value.
func (v Value) Text(line []byte) string {
	if v.Kind != String {
		return ""
	}
	if raw := line[v.Start+1 : v.End-1]; !v.Escaped && utf8.Valid(raw) {
		return string(raw)
	}
	return string(AppendText(nil, v.Bytes(line)))
}

// decoded is the rare part of Plain, apart so that the other is inlined.
//
//go:noinline
func (v Value) decoded(line []byte) []byte { return AppendText(nil, v.Bytes(line)) }

// Members iterates over the members of an object's text, in order and with
// duplicates: the decoded key, and the value with offsets into text. It stops
// early, without a word, where text is no valid object. It allocates, and it
// is for rare looks: what every line needs belongs in Keys.
func Members(text []byte) iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		eachMember(text, func(key, value Value) bool {
			return yield(string(keyText(nil, text[key.Start:key.End])), value)
		})
	}
}

// Elements iterates over the elements of an array's text in order, with
// offsets into text. It stops early, without a word, where text is no valid
// array.
func Elements(text []byte) iter.Seq[Value] {
	return func(yield func(Value) bool) {
		var m machine
		i := space(text, 0)
		if i >= len(text) || text[i] != '[' {
			return
		}
		if i = space(text, i+1); i < len(text) && text[i] == ']' {
			return
		}
		for {
			v := m.value(text, i, 1)
			if v.Kind == Invalid || !yield(v) {
				return
			}
			if i = space(text, v.End); i >= len(text) || text[i] != ',' {
				return
			}
			i = space(text, i+1)
		}
	}
}

// Get returns the value of an object's member, absent when there is none or
// obj is no object. The last duplicate wins.
func Get(obj []byte, key string) Value {
	var found [1]Value
	Pick(obj, []string{key}, found[:])
	return found[0]
}

// Pick is Get for several keys, which are ASCII, in one pass: values[i] is that
// of keys[i].
func Pick(obj []byte, keys []string, values []Value) {
	clear(values)
	eachMember(obj, func(k, v Value) bool {
		raw := obj[k.Start+1 : k.End-1]
		if k.Escaped { // what is no UTF-8 is equal to none of them either way
			raw = AppendText(nil, obj[k.Start:k.End])
		}
		for i, key := range keys {
			if string(raw) == key {
				values[i] = v
			}
		}
		return true
	})
}

// eachMember calls f with the key and the value of each member of an object
// until f returns false or the text stops being a valid object.
func eachMember(text []byte, f func(key, value Value) bool) {
	var m machine
	i := space(text, 0)
	if i >= len(text) || text[i] != '{' {
		return
	}
	if i = space(text, i+1); i < len(text) && text[i] == '}' {
		return
	}
	for i < len(text) && text[i] == '"' {
		k := m.value(text, i, 1)
		if k.Kind == Invalid {
			return
		}
		if i = space(text, k.End); i >= len(text) || text[i] != ':' {
			return
		}
		v := m.value(text, space(text, i+1), 1)
		if v.Kind == Invalid || !f(k, v) {
			return
		}
		if i = space(text, v.End); i >= len(text) || text[i] != ',' {
			return
		}
		i = space(text, i+1)
	}
}
