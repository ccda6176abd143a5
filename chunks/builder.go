package chunks

import (
	"sync"
	"sync/atomic"

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

	loan *loan
}

// Release says that the Body is not used any more. It need not be called, and
// may be again.
func (c Chunk) Release() {
	if c.loan != nil && c.loan.back.CompareAndSwap(false, true) {
		buffers.Put(c.loan.buf)
	}
}

// loan is a buffer of the pool that a body was read into.
type loan struct {
	buf  *[]byte
	back atomic.Bool
}

// buffers hold bodies that were read from spill.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// borrow returns a buffer of n bytes.
func borrow(n int) *loan {
	buf := buffers.Get().(*[]byte)
	if cap(*buf) < n {
		*buf = make([]byte, n)
	}
	*buf = (*buf)[:n]
	return &loan{buf: buf}
}

// sealed is what is known of a chunk without its body.
type sealed struct {
	end    Place
	digest uint64 // of the messages
	sum    uint64 // xxh64 of the body
	count  int
	size   int // of the body
}

func sealedOf(c Chunk, end Place) sealed {
	return sealed{end: end, digest: uint64(c.Digest), sum: xxhash.Sum64(c.Body), count: c.Count, size: len(c.Body)}
}

// of gives the chunk its body.
func (v sealed) of(body []byte, l *loan) Chunk {
	return Chunk{Body: body, Digest: wire.Digest(v.digest), Count: v.count, loan: l}
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
