package vfstest_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"sessiond/engine/vfs"
	"sessiond/engine/vfs/vfstest"
)

func TestFS_Rules(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.jsonl")
	fsys := vfstest.New(vfs.OS{})
	f, err := fsys.Create(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	hooks := 0
	fsys.Add(vfstest.Rule{Op: vfstest.Write, Path: "a.jsonl", Skip: 1, Err: syscall.ENOSPC, WriteBytes: 3})
	fsys.Add(vfstest.Rule{Op: vfstest.Datasync, Path: "b.jsonl", Err: syscall.EIO})
	fsys.Add(vfstest.Rule{Op: vfstest.Truncate, Times: vfstest.Always, Do: func() { hooks++ }})

	for i, row := range []struct {
		n   int
		err error
	}{{6, nil}, {3, syscall.ENOSPC}, {6, nil}} {
		n, err := f.Write([]byte("abcdef"))
		if n != row.n || !errors.Is(err, row.err) {
			t.Errorf("write %d: got %d, %v, want %d, %v", i, n, err, row.n, row.err)
		}
	}
	if err := f.Datasync(); err != nil {
		t.Errorf("a rule for another file: got %v", err)
	}
	for range 2 {
		if err := f.Truncate(9); err != nil {
			t.Errorf("a rule without an error: got %v", err)
		}
	}
	if hooks != 2 {
		t.Errorf("hooks: got %d, want 2", hooks)
	}
	if got := fsys.Count(vfstest.Write, "a.jsonl"); got != 3 {
		t.Errorf("writes counted: got %d, want 3", got)
	}
	fsys.Add(vfstest.Rule{Op: vfstest.SyncDir, Times: vfstest.Always, Err: syscall.EIO})
	if err := fsys.SyncDir(dir); !errors.Is(err, syscall.EIO) {
		t.Errorf("before Heal: got %v, want %v", err, syscall.EIO)
	}
	fsys.Heal()
	if err := fsys.SyncDir(dir); err != nil {
		t.Errorf("after Heal: got %v", err)
	}
	b, err := os.ReadFile(path)
	if got, want := string(b), "abcdefabc"; got != want || err != nil {
		t.Errorf("content: got %q, %v, want %q", got, err, want)
	}
}

func TestFS_Free(t *testing.T) {
	fsys := vfstest.New(vfs.OS{})
	fsys.SetFree(5, 10)
	if free, total, err := fsys.Free(t.TempDir()); free != 5 || total != 10 || err != nil {
		t.Errorf("got %d of %d, %v, want 5 of 10", free, total, err)
	}
	fsys.Add(vfstest.Rule{Op: vfstest.Free, Err: syscall.EIO})
	if _, _, err := fsys.Free(t.TempDir()); !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v, want %v", err, syscall.EIO)
	}
}
