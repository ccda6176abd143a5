package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"sessiond/engine/vfs"
	"sessiond/wire/client"
)

const (
	placeEvery    = 100 * time.Millisecond
	placeBytesMax = 4 << 10
)

// placeFile remembers the place of an attachment in a file, which always
// holds one whole line. The file is replaced at most every placeEvery, by the
// caller or, when nothing more comes, by a timer.
type placeFile struct {
	path string

	mu      sync.Mutex
	place   string // to be written; "" when the file holds it
	written time.Time
	timer   *time.Timer // to write place, nil when none is needed
	closed  bool
	err     error // the first of writing
}

func newPlaceFile(path string) (*placeFile, error) {
	abs, err := filepath.Abs(path)
	return &placeFile{path: abs}, err
}

// load reads the place; otherwise is what counts where there is no file yet.
func (f *placeFile) load(otherwise client.Place) (client.Place, error) {
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return otherwise, nil
	}
	if err != nil {
		return client.Place{}, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, placeBytesMax))
	if err != nil {
		return client.Place{}, err
	}
	p, err := client.ParsePlace(string(text))
	if err != nil {
		return client.Place{}, fmt.Errorf("cursor file %s: %w; remove it to begin again", f.path, err)
	}
	return p, nil
}

// note takes the place after what was just put out.
func (f *placeFile) note(p client.Place) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.place = p.String()
	wait := placeEvery - time.Since(f.written)
	switch {
	case wait <= 0:
		f.write()
	case f.timer == nil:
		f.timer = time.AfterFunc(wait, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.timer = nil; !f.closed {
				f.write()
			}
		})
	}
}

// write replaces the file. Called with mu held.
func (f *placeFile) write() {
	if f.place == "" || f.err != nil {
		return
	}
	f.err = vfs.ReplaceFile(vfs.OS{}, f.path, []byte(f.place+"\n"), 0o600)
	f.place, f.written = "", time.Now()
}

// close writes what was noted last.
func (f *placeFile) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.timer.Stop()
	}
	f.closed = true
	f.write()
	if f.err != nil {
		return fmt.Errorf("cursor file: %w", f.err)
	}
	return nil
}
