package sock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// Conn is a connection as Dial returns it; package client names it so without
// an import of net.
type Conn = net.Conn

// Dial connects to the daemon at path. The error is ErrNoDaemon where nothing
// listens, ErrBusy where connections queue up, fs.ErrPermission where the
// socket may not be opened, ErrPeer where another user listens there.
func Dial(ctx context.Context, path string) (Conn, error) {
	abs, err := checkPath(path)
	if err != nil {
		return nil, err
	}
	c, err := dial(ctx, abs)
	if err != nil {
		return nil, err
	}
	if own := os.Geteuid(); own != 0 { // root may talk to anyone's daemon
		uid, err := peerUID(c)
		if err == nil {
			err = checkPeer(uid, own, nil)
		}
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("sock: %s: %w", abs, err)
		}
	}
	return c, nil
}

// dial connects and sorts the errors, and asks nothing of the peer.
func dial(ctx context.Context, abs string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", abs)
	switch {
	case err == nil:
		return c, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("sock: connect to %s: %w", abs, context.Cause(ctx))
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w at %s: there is no socket", ErrNoDaemon, abs)
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w at %s: the socket is a dead daemon's", ErrNoDaemon, abs)
	case errors.Is(err, syscall.EAGAIN):
		return nil, fmt.Errorf("%w: %s", ErrBusy, abs)
	}
	return nil, fmt.Errorf("sock: %w", err) // names the path and, say, fs.ErrPermission
}
