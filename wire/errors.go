package wire

import (
	"errors"
	"fmt"
)

// Errors of FrameReader.
var (
	ErrFrameTooLarge = errors.New("wire: frame too large")
	ErrNotAdmitted   = errors.New("wire: no memory granted for a large frame")
)

// Code is one of the protocol's closed set of error codes.
type Code string

// The error codes of protocol version 1.
const (
	CodeBadFrame              Code = "bad_frame"
	CodeUnsupportedVersion    Code = "unsupported_version"
	CodeUnknownCommand        Code = "unknown_command"
	CodeBadArgument           Code = "bad_argument"
	CodeUnknownSession        Code = "unknown_session"
	CodeAmbiguousSession      Code = "ambiguous_session"
	CodeSessionGone           Code = "session_gone"
	CodeSessionStarting       Code = "session_starting"
	CodeConflict              Code = "conflict"
	CodeReadOnly              Code = "read_only"
	CodeTooLarge              Code = "too_large"
	CodeBusy                  Code = "busy"
	CodeOverloaded            Code = "overloaded"
	CodeIO                    Code = "io_error"
	CodeNoSpace               Code = "no_space"
	CodeSourceChanged         Code = "source_changed"
	CodeUnstable              Code = "unstable"
	CodeHistoryBudgetExceeded Code = "history_budget_exceeded"
	CodeSuperseded            Code = "superseded"
	CodeShuttingDown          Code = "shutting_down"
	CodeInternal              Code = "internal"
)

// Goodbye codes say why a server ends a connection.
const (
	GoodbyeFrameTooLarge = "frame_too_large"
	GoodbyeShuttingDown  = "shutting_down"
	GoodbyeProtocolError = "protocol_error"
	GoodbyeIdle          = "idle"
	GoodbyeOverloaded    = "overloaded" // too many connections; come back later
)

// Outcomes of a failed append.
const (
	OutcomeNone    = "none"    // nothing of the batch is in the file
	OutcomeUnknown = "unknown" // some of it may be; only the same bytes may be sent again
)

// Error is an error as it travels: a code of the closed set, a message for a
// person, whether the same request may work later, and details by code.
type Error struct {
	Code      Code           `json:"code"`
	Message   string         `json:"message"`
	Retryable bool           `json:"retryable"`
	Detail    map[string]any `json:"detail,omitempty"`
}

// Error implements error.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Is makes errors.Is(err, &Error{Code: c}) compare codes.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Errorf makes an Error that is not retryable; see Code.Retryable.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Retryable: code.Retryable()}
}

// With returns e with one detail more.
func (e *Error) With(key string, value any) *Error {
	if e.Detail == nil {
		e.Detail = map[string]any{}
	}
	e.Detail[key] = value
	return e
}

// Retryable reports whether a request that met this code may succeed later
// without the client changing it.
func (c Code) Retryable() bool {
	switch c {
	case CodeSessionStarting, CodeBusy, CodeOverloaded, CodeIO, CodeNoSpace,
		CodeSourceChanged, CodeUnstable, CodeSuperseded, CodeShuttingDown:
		return true
	}
	return false
}

// CodeOf returns the code of err, or internal where it carries none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}
