package vfs

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// datasync is F_FULLFSYNC: fsync alone stops at the drive's cache there.
func datasync(f *os.File) error { return f.Sync() }

func allocate(*os.File, int64) error { return nil }

func tryLock(fd uintptr) error { return unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB) }

func ctimeNano(st *syscall.Stat_t) int64 { return st.Ctimespec.Nano() }

func typeName(st *unix.Statfs_t) string { return unix.ByteSliceToString(st.Fstypename[:]) }

func unnamed(string) (*os.File, error) { return nil, errors.ErrUnsupported }
