package follow

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"sessiond/engine/vfs"
	"sessiond/engine/vfs/vfstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come; it is only ever spent
// by a test that fails.
const patience = 20 * time.Second

// bench is a watcher whose ticks and reports are the test's.
type bench struct {
	t         testing.TB
	root      string
	w         *Watcher
	hot, cold chan time.Time
	changed   chan string
	rescanned chan string
}

// setUp starts a watcher; a fault file system may be nil.
func setUp(t testing.TB, polling bool, fsys vfs.FS) *bench {
	t.Helper()
	b := &bench{
		t: t, root: t.TempDir(), hot: make(chan time.Time), cold: make(chan time.Time),
		changed: make(chan string, 1<<10), rescanned: make(chan string, 16),
	}
	if !polling && runtime.GOOS != "linux" {
		t.Skip("no events here")
	}
	b.w = New(Options{
		FS: fsys, Polling: polling, HotTick: b.hot, ColdTick: b.cold,
		Events: Events{
			Changed: func(path string) { b.changed <- path },
			Rescan:  func(root string) { b.rescanned <- root },
		},
	})
	t.Cleanup(func() {
		for range 2 {
			if err := b.w.Close(); err != nil {
				t.Errorf("close: got %v", err)
			}
		}
	})
	return b
}

func (b *bench) addRoot() []Entry {
	b.t.Helper()
	entries, err := b.w.AddRoot(b.t.Context(), b.root)
	if err != nil {
		b.t.Fatal(err)
	}
	return entries
}

func (b *bench) path(name string) string { return filepath.Join(b.root, name) }

// wantChanged waits until all these are reported, in whatever order; other
// reports, and more than one of a path, are allowed.
func (b *bench) wantChanged(names ...string) {
	b.t.Helper()
	missing := map[string]bool{}
	for _, name := range names {
		missing[b.path(name)] = true
	}
	deadline := time.After(patience)
	for len(missing) > 0 {
		select {
		case path := <-b.changed:
			delete(missing, path)
		case <-deadline:
			b.t.Fatalf("not reported: %v", missing)
		}
	}
}

// tick runs a sweep to its end and returns exactly what it reported.
func (b *bench) tick(c chan time.Time) []string {
	b.t.Helper()
	c <- time.Time{}
	barrier := b.path("barrier.jsonl") // reported when the sweep is over
	b.w.enqueue(barrier)
	var got []string
	for {
		select {
		case path := <-b.changed:
			if path == barrier {
				return got
			}
			rel, err := filepath.Rel(b.root, path)
			b.do(err)
			got = append(got, rel)
		case <-time.After(patience):
			b.t.Fatal("the sweep does not end")
		}
	}
}

func (b *bench) do(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) grow(name string) {
	b.t.Helper()
	f, err := os.OpenFile(b.path(name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	b.do(err)
	_, err = f.WriteString("{}\n")
	b.do(errors.Join(err, f.Close()))
}

func TestWatcher_Events(t *testing.T) {
	b := setUp(t, false, nil)
	lay(t, b.root, "old.jsonl", "sub/old.jsonl")
	if diff := cmp.Diff([]string{"old.jsonl", "sub/old.jsonl"}, found(b.addRoot())); diff != "" {
		t.Errorf("AddRoot: want -, got +:\n%s", diff)
	}
	if mode, why := b.w.Mode(b.root); mode != Inotify || why != nil {
		t.Errorf("mode: got %s, %v, want %s", mode, why, Inotify)
	}
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"append", func() { b.grow("old.jsonl") }, []string{"old.jsonl"}},
		{"append below", func() { b.grow("sub/old.jsonl") }, []string{"sub/old.jsonl"}},
		{"create", func() { b.grow("new.jsonl") }, []string{"new.jsonl"}},
		{"replace by rename", func() {
			lay(t, b.root, ".new.tmp")
			b.do(os.Rename(b.path(".new.tmp"), b.path("new.jsonl")))
		}, []string{"new.jsonl"}},
		{"truncate", func() { b.do(os.Truncate(b.path("new.jsonl"), 0)) }, []string{"new.jsonl"}},
		{"rename", func() { b.do(os.Rename(b.path("new.jsonl"), b.path("newer.jsonl"))) }, []string{"new.jsonl", "newer.jsonl"}},
		{"remove", func() { b.do(os.Remove(b.path("newer.jsonl"))) }, []string{"newer.jsonl"}},
		{"new folders at once", func() { lay(t, b.root, "x/y/z/deep.jsonl") }, []string{"x/y/z/deep.jsonl"}},
		{"append in a new folder", func() { b.grow("x/y/z/deep.jsonl") }, []string{"x/y/z/deep.jsonl"}},
		{"folder moves", func() { b.do(os.Rename(b.path("x"), b.path("moved"))) }, []string{"x/y/z/deep.jsonl", "moved/y/z/deep.jsonl"}},
		{"append in the moved folder", func() { b.grow("moved/y/z/deep.jsonl") }, []string{"moved/y/z/deep.jsonl"}},
		{"folder moves back", func() { b.do(os.Rename(b.path("moved"), b.path("x"))) }, []string{"x/y/z/deep.jsonl", "moved/y/z/deep.jsonl"}},
		{"append after that", func() { b.grow("x/y/z/deep.jsonl") }, []string{"x/y/z/deep.jsonl"}},
		{"folder moves in", func() {
			other := t.TempDir()
			lay(t, other, "in/side/came.jsonl")
			b.do(os.Rename(filepath.Join(other, "in"), b.path("in")))
		}, []string{"in/side/came.jsonl"}},
		{"folder moves out", func() { b.do(os.Rename(b.path("in"), filepath.Join(t.TempDir(), "out"))) }, []string{"in/side/came.jsonl"}},
		{"folder is removed", func() { b.do(os.RemoveAll(b.path("x"))) }, []string{"x/y/z/deep.jsonl"}},
		{"folder comes again", func() { lay(t, b.root, "x/again.jsonl") }, []string{"x/again.jsonl"}},
		{"append there", func() { b.grow("x/again.jsonl") }, []string{"x/again.jsonl"}},
	} {
		step.do()
		t.Log(step.name)
		b.wantChanged(step.want...)
	}
}

// A burst with a consumer that does not come back until it is over: every
// file is reported.
func TestWatcher_StalledConsumer(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no events here")
	}
	const files = 3000
	root := t.TempDir()
	stall, done := make(chan struct{}), make(chan struct{})
	reported := map[string]bool{}
	w := New(Options{Events: Events{Changed: func(path string) {
		<-stall
		again := reported[path]
		if reported[path] = true; !again && len(reported) == files {
			close(done)
		}
	}}, HotTick: make(chan time.Time), ColdTick: make(chan time.Time)})
	defer w.Close()
	if _, err := w.AddRoot(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	for i := range files {
		lay(t, root, fmt.Sprintf("%d.jsonl", i))
	}
	close(stall)
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("some files of the burst were never reported")
	}
}

func TestWatcher_Overflow(t *testing.T) {
	for _, row := range []struct {
		name string
		lose func(b *bench)
	}{
		{"the kernel's queue", func(b *bench) { b.w.notify.Errors <- fsnotify.ErrEventOverflow }},
		{"more names than are kept", func(b *bench) {
			b.w.mu.Lock()
			b.w.pending = make([]string, pendingMax) // names of nothing
			b.w.mu.Unlock()
			b.w.enqueue(b.path("one-more.jsonl"))
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := setUp(t, false, nil)
			lay(t, b.root, "a.jsonl", "sub/b.jsonl")
			b.addRoot()
			row.lose(b)
			select {
			case root := <-b.rescanned:
				if root != b.root {
					t.Errorf("rescan: got %s, want %s", root, b.root)
				}
			case <-time.After(patience):
				t.Fatal("no rescan")
			}
			b.grow("sub/b.jsonl") // watched as before
			b.wantChanged("sub/b.jsonl")
		})
	}
}

func TestWatcher_Polling(t *testing.T) {
	b := setUp(t, true, nil)
	lay(t, b.root, "a.jsonl", "b.jsonl", "sub/c.jsonl")
	b.addRoot()
	if mode, why := b.w.Mode(b.root); mode != Polling || !errors.Is(why, ErrForced) {
		t.Errorf("mode: got %s, %v, want %s, %v", mode, why, Polling, ErrForced)
	}
	b.w.Hot(b.path("a.jsonl"), true)
	outside := filepath.Join(t.TempDir(), "outside.jsonl")
	b.w.Hot(outside, true)
	outsideRel, err := filepath.Rel(b.root, outside)
	b.do(err)
	for _, step := range []struct {
		name string
		do   func()
		tick chan time.Time
		want []string
	}{
		{"nothing, hot", func() {}, b.hot, nil},
		{"nothing, cold", func() {}, b.cold, nil},
		{"growth, hot", func() { b.grow("a.jsonl"); b.grow("b.jsonl") }, b.hot, []string{"a.jsonl"}},
		{"growth, cold", func() {}, b.cold, []string{"b.jsonl"}},
		{"new ones", func() { lay(t, b.root, "new.jsonl", "x/y.jsonl") }, b.cold, []string{"new.jsonl", "x/y.jsonl"}},
		{"growth of new ones", func() { b.grow("x/y.jsonl") }, b.cold, []string{"x/y.jsonl"}},
		{"replaced", func() {
			lay(t, b.root, "z")
			b.do(os.Rename(b.path("z"), b.path("b.jsonl")))
		}, b.cold, []string{"b.jsonl"}},
		{"a file becomes a folder", func() {
			b.do(os.Remove(b.path("b.jsonl")))
			b.do(os.Mkdir(b.path("b.jsonl"), 0o700))
		}, b.cold, []string{"b.jsonl"}},
		{"removed, hot", func() { b.do(os.Remove(b.path("a.jsonl"))) }, b.hot, []string{"a.jsonl"}},
		{"removed, cold", func() { b.do(os.RemoveAll(b.path("x"))) }, b.cold, []string{"x/y.jsonl"}},
		{"comes back, hot", func() { b.grow("a.jsonl") }, b.hot, []string{"a.jsonl"}},
		{"outside comes", func() { lay(t, filepath.Dir(outside), "outside.jsonl") }, b.hot, []string{outsideRel}},
		{"no longer hot", func() {
			b.w.Hot(b.path("a.jsonl"), false)
			b.w.Hot(outside, false)
			b.grow("a.jsonl")
			b.do(os.Remove(outside))
		}, b.hot, nil},
		{"then cold", func() {}, b.cold, []string{"a.jsonl"}},
		{"all gone", func() { b.do(os.RemoveAll(b.root)) }, b.cold, []string{"a.jsonl", "b.jsonl", "new.jsonl", "sub/c.jsonl"}},
		{"all back", func() { lay(t, b.root, "a.jsonl") }, b.cold, []string{"a.jsonl"}},
	} {
		step.do()
		if diff := cmp.Diff(step.want, b.tick(step.tick)); diff != "" {
			t.Errorf("%s: want -, got +:\n%s", step.name, diff)
		}
	}
}

// A file system that takes watches and stays silent: the sweeps still see
// everything, and where the watcher does not start, so they do.
func TestWatcher_EventsThatNeverCome(t *testing.T) {
	cannot := errors.New("too many instances")
	for _, row := range []struct {
		name string
		make func(t *testing.T) (*fsnotify.Watcher, error)
		mode Mode
	}{
		{"silent", func(t *testing.T) (*fsnotify.Watcher, error) {
			n, err := fsnotify.NewWatcher()
			if err != nil {
				t.Fatal(err)
			}
			n.Events = nil // as seen by the drain
			return n, nil
		}, Inotify},
		{"not started", func(*testing.T) (*fsnotify.Watcher, error) { return nil, cannot }, Polling},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := &bench{
				t: t, root: t.TempDir(), hot: make(chan time.Time), cold: make(chan time.Time),
				changed: make(chan string, 16),
			}
			o := Options{HotTick: b.hot, ColdTick: b.cold, Events: Events{Changed: func(path string) { b.changed <- path }}}
			notify, err := row.make(t)
			b.w = start(o.withDefaults(), notify, err)
			defer b.w.Close()
			lay(t, b.root, "a.jsonl")
			b.addRoot()
			if mode, why := b.w.Mode(b.root); mode != row.mode || !errors.Is(why, err) {
				t.Errorf("mode: got %s, %v, want %s, %v", mode, why, row.mode, err)
			}
			b.grow("a.jsonl")
			if diff := cmp.Diff([]string{"a.jsonl"}, b.tick(b.cold)); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

// The sweep watches what events have missed, and a root that comes late.
func TestWatcher_RootComesLate(t *testing.T) {
	b := setUp(t, false, nil)
	b.root = filepath.Join(b.root, "late")
	if entries, err := b.w.AddRoot(t.Context(), b.root); len(entries) != 0 || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("AddRoot of nothing: got %v, %v, want %v", entries, err, fs.ErrNotExist)
	}
	lay(t, b.root, "a.jsonl")
	b.cold <- time.Time{}
	b.wantChanged("a.jsonl")
	b.grow("a.jsonl")
	b.wantChanged("a.jsonl")
}

// A listing that fails says nothing about the files.
func TestWatcher_RootUnreadableForAMoment(t *testing.T) {
	fsys := vfstest.New(vfs.OS{})
	b := setUp(t, true, fsys)
	lay(t, b.root, "a.jsonl", "b.jsonl")
	b.addRoot()
	fsys.Add(vfstest.Rule{Op: vfstest.ReadDir, Err: syscall.EIO})
	if got := b.tick(b.cold); got != nil {
		t.Errorf("while it cannot be listed: got %v, want no reports", got)
	}
	b.grow("b.jsonl")
	if diff := cmp.Diff([]string{"b.jsonl"}, b.tick(b.cold)); diff != "" {
		t.Errorf("afterwards: want -, got +:\n%s", diff)
	}
}
