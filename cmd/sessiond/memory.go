package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"

	"sessiond/engine/vfs"
	"sessiond/replay/pages"
)

// What a replay holds has few pointers, so that a collection is cheap: collect
// early, and earlier still near the limit.
const (
	gcPercent         = 25
	memoryBytesWanted = 96 << 20 // of a daemon, beside a larger replay cache
)

// tuneMemory sets the collector for a process that reads whole sessions.
// GOGC and GOMEMLIMIT win. limit is in bytes; 0: none.
func tuneMemory(env func(string) string, limit int64) {
	if env("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if limit > 0 && env("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
}

const indexMemoryUsage = "memory for record indexes; beyond, they wait in a file without a name; 0: the default"

// newPages bounds the memory of record indexes outside a daemon. Where there
// is no room for the file it says so once, and goes on without a bound.
func newPages(bytes byteSize, stderr io.Writer) *pages.Pool {
	var once sync.Once
	say := func(err error) {
		once.Do(func() {
			fmt.Fprintf(stderr, "sessiond: no paging file, so that memory grows with the session: %v (set TMPDIR to a folder with room)\n", err)
		})
	}
	return pages.NewPool(pages.Options{Bytes: int64(bytes), Open: func() (pages.Store, error) {
		f, err := openScratch()
		if err != nil {
			say(err)
			return nil, err
		}
		return &saidStore{f, say}, nil
	}})
}

// saidStore is a paging file whose failure to be written is said.
type saidStore struct {
	vfs.Scratch
	say func(error)
}

func (s *saidStore) WriteAt(p []byte, off int64) (int, error) {
	n, err := s.Scratch.WriteAt(p, off)
	if err != nil {
		s.say(err)
	}
	return n, err
}

// openScratch makes a paging file where large temporary files belong: the
// folder for small ones is often one in memory.
func openScratch() (vfs.Scratch, error) {
	if dir := os.Getenv("TMPDIR"); dir != "" {
		return vfs.OS{}.Scratch(dir)
	}
	if f, err := (vfs.OS{}).Scratch("/var/tmp"); err == nil {
		return f, nil
	}
	return vfs.OS{}.Scratch(os.TempDir())
}
