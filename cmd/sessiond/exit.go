package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"sessiond/cmd/sessiond/internal/term"
	"sessiond/engine"
	"sessiond/engine/vfs"
	"sessiond/kv"
	"sessiond/wire"
	"sessiond/wire/sock"
)

// Exit codes, listed in the help text of the root command.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitUnfinished  = 3 // inspect FILE, inspect check: an unfinished tail only
	exitDamaged     = 4 // inspect FILE, inspect check: lines that are no whole object
	exitNewer       = 5 // inspect FILE, inspect check: a newer format than is known
	exitNotFound    = 6
	exitUnreachable = 7
	exitConflict    = 8
	exitInterrupted = 130
)

// exitError ends a command with a code of its own. Without an error there is
// nothing more to say: the output said it.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError is a command line that cannot be understood.
type usageError struct {
	cmd *cobra.Command
	err error
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usageErrorf(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{cmd, fmt.Errorf(format, args...)}
}

// usageArgs makes the errors of an argument check usage errors.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &usageError{cmd, err}
		}
		return nil
	}
}

// exitCode maps the error of a command to the exit code of the process.
func exitCode(err error) int {
	var (
		exit  *exitError
		usage *usageError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, sock.ErrNoDaemon):
		return exitUnreachable
	case errors.Is(err, engine.ErrLocked), errors.Is(err, sock.ErrInUse), errors.Is(err, vfs.ErrLocked), errors.Is(err, kv.ErrLocked),
		errors.Is(err, &wire.Error{Code: wire.CodeConflict}):
		return exitConflict
	case errors.Is(err, fs.ErrNotExist),
		errors.Is(err, &wire.Error{Code: wire.CodeUnknownSession}), errors.Is(err, &wire.Error{Code: wire.CodeSessionGone}):
		return exitNotFound
	}
	return exitFailure
}

// execute runs the command line and returns the exit code of the process.
func execute(ctx context.Context, root *cobra.Command) int {
	cmd, err := root.ExecuteContextC(ctx)
	var (
		exit  *exitError
		usage *usageError
	)
	switch {
	case err == nil, errors.As(err, &exit) && exit.err == nil:
	case errors.As(err, &usage):
		cmd.PrintErrln(term.Lines("sessiond: " + err.Error()))
		cmd.PrintErrf("Run '%s --help' for usage.\n", usage.cmd.CommandPath())
	default:
		cmd.PrintErrln(term.Lines("sessiond: " + err.Error()))
	}
	return exitCode(err)
}
