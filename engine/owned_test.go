package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sessiond/engine/vfs"
	"sessiond/engine/vfs/vfstest"
	"sessiond/wire"
)

// withFaults puts a file system with faults below an engine.
func withFaults() (*vfstest.FS, func(*Options)) {
	faults := vfstest.New(vfs.OS{})
	return faults, func(o *Options) { o.FS = faults }
}

func appendCommand(session string, entries ...string) wire.Command {
	return wire.Command{Type: wire.CmdAppend, Session: session, Entries: entries}
}

func TestOwned_TornTailIsKeptAndCut(t *testing.T) {
	w := newWorld(t)
	c := w.create("s1")
	w.append("s1", chain(0, 3)...)
	whole := readFile(t, c.Path)
	for i, torn := range []string{`{"type":"mess`, "\x00\x00\x00\x00", user("whole", "e2", "whole")} {
		w.stop()
		w.extendFile(c.Path, torn)
		w.start()
		if i == 2 { // a whole object is a record that lacks its end
			whole = append(whole, torn+"\n"...)
		}
		before := readFile(t, c.Path)
		f := w.attach(wire.Command{Session: "s1", View: wire.ViewRecords, Encoding: wire.EncodingRaw})
		f.untilLive()
		if got := readFile(t, c.Path); !bytes.Equal(got, before) { // reading changes nothing (I5)
			t.Errorf("tail %q: attaching made the file %q", torn, got)
		}
		more := user(fmt.Sprint("next", i), "e2", "next")
		w.append("s1", more)
		whole = append(whole, more+"\n"...)
		f.until("the next record", func() bool { return bytes.HasSuffix(f.raw.Bytes(), []byte(more+"\n")) })
		if got := readFile(t, c.Path); !bytes.Equal(got, whole) || !bytes.Equal(f.raw.Bytes(), whole) {
			t.Errorf("tail %q: the file is %q, want %q", torn, got, whole)
		}
		copies, err := filepath.Glob(filepath.Join(w.state, "torn", "s1-*"))
		if err != nil || len(copies) != min(i+1, 2) {
			t.Fatalf("tail %q: copies %v", torn, copies)
		}
		if i < 2 && !slices.ContainsFunc(copies, func(path string) bool { return string(readFile(t, path)) == torn }) {
			t.Errorf("tail %q: it is in none of the copies", torn)
		}
		f.st.Close()
	}
	if r := w.append("s1", user("next", "whole", "next")); r.Head.Sequence != 9 {
		t.Errorf("head %v, want record 9", r.Head)
	}
}

// A full disk and a failing one: nothing is acknowledged that is not there,
// status says it, and the session recovers by itself.
func TestOwned_FailedAppend(t *testing.T) {
	for _, row := range []struct {
		name    string
		rules   []vfstest.Rule
		code    wire.Code
		outcome string
	}{
		{"no space, nothing written", []vfstest.Rule{{Op: vfstest.Write, Err: unix.ENOSPC}}, wire.CodeNoSpace, wire.OutcomeNone},
		{"no space, a part written", []vfstest.Rule{{Op: vfstest.Write, Err: unix.ENOSPC, WriteBytes: 70}}, wire.CodeNoSpace, wire.OutcomeNone},
		{"quota", []vfstest.Rule{{Op: vfstest.Write, Err: unix.EDQUOT}}, wire.CodeNoSpace, wire.OutcomeNone},
		{"failed write", []vfstest.Rule{{Op: vfstest.Write, Err: unix.EIO}}, wire.CodeIO, wire.OutcomeNone},
		{"failed sync", []vfstest.Rule{{Op: vfstest.Datasync, Err: unix.EIO}}, wire.CodeIO, wire.OutcomeNone},
		{
			"failed write, and the part cannot be cut off",
			[]vfstest.Rule{{Op: vfstest.Write, Err: unix.EIO, WriteBytes: 70}, {Op: vfstest.Truncate, Err: unix.EIO, Times: vfstest.Always}},
			wire.CodeIO, wire.OutcomeUnknown,
		},
		{
			"failed sync, and it cannot be opened again",
			[]vfstest.Rule{{Op: vfstest.Datasync, Err: unix.EIO}, {Op: vfstest.OpenAppend, Err: unix.EIO, Times: vfstest.Always}},
			wire.CodeIO, wire.OutcomeUnknown,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			faults, opt := withFaults()
			w := newWorld(t, opt)
			c := w.create("s1")
			w.append("s1", chain(0, 3)...)
			f := w.attach(wire.Command{Session: "s1", View: wire.ViewRecords, Encoding: wire.EncodingRaw})
			f.untilLive()
			for _, r := range row.rules {
				r.Path = "s1.jsonl"
				faults.Add(r)
			}
			e := w.refuse(appendCommand("s1", chain(3, 2)...), row.code)
			if e.Detail["outcome"] != row.outcome || !e.Retryable {
				t.Errorf("got %v, retryable %v, detail %v; want outcome %s", e, e.Retryable, e.Detail, row.outcome)
			}
			degraded := w.status().Degraded
			if row.outcome == wire.OutcomeUnknown {
				if len(degraded) != 1 || !strings.Contains(degraded[0], "s1") {
					t.Errorf("status: degraded %q, want the session", degraded)
				}
				w.refuse(appendCommand("s1", chain(3, 2)...), row.code)
				if s, _ := w.listed(c.Session); s.Error == "" {
					t.Errorf("listing: no error")
				}
			}
			faults.Heal()
			r := w.append("s1", chain(3, 2)...)
			if r.Head.Sequence != 6 || r.Acks[0].Duplicate {
				t.Errorf("after healing: %+v", r)
			}
			if degraded := w.status().Degraded; len(degraded) > 0 {
				t.Errorf("after healing: degraded %q", degraded)
			}
			f.untilSequence(6)
			if got := readFile(t, c.Path); !bytes.Equal(got, f.raw.Bytes()) || bytes.Count(got, []byte("\n")) != 6 {
				t.Errorf("the file is %q, the client has %q", got, f.raw.Bytes())
			}
		})
	}
}

// A record that was written and could not be read back is not forgotten: it
// is a duplicate when it comes again.
func TestOwned_NotReadBack(t *testing.T) {
	faults, opt := withFaults()
	w := newWorld(t, opt)
	c := w.create("s1")
	w.append("s1", chain(0, 3)...)
	faults.Add(vfstest.Rule{Op: vfstest.ReadAt, Path: "s1.jsonl", Err: unix.EIO, Times: vfstest.Always})
	if _, err := w.call(appendCommand("s1", chain(3, 2)...)); err != nil {
		t.Logf("first: %v", err)
	}
	faults.Heal()
	r := w.append("s1", chain(3, 2)...)
	if r.Head.Sequence != 6 {
		t.Errorf("again: %+v, want head 6", r)
	}
	if n := bytes.Count(readFile(t, c.Path), []byte("\n")); n != 6 {
		t.Errorf("the file has %d records, want 6", n)
	}
}

func TestOwned_FileIsRemoved(t *testing.T) {
	w := newWorld(t)
	c := w.create("s1")
	w.append("s1", chain(0, 3)...)
	f := w.attach(wire.Command{Session: "s1", View: wire.ViewTranscript})
	f.untilLive()
	if err := os.Remove(c.Path); err != nil {
		t.Fatal(err)
	}
	w.refuse(appendCommand("s1", chain(3, 1)...), wire.CodeSessionGone)
	f.untilOver()
	if f.removed == nil {
		t.Errorf("frames %v, want session_removed", f.frames)
	}
	if _, err := os.Stat(c.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is there again: %v", err)
	}
	w.refuse(appendCommand("s1", chain(3, 1)...), wire.CodeSessionGone)
	if again := w.create("s1"); again.Existing || again.Head.Sequence != 1 {
		t.Errorf("create again: %+v", again)
	}
	w.append("s1", chain(0, 1)...)
}

// Create right after the file was removed, before that was noticed.
func TestOwned_MadeAgainAtOnce(t *testing.T) {
	w := newWorld(t, polling)
	c := w.create("s1")
	w.append("s1", chain(0, 3)...)
	if err := os.Remove(c.Path); err != nil {
		t.Fatal(err)
	}
	again := w.create("s1")
	if again.Existing || again.Head.Sequence != 1 || again.Head.Generation == c.Head.Generation {
		t.Errorf("got %+v", again)
	}
	if r := w.append("s1", chain(0, 2)...); r.Head.Sequence != 3 {
		t.Errorf("append: %+v", r)
	}
}

// What another program does to an owned file.
func TestOwned_FileIsChangedByAnotherProgram(t *testing.T) {
	other := lines(append([]string{header}, chain(0, 2)...)...)
	for _, row := range []struct {
		name    string
		change  func(w *world, path string, was string)
		replace bool
	}{
		{"chmod", func(w *world, path, _ string) { must(w, os.Chmod(path, 0o640)) }, false},
		{"renamed over, other bytes", func(w *world, path, _ string) { w.replaceFile(path, other) }, true},
		{"renamed over, same bytes", func(w *world, path, was string) { w.replaceFile(path, was) }, false},
		{"cut", func(w *world, path, _ string) { must(w, os.Truncate(path, 200)) }, true},
		{"rewritten in place, same size", func(w *world, path, was string) {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			must(w, err)
			_, err = f.WriteString(strings.ReplaceAll(was, "message 1", "massage 1"))
			must(w, errors.Join(err, f.Close()))
		}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c := w.create("s1")
			w.append("s1", chain(0, 3)...)
			f := w.attach(wire.Command{Session: "s1", View: wire.ViewRecords, Encoding: wire.EncodingRaw})
			f.untilLive()
			row.change(w, c.Path, string(readFile(t, c.Path)))
			w.look("s1")
			f.drain()
			if got := f.count(wire.TypeSnapshotBegin) == 2; got != row.replace {
				t.Errorf("frames %v, want a replacement: %v", f.frames, row.replace)
			}
			r := w.append("s1", user("new", "", "new"))
			f.untilSequence(int(r.Head.Sequence))
			if got := readFile(t, c.Path); !bytes.Equal(got, f.raw.Bytes()) {
				t.Errorf("the file is\n%s\nthe client has\n%s", got, f.raw.Bytes())
			}
			if d := w.status().Degraded; len(d) > 0 {
				t.Errorf("degraded %q", d)
			}
		})
	}
}

func must(w *world, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// Another program appends between ours: nothing is glued, nothing lost, and
// followers see it without an append of ours.
func TestOwned_ConcurrentWriter(t *testing.T) {
	w := newWorld(t)
	c := w.create("s1")
	first := w.append("s1", chain(0, 3)...)
	f := w.attach(wire.Command{Session: "s1", View: wire.ViewRecords, Encoding: wire.EncodingRaw})
	f.untilLive()
	w.extendFile(c.Path, lines(user("o1", "e2", "theirs")))
	f.untilSequence(5)
	r := w.append("s1", user("e3", "o1", "ours"))
	if r.Head.Sequence != 6 {
		t.Errorf("head %v, want record 6", r.Head)
	}
	// A line that they have not ended yet.
	w.extendFile(c.Path, `{"torn":`)
	w.append("s1", user("e4", "e3", "ours"))
	f.untilSequence(8)
	got := readFile(t, c.Path)
	if !bytes.Equal(got, f.raw.Bytes()) {
		t.Errorf("the file is %q, the client has %q", got, f.raw.Bytes())
	}
	if want := "{\"torn\":\n" + user("e4", "e3", "ours") + "\n"; !strings.HasSuffix(string(got), want) {
		t.Errorf("the file is %q, want it to end with %q", got, want)
	}
	// A batch is never put behind what its writer has not seen.
	e := w.refused(wire.Command{Type: wire.CmdAppend}, appendAtError(w, "s1", first.Head, user("x", "", "x")), wire.CodeConflict)
	if e.Detail["head"] == nil {
		t.Errorf("conflict without the head: %v", e.Detail)
	}
}

func appendAtError(w *world, session string, at wire.Cursor, entries ...string) error {
	_, err := w.call(wire.Command{Type: wire.CmdAppend, Session: session, Expect: &at, Entries: entries})
	return err
}

// An unfinished line of another program stands between the cursor expected
// and ours; with the head that the conflict tells, the batch goes in.
func TestOwned_ExpectBeforeAnUnfinishedLine(t *testing.T) {
	w := newWorld(t, polling)
	c := w.create("s1")
	head := w.append("s1", chain(0, 3)...).Head
	w.extendFile(c.Path, `{"torn":`)
	e := w.refused(wire.Command{Type: wire.CmdAppend}, appendAtError(w, "s1", head, user("x", "e2", "x")), wire.CodeConflict)
	now, ok := e.Detail["head"].(wire.Cursor)
	if !ok {
		t.Fatalf("detail %v, want the head", e.Detail)
	}
	r := w.appendAt("s1", now, user("x", "e2", "x"))
	if got := string(readFile(t, c.Path)); !strings.HasSuffix(got, "{\"torn\":\n"+user("x", "e2", "x")+"\n") || r.Acks[0].Duplicate {
		t.Errorf("got %+v, file %q", r, got)
	}
	if again := w.appendAt("s1", now, user("x", "e2", "x")); !again.Acks[0].Duplicate || again.Acks[0].Cursor != r.Acks[0].Cursor {
		t.Errorf("again: got %+v, want the same as a duplicate", again.Acks)
	}
}

func TestAppend_FollowedIsReadOnly(t *testing.T) {
	f := newFollowed(t)
	f.refuse(appendCommand("a", chain(20, 1)...), wire.CodeReadOnly)
}

func TestAppend_Refuses(t *testing.T) {
	w := newWorld(t)
	c := w.create("s1")
	w.append("s1", chain(0, 2)...)
	before := readFile(t, c.Path)
	for _, row := range []struct {
		name  string
		entry string
	}{
		{"no object", `[1]`},
		{"a string", `"x"`},
		{"null", `null`},
		{"nothing", ``},
		{"no JSON", `{"a":`},
		{"two objects", `{"id":"a"}{"id":"b"}`},
		{"raw line feed", "{\"id\":\"a\",\n\"b\":1}"},
		{"raw line feed at the end", "{\"id\":\"a\"}\n"},
		{"invalid UTF-8", "{\"id\":\"a\",\"b\":\"\xff\"}"},
		{"raw control byte", "{\"id\":\"a\",\"b\":\"\x00\"}"},
		{"no id", `{"type":"message"}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			e := w.refuse(appendCommand("s1", user("ok", "e1", "fine"), row.entry), wire.CodeBadArgument)
			if e.Detail["index"] != 1 {
				t.Errorf("detail %v, want index 1", e.Detail)
			}
		})
	}
	w.refuse(appendCommand("s1", make([]string, wire.BatchEntriesMax+1)...), wire.CodeTooLarge)
	w.refuse(appendCommand("s1", user("x", "", "x"), user("x", "", "x")), wire.CodeBadArgument)
	if after := readFile(t, c.Path); !bytes.Equal(before, after) {
		t.Errorf("the file was changed: %q", after)
	}
}

func TestCreate_Ids(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"../x", "/etc/x", "a/b", "*", "..%2f", ".hidden", "_x", "-x", "a\x00b", "a\r\nb", "a b", "ä", strings.Repeat("x", 300), strings.Repeat("x", 129)} {
		e := w.refuse(wire.Command{Type: wire.CmdCreate, SessionID: id}, wire.CodeBadArgument)
		if len(e.Message) > 400 || strings.ContainsAny(e.Message, "\x00\r\n") {
			t.Errorf("%q is echoed as it is: %q", id, e.Message)
		}
		w.refuse(wire.Command{Type: wire.CmdAttach, Session: id, View: wire.ViewRecords}, wire.CodeUnknownSession)
	}
	for _, id := range []string{"a", "0", "A.b_c-d", strings.Repeat("x", 128)} {
		w.create(id)
	}
	list, err := os.ReadDir(w.e.o.SessionsDir)
	if err != nil || len(list) != 4 {
		t.Errorf("sessions folder: got %v, %v; want 4 files", list, err)
	}
	info, err := os.Stat(filepath.Join(w.e.o.SessionsDir, "a.jsonl"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode: got %v, %v; want 0600", info.Mode(), err)
	}
	r, err := w.call(wire.Command{Type: wire.CmdCreate})
	if err != nil || !validID(r.(wire.CreateResult).ID) {
		t.Errorf("without an id: got %+v, %v", r, err)
	}
}

func TestCreate_Existing(t *testing.T) {
	w := newWorld(t)
	own := json.RawMessage(header)
	r, err := w.call(wire.Command{Type: wire.CmdCreate, SessionID: "s1", Header: own})
	if err != nil || r.(wire.CreateResult).Existing {
		t.Fatalf("first: got %+v, %v", r, err)
	}
	w.append("s1", chain(0, 2)...)
	for name, c := range map[string]wire.Command{
		"same header": {SessionID: "s1", Header: own},
		"no header":   {SessionID: "s1", CWD: "/elsewhere"},
	} {
		c.Type = wire.CmdCreate
		r, err := w.call(c)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := r.(wire.CreateResult); !got.Existing || got.Head.Sequence != 3 || got.Session != "owned:s1.jsonl" {
			t.Errorf("%s: got %+v, want the session with its 3 records", name, got)
		}
	}
	w.refuse(wire.Command{Type: wire.CmdCreate, SessionID: "s1", Header: json.RawMessage(`{"type":"session","id":"other"}`)}, wire.CodeConflict)
	w.refuse(wire.Command{Type: wire.CmdCreate, SessionID: "s2", Header: json.RawMessage(`[]`)}, wire.CodeBadArgument)
	w.refuse(wire.Command{Type: wire.CmdCreate, SessionID: "s2", Header: json.RawMessage("{\n}")}, wire.CodeBadArgument)
	w.refuse(wire.Command{Type: wire.CmdCreate, SessionID: "s2", Dialect: "word"}, wire.CodeBadArgument)
	if got := readFile(t, filepath.Join(w.e.o.SessionsDir, "s1.jsonl")); string(got) != lines(append([]string{header}, chain(0, 2)...)...) {
		t.Errorf("file: %q", got)
	}
}

// A session without a header starts empty and takes entries by place.
func TestCreate_WithoutHeader(t *testing.T) {
	w := newWorld(t)
	for _, d := range []string{"raw", "eventlog"} {
		r, err := w.call(wire.Command{Type: wire.CmdCreate, SessionID: d, Dialect: d})
		if err != nil {
			t.Fatal(err)
		}
		head := r.(wire.CreateResult).Head
		if head.Offset != 0 || head.Digest != startDigest {
			t.Errorf("%s: head %v, want the start", d, head)
		}
		w.refuse(appendCommand(d, `{"a":1}`), wire.CodeBadArgument)
		if got := w.appendAt(d, head, `{"a":1}`, `{"a":2}`); got.Head.Sequence != 2 {
			t.Errorf("%s: append: %+v", d, got)
		}
	}
}

// A disk that is full when a session is made leaves nothing of it.
func TestCreate_NoSpace(t *testing.T) {
	faults, opt := withFaults()
	w := newWorld(t, opt)
	faults.Add(vfstest.Rule{Op: vfstest.Write, Path: ".s1.jsonl.0.tmp", Err: unix.ENOSPC, WriteBytes: 10})
	w.refuse(wire.Command{Type: wire.CmdCreate, SessionID: "s1"}, wire.CodeNoSpace)
	list, err := os.ReadDir(w.e.o.SessionsDir)
	if err != nil || len(list) > 0 {
		t.Errorf("sessions folder: got %v, %v; want nothing", list, err)
	}
	if r := w.create("s1"); r.Existing {
		t.Errorf("again: %+v", r)
	}
}

// Batches of many writers, sent again and again by both rules, are in the
// file once and each in one piece.
func TestAppend_ManyWritersAreIdempotent(t *testing.T) {
	w := newWorld(t)
	c := w.create("s1")
	var wg sync.WaitGroup
	const writers, batches = 8, 6
	for k := range writers {
		wg.Go(func() {
			for i := range batches {
				batch := []string{user(fmt.Sprintf("w%d-%d-a", k, i), "", "a"), user(fmt.Sprintf("w%d-%d-b", k, i), "", "b")}
				first := make([]wire.Cursor, 2)
				for try := range 3 {
					r, err := w.e.Handle(context.Background(), wire.Request{Command: appendCommand("s1", batch[:1+min(try, 1)]...)})
					if err != nil {
						t.Errorf("writer %d: %v", k, err)
						return
					}
					for n, a := range r.Result.(wire.AppendResult).Acks {
						if a.Duplicate != (n < try) {
							t.Errorf("writer %d, try %d, entry %d: duplicate %v", k, try, n, a.Duplicate)
						}
						if a.Duplicate && a.Cursor != first[n] {
							t.Errorf("writer %d: the duplicate is at %v, the first was at %v", k, a.Cursor, first[n])
						}
						first[n] = a.Cursor
					}
				}
			}
		})
	}
	wg.Wait()
	got := readFile(t, c.Path)
	if n := bytes.Count(got, []byte("\n")); n != 1+2*writers*batches {
		t.Errorf("%d records, want %d", n, 1+2*writers*batches)
	}
}

// A program that writes to an owned file is reported, also where only a look
// finds it, and not each time; of another journal the count begins anew.
func TestOwned_OtherWriterIsReported(t *testing.T) {
	var c clock
	w := newWorld(t, polling, func(o *Options) { o.Now = c.now })
	path := w.create("s1").Path
	w.append("s1", chain(0, 1)...)
	const report = "code=concurrent_writers"
	foreign := func(id string) {
		t.Helper()
		w.extendFile(path, lines(user(id, "e0", "theirs")))
		s := w.session("s1")
		must(w, s.lookNow(t.Context()))
		must(w, s.ingest(t.Context()))
	}
	f := w.attach(wire.Command{Session: "s1", View: wire.ViewRecords, Encoding: wire.EncodingRaw})
	f.untilLive()
	if n := w.log.count(report); n != 0 {
		t.Fatalf("%d reports before anything happened", n)
	}
	foreign("o1")
	if n := w.log.count(report); n != 1 {
		t.Errorf("%d reports of the first, want 1", n)
	}
	foreign("o2")
	if n := w.log.count(report); n != 1 {
		t.Errorf("%d reports within a minute, want 1", n)
	}
	c.advance(writerReportEvery)
	w.append("s1", user("late", "e0", "ours"))
	if n := w.log.count(report); n != 2 {
		t.Errorf("%d reports after a minute, want 2", n)
	}
	w.replaceFile(path, string(readFile(t, path)))
	w.look("s1") // another journal
	c.advance(writerReportEvery)
	foreign("o3")
	if n := w.log.count(report); n != 3 {
		t.Errorf("%d reports with another journal, want 3", n)
	}
}

// A look that finds the bytes of an append before it is acknowledged leaves
// them to the journal: nothing is read to compare them.
func TestOwned_LookDuringAnAppendComparesNothing(t *testing.T) {
	faults, opt := withFaults()
	w := newWorld(t, alone, opt)
	w.create("s1")
	w.append("s1", chain(0, 3)...)
	w.attachTo("s1", wire.ViewTranscript)
	before := w.e.counters.Values()
	s := w.session("s1")
	looked := false
	faults.Add(vfstest.Rule{Op: vfstest.Datasync, Path: "s1.jsonl", Do: func() {
		looked = true
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := s.lookNow(ctx); err != nil {
			t.Errorf("look: %v", err)
		}
	}})
	if r := w.append("s1", chain(3, 1)...); r.Head.Sequence != 5 {
		t.Errorf("head %v, want record 5", r.Head)
	}
	after := w.e.counters.Values()
	if n := after["digest_reads"] - before["digest_reads"]; !looked || n > 0 {
		t.Errorf("looked %v, compared %d times, want true, 0", looked, n)
	}
}
