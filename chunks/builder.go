package chunks

import (
	"github.com/cespare/xxhash/v2"

	"sessiond/wire"
)

// Place is where in a view's source the next message stands. Sources use the
// fields that they need; the zero Place is the beginning.
type Place struct {
	Slot     int    // message views
	Offset   int64  // view records
	Sequence uint64 // view records
}

// Chunk is one packed chunk.
type Chunk struct {
	Body   []byte // "meta":[...],"messages":[...]
	Digest wire.Digest
	Count  int // messages
}

const (
	metaOpen     = `"meta":[`
	messagesOpen = `],"messages":[`
)

// Builder packs one chunk.
type Builder struct {
	target   int
	meta     []byte // entries with commas
	messages []byte // the array, without its closing bracket
	size     int    // messages, meta entries and commas
	count    int
}

// Begin returns the buffer to which the next message is appended; End takes
// it back.
func (b *Builder) Begin() []byte {
	if b.count > 0 {
		return append(b.messages, ',')
	}
	return b.messages
}

// End takes the buffer with one message more and the message's meta entry. It
// reports false, and leaves the message out, when the chunk is full without
// it.
func (b *Builder) End(buf, meta []byte) bool {
	size := len(buf) - len(b.messages) + len(meta)
	if b.count > 0 {
		size++ // the comma of meta
	}
	if b.count > 0 && b.size+size > b.target {
		return false
	}
	if b.count > 0 {
		b.meta = append(b.meta, ',')
	}
	b.meta = append(b.meta, meta...)
	b.messages = buf
	b.size += size
	b.count++
	return true
}

// chunk closes what was packed.
func (b *Builder) chunk() Chunk {
	messages := append(b.messages, ']')
	body := make([]byte, 0, len(metaOpen)+len(b.meta)+len(messagesOpen)+len(messages))
	body = append(body, metaOpen...)
	body = append(body, b.meta...)
	body = append(body, messagesOpen[:len(messagesOpen)-1]...)
	body = append(body, messages...)
	return Chunk{Body: body, Digest: wire.Digest(xxhash.Sum64(messages)), Count: b.count}
}

func (b *Builder) reset(target int) {
	if cap(b.messages) < target {
		b.messages = make([]byte, 0, target+target/8)
	}
	b.target, b.meta, b.size, b.count = target, b.meta[:0], 0, 0
	b.messages = append(b.messages[:0], '[')
}
