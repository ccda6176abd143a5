package report

import (
	"cmp"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
)

const (
	// namesMax bounds the names that a table counts apart, nameBytesMax their
	// length; a file of nothing but new names must not cost memory.
	namesMax     = 256
	nameBytesMax = 256
	otherNames   = "(other)"

	// openCallsMax is how many calls may wait for their result at least
	// before the oldest are given up as unanswered.
	openCallsMax = 1 << 15
)

// tally counts what Summary has of the objects of a file.
type tally struct {
	types, roles names
	unknown      int64
	calls        callTable
	tools        Tools
	usage        Usage
	first, last  time.Time
}

func newTally() *tally {
	return &tally{types: names{count: map[string]int64{}}, roles: names{count: map[string]int64{}}, calls: callTable{young: map[uint64]int64{}}}
}

// add counts the objects of one record.
func (t *tally) add(r replay.Record) {
	for _, o := range r.Objects {
		if r.Family == nil {
			t.unknown++
			t.types.add(typeOf(o.Text))
			continue
		}
		t.object(r.Family.Facts(o), func() bool { return stored(r.Family, o) })
	}
}

// stored reports whether the entry stands in the file already, byte for byte
// as long: the same record, written twice.
func stored(s dialect.Session, o dialect.Object) bool {
	if !o.Again {
		return false
	}
	_, held, _ := s.Held(o.Text, 1)
	return len(held) > 0 && held[0].Offset < o.Offset && held[0].Bytes == o.Bytes
}

// object counts one object; what a response did and cost counts once, however
// often its record was written.
func (t *tally) object(f dialect.Facts, again func() bool) {
	t.types.add(f.Type)
	if !f.Known {
		t.unknown++
	}
	if f.Role != "" {
		t.roles.add(f.Role)
	}
	t.time(f.Time)
	if len(f.Calls)+len(f.Results) == 0 && f.Usage == nil || again() {
		return
	}
	for _, c := range f.Calls {
		t.tools.Calls++
		t.calls.open(c.ID)
	}
	for _, id := range f.Results {
		t.tools.Results++
		if !t.calls.answer(id) {
			t.tools.OrphanResults++
		}
	}
	if f.Usage != nil {
		t.usage.add(f.Usage)
	}
}

func (u *Usage) add(v *dialect.Usage) {
	u.Responses++
	u.Input += v.Input
	u.Output += v.Output
	u.CacheRead += v.CacheRead
	u.CacheWrite += v.CacheWrite
	u.Reasoning += v.Reasoning
	if v.HasCost {
		if u.CostMicroUSD == nil {
			u.CostMicroUSD = new(int64)
		}
		*u.CostMicroUSD += v.CostMicroUSD
	}
}

func (t *tally) time(at time.Time) {
	if at.IsZero() || at.Before(timeMin) || !at.Before(timeEnd) {
		return
	}
	if t.first.IsZero() || at.Before(t.first) {
		t.first = at
	}
	if at.After(t.last) {
		t.last = at
	}
}

// The times that are believed: of years with four digits, from 1970 on.
var (
	timeMin = time.Unix(0, 0)
	timeEnd = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
)

// names counts names. Records repeat them, so that the last one is at hand.
type names struct {
	count map[string]int64
	last  string
	run   int64 // of last, not in count yet
}

func (n *names) add(name string) {
	if name != n.last {
		n.flush()
		n.last = name
	}
	n.run++
}

func (n *names) flush() {
	if n.run == 0 {
		return
	}
	name := n.last
	if len(name) > nameBytesMax {
		name = strings.ToValidUTF8(name[:nameBytesMax], "")
	}
	if _, known := n.count[name]; !known && len(n.count) >= namesMax {
		name = otherNames
	}
	n.count[name] += n.run
	n.run = 0
}

// table is the counts by name.
func (n *names) table() map[string]int64 {
	n.flush()
	return n.count
}

// typeOf is the type of an object of no family: the first of typeNames that is
// a string.
func typeOf(object []byte) string {
	values := make([]jsonl.Value, len(typeNames))
	jsonl.Pick(object, typeNames, values)
	return typeText(object, values)
}

// callTable holds the calls that wait for a result: by id, how many. It is
// two tables, so that the oldest calls can be given up without a list of them.
type callTable struct {
	young, old map[uint64]int64
	givenUp    int64
}

func (c *callTable) open(id string) {
	if len(c.young) >= openCallsMax {
		c.givenUp += total(c.old)
		c.old, c.young = c.young, map[uint64]int64{}
	}
	c.young[xxhash.Sum64String(id)]++
}

// answer takes one call with the id from the table; false if there is none.
func (c *callTable) answer(id string) bool {
	h := xxhash.Sum64String(id)
	for _, table := range []map[uint64]int64{c.young, c.old} {
		if n, ok := table[h]; ok {
			if n--; n == 0 {
				delete(table, h)
			} else {
				table[h] = n
			}
			return true
		}
	}
	return false
}

func (c *callTable) unanswered() int64 { return c.givenUp + total(c.young) + total(c.old) }

func total[K comparable](table map[K]int64) (n int64) {
	for _, k := range table {
		n += k
	}
	return n
}

// span is the time of the records, or that of the file.
func (t *tally) span(f File) Time {
	if t.first.IsZero() {
		at := f.ModTime.UTC()
		return Time{First: at, Last: at, Source: "mtime"}
	}
	return Time{First: t.first, Last: cmp.Or(t.last, t.first), Source: "records"}
}
