package engine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sessiond/engine/vfs"
	"sessiond/engine/vfs/vfstest"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

// What a generation whose time is over still knows does not take the place of
// what came after it: neither of a tombstone nor of another history.
func TestIndex_OldGenerationDoesNotOvertake(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(w *world, path string)
		done   func(w *world) bool
	}{
		{"removed", func(w *world, path string) { must(w, os.Remove(path)) }, func(w *world) bool {
			_, buried := w.e.index.Tombstone(t.Context(), "f:a.jsonl")
			_, signed := w.e.index.Signature(t.Context(), "f:a.jsonl")
			return buried && !signed
		}},
		{"replaced", func(w *world, path string) {
			must(w, os.WriteFile(path, []byte(strings.ReplaceAll(sessionText(1500), "message", "massage")), 0o600))
		}, func(w *world) bool {
			sig, ok := w.e.index.Signature(t.Context(), "f:a.jsonl")
			s := w.session("f:a.jsonl")
			s.mu.Lock()
			defer s.mu.Unlock()
			return ok && s.gen != nil && sig.Generation == s.gen.id && sig.Head == s.gen.replay.Head()
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, polling, onDemand, func(o *Options) { o.ChunkBytes = 2000 })
			path := w.write("a.jsonl", sessionText(2000))
			w.e.changed(path)
			f := w.attach(wire.Command{View: wire.ViewTranscript, Session: "f:a.jsonl"})
			f.pull(3)
			old := f.st.(*stream).g
			row.change(w, path)
			w.eventually("the old history has ended", func() bool {
				w.e.changed(path)
				return old.ended.Load()
			})
			f.pull(5) // leaves the old snapshot, whose packer ends
			w.eventually("the packer has let go", func() bool { return old.refs.Load() <= 1 })
			// All that the old one may say was said; what was taken to be written
			// before may still be on its way.
			w.eventually("the index has what came after it", func() bool {
				w.e.behind.flush(t.Context())
				return row.done(w)
			})
			f.st.Close()
		})
	}
}

// An owned file that another program rewrote, and that cannot be opened when
// that is noticed, is not served or appended to as what it was.
func TestOwned_RewrittenAndNotReadableForAMoment(t *testing.T) {
	disk := vfstest.New(vfs.OS{})
	w := newWorld(t, polling, func(o *Options) { o.FS = disk })
	w.create("o")
	w.append("o", chain(0, 3)...)
	path := filepath.Join(w.e.o.SessionsDir, "o.jsonl")
	text := strings.ReplaceAll(string(readFile(t, path)), "user", "usex")
	must(w, os.WriteFile(path, []byte(text), 0o600))
	disk.Add(vfstest.Rule{Op: vfstest.OpenRead, Path: "o.jsonl", Err: syscall.EMFILE, Times: 2})
	s := w.session("o")
	s.kick()
	w.eventually("the replay is of the file", func() bool {
		s.mu.Lock()
		g := s.gen
		s.mu.Unlock()
		return g != nil && !s.unsure() && g.replay.Head().Offset == int64(len(text)) && g.replay.Compare(t.Context(), g.file, true) == nil
	})
	w.append("o", chain(3, 1)...)
	f := w.attach(wire.Command{Session: "o", View: wire.ViewRecords})
	f.untilLive()
	if got, want := joinRecords(t, f.slots), string(readFile(t, path)); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// An owned file that was written anew, and is longer then, is not taken for
// one that another program appended to.
func TestOwned_RewrittenLongerIsAReplacement(t *testing.T) {
	w := newWorld(t, polling)
	w.create("o")
	w.append("o", chain(0, 3)...)
	path := filepath.Join(w.e.o.SessionsDir, "o.jsonl")
	s := w.session("o")
	s.mu.Lock()
	before := s.gen
	s.mu.Unlock()
	text := strings.ReplaceAll(string(readFile(t, path)), "message", "massage") + lines(chain(3, 2)...)
	must(w, os.WriteFile(path, []byte(text), 0o600))
	s.kick()
	w.eventually("it is another generation", func() bool {
		s.mu.Lock()
		g := s.gen
		s.mu.Unlock()
		return g != before && g.replay.Head().Offset == int64(len(text)) && g.replay.Compare(t.Context(), g.file, true) == nil
	})
}

// A folder that cannot be listed when the daemon starts says nothing of the
// sessions in it.
func TestTombstone_NotOfAFolderThatCannotBeListed(t *testing.T) {
	disk := vfstest.New(vfs.OS{})
	w := newWorld(t, polling, func(o *Options) { o.FS = disk })
	must(w, os.Mkdir(filepath.Join(w.root, "sub"), 0o700))
	w.e.changed(w.write("sub/a.jsonl", sessionText(3)))
	w.e.changed(w.write("b.jsonl", sessionText(3)))
	for _, name := range []string{"f:sub/a.jsonl", "f:b.jsonl"} {
		f := w.attach(wire.Command{View: wire.ViewTranscript, Session: name})
		f.untilLive()
		f.st.Close()
	}
	w.stop()
	must(w, os.Remove(w.path("b.jsonl")))
	disk.Add(vfstest.Rule{Op: vfstest.ReadDir, Path: "root/sub", Err: syscall.EACCES, Times: vfstest.Always})
	w.start()
	w.eventually("the index was compared with the roots", func() bool {
		_, ok := w.e.index.Tombstone(t.Context(), "f:b.jsonl")
		return ok
	})
	if _, buried := w.e.index.Tombstone(t.Context(), "f:sub/a.jsonl"); buried {
		t.Error("a session whose folder cannot be listed has a tombstone")
	}
	if _, ok := w.e.index.Signature(t.Context(), "f:sub/a.jsonl"); !ok {
		t.Error("what was known of it is gone")
	}
}

// A suspicion that cannot be resolved does not keep the daemon looking all the
// time.
func TestSuspicion_LooksLessOftenTheLongerItLasts(t *testing.T) {
	c := &clock{}
	w := newWorld(t, polling, func(o *Options) { o.Now = c.now })
	w.e.changed(w.write("a.jsonl", sessionText(3)))
	s := w.session("f:a.jsonl")
	s.suspect(stamp.Stamp{Size: 1, Inode: 1})
	last := time.Duration(0)
	for range 20 {
		c.advance(max(last, w.opt.Timing.Quiet))
		wait, ok := s.nextLook()
		if !ok || wait < w.opt.Timing.Quiet || wait > lookAgainMax || wait < last {
			t.Fatalf("wait %v after %v, %v", wait, last, ok)
		}
		last = wait
	}
	if last != lookAgainMax {
		t.Errorf("the last wait is %v, want %v", last, lookAgainMax)
	}
}

// Amendments are kept as the bytes that they are.
func TestKeptEnd_AmendmentsAreVerbatim(t *testing.T) {
	want := `{"index":0,"message":{"t":"a<b && c\u2028", "x":1}}`
	text, err := json.Marshal(keptEnd{Amendments: [][]byte{[]byte(want)}})
	if err != nil {
		t.Fatal(err)
	}
	var got keptEnd
	if err := json.Unmarshal(text, &got); err != nil || string(got.Amendments[0]) != want {
		t.Errorf("got %q, %v; want %q", got.Amendments, err, want)
	}
}

// Who attaches to an open session that is as it was gives the index nothing to
// write.
func TestIndex_AttachToWhatIsKnownWritesNothing(t *testing.T) {
	// Nothing is ever proven, so that every attach compares.
	w := newWorld(t, polling, isCoarse, func(o *Options) { o.Timing.Rest = time.Hour })
	w.e.changed(w.write("a.jsonl", sessionText(3)))
	for i := range 3 {
		f := w.attach(wire.Command{View: wire.ViewTranscript, Session: "f:a.jsonl"})
		f.untilLive()
		g := f.st.(*stream).g
		f.st.Close()
		due := false // what is due stays so for a second, and holds the generation
		w.eventually("the packer has ended", func() bool {
			w.e.behind.mu.Lock()
			defer w.e.behind.mu.Unlock()
			_, now := w.e.behind.dirty["f:a.jsonl"]
			due = due || now
			return g.refs.Load() <= 1
		})
		if due && i > 0 {
			t.Errorf("attach %d: there is something to write", i+1)
		}
	}
}
