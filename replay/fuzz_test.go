package replay_test

import (
	"bytes"
	"testing"

	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
)

// FuzzBuild holds a replay of any bytes to what every replay keeps: it ends,
// its counts add up, its messages are JSON, and one that grew by pieces, cut
// where cuts says, equals one that was read at once.
func FuzzBuild(f *testing.F) {
	f.Add([]byte{}, []byte{})
	f.Add(smallSession(), []byte{40, 7, 0, 255})
	f.Add(file(header(1), v1(user("a", "")), compactionAt(1), v1(user("b", ""))), []byte{3})
	f.Add(file(user("a", ""), header(2), user("a", "b"), user("b", "a")), []byte{100, 100})
	f.Add(append([]byte(jsonl.BOM), file("\x00"+user("a", "")+user("b", "a"), "", "{", "42")...), []byte{9})
	f.Add(append(file(header(3)), user("tail", "x")...), []byte{200})
	f.Add(file(`{"type":"event","n":1}`), []byte{1})
	f.Fuzz(func(t *testing.T, data, cuts []byte) {
		const recordBytesMax = 1 << 10 // so that some are over it
		opt := replay.Options{RecordBytesMax: recordBytesMax, BufferBytes: 512}
		grown := buildWith(t, nil, opt)
		size := 0
		for i, cut := range cuts {
			if size += int(cut) + 1; size >= len(data) || i == 16 {
				break
			}
			extend(t, grown, data[:size])
			for _, v := range bothViews {
				slotMessages(t, grown, data[:size], v)
			}
		}
		extend(t, grown, data)
		equalReplays(t, buildWith(t, data, opt), grown, data)

		opt.Tail = true
		summarise(t, buildWith(t, data, opt), data)
		for _, v := range bothViews {
			checkTail(t, grown, data, v)
		}
	})
}

// checkTail renders the preview of a tail, if there is one.
func checkTail(t *testing.T, r *replay.Replay, data []byte, v dialect.View) {
	t.Helper()
	w := dialect.NewWindow(bytes.NewReader(data))
	p, ok, err := r.Preview(v, w)
	if err != nil {
		t.Fatalf("Preview: %v", err)
	}
	if ok && p.Body != nil {
		render(t, *p.Body, w)
	}
	if end := r.Tail(); end.Offset != r.Head().Offset || end.Offset+end.Bytes != int64(len(data)) {
		t.Fatalf("tail: got %+v behind %+v, in %d bytes", end, r.Head(), len(data))
	}
	if _, err := r.Verify(bytes.NewReader(data), r.Head()); err != nil {
		t.Fatalf("Verify: %v", err)
	}
}
