package journal

import (
	"errors"
	"fmt"
)

var (
	// ErrGone: the path names another file than the open one, or none.
	ErrGone = errors.New("journal: file is gone")
	// ErrRewritten: the file is shorter than its durable head.
	ErrRewritten = errors.New("journal: file was cut by another program")
	// ErrLatched: bytes that failed could not be cut off yet; wraps the cause.
	ErrLatched = errors.New("journal: read-only after a failure")
	// ErrClosed: the journal was closed before the request was taken.
	ErrClosed = errors.New("journal: closed")
	// ErrLine: a line to append holds an LF.
	ErrLine = errors.New("journal: line holds a line feed")
)

// Outcome says what a failed append left in the file.
type Outcome string

// The outcomes of a failed append.
const (
	OutcomeNone    Outcome = "none"    // nothing of the request is in the file
	OutcomeUnknown Outcome = "unknown" // some of it may be
)

// AppendError is every error of Append that Prepare did not return.
type AppendError struct {
	Outcome Outcome
	Err     error
}

// Error implements error.
func (e *AppendError) Error() string {
	return fmt.Sprintf("journal: append failed, outcome %s: %v", e.Outcome, e.Err)
}

// Unwrap returns the cause.
func (e *AppendError) Unwrap() error { return e.Err }
