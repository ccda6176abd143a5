package client

import (
	"errors"
	"fmt"
	"io/fs"

	"sessiond/wire"
	"sessiond/wire/sock"
)

// Errors of connections.
var (
	ErrClosed      = errors.New("client: closed")
	ErrBroken      = errors.New("client: connection broken")
	ErrNotSessiond = errors.New("client: the other end does not speak the sessiond protocol")
)

// GoodbyeError is a server's last word on a connection.
type GoodbyeError struct{ Code, Message string }

// Error implements error.
func (e *GoodbyeError) Error() string {
	return fmt.Sprintf("client: the daemon ended the connection (%s): %s", e.Code, e.Message)
}

// CorruptStreamError says that what was received contradicts itself.
type CorruptStreamError struct {
	Place  Place // the last good one
	Reason string
}

// Error implements error.
func (e *CorruptStreamError) Error() string {
	return fmt.Sprintf("client: corrupt stream after %s: %s", e.Place, e.Reason)
}

// permanent reports whether doing the same again cannot help.
func permanent(err error) bool {
	var answer *wire.Error
	if errors.As(err, &answer) {
		return !answer.Retryable
	}
	var goodbye *GoodbyeError
	if errors.As(err, &goodbye) {
		return goodbye.Code == wire.GoodbyeFrameTooLarge || goodbye.Code == wire.GoodbyeProtocolError
	}
	for _, target := range []error{
		ErrClosed, ErrNotSessiond, wire.ErrFrameTooLarge,
		fs.ErrPermission, sock.ErrPeer, sock.ErrPathTooLong, sock.ErrUnsafe,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
