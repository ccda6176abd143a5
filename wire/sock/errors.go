package sock

import "errors"

// Errors of Listen and Dial.
var (
	ErrInUse       = errors.New("sock: a daemon is listening already")
	ErrPathTooLong = errors.New("sock: socket path too long")
	ErrUnsafe      = errors.New("sock: socket path is not private")
	ErrNoDaemon    = errors.New("sock: no daemon is listening")
	ErrBusy        = errors.New("sock: the daemon does not keep up with connections")
	ErrPeer        = errors.New("sock: peer is another user")
	ErrClosed      = errors.New("sock: server is shut down")
)
