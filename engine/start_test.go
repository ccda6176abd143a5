package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sessiond/engine/vfs"
	"sessiond/engine/vfs/vfstest"
	"sessiond/wire"
)

// mustNotOpen demands that an engine does not start, and leaves nothing open.
func mustNotOpen(t *testing.T, o Options, want error) error {
	t.Helper()
	e, err := Open(t.Context(), o)
	if err == nil {
		t.Errorf("Open: no error, want %v", want)
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
		return nil
	}
	if want != nil && !errors.Is(err, want) {
		t.Errorf("Open: got %v, want %v", err, want)
	}
	return err
}

func TestStart_SecondDaemonIsToldWhoIsThere(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.SocketPath = "/run/x/s.sock" })
	err := mustNotOpen(t, w.opt, ErrLocked)
	for _, want := range []string{fmt.Sprintf("pid %d", os.Getpid()), "/run/x/s.sock", "started 2"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want it to name %q", err, want)
		}
	}
	w.create("s1") // the first is as it was
	w.restart()
}

func TestStart_StateFolderIsThisUsersAlone(t *testing.T) {
	w := newStoppedWorld(t)
	if err := os.Mkdir(w.state, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := mustNotOpen(t, w.opt, ErrStateDir); !strings.Contains(err.Error(), "0755") || !strings.Contains(err.Error(), "chmod 700") {
		t.Errorf("got %q, want the mode and what to do", err)
	}
	if err := os.Chmod(w.state, 0o700); err != nil {
		t.Fatal(err)
	}
	w.opt.FS = otherOwner{vfs.OS{}, w.state}
	if err := mustNotOpen(t, w.opt, ErrStateDir); !strings.Contains(err.Error(), "user 12345") {
		t.Errorf("got %q, want the owner", err)
	}
}

// otherOwner is a file system in which one folder is somebody else's.
type otherOwner struct {
	vfs.FS
	path string
}

func (o otherOwner) Stat(path string) (vfs.Info, error) {
	info, err := o.FS.Stat(path)
	if path == o.path {
		info.UID = 12345
	}
	return info, err
}

func TestStart_WhatIsMadeIsPrivate(t *testing.T) {
	old := unix.Umask(0)
	t.Cleanup(func() { unix.Umask(old) })
	w := newWorld(t)
	w.create("s1")
	w.stop()
	err := filepath.WalkDir(w.state, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %04o", path, info.Mode().Perm())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestStart_Options(t *testing.T) {
	dir := t.TempDir()
	for _, row := range []struct {
		name string
		o    Options
	}{
		{"relative state folder", Options{StateDir: "x"}},
		{"relative sessions folder", Options{StateDir: dir, SessionsDir: "x"}},
		{"small chunks", Options{StateDir: dir, ChunkBytes: 10}},
		{"large chunks", Options{StateDir: dir, ChunkBytes: wire.InlineBytes + 1}},
		{"root without a name", Options{StateDir: dir, Roots: []Root{{"", dir}}}},
		{"root with a colon", Options{StateDir: dir, Roots: []Root{{"a:b", dir}}}},
		{"root with the name of the owned", Options{StateDir: dir, Roots: []Root{{OwnedRoot, dir}}}},
		{"two roots of one name", Options{StateDir: dir, Roots: []Root{{"a", dir}, {"a", dir}}}},
		{"relative root", Options{StateDir: dir, Roots: []Root{{"a", "x"}}}},
	} {
		t.Run(row.name, func(t *testing.T) { mustNotOpen(t, row.o, nil) })
	}
}

// Nothing of a session is read at the start.
func TestStart_OpensNoSessionFile(t *testing.T) {
	faults, opt := withFaults()
	w := newWorld(t, opt)
	for i := range 20 {
		w.create(fmt.Sprintf("s%d", i))
		w.write(fmt.Sprintf("f%d.jsonl", i), sessionText(3))
	}
	w.stop()
	before := faults.Count(vfstest.OpenRead, "")
	w.start()
	if n := len(w.list(wire.Command{}).Sessions); n != 40 {
		t.Errorf("%d sessions, want 40", n)
	}
	if got := faults.Count(vfstest.OpenRead, "") - before; got > 0 {
		t.Errorf("%d files were opened for reading", got)
	}
}

// A root that is not there does not stop the daemon, and is found later.
func TestStart_RootIsMissing(t *testing.T) {
	w := newStoppedWorld(t, polling)
	if err := os.Remove(w.root); err != nil {
		t.Fatal(err)
	}
	w.start()
	roots := w.status().Roots
	if len(roots) != 2 || roots[1].Error == "" {
		t.Errorf("status: %+v, want the error of the root", roots)
	}
	if err := os.Mkdir(w.root, 0o700); err != nil {
		t.Fatal(err)
	}
	w.write("a.jsonl", sessionText(1))
	w.e.rescan(w.root)
	w.attach(wire.Command{Session: "a", View: wire.ViewTranscript}).untilLive()
	if roots := w.status().Roots; roots[1].Error != "" {
		t.Errorf("status: %+v, want no error any more", roots)
	}
}

// A damaged index is set aside; sessions do not care.
func TestStart_DamagedIndex(t *testing.T) {
	for _, row := range []struct {
		name   string
		damage func(b []byte) []byte
	}{
		{"cut", func(b []byte) []byte { return b[:len(b)/2] }},
		{"empty", func([]byte) []byte { return nil }},
		{"zeros", func(b []byte) []byte { return make([]byte, len(b)) }},
		{"garbage", func(b []byte) []byte { return []byte(strings.Repeat("garbage ", len(b)/8)) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			w.create("s1")
			w.append("s1", chain(0, 5)...)
			f := w.attach(wire.Command{Session: "s1", View: wire.ViewTranscript})
			f.untilLive()
			f.st.Close()
			w.stop()
			path := filepath.Join(w.state, "index.db")
			if err := os.WriteFile(path, row.damage(readFile(t, path)), 0o600); err != nil {
				t.Fatal(err)
			}
			w.start()
			f.again(w)
			f.untilLive()
			if f.result.Mode != wire.ModeTail || len(f.slots) != 5 {
				t.Errorf("got mode %s, %d slots; want tail, 5", f.result.Mode, len(f.slots))
			}
		})
	}
}

func TestClose_Twice(t *testing.T) {
	w := newWorld(t)
	w.create("s1")
	e := w.e
	w.stop()
	if err := e.Close(context.Background()); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestClose_EndsStreams(t *testing.T) {
	w := newWorld(t)
	w.create("s1")
	f := w.attach(wire.Command{Session: "s1", View: wire.ViewTranscript})
	f.untilLive()
	w.stop()
	f.untilOver()
}

// What comes after Close opens nothing any more.
func TestClose_RefusesCommands(t *testing.T) {
	files, opt := withCounting(&clock{})
	w := newWorld(t, opt)
	w.create("s1")
	w.append("s1", chain(0, 3)...)
	e := w.e
	w.stop()
	w.e = e
	for _, c := range []wire.Command{
		appendCommand("s1", chain(3, 1)...),
		{Type: wire.CmdAttach, Session: "s1", View: wire.ViewRecords},
	} {
		w.refuse(c, wire.CodeShuttingDown)
	}
	e.changed(filepath.Join(e.o.SessionsDir, "s1.jsonl"))
	w.e = nil
	if n := files.sessions(); n != 0 {
		t.Errorf("%d session files are open", n)
	}
}

// The lock of a daemon that was just killed goes a moment after its process.
func TestStart_LockIsReleasedAMomentLate(t *testing.T) {
	disk := vfstest.New(vfs.OS{})
	disk.Add(vfstest.Rule{Op: vfstest.TryLock, Path: "lock", Times: 2, Err: vfs.ErrLocked})
	newWorld(t, func(o *Options) { o.FS = disk })
	if n := disk.Count(vfstest.TryLock, "lock"); n != 3 {
		t.Errorf("%d tries, want 3", n)
	}
}
