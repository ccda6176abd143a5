package chunks

import (
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
			b := memoryBench(t, 1<<20)
			l := b.NewLog(LogOptions{Target: target, MemoryBytes: 1 << 20})
			b.whole(t, l, row.view, target)
			b.whole(t, l, row.view, target) // now from the log
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

// A snapshot that is open while the view is cut, and packs on, must not give
// the log what was cut, also when no full chunk was known yet.
func TestLog_CutWhileASnapshotPacks(t *testing.T) {
	const target = 100
	before := messages(20, 20)
	b := memoryBench(t, 1<<20)
	l := b.NewLog(LogOptions{Target: target, MemoryBytes: 1 << 20})
	old, release := b.begin(l, before)
	defer release()
	l.CutBack(2)
	now := append(before[:2:2], messages(30, 15)...)
	checkWhole(t, old, before.pack(target))
	b.whole(t, l, now, target)
	b.whole(t, l, now, target)
}

// A chunk that ends where the view was cut was full only because of what
// followed.
func TestLog_CutAtTheEndOfAChunk(t *testing.T) {
	const target = 100
	v := messages(20, 20)
	b := memoryBench(t, 1<<20)
	l := b.NewLog(LogOptions{Target: target, MemoryBytes: 1 << 20})
	want := v.pack(target)
	b.whole(t, l, v, target)
	keep := want[0].Count
	l.CutBack(keep)
	b.whole(t, l, append(v[:keep:keep], "1"), target)
}

// Where a snapshot of an earlier cut has its last chunk, the log comes to hold
// a fuller one.
func TestSnapshot_LastChunkIsItsOwn(t *testing.T) {
	const target = 100
	v := messages(40, 20)
	for _, memory := range []int64{1 << 20, 0} { // with the last chunks held, and without
		b := newBench(t, StoreOptions{MemoryBytes: memory}, defaultLimits)
		l := b.NewLog(LogOptions{Target: target, MemoryBytes: 1 << 20})
		early := make([]*Snapshot, len(v))
		for cut := range v {
			var release func()
			early[cut], release = b.begin(l, v[:cut])
			defer release()
			checkTotals(t, early[cut], v[:cut].pack(target))
		}
		b.whole(t, l, v, target)
		for cut := range v {
			checkWhole(t, early[cut], v[:cut].pack(target))
			b.whole(t, l, v[:cut], target)
		}
	}
}

func TestStore_MemoryIsSharedByAllLogs(t *testing.T) {
	const target = 100
	v := messages(40, 20)
	b := memoryBench(t, 500)
	logs := make([]*Log, 4)
	for i := range logs {
		logs[i] = b.NewLog(LogOptions{Target: target, MemoryBytes: 1 << 20})
		b.whole(t, logs[i], v, target)
		if held := b.MemoryHeld(); held > 500 {
			t.Fatalf("%d logs hold %d bytes, at most 500", i+1, held)
		}
	}
	for _, l := range logs {
		l.Close()
	}
	if held := b.MemoryHeld(); held != 0 {
		t.Errorf("after Close: %d bytes held, want 0", held)
	}
}
