package client

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/cespare/xxhash/v2"

	"sessiond/wire"
)

// BenchmarkReceive measures what an Attachment does with a frame: framing,
// decoding, verification.
func BenchmarkReceive(b *testing.B) {
	body := bytes.Repeat([]byte(`{"type":"message","text":"some text of a usual length, again and again"}`+"\n"), 7000)
	b.Run("raw", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		a := &Attachment{track: newTracker(wire.ViewRecords, true, "", Place{})}
		sum := xxhash.New()
		var cur wire.Cursor
		for b.Loop() {
			_, _ = sum.Write(body)
			r := wire.Records{First: cur.Sequence + 1, Count: 7000, Bytes: len(body)}
			cur = wire.Cursor{Sequence: cur.Sequence + 7000, Offset: cur.Offset + int64(len(body)), Digest: wire.Digest(sum.Sum64())}
			r.Cursor = cur
			if _, err := a.accept(&Records{Records: r}, body); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("chunk", func(b *testing.B) {
		messages := append([]byte{'['}, bytes.ReplaceAll(body[:len(body)-1], []byte("\n"), []byte(","))...)
		messages = append(messages, ']')
		line, err := wire.AppendLine(nil, wire.SnapshotChunk{
			Type: wire.TypeSnapshotChunk, Digest: wire.Digest(xxhash.Sum64(messages)), Meta: json.RawMessage("[]"), Messages: messages,
		})
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(line)))
		in := bytes.NewReader(line)
		frames := wire.NewFrameReader(in, readBufferBytes, 1<<20)
		for b.Loop() {
			in.Reset(line)
			frame, err := frames.ReadFrame()
			if err != nil {
				b.Fatal(err)
			}
			item, _, err := decodeItem(frame)
			if err != nil {
				b.Fatal(err)
			}
			a := &Attachment{track: newTracker(wire.ViewTranscript, false, "", Place{Position: &wire.Position{}})}
			if got, err := a.accept(item, nil); err != nil || got == nil {
				b.Fatal(err)
			}
		}
	})
}
