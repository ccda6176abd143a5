package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sessiond/engine/vfs"
	"sessiond/engine/vfs/vfstest"
	"sessiond/wire"
)

// withPaging lets no page of a record index stay in memory that may leave it.
// Chunks are small, so that snapshots take a while.
func withPaging() (*vfstest.FS, func(*Options)) {
	fsys := vfstest.New(unsynced{vfs.OS{}})
	return fsys, func(o *Options) {
		o.FS, o.IndexMemoryBytes, o.IndexPageBytes, o.ChunkBytes = fsys, 1, 512, 1<<10
		o.ChunkMemoryBytes, o.ReplayCacheBytes = 1, 0
	}
}

// pagedMessages are so many that nearly all of their index is in the file.
const pagedMessages = 500

// saysFailed reports whether the status tells that indexes do not leave memory.
func (w *world) saysFailed() bool {
	w.t.Helper()
	return slices.ContainsFunc(w.status().Degraded, func(s string) bool { return strings.HasPrefix(s, "record indexes stay in memory") })
}

// holds demands that a client of a message view holds so many messages, which
// are those that a new one gets.
func (w *world) holds(n int, list ...*follower) {
	w.t.Helper()
	for _, f := range list {
		fresh := w.attachTo(f.command.Session, f.command.View)
		if len(fresh.slots) != n || !slices.Equal(f.slots, fresh.slots) {
			w.fail.Fatalf("%s: got %d messages, a new client %d, want %d; frames %v", f.command.View, len(f.slots), len(fresh.slots), n, f.frames)
		}
	}
}

func TestPaging_FileCannotBeMade(t *testing.T) {
	fsys, paging := withPaging()
	fsys.Add(vfstest.Rule{Op: vfstest.Scratch, Times: vfstest.Always, Err: syscall.EROFS})
	w := newWorld(t, paging)
	w.e.changed(w.write("a.jsonl", sessionText(pagedMessages)))
	f := w.attach(wire.Command{Session: "a", View: wire.ViewTranscript})
	f.untilLive()
	w.holds(pagedMessages, f)
	if !w.saysFailed() {
		t.Errorf("degraded: got %q", w.status().Degraded)
	}
	fsys.Heal()
	w.eventually("indexes leave memory", func() bool { return !w.saysFailed() && w.status().RecordIndex.Writes > 0 })
	w.holds(pagedMessages, f)
}

func TestPaging_DiskFull(t *testing.T) {
	fsys, paging := withPaging()
	w := newWorld(t, paging)
	path := w.write("a.jsonl", sessionText(pagedMessages))
	w.e.changed(path)
	f := w.attach(wire.Command{Session: "a", View: wire.ViewContext})
	f.untilLive()
	fsys.Add(vfstest.Rule{Op: vfstest.WriteScratch, Times: vfstest.Always, Err: syscall.ENOSPC, WriteBytes: 100})
	n := pagedMessages
	for range 3 {
		w.extendFile(path, lines(chain(n, 200)...))
		w.look("a")
		n += 200
		f.untilSequence(n + 1)
		w.holds(n, f)
	}
	if !w.saysFailed() {
		t.Errorf("degraded: got %q", w.status().Degraded)
	}
	fsys.Heal()
	w.eventually("indexes leave memory again", func() bool { return !w.saysFailed() })
	w.holds(n, f)
}

// A page that cannot be read again, at any time: clients in the middle of a
// snapshot and live ones go on in the same generation, appends are taken, and
// who attaches later gets all.
func TestPaging_LostPage(t *testing.T) {
	for _, owned := range []bool{false, true} {
		for _, view := range []wire.View{wire.ViewTranscript, wire.ViewContext, wire.ViewRecords} {
			t.Run(fmt.Sprintf("%s, owned %v", view, owned), func(t *testing.T) {
				anew := 0
				for skip := 0; skip < 3000; skip = skip*2 + 1 {
					anew += lostPage(t, owned, view, skip)
				}
				if anew == 0 {
					t.Error("no read that failed was one of the session's replay")
				}
			})
		}
	}
}

// lostPage fails one read of the paging file, and returns how often the session
// was read anew.
func lostPage(t *testing.T, owned bool, view wire.View, skip int) (anew int) {
	t.Helper()
	fsys, paging := withPaging()
	w := newWorld(t, paging)
	defer w.stop()
	n, path := pagedMessages, ""
	if owned {
		w.create("a")
		for i := 0; i < n; i += 100 {
			w.append("a", chain(i, 100)...)
		}
	} else {
		path = w.write("a.jsonl", sessionText(n))
		w.e.changed(path)
	}
	more := func() {
		t.Helper()
		if owned {
			w.append("a", chain(n, 10)...)
		} else {
			w.extendFile(path, lines(chain(n, 10)...))
			w.look("a")
		}
		n += 10
	}
	live, middle := w.attach(wire.Command{Session: "a", View: view}), w.attach(wire.Command{Session: "a", View: view})
	live.untilLive()
	middle.until("three chunks", func() bool { return middle.count(wire.TypeSnapshotChunk) == 3 })
	generation := live.result.Generation
	fsys.Add(vfstest.Rule{Op: vfstest.ReadScratch, Skip: skip, Err: syscall.EIO})
	more()
	live.untilSequence(n + 1)
	middle.untilSequence(n + 1)
	more()
	live.untilSequence(n + 1)
	middle.untilSequence(n + 1)
	if got := live.count(wire.TypeSnapshotBegin); got != 1 {
		t.Fatalf("read %d fails: the live client got %d snapshots; frames %v", skip, got, live.frames)
	}
	if got := w.attachTo("a", view).result.Generation; got != generation {
		t.Fatalf("read %d fails: generation: got %s, want %s", skip, got, generation)
	}
	count := n
	if view == wire.ViewRecords {
		count++
	}
	w.holds(count, live, middle)
	live.st.Close()
	middle.st.Close()
	return w.log.count("session read anew")
}

// While no page can be read at all, clients are told to come back; then all is
// as it was.
func TestPaging_NothingCanBeRead(t *testing.T) {
	fsys, paging := withPaging()
	w := newWorld(t, paging)
	path := w.write("a.jsonl", sessionText(pagedMessages))
	w.e.changed(path)
	f := w.attachTo("a", wire.ViewTranscript)
	generation := f.result.Generation
	fsys.Add(vfstest.Rule{Op: vfstest.ReadScratch, Times: vfstest.Always, Err: syscall.EIO})
	for range 3 {
		var e *wire.Error
		if err := toWire(w.failing("a")); !errors.As(err, &e) || e.Code != wire.CodeIO || !e.Retryable {
			t.Errorf("got %v, want one to try again", err)
		}
	}
	w.list(wire.Command{})
	fsys.Heal()
	w.holds(pagedMessages, f)
	if got := w.attachTo("a", wire.ViewTranscript).result.Generation; got != generation {
		t.Errorf("generation: got %s, want %s", got, generation)
	}
}

// livePaged has a followed session whose index is paged out, and a client that
// has all of it.
func livePaged(t *testing.T) (fsys *vfstest.FS, w *world, path string, f *follower) {
	t.Helper()
	fsys, paging := withPaging()
	w = newWorld(t, paging, polling)
	path = w.write("a.jsonl", sessionText(pagedMessages))
	w.e.changed(path)
	f = w.attach(wire.Command{Session: "a", View: wire.ViewTranscript})
	f.untilLive()
	return fsys, w, path, f
}

// A live client whose file cannot be read anew at once is not forgotten:
// though nothing happens to the file, it is read again.
func TestPaging_LiveClientIsNotForgotten(t *testing.T) {
	fsys, w, path, f := livePaged(t)
	fsys.Add(vfstest.Rule{Op: vfstest.ReadScratch, Times: vfstest.Always, Err: syscall.EIO})
	n := pagedMessages
	for !w.session("a").current().replay.Lost() {
		// Repeats link all anew, for which the whole index is read.
		w.extendFile(path, lines(append(chain(n, 1), chain(n-5, 6)...)...))
		n++
		_ = w.session("a").lookNow(t.Context()) // the error of the page
	}
	fsys.Heal()
	w.eventually("a fresh replay", func() bool { return !w.session("a").current().replay.Lost() })
	f.until("all messages", func() bool { return f.live && len(f.slots) == n })
	w.holds(n, f)
}

// failing attaches to a session until that fails.
func (w *world) failing(session string) error {
	w.t.Helper()
	r, err := w.e.Handle(w.t.Context(), wire.Request{Command: wire.Command{Type: wire.CmdAttach, Session: session, View: wire.ViewTranscript}, Attachment: "a1"})
	if err != nil {
		return err
	}
	defer r.Stream.Close()
	wake := make(chan struct{}, 1)
	r.Stream.Start(func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		frame, ok, err := r.Stream.Next()
		switch {
		case err != nil:
			return err
		case frame.Release != nil:
			frame.Release()
		case !ok:
			select {
			case <-wake:
			case <-timeout.C:
				w.fail.Fatalf("nothing comes and nothing fails; log:\n%s", w.log.b.String())
			}
		}
	}
}

// A session whose file is another when its index is lost has another history.
func TestPaging_LostAndReplaced(t *testing.T) {
	fsys, w, path, f := livePaged(t)
	fsys.Add(vfstest.Rule{Op: vfstest.ReadScratch, Err: syscall.EIO})
	g := w.session("a").current()
	if _, err := g.replay.View(viewOf(wire.ViewTranscript)); err == nil {
		for i := range int32(pagedMessages) {
			if _, err = viewSlot(g, i); err != nil {
				break
			}
		}
	}
	if !g.replay.Lost() {
		t.Fatal("no page was lost")
	}
	w.replaceFile(path, history("other", pagedMessages+7))
	w.look("a")
	f.until("the replacement", func() bool { return f.live && len(f.slots) == pagedMessages+7 })
	w.holds(pagedMessages+7, f)
	if f.begin.Purpose != wire.PurposeReplacement {
		t.Errorf("purpose: got %s", f.begin.Purpose)
	}
}

// viewSlot looks at a message of the transcript.
func viewSlot(g *generation, i int32) (n int64, err error) {
	slots, bodies, err := g.replay.Slots(viewOf(wire.ViewTranscript))
	if err != nil {
		return 0, err
	}
	_, b, err := bodies.BodyAt(&slots, int(i), false)
	return b.Bytes, err
}
