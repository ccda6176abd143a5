package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"sessiond/replay"
	"sessiond/replay/jsonl"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

// rawBodyBytes is how much of the file one raw body carries at most.
const rawBodyBytes = 1 << 20

// rawBuffers are given back when a body was written.
var rawBuffers = sync.Pool{New: func() any { b := make([]byte, rawBodyBytes); return &b }}

// nextBody makes the next raw body behind the place.
func (st *stream) nextBody() (wire.Frame, bool, error) {
	end := st.seam.Offset
	if st.seamed {
		end = st.g.replay.Head().Offset
	}
	if st.at.Offset+st.split >= end {
		return wire.Frame{}, false, nil
	}
	return st.bodyFrame(end, !st.seamed)
}

// bodyFrame sends whole records up to end, a record's end, or a part of one
// that is larger than a body.
func (st *stream) bodyFrame(end int64, replayed bool) (wire.Frame, bool, error) {
	from := st.at.Offset + st.split
	pooled := rawBuffers.Get().(*[]byte)
	release := func() { rawBuffers.Put(pooled) }
	n := min(end-from, int64(st.bodyMax))
	p := (*pooled)[:n]
	if err := readFull(st.g.content, p, from); err != nil {
		release()
		return wire.Frame{}, false, err
	}
	if last := bytes.LastIndexByte(p, '\n'); last >= 0 {
		p = p[:last+1]
	}
	_, _ = st.digest.Write(p) // never fails
	h := wire.Records{
		Type: wire.TypeRecords, Attachment: st.attachment, First: wire.Sequence(st.at.Sequence + 1),
		Count: int64(bytes.Count(p, []byte{'\n'})), Bytes: len(p), Replayed: replayed,
	}
	if h.Count > 0 {
		st.at = stamp.Point{Sequence: st.at.Sequence + uint64(h.Count), Offset: from + int64(len(p)), Digest: st.digest.Sum64()}
		st.split = 0
	} else {
		st.split += int64(len(p))
		h.More = true
	}
	h.Cursor = st.g.cursor(st.at)
	f, err := line(h)
	if err != nil {
		release()
		return wire.Frame{}, false, err
	}
	f.Body, f.Release = p, release
	return f, true, nil
}

// nextRecord makes the event of the next record.
func (st *stream) nextRecord() (wire.Frame, bool, error) {
	head := st.g.replay.Head()
	end := head.Offset
	if !st.seamed {
		end = st.seam.Offset
	}
	if st.at.Offset >= end {
		return wire.Frame{}, false, nil
	}
	r := st.records(head.Offset)
	n, err := r.size()
	if err != nil {
		return wire.Frame{}, false, err
	}
	l := jsonl.Line{Offset: st.at.Offset, Size: n, Terminated: true}
	if n <= wire.InlineBytes+2 {
		text, err := r.read(n)
		if err != nil {
			return wire.Frame{}, false, err
		}
		l.Text = bytes.TrimSuffix(text[:n-1], []byte{'\r'})
	} else {
		l.Oversized = &jsonl.Oversized{}
	}
	record, err := appendRecord([]byte(`"record":`), l, wire.Sequence(st.at.Sequence+1), jsonl.NewScanner(jsonl.Keys{}), st.g.content)
	if err != nil {
		return wire.Frame{}, false, err
	}
	if st.at, err = r.skip(); err != nil {
		return wire.Frame{}, false, err
	}
	if st.at.Offset == head.Offset && st.at != head {
		return wire.Frame{}, false, fmt.Errorf("engine: record %d: %w", st.at.Sequence, stamp.ErrMismatch)
	}
	e := wire.Event{
		Type: wire.TypeEvent, Attachment: st.attachment, ActiveSessionID: st.id,
		Cursor: st.g.cursor(st.at), Replayed: !st.seamed,
	}
	if st.at == head {
		if e.State, err = st.stateIfChanged(); err != nil {
			return wire.Frame{}, false, err
		}
	}
	f, err := open(e, record)
	return f, err == nil, err
}

// records returns the reader at the stream's place, with the head as it is
// now as its end.
func (st *stream) records(end int64) *recordReader {
	if st.reader == nil || st.reader.at != st.at {
		st.reader = newRecordReader(st.g.content, st.at, st.digest, end)
	}
	st.reader.end = end
	return st.reader
}

// provisional shows the unterminated last line where it is a whole object.
func (st *stream) provisional() (wire.Frame, bool, error) {
	if !st.seamed {
		return wire.Frame{}, false, nil
	}
	t := st.g.replay.Tail()
	if t.State != replay.TailProvisional || t.Offset != st.at.Offset {
		return wire.Frame{}, false, nil
	}
	seen := tailSeen{t.Offset, t.Bytes}
	if seen == st.tail {
		return wire.Frame{}, false, nil
	}
	st.tail = seen
	p := wire.Provisional{
		Type: wire.TypeProvisional, Attachment: st.attachment, ActiveSessionID: st.id, Bytes: t.Bytes,
	}
	if t.Bytes > wire.InlineBytes {
		f, err := line(p)
		return f, err == nil, err
	}
	if st.view != wire.ViewRecords {
		return st.provisionalDelta(p)
	}
	text, err := st.window.Bytes(t.Offset, int(t.Bytes))
	if errors.Is(err, io.ErrUnexpectedEOF) { // it was taken back
		return wire.Frame{}, false, nil
	}
	if err != nil {
		return wire.Frame{}, false, err
	}
	record := appendText([]byte(`"record":`), text, jsonl.NewScanner(jsonl.Keys{}))
	if len(record) > wire.InlineBytes { // in base64
		f, err := line(p)
		return f, err == nil, err
	}
	f, err := open(p, record)
	return f, err == nil, err
}

func (st *stream) provisionalDelta(p wire.Provisional) (wire.Frame, bool, error) {
	preview, ok, err := st.g.replay.Preview(viewOf(st.view), st.window)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return wire.Frame{}, false, nil
	}
	if err != nil {
		return wire.Frame{}, false, err
	}
	if !ok {
		f, err := line(p)
		return f, err == nil, err
	}
	if preview.Cut.Keep < st.have {
		p.Keep = &preview.Cut.Keep
	}
	meta, messages := []byte(`"meta":[`), []byte(`],"messages":[`)
	if preview.Body != nil {
		meta = appendMeta(meta, *preview.Body)
		if messages, err = appendMessage(messages, preview.Slot, *preview.Body, st.window); err != nil {
			return wire.Frame{}, false, err
		}
	}
	f, err := open(p, append(append(meta, messages...), ']'))
	return f, err == nil, err
}
