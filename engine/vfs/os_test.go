package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"sessiond/engine/vfs"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestOS_OnlyRegularFilesOpen(t *testing.T) {
	dir := t.TempDir()
	regular := filepath.Join(dir, "regular")
	write(t, regular, "x")
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	loop := filepath.Join(dir, "loop")
	for name, target := range map[string]string{link: regular, loop: loop} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir) // a socket's path is limited
	l, err := net.Listen("unix", "sock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	for _, row := range []struct {
		name       string
		path       string
		read, appd error
	}{
		{"regular", regular, nil, nil},
		{"folder", dir, vfs.ErrNotRegular, vfs.ErrNotRegular},
		{"fifo", fifo, vfs.ErrNotRegular, vfs.ErrNotRegular},
		{"socket", filepath.Join(dir, "sock"), vfs.ErrNotRegular, vfs.ErrNotRegular},
		{"device", "/dev/null", vfs.ErrNotRegular, vfs.ErrNotRegular},
		{"link", link, nil, vfs.ErrNotRegular},
		{"link loop", loop, vfs.ErrNotRegular, vfs.ErrNotRegular},
		{"absent", filepath.Join(dir, "absent"), fs.ErrNotExist, fs.ErrNotExist},
	} {
		t.Run(row.name, func(t *testing.T) {
			for what, want := range map[string]error{"OpenRead": row.read, "OpenAppend": row.appd} {
				open := vfs.OS{}.OpenRead
				if what == "OpenAppend" {
					open = vfs.OS{}.OpenAppend
				}
				f, err := open(row.path)
				if !errors.Is(err, want) {
					t.Errorf("%s: got %v, want %v", what, err, want)
				}
				if err == nil {
					f.Close()
				}
			}
		})
	}
}

func TestOS_AppendPositionAndStamp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	f, err := vfs.OS{}.Create(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	other, err := vfs.OS{}.OpenAppend(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()

	for i, row := range []struct {
		f    vfs.File
		text string
		want int64
	}{{f, "one\n", 4}, {other, "two--\n", 10}, {f, "3\n", 12}} {
		if _, err := row.f.Write([]byte(row.text)); err != nil {
			t.Fatal(err)
		}
		if got, err := row.f.Position(); got != row.want || err != nil {
			t.Errorf("write %d: position: got %d, %v, want %d", i, got, err, row.want)
		}
	}
	if got, _ := other.Position(); got != 10 {
		t.Errorf("position after another's write: got %d, want 10", got)
	}
	if err := errors.Join(f.Datasync(), f.Truncate(10), f.Datasync()); err != nil {
		t.Fatal(err)
	}
	if got, want := read(t, path), "one\ntwo--\n"; got != want {
		t.Errorf("content: got %q, want %q", got, want)
	}

	open, err := f.Info()
	if err != nil {
		t.Fatal(err)
	}
	byPath, err := vfs.OS{}.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if open != byPath {
		t.Errorf("fstat and stat differ: got %+v, want %+v", open, byPath)
	}
	if open.Stamp.Size != 10 || open.Stamp.Inode == 0 || open.Stamp.CTimeNano == 0 || open.Links != 1 || int(open.UID) != os.Getuid() {
		t.Errorf("info: got %+v", open)
	}
	if _, err := (vfs.OS{}).Create(path, 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Create over a file: got %v, want %v", err, fs.ErrExist)
	}
}

func TestOS_LockIsOfTheOpenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	write(t, path, "")
	open := func() vfs.File {
		f, err := vfs.OS{}.OpenAppend(path)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first, second := open(), open()
	defer second.Close()
	if err := first.TryLock(); err != nil {
		t.Fatal(err)
	}
	if err := second.TryLock(); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("second lock: got %v, want %v", err, vfs.ErrLocked)
	}
	if err := open().Close(); err != nil { // must not drop first's lock
		t.Fatal(err)
	}
	if err := second.TryLock(); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("after a third descriptor was closed: got %v, want %v", err, vfs.ErrLocked)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := second.TryLock(); err != nil {
		t.Errorf("after the holder closed: got %v, want the lock", err)
	}
}

func TestOS_ModesWhateverTheUmask(t *testing.T) {
	root := t.TempDir()
	old := syscall.Umask(0o277)
	defer syscall.Umask(old)
	dir := filepath.Join(root, "a", "b", "c")
	if err := (vfs.OS{}).MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "f")
	f, err := vfs.OS{}.Create(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for p, want := range map[string]fs.FileMode{filepath.Join(root, "a"): 0o700, dir: 0o700, path: 0o600} {
		info, err := vfs.OS{}.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode.Perm(); got != want {
			t.Errorf("%s: got mode %v, want %v", p, got, want)
		}
	}
}

func TestOS_MkdirAllRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	write(t, file, "")
	dangling := filepath.Join(dir, "dangling")
	if err := os.Symlink(filepath.Join(dir, "nowhere"), dangling); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "below"), dangling} {
		if err := (vfs.OS{}).MkdirAll(path, 0o700); err == nil {
			t.Errorf("MkdirAll(%s): got no error", path)
		}
	}
}

func TestOS_RemoveRemovesNoFolder(t *testing.T) {
	dir := t.TempDir()
	if err := (vfs.OS{}).Remove(dir); err == nil {
		t.Error("Remove of a folder: got no error")
	}
	if err := (vfs.OS{}).Remove(filepath.Join(dir, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Remove of nothing: got %v, want %v", err, fs.ErrNotExist)
	}
}

func TestOS_AllocateKeepsTheLength(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	f, err := vfs.OS{}.Create(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Allocate(1 << 20); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != "abc" {
		t.Errorf("content: got %q, want abc", got)
	}
}

func TestOS_Free(t *testing.T) {
	free, total, err := vfs.OS{}.Free(t.TempDir())
	if err != nil || free < 0 || total < free {
		t.Errorf("got %d of %d, %v", free, total, err)
	}
	if _, _, err := (vfs.OS{}).Free(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of nothing: got %v, want %v", err, fs.ErrNotExist)
	}
}

func BenchmarkOS_AppendDatasync(b *testing.B) {
	f, err := vfs.OS{}.Create(filepath.Join(b.TempDir(), "a"), 0o600)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	line := append(bytes.Repeat([]byte("x"), 299), '\n')
	for b.Loop() {
		if _, err := f.Write(line); err != nil {
			b.Fatal(err)
		}
		if err := f.Datasync(); err != nil {
			b.Fatal(err)
		}
	}
}

func TestScratch(t *testing.T) {
	dir := t.TempDir()
	f, err := vfs.OS{}.Scratch(dir)
	if err != nil {
		t.Fatal(err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("names in the folder: got %v %v, want none", names, err)
	}
	if n, err := f.WriteAt([]byte("second"), 100); n != 6 || err != nil {
		t.Fatalf("WriteAt: got %d %v", n, err)
	}
	if n, err := f.WriteAt([]byte("first"), 3); n != 5 || err != nil {
		t.Fatalf("WriteAt: got %d %v", n, err)
	}
	got := make([]byte, 106)
	want := append(append(make([]byte, 3), "first"...), append(make([]byte, 92), "second"...)...)
	if n, err := f.ReadAt(got, 0); n != len(got) || err != nil || !bytes.Equal(got, want) {
		t.Errorf("ReadAt: got %q, %d %v", got, n, err)
	}
	if n, err := f.ReadAt(got, 104); n != 2 || !errors.Is(err, io.EOF) {
		t.Errorf("ReadAt over the end: got %d %v, want 2 and io.EOF", n, err)
	}
	other, err := vfs.OS{}.Scratch(dir)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := other.ReadAt(got, 0); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("another file: got %d bytes %v, want none", n, err)
	}
	if err := errors.Join(f.Close(), other.Close()); err != nil {
		t.Error(err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("names in the folder afterwards: got %v %v, want none", names, err)
	}
}

func TestScratch_NoFolder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	write(t, file, "x")
	for _, path := range []string{filepath.Join(dir, "missing"), file} {
		f, err := vfs.OS{}.Scratch(path)
		if err == nil {
			_ = f.Close()
			t.Errorf("%s: no error", path)
		}
	}
	if _, err := (vfs.OS{}).Scratch(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing folder: got %v, want %v", err, fs.ErrNotExist)
	}
}
