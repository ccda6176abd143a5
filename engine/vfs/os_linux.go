package vfs

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func datasync(f *os.File) error {
	return withFD(f, unix.Fdatasync)
}

func allocate(f *os.File, size int64) error {
	return withFD(f, func(fd int) error { return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, size) })
}

// withFD calls with the descriptor, which a Close meanwhile does not free:
// with Fd it might be another file's by then.
func withFD(f *os.File, call func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = c.Control(func(fd uintptr) { failed = ignoringEINTR(func() error { return call(int(fd)) }) })
	return errors.Join(failed, err)
}

// tryLock takes an OFD lock: unlike a POSIX lock it is not lost when another
// descriptor of this process closes the file.
func tryLock(fd uintptr) error {
	return unix.FcntlFlock(fd, unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart})
}

func ctimeNano(st *syscall.Stat_t) int64 { return st.Ctim.Nano() }

// typeNames are the file systems that are told apart; ext2 and ext3 have the
// number of ext4 and are served by its driver.
var typeNames = map[uint32]string{
	unix.EXT4_SUPER_MAGIC:      "ext4",
	unix.XFS_SUPER_MAGIC:       "xfs",
	unix.BTRFS_SUPER_MAGIC:     "btrfs",
	unix.TMPFS_MAGIC:           "tmpfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlay",
}

func typeName(st *unix.Statfs_t) string { return typeNames[uint32(st.Type)] }

// unnamed opens a file that has no name and gets none.
func unnamed(dir string) (*os.File, error) {
	return os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
}
