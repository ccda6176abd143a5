// Package vfs is the file-system seam: OS is the real one; tests put faults
// behind the same interface (package vfstest).
//
// It owns no state. Everything sessiond creates has mode 0600 in folders of
// mode 0700, whatever the umask. Files are opened O_CLOEXEC; only regular
// files are opened. Sync means fdatasync for files and fsync for folders.
//
// # Whole files
//
// ReplaceFile and PublishFile write a whole file under a temporary name in
// the folder of the target, sync it, give it its name, and sync the folder.
// Temporary names start with a dot and end in ".tmp"; a crash may leave one
// behind, never a part of a file under a real name.
//
// # Concurrency
//
// An FS may be used by any number of goroutines. A File belongs to one, but
// for ReadAt, Datasync and Close.
//
// # Caveats
//
// Locks are of the open file, not of the process (OFD locks on Linux, flock
// elsewhere): they die with the descriptor and bind only those who ask.
// Outside Linux, Datasync is the platform's full sync.
package vfs
