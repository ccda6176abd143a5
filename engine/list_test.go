package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sessiond/engine/vfs/vfstest"
	"sessiond/wire"
)

func keysOf(list []wire.Session) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = s.Session
	}
	return out
}

// Pages show each session that was there from the start once, whatever comes
// or goes between them.
func TestList_PagesAreStableUnderChange(t *testing.T) {
	for _, order := range []string{"", "activity", "key"} {
		t.Run(order, func(t *testing.T) {
			w := newWorld(t, polling)
			const n = 30
			for i := range n {
				w.e.changed(w.write(fmt.Sprintf("f%02d.jsonl", i), lines(strings.Replace(header, "02T", fmt.Sprintf("%02dT", i%28+1), 1))))
			}
			want := keysOf(w.list(wire.Command{}).Sessions)
			slices.Sort(want)
			var got []string
			page := wire.Command{Limit: 7, Order: order}
			for i := 0; ; i++ {
				r := w.list(page)
				if len(r.Sessions) > 7 || r.More != (r.Next != "") {
					t.Fatalf("page %d: %d sessions, more %v, next %q", i, len(r.Sessions), r.More, r.Next)
				}
				got = append(got, keysOf(r.Sessions)...)
				if !r.More {
					break
				}
				page.After = r.Next
				w.e.changed(w.write(fmt.Sprintf("new%d.jsonl", i), header+"\n"))
				w.e.changed(w.write(fmt.Sprintf("a%d.jsonl", i), header+"\n"))
			}
			got = slices.DeleteFunc(got, func(k string) bool { return !slices.Contains(want, k) })
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("sessions (-there +listed):\n%s", diff)
			}
		})
	}
}

// In the default order pages are whole while sessions become active: no key is
// listed twice or left out. In order activity a session moves.
func TestList_DefaultOrderStandsWhileSessionsBecomeActive(t *testing.T) {
	w := newWorld(t, polling)
	const n = 12
	for i := range n {
		w.e.changed(w.write(fmt.Sprintf("f%02d.jsonl", i), sessionText(1)))
	}
	for i := range n {
		w.create(fmt.Sprintf("o%02d", i))
	}
	want := keysOf(w.list(wire.Command{}).Sessions)
	if len(want) != 2*n || !slices.IsSorted(want) {
		t.Fatalf("got %v, want %d sessions by key", want, 2*n)
	}
	var got []string
	page := wire.Command{Limit: 5}
	for i := 0; ; i++ {
		r := w.list(page)
		got = append(got, keysOf(r.Sessions)...)
		if !r.More {
			break
		}
		page.After = r.Next
		// One that was listed and one that was not become active.
		w.append(fmt.Sprintf("o%02d", n-1-i), user(fmt.Sprintf("late%d", i), "", "late"))
		path := w.path(fmt.Sprintf("f%02d.jsonl", i))
		w.extendFile(path, lines(strings.Replace(user("late", "e0", "late"), "2026-01", "2026-02", 1)))
		w.look(fmt.Sprintf("f:f%02d.jsonl", i))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pages (-there +listed):\n%s", diff)
	}
}

func TestList_Refuses(t *testing.T) {
	w := newWorld(t)
	for _, c := range []wire.Command{
		{Limit: -1},
		{Limit: wire.ListLimitMax + 1},
		{Order: "size"},
		{Root: "nowhere"},
		{After: "x"},
		{After: "!"},
	} {
		c.Type = wire.CmdList
		w.refuse(c, wire.CodeBadArgument)
	}
	if r := w.list(wire.Command{Root: followedRoot}); len(r.Sessions) != 0 || r.More {
		t.Errorf("an empty root: %+v", r)
	}
}

func TestResolve(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"abc1", "abc2", "x"} {
		w.create(name)
	}
	w.e.changed(w.write("2026-01-02T03-04-05_019bf00d.jsonl", strings.Replace(header, `"s1"`, `"from-header"`, 1)+"\n"))
	w.e.changed(w.write("x.jsonl", header+"\n"))
	const stamped = "f:2026-01-02T03-04-05_019bf00d.jsonl"
	w.attach(wire.Command{Session: stamped, View: wire.ViewRecords}).untilLive() // the header is known from now on
	for _, row := range []struct{ name, want string }{
		{"owned:abc1.jsonl", "owned:abc1.jsonl"},
		{"abc1", "owned:abc1.jsonl"},
		{"owned:abc1", "owned:abc1.jsonl"},
		{"abc1.jsonl", "owned:abc1.jsonl"},
		{"owned:x", "owned:x.jsonl"},
		{"f:x", "f:x.jsonl"},
		{"019bf00d", stamped},
		{"019b", stamped},
		{"2026-01", stamped},
		{"from-header", stamped},
		{"from", stamped},
	} {
		if s, err := w.e.resolve(row.name); err != nil || s.key != row.want {
			t.Errorf("%s: got %v, want %s", row.name, err, row.want)
		}
	}
	attach := func(name string) wire.Command {
		return wire.Command{Type: wire.CmdAttach, Session: name, View: wire.ViewRecords}
	}
	for name, want := range map[string][]string{
		"abc": {"owned:abc1.jsonl", "owned:abc2.jsonl"},
		"x":   {"f:x.jsonl", "owned:x.jsonl"},
	} {
		e := w.refuse(attach(name), wire.CodeAmbiguousSession)
		if diff := cmp.Diff(want, e.Detail["candidates"]); diff != "" {
			t.Errorf("%s: candidates (-want +got):\n%s", name, diff)
		}
	}
	for _, name := range []string{"abc3", "owned:", "../x", "*", "/etc/passwd", "owned:../x.jsonl", strings.Repeat("x", 300), "a\x00"} {
		if name == "owned:" { // a prefix of all
			w.refuse(attach(name), wire.CodeAmbiguousSession)
			continue
		}
		w.refuse(attach(name), wire.CodeUnknownSession)
	}
	w.refuse(attach(""), wire.CodeBadArgument)
}

// After a restart the listing is what it was, from the index: no session file
// is opened for it. What has changed since is null.
func TestList_AfterARestart(t *testing.T) {
	faults, opt := withFaults()
	w := newWorld(t, opt)
	w.create("o1")
	w.append("o1", user("u", "", "hello"), assistant("a", "u", "hi"), entry("session_info", "n", "a", `"name":"the title"`))
	path := w.write("a.jsonl", lines(strings.Replace(header, `"s1"`, `"from-header"`, 1), user("u", "", "x"), "no json"))
	w.e.changed(path)
	for _, name := range []string{"o1", "a"} {
		f := w.attach(wire.Command{Session: name, View: wire.ViewTranscript})
		f.untilLive()
		f.st.Close()
	}
	w.e.changed(w.write("never-opened.jsonl", sessionText(1)))
	w.look("f:never-opened.jsonl")
	before := w.list(wire.Command{Order: "key"}).Sessions
	if len(before) != 3 || before[2].Session != "owned:o1.jsonl" {
		t.Fatalf("got %v", keysOf(before))
	}
	o1 := before[2]
	if *o1.Title != "the title" || *o1.MessageCount != 2 || *o1.RecordCount != 4 || *o1.CWD != "/w" || *o1.Dialect != "pi" ||
		o1.State.Turn != wire.TurnIdle || o1.Head.Sequence != 4 || *o1.Modified != "2026-01-02T03:04:05Z" || !o1.Owned {
		t.Errorf("o1: got %+v", o1)
	}
	if a := before[0]; a.ID != "from-header" || *a.DiagnosticsCount != 1 || a.Owned {
		t.Errorf("a: got %+v", a)
	}
	w.stop()
	opened := faults.Count(vfstest.OpenRead, "") + faults.Count(vfstest.OpenAppend, "a.jsonl")
	w.start()
	after := w.list(wire.Command{Order: "key"}).Sessions
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("after a restart (-before +after):\n%s", diff)
	}
	if s, err := w.e.resolve("from-header"); err != nil || s.path != path {
		t.Errorf("by the header's id: %v", err)
	}
	if n := faults.Count(vfstest.OpenRead, "") + faults.Count(vfstest.OpenAppend, "a.jsonl") - opened; n != 0 {
		t.Errorf("%d session files were opened", n)
	}
	if n := after[1]; n.Head != nil || n.MessageCount != nil || n.Dialect != nil || n.ID != "never-opened" {
		t.Errorf("never opened: got %+v, want what only a scan tells to be null", n)
	}
	w.stop()
	w.extendFile(path, "more\n")
	w.start()
	a, _ := w.listed("f:a.jsonl")
	if a.RecordCount != nil || a.Head != nil || a.Title != nil || a.Bytes == before[0].Bytes {
		t.Errorf("a, changed while the daemon was away: got %+v, want nulls", a)
	}
	w.stop()
	removeIndex(t, w)
	w.start()
	if got := w.list(wire.Command{Order: "key"}).Sessions; len(got) != 3 || got[2].MessageCount != nil {
		t.Errorf("without the index: got %+v", got)
	}
}

func removeIndex(t *testing.T, w *world) {
	t.Helper()
	must(w, os.Remove(filepath.Join(w.state, "index.db")))
}

// The newest activity, by records and not by the time of the file, is first.
func TestList_OrderIsThatOfActivity(t *testing.T) {
	w := newWorld(t, polling)
	for i, day := range []string{"05", "09", "01"} {
		text := lines(header, strings.Replace(user("u", "", "x"), "2026-01-02", "2026-01-"+day, 1))
		w.e.changed(w.write(fmt.Sprintf("f%d.jsonl", i), text))
		f := w.attach(wire.Command{Session: fmt.Sprintf("f:f%d.jsonl", i), View: wire.ViewRecords})
		f.untilLive()
		f.st.Close()
	}
	w.restart()
	if got := keysOf(w.list(wire.Command{Root: followedRoot, Order: "activity"}).Sessions); !slices.Equal(got, []string{"f:f1.jsonl", "f:f0.jsonl", "f:f2.jsonl"}) {
		t.Errorf("got %v", got)
	}
}

func TestStatus(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Version = "v9"; o.Polling = true })
	w.create("s1")
	w.append("s1", chain(0, 3)...)
	f := w.attach(wire.Command{Session: "s1", View: wire.ViewTranscript})
	f.untilLive()
	s := w.status()
	if s.Version != "v9" || s.Sessions != 1 || s.Open != 1 || s.Attachments != 1 || len(s.Degraded) > 0 || s.StateDir != w.state {
		t.Errorf("got %+v", s)
	}
	if len(s.Roots) != 2 || s.Roots[0].Name != OwnedRoot || s.Roots[1].Watch != "polling" || s.Roots[1].Why == "" {
		t.Errorf("roots: got %+v", s.Roots)
	}
	w.refuse(wire.Command{Type: "fly"}, wire.CodeUnknownCommand)
}
