package engine

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"sessiond/wire"
)

// draw draws the lines of a session: most of them a growing chain, the rest
// what a file may hold besides.
type draw struct {
	t    *rapid.T
	id   string // prefix of ids
	n    int
	last string
	log  bool // events of an event log
}

func (d *draw) odd(label string, n int) int { return n - rapid.IntRange(0, n).Draw(d.t, label) }

// anyID is an id of the past, of the future, or of nowhere.
func (d *draw) anyID(label string) string {
	return fmt.Sprintf("%s%d", d.id, rapid.IntRange(0, d.n+2).Draw(d.t, label))
}

func (d *draw) entry() string {
	d.n++
	if d.log {
		return d.logEvent()
	}
	id, parent := fmt.Sprintf("%s%d", d.id, d.n), d.last
	switch d.odd("links", 14) {
	case 0:
		id = d.anyID("id") // a duplicate, or one that was named before
	case 1:
		parent = ""
	case 2, 3, 4:
		parent = d.anyID("parent")
	}
	d.last = id
	text := fmt.Sprintf("t%d ", d.n)
	if d.odd("long", 4) == 0 {
		text += strings.Repeat("x", rapid.IntRange(0, 1500).Draw(d.t, "more"))
	}
	switch d.odd("kind", 20) {
	case 0, 1:
		return compaction(id, parent, d.anyID("kept"))
	case 2, 3:
		return contextEdit(id, parent, d.anyID("target"), rapid.SampledFrom([]string{`null`, `{"content":"new"}`, `5`}).Draw(d.t, "replacement"))
	case 4, 5, 6:
		return childUsage(id, parent, d.anyID("target"), d.n)
	case 7:
		return entry("custom_message", id, parent, `"customType":"c","content":"`+text+`","display":true`)
	case 8:
		return entry("session_info", id, parent, `"name":"`+text+`"`)
	case 9:
		return entry("invented", id, parent, "")
	case 10:
		return toolCalls(id, parent, "c1", "c2")
	case 11:
		return toolResult(id, parent, "c1")
	case 12, 13, 14:
		return assistant(id, parent, text)
	}
	return user(id, parent, text)
}

// line is one of a file that others write: it need be no entry.
func (d *draw) line() string {
	switch d.odd("line", 15) {
	case 0:
		return rapid.SampledFrom([]string{"", " ", "\x00\x00", `{"type":"message"`, `42`, `null`, `{"a":1}}`}).Draw(d.t, "bad")
	case 1:
		return d.entry() + d.entry()
	case 2:
		return d.entry() + "\r"
	case 3:
		return strings.Replace(d.entry(), `"t`, "\"\xfft", 1)
	case 4:
		if d.log {
			break
		}
		return rapid.SampledFrom([]string{header, strings.Replace(header, `"version":3,`, "", 1)}).Draw(d.t, "header")
	}
	return d.entry()
}

// scene is a session under change, with clients that come and go.
type scene struct {
	t    *rapid.T
	w    *world
	d    draw
	key  string
	path string
	head wire.Cursor // owned
	torn string      // followed: what is written of the line that is being written

	followers []*follower
}

func (c *scene) owned() bool { return strings.HasPrefix(c.key, OwnedRoot+":") }

func (c *scene) grow() {
	n := rapid.IntRange(1, 4).Draw(c.t, "records")
	if c.owned() {
		var batch []string
		for range n {
			batch = append(batch, c.d.entry())
		}
		c.head = c.w.appendAt(c.key, c.head, batch...).Head
		return
	}
	var b strings.Builder
	for range n {
		b.WriteString(c.d.line() + "\n")
	}
	text := strings.TrimPrefix(b.String(), c.torn)
	if c.torn != "" {
		text = "\n" + b.String()
	}
	c.torn = ""
	if rapid.Bool().Draw(c.t, "tail") {
		whole := c.d.entry()
		c.torn = whole[:rapid.SampledFrom([]int{len(whole), len(whole) / 2}).Draw(c.t, "torn")]
	}
	c.w.extendFile(c.path, text+c.torn)
	c.w.look(c.key)
}

func (c *scene) pick() *follower {
	if len(c.followers) == 0 {
		c.t.Skip("nobody is attached")
	}
	return c.followers[rapid.IntRange(0, len(c.followers)-1).Draw(c.t, "follower")]
}

func (c *scene) attach() {
	if len(c.followers) == 4 {
		c.t.Skip("enough")
	}
	cmd := rapid.SampledFrom([]wire.Command{
		{View: wire.ViewTranscript},
		{View: wire.ViewContext},
		{View: wire.ViewRecords},
		{View: wire.ViewRecords, Encoding: wire.EncodingRaw},
	}).Draw(c.t, "view")
	cmd.Session = c.key
	if c.w.opt.MaxReplayRecords > 0 && cmd.View != wire.ViewRecords {
		cmd.Bounded = rapid.SampledFrom(wire.BoundedModes).Draw(c.t, "bounded")
	}
	c.followers = append(c.followers, c.w.attach(cmd))
}

func (c *scene) restart(forget bool) {
	for _, f := range c.followers {
		f.st.Close()
	}
	c.w.stop()
	if forget {
		if err := os.Remove(filepath.Join(c.w.state, "index.db")); err != nil {
			c.t.Fatalf("%v", err)
		}
	}
	c.w.start()
	for _, f := range c.followers {
		f.again(c.w)
	}
}

// check compares every client with one that attaches now, and with the file.
func (c *scene) check() {
	content := readFile(c.w.t, c.path)
	whole := content[:strings.LastIndexByte(string(content), '\n')+1]
	for _, f := range c.followers {
		f.drain()
		cmd := f.command
		cmd.Resume, cmd.Have, cmd.Position, cmd.RulesRevision = nil, nil, nil, ""
		fresh := c.w.attach(cmd)
		fresh.drain()
		fresh.st.Close()
		if !f.live || !f.cursor.Same(fresh.cursor) {
			c.t.Fatalf("%s %s: live %v at %v; fresh at %v", cmd.View, cmd.Encoding, f.live, f.cursor, fresh.cursor)
		}
		want := fresh.slots
		if cmd.Bounded != "" { // the two may hold the view from another slot on
			want = wholeView(c.t, content, cmd.View)
			for _, one := range []*follower{f, fresh} {
				if one.first > len(want) || !slices.Equal(one.slots, want[one.first:]) {
					c.t.Fatalf("%s: a client has, from %d on\n%s\nwant the end of\n%s", cmd.View, one.first, one.text(), strings.Join(want, "\n"))
				}
			}
			want = want[f.first:]
		}
		if f.raw.String() != fresh.raw.String() || !slices.Equal(f.slots, want) {
			c.t.Fatalf("%s: the client has\n%s\nfresh\n%s\nfile\n%s", cmd.View, f.text(), fresh.text(), content)
		}
		if got, want := stateText(f.state), stateText(fresh.state); f.command.View != wire.ViewRecords && got != want {
			c.t.Fatalf("%s: the client's state is %s, fresh %s", cmd.View, got, want)
		}
		switch {
		case cmd.Encoding == wire.EncodingRaw:
			if f.raw.String() != string(whole) {
				c.t.Fatalf("raw: got %q, the file is %q", f.raw.Bytes(), whole)
			}
		case cmd.View == wire.ViewRecords:
			want := strings.ReplaceAll(string(whole), "\r\n", "\n") // a CR belongs to the line's end
			if got := joinRecords(c.t, f.slots); got != want {
				c.t.Fatalf("records: got %q, the file is %q", got, want)
			}
		}
	}
}

// joinRecords puts the lines of a file together again.
func joinRecords(t tb, records []string) string {
	t.Helper()
	var b strings.Builder
	for _, r := range records {
		var x struct {
			Malformed, InvalidUTF8 bool
			Base64                 *string
		}
		if json.Unmarshal([]byte(r), &x) == nil && x.Base64 != nil && (x.Malformed || x.InvalidUTF8) {
			line, err := base64.StdEncoding.DecodeString(*x.Base64)
			if err != nil {
				t.Fatalf("record %s: %v", r, err)
			}
			r = string(line)
		}
		b.WriteString(r + "\n")
	}
	return b.String()
}

// Clients pull, are dropped between any two frames, and resume while the
// session changes and the daemon is started again. At the end each holds what
// one that attaches now is given.
func testStreams(t *testing.T, owned bool, change ...func(*Options)) {
	testStreamsOf(t, "pi", owned, change...)
}

func testStreamsOf(t *testing.T, dialect string, owned bool, change ...func(*Options)) {
	w := newWorld(t, append(change, smallChunks, withoutSync)...)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		w.fail = t
		c := &scene{t: t, w: w, d: draw{t: t, id: "e", log: dialect == "eventlog"}}
		name := fmt.Sprintf("s%d", n)
		if owned {
			r := w.createAs(name, dialect)
			c.key, c.path, c.head = r.Session, r.Path, r.Head
		} else {
			first := header + "\n"
			if c.d.log {
				first = ""
			}
			c.path = w.write(name+".jsonl", first)
			c.key = followedRoot + ":" + name + ".jsonl"
			w.e.changed(c.path)
		}
		defer func() {
			for _, f := range c.followers {
				f.st.Close()
			}
		}()
		t.Repeat(map[string]func(*rapid.T){
			"grow":        func(*rapid.T) { c.grow() },
			"grow more":   func(*rapid.T) { c.grow() },
			"attach":      func(*rapid.T) { c.attach() },
			"pull":        func(t *rapid.T) { c.pick().pull(rapid.IntRange(1, 6).Draw(t, "frames")) },
			"drain":       func(*rapid.T) { c.pick().drain() },
			"resume":      func(*rapid.T) { c.pick().again(w) },
			"resume more": func(*rapid.T) { c.pick().again(w) },
			"restart": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "restart") > 0 {
					t.Skip("rarely")
				}
				c.restart(rapid.Bool().Draw(t, "without index"))
			},
		})
		c.check()
	})
}

func TestStreams_OwnedSession(t *testing.T)    { testStreams(t, true) }
func TestStreams_FollowedSession(t *testing.T) { testStreams(t, false) }

func TestStreams_Bounded(t *testing.T)         { testStreams(t, true, withMaxRecords(8)) }
func TestStreams_BoundedFollowed(t *testing.T) { testStreams(t, false, withMaxRecords(8)) }
func TestStreams_BoundedLog(t *testing.T)      { testStreamsOf(t, "eventlog", false, withMaxRecords(8)) }

func TestStreams_WithoutCache(t *testing.T) {
	testStreams(t, false, onDemand, func(o *Options) { o.ReplayCacheBytes = 0 })
}

func TestStreams_Spilled(t *testing.T) { testStreams(t, true, spilling) }

// An edit may stand before the entry that it names: the entry's own record
// brings it as it is edited.
func TestStreams_EditBeforeItsEntry(t *testing.T) {
	w := newWorld(t)
	w.create("s1")
	w.append("s1", user("a", "", "a"), contextEdit("x", "a", "late", `{"content":"new"}`))
	f := w.attach(wire.Command{Session: "s1", View: wire.ViewContext})
	f.untilLive()
	w.append("s1", user("late", "x", "old"), user("b", "late", "b"))
	f.drain()
	fresh := w.attach(wire.Command{Session: "s1", View: wire.ViewContext})
	fresh.untilLive()
	if !slices.Equal(f.slots, fresh.slots) || !strings.Contains(f.slots[1], "new") {
		t.Errorf("got\n%s\nfresh\n%s", f.text(), fresh.text())
	}
}

// Appenders that branch back, and clients that come and go meanwhile.
func TestStreams_Concurrent(t *testing.T) {
	w := newWorld(t, smallChunks)
	created := w.create("s1")
	const appenders, batches = 3, 20
	done := make(chan struct{})
	var work sync.WaitGroup
	for k := range appenders {
		work.Go(func() {
			for i := range batches {
				a, b := fmt.Sprintf("w%d-%d-a", k, i), fmt.Sprintf("w%d-%d-b", k, i)
				parent := fmt.Sprintf("w%d-%d-a", k, i/2)
				batch := []string{assistant(a, parent, "x"), user(b, a, strings.Repeat("y", i*40)), childUsage(b+"u", b, a, i)}
				switch {
				case i%7 == 3:
					batch = append(batch, compaction(b+"c", b, a))
				case i%5 == 1:
					batch = append(batch, contextEdit(b+"e", b, a, `null`))
				}
				if _, err := w.call(appendCommand("s1", batch...)); err != nil {
					t.Errorf("append: %v", err)
				}
			}
		})
	}
	go func() { work.Wait(); close(done) }()
	var clients sync.WaitGroup
	for i := range 6 {
		clients.Go(func() {
			f := &follower{t: panics{}}
			c := wire.Command{Session: "s1", View: []wire.View{wire.ViewTranscript, wire.ViewContext, wire.ViewRecords}[i%3]}
			if err := f.attach(w, c); err != nil {
				t.Errorf("attach: %v", err)
				return
			}
			for n, more := 1, true; more; n = n*5%23 + 1 {
				select {
				case <-done:
					more = false
				default:
				}
				f.pull(n)
				if n%3 == 0 {
					f.again(w)
				}
			}
			f.drain()
			fresh := &follower{t: panics{}}
			if err := fresh.attach(w, c); err != nil {
				t.Errorf("attach: %v", err)
				return
			}
			fresh.drain()
			if !slices.Equal(f.slots, fresh.slots) || f.cursor != fresh.cursor {
				t.Errorf("%s: got %d slots at %v, fresh %d at %v", c.View, len(f.slots), f.cursor, len(fresh.slots), fresh.cursor)
			}
			if c.View == wire.ViewRecords && joinRecords(panics{}, f.slots) != string(readFile(t, created.Path)) {
				t.Errorf("records are not the file's")
			}
			f.st.Close()
			fresh.st.Close()
		})
	}
	clients.Wait()
	<-done
}
