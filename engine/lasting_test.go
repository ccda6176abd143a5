package engine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sessiond/wire"
)

// unreadable are the things under a session's name that no trying again makes
// readable.
var unreadable = []struct {
	name string
	make func(path string) error
}{
	{"fifo", func(path string) error { return unix.Mkfifo(path, 0o600) }},
	{"folder", func(path string) error { return os.Mkdir(path, 0o700) }},
	{"loop", func(path string) error { return os.Symlink(filepath.Base(path), path) }},
	{"outside the root", func(path string) error {
		outside := filepath.Join(filepath.Dir(filepath.Dir(path)), "outside.jsonl")
		if err := os.WriteFile(outside, []byte(sessionText(1)), 0o600); err != nil {
			return err
		}
		return os.Symlink(outside, path)
	}},
	{"not permitted", func(path string) error {
		if os.Geteuid() == 0 {
			return errors.ErrUnsupported
		}
		return os.WriteFile(path, []byte(sessionText(1)), 0)
	}},
}

// An error that stays is answered at once, and as one that stays.
func TestUnreadable_IsNotTriedAgain(t *testing.T) {
	for _, row := range unreadable {
		for _, when := range []string{"from the start", "in place of what was open"} {
			t.Run(row.name+", "+when, func(t *testing.T) {
				w := newStoppedWorld(t, polling)
				sessions := filepath.Join(w.state, "sessions")
				must(w, os.MkdirAll(sessions, 0o700))
				paths := map[string]string{OwnedRoot: filepath.Join(sessions, "x.jsonl"), followedRoot: w.path("x.jsonl")}
				put := func() {
					for _, path := range paths {
						if err := row.make(path); errors.Is(err, errors.ErrUnsupported) {
							t.Skip("the superuser may read everything")
						} else {
							must(w, err)
						}
					}
				}
				if when == "from the start" {
					put()
					w.start()
				} else {
					w.start()
					w.create("x")
					w.e.changed(w.write("x.jsonl", sessionText(2)))
					for root, path := range paths {
						f := w.attach(wire.Command{Session: root + ":x.jsonl", View: wire.ViewRecords})
						f.untilLive()
						f.st.Close()
						must(w, os.Remove(path))
					}
					put()
				}
				for root, path := range paths {
					w.e.changed(path)
					var commands []wire.Command
					if root == OwnedRoot {
						commands = append(commands, appendCommand(root+":x.jsonl", chain(0, 1)...))
					}
					if root != OwnedRoot || when == "from the start" { // else its journal has the file that was there
						commands = append(commands, wire.Command{Type: wire.CmdAttach, Session: root + ":x.jsonl", View: wire.ViewTranscript})
					}
					for _, c := range commands {
						_, err := w.e.Handle(t.Context(), wire.Request{Command: c, Attachment: "a1"})
						if e := new(wire.Error); !errors.As(err, &e) || e.Retryable {
							t.Errorf("%s of %s: got %v, want an error that stays", c.Type, root, err)
						}
					}
				}
			})
		}
	}
}

// A root may come after the daemon, below a path that runs through a symbolic
// link.
func TestRoot_ComesLaterBehindALink(t *testing.T) {
	for _, row := range []struct {
		name  string
		first bool // the link is there from the start
	}{{"of which the link is there", true}, {"with its link", false}} {
		for _, watch := range []func(*Options){polling, func(*Options) {}} {
			t.Run(row.name, func(t *testing.T) {
				w := newStoppedWorld(t, watch)
				real, link := filepath.Join(w.root, "real"), filepath.Join(w.root, "link")
				must(w, os.Mkdir(real, 0o700))
				if row.first {
					must(w, os.Symlink(real, link))
				}
				w.opt.Roots[0].Path = filepath.Join(link, "sub")
				w.start()
				if s := w.status(); s.Roots[1].Error == "" || len(s.Degraded) != 1 || !strings.Contains(s.Degraded[0], followedRoot) {
					t.Errorf("before: roots %+v, degraded %q; want the error of the root", s.Roots, s.Degraded)
				}
				if !row.first {
					must(w, os.Symlink(real, link))
				}
				must(w, os.Mkdir(filepath.Join(real, "sub"), 0o700))
				path := filepath.Join(real, "sub", "a.jsonl")
				must(w, os.WriteFile(path, []byte(sessionText(3)), 0o600))
				w.e.rescan(w.e.o.Roots[0].Path)
				f := w.attach(wire.Command{Session: "f:a.jsonl", View: wire.ViewTranscript})
				f.untilLive()
				w.extendFile(path, lines(chain(3, 1)...))
				f.untilSequence(5)
				if s := w.status(); s.Roots[1].Error != "" || len(s.Degraded) > 0 {
					t.Errorf("after: roots %+v, degraded %q; want no error", s.Roots, s.Degraded)
				}
			})
		}
	}
}

// A root that is removed while the daemon is up is told by status; the folder
// of owned sessions is made again when it is needed.
func TestRoot_IsRemovedWhileUp(t *testing.T) {
	w := newWorld(t)
	c := w.create("s1")
	sessions := filepath.Dir(c.Path)
	must(w, os.RemoveAll(sessions))
	must(w, os.RemoveAll(w.root))
	s := w.status()
	if len(s.Degraded) != 2 || s.Roots[0].Error == "" || s.Roots[1].Error == "" {
		t.Errorf("removed: roots %+v, degraded %q; want both", s.Roots, s.Degraded)
	}
	again := w.create("s2")
	if again.Existing || again.Head.Sequence != 1 {
		t.Errorf("create: got %+v", again)
	}
	w.append("s2", chain(0, 3)...)
	f := w.attach(wire.Command{Session: "s2", View: wire.ViewTranscript})
	f.untilLive()
	info, err := os.Stat(sessions)
	must(w, err)
	if info.Mode().Perm() != 0o700 || len(f.slots) != 3 {
		t.Errorf("got folder of mode %v, %d messages; want one of the user's alone, 3", info.Mode(), len(f.slots))
	}
	if s := w.status(); len(s.Degraded) != 1 || s.Roots[0].Error != "" {
		t.Errorf("made again: roots %+v, degraded %q; want the other root only", s.Roots, s.Degraded)
	}
	must(w, os.Mkdir(w.root, 0o700))
	w.write("late.jsonl", sessionText(1))
	w.e.rescan(w.root)
	w.attach(wire.Command{Session: "late", View: wire.ViewTranscript}).untilLive()
	if s := w.status(); len(s.Degraded) > 0 {
		t.Errorf("both there again: degraded %q", s.Degraded)
	}
}

// Who does not follow sees an unfinished last record too.
func TestAttach_WithoutLiveShowsTheProvisionalTail(t *testing.T) {
	w := newWorld(t, polling)
	tail := user("t", "e4", "tail")
	w.e.changed(w.write("a.jsonl", sessionText(5)+tail))
	for _, view := range []wire.View{wire.ViewTranscript, wire.ViewContext, wire.ViewRecords} {
		f := w.attach(wire.Command{Session: "a", View: view, Live: ptr(false)})
		f.untilOver()
		n := len(f.frames)
		if f.provisional == nil || !slices.Equal(f.frames[n-2:], []string{wire.TypeLive, wire.TypeProvisional}) {
			t.Errorf("%s: frames %v, want the tail at the end, once", view, f.frames)
		}
		resumed := f.resume()
		r := w.attach(resumed)
		r.untilOver()
		if !slices.Equal(r.frames, []string{wire.TypeLive, wire.TypeProvisional}) {
			t.Errorf("%s, resumed: frames %v, want the seam and the tail", view, r.frames)
		}
	}
	raw := w.attach(wire.Command{Session: "a", View: wire.ViewRecords, Encoding: wire.EncodingRaw, Live: ptr(false)})
	raw.untilOver()
	if raw.count(wire.TypeProvisional) != 0 || raw.raw.String() != sessionText(5) {
		t.Errorf("raw: frames %v, %d bytes; want the whole records only", raw.frames, raw.raw.Len())
	}
}

// A header does not excuse a dialect that nobody knows.
func TestCreate_UnknownDialectWithAHeader(t *testing.T) {
	w := newWorld(t)
	c := wire.Command{Type: wire.CmdCreate, SessionID: "s1", Dialect: "invented", Header: []byte(header)}
	w.refuse(c, wire.CodeBadArgument)
	if _, err := os.Stat(filepath.Join(w.state, "sessions", "s1.jsonl")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file: got %v, want none", err)
	}
	c.Dialect = "pi"
	if _, err := w.call(c); err != nil {
		t.Errorf("known: %v", err)
	}
}
