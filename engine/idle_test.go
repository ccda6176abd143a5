package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sessiond/engine/vfs"
	"sessiond/wire"
)

// countingFS counts the files that are open.
type countingFS struct {
	vfs.FS
	mu   sync.Mutex
	open map[string]int // by base name
	most int            // session files at once
}

func (c *countingFS) add(path string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[filepath.Base(path)] += n
	c.most = max(c.most, c.sessionsLocked())
}

func (c *countingFS) sessionsLocked() int {
	n := 0
	for name, k := range c.open {
		if strings.HasSuffix(name, ".jsonl") {
			n += k
		}
	}
	return n
}

func (c *countingFS) sessions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessionsLocked()
}

func (c *countingFS) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	c.add(f.Name(), 1)
	return &countedFile{f, c}, nil
}

func (c *countingFS) OpenRead(path string) (vfs.File, error) { return c.file(c.FS.OpenRead(path)) }

func (c *countingFS) OpenAppend(path string) (vfs.File, error) { return c.file(c.FS.OpenAppend(path)) }

type countedFile struct {
	vfs.File
	fs *countingFS
}

func (f *countedFile) Close() error {
	f.fs.add(f.Name(), -1)
	return f.File.Close()
}

func withCounting(c *clock) (*countingFS, func(*Options)) {
	counting := &countingFS{FS: vfs.OS{}, open: map[string]int{}}
	return counting, func(o *Options) { o.FS, o.Now = counting, c.now }
}

func TestIdle_IsClosedAndOpenedAgain(t *testing.T) {
	c := &clock{}
	files, opt := withCounting(c)
	w := newWorld(t, opt)
	w.create("o1")
	w.append("o1", chain(0, 5)...)
	w.e.changed(w.write("a.jsonl", sessionText(5)))
	c.advance(5 * time.Second) // so that the stamps are trusted
	for _, name := range []string{"o1", "a"} {
		f := w.attach(wire.Command{Session: name, View: wire.ViewTranscript})
		f.untilLive()
		c.advance(time.Hour)
		w.e.closeIdle(c.now())
		if s := w.session(name); s.current() == nil {
			t.Errorf("%s was closed with a client attached", name)
		}
		f.st.Close()
	}
	w.e.closeIdle(c.now())
	if got := w.status().Open; got != 1 { // a: its client has just left
		t.Errorf("%d sessions open, want 1", got)
	}
	c.advance(w.e.o.IdleAfter)
	w.e.closeIdle(c.now())
	if got := w.status().Open; got != 0 {
		t.Errorf("%d sessions open, want none", got)
	}
	w.eventually("no session file is open", func() bool { return files.sessions() == 0 })
	before := w.e.counters.Values()
	for _, name := range []string{"o1", "a"} {
		f := w.attach(wire.Command{Session: name, View: wire.ViewTranscript})
		f.untilLive()
		if len(f.slots) != 5 {
			t.Errorf("%s: %d slots, want 5", name, len(f.slots))
		}
	}
	after := w.e.counters.Values()
	if after["replay_builds"] != before["replay_builds"] || after["cache_hits"] != before["cache_hits"]+2 || after["lines_parsed"] != before["lines_parsed"] {
		t.Errorf("got counters %v, then %v; want two hits and nothing parsed", before, after)
	}
	if r := w.append("o1", chain(5, 1)...); r.Head.Sequence != 7 {
		t.Errorf("append: %+v", r)
	}
}

// A file that changed while it was closed is read again.
func TestIdle_ChangedMeanwhile(t *testing.T) {
	c := &clock{}
	_, opt := withCounting(c)
	w := newWorld(t, opt, polling)
	path := w.write("a.jsonl", sessionText(5))
	w.e.changed(path)
	c.advance(5 * time.Second)
	f := w.attach(wire.Command{Session: "a", View: wire.ViewTranscript})
	f.untilLive()
	f.st.Close()
	c.advance(time.Hour)
	w.e.closeIdle(c.now())
	for _, change := range []struct {
		name   string
		do     func()
		slots  int
		reason string
	}{
		{"grown", func() { w.extendFile(path, lines(chain(5, 2)...)) }, 7, ""},
		{"rewritten", func() { must(w, os.WriteFile(path, []byte(sessionText(3)), 0o600)) }, 3, wire.ReasonTruncated},
	} {
		change.do()
		f.again(w)
		f.untilLive()
		if len(f.slots) != change.slots || f.reason() != change.reason && f.reason() != "" {
			t.Errorf("%s: %d slots, reason %q; want %d, %q", change.name, len(f.slots), f.reason(), change.slots, change.reason)
		}
		f.st.Close()
		c.advance(time.Hour)
		w.e.closeIdle(c.now())
	}
}

// However many sessions are used, no more are open than the bound allows,
// besides those with clients.
func TestIdle_OpenFilesAreBounded(t *testing.T) {
	c := &clock{}
	files, opt := withCounting(c)
	const bound = 5
	w := newWorld(t, opt, func(o *Options) { o.OpenMax = bound })
	attached := w.create("attached")
	f := w.attach(wire.Command{Session: "attached", View: wire.ViewTranscript})
	f.untilLive()
	for i := range 40 {
		id := fmt.Sprintf("o%d", i)
		w.create(id)
		w.append(id, chain(0, 2)...)
		w.e.changed(w.write(fmt.Sprintf("f%d.jsonl", i), sessionText(2)))
		g := w.attach(wire.Command{Session: fmt.Sprintf("f%d", i), View: wire.ViewTranscript})
		g.untilLive()
		g.st.Close()
		if n := w.status().Open; n > bound+1 {
			t.Fatalf("%d sessions open, at most %d", n, bound+1)
		}
	}
	// A descriptor for reading and one for appending each, and those of the
	// one that is being opened.
	if most := 2*(bound+1) + 2; files.most > most {
		t.Errorf("%d session files were open at once, want at most %d", files.most, most)
	}
	w.append("attached", chain(0, 3)...)
	f.untilSequence(4)
	if s := w.session(attached.Session); s.current() == nil {
		t.Errorf("the session with a client was closed")
	}
}

// Commands, clients and the closing of what is idle do not disturb each
// other.
func TestIdle_ClosingWhileInUse(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.OpenMax = 1; o.IdleAfter = 1 })
	const sessions = 4
	for i := range sessions {
		w.create(fmt.Sprintf("s%d", i))
	}
	stop := make(chan struct{})
	closer := make(chan struct{})
	go func() {
		defer close(closer)
		for {
			select {
			case <-stop:
				return
			default:
				w.e.closeIdle(time.Now())
			}
		}
	}()
	var wg sync.WaitGroup
	for i := range sessions {
		wg.Go(func() {
			id := fmt.Sprintf("s%d", i)
			for n := range 15 {
				if _, err := w.call(appendCommand(id, user(fmt.Sprintf("e%d", n), "", "x"))); err != nil {
					t.Errorf("append %s: %v", id, err)
					return
				}
				f := &follower{t: panics{}}
				if err := f.attach(w, wire.Command{Session: id, View: wire.ViewRecords}); err != nil {
					t.Errorf("attach %s: %v", id, err)
					return
				}
				f.untilSequence(n + 2)
				f.st.Close()
			}
		})
	}
	wg.Wait()
	close(stop)
	<-closer
	if d := w.status().Degraded; len(d) > 0 {
		t.Errorf("degraded %q", d)
	}
}

// panics is told of failures in goroutines that may not end the test.
type panics struct{}

func (panics) Helper()                           {}
func (panics) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// With the cache off everything is the same but for the work.
func TestIdle_WithoutCache(t *testing.T) {
	c := &clock{}
	_, opt := withCounting(c)
	w := newWorld(t, opt, func(o *Options) { o.ReplayCacheBytes = 0 })
	w.create("s1")
	w.append("s1", chain(0, 5)...)
	for range 2 {
		c.advance(time.Hour)
		w.e.closeIdle(c.now())
		f := w.attach(wire.Command{Session: "s1", View: wire.ViewTranscript})
		f.untilLive()
		if len(f.slots) != 5 {
			t.Errorf("%d slots, want 5", len(f.slots))
		}
		f.st.Close()
	}
	if v := w.e.counters.Values(); v["cache_hits"] != 0 {
		t.Errorf("counters %v, want no hit", v)
	}
}
