package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sessiond/engine/vfs"
)

// lockState makes the state folder safe and takes its lock, which dies with
// the process. The text in the lock file is information only. A daemon that
// was just killed may hold the lock for a moment yet.
func lockState(ctx context.Context, o Options) (vfs.File, error) {
	if err := privateDir(o.FS, o.StateDir); err != nil {
		return nil, err
	}
	path := filepath.Join(o.StateDir, "lock")
	f, err := o.FS.Create(path, 0o600)
	if errors.Is(err, fs.ErrExist) {
		f, err = o.FS.OpenAppend(path)
	}
	if err != nil {
		return nil, fmt.Errorf("engine: lock file %s: %w", path, err)
	}
	if err := lockSoon(ctx, f); err != nil {
		holder := lockText(f)
		if cerr := f.Close(); cerr != nil {
			err = errors.Join(err, cerr)
		}
		if errors.Is(err, vfs.ErrLocked) {
			return nil, fmt.Errorf("%w: %s is held by %s", ErrLocked, o.StateDir, holder)
		}
		return nil, fmt.Errorf("engine: locking %s: %w", path, err)
	}
	text := fmt.Sprintf("pid %d, started %s, socket %s\n", os.Getpid(), o.Now().UTC().Format(time.RFC3339), o.SocketPath)
	err = f.Truncate(0)
	if err == nil {
		_, err = f.Write([]byte(text))
	}
	if err != nil && !errors.Is(err, fs.ErrPermission) { // a full disk must not stop the daemon
		o.Logger.Warn("lock file text not written", "path", path, "error", err)
	}
	return f, nil
}

const (
	lockPatience = 2 * time.Second
	lockEvery    = 50 * time.Millisecond
)

// lockSoon takes a lock that is free or will be within lockPatience.
func lockSoon(ctx context.Context, f vfs.File) error {
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	again := time.NewTicker(lockEvery)
	defer again.Stop()
	for {
		err := f.TryLock()
		if !errors.Is(err, vfs.ErrLocked) {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return err
		}
	}
}

func lockText(f vfs.File) string {
	buf := make([]byte, 512)
	n, err := f.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) || n == 0 {
		return "another daemon"
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(buf[:n]), "?"))
}

// privateDir makes a folder of mode 0700, or checks that the one there is
// this user's alone.
func privateDir(fsys vfs.FS, path string) error {
	if err := fsys.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("engine: folder %s: %w", path, err)
	}
	info, err := fsys.Stat(path)
	if err != nil {
		return fmt.Errorf("engine: folder %s: %w", path, err)
	}
	if uid := os.Geteuid(); int(info.UID) != uid {
		return fmt.Errorf("%w: %s belongs to user %d, this is user %d; choose another with --state-dir", ErrStateDir, path, info.UID, uid)
	}
	if info.Mode.Perm()&0o077 != 0 {
		return fmt.Errorf("%w: %s has mode %04o; others must have no access: chmod 700 %s", ErrStateDir, path, info.Mode.Perm(), path)
	}
	return nil
}
