package tree

import (
	"iter"
	"math"
	"math/bits"
	"sort"

	"sessiond/replay/pages"
)

// IDs finds entries by id hash, for dialects that link nothing.
type IDs struct{ runs idRuns }

// NewIDs returns an empty table whose lists are in a space.
func NewIDs(space *pages.Space) IDs { return IDs{newIDRuns(space)} }

// Add notes the id of an entry and returns the last one before it that has the
// same, or None; ordinals ascend.
func (x *IDs) Add(id uint64, i int32) (before int32) { return x.runs.add(id, i) }

// Last returns the last entry with the id, or None.
func (x *IDs) Last(id uint64) int32 { return x.runs.last(id) }

// All yields every entry with the id, in file order.
func (x *IDs) All(id uint64) iter.Seq[int32] { return x.runs.all(id) }

// Bytes is about the memory held.
func (x *IDs) Bytes() int64 { return x.runs.bytes() }

// idRuns maps id hashes to ordinals at about 14 bytes an entry: the newest
// ids in a small open table, the rest in sorted runs, of which sixteen of
// like length become one. A filter answers nearly all look-ups of ids that are not
// there, which is what every new entry asks.
type idRuns struct {
	space *pages.Space
	runs  []sortedRun
	fresh idTable
	seen  filters
}

// sortedRun is a run in pages.
type sortedRun struct {
	hash  pages.List[uint64] // ascending; equal hashes in file order
	at    pages.List[int32]
	every []uint64 // every markEvery-th hash, so that a look-up needs few pages

	filters uint64 // that have its ids
}

// idRun is one in memory.
type idRun struct {
	hash []uint64
	at   []int32
}

const (
	freshMax  = 1 << 15
	freshMin  = 32 // room for so many at first
	runsMerge = 16
	markEvery = 256
)

func newIDRuns(space *pages.Space) idRuns { return idRuns{space: space} }

// add notes an id and returns the highest ordinal that had it before, or None.
func (r *idRuns) add(id uint64, i int32) (before int32) {
	if r.seen.full() {
		r.grow()
	}
	before = None
	if which := r.seen.add(id); which != 0 {
		before = r.lastOf(id, which)
	}
	r.fresh.add(id, i)
	if r.fresh.full() {
		r.flush()
	}
	return before
}

// last returns the highest ordinal with the id, or None.
func (r *idRuns) last(id uint64) int32 {
	if n := len(r.fresh.order.hash); n > 0 && r.fresh.order.hash[n-1] == id { // the usual parent
		return r.fresh.order.at[n-1]
	}
	if which := r.seen.has(id); which != 0 {
		return r.lastOf(id, which)
	}
	return None
}

// lastOf is last where some filters may have the id.
func (r *idRuns) lastOf(id, which uint64) int32 {
	if i := r.fresh.last(id); i != None {
		return i
	}
	for k := len(r.runs) - 1; k >= 0; k-- {
		run := &r.runs[k]
		if run.filters&which == 0 {
			continue
		}
		if i := run.upTo(id); i > 0 && *run.hash.At(i - 1) == id {
			return *run.at.At(i - 1)
		}
	}
	return None
}

// all yields every ordinal with the id, ascending.
func (r *idRuns) all(id uint64) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		which := r.seen.has(id)
		if which == 0 {
			return
		}
		for k := range r.runs {
			run := &r.runs[k]
			if run.filters&which == 0 {
				continue
			}
			for i := run.from(id); i < run.hash.Len() && *run.hash.At(i) == id; i++ {
				if !yield(*run.at.At(i)) {
					return
				}
			}
		}
		r.fresh.all(id, yield)
	}
}

func (r *idRuns) bytes() int64 {
	total := int64(len(r.fresh.slots)*2+cap(r.fresh.order.hash)*12) + r.seen.bytes()
	for k := range r.runs {
		total += r.runs[k].hash.Bytes() + r.runs[k].at.Bytes() + int64(cap(r.runs[k].every))*8
	}
	return total
}

// flush turns fresh ids into a run and merges runs of like length.
func (r *idRuns) flush() {
	run := r.newRun()
	run.add(merge(r.fresh.order))
	run.filters = r.seen.of(r.seen.n-len(r.fresh.order.hash), r.seen.n)
	r.runs = append(r.runs, run)
	r.fresh.clear()
	for k := len(r.runs); k >= runsMerge; k = len(r.runs) {
		tail := r.runs[k-runsMerge:]
		if tail[0].hash.Len() > 2*tail[runsMerge-1].hash.Len() {
			return
		}
		joined := r.join(tail)
		clear(tail)
		r.runs = append(r.runs[:k-runsMerge], joined)
	}
}

func (r *idRuns) newRun() sortedRun {
	return sortedRun{hash: pages.New[uint64](r.space), at: pages.New[int32](r.space)}
}

func (s *sortedRun) add(run idRun) {
	n := int(s.hash.Len())
	for i := (n + markEvery - 1) / markEvery * markEvery; i < n+len(run.hash); i += markEvery {
		s.every = append(s.every, run.hash[i-n])
	}
	s.hash.Append(run.hash...)
	s.at.Append(run.at...)
}

// upTo returns how many hashes are not above one.
func (s *sortedRun) upTo(hash uint64) int32 {
	if hash == math.MaxUint64 {
		return s.hash.Len()
	}
	return s.from(hash + 1)
}

// from returns the first place whose hash is not below one.
func (s *sortedRun) from(hash uint64) int32 {
	mark := int32(sort.Search(len(s.every), func(i int) bool { return s.every[i] >= hash }))
	if mark == 0 {
		return 0
	}
	return s.below((mark-1)*markEvery, min(s.hash.Len(), mark*markEvery), hash)
}

// below returns the first place in a range whose hash is not below one, or its
// end.
func (s *sortedRun) below(from, to int32, hash uint64) int32 {
	return from + int32(sort.Search(int(to-from), func(i int) bool { return *s.hash.At(from + int32(i)) >= hash }))
}

// pieceLen is how much of a run is in memory while it is joined with others.
const pieceLen = 4096

// join makes one run of several, piece by piece: each takes from all runs what
// is below a hash that one of them has so far on.
func (r *idRuns) join(runs []sortedRun) sortedRun {
	out := r.newRun()
	for k := range runs {
		out.filters |= runs[k].filters
	}
	next := make([]int32, len(runs))
	parts := make([]idRun, len(runs))
	for {
		bound, more := uint64(math.MaxUint64), false
		for k := range runs {
			if i := next[k] + pieceLen; i < runs[k].hash.Len() {
				bound, more = min(bound, *runs[k].hash.At(i)), true
			}
		}
		for k := range runs {
			to := runs[k].hash.Len()
			if more {
				to = runs[k].below(next[k], min(to, next[k]+pieceLen), bound)
			}
			parts[k].hash = runs[k].hash.AppendTo(parts[k].hash[:0], next[k], to)
			parts[k].at = runs[k].at.AppendTo(parts[k].at[:0], next[k], to)
			next[k] = to
		}
		out.add(merge(parts...))
		if !more {
			return out
		}
		for k := range runs { // an id may have any number of repeats
			for ; next[k] < runs[k].hash.Len() && *runs[k].hash.At(next[k]) == bound; next[k]++ {
				out.add(idRun{[]uint64{bound}, []int32{*runs[k].at.At(next[k])}})
			}
		}
		r.space.Relax()
	}
}

// grow makes room for more ids: a filter of twice the size in place of a small
// one, another beside those that are large.
func (r *idRuns) grow() {
	n := r.seen.n
	if n >= filterMax {
		r.seen.list = append(r.seen.list, newFilter(filterMax))
		r.seen.room += filterMax
		return
	}
	n = min(max(2*n, freshMin), filterMax)
	r.seen = filters{list: []filter{newFilter(n)}, room: n}
	for k := range r.runs {
		for _, id := range r.runs[k].hash.All() {
			r.seen.add(id)
		}
	}
	for _, id := range r.fresh.order.hash {
		r.seen.add(id)
	}
}

// merge makes one run of several, ordered by hash, equal hashes as they come.
// Hashes are spread evenly between the lowest and the highest, so one
// distribution over buckets leaves almost nothing to sort.
func merge(runs ...idRun) idRun {
	n, low, high := 0, uint64(math.MaxUint64), uint64(0)
	for _, r := range runs {
		n += len(r.hash)
		for _, h := range r.hash {
			low, high = min(low, h), max(high, h)
		}
	}
	if n == 0 {
		return idRun{}
	}
	shift := max(bits.Len64(high-low)-min(max(bits.Len(uint(n))-bucketBits, 1), bucketsBitsMax), 0)
	next := make([]int32, (high-low)>>shift+2) // first the sizes, then where the next of each bucket goes
	for _, r := range runs {
		for _, h := range r.hash {
			next[(h-low)>>shift+1]++
		}
	}
	for i := 1; i < len(next); i++ {
		next[i] += next[i-1]
	}
	out := idRun{make([]uint64, n), make([]int32, n)}
	for _, r := range runs {
		for i, h := range r.hash {
			to := next[(h-low)>>shift]
			next[(h-low)>>shift]++
			out.hash[to], out.at[to] = h, r.at[i]
		}
	}
	from := 0
	for _, to := range next[:len(next)-1] { // now each bucket's end
		out.insertionSort(from, int(to))
		from = int(to)
	}
	return out
}

const (
	bucketBits     = 2 // of the usual size of a bucket
	bucketsBitsMax = 20
)

func (r idRun) insertionSort(from, to int) {
	if to-from > 64 { // ids chosen to collide in their top bits
		sort.Stable(part{r.hash[from:to], r.at[from:to]})
		return
	}
	for i := from + 1; i < to; i++ {
		h, at := r.hash[i], r.at[i]
		j := i
		for ; j > from && r.hash[j-1] > h; j-- {
			r.hash[j], r.at[j] = r.hash[j-1], r.at[j-1]
		}
		r.hash[j], r.at[j] = h, at
	}
}

type part idRun

func (p part) Len() int           { return len(p.hash) }
func (p part) Less(i, j int) bool { return p.hash[i] < p.hash[j] }
func (p part) Swap(i, j int) {
	p.hash[i], p.hash[j] = p.hash[j], p.hash[i]
	p.at[i], p.at[j] = p.at[j], p.at[i]
}

// idTable is an open table of at most freshMax ids, repeats included, that
// remembers their order.
type idTable struct {
	slots []uint16 // 1 + the last place of an id in order; 0: free
	order idRun
}

func (t *idTable) full() bool { return len(t.order.hash) == freshMax }

func (t *idTable) mask() uint64 { return uint64(len(t.slots) - 1) }

func (t *idTable) add(id uint64, at int32) {
	n := len(t.order.hash)
	t.order.hash, t.order.at = append(t.order.hash, id), append(t.order.at, at)
	if n == len(t.slots)/2 {
		t.slots = make([]uint16, 2*max(2*n, freshMin))
		for k, id := range t.order.hash {
			t.place(id, k)
		}
		return
	}
	t.place(id, n)
}

func (t *idTable) place(id uint64, k int) {
	t.slots[t.slot(id)] = uint16(k + 1)
}

// slot is the one of an id, or where it would go.
func (t *idTable) slot(id uint64) uint64 {
	i := id & t.mask()
	for t.slots[i] != 0 && t.order.hash[t.slots[i]-1] != id {
		i = (i + 1) & t.mask()
	}
	return i
}

func (t *idTable) last(id uint64) int32 {
	if len(t.order.hash) == 0 {
		return None
	}
	if k := t.slots[t.slot(id)]; k > 0 {
		return t.order.at[k-1]
	}
	return None
}

func (t *idTable) all(id uint64, yield func(int32) bool) {
	if t.last(id) == None {
		return
	}
	for i, h := range t.order.hash {
		if h == id && !yield(t.order.at[i]) {
			return
		}
	}
}

// clear empties the table.
func (t *idTable) clear() {
	clear(t.slots)
	t.order = idRun{t.order.hash[:0], t.order.at[:0]}
}

// filters tell of nearly all ids that were not added that they were not.
type filters struct {
	list []filter // ids go to the last; each but it has as many as it is for
	n    int      // of ids
	room int      // for so many
}

// filterMax is how many ids a filter is for at the most: one that grows takes
// the memory of both for a while.
const filterMax = 1 << 20

func (f *filters) full() bool { return f.n >= f.room }

// add adds an id and returns which filters may have had it.
func (f *filters) add(id uint64) (which uint64) {
	f.n++
	last := len(f.list) - 1
	for k, one := range f.list[:last] {
		if one.has(id) {
			which |= 1 << min(k, 63)
		}
	}
	if f.list[last].add(id) {
		which |= 1 << min(last, 63)
	}
	return which
}

// has returns which filters may have an id, the first in the lowest bit.
func (f *filters) has(id uint64) (which uint64) {
	for k, one := range f.list {
		if one.has(id) {
			which |= 1 << min(k, 63)
		}
	}
	return which
}

// of returns the filters that have the ids of a range, by when they were added.
func (f *filters) of(from, to int) (which uint64) {
	for k := from / filterMax; k <= (to-1)/filterMax; k++ {
		which |= 1 << min(k, 63)
	}
	return which
}

func (f *filters) bytes() int64 { return int64(f.room) / idsPerBlock * blockWords * 8 }

// filter is a Bloom filter that keeps an id's bits in one block of the size of
// a cache line, at 16 bits an id.
type filter struct{ blocks [][blockWords]uint64 }

const (
	blockWords  = 8
	idsPerBlock = 32
	bitsPerID   = 6
)

func newFilter(ids int) filter { return filter{make([][blockWords]uint64, ids/idsPerBlock)} }

// block is the one of an id, by its top bits; the bits within it are those of
// a product, so that they do not follow from the block.
func (f filter) block(id uint64) (block *[blockWords]uint64, mix uint64) {
	at, _ := bits.Mul64(id, uint64(len(f.blocks)))
	return &f.blocks[at], id * 0x9e37_79b9_7f4a_7c15 >> 8
}

// add adds an id and reports whether it may have been there.
func (f filter) add(id uint64) (had bool) {
	block, mix := f.block(id)
	all := uint64(1)
	for range bitsPerID { // without branches, which nobody could foretell
		word := &block[mix>>6&7]
		all &= *word >> (mix & 63)
		*word |= 1 << (mix & 63)
		mix >>= 9
	}
	return all != 0
}

func (f filter) has(id uint64) bool {
	block, mix := f.block(id)
	all := uint64(1)
	for range bitsPerID {
		all &= block[mix>>6&7] >> (mix & 63)
		mix >>= 9
	}
	return all != 0
}
