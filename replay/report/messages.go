package report

import (
	"context"
	"fmt"

	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
)

// Message is one message of a view.
type Message struct {
	Index    int    // among the messages, from 0
	Slot     int    // of the view: Index and those before that were taken out
	Role     string // "" where the message has none
	Sequence uint64 // of its record
	Notes    []string
	Text     []byte // JSON, valid UTF-8, without a line break; good during the call
}

// EachMessage calls yield with the messages of a view in order, as of the end
// of the file and with a provisional tail as the last entry, noted as such.
// An error of yield ends it. ErrNoMessages: the dialect is not known.
func EachMessage(ctx context.Context, f File, v dialect.View, opt Options, yield func(Message) error) error {
	r, w, err := opt.read(ctx, f.Source, f, replay.Options{})
	if err != nil {
		return err
	}
	// Before the first record is whole there is nothing to know a format by.
	if name, _ := r.Dialect(); name == replay.Unknown && r.Head().Sequence > 0 {
		return fmt.Errorf("%s: %w", f.Path, ErrNoMessages)
	}
	view, err := r.View(v)
	if err != nil {
		return changed(f, err)
	}
	amended := view.Amendments
	var buf []byte
	index := 0
	for i := range int(view.Slots.Len()) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		changedLater := len(amended) > 0 && amended[0].Index == i
		if changedLater {
			amended = amended[1:]
		}
		_, b, err := view.BodyAt(&view.Slots, i, changedLater)
		if err != nil {
			return changed(f, err)
		}
		if buf, err = dialect.AppendBody(buf[:0], b, w); err != nil {
			return changed(f, err)
		}
		if string(buf) == "null" { // an edit took it out
			continue
		}
		m := Message{Index: index, Slot: i, Role: b.Role, Sequence: b.Sequence, Notes: b.Notes, Text: buf}
		if m.Role == "" {
			m.Role, _ = member(buf, "role")
		}
		if err := yield(m); err != nil {
			return err
		}
		index++
		if cap(buf) > bufferBytesMax {
			buf = nil
		}
	}
	return nil
}

// bufferBytesMax is how large a buffer is kept for the next message.
const bufferBytesMax = 4 << 20

// member decodes a member that is a string.
func member(object []byte, name string) (string, bool) {
	v := jsonl.Get(object, name)
	if v.Kind != jsonl.String {
		return "", false
	}
	return string(jsonl.AppendText(nil, v.Bytes(object))), true
}
