package vfs

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func datasync(f *os.File) error {
	return ignoringEINTR(func() error { return unix.Fdatasync(int(f.Fd())) })
}

// tryLock takes an OFD lock: unlike a POSIX lock it is not lost when another
// descriptor of this process closes the file.
func tryLock(fd uintptr) error {
	return unix.FcntlFlock(fd, unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart})
}

func ctimeNano(st *syscall.Stat_t) int64 { return st.Ctim.Nano() }
