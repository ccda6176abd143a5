package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"

	"sessiond/replay/jsonl"
	"sessiond/replay/report"
	"sessiond/wire"
	"sessiond/wire/client"
)

// On a terminal a view begins with its last messages, bounded in number and
// in bytes.
const (
	tailMessages = 200
	tailBytes    = 8 << 20
)

// textView prints a view for reading. It holds messages only while the
// beginning of a view that is to be cut short comes in.
type textView struct {
	p       *printer
	view    wire.View
	tailMax int // messages of a view to begin with; 0: all

	slots   int  // that the view has, where known
	first   int  // of the slots, of a snapshot that is bounded
	unknown bool // how many slots came before is not known
	waits   bool // the messages are kept in tail
	tail    []textMessage
	bytes   int // of tail
}

// textMessage is a message, or a record, of the view.
type textMessage struct {
	index int // -1: not known
	meta  wire.Meta
	text  []byte
	note  string
}

// holds reports whether something was taken that is not printed yet.
func (t *textView) holds() bool { return t.waits }

func (t *textView) item(item client.Item) error {
	switch f := item.(type) {
	case *wire.SnapshotBegin:
		t.first = f.Bounded.FirstSlot()
		t.slots, t.unknown = t.first, f.FirstIndex > 0
		t.tail, t.bytes = nil, 0
		t.waits = t.tailMax > 0 && !t.unknown
	case *wire.SnapshotChunk:
		return t.messages(f.Meta, f.Messages, 0)
	case *wire.SnapshotAmend:
		t.amended(f.Amendments)
	case *wire.SnapshotEnd:
		t.flushTail()
		t.slots, t.unknown = t.first+f.MessageCount, false
	case *wire.Event:
		return t.event(f)
	}
	return nil
}

func (t *textView) event(f *wire.Event) error {
	if f.Record != nil {
		t.show(textMessage{meta: wire.Meta{Sequences: []wire.Sequence{f.Cursor.Sequence}}, text: f.Record})
		return nil
	}
	if f.Keep != nil {
		t.p.linef("--- the first %d messages stand, what follows replaces the rest (%s)\n", *f.Keep, f.Reason)
		t.slots, t.unknown = *f.Keep, false
	}
	t.amended(f.Amended)
	err := t.messages(f.Meta, f.Messages, f.Cursor.Sequence)
	if f.Have != nil {
		t.slots, t.unknown = *f.Have, false
	}
	return err
}

// messages shows messages that follow those held.
func (t *textView) messages(meta, messages json.RawMessage, sequence wire.Sequence) error {
	var metas []wire.Meta
	if len(meta) > 0 {
		if err := json.Unmarshal(meta, &metas); err != nil {
			return fmt.Errorf("meta of messages: %w", err)
		}
	}
	i := 0
	for v := range jsonl.Elements(messages) {
		m := textMessage{index: t.slots, text: v.Bytes(messages)}
		if t.unknown {
			m.index = -1
		}
		switch {
		case i < len(metas):
			m.meta = metas[i]
		case sequence > 0:
			m.meta.Sequences = []wire.Sequence{sequence}
		case t.view == wire.ViewRecords && !t.unknown:
			m.meta.Sequences = []wire.Sequence{wire.Sequence(t.slots + 1)}
		}
		t.take(m)
		t.slots++
		i++
	}
	return nil
}

// amended shows messages that others replace.
func (t *textView) amended(list []wire.Amendment) {
	for _, a := range list {
		first := 0
		if len(t.tail) > 0 {
			first = t.tail[0].index
		}
		if t.waits { // not printed yet
			if i := a.Index - first; i >= 0 && i < len(t.tail) {
				t.tail[i].text = a.Message
			}
			continue
		}
		t.show(textMessage{index: a.Index, text: a.Message, note: "changed"})
	}
}

// take shows a message, or keeps it for the tail.
func (t *textView) take(m textMessage) {
	if !t.waits {
		t.show(m)
		return
	}
	m.text = append([]byte(nil), m.text...)
	t.tail = append(t.tail, m)
	t.bytes += len(m.text)
	for len(t.tail) > t.tailMax || t.bytes > tailBytes && len(t.tail) > 1 {
		t.bytes -= len(t.tail[0].text)
		t.tail[0].text = nil
		t.tail = t.tail[1:]
	}
}

func (t *textView) flushTail() {
	if !t.waits {
		return
	}
	t.waits = false
	if n := t.slots - t.first - len(t.tail); n > 0 {
		t.p.linef("%s", t.p.paint(dim, fmt.Sprintf("(%d earlier ones not shown; --all shows them)", n)))
		t.p.WriteByte('\n')
	}
	for _, m := range t.tail {
		t.show(m)
	}
	t.tail, t.bytes = nil, 0
}

// show prints a message. Its text is indented and its head is not, so that no
// text can pass for a head.
func (t *textView) show(m textMessage) {
	if t.view == wire.ViewRecords {
		t.showRecord(m)
		return
	}
	if string(m.text) == "null" { // a slot that is left out
		if m.note != "" {
			t.p.linef("--- message %d was taken out\n", m.index)
		}
		return
	}
	role := textOf(m.text, "role")
	ref := refOf(m.text)
	if ref != nil {
		role = ref.Role
	}
	if role == "" {
		role = "(no role)"
	}
	if m.index >= 0 {
		role = strconv.Itoa(m.index) + " " + role
	}
	place := ""
	if n := len(m.meta.Sequences); n > 0 {
		place = fmt.Sprintf(", record %d", m.meta.Sequences[n-1])
	}
	notes := ""
	for _, n := range m.meta.Notes {
		notes += " [" + n.Code + "]"
	}
	if m.note != "" {
		notes += " [" + m.note + "]"
	}
	t.p.linef("--- %s%s%s", t.p.paint(bold, role), place, notes)
	if ref != nil {
		t.p.linef("  (%d bytes, too large to show)", ref.Bytes)
	} else {
		t.p.indented(report.AppendProse(nil, m.text))
	}
	t.p.WriteByte('\n')
}

// showRecord prints a line of the file as inspect records does.
func (t *textView) showRecord(m textMessage) {
	sequence := "?"
	if n := len(m.meta.Sequences); n > 0 {
		sequence = strconv.FormatUint(uint64(m.meta.Sequences[0]), 10)
	}
	text := string(m.text)
	if ref := refOf(m.text); ref != nil {
		text = fmt.Sprintf("(%d bytes, too large to show)", ref.Bytes)
	} else if jsonl.Get(m.text, "malformed").Present() || jsonl.Get(m.text, "invalidUtf8").Present() {
		if b, err := base64.StdEncoding.DecodeString(textOf(m.text, "base64")); err == nil {
			text = string(b)
		}
	}
	t.p.linef("%s\t%s", sequence, text)
}

// refOf decodes what stands for an object that is too large to be sent.
func refOf(object []byte) *wire.Ref {
	v := jsonl.Get(object, "ref")
	if v.Kind != jsonl.Object || jsonl.Get(object, "type").Present() || jsonl.Get(object, "role").Present() {
		return nil
	}
	ref := new(wire.Ref)
	if json.Unmarshal(v.Bytes(object), ref) != nil || ref.Bytes == 0 {
		return nil
	}
	return ref
}

// textOf decodes a member that is a string; "" where there is none.
func textOf(object []byte, name string) string {
	v := jsonl.Get(object, name)
	if v.Kind != jsonl.String {
		return ""
	}
	return string(jsonl.AppendText(nil, v.Bytes(object)))
}
