package pages

import (
	"fmt"
	"iter"
	"reflect"
	"unsafe"
)

// firstLen is the room of a list at first: most sessions are small, and a
// daemon holds many.
const firstLen = 32

// List is a list of plain values. The zero value is an empty one in memory. A
// copy is the list as it was then.
type List[T any] struct {
	space *Space
	pages []*page
	n     int32
	shift uint8 // of an ordinal, to its page

	tail  []T   // the last page
	first int32 // ordinal of its first element
}

// New returns an empty list. T must have bytes, and hold no pointers.
func New[T any](s *Space) List[T] {
	if t := reflect.TypeFor[T](); !plain(t) || t.Size() == 0 {
		panic(fmt.Sprintf("pages: %v holds pointers or nothing", t))
	}
	return List[T]{space: s}
}

// plain reports whether values of a type are nothing but their bytes.
func plain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return plain(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !plain(t.Field(i).Type) {
				return false
			}
		}
		return true
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return true
	}
	return false
}

func sizeOf[T any]() uintptr {
	var zero T
	return unsafe.Sizeof(zero)
}

// Len is the number of elements.
func (l *List[T]) Len() int32 { return l.n }

// At returns an element, to be read.
func (l *List[T]) At(i int32) *T {
	if k := i - l.first; k >= 0 {
		return &l.tail[k]
	}
	return l.old(i, false)
}

// Mut returns an element, to be changed.
func (l *List[T]) Mut(i int32) *T {
	if k := i - l.first; k >= 0 {
		return &l.tail[k]
	}
	return l.old(i, true)
}

// old returns an element of a page that is full.
func (l *List[T]) old(i int32, change bool) *T {
	pg := l.pages[i>>l.shift]
	mem := pg.mem.Load()
	if mem == nil {
		mem = pg.fault()
	}
	if !pg.used.Load() {
		pg.used.Store(true)
	}
	if change && !pg.dirty.Load() {
		pg.dirty.Store(true)
		// What evict has taken between the two is this very page: nobody
		// else evicts pages of a space that is locked.
	}
	k := uintptr(i) & (1<<l.shift - 1)
	return (*T)(unsafe.Add(unsafe.Pointer(mem), k*sizeOf[T]()))
}

// Get is At for those who are not to panic.
func (l *List[T]) Get(i int32) (v T, err error) {
	defer Catch(&err)
	return *l.At(i), nil
}

// Add appends a zero element, to be filled in place, and returns its ordinal.
func (l *List[T]) Add() (int32, *T) {
	i := l.n
	k := int(i - l.first)
	if k == len(l.tail) {
		k = l.room(i, k)
	}
	l.n++
	return i, &l.tail[k]
}

// room makes room for element i, which is the k-th of the last page.
func (l *List[T]) room(i int32, k int) int {
	if l.n == 0 {
		l.shift = l.space.shift(sizeOf[T]())
	}
	full := 1 << l.shift
	if k > 0 && k < full { // only the first page grows
		grown := make([]T, min(2*k, full))
		copy(grown, l.tail)
		l.tail = grown
		l.pages[len(l.pages)-1].resize(raw(grown))
		return k
	}
	size := full
	if len(l.pages) == 0 {
		size = min(firstLen, full)
	} else if k > 0 {
		l.pages[len(l.pages)-1].full()
	}
	l.tail, l.first = make([]T, size), i
	mem, bytes := raw(l.tail)
	l.pages = append(l.pages, newPage(l.space, mem, bytes))
	return 0
}

// raw is the memory of elements.
func raw[T any](list []T) (mem *byte, bytes int) {
	return (*byte)(unsafe.Pointer(unsafe.SliceData(list))), len(list) * int(sizeOf[T]())
}

// Append adds values.
func (l *List[T]) Append(values ...T) {
	for len(values) > 0 {
		k := int(l.n - l.first)
		if k == len(l.tail) {
			k = l.room(l.n, k)
		}
		n := copy(l.tail[k:], values)
		l.n, values = l.n+int32(n), values[n:]
	}
}

// AppendTo appends the elements of a range to dst.
func (l *List[T]) AppendTo(dst []T, from, to int32) []T {
	for from < to {
		end := to
		if from < l.first {
			end = min(to, (from>>l.shift+1)<<l.shift)
		}
		dst = append(dst, unsafe.Slice(l.At(from), end-from)...)
		from = end
	}
	return dst
}

// Cut leaves the first n elements. Copies of the list go on to hold what they
// held: a page that they share is not written again.
func (l *List[T]) Cut(n int32) {
	if n >= l.n {
		return
	}
	from := *l
	k := n >> l.shift
	l.pages, l.n = from.pages[:k:k], k<<l.shift // copies have the rest
	l.tail, l.first = nil, l.n
	for i := l.n; i < n; i++ {
		l.Append(*from.At(i))
	}
}

// First returns the list of the first n elements, to be read.
func (l *List[T]) First(n int32) List[T] {
	out := *l
	out.n = min(n, l.n)
	return out
}

// All yields the elements in order.
func (l *List[T]) All() iter.Seq2[int32, T] {
	return func(yield func(int32, T) bool) {
		for i := range l.n {
			if !yield(i, *l.At(i)) {
				return
			}
		}
	}
}

// Bytes is about the memory that the list holds at the least, however small
// the pool is: its last page and what it knows of the others, or where none
// leaves memory all of it.
func (l *List[T]) Bytes() int64 {
	n := int64(len(l.tail))
	if !l.space.leaves() {
		n += int64(l.first)
	}
	return n*int64(sizeOf[T]()) + int64(cap(l.pages))*headBytes
}

// headBytes is about what is known of a page.
const headBytes = 160
