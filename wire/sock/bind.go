package sock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// probeTimeout bounds the question whether somebody listens already.
const probeTimeout = time.Second

// socket is a bound listener and what proves its file to be ours.
type socket struct {
	*net.UnixListener
	path string
	file fs.FileInfo
}

// bind makes a private listening socket at path.
func bind(ctx context.Context, path string) (*socket, error) {
	abs, err := checkPath(path)
	if err != nil {
		return nil, err
	}
	if err := ensurePrivateFolder(filepath.Dir(abs)); err != nil {
		return nil, err
	}
	if err := removeStale(ctx, abs); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: abs, Net: "unix"})
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w at %s", ErrInUse, abs)
	}
	if err != nil {
		return nil, fmt.Errorf("sock: %w", err)
	}
	l.SetUnlinkOnClose(false) // by name alone it could take a successor's
	s := &socket{UnixListener: l, path: abs}
	if err := os.Chmod(abs, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("sock: %w", err)
	}
	if s.file, err = os.Lstat(abs); err != nil {
		l.Close()
		return nil, fmt.Errorf("sock: %w", err)
	}
	return s, nil
}

// Close stops listening and removes the socket's file if it is still ours.
func (s *socket) Close() error {
	if now, err := os.Lstat(s.path); err == nil && sameSocket(now, s.file) {
		err = os.Remove(s.path)
		return errors.Join(err, s.UnixListener.Close())
	}
	return s.UnixListener.Close()
}

// sameSocket compares inodes, and times of creation because file systems use
// an inode's number again at once.
func sameSocket(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
}

// ensurePrivateFolder makes dir, if need be, and refuses one that anybody
// else could reach into.
func ensurePrivateFolder(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("sock: socket folder: %w", err)
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("sock: socket folder: %w", err)
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch own := os.Geteuid(); {
	case !fi.IsDir():
		return fmt.Errorf("%w: %s is no folder", ErrUnsafe, dir)
	case !ok || int(st.Uid) != own:
		return fmt.Errorf("%w: folder %s belongs to uid %d, want %d", ErrUnsafe, dir, st.Uid, own)
	case fi.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%w: folder %s has mode %04o, want 0700", ErrUnsafe, dir, fi.Mode().Perm())
	}
	return nil
}

// removeStale removes the socket of a dead daemon at path, where there is one.
func removeStale(ctx context.Context, path string) error {
	before, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sock: %w", err)
	}
	if before.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%w: %s exists and is no socket (%s)", ErrUnsafe, path, before.Mode())
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	c, err := dial(ctx, path)
	if err == nil {
		c.Close()
		return fmt.Errorf("%w at %s", ErrInUse, path)
	}
	if !errors.Is(err, ErrNoDaemon) {
		return fmt.Errorf("%w at %s: the probe says: %w", ErrInUse, path, err)
	}
	now, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("sock: %w", err)
	case !sameSocket(before, now):
		return fmt.Errorf("%w at %s: it appeared during the probe", ErrInUse, path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sock: stale socket: %w", err)
	}
	return nil
}
