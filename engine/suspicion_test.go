package engine

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sessiond/engine/vfs"
	"sessiond/engine/vfs/vfstest"
	"sessiond/wire"
)

// stillClock is a time that passes only when a test says so.
type stillClock struct {
	mu sync.Mutex
	at time.Time
}

func newStillClock() *stillClock { return &stillClock{at: time.Now()} }

func (c *stillClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *stillClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// still is a followed file with clients, for which time stands still. Looks
// that the engine takes by itself find nothing that the test's do not.
type still struct {
	*followed
	clock  *stillClock
	timing Timing
}

func newStill(t *testing.T, change ...func(*Options)) *still {
	t.Helper()
	c := newStillClock()
	slow := func(o *Options) { o.Now, o.Timing = c.now, Timing{Rest: time.Hour} }
	f := newFollowed(t, append([]func(*Options){polling, slow}, change...)...)
	return &still{f, c, f.opt.Timing.withDefaults()}
}

// glance looks at the file once, and lets the clients take what comes of it.
func (f *still) glance() {
	f.t.Helper()
	if err := f.session("f:a.jsonl").lookNow(f.t.Context()); err != nil {
		f.t.Fatalf("look: %v", err)
	}
	f.transcript.drain()
	f.records.drain()
}

// after lets time pass and looks.
func (f *still) after(d time.Duration) {
	f.t.Helper()
	f.clock.advance(d)
	f.glance()
}

// is demands so many replacements, and clients that hold a text.
func (f *still) is(replacements int, text string) {
	f.t.Helper()
	if got := f.replacements(); got != replacements {
		f.t.Fatalf("got %d replacements, want %d; frames %v", got, replacements, f.transcript.frames)
	}
	if got := joinRecords(f.t, f.records.slots); got != text {
		f.t.Fatalf("the client holds %d bytes, want %d", len(got), len(text))
	}
	fresh := f.attach(wire.Command{Session: "f:a.jsonl", View: wire.ViewTranscript, Live: new(bool)})
	fresh.untilOver()
	if !slices.Equal(fresh.slots, f.transcript.slots) {
		f.t.Fatalf("transcript: got\n%s\nwant\n%s", f.transcript.text(), fresh.text())
	}
}

// history is a session of n messages that differs from any other's.
func history(name string, n int) string {
	return strings.ReplaceAll(sessionText(n), `"cwd":"/w"`, `"cwd":"/`+name+`"`)
}

// A writer that rewrites its file again and again is one that has rewritten it
// once, when it is done.
func TestSuspicion_BurstIsOneReplacement(t *testing.T) {
	for _, row := range []struct {
		name    string
		rewrite func(f *still, text string)
	}{
		{"in place", func(f *still, text string) { f.write("a.jsonl", text) }},
		{"by renaming", func(f *still, text string) { f.replaceFile(f.path, text) }},
		{"by removing and making", func(f *still, text string) {
			f.must(os.Remove(f.path))
			f.glance()
			f.write("a.jsonl", text)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := newStill(t)
			last := ""
			for i := range 20 {
				last = history(fmt.Sprintf("h%d", i), 5+i)
				row.rewrite(f, last)
				f.after(f.timing.Declare / 25)
				f.undeclared()
			}
			f.after(f.timing.Quiet)
			f.is(1, last)
			f.after(f.timing.Declare)
			f.is(1, last)
		})
	}
}

// undeclared demands that nothing was declared yet.
func (f *still) undeclared() {
	f.t.Helper()
	if n := f.replacements(); n > 0 || f.transcript.over {
		f.t.Fatalf("%d replacements, over %v; want nothing declared yet", n, f.transcript.over)
	}
}

func TestSuspicion_RestoredInTimeIsNone(t *testing.T) {
	for _, row := range []struct {
		name  string
		spoil func(f *still)
	}{
		{"truncated", func(f *still) { f.must(os.Truncate(f.path, 100)) }},
		{"truncated to nothing", func(f *still) { f.must(os.Truncate(f.path, 0)) }},
		{"other bytes", func(f *still) { f.write("a.jsonl", history("x", 30)) }},
		{"removed", func(f *still) { f.must(os.Remove(f.path)) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := newStill(t)
			was, text := f.transcript.result.Generation, sessionText(20)
			row.spoil(f)
			f.glance()
			f.after(f.timing.Quiet - 1)
			f.undeclared()
			f.write("a.jsonl", text)
			f.glance()
			f.undeclared()
			f.after(f.timing.Quiet)
			f.is(0, text)
			if p, ok := f.session("f:a.jsonl").suspicion(); ok {
				t.Errorf("still suspected: %+v", p)
			}
			more := lines(chain(20, 3)...)
			f.extendFile(f.path, more)
			f.glance()
			f.is(0, text+more)
			if now := f.session("f:a.jsonl").current().id; now != was {
				t.Errorf("generation %s, want %s", now, was)
			}
		})
	}
}

func TestSuspicion_ChangingForEverIsDeclared(t *testing.T) {
	f := newStill(t)
	step := f.timing.Quiet / 2
	last := ""
	for i := 0; time.Duration(i)*step < f.timing.Declare; i++ {
		last = history(fmt.Sprintf("h%d", i), 3+i)
		f.write("a.jsonl", last)
		f.glance()
		f.undeclared()
		f.clock.advance(step)
	}
	last = history("last", 40)
	f.write("a.jsonl", last)
	f.glance()
	f.is(1, last)
}

// Growth is taken in by the file's ends; what changed between them is found
// when the file rests, without any further change.
func TestSuspicion_OldBytesAreFoundInTheBackground(t *testing.T) {
	f := newStill(t)
	filler := strings.Repeat("fill ", 400)
	var entries []string
	last := "e19"
	for i := range 1000 { // two checkpoints
		id := fmt.Sprintf("b%d", i)
		entries = append(entries, user(id, last, filler))
		last = id
	}
	f.extendFile(f.path, lines(entries...))
	f.glance()
	text := string(readFile(t, f.path))
	f.is(0, text)
	s := f.session("f:a.jsonl")

	at := int64(strings.Index(text, `"b500"`)) + int64(strings.Index(text[strings.Index(text, `"b500"`):], "fill"))
	file, err := os.OpenFile(f.path, os.O_WRONLY, 0)
	f.must(err)
	_, err = file.WriteAt([]byte("FILL"), at)
	f.must(err)
	f.must(file.Close())
	more := lines(user("more", last, "more"))
	f.extendFile(f.path, more)
	f.glance()
	f.undeclared()
	if n := len(f.records.slots); n != 1022 {
		t.Fatalf("got %d records, want 1022: growth is taken in at once", n)
	}
	f.clock.advance(f.timing.Rest + time.Second)
	if !s.isResting(f.clock.now()) {
		t.Fatal("the file is to be compared now")
	}
	f.e.scrub()
	if _, ok := s.suspicion(); !ok {
		t.Fatal("nothing is suspected after the comparison")
	}
	f.undeclared()
	f.after(f.timing.Quiet)
	f.is(1, string(readFile(t, f.path)))
	if begin := f.transcript.begin; begin.Reason == nil || *begin.Reason != wire.ReasonRewritten {
		t.Errorf("begin %+v", begin)
	}
}

func TestHole_FillsInTime(t *testing.T) {
	f := newStill(t)
	text := sessionText(20)
	line, next := user("h", "e19", "filled"), lines(user("n", "h", "behind it"))
	f.extendFile(f.path, strings.Repeat("\x00", len(line))+"\n")
	f.glance()
	f.is(0, text)
	f.extendFile(f.path, next)
	f.after(f.timing.Hole - 1)
	f.is(0, text)
	file, err := os.OpenFile(f.path, os.O_WRONLY, 0)
	f.must(err)
	_, err = file.WriteAt([]byte(line), int64(len(text)))
	f.must(err)
	f.must(file.Close())
	f.glance()
	f.is(0, text+line+"\n"+next)
	f.after(f.timing.Declare + f.timing.Hole)
	f.is(0, text+line+"\n"+next)
}

func TestHole_ThatNeverFillsIsServed(t *testing.T) {
	f := newStill(t)
	text := sessionText(20)
	more := strings.Repeat("\x00", 50) + "\n" + lines(user("n", "e19", "behind it"))
	f.extendFile(f.path, more)
	f.glance()
	f.is(0, text)
	f.after(f.timing.Hole - 1)
	f.is(0, text)
	f.clock.advance(1)
	f.glance()
	if int(f.records.cursor.Sequence) != 23 || len(f.transcript.slots) != 21 || f.replacements() > 0 {
		t.Errorf("cursor %v, %d messages, %d replacements; want record 23, 21, none", f.records.cursor, len(f.transcript.slots), f.replacements())
	}
}

// A client that was given the records behind a hole goes on from there,
// though the hole is waited for anew after a restart.
func TestHole_SeenBeforeARestart(t *testing.T) {
	f := newStill(t)
	f.extendFile(f.path, strings.Repeat("\x00", 50)+"\n"+lines(user("n", "e19", "behind it")))
	f.glance()
	f.after(f.timing.Hole)
	if f.records.cursor.Sequence != 23 {
		t.Fatalf("cursor %v, want record 23", f.records.cursor)
	}
	f.transcript.st.Close()
	f.records.st.Close()
	f.stop()
	f.clock.advance(-f.timing.Hole)                          // so that the hole is young again
	f.extendFile(f.path, lines(user("o", "n", "meanwhile"))) // so that the file is read again
	f.start()
	f.attach(wire.Command{Session: "a", View: wire.ViewRecords, Live: new(bool)}).untilOver()
	if tail := f.session("a").current().replay.Tail(); !tail.Hole {
		t.Fatalf("tail %+v; the hole is to be waited for", tail)
	}
	for _, c := range []*follower{f.transcript, f.records} {
		c.again(f.world)
		if c.result.Mode != wire.ModeTail {
			t.Errorf("%s: mode %s, reason %s; want the tail", c.command.View, c.result.Mode, c.reason())
		}
		c.untilSequence(24)
	}
	if n := len(f.transcript.slots); n != 22 {
		t.Errorf("got %d messages, want 22", n)
	}
}

// A line that comes in pieces is one record when its end is there, and until
// then none; each piece is not read from the line's start for ever.
func TestFollowed_LineGrowsInSteps(t *testing.T) {
	f := newStill(t)
	text := sessionText(20)
	line := user("long", "e19", strings.Repeat("z", 3<<20)) + "\n"
	const step = 300 << 10
	for at := 0; at < len(line); at += step {
		f.is(0, text)
		f.extendFile(f.path, line[at:min(at+step, len(line))])
		f.glance()
	}
	if c := f.records.cursor; c.Sequence != 22 || c.Offset != int64(len(text)+len(line)) || f.replacements() > 0 {
		t.Errorf("at %v, %d replacements; want record 22 and none", c, f.replacements())
	}
	v := f.e.counters.Values()
	if v["replay_builds"] != 1 || v["full_scans"] != 1 || v["lines_parsed"] != 22 {
		t.Errorf("got %v, want one build and each record parsed once", v)
	}
}

// A file with two names, of which one comes to name another file: each is
// served as what it is.
func TestAlias_WhoseNameIsReplaced(t *testing.T) {
	for _, row := range []struct{ name, replaced, stays string }{
		{"the second name", "b.jsonl", "a.jsonl"},
		{"the first name", "a.jsonl", "b.jsonl"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, polling)
			path := w.write("a.jsonl", sessionText(5))
			w.e.changed(path)
			must(w, os.Link(path, w.path("b.jsonl")))
			w.e.changed(w.path("b.jsonl"))
			live := w.attach(wire.Command{Session: "f:" + row.replaced, View: wire.ViewTranscript})
			live.untilLive()
			w.replaceFile(w.path(row.replaced), history("other", 2))
			for range 2 { // the watcher tells of each name
				w.e.changed(w.path("a.jsonl"))
				w.e.changed(w.path("b.jsonl"))
			}
			served := func(name string, n int) func() bool {
				return func() bool {
					live := false
					f, err := w.tryAttach(wire.Command{Session: "f:" + name, View: wire.ViewTranscript, Live: &live})
					if err != nil {
						return false
					}
					f.untilOver()
					return len(f.slots) == n
				}
			}
			w.eventually("the new file is served by its name", served(row.replaced, 2))
			w.eventually("the old one by the other", served(row.stays, 5))
			if n := len(w.list(wire.Command{}).Sessions); n != 2 {
				t.Errorf("%d sessions are listed, want 2", n)
			}
		})
	}
}

// Who attaches while a file differs waits until it is known what it is.
func TestSuspicion_AttachWaits(t *testing.T) {
	f := newFollowed(t, polling)
	other := history("other", 7)
	f.write("a.jsonl", other)
	f.must(f.session("f:a.jsonl").lookNow(t.Context()))
	c := f.attach(wire.Command{Session: "f:a.jsonl", View: wire.ViewRecords, Live: new(bool)})
	c.untilOver()
	if got := joinRecords(t, c.slots); got != other {
		t.Errorf("got %d bytes, want %d of the new file", len(got), len(other))
	}
}

// Where that goes on, it is refused: after as many looks as make it certain,
// or when the file changes under each reading of it.
func TestSuspicion_AttachIsUnstable(t *testing.T) {
	t.Run("it is never quiet", func(t *testing.T) {
		f := newStill(t, func(o *Options) {
			o.Timing.Quiet, o.Timing.Declare = time.Millisecond, 5*time.Millisecond
		})
		f.write("a.jsonl", history("other", 7))
		e := f.refuse(wire.Command{Type: wire.CmdAttach, Session: "f:a.jsonl", View: wire.ViewRecords}, wire.CodeUnstable)
		if !e.Retryable {
			t.Error("it cannot be tried again")
		}
		f.after(f.timing.Quiet)
		f.is(1, history("other", 7))
	})
	t.Run("it changes while it is read", func(t *testing.T) {
		disk := vfstest.New(vfs.OS{})
		w := newWorld(t, alone, func(o *Options) { o.FS = disk })
		path := w.write("a.jsonl", history("h", 5))
		w.e.changed(path)
		n := 0
		disk.Add(vfstest.Rule{Op: vfstest.Info, Path: path, Times: vfstest.Always, Do: func() {
			n++
			w.write("a.jsonl", history(fmt.Sprint("h", n), 5)[:400-n])
		}})
		w.refuse(wire.Command{Type: wire.CmdAttach, Session: "f:a.jsonl", View: wire.ViewRecords}, wire.CodeUnstable)
		disk.Heal()
		f := w.attach(wire.Command{Session: "f:a.jsonl", View: wire.ViewRecords, Live: new(bool)})
		f.untilOver()
		whole := string(readFile(t, path))
		if got, want := joinRecords(t, f.slots), whole[:strings.LastIndexByte(whole, '\n')+1]; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
