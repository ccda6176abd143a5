package tree

import (
	"math/bits"
	"slices"
	"sort"
)

// IDs finds entries by id hash, for dialects that link nothing.
type IDs struct{ runs idRuns }

// Add notes the id of an entry; ordinals ascend.
func (x *IDs) Add(id uint64, i int32) { x.runs.add(id, i) }

// Last returns the last entry with the id, or None.
func (x *IDs) Last(id uint64) int32 { return x.runs.last(id) }

// All returns every entry with the id, in file order.
func (x *IDs) All(id uint64) []int32 { return x.runs.all(id) }

// Bytes is about the memory held.
func (x *IDs) Bytes() int64 { return x.runs.bytes() }

// idRuns maps id hashes to ordinals at about 14 bytes an entry: the newest
// ids in a small open table, the rest in sorted runs, of which sixteen of
// like length become one. A filter answers nearly all look-ups of ids that are not
// there, which is what every new entry asks.
type idRuns struct {
	runs  []idRun
	fresh idTable
	bloom filter
	n     int
}

type idRun struct {
	hash []uint64 // ascending; equal hashes in file order
	at   []int32
}

const (
	freshMax  = 4096
	freshMin  = 32 // room for so many at first
	runsMerge = 16
)

func (r *idRuns) add(id uint64, i int32) {
	if r.n++; r.n > r.bloom.room() {
		r.grow()
	}
	r.bloom.add(id)
	r.fresh.add(id, i)
	if r.fresh.full() {
		r.flush()
	}
}

// last returns the highest ordinal with the id, or None.
func (r *idRuns) last(id uint64) int32 {
	if n := len(r.fresh.order.hash); n > 0 && r.fresh.order.hash[n-1] == id { // the usual parent
		return r.fresh.order.at[n-1]
	}
	if !r.bloom.has(id) {
		return None
	}
	if i := r.fresh.last(id); i != None {
		return i
	}
	for k := len(r.runs) - 1; k >= 0; k-- {
		run := r.runs[k]
		at := sort.Search(len(run.hash), func(j int) bool { return run.hash[j] > id })
		if at > 0 && run.hash[at-1] == id {
			return run.at[at-1]
		}
	}
	return None
}

// all returns every ordinal with the id, ascending.
func (r *idRuns) all(id uint64) []int32 {
	if !r.bloom.has(id) {
		return nil
	}
	var out []int32
	for _, run := range r.runs {
		at, _ := slices.BinarySearch(run.hash, id)
		for ; at < len(run.hash) && run.hash[at] == id; at++ {
			out = append(out, run.at[at])
		}
	}
	return r.fresh.all(out, id)
}

func (r *idRuns) bytes() int64 {
	total := int64(len(r.fresh.slots)*16 + cap(r.fresh.order.hash)*12 + len(r.bloom.words)*8)
	for _, run := range r.runs {
		total += int64(cap(run.hash))*8 + int64(cap(run.at))*4
	}
	return total
}

// flush turns fresh ids into a run and merges runs of like length.
func (r *idRuns) flush() {
	r.runs = append(r.runs, merge(r.fresh.order))
	r.fresh.clear()
	for k := len(r.runs); k >= runsMerge; k = len(r.runs) {
		tail := r.runs[k-runsMerge:]
		if len(tail[0].hash) > 2*len(tail[runsMerge-1].hash) {
			return
		}
		r.runs = append(r.runs[:k-runsMerge], merge(tail...))
	}
}

func (r *idRuns) grow() {
	r.bloom = newFilter(2 * r.n)
	for _, run := range r.runs {
		for _, id := range run.hash {
			r.bloom.add(id)
		}
	}
	for _, id := range r.fresh.order.hash {
		r.bloom.add(id)
	}
}

// merge makes one run of several, ordered by hash, equal hashes as they come.
// Hashes are spread evenly, so one distribution by their top bits leaves
// almost nothing to sort.
func merge(runs ...idRun) idRun {
	n := 0
	for _, r := range runs {
		n += len(r.hash)
	}
	if n == 0 {
		return idRun{}
	}
	shift := 64 - min(max(bits.Len(uint(n))-bucketBits, 1), bucketsBitsMax)
	next := make([]int32, 1<<(64-shift)+1) // first the sizes, then where the next of each bucket goes
	for _, r := range runs {
		for _, h := range r.hash {
			next[h>>shift+1]++
		}
	}
	for i := 1; i < len(next); i++ {
		next[i] += next[i-1]
	}
	out := idRun{make([]uint64, n), make([]int32, n)}
	for _, r := range runs {
		for i, h := range r.hash {
			to := next[h>>shift]
			next[h>>shift]++
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
	slots []idSlot
	order idRun
}

type idSlot struct {
	id   uint64
	at   int32
	used bool
}

func (t *idTable) full() bool { return len(t.order.hash) == freshMax }

func (t *idTable) mask() uint64 { return uint64(len(t.slots) - 1) }

func (t *idTable) add(id uint64, at int32) {
	if n := len(t.order.hash); n == len(t.slots)/4 {
		t.slots = make([]idSlot, 4*max(2*n, freshMin))
		for k, id := range t.order.hash {
			t.place(id, t.order.at[k])
		}
	}
	t.place(id, at)
	t.order.hash, t.order.at = append(t.order.hash, id), append(t.order.at, at)
}

func (t *idTable) place(id uint64, at int32) {
	i := id & t.mask()
	for t.slots[i].used {
		i = (i + 1) & t.mask()
	}
	t.slots[i] = idSlot{id, at, true}
}

func (t *idTable) last(id uint64) int32 {
	if len(t.order.hash) == 0 {
		return None
	}
	found := None
	for i := id & t.mask(); t.slots[i].used; i = (i + 1) & t.mask() {
		if t.slots[i].id == id {
			found = max(found, t.slots[i].at)
		}
	}
	return found
}

func (t *idTable) all(out []int32, id uint64) []int32 {
	for i, h := range t.order.hash {
		if h == id {
			out = append(out, t.order.at[i])
		}
	}
	return out
}

// clear empties the table.
func (t *idTable) clear() {
	clear(t.slots)
	t.order = idRun{t.order.hash[:0], t.order.at[:0]}
}

// filter is a Bloom filter that keeps an id's four bits in one word.
type filter struct {
	words []uint64
	shift int
}

// newFilter has room for n ids at 16 bits each.
func newFilter(n int) filter {
	size := bits.Len(uint(max(n, freshMin) / 4))
	return filter{make([]uint64, 1<<size), 64 - size}
}

func (f filter) room() int { return len(f.words) * 4 }

func (f filter) mask(id uint64) uint64 {
	return 1<<(id&63) | 1<<(id>>6&63) | 1<<(id>>12&63) | 1<<(id>>18&63)
}

func (f filter) add(id uint64) { f.words[id>>f.shift] |= f.mask(id) }

func (f filter) has(id uint64) bool {
	if len(f.words) == 0 {
		return false
	}
	m := f.mask(id)
	return f.words[id>>f.shift]&m == m
}
