package sock

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
)

// overflowUID is what the kernel shows for a user that has no number in this
// user namespace: it could be anyone.
const overflowUID = 65534

// peerUID asks the kernel for the user at the other end of c.
func peerUID(c net.Conn) (int, error) {
	raw, ok := c.(syscall.Conn)
	if !ok {
		return 0, fmt.Errorf("%w: %T has no credentials", ErrPeer, c)
	}
	rc, err := raw.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("sock: peer credentials: %w", err)
	}
	var uid int
	var sockErr error
	err = rc.Control(func(fd uintptr) { uid, sockErr = socketPeerUID(int(fd)) })
	if err := errors.Join(err, sockErr); err != nil {
		return 0, fmt.Errorf("sock: peer credentials: %w", err)
	}
	return uid, nil
}

// checkPeer refuses users other than own, root and those allowed.
func checkPeer(uid, own int, allowed []int) error {
	switch {
	case uid == own:
		return nil
	case uid == overflowUID:
		return fmt.Errorf("%w: its user is not mapped in this user namespace", ErrPeer)
	case uid == 0 || slices.Contains(allowed, uid):
		return nil
	}
	return fmt.Errorf("%w: uid %d, want %d", ErrPeer, uid, own)
}
