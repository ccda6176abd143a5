package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sessiond/chunks"
	"sessiond/engine/vfs/vfstest"
	"sessiond/kv"
	"sessiond/wire"
)

// readopting makes chunks small, so that a session of a few hundred KiB spills.
func readopting(o *Options) {
	o.ChunkBytes, o.ChunkMemoryBytes = 8<<10, 16<<10
	o.SpillDir = filepath.Join(o.StateDir, "s")
}

// longText is a session of n large messages, with a call that has no result,
// an edit of an early message and a usage that is told late.
func longText(n int) string {
	list := []string{header}
	parent := ""
	add := func(id, line string) { list, parent = append(list, line), id }
	for i := range n {
		id := fmt.Sprintf("e%d", i)
		text := strings.Repeat(fmt.Sprintf("%d ", i), 600)
		if i%2 == 0 {
			add(id, user(id, parent, text))
		} else {
			add(id, assistant(id, parent, text))
		}
		if i == n/2 {
			add("call", toolCalls("call", parent, "c1", "c2"))
			add("result", toolResult("result", parent, "c1"))
		}
	}
	add("edit", contextEdit("edit", parent, "e2", "null"))
	add("usage", childUsage("usage", parent, "e3", 5))
	return lines(list...)
}

// more is n messages behind longText(from).
func more(from, n int, parent string) string {
	var list []string
	for i := range n {
		id := fmt.Sprintf("m%d", from+i)
		list = append(list, user(id, parent, strings.Repeat("more ", 300)))
		parent = id
	}
	return lines(list...)
}

const longMessages = 120

// readopt is a world with one long followed session.
type readopt struct {
	*world
	path string
}

func newReadopt(t *testing.T, change ...func(*Options)) *readopt {
	t.Helper()
	w := newStoppedWorld(t, append([]func(*Options){readopting}, change...)...)
	r := &readopt{w, w.write("a.jsonl", longText(longMessages))}
	w.start()
	return r
}

var (
	messageViews = []wire.View{wire.ViewTranscript, wire.ViewContext}
	allViews     = append(slices.Clone(messageViews), wire.ViewRecords)
	generations  = regexp.MustCompile(`[0-9a-f]{32}`)
)

// capture attaches and returns all lines up to live, without generations.
func (w *world) capture(session string, view wire.View) string {
	w.t.Helper()
	c := wire.Command{Type: wire.CmdAttach, Session: session, View: view}
	r, err := w.e.Handle(context.Background(), wire.Request{Command: c, Attachment: "a1"})
	if err != nil {
		w.fail.Fatalf("attach %s %s: %v", session, view, err)
	}
	defer r.Stream.Close()
	wake := make(chan struct{}, 1)
	r.Stream.Start(func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	var out bytes.Buffer
	late := time.After(patience)
	for {
		f, ok, err := r.Stream.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			w.fail.Fatalf("Next: %v", err)
		}
		if err != nil {
			w.fail.Fatalf("the attachment is over: %.500s", out.String())
		}
		if !ok {
			select {
			case <-wake:
			case <-late:
				w.fail.Fatalf("nothing comes: %.500s", out.String())
			}
			continue
		}
		line := slices.Concat(f.Head, f.Body, f.Tail)
		if f.Release != nil {
			f.Release()
		}
		out.Write(line)
		if bytes.HasPrefix(line, []byte(`{"type":"`+wire.TypeLive+`"`)) {
			return generations.ReplaceAllString(out.String(), "G")
		}
	}
}

func (w *world) captureAll(session string) map[wire.View]string {
	w.t.Helper()
	out := map[wire.View]string{}
	for _, v := range allViews {
		out[v] = w.capture(session, v)
	}
	return out
}

// fresh is what an engine says that remembers nothing.
func (w *world) fresh(session string) map[wire.View]string {
	w.t.Helper()
	x := *w
	x.e = nil
	x.state = filepath.Join(w.t.TempDir(), "state")
	x.opt.StateDir, x.opt.SpillDir, x.opt.SpillBytes = x.state, filepath.Join(x.state, "s"), -1
	if !strings.HasPrefix(session, OwnedRoot) { // else both have the same files
		x.opt.SessionsDir = ""
	}
	x.start()
	defer x.stop()
	return x.captureAll(session)
}

// mustBe compares what two engines said.
func (w *world) mustBe(got, want map[wire.View]string) {
	w.t.Helper()
	for v, text := range want {
		if got[v] == text {
			continue
		}
		g, x := strings.Split(got[v], "\n"), strings.Split(text, "\n")
		for i := range min(len(g), len(x)) {
			if g[i] != x[i] {
				w.t.Errorf("%s: line %d of %d\ngot  %.300s\nwant %.300s", v, i, len(g), g[i], x[i])
				break
			}
		}
		if len(g) != len(x) {
			w.t.Errorf("%s: %d lines, want %d", v, len(g), len(x))
		}
	}
}

// prime attaches to all views, and waits until the index has all of it.
func (w *world) prime(session string) map[wire.View]string {
	w.t.Helper()
	out := w.captureAll(session)
	w.settled(session)
	return out
}

// settled waits until the ends of both message views are kept, and written.
func (w *world) settled(session string) {
	w.t.Helper()
	s := w.session(session)
	for _, v := range messageViews {
		w.eventually("the end of "+string(v)+" is kept", func() bool {
			g := s.current()
			o := chunks.SnapshotOptions{Session: "probe", ID: 1, Source: &lazySource{}}
			_, release, _, ok := g.log(w.e, logKey{v, wire.EncodingJSON}).EndAt(cutOf(g.replay.Head()), o)
			if ok {
				release()
			}
			return ok
		})
	}
	s.remember(s.current())
	w.e.behind.flush(context.Background())
}

// crash goes on with a copy of the state folder, taken while the engine runs.
func (w *world) crash() {
	w.t.Helper()
	next := filepath.Join(w.t.TempDir(), "state")
	if err := os.CopyFS(next, os.DirFS(w.state)); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Chmod(next, 0o700); err != nil {
		w.t.Fatal(err)
	}
	for _, dir := range []string{"s", "torn", "sessions"} {
		if err := os.Chmod(filepath.Join(next, dir), 0o700); err != nil {
			w.t.Fatal(err)
		}
	}
	w.stop()
	w.state = next
	w.opt.StateDir, w.opt.SpillDir = next, filepath.Join(next, "s")
}

// unread demands that nothing was parsed since the start.
func (w *world) unread() {
	w.t.Helper()
	st := w.status()
	for _, name := range []string{"full_scans", "tail_scans", "lines_parsed", "replay_builds"} {
		if st.Replay[name] != 0 {
			w.t.Errorf("%s is %d, want 0", name, st.Replay[name])
		}
	}
}

// An engine that starts anew gives out what the one before has packed.
func TestReadopt_NothingIsParsed(t *testing.T) {
	for _, row := range []struct {
		name string
		end  func(*world)
	}{{"clean", (*world).stop}, {"crash", (*world).crash}} {
		t.Run(row.name, func(t *testing.T) {
			w := newReadopt(t)
			before := w.prime("a")
			row.end(w.world)
			w.start()
			w.mustBe(w.captureAll("a"), before)
			w.unread()
			if st := w.chunkStats(); st.Repacked > 0 || st.Damaged > 0 || st.Spilled > 0 || st.Segments == 0 {
				t.Errorf("chunks: got %+v, want them read from spill", st)
			}
			f := w.attach(wire.Command{Session: "a", View: wire.ViewTranscript})
			f.untilLive()
			f.again(w.world)
			f.untilLive()
			if f.result.Mode != wire.ModeTail {
				t.Errorf("mode %s, want %s", f.result.Mode, wire.ModeTail)
			}
			w.unread()
			w.extendFile(w.path, more(0, 30, "usage"))
			f.untilSequence(longMessages + 35)
			want := w.fresh("a")
			w.mustBe(w.captureAll("a"), want)
			w.settled("a")
			w.restart()
			w.mustBe(w.captureAll("a"), want)
			w.unread()
		})
	}
}

// An owned session that is appended to after the restart goes on as well.
func TestReadopt_Owned(t *testing.T) {
	w := newReadopt(t, spilling)
	w.longSession("s1")
	w.longSession("s2")
	key := "owned:s1.jsonl"
	before := w.prime(key)
	w.restart()
	f := w.attach(wire.Command{Session: key, View: wire.ViewTranscript})
	f.untilLive()
	w.unread()
	w.mustBe(w.captureAll(key), before)
	w.append("s1", user("n1", "s1ch", "x"))
	f.untilSequence(62)
	if n := len(f.slots); n != 61 {
		t.Errorf("%d slots, want 61", n)
	}
}

func (r *readopt) eachSpill(change func(i int, path string)) {
	r.t.Helper()
	list := r.spillFiles()
	if len(list) < 3 {
		r.t.Fatalf("files in spill: %v", list)
	}
	for i, path := range list {
		change(i, path)
	}
}

func flip(t testing.TB, path string, at int64) {
	t.Helper()
	b := readFile(t, path)
	b[at] ^= 0x40
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Whatever is wrong with what was kept, or has become of the session's file
// meanwhile, clients are told what an engine says that remembers nothing.
func TestReadopt_WhateverHappened(t *testing.T) {
	type row struct {
		name   string
		change func(t *testing.T, r *readopt)
		check  func(t *testing.T, r *readopt, st chunks.Stats)
	}
	packedAgain := func(t *testing.T, _ *readopt, st chunks.Stats) {
		if st.Damaged == 0 || st.Repacked == 0 {
			t.Errorf("got %+v, want damage, and chunks packed again", st)
		}
	}
	nothingKept := func(t *testing.T, r *readopt, st chunks.Stats) {
		if st.Damaged > 0 || r.status().Replay["replay_builds"] != 1 {
			t.Errorf("got %+v and %v", st, r.status().Replay)
		}
	}
	unread := func(_ *testing.T, r *readopt, _ chunks.Stats) { r.unread() }
	rows := []row{
		{"index removed", func(t *testing.T, r *readopt) {
			noError(t, os.Remove(filepath.Join(r.state, "index.db")))
		}, nothingKept},
		{"spill removed", func(t *testing.T, r *readopt) { noError(t, os.RemoveAll(r.opt.SpillDir)) }, nil},
		{"a byte of each file", func(t *testing.T, r *readopt) {
			r.eachSpill(func(_ int, path string) { flip(t, path, 20_000) })
		}, packedAgain},
		{"headers", func(t *testing.T, r *readopt) {
			r.eachSpill(func(_ int, path string) { flip(t, path, 17) })
		}, packedAgain},
		{"ends of files", func(t *testing.T, r *readopt) {
			r.eachSpill(func(_ int, path string) { flip(t, path, int64(len(readFile(t, path))-1)) })
		}, func(t *testing.T, _ *readopt, st chunks.Stats) {
			if st.Damaged == 0 { // what is kept beside the chunks is read first
				t.Errorf("got %+v, want damage", st)
			}
		}},
		{"one cut", func(t *testing.T, r *readopt) {
			r.eachSpill(func(i int, path string) {
				if i == 0 {
					noError(t, os.Truncate(path, 40_000))
				}
			})
		}, nil},
		{"all cut", func(t *testing.T, r *readopt) {
			r.eachSpill(func(_ int, path string) { noError(t, os.Truncate(path, 10)) })
		}, nil},
		{"one removed", func(t *testing.T, r *readopt) { noError(t, os.Remove(r.spillFiles()[0])) }, nil},
		{"two swapped", func(t *testing.T, r *readopt) {
			list := r.spillFiles()
			a, b := readFile(t, list[0]), readFile(t, list[1])
			noError(t, os.WriteFile(list[0], b, 0o600))
			noError(t, os.WriteFile(list[1], a, 0o600))
		}, packedAgain},
		{"other rules", func(t *testing.T, r *readopt) {
			x, err := kv.Open(t.Context(), filepath.Join(r.state, "index.db"), kv.Options{})
			noError(t, err)
			var b kv.Batch
			noError(t, x.Views(t.Context(), func(key, name string, v kv.View) error {
				v.Rules = "pi/0"
				b.PutView(key, name, v)
				return nil
			}))
			sig, ok := x.Signature(t.Context(), "f:a.jsonl")
			if !ok {
				t.Fatal("no signature")
			}
			sig.Rules = "pi/0"
			b.PutSignature("f:a.jsonl", sig)
			noError(t, errors.Join(x.Put(t.Context(), &b), x.Close(t.Context())))
		}, func(t *testing.T, r *readopt, st chunks.Stats) {
			nothingKept(t, r, st)
			if n := len(r.spillFiles()); n > 3 || st.Repacked > 0 {
				t.Errorf("%d files, %+v: want what was packed by other rules gone", n, st)
			}
		}},
		{"other chunk size", func(_ *testing.T, r *readopt) { r.opt.ChunkBytes = 4 << 10 }, nil},
		{"touched", func(t *testing.T, r *readopt) {
			noError(t, os.Chtimes(r.path, time.Unix(1, 0), time.Unix(1, 0)))
		}, unread},
		{"replaced by a copy", func(_ *testing.T, r *readopt) {
			r.replaceFile(r.path, string(readFile(r.t, r.path)))
		}, unread},
		{
			"grown", func(_ *testing.T, r *readopt) { r.extendFile(r.path, more(0, 10, "usage")) },
			func(t *testing.T, _ *readopt, st chunks.Stats) {
				if st.Repacked > 0 || st.Damaged > 0 || st.Spilled > 12 {
					t.Errorf("got %+v, want the full chunks of before used", st)
				}
			},
		},
		{"cut by a branch", func(_ *testing.T, r *readopt) { r.extendFile(r.path, more(0, 10, "e20")) }, nil},
		{"amended", func(_ *testing.T, r *readopt) {
			r.extendFile(r.path, lines(contextEdit("edit2", "usage", "e4", "null"), childUsage("usage2", "edit2", "e5", 9)))
		}, nil},
		{"rewritten, times put back", func(t *testing.T, r *readopt) {
			info, err := os.Stat(r.path)
			noError(t, err)
			text := strings.Replace(string(readFile(t, r.path)), "30 30", "31 30", 1)
			noError(t, os.WriteFile(r.path, []byte(text), 0o600))
			noError(t, os.Chtimes(r.path, info.ModTime(), info.ModTime()))
		}, nil},
		{"rewritten at the end", func(t *testing.T, r *readopt) {
			text := string(readFile(t, r.path))
			at := strings.LastIndex(text, "119 119")
			noError(t, os.WriteFile(r.path, []byte(text[:at]+"118"+text[at+3:]), 0o600))
		}, nil},
		{"replaced by another", func(_ *testing.T, r *readopt) {
			r.replaceFile(r.path, strings.ReplaceAll(longText(longMessages+20), "7 ", "9 "))
		}, nil},
		{"cut short", func(t *testing.T, r *readopt) {
			text := readFile(t, r.path)
			noError(t, os.Truncate(r.path, int64(bytes.LastIndexByte(text[:len(text)/2], '\n')+1)))
		}, nil},
	}
	for _, x := range rows {
		t.Run(x.name, func(t *testing.T) {
			r := newReadopt(t)
			r.prime("a")
			r.stop()
			x.change(t, r)
			r.start()
			want := r.fresh("a")
			r.mustBe(r.captureAll("a"), want)
			if x.check != nil {
				x.check(t, r, r.chunkStats())
			}
			r.mustBe(r.captureAll("a"), want)
			r.restart()
			r.mustBe(r.captureAll("a"), want)
		})
	}
}

// An index and a spill folder of different times, or of different folders.
func TestReadopt_IndexAndSpillDoNotFit(t *testing.T) {
	index := func(r *readopt) string { return filepath.Join(r.state, "index.db") }
	t.Run("older index", func(t *testing.T) {
		r := newReadopt(t)
		r.prime("a")
		r.stop()
		old := readFile(t, index(r))
		r.extendFile(r.path, more(0, 30, "e100"))
		r.start()
		want := r.prime("a")
		r.stop()
		noError(t, os.WriteFile(index(r), old, 0o600))
		r.start()
		r.mustBe(r.captureAll("a"), want)
	})
	t.Run("older spill", func(t *testing.T) {
		r := newReadopt(t)
		r.prime("a")
		r.stop()
		old := map[string][]byte{}
		for _, path := range r.spillFiles() {
			old[path] = readFile(t, path)
		}
		r.extendFile(r.path, more(0, 30, "e100"))
		r.start()
		want := r.prime("a")
		r.stop()
		for _, path := range r.spillFiles() {
			noError(t, os.Remove(path))
		}
		for path, b := range old {
			noError(t, os.WriteFile(path, b, 0o600))
		}
		r.start()
		r.mustBe(r.captureAll("a"), want)
	})
	t.Run("index of another folder", func(t *testing.T) {
		r, other := newReadopt(t), newReadopt(t)
		want := r.prime("a")
		noError(t, os.WriteFile(other.path, []byte(strings.ReplaceAll(longText(longMessages), "3 ", "4 ")), 0o600))
		other.e.changed(other.path)
		other.look("a")
		other.prime("a")
		r.stop()
		other.stop()
		noError(t, os.WriteFile(index(r), readFile(t, index(other)), 0o600))
		r.start()
		r.mustBe(r.captureAll("a"), want)
	})
}

// A client in the middle of a snapshot goes on at its next chunk, whatever was
// lost and whatever the session has become.
func TestReadopt_MidSnapshot(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(t *testing.T, r *readopt)
		goesOn bool
	}{
		{"as it was", func(*testing.T, *readopt) {}, true},
		{"index removed", func(t *testing.T, r *readopt) { noError(t, os.Remove(filepath.Join(r.state, "index.db"))) }, true},
		{"spill removed", func(t *testing.T, r *readopt) { noError(t, os.RemoveAll(r.opt.SpillDir)) }, true},
		{"grown", func(_ *testing.T, r *readopt) { r.extendFile(r.path, more(0, 10, "usage")) }, true},
		{"cut by a branch", func(_ *testing.T, r *readopt) { r.extendFile(r.path, more(0, 10, "e20")) }, true},
		{"amended", func(_ *testing.T, r *readopt) {
			r.extendFile(r.path, lines(contextEdit("edit2", "usage", "e4", "null")))
		}, true},
		{"another file", func(_ *testing.T, r *readopt) {
			r.replaceFile(r.path, strings.ReplaceAll(longText(longMessages), "3 ", "4 "))
		}, false},
	} {
		for _, view := range messageViews {
			t.Run(row.name+", "+string(view), func(t *testing.T) {
				r := newReadopt(t)
				r.prime("a")
				f := r.attach(wire.Command{Session: "a", View: view})
				f.until("chunk 5", func() bool { return f.next == 5 })
				f.st.Close()
				r.stop()
				row.change(t, r)
				r.start()
				f.again(r.world)
				f.untilLive()
				if goesOn := f.reason() == ""; goesOn != row.goesOn {
					t.Errorf("reason %q; goes on: want %v", f.reason(), row.goesOn)
				}
				last := r.attach(wire.Command{Session: "a", View: view})
				last.untilLive()
				f.until("the head", func() bool { return f.live && f.cursor.Same(last.cursor) && f.have == last.have })
				if !slices.Equal(f.slots, last.slots) {
					t.Errorf("got %d slots, want %d as a new client has", len(f.slots), len(last.slots))
				}
			})
		}
	}
}

// A client that reads a kept snapshot reads on though the session grows and
// the chunks are lost.
func TestReadopt_LostAndGrownWhileRead(t *testing.T) {
	for _, row := range []struct{ name, text string }{
		{"grown", more(0, 10, "usage")},
		{"cut by a branch", more(0, 10, "e20")},
		{"amended", lines(contextEdit("edit2", "usage", "e4", "null"))},
	} {
		for _, view := range messageViews {
			t.Run(row.name+", "+string(view), func(t *testing.T) {
				r := newReadopt(t)
				r.prime("a")
				r.restart()
				f := r.attach(wire.Command{Session: "a", View: view})
				f.until("chunk 5", func() bool { return f.next == 5 })
				r.unread()
				r.extendFile(r.path, row.text)
				r.look("a")
				r.eachSpill(func(_ int, path string) { noError(t, os.Truncate(path, 32)) })
				f.untilLive()
				if n := f.count(wire.TypeSnapshotFailed); n > 0 {
					t.Errorf("%d snapshots failed: %+v", n, f.failed.Error)
				}
				last := r.attach(wire.Command{Session: "a", View: view})
				last.untilLive()
				f.until("the head", func() bool { return f.live && f.cursor.Same(last.cursor) && f.have == last.have })
				if !slices.Equal(f.slots, last.slots) {
					t.Errorf("got %d slots, want %d as a new client has", len(f.slots), len(last.slots))
				}
			})
		}
	}
}

// At start what nothing names is removed, and what is named stays; what is
// discarded later goes with it.
func TestReadopt_Sweep(t *testing.T) {
	r := newReadopt(t)
	r.prime("a")
	r.stop()
	named := r.spillFiles()
	stray := filepath.Join(r.opt.SpillDir, "00000000000000ff-1.spill")
	noError(t, os.WriteFile(stray, []byte("x"), 0o600))
	r.start()
	r.eventually("the sweep", func() bool { return slices.Equal(r.spillFiles(), named) })
	r.stop()
	r.opt.ChunkBytes = 4 << 10
	r.start()
	r.prime("a")
	r.eventually("what has another chunk size is gone", func() bool {
		return !slices.ContainsFunc(r.spillFiles(), func(path string) bool { return slices.Contains(named, path) })
	})
}

// The files of a session that was replaced or removed go: also where nobody
// has opened it since the start.
func TestReadopt_FilesOfWhatIsGone(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(t *testing.T, r *readopt)
	}{
		{"removed", func(t *testing.T, r *readopt) { noError(t, os.Remove(r.path)) }},
		{"replaced", func(_ *testing.T, r *readopt) { r.replaceFile(r.path, sessionText(3)) }},
	} {
		for _, opened := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, open %v", row.name, opened), func(t *testing.T) {
				r := newReadopt(t)
				r.prime("a")
				r.restart()
				if opened {
					r.captureAll("a")
				}
				row.change(t, r)
				r.e.changed(r.path)
				if row.name == "replaced" {
					for _, v := range allViews {
						r.capture("a", v)
					}
				}
				r.eventually("the files are gone", func() bool { return len(r.spillFiles()) == 0 })
			})
		}
	}
}

// With a small budget the files used the longest ago go, and everything is
// served.
func TestReadopt_SmallBudget(t *testing.T) {
	r := newReadopt(t, func(o *Options) { o.SpillBytes = 2 << 20 })
	want := map[string]string{}
	for i := range 12 {
		name := fmt.Sprintf("b%d", i)
		path := r.write(name+".jsonl", strings.ReplaceAll(longText(longMessages), "9 ", fmt.Sprint(i)))
		r.e.changed(path)
		want[name] = r.capture(name, wire.ViewTranscript)
	}
	held := func() {
		t.Helper()
		var sum int64
		for _, path := range r.spillFiles() {
			info, err := os.Stat(path)
			noError(t, err)
			sum += info.Size()
		}
		if st := r.chunkStats(); sum > 2<<20 || st.SpillBytes > 2<<20 {
			t.Errorf("%d bytes in files, %+v", sum, st)
		}
	}
	held()
	for range 2 {
		r.restart()
		held()
		for name, text := range want {
			if r.capture(name, wire.ViewTranscript) != text {
				t.Errorf("%s differs", name)
			}
		}
		held()
	}
	if st := r.status(); len(st.Degraded) > 0 {
		t.Errorf("degraded: %v", st.Degraded)
	}
}

// A full disk under the spill folder touches no session.
func TestReadopt_DiskIsFull(t *testing.T) {
	faults, opt := withFaults()
	c := &clock{}
	r := newReadopt(t, opt, func(o *Options) { o.Now = c.now })
	r.prime("a")
	r.restart()
	r.eachSpill(func(_ int, path string) { // what was adopted is not written again
		next := strings.Replace(filepath.Base(path), "-1.", "-2.", 1)
		faults.Add(vfstest.Rule{Op: vfstest.Create, Path: next, Times: vfstest.Always, Err: unix.ENOSPC})
	})
	r.create("z1")
	r.append("z1", chain(0, 3)...)
	r.extendFile(r.path, more(0, 60, "usage"))
	r.look("a")
	want := r.fresh("a")
	r.mustBe(r.captureAll("a"), want)
	if st := r.status(); len(st.Degraded) != 1 || !strings.Contains(st.Degraded[0], "spilled") {
		t.Errorf("degraded: %v", st.Degraded)
	}
	r.append("z1", chain(3, 3)...)
	faults.Heal()
	c.advance(time.Minute)
	r.mustBe(r.captureAll("a"), want)
	r.extendFile(r.path, more(60, 60, "m59"))
	r.look("a")
	want = r.fresh("a")
	r.mustBe(r.captureAll("a"), want)
	if st := r.status(); len(st.Degraded) > 0 {
		t.Errorf("degraded: %v", st.Degraded)
	}
	r.restart()
	r.mustBe(r.captureAll("a"), want)
}
