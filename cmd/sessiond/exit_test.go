package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"sessiond/engine/vfs"
	"sessiond/kv"
	"sessiond/wire"
	"sessiond/wire/sock"
)

func TestExitCode(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want int
	}{
		{"none", nil, 0},
		{"any", errors.New("x"), 1},
		{"usage", usageErrorf(newRootCommand(), "x: %w", fs.ErrNotExist), 2},
		{"verdict", &exitError{code: exitDamaged}, 4},
		{"no file", &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}, 6},
		{"no session", wire.Errorf(wire.CodeUnknownSession, "x"), 6},
		{"no daemon", sock.ErrNoDaemon, 7},
		{"second daemon", sock.ErrInUse, 8},
		{"file locked", vfs.ErrLocked, 8},
		{"index locked", kv.ErrLocked, 8},
		{"conflict", wire.Errorf(wire.CodeConflict, "x"), 8},
		{"interrupted", context.Canceled, 130},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.err
			if err != nil {
				err = fmt.Errorf("wrapped: %w", err)
			}
			if got := exitCode(err); got != tt.want {
				t.Errorf("exitCode(%v): got %d, want %d", err, got, tt.want)
			}
		})
	}
}
