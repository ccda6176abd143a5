package replay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
	"sessiond/replay/pages"
)

// tb is what helpers need of a *testing.T or a *rapid.T.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

var bothViews = []dialect.View{dialect.Transcript, dialect.Context}

// buildWith replays a whole file.
func buildWith(t tb, data []byte, opt replay.Options) *replay.Replay {
	t.Helper()
	if opt.Pages == nil && len(data) < tightBytes {
		opt.Pages = tightPages
	}
	r, err := replay.Build(context.Background(), bytes.NewReader(data), int64(len(data)), opt)
	if err != nil {
		t.Fatalf("Build: %v", err)
	}
	return r
}

// build replays a whole file as the analyser does.
func build(t tb, data []byte) *replay.Replay {
	t.Helper()
	return buildWith(t, data, replay.Options{Tail: true})
}

// tightBytes bounds the files whose index is held in tightPages.
const tightBytes = 32 << 10

// tightPages lets nothing stay in memory that may leave it, and has pages of a
// few entries: what the rules give must not depend on where the index is.
var tightPages = pages.NewPool(pages.Options{
	Bytes: 1, PageBytes: 96, Open: func() (pages.Store, error) { return &memStore{}, nil },
})

// usualPages are bounded as those of a daemon.
func usualPages() *pages.Pool {
	return pages.NewPool(pages.Options{Open: func() (pages.Store, error) { return &memStore{}, nil }})
}

// memStore is a paging file in memory.
type memStore struct {
	mu   sync.Mutex
	data []byte
}

func (s *memStore) WriteAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := int(off) + len(p); n > len(s.data) {
		s.data = append(s.data, make([]byte, n-len(s.data))...)
	}
	return copy(s.data[off:], p), nil
}

func (s *memStore) ReadAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return copy(p, s.data[off:]), nil
}

// online replays a whole file as the daemon does.
func online(t tb, data []byte) *replay.Replay {
	t.Helper()
	return buildWith(t, data, replay.Options{})
}

func extend(t tb, r *replay.Replay, data []byte) {
	t.Helper()
	if err := r.Extend(context.Background(), bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatalf("Extend to %d bytes: %v", len(data), err)
	}
}

// render makes a slot's message.
func render(t tb, b dialect.Body, w *dialect.Window) string {
	t.Helper()
	m, err := dialect.AppendBody(nil, b, w)
	if err != nil {
		t.Fatalf("message of record %d: %v", b.Sequence, err)
	}
	if !json.Valid(m) {
		t.Fatalf("message of record %d is no JSON: %q", b.Sequence, m)
	}
	return string(m)
}

// slotMessages renders a view as of the head, one message a slot; an edit
// leaves "null" where it drops one.
func slotMessages(t tb, r *replay.Replay, data []byte, v dialect.View) []string {
	t.Helper()
	return renderView(t, r, v, dialect.NewWindow(bytes.NewReader(data)))
}

func renderView(t tb, r *replay.Replay, v dialect.View, w *dialect.Window) []string {
	t.Helper()
	var out []string
	for _, s := range slotsOf(t, r, v) {
		out = append(out, render(t, bodyOf(t, r, v, s, true), w))
	}
	return out
}

// viewOf is a view at the head.
func viewOf(t tb, r *replay.Replay, v dialect.View) replay.View {
	t.Helper()
	view, err := r.View(v)
	if err != nil {
		t.Fatalf("%v: %v", v, err)
	}
	return view
}

// slotsOf are the slots of a view at the head.
func slotsOf(t tb, r *replay.Replay, v dialect.View) []dialect.Slot {
	t.Helper()
	view := viewOf(t, r, v)
	return view.Slots.AppendTo(nil, 0, view.Slots.Len())
}

func bodyOf(t tb, r *replay.Replay, v dialect.View, s dialect.Slot, amended bool) dialect.Body {
	t.Helper()
	b, err := r.Bodies(v).Body(s, amended)
	if err != nil {
		t.Fatalf("%v: body of %v: %v", v, s, err)
	}
	return b
}

func deltaOf(t tb, r *replay.Replay, v dialect.View, after uint64) replay.Delta {
	t.Helper()
	d, err := r.Delta(v, after)
	if err != nil {
		t.Fatalf("%v after %d: %v", v, after, err)
	}
	return d
}

func findings(t tb, r *replay.Replay) []jsonl.Diagnostic {
	t.Helper()
	list, _, err := r.Diagnostics()
	if err != nil {
		t.Fatalf("Diagnostics: %v", err)
	}
	return list
}

// messages are slotMessages without those that an edit leaves out.
func messages(t tb, r *replay.Replay, data []byte, v dialect.View) [][]byte {
	t.Helper()
	var out [][]byte
	for _, m := range slotMessages(t, r, data, v) {
		if m != "null" {
			out = append(out, []byte(m))
		}
	}
	return out
}

// texts are the texts of messages, for short comparisons: content or summary,
// or the kind of a marker in brackets.
func texts(t tb, r *replay.Replay, data []byte, v dialect.View) string {
	t.Helper()
	var out []string
	for _, m := range messages(t, r, data, v) {
		var x struct {
			Kind, Summary string
			Content       any
		}
		if err := json.Unmarshal(m, &x); err != nil {
			t.Fatalf("%q: %v", m, err)
		}
		switch {
		case x.Kind != "":
			out = append(out, "["+x.Kind+"]")
		case x.Summary != "":
			out = append(out, "("+x.Summary+")")
		default:
			out = append(out, fmt.Sprint(x.Content))
		}
	}
	return strings.Join(out, " ")
}

func codesOf(r *replay.Replay) string {
	list, _, err := r.Diagnostics()
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, d := range list {
		out = append(out, fmt.Sprintf("%s@%d", d.Code, d.Line))
	}
	return strings.Join(out, " ")
}

// The lines of pi sessions.

const stamp1 = `"timestamp":"2026-01-02T03:04:05.678Z"`

func header(version int) string {
	if version == 1 {
		return `{"type":"session","id":"s1",` + stamp1 + `,"cwd":"/home/user"}`
	}
	return fmt.Sprintf(`{"type":"session","version":%d,"id":"s1",%s,"cwd":"/home/user"}`, version, stamp1)
}

// entry is an entry with more members; a parent of "" is null.
func entry(typ, id, parent, more string) string {
	p := "null"
	if parent != "" {
		p = `"` + parent + `"`
	}
	if more != "" {
		more = "," + more
	}
	return fmt.Sprintf(`{"type":%q,"id":%q,"parentId":%s,%s%s}`, typ, id, p, stamp1, more)
}

func message(id, parent, role, text string) string {
	return entry("message", id, parent, fmt.Sprintf(`"message":{"role":%q,"content":%q}`, role, text))
}

func user(id, parent string) string { return message(id, parent, "user", id) }

func compaction(id, parent, kept string) string {
	return entry("compaction", id, parent, fmt.Sprintf(`"summary":"sum-%s","firstKeptEntryId":%q,"tokensBefore":7`, id, kept))
}

func contextEdit(id, parent, target, replacement string) string {
	return entry("context_edit", id, parent, fmt.Sprintf(`"targetId":%q,"replacement":%s`, target, replacement))
}

func childUsage(id, parent, target string, n int) string {
	return entry("child_usage_attributed", id, parent,
		fmt.Sprintf(`"targetId":%q,"aggregateUsage":{"input":%d,"cost":{"total":0.5}}`, target, n))
}

// file joins lines, each ended.
func file(lines ...string) []byte {
	return []byte(strings.Join(lines, "\n") + "\n")
}

// heapBytes is what is alive on the heap.
func heapBytes() int64 {
	for range 3 { // what has cleanups is freed by the one after
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
