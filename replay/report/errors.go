package report

import "errors"

var (
	// ErrChanged says that the file shrank or changed while it was read.
	ErrChanged = errors.New("report: the file changed while it was read")
	// ErrNoMessages says that no known format makes messages of the file.
	ErrNoMessages = errors.New("report: no known format, so there are no messages")
)
