package kv

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
)

// The parts of bbolt's file format that check reads. Numbers are in the
// machine's byte order.
const (
	metaMagic    = 0xED0CDAED
	metaVersion  = 2
	metaBytes    = 64 // the last 8 are the FNV-1a of those before
	headerBytes  = 16 // of a page: id 8, flags 2, count 2, overflow pages 4
	elementBytes = 16 // of a branch page: pos 4, key size 4, page id 8; of a leaf page: flags 4, pos 4, key size 4, value size 4
	bucketBytes  = 16 // of a bucket in a leaf: root page id 8, sequence 8
	idBytes      = 8

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketFlag   = 0x01
	manyIDs      = 0xFFFF // page count that says: the first id is the count

	pageBytesMin = 1 << 10
	pageBytesMax = 64 << 10
	depthMax     = 32
)

var order = binary.NativeEndian

// meta is a valid meta page.
type meta struct {
	pageBytes             int64
	root, freelist, pages uint64 // pages is the high-water mark
	txid                  uint64
}

// page is a page of the tree with its overflow, or a bucket that lies inside a
// value.
type page struct {
	at, bytes    int64 // in the file
	flags, count uint16
	data         []byte // the first bytes, with all elements
}

// checker walks the pages of a closed database with plain reads.
type checker struct {
	r    io.ReaderAt
	meta meta
	seen []uint64             // bit set of page ids that are in use
	bufs [depthMax + 1][]byte // one for each level of the tree
}

// check reports whether bbolt can work with the file: it is as long as its
// meta page says, its tree and freelist name existing pages of the right kind,
// each once, and its keys are in order. Values have checksums.
//
// bbolt's own Check is no substitute: it works on the mapped file from a
// goroutine of its own, where no fault can be caught, and a tree with a cycle
// overflows the stack, which nothing can catch. For the same reason a database
// without a stored freelist is refused: bbolt rebuilds it on such a goroutine.
func check(r io.ReaderAt, size int64) error {
	m, err := readMeta(r, size)
	if err != nil {
		return err
	}
	if m.pages > uint64(size/m.pageBytes) {
		return fmt.Errorf("%w: %d bytes, want at least %d pages of %d", ErrDamaged, size, m.pages, m.pageBytes)
	}
	c := &checker{r: r, meta: m, seen: make([]uint64, m.pages/64+1)}
	if err := c.walk(m.root, keyRange{}, 0); err != nil {
		return err
	}
	return c.freelist()
}

// readMeta returns the meta page that bbolt will use: the valid one with the
// higher transaction.
func readMeta(r io.ReaderAt, size int64) (meta, error) {
	best, err := metaAt(r, 0)
	if err == nil {
		if second, err := metaAt(r, best.pageBytes); err == nil && second.txid > best.txid {
			best = second
		}
		return best, nil
	}
	for at := int64(pageBytesMin); at <= pageBytesMax && at < size; at *= 2 {
		if m, err := metaAt(r, at); err == nil && m.pageBytes == at {
			return m, nil
		}
	}
	return meta{}, err
}

func metaAt(r io.ReaderAt, at int64) (meta, error) {
	var b [metaBytes]byte
	if _, err := r.ReadAt(b[:], at+headerBytes); err != nil {
		return meta{}, fmt.Errorf("%w: meta page at %d: %w", ErrDamaged, at, err)
	}
	if magic, version := order.Uint32(b[:]), order.Uint32(b[4:]); magic != metaMagic || version != metaVersion {
		return meta{}, fmt.Errorf("%w: meta page at %d: magic %08x, version %d", ErrDamaged, at, magic, version)
	}
	h := fnv.New64a()
	h.Write(b[:metaBytes-8])
	if got, want := h.Sum64(), order.Uint64(b[metaBytes-8:]); got != want {
		return meta{}, fmt.Errorf("%w: meta page at %d: checksum %016x, want %016x", ErrDamaged, at, got, want)
	}
	m := meta{
		pageBytes: int64(order.Uint32(b[8:])), root: order.Uint64(b[16:]), freelist: order.Uint64(b[32:]),
		pages: order.Uint64(b[40:]), txid: order.Uint64(b[48:]),
	}
	if p := m.pageBytes; p < pageBytesMin || p > pageBytesMax || p&(p-1) != 0 {
		return meta{}, fmt.Errorf("%w: meta page at %d: page size %d", ErrDamaged, at, p)
	}
	return m, nil
}

// page reads a page into the buffer of a level and claims it and its overflow.
func (c *checker) page(id uint64, depth int) (page, error) {
	if id < 2 || id >= c.meta.pages || depth > depthMax {
		return page{}, fmt.Errorf("%w: page %d at level %d, want 2 to %d, at most %d", ErrDamaged, id, depth, c.meta.pages-1, depthMax)
	}
	if c.bufs[depth] == nil {
		c.bufs[depth] = make([]byte, c.meta.pageBytes)
	}
	b := c.bufs[depth]
	p := page{at: int64(id) * c.meta.pageBytes, data: b}
	if _, err := c.r.ReadAt(b, p.at); err != nil {
		return page{}, fmt.Errorf("%w: page %d: %w", ErrDamaged, id, err)
	}
	if got := order.Uint64(b); got != id {
		return page{}, fmt.Errorf("%w: page %d calls itself %d", ErrDamaged, id, got)
	}
	p.flags, p.count = order.Uint16(b[8:]), order.Uint16(b[10:])
	last := id + uint64(order.Uint32(b[12:]))
	if last >= c.meta.pages {
		return page{}, fmt.Errorf("%w: page %d reaches to %d, want at most %d", ErrDamaged, id, last, c.meta.pages-1)
	}
	p.bytes = int64(last-id+1) * c.meta.pageBytes
	for ; id <= last; id++ {
		if err := c.claim(id); err != nil {
			return page{}, err
		}
	}
	return p, nil
}

// claim marks a page as used; the second use is a cycle or a page that would
// be overwritten.
func (c *checker) claim(id uint64) error {
	if c.seen[id/64]&(1<<(id%64)) != 0 {
		return fmt.Errorf("%w: page %d is used twice", ErrDamaged, id)
	}
	c.seen[id/64] |= 1 << (id % 64)
	return nil
}

// part returns bytes [from, from+n) of a page, which are inside it.
func (c *checker) part(p page, from, n int64) ([]byte, error) {
	if from < 0 || n < 0 || n > p.bytes-from {
		return nil, fmt.Errorf("%w: page at %d of %d bytes holds [%d, +%d)", ErrDamaged, p.at, p.bytes, from, n)
	}
	if from+n <= int64(len(p.data)) {
		return p.data[from : from+n], nil
	}
	b := make([]byte, n)
	if _, err := c.r.ReadAt(b, p.at+from); err != nil {
		return nil, fmt.Errorf("%w: page at %d: %w", ErrDamaged, p.at, err)
	}
	return b, nil
}

// keyRange is where a node's keys are: from min on, below max; nil is open.
type keyRange struct{ min, max []byte }

// walk checks a node of the tree and all below it.
func (c *checker) walk(id uint64, keys keyRange, depth int) error {
	p, err := c.page(id, depth)
	if err != nil {
		return err
	}
	switch {
	case p.flags == branchPage && p.count > 0:
		return c.branch(p, keys, depth)
	case p.flags == leafPage:
		return c.leaf(p, keys, depth)
	}
	return fmt.Errorf("%w: page %d is no node: flags %x, %d items", ErrDamaged, id, p.flags, p.count)
}

func (c *checker) branch(p page, keys keyRange, depth int) error {
	elements, err := c.part(p, headerBytes, int64(p.count)*elementBytes)
	if err != nil {
		return err
	}
	var child uint64
	below := keyRange{min: keys.min}
	for at := int64(0); at < int64(len(elements)); at += elementBytes {
		e := elements[at:]
		key, err := c.key(p, headerBytes+at+int64(order.Uint32(e)), order.Uint32(e[4:]), keyRange{below.min, keys.max}, at == 0)
		if err != nil {
			return err
		}
		if at > 0 {
			below.max = key
			if err := c.walk(child, below, depth+1); err != nil {
				return err
			}
		}
		below.min, child = key, order.Uint64(e[8:])
	}
	below.max = keys.max
	return c.walk(child, below, depth+1)
}

func (c *checker) leaf(p page, keys keyRange, depth int) error {
	elements, err := c.part(p, headerBytes, int64(p.count)*elementBytes)
	if err != nil {
		return err
	}
	for at := int64(0); at < int64(len(elements)); at += elementBytes {
		e := elements[at:]
		flags, from, keyBytes, valueBytes := order.Uint32(e), headerBytes+at+int64(order.Uint32(e[4:])), order.Uint32(e[8:]), order.Uint32(e[12:])
		if keys.min, err = c.key(p, from, keyBytes, keys, at == 0); err != nil {
			return err
		}
		value := page{at: p.at + from + int64(keyBytes), bytes: int64(valueBytes)}
		if end := value.at + value.bytes; end > p.at+p.bytes {
			return fmt.Errorf("%w: page at %d of %d bytes has a value that ends at %d", ErrDamaged, p.at, p.bytes, end)
		}
		if flags&bucketFlag != 0 {
			if err := c.bucket(value, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// key returns a key of a node after a look at its place and its order: above
// keys.min, where the first of a node may equal it, and below keys.max.
func (c *checker) key(p page, from int64, keyBytes uint32, keys keyRange, first bool) ([]byte, error) {
	if keyBytes == 0 || keyBytes > keyBytesMax || from < headerBytes+int64(p.count)*elementBytes {
		return nil, fmt.Errorf("%w: page at %d has a key of %d bytes at %d", ErrDamaged, p.at, keyBytes, from)
	}
	key, err := c.part(p, from, int64(keyBytes))
	if err != nil {
		return nil, err
	}
	if d := bytes.Compare(key, keys.min); d < 0 || d == 0 && !first || keys.max != nil && bytes.Compare(key, keys.max) >= 0 {
		return nil, fmt.Errorf("%w: page at %d has keys out of order", ErrDamaged, p.at)
	}
	return key, nil
}

// bucket checks what a value says of a bucket: the page of its root, or, of a
// small one, all of it.
func (c *checker) bucket(value page, depth int) error {
	head, err := c.part(value, 0, bucketBytes)
	if err != nil {
		return err
	}
	if root := order.Uint64(head); root != 0 {
		return c.walk(root, keyRange{}, depth)
	}
	inline := page{at: value.at + bucketBytes, bytes: value.bytes - bucketBytes}
	if inline.data, err = c.part(inline, 0, inline.bytes); err != nil {
		return err
	}
	if inline.bytes < headerBytes || order.Uint16(inline.data[8:]) != leafPage {
		return fmt.Errorf("%w: bucket at %d is no leaf", ErrDamaged, value.at)
	}
	if inline.flags, inline.count = leafPage, order.Uint16(inline.data[10:]); depth > depthMax {
		return fmt.Errorf("%w: bucket at %d lies too deep", ErrDamaged, value.at)
	}
	return c.leaf(inline, keyRange{}, depth)
}

// freelist checks that no free page is in use or free twice.
func (c *checker) freelist() error {
	p, err := c.page(c.meta.freelist, 0)
	if err != nil {
		return err
	}
	if p.flags != freelistPage {
		return fmt.Errorf("%w: page at %d is no freelist: flags %x", ErrDamaged, p.at, p.flags)
	}
	n, from := uint64(p.count), int64(headerBytes)
	if n == manyIDs {
		n, from = order.Uint64(p.data[headerBytes:]), headerBytes+idBytes
	}
	if n > c.meta.pages {
		return fmt.Errorf("%w: %d free pages, want at most %d", ErrDamaged, n, c.meta.pages)
	}
	ids, err := c.part(p, from, int64(n)*idBytes)
	if err != nil {
		return err
	}
	for ; len(ids) > 0; ids = ids[idBytes:] {
		id := order.Uint64(ids)
		if id < 2 || id >= c.meta.pages {
			return fmt.Errorf("%w: free page %d, want 2 to %d", ErrDamaged, id, c.meta.pages-1)
		}
		if err := c.claim(id); err != nil {
			return err
		}
	}
	return nil
}
