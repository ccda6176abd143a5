package client

import (
	"encoding/json"
	"fmt"

	"sessiond/wire"
)

// Slots is a view as its items describe it: cut, replace, append. The zero
// Slots is an empty view. It belongs to one goroutine. Encoding raw has no
// slots: its items are not for Apply.
//
// Of a bounded view the slots below First are absent: what changes them is
// passed over, and a cut among them takes all that is held, so that the view
// is held from there on.
type Slots struct {
	first       int
	slots       []json.RawMessage // from first on; nil: the slot is left out
	provisional *wire.Provisional
}

// Apply takes the next item of an Attachment. An error means that the item
// does not fit the slots held; they are as before then.
func (s *Slots) Apply(item Item) error {
	switch f := item.(type) {
	case *wire.SnapshotBegin:
		if f.FirstIndex == 0 {
			*s = Slots{first: f.Bounded.FirstSlot()}
		}
	case *wire.SnapshotChunk:
		return s.change(nil, nil, f.Messages, nil)
	case *wire.SnapshotAmend:
		return s.change(nil, f.Amendments, nil, nil)
	case *wire.SnapshotEnd:
		if f.MessageCount != len(s.slots) {
			return fmt.Errorf("client: snapshot of %d slots, got %d", f.MessageCount, len(s.slots))
		}
	case *wire.Event:
		if f.Record != nil {
			s.slots, s.provisional = append(s.slots, f.Record), nil
			return nil
		}
		return s.change(f.Keep, f.Amended, f.Messages, f.Have)
	case *wire.Provisional:
		s.provisional = f
	}
	return nil
}

// change is the whole algorithm. have, where given, is the count after it.
func (s *Slots) change(keep *int, amended []wire.Amendment, messages json.RawMessage, have *int) error {
	first, stand := s.first, s.Len()
	if keep != nil {
		if *keep < 0 || *keep > stand {
			return fmt.Errorf("client: keep %d of %d slots", *keep, stand)
		}
		stand = *keep
		first = min(first, stand)
	}
	for _, m := range amended {
		if m.Index < 0 || m.Index >= stand {
			return fmt.Errorf("client: amendment of slot %d of %d", m.Index, stand)
		}
	}
	var more []json.RawMessage
	if len(messages) > 0 {
		if err := json.Unmarshal(messages, &more); err != nil {
			return fmt.Errorf("client: messages: %w", err)
		}
	}
	if have != nil && *have != stand+len(more) {
		return fmt.Errorf("client: %d slots after a change, want %d", stand+len(more), *have)
	}
	held := max(stand-s.first, 0)
	clear(s.slots[held:])
	s.first, s.slots = first, s.slots[:held]
	for _, m := range amended {
		if m.Index >= first {
			s.slots[m.Index-first] = present(m.Message)
		}
	}
	for _, m := range more {
		s.slots = append(s.slots, present(m))
	}
	s.provisional = nil
	return nil
}

// present maps JSON null to a slot that is left out.
func present(m json.RawMessage) json.RawMessage {
	if string(m) == "null" {
		return nil
	}
	return m
}

// Len is the number of slots, those left out and those below First included:
// Place.Have.
func (s *Slots) Len() int { return s.first + len(s.slots) }

// First is the first slot that is held; over 0 in a bounded view only.
func (s *Slots) First() int { return s.first }

// Messages returns the messages of all slots that are held and not left out.
func (s *Slots) Messages() []json.RawMessage {
	out := make([]json.RawMessage, 0, len(s.slots))
	for _, m := range s.slots {
		if m != nil {
			out = append(out, m)
		}
	}
	return out
}

// Provisional returns the unfinished last line to be laid over the view, nil
// where there is none.
func (s *Slots) Provisional() *wire.Provisional { return s.provisional }
