package replay_test

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"sessiond/replay"
	"sessiond/replay/dialect"
)

// scaleTime is far above what linear work needs, and far below what quadratic
// work does.
const scaleTime = 30 * time.Second

// stackBytesMax lets no recursion over entries pass.
const stackBytesMax = 1 << 20

// lines makes a file of n lines after a header.
func manyLines(n int, line func(i int) string) []byte {
	b := bytes.NewBuffer(file(header(3)))
	for i := range n {
		b.WriteString(line(i))
		b.WriteByte('\n')
	}
	return b.Bytes()
}

func id(i int) string {
	if i < 0 {
		return ""
	}
	return fmt.Sprint("e", i)
}

// TestScale_OddShapes builds large sessions of odd shapes at once, and again
// in batches with the views in use, and looks at everything once.
func TestScale_OddShapes(t *testing.T) {
	if testing.Short() {
		t.Skip("large files")
	}
	defer debug.SetMaxStack(debug.SetMaxStack(stackBytesMax))
	const n = 100_000 / scaleDivisor
	twoBranches := func(odd func(i int) string) func(i int) string {
		return func(i int) string { // two chains in turns, below one root
			if l := odd(i); l != "" {
				return l
			}
			return user(id(i), id(max(i-2, 0)))
		}
	}
	plain := func(int) string { return "" }
	for _, tc := range []struct {
		name                string
		data                []byte
		transcript, context int // slots
	}{
		{"chain", manyLines(n, func(i int) string { return user(id(i), id(i-1)) }), n, n},
		{"chain, written twice", bytes.Repeat(manyLines(n/2, func(i int) string { return user(id(i), id(i-1)) }), 2), n / 2, n / 2},
		{"version 1", append(file(header(1)), manyLines(n, func(i int) string { return v1Line(i) })[len(file(header(3))):]...), n, n},
		{"parents come later", append(manyLines(n/2, func(i int) string { return user(id(i), id(i+1)) }), file(user(id(n/2), ""), user("leaf", id(0)))...), n/2 + 2, n/2 + 2},
		{"one id", manyLines(n, func(i int) string { return user("e", "") }), 1, 1},
		{"one id, its own parent", manyLines(n, func(i int) string { return user("e", "e") }), 0, 0},
		{"children of an id that repeats", manyLines(n, func(i int) string {
			if i < n/2 {
				return user(id(i), "e")
			}
			return user("e", "")
		}), 1, 1},
		{"own parents", manyLines(n, func(i int) string { return user(id(i), id(i)) }), 2*n - 1, 1},
		{"unknown parents", manyLines(n, func(i int) string { return user(id(i), fmt.Sprint("x", i)) }), 2*n - 1, 1},
		{"two branches in turns", manyLines(n, twoBranches(plain)), n/2 + 1, n/2 + 1},
		{"two branches below a compaction with a system message", manyLines(n, twoBranches(func(i int) string {
			if i == 0 {
				return systemCompaction(id(i), "", "x")
			}
			return ""
		})), n/2 + 1, n/2 + 2},
		{"two branches with edits and usage", manyLines(n/2, twoBranches(func(i int) string {
			switch i % 8 {
			case 1:
				return contextEdit(id(i), id(max(i-2, 0)), id(i-4), `{"content":"x"}`)
			case 3:
				return childUsage(id(i), id(i-2), id(0), i)
			case 5:
				return contextEdit(id(i), id(i-2), id(1), `null`)
			}
			return ""
		})), 0, 0},
		{"compactions that retain all", manyLines(n, func(i int) string {
			if i%2 == 1 {
				return systemCompaction(id(i), id(i-1), id(0))
			}
			return message(id(i), id(i-1), "system", "x")
		}), n, 2},
		{"below a ring", manyLines(n, func(i int) string {
			if i == 0 {
				return user(id(0), id(1))
			}
			return user(id(i), id(i-1))
		}), n, n},
		{"two branches below a ring", manyLines(n/4, func(i int) string {
			if i == 0 {
				return user(id(0), id(1))
			}
			return user(id(i), id(max(i-2, 0)))
		}), 0, 0},
		{"branches to the root", manyLines(n, func(i int) string { return user(id(i), id(min(i-1, 0))) }), 2, 2},
		{"malformed", manyLines(n, func(i int) string { return `{"type":"message",` }), 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			start := time.Now()
			opt := replay.Options{Pages: usualPages()}
			whole, grown := buildWith(t, tc.data, opt), buildWith(t, nil, opt)
			const batches = 10
			for k := range batches {
				extend(t, grown, tc.data[:len(tc.data)*(k+1)/batches])
				grown.View(dialect.Transcript)
				grown.View(dialect.Context)
			}
			for _, r := range []*replay.Replay{whole, grown} {
				tr, ctx := len(slotsOf(t, r, dialect.Transcript)), len(slotsOf(t, r, dialect.Context))
				if tc.transcript > 0 && (tr != tc.transcript || ctx != tc.context) {
					t.Errorf("got %d and %d slots, want %d and %d", tr, ctx, tc.transcript, tc.context)
				}
				w := dialect.NewWindow(bytes.NewReader(tc.data))
				if in, _, err := r.Info(w); err != nil || in.Messages != [2]int{tr, ctx} {
					t.Errorf("Info: got %v messages %v, want %d and %d", in.Messages, err, tr, ctx)
				}
				if _, err := r.State(w); err != nil {
					t.Errorf("State: %v", err)
				}
				r.Delta(dialect.Context, r.Head().Sequence/2)
			}
			if took := time.Since(start); took > scaleTime {
				t.Errorf("took %v, want at most %v", took, scaleTime)
			} else {
				t.Logf("%d bytes, %v", len(tc.data), took)
			}
		})
	}
}

func v1Line(i int) string {
	return fmt.Sprintf(`{"type":"message",%s,"message":{"role":"user","content":"%d"}}`, stamp1, i)
}

// TestScale_LiveAppends appends one record at a time to a large session and
// holds each to what it adds.
func TestScale_LiveAppends(t *testing.T) {
	if testing.Short() {
		t.Skip("large file")
	}
	const n, appends = 200_000 / scaleDivisor, 2_000
	data := manyLines(n, func(i int) string { return user(id(i), id(i-1)) })
	r := online(t, data)
	r.View(dialect.Transcript)
	start := time.Now()
	var read int
	size := len(data)
	for i := n; i < n+appends; i++ {
		data = append(data, file(user(id(i), id(i-1)))...)
		src := readerFunc(func(p []byte, off int64) (int, error) {
			read += len(p)
			return bytes.NewReader(data).ReadAt(p, off)
		})
		if err := r.Extend(t.Context(), src, int64(len(data))); err != nil {
			t.Fatal(err)
		}
		d := deltaOf(t, r, dialect.Transcript, uint64(i)+1)
		if d.Cut.Keep != dialect.All || int(d.Slots.Len()) != i+1 {
			t.Fatalf("append %d: got cut %+v, %d slots", i, d.Cut, d.Slots.Len())
		}
	}
	if want := len(data) - size; read != want {
		t.Errorf("read %d bytes for %d appended", read, want)
	}
	if took := time.Since(start); took > scaleTime {
		t.Errorf("took %v, want at most %v", took, scaleTime)
	}
}

// TestScale_SmallSessionsAreSmall bounds what a replay of a small session
// holds: a daemon holds many.
func TestScale_SmallSessionsAreSmall(t *testing.T) {
	data := manyLines(20, func(i int) string { return user(id(i), id(i-1)) })
	all := make([]*replay.Replay, 2_000)
	pool := usualPages()
	before := heapBytes()
	for i := range all {
		all[i] = buildWith(t, data, replay.Options{Pages: pool})
		all[i].View(dialect.Transcript)
	}
	each := (heapBytes() - before) / int64(len(all))
	if said := all[0].Bytes(); each > 32<<10 || said < each/2 || said > 2*each {
		t.Errorf("a session of %d bytes holds %d bytes, says %d", len(data), each, said)
	}
	runtime.KeepAlive(all)
}

// TestScale_BytesPerEntry compares what a replay says it holds with what it
// does.
func TestScale_BytesPerEntry(t *testing.T) {
	for _, tc := range []struct {
		name string
		line func(i int) string
	}{
		{"chain", func(i int) string { return user(id(i), id(i-1)) }},
		{"unknown parents", func(i int) string { return user(id(i), fmt.Sprint("x", i)) }},
		{"compactions", func(i int) string { return compaction(id(i), id(i-1), id(0)) }},
		{"edits", func(i int) string { return contextEdit(id(i), id(i-1), id(0), "null") }},
		{"repeats", func(i int) string { return user(id(i%7), "") }},
		{"malformed", func(int) string { return "{" + strings.Repeat("x", 20) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const n = 20_000
			data := manyLines(n, tc.line)
			before := heapBytes()
			r := online(t, data)
			r.View(dialect.Transcript)
			holds, said := heapBytes()-before, r.Bytes()
			runtime.KeepAlive(data)
			if said < holds/2 || said > 2*holds {
				t.Errorf("%d entries: holds %d bytes, says %d", n, holds, said)
			}
			t.Logf("%d bytes an entry", holds/n)
		})
	}
}

// logLines makes an event log of n lines.
func logLines(n int, line func(i int) string) []byte {
	var b bytes.Buffer
	for i := range n {
		b.WriteString(line(i))
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// TestScale_EventLogs is TestScale_OddShapes for event logs.
func TestScale_EventLogs(t *testing.T) {
	if testing.Short() {
		t.Skip("large files")
	}
	const n = 100_000 / scaleDivisor
	for _, tc := range []struct {
		name string
		line func(i int) string
	}{
		{"one turn of calls, the last always taken back", func(i int) string {
			switch {
			case i < n/2:
				return toolCall(id(i), id(i))
			case i%2 == 0:
				return rewindTo(id(i), id(i-1))
			}
			return toolCall(id(i), "k")
		}},
		{"inputs behind a large turn, each taken back", func(i int) string {
			switch {
			case i < n/2:
				return toolCall(id(i), "k")
			case i%2 == 0:
				return rewindTo(id(i), id(i-1))
			}
			return input(id(i))
		}},
		{"rewinds nested in each other", func(i int) string {
			if i < n/2 {
				return output(id(i))
			}
			return rewindTo(id(i), id(n-i-1))
		}},
		{"compactions that retain all", func(i int) string {
			if i%2 == 0 {
				return logCompaction(id(i), `"e1"`)
			}
			return output(id(i))
		}},
		{"compactions taken back", func(i int) string {
			switch {
			case i < n/2 || i%3 == 0:
				return output(id(i))
			case i%3 == 1:
				return logCompaction(id(i), `"e1"`)
			}
			return rewindTo(id(i), id(i-1))
		}},
		{"one id for all", func(i int) string {
			if i%3 == 2 {
				return rewindTo("e", "e")
			}
			return toolResult("e", "k")
		}},
		{"calls of one id, then results", func(i int) string {
			if i < n/2 {
				return toolCall(id(i), "k")
			}
			return toolResult(id(i), "k")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data := logLines(n, tc.line)
			start := time.Now()
			opt := replay.Options{Pages: usualPages()}
			fresh, r := buildWith(t, data, opt), buildWith(t, nil, opt)
			for k := 1; k <= 10; k++ {
				size := len(data) * k / 10
				for size < len(data) && data[size-1] != '\n' {
					size++
				}
				extend(t, r, data[:size])
				for _, v := range bothViews {
					r.View(v)
				}
			}
			for _, v := range bothViews {
				if got, want := len(slotsOf(t, r, v)), len(slotsOf(t, fresh, v)); got != want {
					t.Errorf("%v: got %d slots, want %d", v, got, want)
				}
			}
			w := dialect.NewWindow(bytes.NewReader(data))
			if _, err := r.State(w); err != nil {
				t.Error(err)
			}
			r.Diagnostics()
			if took := time.Since(start); took > scaleTime {
				t.Errorf("took %v", took)
			}
		})
	}
}

func TestScale_EventLogBytesPerEntry(t *testing.T) {
	const n, most = 20_000, 100
	data := logLines(n, func(i int) string {
		switch i % 4 {
		case 0:
			return input(id(i))
		case 1:
			return toolCall(id(i), id(i))
		case 2:
			return toolResult(id(i), id(i-1))
		}
		return turnStatus(id(i), "completed", "")
	})
	before := heapBytes()
	r := online(t, data)
	holds, said := heapBytes()-before, r.Bytes()
	runtime.KeepAlive(data)
	if said < holds/2 || said > 2*holds || holds > most*n {
		t.Errorf("%d entries: holds %d bytes, says %d; want at most %d each", n, holds, said, most)
	}
	t.Logf("%d bytes an entry", holds/n)
}
