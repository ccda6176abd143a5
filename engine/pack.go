package engine

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/cespare/xxhash/v2"

	"sessiond/chunks"
	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

// windows are used again, so that a stream that waits holds no buffer.
var windows = sync.Pool{New: func() any { return dialect.NewWindow(nil) }}

// messagePacker packs the slots of a message view.
type messagePacker struct {
	replay.Bodies
	replay  *replay.Replay
	view    dialect.View
	cut     stamp.Point
	slots   dialect.Slots // at the cut
	first   int           // of the slots that are packed; a place counts from here
	log     *viewLog
	logCuts int // of the log when the snapshot began
	src     io.ReaderAt
	meta    []byte
}

// packer returns what packs a view of the generation.
func (g *generation) packer(v snapshotView, view dialect.View) *messagePacker {
	return &messagePacker{Bodies: v.Bodies, replay: v.replay, view: view, cut: v.cut, slots: v.slots, first: v.bounded.FirstSlot(), src: g.content}
}

func (p *messagePacker) reset(src io.ReaderAt) { p.src = src }

// clone returns a packer of the same for another goroutine.
func (p *messagePacker) clone() *messagePacker {
	q := *p
	q.meta = nil
	return &q
}

// Before implements chunks.Source.
func (p *messagePacker) Before(at chunks.Place) bool { return p.first+at.Slot < int(p.slots.Len()) }

// Pack implements chunks.Source.
func (p *messagePacker) Pack(ctx context.Context, b *chunks.Builder, from chunks.Place) (chunks.Place, bool, error) {
	next, err := p.pack(ctx, b, p.first+from.Slot)
	return chunks.Place{Slot: next - p.first}, next == int(p.slots.Len()), err
}

// pack returns the first slot that b has no room for.
func (p *messagePacker) pack(ctx context.Context, b *chunks.Builder, from int) (next int, err error) {
	w := windows.Get().(*dialect.Window)
	defer windows.Put(w)
	w.Reset(p.src)
	n := int(p.slots.Len())
	for i := from; i < n; i++ {
		if i%256 == 0 && ctx.Err() != nil {
			return from, ctx.Err()
		}
		slot, body, err := p.BodyAt(&p.slots, i, false)
		if err != nil {
			return from, err
		}
		buf := b.Begin()
		start := len(buf)
		if buf, err = appendMessage(buf, slot, body, w); err != nil {
			return from, err
		}
		p.meta = appendMeta(p.meta[:0], body)
		if !b.End(buf, p.meta) {
			p.log.fedUpTo(p.logCuts, from, i)
			return i, nil
		}
		if message := buf[start:]; dialect.MayPair(message) {
			p.log.feed(p.logCuts, from, i, body.Sequence, message)
		}
	}
	p.log.fedUpTo(p.logCuts, from, n)
	return n, nil
}

// unanswered lists the calls of the slots that are packed that have no result.
func (p *messagePacker) unanswered(ctx context.Context) ([]dialect.Unanswered, error) {
	if list, ok := p.log.unanswered(p.logCuts, int(p.slots.Len())); ok {
		return list, nil
	}
	var pairs dialect.Pairs // the log is behind this cut, or before it
	w := windows.Get().(*dialect.Window)
	defer windows.Put(w)
	w.Reset(p.src)
	var buf []byte
	for i := p.first; i < int(p.slots.Len()); i++ {
		if i%256 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		slot, body, err := p.BodyAt(&p.slots, i, false)
		if err != nil {
			return nil, err
		}
		if buf, err = appendMessage(buf[:0], slot, body, w); err != nil {
			return nil, err
		}
		pairs.Add(body.Sequence, buf)
	}
	return pairs.List(), nil
}

// appendMessage appends a slot's message, or a ref where that is over the
// inline limit.
func appendMessage(dst []byte, slot dialect.Slot, b dialect.Body, w *dialect.Window) ([]byte, error) {
	part := int(slot.Part)
	if b.Render == nil && b.Bytes > wire.InlineBytes && !b.Fix {
		sum, err := sumBody(w.Source(), b.Offset, b.Bytes)
		if err != nil {
			return dst, err
		}
		return appendRef(dst, wire.Ref{
			Sequence: wire.Sequence(b.Sequence), Part: part, Bytes: b.Bytes, Digest: sum, Role: roleOf(b, w),
		})
	}
	if b.Bytes > wire.InlineBytes {
		rendering.Lock()
		defer rendering.Unlock()
	}
	start := len(dst)
	dst, err := dialect.AppendBody(dst, b, w)
	if err != nil || len(dst)-start <= wire.InlineBytes {
		return dst, err
	}
	message := dst[start:]
	ref := wire.Ref{
		Sequence: wire.Sequence(b.Sequence), Part: part, Bytes: int64(len(message)),
		Digest: wire.Digest(xxhash.Sum64(message)), Role: messageRole(message),
	}
	return appendRef(dst[:start], ref)
}

func appendRef(dst []byte, r wire.Ref) ([]byte, error) {
	b, err := json.Marshal(struct {
		Ref wire.Ref `json:"ref"`
	}{r})
	return append(dst, b...), err
}

// rolePrefixBytes is how much of a large message is looked at for its role,
// which writers put first.
const rolePrefixBytes = 4 << 10

// roleOf reads the role of a large message, of all of it only where the
// beginning does not tell.
func roleOf(b dialect.Body, w *dialect.Window) string {
	m, err := w.Bytes(b.Offset, int(min(b.Bytes, rolePrefixBytes)))
	if err != nil {
		return ""
	}
	if jsonl.Get(m, "role").Present() {
		return messageRole(m)
	}
	rendering.Lock()
	defer rendering.Unlock()
	if m, err = w.Bytes(b.Offset, int(b.Bytes)); err != nil {
		return ""
	}
	return messageRole(m)
}

// rendering is held by whoever makes a message over the inline limit in
// memory: one at a time, however many clients ask.
var rendering sync.Mutex

func messageRole(m []byte) string {
	const most = 64
	role := jsonl.Get(m, "role").Text(m)
	if len(role) > most {
		return ""
	}
	return role
}

func sumBody(src io.ReaderAt, off, n int64) (wire.Digest, error) {
	d := xxhash.New()
	if got, err := io.Copy(d, io.NewSectionReader(src, off, n)); err != nil || got < n {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return 0, fmt.Errorf("engine: reading %d bytes at offset %d: %w", n, off, err)
	}
	return wire.Digest(d.Sum64()), nil
}

// appendMeta appends a message's meta entry.
func appendMeta(dst []byte, b dialect.Body) []byte {
	dst = append(dst, `{"sequences":[`...)
	dst = strconv.AppendUint(dst, b.Sequence, 10)
	dst = append(dst, ']')
	for i, note := range b.Notes {
		if i == 0 {
			dst = append(dst, `,"notes":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"code":"`...)
		dst = append(dst, note...)
		dst = append(dst, `"}`...)
	}
	if len(b.Notes) > 0 {
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// recordPacker packs lines, verbatim where they are JSON and UTF-8.
type recordPacker struct {
	src  io.ReaderAt
	cut  stamp.Point
	meta []byte
}

// Before implements chunks.Source.
func (p *recordPacker) Before(at chunks.Place) bool { return at.Offset < p.cut.Offset }

// Pack implements chunks.Source.
func (p *recordPacker) Pack(ctx context.Context, b *chunks.Builder, from chunks.Place) (chunks.Place, bool, error) {
	lines := jsonl.NewReader(p.src, from.Offset, p.cut.Offset, jsonl.ReaderOptions{
		BufferBytes: 256 << 10, RecordBytesMax: wire.InlineBytes,
	})
	scan := jsonl.NewScanner(jsonl.Keys{})
	for at := from; ; {
		if err := ctx.Err(); err != nil {
			return from, false, err
		}
		l, err := lines.Next()
		if err == io.EOF { //nolint:errorlint // as it is documented
			return at, true, nil
		}
		if err != nil {
			return from, false, err
		}
		buf, err := appendRecord(b.Begin(), l, wire.Sequence(at.Sequence+1), scan, p.src)
		if err != nil {
			return from, false, err
		}
		p.meta = appendMeta(p.meta[:0], dialect.Body{Sequence: at.Sequence + 1})
		if !b.End(buf, p.meta) {
			return at, false, nil
		}
		at = chunks.Place{Offset: l.Offset + l.Size, Sequence: at.Sequence + 1}
	}
}

// appendRecord appends a line as JSON: itself, or its bytes in base64, or a
// ref where that is over the inline limit.
func appendRecord(dst []byte, l jsonl.Line, seq wire.Sequence, scan *jsonl.Scanner, src io.ReaderAt) ([]byte, error) {
	start := len(dst)
	if l.Oversized == nil {
		if dst = appendText(dst, l.Text, scan); len(dst)-start <= wire.InlineBytes {
			return dst, nil
		}
	}
	n := l.Size
	if l.Terminated {
		n--
	}
	sum, err := sumBody(src, l.Offset, n)
	if err != nil {
		return dst, err
	}
	return appendRef(dst[:start], wire.Ref{Sequence: seq, Bytes: n, Digest: sum})
}

func appendText(dst, text []byte, scan *jsonl.Scanner) []byte {
	found := scan.Scan(text)
	flag := "malformed"
	if found.Kind != jsonl.Invalid {
		if found.InvalidUTF8 < 0 {
			return append(dst, text...)
		}
		flag = "invalidUtf8"
	}
	dst = append(dst, `{"`...)
	dst = append(dst, flag...)
	dst = append(dst, `":true,"base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, text)
	return append(dst, `"}`...)
}
