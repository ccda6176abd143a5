package sock

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// socketDir is a private folder with a short name: t.TempDir is neither.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestDefaultPath(t *testing.T) {
	long := "/" + strings.Repeat("x", 100)
	for name, c := range map[string]struct {
		env  map[string]string
		want string
	}{
		"runtime folder":     {map[string]string{"XDG_RUNTIME_DIR": "/run/user/7"}, "/run/user/7/sessiond/sessiond.sock"},
		"relative is no env": {map[string]string{"XDG_RUNTIME_DIR": "run"}, "/tmp/sessiond-7/sessiond.sock"},
		"long runtime":       {map[string]string{"XDG_RUNTIME_DIR": long, "TMPDIR": "/var/t"}, "/var/t/sessiond-7/sessiond.sock"},
		"both long":          {map[string]string{"XDG_RUNTIME_DIR": long, "TMPDIR": long}, "/tmp/sessiond-7/sessiond.sock"},
		"nothing":            {nil, "/tmp/sessiond-7/sessiond.sock"},
	} {
		if got := DefaultPath(func(k string) string { return c.env[k] }, 7); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestPathFor_Lengths(t *testing.T) {
	env := func(string) string { return "" }
	seen := map[string]int{}
	for _, n := range []int{95, 103, 104, 107, 108, 200, 4000} {
		path := "/" + strings.Repeat("d", n-1)
		got := PathFor(env, 7, path)
		if want := n <= PathBytesMax; (got == path) != want {
			t.Errorf("%d bytes: got %s, want the path itself: %v", n, got, want)
		}
		if _, err := checkPath(got); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
		_, err := checkPath(path)
		if tooLong := errors.Is(err, ErrPathTooLong); tooLong != (n > PathBytesMax) {
			t.Errorf("%d bytes: got %v", n, err)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%d and %d bytes: got the same path %s", n, other, got)
		}
		seen[got] = n
	}
}

func TestCheckPath_NeverAbstract(t *testing.T) {
	got, err := checkPath("@x")
	if err != nil || !filepath.IsAbs(got) {
		t.Errorf("got %s, %v, want an absolute path", got, err)
	}
	if _, err := checkPath(""); !errors.Is(err, ErrUnsafe) {
		t.Errorf("empty: got %v, want ErrUnsafe", err)
	}
}

func TestBind_ModesWhateverTheUmask(t *testing.T) {
	for _, mask := range []int{0, 0o077, 0o777} {
		path := filepath.Join(socketDir(t), "s")
		old := syscall.Umask(mask)
		s, err := bind(t.Context(), path)
		syscall.Umask(old)
		if err != nil {
			t.Fatalf("umask %o: %v", mask, err)
		}
		fi, err := os.Lstat(path)
		if err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("umask %o: got %v, %v, want mode 0600", mask, fi.Mode(), err)
		}
		s.Close()
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("umask %o: after Close got %v, want no file", mask, err)
		}
	}
}

func TestBind_MakesFolder(t *testing.T) {
	dir := filepath.Join(socketDir(t), "sessiond")
	s, err := bind(t.Context(), filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v, want mode 0700", fi.Mode(), err)
	}
}

func TestBind_RefusesFolder(t *testing.T) {
	base := socketDir(t)
	for name, prepare := range map[string]func(dir string) error{
		"open to others": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755)) },
		"open to group":  func(dir string) error { return errors.Join(os.Mkdir(dir, 0o710), os.Chmod(dir, 0o710)) },
		"symbolic link":  func(dir string) error { return os.Symlink(base, dir) },
		"file":           func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"another user's": func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, os.Geteuid()+1, -1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(base, strings.ReplaceAll(name, " ", ""))
			if err := prepare(dir); err != nil {
				if errors.Is(err, os.ErrPermission) {
					t.Skip("needs root")
				}
				t.Fatal(err)
			}
			if _, err := bind(t.Context(), filepath.Join(dir, "s")); !errors.Is(err, ErrUnsafe) {
				t.Errorf("got %v, want ErrUnsafe", err)
			}
		})
	}
}

func TestBind_StaleAndLive(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	first, err := bind(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bind(t.Context(), path); !errors.Is(err, ErrInUse) {
		t.Errorf("beside a live one: got %v, want ErrInUse", err)
	}
	first.UnixListener.Close()                          // as a killed daemon leaves it
	if err := os.Link(path, path+".kept"); err != nil { // or the next socket might get the inode
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("the file of a dead socket: %v", err)
	}
	if _, err := Dial(t.Context(), path); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("dial a dead one: got %v, want ErrNoDaemon", err)
	}
	second, err := bind(t.Context(), path)
	if err != nil {
		t.Fatalf("over a dead one: %v", err)
	}
	first.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the first's Close removed the second's file: %v", err)
	}
	second.Close()
	if _, err := Dial(t.Context(), path); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("dial nothing: got %v, want ErrNoDaemon", err)
	}
}

func TestBind_NoSocketInTheWay(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := bind(t.Context(), path); !errors.Is(err, ErrUnsafe) {
		t.Errorf("got %v, want ErrUnsafe", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("the file: got %q, %v, want it untouched", b, err)
	}
}

func TestRemoveStale_BusyIsAlive(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	var full error
	for range 10 { // nobody accepts: the backlog fills
		var c net.Conn
		if c, full = dial(t.Context(), path); full != nil {
			break
		}
		defer c.Close()
	}
	if !errors.Is(full, ErrBusy) {
		t.Skipf("the backlog does not fill here: %v", full)
	}
	if err := removeStale(t.Context(), path); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
}

func TestDial_ContextFirst(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(ctx, filepath.Join(socketDir(t), "s")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestCheckPeer(t *testing.T) {
	for name, c := range map[string]struct {
		uid, own int
		allowed  []int
		ok       bool
	}{
		"own":              {1000, 1000, nil, true},
		"root":             {0, 1000, nil, true},
		"other":            {1001, 1000, nil, false},
		"allowed":          {1001, 1000, []int{1001}, true},
		"unmapped":         {65534, 1000, nil, false},
		"unmapped allowed": {65534, 1000, []int{65534}, false},
		"nobody's daemon":  {65534, 65534, nil, true},
	} {
		err := checkPeer(c.uid, c.own, c.allowed)
		if (err == nil) != c.ok || (err != nil && !errors.Is(err, ErrPeer)) {
			t.Errorf("%s: got %v, want ok %v", name, err, c.ok)
		}
	}
}
