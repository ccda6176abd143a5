package engine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sessiond/engine/vfs"
	"sessiond/engine/vfs/vfstest"
	"sessiond/wire"
)

// followed is a followed file with clients of two views.
type followed struct {
	*world
	path       string
	transcript *follower
	records    *follower
}

func newFollowed(t *testing.T, change ...func(*Options)) *followed {
	t.Helper()
	w := newWorld(t, change...)
	f := &followed{world: w, path: w.write("a.jsonl", sessionText(20))}
	w.e.changed(f.path)
	f.transcript = w.attach(wire.Command{Session: "a", View: wire.ViewTranscript})
	f.records = w.attach(wire.Command{Session: "a", View: wire.ViewRecords})
	f.transcript.untilLive()
	f.records.untilLive()
	return f
}

// untilFile waits until the clients hold the file as it is.
func (f *followed) untilFile() {
	f.t.Helper()
	want := string(readFile(f.t, f.path))
	f.records.until("the file's records", func() bool { return f.records.live && joinRecords(f.t, f.records.slots) == want })
	f.transcript.until("the same record", func() bool {
		return f.transcript.live && f.transcript.cursor.Same(f.records.cursor)
	})
}

func (f *followed) replacements() int {
	return f.transcript.count(wire.TypeSnapshotBegin) - 1
}

func polling(o *Options) { o.Polling = true }

func TestFollowed_GrowthIsSeen(t *testing.T) {
	for _, row := range []struct {
		name   string
		change []func(*Options)
	}{{"by events", nil}, {"by polling", []func(*Options){polling}}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f := newFollowed(t, row.change...)
			start := time.Now()
			f.extendFile(f.path, lines(chain(20, 5)...))
			f.untilFile()
			if d := time.Since(start); d > 3*time.Second {
				t.Errorf("seen after %v, want about a second at the most", d)
			}
			if f.replacements() > 0 || len(f.transcript.slots) != 25 {
				t.Errorf("%d slots, frames %v", len(f.transcript.slots), f.transcript.frames)
			}
		})
	}
}

// What changes a file, and what the clients are told.
func TestFollowed_OnlyADifferentHistoryIsAReplacement(t *testing.T) {
	longer := sessionText(20) + lines(user("x", "e19", "more"))
	other := strings.ReplaceAll(sessionText(20), "message", "massage")
	for _, row := range []struct {
		name   string
		change func(f *followed)
		reason string // "": no replacement
	}{
		{"nothing but chmod", func(f *followed) { f.must(os.Chmod(f.path, 0o644)) }, ""},
		{"nothing but the times", func(f *followed) { f.must(os.Chtimes(f.path, time.Now(), time.Unix(1, 0))) }, ""},
		{"rewritten in place with the same bytes", func(f *followed) { f.overwrite(sessionText(20)) }, ""},
		{"same size, other bytes", func(f *followed) { f.overwrite(other) }, wire.ReasonRewritten},
		{"same size, other bytes, mtime put back", func(f *followed) {
			info, err := os.Stat(f.path)
			f.must(err)
			f.overwrite(other)
			f.must(os.Chtimes(f.path, info.ModTime(), info.ModTime()))
		}, wire.ReasonRewritten},
		{"truncated at a record's end", func(f *followed) { f.must(os.Truncate(f.path, int64(len(sessionText(10))))) }, wire.ReasonTruncated},
		{"truncated inside a record", func(f *followed) { f.must(os.Truncate(f.path, int64(len(sessionText(10))-5))) }, wire.ReasonTruncated},
		{"truncated to nothing", func(f *followed) { f.must(os.Truncate(f.path, 0)) }, wire.ReasonTruncated},
		{"larger, other bytes", func(f *followed) { f.overwrite(other + other) }, wire.ReasonRewritten},
		{"renamed over, same prefix", func(f *followed) { f.replaceFile(f.path, longer) }, ""},
		{"renamed over, other bytes", func(f *followed) { f.replaceFile(f.path, other+longer) }, wire.ReasonRewritten},
		{"renamed over, shorter", func(f *followed) { f.replaceFile(f.path, sessionText(5)) }, wire.ReasonTruncated},
		{"removed and made again, same bytes and more", func(f *followed) {
			f.must(os.Remove(f.path))
			f.replaceFile(f.path, longer)
		}, ""},
		{"removed and made again, other bytes", func(f *followed) {
			f.must(os.Remove(f.path))
			f.replaceFile(f.path, other)
		}, wire.ReasonRewritten},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f := newFollowed(t)
			was := f.transcript.result.Generation
			oldBytes := f.transcript.cursor.Offset
			row.change(f)
			f.look("a")
			f.transcript.drain()
			f.records.drain()
			// The watcher looks too; what it finds is not another change.
			settled := f.session("a").kick()
			f.eventually("the look is done", func() bool { return f.session("a").hasLooked(settled) })
			f.transcript.drain()
			f.records.drain()
			content := string(readFile(t, f.path))
			whole := content[:strings.LastIndexByte(content, '\n')+1]
			if got := joinRecords(t, f.records.slots); got != whole {
				t.Errorf("records: got %d bytes, want %d", len(got), len(whole))
			}
			fresh := f.attach(wire.Command{Session: "a", View: wire.ViewTranscript})
			fresh.untilLive()
			if !slices.Equal(fresh.slots, f.transcript.slots) {
				t.Errorf("transcript: got\n%s\nwant\n%s", f.transcript.text(), fresh.text())
			}
			if row.reason == "" {
				if f.replacements() > 0 || fresh.result.Generation != was {
					t.Errorf("got %d replacements, generation %s; want none, %s", f.replacements(), fresh.result.Generation, was)
				}
				return
			}
			begin := f.transcript.begin
			if f.replacements() == 0 || begin.Purpose != wire.PurposeReplacement || begin.Reason == nil || *begin.Reason != row.reason {
				t.Fatalf("got %d replacements, begin %+v; want reason %s", f.replacements(), begin, row.reason)
			}
			if begin.Generation == was || *begin.OldBytes != oldBytes || *begin.NewBytes != int64(len(whole)) {
				t.Errorf("generation %s, %d to %d bytes; want another than %s, %d to %d", begin.Generation, *begin.OldBytes, *begin.NewBytes, was, oldBytes, len(whole))
			}
		})
	}
}

func (f *followed) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// overwrite writes over a file in place, without truncating it first.
func (f *followed) overwrite(content string) {
	f.t.Helper()
	file, err := os.OpenFile(f.path, os.O_WRONLY, 0)
	f.must(err)
	_, err = file.WriteString(content)
	f.must(err)
	f.must(file.Close())
}

func TestFollowed_ProvisionalTail(t *testing.T) {
	f := newFollowed(t)
	context := f.attach(wire.Command{Session: "a", View: wire.ViewContext})
	context.untilLive()
	raw := f.attach(wire.Command{Session: "a", View: wire.ViewRecords, Encoding: wire.EncodingRaw})
	raw.untilLive()
	line := user("t", "e19", "tail")
	step := func(text string) {
		f.extendFile(f.path, text)
		f.look("a")
		for _, c := range []*follower{f.transcript, f.records, context, raw} {
			c.drain()
		}
	}
	step(line[:40])
	for _, c := range []*follower{f.transcript, f.records, context} {
		if c.provisional != nil {
			t.Errorf("%s: a torn tail is shown: %+v", c.command.View, c.provisional)
		}
	}
	step(line[40:])
	for _, c := range []*follower{f.transcript, context} {
		p := c.provisional
		if p == nil || p.Bytes != int64(len(line)) || !strings.Contains(string(p.Messages), `"tail"`) || !strings.Contains(string(p.Meta), "provisional") {
			t.Errorf("%s: got %+v, want the message", c.command.View, p)
		}
		if len(c.slots) != 20 {
			t.Errorf("%s: %d slots, want the 20 of whole records", c.command.View, len(c.slots))
		}
	}
	if p := f.records.provisional; p == nil || string(p.Record) != line {
		t.Errorf("records: got %+v, want the line", p)
	}
	// One that attaches now is shown it behind the seam.
	late := f.attach(wire.Command{Session: "a", View: wire.ViewTranscript})
	late.untilLive()
	late.drain()
	if late.provisional == nil || len(late.slots) != 20 {
		t.Errorf("late: provisional %v, %d slots", late.provisional, len(late.slots))
	}
	step("\n")
	for _, c := range []*follower{f.transcript, context} {
		if c.provisional != nil || len(c.slots) != 21 || c.count(wire.TypeProvisional) != 1 {
			t.Errorf("%s: provisional %v, %d slots, frames %v; want it superseded", c.command.View, c.provisional, len(c.slots), c.frames)
		}
	}
	if raw.count(wire.TypeProvisional) > 0 || raw.raw.String() != string(readFile(t, f.path)) {
		t.Errorf("raw: frames %v", raw.frames)
	}
	// A branch back lays a cut over the view, which is not made.
	step(user("b", "e3", "branch"))
	if p := f.transcript.provisional; p == nil || p.Keep == nil || *p.Keep != 4 || len(f.transcript.slots) != 21 {
		t.Errorf("branch: got %+v; want keep 4", p)
	}
	// A tail that is cut off and written anew is another.
	if err := os.Truncate(f.path, f.records.cursor.Offset); err != nil {
		t.Fatal(err)
	}
	f.look("a")
	step(user("c", "e20", "other") + "\n")
	if n := len(f.transcript.slots); f.replacements() > 0 || !strings.Contains(f.transcript.slots[n-1], "other") {
		t.Errorf("after another tail: frames %v, slots\n%s", f.transcript.frames, f.transcript.text())
	}
}

func TestFollowed_RemovedAndMadeAgain(t *testing.T) {
	f := newFollowed(t)
	was := f.transcript.result.Generation
	size := f.transcript.cursor.Offset
	f.must(os.Remove(f.path))
	f.transcript.untilOver()
	f.records.untilOver()
	if r := f.transcript.removed; r == nil || r.Bytes != size || f.transcript.frames[len(f.transcript.frames)-1] != wire.TypeRemoved {
		t.Errorf("removed: got %+v, frames %v; want the last known %d bytes", r, f.transcript.frames, size)
	}
	if _, ok := f.listed("f:a.jsonl"); ok {
		t.Errorf("it is listed still")
	}
	f.refuse(wire.Command{Type: wire.CmdAttach, Session: "f:a.jsonl", View: wire.ViewRecords}, wire.CodeSessionGone)
	f.write("a.jsonl", sessionText(3))
	f.eventually("the new file is listed", func() bool { _, ok := f.listed("f:a.jsonl"); return ok })
	again := f.attach(wire.Command{Session: "a", View: wire.ViewTranscript})
	again.untilLive()
	if again.result.Generation == was || len(again.slots) != 3 {
		t.Errorf("made again: generation %s, %d slots; want another than %s, 3", again.result.Generation, len(again.slots), was)
	}
	if n := f.log.count("session removed"); n != 1 {
		t.Errorf("logged %d times that it was removed, want once", n)
	}
}

// A file that is made again in the moment its session ends is not forgotten.
func TestFollowed_MadeAgainWhileItsSessionEnds(t *testing.T) {
	c := &clock{}
	f := newFollowed(t, func(o *Options) { o.Now = c.now; o.Polling = true })
	s := f.session("a")
	f.must(os.Remove(f.path))
	f.look("a")
	c.advance(Timing{}.withDefaults().Quiet)
	// The file is there again after the look and before the session ends.
	f.must(s.acquire(t.Context()))
	f.must(os.WriteFile(f.path, []byte(sessionText(2)), 0o600))
	err := s.remove(t.Context())
	s.releaseToken()
	f.must(err)
	if _, ok := f.listed("f:a.jsonl"); !ok {
		t.Fatalf("the new file is not listed")
	}
	if now := f.session("f:a.jsonl"); now == s {
		t.Errorf("it is the session that has ended")
	}
	f.transcript.untilOver()
}

func TestFollowed_AliasesAreOneSession(t *testing.T) {
	for _, row := range []struct {
		name string
		link func(old, name string) error
	}{{"hard link", os.Link}, {"symbolic link", os.Symlink}} {
		for _, when := range []string{"before the start", "later"} {
			t.Run(row.name+" "+when, func(t *testing.T) {
				t.Parallel()
				w := newStoppedWorld(t)
				path := w.write("m.jsonl", sessionText(5))
				alias := w.path("a.jsonl") // sorts before it
				if when == "later" {
					w.start()
				}
				if err := row.link(path, alias); err != nil {
					t.Fatal(err)
				}
				if when == "later" {
					w.e.changed(alias)
				} else {
					w.start()
				}
				list := w.list(wire.Command{}).Sessions
				if len(list) != 1 || len(list[0].Aliases) != 1 {
					t.Fatalf("got %+v, want one session with one alias", list)
				}
				var both []*follower
				for _, name := range []string{"f:m.jsonl", "f:a.jsonl"} {
					f := w.attach(wire.Command{Session: name, View: wire.ViewTranscript})
					f.untilLive()
					both = append(both, f)
				}
				if both[0].result.Session != both[1].result.Session {
					t.Errorf("got sessions %s and %s", both[0].result.Session, both[1].result.Session)
				}
				w.extendFile(alias, lines(chain(5, 1)...))
				for _, f := range both {
					f.untilSequence(7)
				}
			})
		}
	}
}

// A name that comes to be of another file is another session.
func TestFollowed_AliasThatIsReplaced(t *testing.T) {
	w := newWorld(t, polling)
	path, alias := w.write("a.jsonl", sessionText(5)), w.path("b.jsonl")
	w.e.changed(path)
	if err := os.Link(path, alias); err != nil {
		t.Fatal(err)
	}
	w.e.changed(alias)
	w.replaceFile(alias, sessionText(2))
	w.e.changed(alias)
	a := w.attach(wire.Command{Session: "f:a.jsonl", View: wire.ViewTranscript})
	b := w.attach(wire.Command{Session: "f:b.jsonl", View: wire.ViewTranscript})
	a.untilLive()
	b.untilLive()
	if len(a.slots) != 5 || len(b.slots) != 2 {
		t.Errorf("got %d and %d messages, want 5 and 2", len(a.slots), len(b.slots))
	}
	if s, _ := w.listed("f:a.jsonl"); len(s.Aliases) > 0 {
		t.Errorf("aliases %v, want none", s.Aliases)
	}
}

// A file whose first name goes lives on under its other one.
func TestFollowed_FirstNameIsRemoved(t *testing.T) {
	w := newWorld(t)
	path, alias := w.write("a.jsonl", sessionText(5)), w.path("b.jsonl")
	w.e.changed(path)
	if err := os.Link(path, alias); err != nil {
		t.Fatal(err)
	}
	w.e.changed(alias)
	f := w.attach(wire.Command{Session: "f:a.jsonl", View: wire.ViewTranscript})
	f.untilLive()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	f.untilOver()
	b := w.attach(wire.Command{Session: "f:b.jsonl", View: wire.ViewTranscript})
	b.untilLive()
	if len(b.slots) != 5 {
		t.Errorf("got %d messages, want 5", len(b.slots))
	}
}

// One bad file hides no other: it is listed with a reason.
func TestFollowed_WhatCannotBeRead(t *testing.T) {
	w := newStoppedWorld(t)
	w.write("good.jsonl", sessionText(3))
	w.write("noline.jsonl", `{"type":"ses`)
	w.write("empty.jsonl", "")
	if err := unix.Mkfifo(w.path("fifo.jsonl"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(w.path("folder.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "outside.jsonl")
	if err := os.WriteFile(outside, []byte(sessionText(1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for target, name := range map[string]string{outside: "outside.jsonl", "loop.jsonl": "loop.jsonl", "nowhere": "dangling.jsonl"} {
		if err := os.Symlink(target, w.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	w.start()
	want := map[string]wire.Code{
		"good": "", "noline": "", "empty": "",
		"fifo": wire.CodeIO, "folder": wire.CodeIO, "outside": wire.CodeIO, "loop": wire.CodeIO, "dangling": wire.CodeSessionGone,
	}
	for round := range 2 { // then with what was learnt by trying
		list := w.list(wire.Command{Root: followedRoot}).Sessions
		if len(list) != len(want) {
			t.Errorf("round %d: %d sessions, want %d: %+v", round, len(list), len(want), list)
		}
		for _, s := range list {
			if code := want[s.ID]; (code == "") != (s.Error == "") {
				t.Errorf("round %d: %s: error %q, want one: %v", round, s.ID, s.Error, code != "")
			}
		}
		for name, code := range want {
			c := wire.Command{Type: wire.CmdAttach, Session: name, View: wire.ViewRecords}
			if code == "" {
				w.attach(c).untilLive()
			} else {
				w.refuse(c, code)
			}
		}
	}
}

// A file that is rewritten while it is sent fails the snapshot, and the next
// one is of the new file; the client is not thrown out.
func TestFollowed_RewrittenWhileASnapshotIsSent(t *testing.T) {
	for _, encoding := range []string{wire.EncodingJSON, wire.EncodingRaw} {
		t.Run(encoding, func(t *testing.T) {
			f := newFollowed(t, polling, smallChunks, onDemand) // else it may be packed before
			// More than what is held of a file that was read just now.
			big := strings.Repeat("x", 1<<20)
			f.extendFile(f.path, lines(user("big1", "e19", big), user("big2", "big1", big), user("big3", "big2", big)))
			f.look("a")
			c := f.attach(wire.Command{Session: "a", View: wire.ViewRecords, Encoding: encoding})
			c.until("begin", func() bool { return c.snapshot != nil })
			f.must(os.Truncate(f.path, 100))
			c.until("a replacement", func() bool { return c.live })
			if c.begin.Purpose != wire.PurposeReplacement || c.count(wire.TypeSnapshotFailed) != 1 {
				t.Errorf("frames %v, begin %+v", c.frames, c.begin)
			}
		})
	}
}

// A client that is behind when its file is cut gets the new file.
func TestFollowed_CutWhileAClientIsBehind(t *testing.T) {
	f := newFollowed(t, polling)
	f.extendFile(f.path, lines(chain(20, 200)...))
	f.look("a")
	f.records.pull(3)
	f.transcript.pull(3)
	f.must(os.Truncate(f.path, int64(len(sessionText(4)))))
	f.untilFile()
	if len(f.transcript.slots) != 4 || f.transcript.begin.Purpose != wire.PurposeReplacement {
		t.Errorf("%d slots, begin %+v", len(f.transcript.slots), f.transcript.begin)
	}
}

// A header that comes late says how all lines before it are to be read.
func TestFollowed_LateHeaderWhileASnapshotIsSent(t *testing.T) {
	w := newWorld(t, polling, smallChunks)
	var entries []string
	for i := range 200 {
		e := user(string(rune('a'+i%26))+strings.Repeat("x", i/26), "", "message")
		if i%2 == 0 { // an entry without an id is one in version 1 only
			e = strings.Replace(e, `"id"`, `"no"`, 1)
		}
		entries = append(entries, e)
	}
	path := w.write("a.jsonl", lines(entries...))
	w.e.changed(path)
	live := w.attach(wire.Command{Session: "a", View: wire.ViewTranscript})
	live.untilLive()
	half := w.attach(wire.Command{Session: "a", View: wire.ViewTranscript})
	half.until("2 chunks", func() bool { return half.next == 2 })
	w.extendFile(path, header+"\n")
	w.look("a")
	half.untilLive()
	live.drain()
	half.drain()
	fresh := w.attach(wire.Command{Session: "a", View: wire.ViewTranscript})
	fresh.untilLive()
	for name, f := range map[string]*follower{"live": live, "inside a snapshot": half} {
		if !slices.Equal(f.slots, fresh.slots) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, f.text(), fresh.text())
		}
	}
	if half.count(wire.TypeSnapshotFailed) != 0 { // it is as of its cut, and what follows takes it from there
		t.Errorf("inside a snapshot: frames %v, failed %+v", half.frames, half.failed)
	}
}

// A file that no format is seen in yet turns into a session.
func TestFollowed_EmptyFileBecomesASession(t *testing.T) {
	w := newWorld(t, polling)
	path := w.write("a.jsonl", "")
	w.e.changed(path)
	f := w.attach(wire.Command{Session: "a", View: wire.ViewTranscript})
	f.untilLive()
	w.extendFile(path, header+"\n")
	w.look("a")
	f.drain()
	w.extendFile(path, lines(chain(0, 3)...))
	w.look("a")
	f.drain()
	if len(f.slots) != 3 || !f.live {
		t.Errorf("got %d slots, frames %v", len(f.slots), f.frames)
	}
	w.eventually("its id is known", func() bool { return w.session("s1").key == "f:a.jsonl" })
}

// A file that was empty at the look and has its bytes again when it is opened
// is served as it is then.
func TestFollowed_FilledAgainBehindTheLook(t *testing.T) {
	disk := vfstest.New(vfs.OS{})
	w := newWorld(t, polling, func(o *Options) { o.FS = disk })
	text := sessionText(5)
	path := w.write("a.jsonl", text)
	w.e.changed(path)
	f := w.attach(wire.Command{Session: "f:a.jsonl", View: wire.ViewRecords, Encoding: wire.EncodingRaw})
	f.untilLive()
	must(w, os.Truncate(path, 0))
	longer := text + lines(user("n", "e0", "new"))
	disk.Add(vfstest.Rule{Op: vfstest.OpenRead, Path: path, Do: func() { w.write("a.jsonl", longer) }})
	w.look("f:a.jsonl")
	f.drain()
	if got := f.raw.String(); got != longer {
		t.Errorf("got %d bytes, want %d", len(got), len(longer))
	}
}

// A record with NUL bytes is passed on in time also where its file was
// compared meanwhile, so that its stamp alone proves the content.
func TestFollowed_HoleOfAFileThatRests(t *testing.T) {
	t.Parallel()
	f := newFollowed(t, func(o *Options) { o.Timing.Hole = 1500 * time.Millisecond })
	f.extendFile(f.path, strings.Repeat("\x00", 100)+"\n"+lines(chain(20, 1)...))
	f.untilFile()
	if n := f.replacements(); n > 0 {
		t.Errorf("%d replacements", n)
	}
}
