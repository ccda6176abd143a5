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

func allocate(f *os.File, size int64) error {
	return ignoringEINTR(func() error { return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size) })
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
