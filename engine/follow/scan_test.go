package follow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sessiond/engine/vfs"
	"sessiond/engine/vfs/vfstest"
)

// lay makes files from their paths; parents are made too.
func lay(t testing.TB, root string, paths ...string) {
	t.Helper()
	for _, p := range paths {
		path := filepath.Join(root, p)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// found describes entries: a path, and why it is not usable.
func found(entries []Entry) []string {
	var out []string
	for _, e := range entries {
		s := e.Path
		for name, err := range map[string]error{
			" (not regular)": vfs.ErrNotRegular, " (outside)": ErrOutside, " (folder link)": ErrFolderLink,
			" (loop)": unix.ELOOP, " (deep)": ErrDeep, " (permission)": fs.ErrPermission, " (io)": syscall.EIO,
		} {
			if errors.Is(e.Err, err) {
				s += name
				e.Err = nil
			}
		}
		if e.Err != nil {
			s += " (" + e.Err.Error() + ")"
		}
		out = append(out, s)
	}
	return out
}

func TestScan(t *testing.T) {
	outside := t.TempDir()
	lay(t, outside, "secret.jsonl")
	root := t.TempDir()
	lay(t, root, "a.jsonl", "b.txt", "c.jsonl.tmp", ".d.jsonl", "sub/e.jsonl", "sub/deep/f.jsonl", ".hidden/g.jsonl", "dir.jsonl/h.jsonl", "jsonl")
	if err := syscall.Mkfifo(filepath.Join(root, "fifo.jsonl"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"link-in.jsonl":     filepath.Join(root, "sub", "e.jsonl"),
		"link-rel.jsonl":    "sub/deep/f.jsonl",
		"link-out.jsonl":    filepath.Join(outside, "secret.jsonl"),
		"link-fifo.jsonl":   "fifo.jsonl",
		"link-none.jsonl":   "nowhere.jsonl",
		"link-none":         "nowhere",
		"link-text":         "b.txt",
		"loop.jsonl":        "loop.jsonl",
		"loop-1":            "loop-2",
		"loop-2":            "loop-1",
		"sub/up":            root,
		"out":               outside,
		"sub/folders.jsonl": "deep",
	} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		".hidden/g.jsonl", "a.jsonl", "dir.jsonl (not regular)", "fifo.jsonl (not regular)",
		"link-fifo.jsonl (not regular)", "link-in.jsonl", "link-none.jsonl (follow: link leads nowhere)",
		"link-out.jsonl (outside)", "link-rel.jsonl", "loop-1 (loop)", "loop-2 (loop)", "loop.jsonl (loop)",
		"out (folder link)", "sub/deep/f.jsonl", "sub/e.jsonl", "sub/folders.jsonl (folder link)", "sub/up (folder link)",
	}
	aliased := filepath.Join(t.TempDir(), "alias")
	if err := os.Symlink(root, aliased); err != nil {
		t.Fatal(err)
	}
	for _, r := range []string{root, aliased} {
		entries, err := Scan(t.Context(), vfs.OS{}, r)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, found(entries)); diff != "" {
			t.Errorf("%s: want -, got +:\n%s", r, diff)
		}
		for _, e := range entries {
			if e.Err != nil {
				continue
			}
			info, err := os.Stat(filepath.Join(r, e.Path))
			if err != nil || e.Info.Stamp.Inode != info.Sys().(*syscall.Stat_t).Ino || e.Info.Stamp.Size != 3 {
				t.Errorf("%s: got info %+v, want that of the file", e.Path, e.Info)
			}
		}
	}
}

func TestScan_Depth(t *testing.T) {
	root := t.TempDir()
	deep := strings.Repeat("d/", DepthMax)
	lay(t, root, deep+"last.jsonl", deep+"d/below.jsonl")
	entries, err := Scan(t.Context(), vfs.OS{}, root)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{deep + "d (deep)", deep + "last.jsonl"}, found(entries)); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

func TestScan_Faults(t *testing.T) {
	root := t.TempDir()
	lay(t, root, "a.jsonl", "sub/b.jsonl", "z.jsonl")
	for _, row := range []struct {
		name string
		rule vfstest.Rule
		want []string
	}{
		{"unreadable folder", vfstest.Rule{Op: vfstest.ReadDir, Path: "sub", Err: syscall.EACCES}, []string{"a.jsonl", "sub (permission)", "z.jsonl"}},
		{"unreadable file", vfstest.Rule{Op: vfstest.Lstat, Path: "a.jsonl", Err: syscall.EIO}, []string{"a.jsonl (io)", "sub/b.jsonl", "z.jsonl"}},
		{"folder vanishes", vfstest.Rule{Op: vfstest.ReadDir, Path: "sub", Err: syscall.ENOENT}, []string{"a.jsonl", "z.jsonl"}},
		{"file vanishes", vfstest.Rule{Op: vfstest.Lstat, Path: "sub/b.jsonl", Err: syscall.ENOENT}, []string{"a.jsonl", "z.jsonl"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			fsys := vfstest.New(vfs.OS{})
			fsys.Add(row.rule)
			entries, err := Scan(t.Context(), fsys, root)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, found(entries)); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
	if _, err := Scan(t.Context(), vfs.OS{}, filepath.Join(root, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent root: got %v, want %v", err, fs.ErrNotExist)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Scan(ended, vfs.OS{}, root); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: got %v, want %v", err, context.Canceled)
	}
}

func TestScan_UnreadableFolder(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("the superuser reads every folder")
	}
	root := t.TempDir()
	lay(t, root, "a.jsonl", "sub/b.jsonl")
	sub := filepath.Join(root, "sub")
	if err := os.Chmod(sub, 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(sub, 0o700)
	entries, err := Scan(t.Context(), vfs.OS{}, root)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a.jsonl", "sub (permission)"}, found(entries)); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

func BenchmarkScan_10000(b *testing.B) {
	root := b.TempDir()
	for i := range 10_000 {
		lay(b, root, fmt.Sprintf("%02d/%d.jsonl", i%50, i))
	}
	for b.Loop() {
		if entries, err := Scan(b.Context(), vfs.OS{}, root); len(entries) != 10_000 || err != nil {
			b.Fatal(len(entries), err)
		}
	}
}
