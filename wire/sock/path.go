package sock

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strconv"
)

// socketName is the file name of a daemon's socket.
const socketName = "sessiond.sock"

// DefaultPath is where a daemon of the user listens unless told otherwise:
// $XDG_RUNTIME_DIR/sessiond/sessiond.sock, or the same below a folder of the
// user in the folder for temporary files. Client and daemon compute it from
// the same environment (os.Getenv).
func DefaultPath(env func(string) string, uid int) string {
	return filepath.Join(userFolder(env, uid), socketName)
}

// PathFor returns path where the kernel can take it, else FallbackPath.
func PathFor(env func(string) string, uid int, path string) string {
	if len(path) <= PathBytesMax {
		return path
	}
	return FallbackPath(env, uid, path)
}

// FallbackPath is a short private path that stands for a long one: daemons
// of different long paths get different ones, and a client finds it by the
// long path alone.
func FallbackPath(env func(string) string, uid int, path string) string {
	sum := sha256.Sum256([]byte(filepath.Clean(path)))
	return filepath.Join(userFolder(env, uid), hex.EncodeToString(sum[:8])+".sock")
}

// userFolder is a private folder whose paths are short: the first candidate
// in which the longest of the names above fits.
func userFolder(env func(string) string, uid int) string {
	const longestName = len("/0123456789abcdef.sock")
	if dir := env("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		if dir = filepath.Join(dir, "sessiond"); len(dir)+longestName <= PathBytesMax {
			return dir
		}
	}
	name := "sessiond-" + strconv.Itoa(uid)
	if dir := env("TMPDIR"); filepath.IsAbs(dir) {
		if dir = filepath.Join(dir, name); len(dir)+longestName <= PathBytesMax {
			return dir
		}
	}
	return filepath.Join("/tmp", name)
}

// checkPath returns the absolute form of path, or says why no socket can be
// there. An absolute path is never taken for an abstract socket.
func checkPath(path string) (string, error) {
	if path == "" {
		return "", fmt.Errorf("%w: it is empty", ErrUnsafe)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("sock: %s: %w", path, err)
	}
	if len(abs) > PathBytesMax {
		return "", fmt.Errorf("%w: %s has %d bytes, the limit is %d", ErrPathTooLong, abs, len(abs), PathBytesMax)
	}
	return abs, nil
}
