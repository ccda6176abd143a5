package client

import (
	"bytes"
	"encoding/json"
	"io"

	"sessiond/wire"
)

// receive reads one frame; nil, nil means that it is not for the caller.
func (a *Attachment) receive() (Item, error) {
	line, err := a.link.read()
	if err != nil {
		return nil, err
	}
	item, attachment, err := decodeItem(line)
	if err != nil {
		return nil, a.track.corrupt("a frame does not decode: %v", err)
	}
	var body []byte
	if r, ok := item.(*Records); ok {
		line = bytes.Clone(line) // reading the body reuses its buffer
		if body, err = a.readBody(r.Bytes); err != nil {
			return nil, err
		}
	}
	if item == nil || attachment != a.name {
		return nil, nil
	}
	item, err = a.accept(item, body)
	if item != nil && a.ao.OnFrame != nil {
		if r, ok := item.(*Records); ok {
			body = r.Body
		}
		a.ao.OnFrame(line, body)
	}
	return item, err
}

// readBody reads the raw bytes that follow a frame.
func (a *Attachment) readBody(n int) ([]byte, error) {
	if n < 0 || n > wire.FrameBytesMax {
		return nil, a.track.corrupt("a raw body of %d bytes", n)
	}
	if cap(a.body) < n {
		a.body = make([]byte, n)
	}
	body := a.body[:n]
	if err := a.link.frames.ReadBody(body); err != nil {
		return nil, broken(err)
	}
	return body, nil
}

// accept checks an item against the place and advances it. It returns nil for
// what the caller has already.
func (a *Attachment) accept(item Item, body []byte) (Item, error) {
	t := a.track
	var err error
	var seen bool
	switch f := item.(type) {
	case *wire.SnapshotBegin:
		seen, err = t.begin(f)
	case *wire.SnapshotChunk:
		err = t.chunk(f)
	case *wire.SnapshotAmend:
		err = t.inSnapshot(f.SnapshotID)
	case *wire.SnapshotEnd:
		err = t.end(f)
	case *wire.SnapshotFailed:
		t.restart()
		a.failed = snapshotError(f)
	case *wire.Event:
		err = t.event(f)
	case *Records:
		f.Body, err = t.records(&f.Records, body)
		seen = len(f.Body) == 0
	case *wire.Live:
		err = t.live(f)
		if err == nil && a.ao.Once {
			a.end()
		}
	case *wire.Removed:
		a.end()
	}
	if err != nil || seen {
		return nil, err
	}
	return item, nil
}

// end is the regular end: the item in hand is the last.
func (a *Attachment) end() {
	a.over = io.EOF
	a.disconnect()
}

// snapshotError is what a failed snapshot means for the attachment: nil where
// the daemon begins another by itself.
func snapshotError(f *wire.SnapshotFailed) error {
	switch {
	case f.Error == nil:
		return wire.Errorf(wire.CodeInternal, "the snapshot failed: %.200q", f.ErrorMessage)
	case f.Error.Code == wire.CodeSuperseded:
		return nil
	}
	return f.Error
}

// decodeItem decodes a frame of an attachment. Types that this build does not
// know give no item.
func decodeItem(line []byte) (item Item, attachment string, err error) {
	switch wire.FrameType(line) {
	case wire.TypeSnapshotBegin:
		f, err := decode[wire.SnapshotBegin](line)
		return f, f.Attachment, err
	case wire.TypeSnapshotChunk:
		f, err := decodeChunk(line)
		return f, f.Attachment, err
	case wire.TypeSnapshotAmend:
		f, err := decode[wire.SnapshotAmend](line)
		return f, f.Attachment, err
	case wire.TypeSnapshotEnd:
		f, err := decode[wire.SnapshotEnd](line)
		return f, f.Attachment, err
	case wire.TypeSnapshotFailed:
		f, err := decode[wire.SnapshotFailed](line)
		return f, f.Attachment, err
	case wire.TypeEvent:
		f, err := decode[wire.Event](line)
		return f, f.Attachment, err
	case wire.TypeRecords:
		f, err := decode[wire.Records](line)
		return &Records{Records: *f}, f.Attachment, err
	case wire.TypeProvisional:
		f, err := decode[wire.Provisional](line)
		return f, f.Attachment, err
	case wire.TypeLive:
		f, err := decode[wire.Live](line)
		return f, f.Attachment, err
	case wire.TypeRemoved:
		f, err := decode[wire.Removed](line)
		return f, f.Attachment, err
	}
	return nil, "", nil
}

func decode[T any](line []byte) (*T, error) {
	f := new(T)
	return f, json.Unmarshal(line, f)
}

// decodeChunk cuts the messages out instead of decoding them: they are most
// of what an attachment receives, and the digest vouches for them.
func decodeChunk(line []byte) (*wire.SnapshotChunk, error) {
	head, messages, ok := wire.CutLast(line, "messages")
	if !ok {
		return decode[wire.SnapshotChunk](line)
	}
	f, err := decode[wire.SnapshotChunk](head)
	f.Messages = bytes.Clone(messages)
	return f, err
}
