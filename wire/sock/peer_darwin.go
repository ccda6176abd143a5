package sock

import "golang.org/x/sys/unix"

// socketPeerUID returns the user of the process at the other end.
func socketPeerUID(fd int) (int, error) {
	c, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(c.Uid), nil
}
