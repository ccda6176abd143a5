package chunks

import (
	"context"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPacking_Rules(t *testing.T) {
	const target = 200
	big := `"` + strings.Repeat("x", 300) + `"`
	fits := target - len(metaOf(0)) // a message that fills a chunk to the byte
	exact := `"` + strings.Repeat("x", fits-2) + `"`
	pair := (target - len(metaOf(0)) - len(metaOf(1)) - 2) / 2 // two that fill one, commas counted
	half := `"` + strings.Repeat("x", pair-2) + `"`
	for _, row := range []struct {
		name string
		view view
		want []int // messages of each chunk
	}{
		{"no messages, no chunks", nil, nil},
		{"one message", view{`{}`}, []int{1}},
		{"one message of the target exactly", view{exact, `1`}, []int{1, 1}},
		{"two of the target exactly, meta and commas counted", view{half, half, `1`}, []int{2, 1}},
		{"a byte more than the target", view{half + " ", half + " ", `1`}, []int{1, 2}},
		{"a larger message is a chunk of its own", view{`1`, big, `2`}, []int{1, 1, 1}},
		{"larger messages only", view{big, big}, []int{1, 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			want := row.view.pack(target)
			if len(want) != len(row.want) {
				t.Fatalf("got %d chunks, want %d", len(want), len(row.want))
			}
			for i, c := range want {
				if c.Count != row.want[i] {
					t.Errorf("chunk %d: got %d messages, want %d", i, c.Count, row.want[i])
				}
			}
			l := NewLog(Options{Target: target, MemoryBytes: 1 << 20, Budget: NewBudget(1 << 20)})
			checkWhole(t, l.Snapshot(row.view), want)
			checkWhole(t, l.Snapshot(row.view), want) // now from the log
		})
	}
}

// drawView draws messages that often nearly fill a chunk.
func drawView(t *rapid.T, target, most int) view {
	v := make(view, rapid.IntRange(0, most).Draw(t, "messages"))
	for i := range v {
		v[i] = drawMessage(t, target)
	}
	return v
}

func drawMessage(t *rapid.T, target int) string {
	n := rapid.OneOf(rapid.IntRange(0, 20), rapid.IntRange(0, target+20)).Draw(t, "size")
	return `"` + strings.Repeat("m", n) + string(rune('a'+rapid.IntRange(0, 25).Draw(t, "letter"))) + `"`
}

// All full chunks before a cut are the same bytes in every snapshot of a later
// cut.
func TestPacking_FullChunksDoNotDependOnTheCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		target := rapid.IntRange(40, 200).Draw(t, "target")
		v := drawView(t, target, 30)
		whole := v.pack(target)
		for cut := range v {
			part := v[:cut].pack(target)
			for i := range part[:max(0, len(part)-1)] {
				if string(part[i].Body) != string(whole[i].Body) {
					t.Fatalf("chunk %d at cut %d of %d: got %s, want %s", i, cut, len(v), part[i].Body, whole[i].Body)
				}
			}
		}
	})
}

// sharing is a log that snapshots of any age use while its view grows and is
// cut.
type sharing struct {
	target int
	log    *Log
	budget *Budget
	memory int64
	now    view
	open   []openSnapshot
}

type openSnapshot struct {
	s    *Snapshot
	want []Chunk
}

func (x *sharing) check(t *rapid.T) {
	if held := x.budget.Held(); held < 0 || held > x.budget.bound || x.log.held > x.memory || x.log.held != held {
		t.Fatalf("held %d of %d bytes, log holds %d of %d", held, x.budget.bound, x.log.held, x.memory)
	}
}

func TestSnapshot_EqualsPackingAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := &sharing{target: rapid.IntRange(40, 200).Draw(t, "target")}
		x.memory = int64(rapid.IntRange(0, 1000).Draw(t, "memory"))
		x.budget = NewBudget(int64(rapid.IntRange(0, 1000).Draw(t, "budget")))
		x.log = NewLog(Options{Target: x.target, MemoryBytes: x.memory, Budget: x.budget})
		grow := func(t *rapid.T) {
			// A view that stays as it is for the snapshots that have it.
			x.now = append(x.now[:len(x.now):len(x.now)], drawView(t, x.target, 10)...)
		}
		pick := func(t *rapid.T) openSnapshot {
			if len(x.open) == 0 {
				t.Skip("no snapshot")
			}
			return x.open[rapid.IntRange(0, len(x.open)-1).Draw(t, "snapshot")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"grow": grow,
			"cut": func(t *rapid.T) {
				keep := rapid.IntRange(0, len(x.now)).Draw(t, "keep")
				x.now = x.now[:keep:keep]
				x.log.CutBack(keep)
				grow(t)
			},
			"begin": func(t *rapid.T) {
				cut := rapid.IntRange(0, len(x.now)).Draw(t, "cut")
				v := x.now[:cut:cut]
				x.open = append(x.open, openSnapshot{x.log.Snapshot(v), v.pack(x.target)})
			},
			"chunk": func(t *rapid.T) {
				o := pick(t)
				checkChunk(t, o.s, o.want, rapid.IntRange(0, len(o.want)+1).Draw(t, "index"))
			},
			"totals": func(t *rapid.T) { o := pick(t); checkTotals(t, o.s, o.want) },
			"":       x.check,
		})
		for _, o := range x.open {
			checkWhole(t, o.s, o.want)
		}
		x.log.Close()
		x.check(t)
		if x.budget.Held() != 0 {
			t.Fatalf("after Close: %d bytes held", x.budget.Held())
		}
		for _, o := range x.open {
			checkWhole(t, o.s, o.want)
		}
	})
}

// A snapshot that is open while the view is cut, and packs on, must not give
// the log what was cut, also when no full chunk was known yet.
func TestLog_CutWhileASnapshotPacks(t *testing.T) {
	const target = 100
	before := messages(20, 20)
	l := NewLog(Options{Target: target, MemoryBytes: 1 << 20, Budget: NewBudget(1 << 20)})
	old := l.Snapshot(before)
	l.CutBack(2)
	now := append(before[:2:2], messages(30, 15)...)
	checkWhole(t, old, before.pack(target))
	checkWhole(t, l.Snapshot(now), now.pack(target))
	checkWhole(t, l.Snapshot(now), now.pack(target))
}

// A chunk that ends where the view was cut was full only because of what
// followed.
func TestLog_CutAtTheEndOfAChunk(t *testing.T) {
	const target = 100
	v := messages(20, 20)
	l := NewLog(Options{Target: target, MemoryBytes: 1 << 20, Budget: NewBudget(1 << 20)})
	want := v.pack(target)
	checkWhole(t, l.Snapshot(v), want)
	keep := want[0].Count
	l.CutBack(keep)
	now := append(v[:keep:keep], "1")
	checkWhole(t, l.Snapshot(now), now.pack(target))
}

// Where a snapshot of an earlier cut has its last chunk, the log comes to hold
// a fuller one.
func TestSnapshot_LastChunkIsItsOwn(t *testing.T) {
	const target = 100
	v := messages(40, 20)
	l := NewLog(Options{Target: target, MemoryBytes: 1 << 20, Budget: NewBudget(1 << 20)})
	early := make([]*Snapshot, len(v))
	for cut := range v {
		early[cut] = l.Snapshot(v[:cut])
		checkTotals(t, early[cut], v[:cut].pack(target))
	}
	checkWhole(t, l.Snapshot(v), v.pack(target))
	for cut := range v {
		checkWhole(t, early[cut], v[:cut].pack(target))
		checkWhole(t, l.Snapshot(v[:cut]), v[:cut].pack(target))
	}
}

func TestBudget_IsSharedByAllLogs(t *testing.T) {
	const target = 100
	v := messages(40, 20)
	budget := NewBudget(500)
	logs := make([]*Log, 4)
	for i := range logs {
		logs[i] = NewLog(Options{Target: target, MemoryBytes: 1 << 20, Budget: budget})
		checkWhole(t, logs[i].Snapshot(v), v.pack(target))
		if budget.Held() > 500 {
			t.Fatalf("%d logs hold %d bytes, at most 500", i+1, budget.Held())
		}
	}
	for _, l := range logs {
		l.Close()
	}
	if budget.Held() != 0 {
		t.Errorf("after Close: %d bytes held, want 0", budget.Held())
	}
}

// failing is a source that fails once.
type failing struct {
	view
	err error
}

func (f *failing) Pack(ctx context.Context, b *Builder, from Place) (Place, bool, error) {
	if f.err != nil && from.Slot > 0 {
		err := f.err
		f.err = nil
		b.End(append(b.Begin(), "9"...), []byte("{}")) // what it left is not to show up
		return from, false, err
	}
	return f.view.Pack(ctx, b, from)
}

func TestSnapshot_GoesOnAfterAnError(t *testing.T) {
	const target = 100
	broken := errors.New("broken")
	f := &failing{messages(20, 20), broken}
	s := NewLog(Options{Target: target, MemoryBytes: 1 << 20, Budget: NewBudget(1 << 20)}).Snapshot(f)
	if _, _, err := s.Chunk(t.Context(), 2); !errors.Is(err, broken) {
		t.Fatalf("got %v, want %v", err, broken)
	}
	checkWhole(t, s, f.pack(target))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	fresh := NewLog(Options{Target: target, Budget: NewBudget(0)}).Snapshot(f)
	if _, _, err := fresh.Chunk(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: got %v", err)
	}
	if _, err := fresh.Totals(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context, totals: got %v", err)
	}
}
