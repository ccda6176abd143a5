package vfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"sessiond/engine/vfs"
	"sessiond/engine/vfs/vfstest"
)

// names lists a folder.
func names(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

func TestReplaceAndPublish(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := vfs.PublishFile(vfs.OS{}, path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := vfs.PublishFile(vfs.OS{}, path, []byte("two"), 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("publish over a file: got %v, want %v", err, fs.ErrExist)
	}
	if got := read(t, path); got != "one" {
		t.Errorf("after the refused publish: got %q, want %q", got, "one")
	}
	if err := vfs.ReplaceFile(vfs.OS{}, path, []byte("three"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != "three" {
		t.Errorf("after the replacement: got %q, want %q", got, "three")
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("left in the folder: got %q, want f alone", got)
	}
}

func TestReplaceAndPublish_Faults(t *testing.T) {
	for _, row := range []struct {
		name string
		rule vfstest.Rule
	}{
		{"short write", vfstest.Rule{Op: vfstest.Write, Err: syscall.ENOSPC, WriteBytes: 1}},
		{"sync", vfstest.Rule{Op: vfstest.Datasync, Err: syscall.EIO}},
		{"create", vfstest.Rule{Op: vfstest.Create, Err: syscall.ENOSPC}},
		{"close", vfstest.Rule{Op: vfstest.Close, Err: syscall.EIO}},
		{"rename or link", vfstest.Rule{Path: "f", Err: syscall.EIO}},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "f")
			write(t, path, "old")
			replace := row.rule
			publish := row.rule
			if row.rule.Op == "" {
				replace.Op, publish.Op = vfstest.Rename, vfstest.Link
				publish.Path = "g"
			}
			fsys := vfstest.New(vfs.OS{})
			fsys.Add(replace)
			if err := vfs.ReplaceFile(fsys, path, []byte("new"), 0o600); !errors.Is(err, row.rule.Err) {
				t.Errorf("ReplaceFile: got %v, want %v", err, row.rule.Err)
			}
			fsys.Add(publish)
			if err := vfs.PublishFile(fsys, filepath.Join(dir, "g"), []byte("new"), 0o600); !errors.Is(err, row.rule.Err) {
				t.Errorf("PublishFile: got %v, want %v", err, row.rule.Err)
			}
			if got := read(t, path); got != "old" {
				t.Errorf("content: got %q, want %q", got, "old")
			}
			if got := names(t, dir); len(got) != 1 {
				t.Errorf("left in the folder: got %q, want f alone", got)
			}
		})
	}
}

func TestReplaceFile_SyncsInOrder(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	fsys := vfstest.New(vfs.OS{})
	var synced, renamed bool
	fsys.Add(vfstest.Rule{Op: vfstest.Datasync, Do: func() { synced = true }})
	fsys.Add(vfstest.Rule{Op: vfstest.Rename, Do: func() {
		if !synced {
			t.Error("renamed before the content was synced")
		}
		renamed = true
	}})
	fsys.Add(vfstest.Rule{Op: vfstest.SyncDir, Path: dir, Do: func() {
		if !renamed {
			t.Error("folder synced before the rename")
		}
	}})
	// A temporary name that a crash left behind is stepped over.
	write(t, filepath.Join(dir, ".f.0.tmp"), "stale")
	if err := vfs.ReplaceFile(fsys, path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if fsys.Count(vfstest.SyncDir, dir) != 1 {
		t.Error("the folder was not synced")
	}
	if !vfs.IsTemp(".f.0.tmp") || vfs.IsTemp("f.tmp") || vfs.IsTemp(".f") {
		t.Error("IsTemp does not know its names")
	}
}
