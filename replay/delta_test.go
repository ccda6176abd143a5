package replay_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
	"sessiond/replay/stamp"
)

// sessionDraw draws the lines of a pi session, most of them a plain growing
// chain, the rest of every oddity that a file may hold.
type sessionDraw struct {
	t       *rapid.T
	version int
	kinds   int // how many of the kinds of entries there are, and with them how dense the odd ones
	n       int // entries
	last    string
}

func drawSession(t *rapid.T) []byte {
	d := &sessionDraw{
		t: t, version: rapid.SampledFrom([]int{3, 3, 3, 2, 1}).Draw(t, "version"),
		kinds: rapid.SampledFrom([]int{29, 10}).Draw(t, "kinds"),
	}
	var b bytes.Buffer
	if rapid.IntRange(0, 5).Draw(t, "bom") == 5 {
		b.WriteString(jsonl.BOM)
	}
	if rapid.IntRange(0, 5).Draw(t, "headed") < 5 {
		b.WriteString(header(d.version) + "\n")
	}
	for range rapid.IntRange(1, 30).Draw(t, "lines") {
		b.WriteString(d.line())
		b.WriteString(rapid.SampledFrom([]string{"\n", "\n", "\n", "\r\n"}).Draw(t, "end"))
	}
	switch rapid.IntRange(0, 3).Draw(t, "tail") {
	case 3:
		b.WriteString(d.entry())
	case 2:
		tail := d.entry()
		b.WriteString(tail[:rapid.IntRange(0, len(tail)).Draw(t, "cut")])
	}
	return b.Bytes()
}

func (d *sessionDraw) pick(label string, of ...string) string {
	return rapid.SampledFrom(of).Draw(d.t, label)
}

// odd draws from 0 to n. What is plain is drawn as n, so that a failing case
// shrinks towards a plain session.
func (d *sessionDraw) odd(label string, n int) int {
	return n - rapid.IntRange(0, n).Draw(d.t, label)
}

// anyID is an id of the past, of the future, or of nowhere.
func (d *sessionDraw) anyID(label string) string {
	return fmt.Sprintf("e%d", rapid.IntRange(0, d.n+3).Draw(d.t, label))
}

func (d *sessionDraw) line() string {
	switch d.odd("line", 24) {
	case 0:
		return d.pick("blank", "", "  ", "\t", "\x00\x00\x00")
	case 1:
		return d.pick("bad", `{"type":"message"`, `x{}`, `42`, `null`, `"s"`, `[{"type":"session"}]`, `{"a":1}}`, "{\"a\":\"\x01\"}")
	case 2:
		return "\x00\x00" + d.entry()
	case 3:
		return d.entry() + d.pick("between", "", " ") + d.entry()
	case 4:
		return d.entry() + "garbage"
	case 5:
		torn := d.entry()
		return torn[:rapid.IntRange(1, len(torn)-1).Draw(d.t, "torn")] + d.entry()
	case 6:
		return d.pick("header", header(1), header(2), header(3), header(9), `{"type":"session","id":5,"version":2}`,
			`{"type":"session","cwd":"/"}`, `{"type":"session","version":"3","id":"late"}`)
	case 7:
		return " " + d.entry() + " "
	}
	return d.entry()
}

func (d *sessionDraw) entry() string {
	d.n++
	id, parent := fmt.Sprintf("e%d", d.n), d.last
	switch d.odd("links", 19) {
	case 0:
		id = d.anyID("id")
	case 1:
		parent = ""
	case 2:
		parent = id
	case 3, 4, 5, 6:
		parent = d.anyID("parent")
	case 7:
		id, parent = d.anyID("id"), d.anyID("parent")
	}
	d.last = id
	return d.body(id, parent)
}

func (d *sessionDraw) body(id, parent string) string {
	text := fmt.Sprintf("t%d", d.n)
	switch d.odd("kind", d.kinds) {
	case 0, 1:
		kept := fmt.Sprintf(`"firstKeptEntryId":%q`, d.anyID("kept"))
		if rapid.IntRange(0, 4).Draw(d.t, "keeps") == 0 {
			kept = `"firstKeptEntryId":null`
		}
		if d.version == 1 {
			kept = fmt.Sprintf(`"firstKeptEntryIndex":%d`, rapid.IntRange(-1, d.n+4).Draw(d.t, "index"))
		}
		if rapid.IntRange(0, 2).Draw(d.t, "system") == 0 {
			kept += `,"systemMessage":{"role":"system","content":"be brief"}`
		}
		return entry("compaction", id, parent, `"summary":"`+text+`",`+kept)
	case 2, 3:
		return contextEdit(id, parent, d.anyID("target"), d.pick("replacement", `null`, `{"content":"new"}`, `{}`, `5`))
	case 4, 5:
		return childUsage(id, parent, d.anyID("target"), d.n)
	case 6:
		return entry("child_usage_attributed", id, parent, `"targetId":"e1"`)
	case 7:
		return entry("branch_summary", id, parent, `"fromId":"e1","summary":"`+d.pick("summary", "", text)+`"`)
	case 8:
		return entry("custom_message", id, parent, `"customType":"c","content":"`+text+`","display":true`)
	case 9:
		return entry("session_info", id, parent, d.pick("name", `"name":" n `+text+`"`, `"name":5`, ``))
	case 10:
		return entry("session_state", id, parent, d.pick("state", `"state":{"status":"sleep"}`, `"state":{}`))
	case 11:
		return entry("model_change", id, parent, `"provider":"p","modelId":"`+text+`"`)
	case 12:
		return entry("thinking_level_change", id, parent, `"thinkingLevel":"`+text+`"`)
	case 13:
		return entry("service_tier_change", id, parent, `"serviceTier":"`+text+`"`)
	case 14:
		return entry("label", id, parent, `"targetId":"e1","label":"x"`)
	case 15:
		return entry("invented", id, parent, "")
	case 16:
		return entry("message", id, parent, d.pick("message", ``, `"message":null`, `"message":{}`))
	case 17:
		return strings.Replace(user(id, parent), `"id":"`+id+`",`, d.pick("no id", ``, `"id":null,`, `"id":7,`), 1)
	case 18:
		return message(id, parent, "user", "bad \xff"+text)
	case 19:
		return entry("message", id, parent, `"message":{"role":"assistant","model":"m","provider":"p","content":[{"type":"toolCall","id":"c`+text+`"}]}`)
	case 20:
		return entry("message", id, parent, `"message":{"role":"toolResult","toolCallId":"ct1","content":[]}`)
	}
	return message(id, parent, d.pick("role", "user", "assistant", "assistant", "toolResult", "system", "custom", "hookMessage", "other"), text)
}

// held is what a client holds of a view after some record.
type held struct {
	slots    []dialect.Slot
	messages []string // amended, as of that record
	plain    []string // as of each message's own record, with its meta
}

func holdings(t tb, r *replay.Replay, data []byte, v dialect.View) held {
	w := dialect.NewWindow(bytes.NewReader(data))
	h := held{slots: slotsOf(t, r, v), messages: renderView(t, r, v, w)}
	for _, s := range h.slots {
		b := bodyOf(t, r, v, s, false)
		h.plain = append(h.plain, fmt.Sprint(b.Sequence, b.Role, b.Notes, render(t, b, w)))
	}
	return h
}

// summary is everything that a replay says of a file, to be compared.
type summary struct {
	Head        stamp.Point
	Dialect     string
	Counts      replay.Counts
	Tail        replay.Tail
	Info        dialect.Info
	State       dialect.State
	Leaf        string
	Diagnostics []jsonl.Diagnostic
	Truncated   bool
	Checkpoints stamp.Checkpoints
	Views       [2]replay.View
	Slots       [2][]dialect.Slot
	Messages    [2][]string
}

func summarise(t tb, r *replay.Replay, data []byte) summary {
	t.Helper()
	w := dialect.NewWindow(bytes.NewReader(data))
	s := summary{Head: r.Head(), Counts: r.Counts(), Tail: r.Tail(), Checkpoints: r.Checkpoints()}
	s.Dialect, _ = r.Dialect()
	var err error
	if s.Info, _, err = r.Info(w); err != nil {
		t.Fatalf("Info: %v", err)
	}
	if s.State, err = r.State(w); err != nil {
		t.Fatalf("State: %v", err)
	}
	if s.Leaf, err = r.Leaf(w); err != nil {
		t.Fatalf("Leaf: %v", err)
	}
	if s.Diagnostics, s.Truncated, err = r.Diagnostics(); err != nil {
		t.Fatalf("Diagnostics: %v", err)
	}
	for _, v := range bothViews {
		s.Views[v], s.Slots[v] = viewOf(t, r, v), slotsOf(t, r, v)
		s.Messages[v] = renderView(t, r, v, w)
		if s.Dialect != replay.Unknown && s.Info.Messages[v] != len(s.Messages[v]) {
			t.Fatalf("%v: Info counts %d messages, the view has %d", v, s.Info.Messages[v], len(s.Messages[v]))
		}
	}
	if c := s.Counts; c.Records != c.Entries+c.Blank+c.Malformed+c.Salvaged+c.NonObject || c.Records != int64(s.Head.Sequence) {
		t.Fatalf("counts do not add up to %d records: %+v", s.Head.Sequence, c)
	}
	return s
}

func diffSummaries(a, b summary) string {
	return cmp.Diff(a, b, cmpopts.IgnoreTypes(replay.Bodies{}, dialect.Slots{}, replay.Budget{}))
}

// equalReplays demands that an extended replay is as good as a fresh one.
func equalReplays(t tb, want, got *replay.Replay, data []byte) {
	t.Helper()
	if diff := diffSummaries(summarise(t, want, data), summarise(t, got, data)); diff != "" {
		t.Fatalf("fresh and extended replay of %d bytes differ (-fresh +extended):\n%s\nfile:\n%s", len(data), diff, data)
	}
}

// apply is a client's whole algorithm: cut, replace, append.
func apply(t tb, r *replay.Replay, w *dialect.Window, v dialect.View, after uint64, have []string) (now []string, keep int) {
	t.Helper()
	d := deltaOf(t, r, v, after)
	slots := d.Slots.AppendTo(nil, 0, d.Slots.Len())
	keep = min(len(have), d.Cut.Keep)
	if keep > len(slots) {
		t.Fatalf("%v after %d: keep %d of %d slots", v, after, keep, len(slots))
	}
	if (d.Cut.Keep == dialect.All) != (d.Cut.Reason == "") {
		t.Fatalf("%v after %d: cut %+v", v, after, d.Cut)
	}
	now = append(now, have[:keep]...)
	for _, a := range d.Amendments {
		if a.Index < keep {
			now[a.Index] = render(t, bodyOf(t, r, v, slots[a.Index], true), w)
		}
	}
	for _, s := range slots[keep:] {
		now = append(now, render(t, bodyOf(t, r, v, s, true), w))
	}
	return now, keep
}

func recordEnds(data []byte) []int {
	ends := []int{0}
	for i, c := range data {
		if c == '\n' {
			ends = append(ends, i+1)
		}
	}
	return ends
}

// drawings draw sessions of each family.
var drawings = []struct {
	family string
	draw   func(*rapid.T) []byte
}{{"pi", drawSession}, {"eventlog", drawLog}}

func TestDelta_EqualsFreshBuild(t *testing.T) {
	for _, d := range drawings {
		t.Run(d.family, func(t *testing.T) { deltaEqualsFreshBuild(t, d.draw) })
	}
}

func deltaEqualsFreshBuild(t *testing.T, draw func(*rapid.T) []byte) {
	rapid.Check(t, func(t *rapid.T) {
		data := draw(t)
		ends := recordEnds(data)
		past := make([][2]held, len(ends)) // by sequence
		for seq, end := range ends {
			r := online(t, data[:end])
			for _, v := range bothViews {
				past[seq][v] = holdings(t, r, data, v)
			}
		}
		r := online(t, nil)
		for size := 0; size < len(data); {
			size = rapid.IntRange(size+1, len(data)).Draw(t, "size")
			if rapid.Bool().Draw(t, "record end") {
				for !(size == len(data) || data[size-1] == '\n') {
					size++
				}
			}
			extend(t, r, data[:size])
			if rapid.IntRange(0, 2).Draw(t, "look") == 0 && size < len(data) {
				continue // so that some batches come to a view that nobody looked at
			}
			fresh := online(t, data[:size])
			equalReplays(t, fresh, r, data[:size])
			for _, at := range []*replay.Replay{r, fresh} { // fresh: the daemon was started again
				checkClients(t, at, data[:size], past)
			}
		}
	})
}

// checkClients brings clients of every earlier record to the head.
func checkClients(t *rapid.T, r *replay.Replay, data []byte, past [][2]held) {
	head := r.Head().Sequence
	w := dialect.NewWindow(bytes.NewReader(data))
	for _, v := range bothViews {
		want := past[head][v]
		for seq := range head + 1 {
			was := past[seq][v]
			for _, have := range []int{len(was.messages), rapid.IntRange(0, len(was.messages)).Draw(t, "have")} {
				got, keep := apply(t, r, w, v, seq, was.messages[:have])
				if diff := cmp.Diff(want.messages, got, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("%v: client with record %d and %d slots, keep %d, at %d (-want +got):\n%s\nfile:\n%s",
						v, seq, have, keep, head, diff, data)
				}
				if diff := cmp.Diff(was.plain[:keep], want.plain[:keep], cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("%v: slots of record %d that stand at %d changed (-was +is):\n%s\nfile:\n%s", v, seq, head, diff, data)
				}
				if diff := cmp.Diff(was.slots[:keep], want.slots[:keep], cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("%v: slots of record %d that stand at %d (-was +is):\n%s\nfile:\n%s", v, seq, head, diff, data)
				}
			}
		}
	}
}

func TestPreview_IsWhatTheRecordDoes(t *testing.T) {
	for _, d := range drawings {
		t.Run(d.family, func(t *testing.T) { previewIsWhatTheRecordDoes(t, d.draw) })
	}
}

func previewIsWhatTheRecordDoes(t *testing.T, draw func(*rapid.T) []byte) {
	rapid.Check(t, func(t *rapid.T) {
		data := draw(t)
		for tail := range bytes.Lines(data) {
			at := bytes.Index(data, tail) // some place where this line stands
			checkPreview(t, data[:at], bytes.TrimRight(tail, "\n"))
		}
	})
}

func checkPreview(t *rapid.T, before, tail []byte) {
	now := append(bytes.Clone(before), tail...)
	ended := append(bytes.Clone(now), '\n')
	r, next := online(t, now), online(t, ended)
	offline := build(t, now)
	for _, v := range bothViews {
		if diff := cmp.Diff(slotMessages(t, next, ended, v), slotMessages(t, offline, now, v)); diff != "" && r.Tail().State == replay.TailProvisional {
			t.Fatalf("%v: offline with the tail (-ended +tail):\n%s\nfile:\n%s", v, diff, now)
		}
		w := dialect.NewWindow(bytes.NewReader(now))
		p, ok, err := r.Preview(v, w)
		if err != nil {
			t.Fatalf("Preview: %v", err)
		}
		if !ok {
			continue
		}
		got := slotMessages(t, r, now, v)
		got = got[:min(len(got), p.Cut.Keep)]
		if p.Body != nil {
			got = append(got, render(t, *p.Body, w))
		}
		want := slotMessages(t, next, ended, v)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%v: preview (-ended +preview):\n%s\nfile:\n%s", v, diff, now)
		}
		if p.Body == nil {
			continue
		}
		slots := slotsOf(t, next, v)
		if last := slots[len(slots)-1]; last != p.Slot {
			t.Fatalf("%v: slot: got %v, want %v", v, p.Slot, last)
		}
		notes := append([]string{"provisional"}, bodyOf(t, next, v, p.Slot, false).Notes...)
		if diff := cmp.Diff(notes, p.Body.Notes); diff != "" {
			t.Fatalf("%v: notes (-want +got):\n%s\nfile:\n%s", v, diff, now)
		}
	}
}
