package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"sessiond/engine/vfs"
	"sessiond/replay/stamp"
	"sessiond/wire"
	"sessiond/wire/client"
)

// mirror is a copy of a session's file that grows as the session does. It is
// only appended to: what it holds must be what the session begins with, which
// the cursor of its whole lines proves and its unfinished last line is
// compared for.
type mirror struct {
	file  vfs.File
	whole stamp.Point // its whole lines, when it was opened
	rest  []byte      // what follows them: the start of a record, to be met again
	begun bool        // something was received
}

// openMirror opens or creates the file and locks it against another mirror.
func openMirror(path string) (*mirror, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	f, err := vfs.OS{}.OpenAppend(abs)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = vfs.OS{}.Create(abs, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("mirror: %w", err)
	}
	m := &mirror{file: f}
	if err = f.TryLock(); err == nil {
		err = m.read()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mirror %s: %w", path, err), f.Close())
	}
	return m, nil
}

// read takes the place from the content.
func (m *mirror) read() error {
	info, err := m.file.Info()
	if err != nil {
		return err
	}
	d := stamp.NewDigest()
	buf := make([]byte, 1<<20)
	for at := int64(0); at < info.Stamp.Size; {
		n, err := m.file.ReadAt(buf[:min(int64(len(buf)), info.Stamp.Size-at)], at)
		if n == 0 {
			return fmt.Errorf("reading at offset %d: %w", at, errors.Join(err, io.ErrUnexpectedEOF))
		}
		at += int64(n)
		p := buf[:n]
		if last := bytes.LastIndexByte(p, '\n') + 1; last > 0 {
			_, _ = d.Write(m.rest)
			_, _ = d.Write(p[:last]) // never fails
			m.whole.Sequence += uint64(bytes.Count(p[:last], []byte{'\n'}))
			m.whole.Offset = at - int64(n-last)
			m.rest, p = m.rest[:0], p[last:]
		}
		m.rest = append(m.rest, p...)
	}
	m.whole.Digest = d.Sum64()
	return nil
}

// place is where the attachment goes on.
func (m *mirror) place() client.Place {
	return client.Place{Cursor: wire.Cursor{
		Sequence: wire.Sequence(m.whole.Sequence), Offset: m.whole.Offset, Digest: wire.Digest(m.whole.Digest),
	}}
}

// item appends what is new.
func (m *mirror) item(item client.Item) error {
	switch f := item.(type) {
	case *wire.SnapshotBegin:
		if m.whole.Offset > 0 || m.begun {
			return m.conflict(reasonOf(f))
		}
	case *client.Records:
		return m.append(f.Body)
	}
	return nil
}

func (m *mirror) append(body []byte) error {
	m.begun = true
	n := min(len(m.rest), len(body))
	if !bytes.Equal(m.rest[:n], body[:n]) {
		return m.conflict("its last line is another")
	}
	m.rest, body = m.rest[n:], body[n:]
	if _, err := m.file.Write(body); err != nil {
		return fmt.Errorf("mirror: %w", err)
	}
	return nil
}

func (m *mirror) conflict(why string) error {
	return &exitError{exitConflict, fmt.Errorf("mirror %s holds what the session does not begin with (%s); it was left as it is", m.file.Name(), why)}
}

func (m *mirror) close() { _ = m.file.Close() } // every write was checked
