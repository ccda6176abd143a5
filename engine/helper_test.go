package engine

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sessiond/engine/vfs"
	"sessiond/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tb is what helpers need of a *testing.T or a *rapid.T.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

// world is an engine over a state folder of its own, and a root whose files
// other programs write.
type world struct {
	t     testing.TB
	fail  tb // who is told of failures: t, or a property's own
	state string
	root  string
	e     *Engine
	opt   Options
	log   *logBuffer
}

const followedRoot = "f"

// newWorld starts an engine.
func newWorld(t testing.TB, change ...func(*Options)) *world {
	t.Helper()
	w := newStoppedWorld(t, change...)
	w.start()
	return w
}

func newStoppedWorld(t testing.TB, change ...func(*Options)) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, fail: t, state: filepath.Join(dir, "state"), root: filepath.Join(dir, "root"), log: &logBuffer{}}
	if err := os.Mkdir(w.root, 0o700); err != nil {
		t.Fatal(err)
	}
	w.opt = Options{
		StateDir: w.state, ReplayCacheBytes: DefaultReplayCacheBytes,
		Roots:  []Root{{followedRoot, w.root}},
		Logger: slog.New(slog.NewTextHandler(w.log, nil)),
		Timing: Timing{Quiet: 20 * time.Millisecond, Declare: 200 * time.Millisecond, Hole: time.Nanosecond, Rest: 50 * time.Millisecond},
	}
	for _, f := range change {
		f(&w.opt)
	}
	t.Cleanup(w.stop)
	return w
}

func (w *world) start() {
	w.t.Helper()
	e, err := Open(w.t.Context(), w.opt)
	if err != nil {
		w.fail.Fatalf("Open: %v", err)
	}
	w.e = e
}

func (w *world) stop() {
	w.t.Helper()
	if w.e == nil {
		return
	}
	if err := w.e.Close(context.Background()); err != nil {
		w.t.Errorf("Close: %v", err)
	}
	w.e = nil
}

func (w *world) restart() {
	w.t.Helper()
	w.stop()
	w.start()
}

// logBuffer is what the engine logged.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

var _ io.Writer = (*logBuffer)(nil)

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func (w *world) call(c wire.Command) (any, error) {
	r, err := w.e.Handle(context.Background(), wire.Request{Command: c})
	return r.Result, err
}

func (w *world) create(id string) wire.CreateResult {
	w.t.Helper()
	r, err := w.call(wire.Command{Type: wire.CmdCreate, SessionID: id, CWD: "/w"})
	if err != nil {
		w.fail.Fatalf("create %s: %v", id, err)
	}
	return r.(wire.CreateResult)
}

func (w *world) append(session string, entries ...string) wire.AppendResult {
	w.t.Helper()
	r, err := w.call(wire.Command{Type: wire.CmdAppend, Session: session, Entries: entries})
	if err != nil {
		w.fail.Fatalf("append: %v", err)
	}
	return r.(wire.AppendResult)
}

// appendAt appends behind a cursor, whatever the ids are.
func (w *world) appendAt(session string, at wire.Cursor, entries ...string) wire.AppendResult {
	w.t.Helper()
	r, err := w.call(wire.Command{Type: wire.CmdAppend, Session: session, Expect: &at, Entries: entries})
	if err != nil {
		w.fail.Fatalf("append at %v: %v", at, err)
	}
	return r.(wire.AppendResult)
}

// refuse demands that a command is refused with a code.
func (w *world) refuse(c wire.Command, want wire.Code) *wire.Error {
	w.t.Helper()
	if c.Type == wire.CmdAttach {
		r, err := w.e.Handle(context.Background(), wire.Request{Command: c, Attachment: "a1"})
		if r.Stream != nil {
			r.Stream.Close()
		}
		return w.refused(c, err, want)
	}
	_, err := w.call(c)
	return w.refused(c, err, want)
}

func (w *world) refused(c wire.Command, err error, want wire.Code) *wire.Error {
	w.t.Helper()
	e, ok := err.(*wire.Error) //nolint:errorlint // Handle gives nothing else
	if !ok || e.Code != want {
		w.fail.Fatalf("%s: got %v, want %s", c.Type, err, want)
	}
	return e
}

func (w *world) list(c wire.Command) wire.ListResult {
	w.t.Helper()
	c.Type = wire.CmdList
	r, err := w.call(c)
	if err != nil {
		w.fail.Fatalf("list: %v", err)
	}
	return r.(wire.ListResult)
}

// listed returns the line of a listing.
func (w *world) listed(key string) (wire.Session, bool) {
	w.t.Helper()
	for _, s := range w.list(wire.Command{}).Sessions {
		if s.Session == key {
			return s, true
		}
	}
	return wire.Session{}, false
}

func (w *world) status() Status {
	w.t.Helper()
	r, err := w.call(wire.Command{Type: wire.CmdStatus})
	if err != nil {
		w.fail.Fatalf("status: %v", err)
	}
	return r.(Status)
}

// path is where a followed file is.
func (w *world) path(name string) string { return filepath.Join(w.root, name) }

// write makes a followed file.
func (w *world) write(name, content string) string {
	w.t.Helper()
	path := w.path(name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// replaceFile puts another file in a path's place, as editors do.
func (w *world) replaceFile(path, content string) {
	w.t.Helper()
	temp := path + ".tmp"
	if err := os.WriteFile(temp, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(temp, path); err != nil {
		w.t.Fatal(err)
	}
}

// extendFile appends as another program does.
func (w *world) extendFile(path, content string) {
	w.t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := f.WriteString(content); err != nil {
		w.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		w.t.Fatal(err)
	}
}

// look brings a session up to its file now.
func (w *world) look(name string) {
	w.t.Helper()
	s := w.session(name)
	for {
		if err := s.lookNow(context.Background()); err != nil {
			w.fail.Fatalf("look at %s: %v", name, err)
		}
		wait, again := s.nextLook()
		if p, _ := s.suspicion(); !again || !p.since.IsZero() && p.stamp.IsMissing() {
			return
		}
		time.Sleep(wait) // as the session itself would
	}
}

func (w *world) session(name string) *session {
	w.t.Helper()
	s, err := w.e.resolve(name)
	if err != nil {
		w.fail.Fatalf("resolve %s: %v", name, err)
	}
	return s
}

// current returns the generation that is open, nil if none is.
func (s *session) current() *generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gen
}

// unsynced is a file system that acknowledges syncs at once: for tests that
// make many changes and pull no plug.
type unsynced struct{ vfs.FS }

func (u unsynced) SyncDir(string) error { return nil }

func (u unsynced) Create(path string, mode fs.FileMode) (vfs.File, error) {
	return unsyncedFile(u.FS.Create(path, mode))
}

func (u unsynced) OpenAppend(path string) (vfs.File, error) {
	return unsyncedFile(u.FS.OpenAppend(path))
}

func unsyncedFile(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return unsyncedF{f}, nil
}

type unsyncedF struct{ vfs.File }

func (unsyncedF) Datasync() error { return nil }

func withoutSync(o *Options) { o.FS = unsynced{vfs.OS{}} }

// eventually waits until something that the engine does by itself is done.
func (w *world) eventually(what string, done func() bool) {
	w.t.Helper()
	timeout := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-timeout:
			w.fail.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// patience bounds the wait for what must come.
const patience = 20 * time.Second

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// clock is a time that a test moves.
type clock struct {
	mu     sync.Mutex
	offset time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}
