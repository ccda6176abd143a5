package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
)

const (
	// tailBytesMax is the largest tail that is held to see whether it is a
	// whole object. A larger one that looks like one is ended, not cut.
	tailBytesMax = 64 << 20
	// copyTriesMax bounds the search for a free name of a copy.
	copyTriesMax = 1000
	// copyNameBytesMax bounds the session's share of a copy's name.
	copyNameBytesMax = 100
)

// Repair is what was done about a tail without LF.
type Repair string

// The repairs.
const (
	None  Repair = ""      // the file ended in an LF, or was empty
	Ended Repair = "ended" // an LF was written behind it
	Cut   Repair = "cut"   // it was copied and cut off
)

// Tail is what Open found behind the last LF.
type Tail struct {
	Repair Repair
	Offset int64
	Bytes  int64
	// Copy is where a tail that was cut is kept.
	Copy string
	// CopyErr is why a torn tail was ended, not cut.
	CopyErr error
}

// repair makes the file end in an LF or at offset. The caller syncs; the copy
// of what is cut is synced before the cut.
func (j *Journal) repair(offset, size int64) (Tail, error) {
	t := Tail{Repair: Cut, Offset: offset, Bytes: size - offset}
	whole, err := wholeObject(j.file, offset, size)
	if err != nil {
		return t, err
	}
	if !whole {
		if t.Copy, t.CopyErr = j.keepTail(offset, size); t.CopyErr == nil {
			return t, j.cutTail(offset, size)
		}
	}
	t.Repair = Ended
	if _, err := j.file.Write(lf); err != nil {
		return t, errors.Join(err, t.CopyErr)
	}
	end, err := j.file.Position()
	if err == nil && end != size+1 {
		err = fmt.Errorf("another program writes: wrote an LF at %d, want %d", end-1, size)
	}
	return t, err
}

// cutTail cuts what was copied, and nothing that came behind it since.
func (j *Journal) cutTail(offset, size int64) error {
	info, err := j.file.Info()
	if err != nil {
		return err
	}
	if info.Stamp.Size != size {
		return fmt.Errorf("another program writes: %d bytes, want %d", info.Stamp.Size, size)
	}
	return j.file.Truncate(offset)
}

// wholeObject reports whether [offset, size) is one JSON object, a byte-order
// mark at the start of the file aside.
func wholeObject(src io.ReaderAt, offset, size int64) (bool, error) {
	tail := io.NewSectionReader(src, offset, size-offset)
	if tail.Size() > tailBytesMax {
		var ends [2]byte
		if _, err := tail.ReadAt(ends[:1], 0); err != nil {
			return false, err
		}
		if _, err := tail.ReadAt(ends[1:], tail.Size()-1); err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		return ends == [2]byte{'{', '}'}, nil
	}
	b := make([]byte, tail.Size())
	if _, err := io.ReadFull(tail, b); err != nil {
		return false, err
	}
	if offset == 0 {
		b = bytes.TrimPrefix(b, []byte("\ufeff"))
	}
	b = bytes.TrimLeft(b, " \t\r")
	return len(b) > 0 && b[0] == '{' && json.Valid(b), nil
}

// keepTail copies [offset, size) into a new file of TornDir, durably.
func (j *Journal) keepTail(offset, size int64) (path string, err error) {
	if j.o.TornDir == "" {
		return "", errors.New("journal: no folder for torn tails")
	}
	fsys := j.o.FS
	if err := fsys.MkdirAll(j.o.TornDir, 0o700); err != nil {
		return "", err
	}
	for n := range copyTriesMax {
		name := fmt.Sprintf("%s-%d-%d-%d", copyName(j.o.Session), offset, j.o.Now().UnixNano(), n)
		path = filepath.Join(j.o.TornDir, name)
		f, err := fsys.Create(path, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = io.Copy(f, io.NewSectionReader(j.file, offset, size-offset))
		if err == nil {
			err = f.Datasync()
		}
		err = errors.Join(err, f.Close())
		if err == nil {
			err = fsys.SyncDir(j.o.TornDir)
		}
		if err != nil {
			return "", errors.Join(err, fsys.Remove(path))
		}
		return path, nil
	}
	return "", fmt.Errorf("journal: %d names like %s are taken", copyTriesMax, path)
}

// copyName makes a session's name a safe part of a file name.
func copyName(session string) string {
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		case r == '.':
			return '.'
		}
		return '_'
	}, session)
	if strings.HasPrefix(safe, ".") {
		safe = "_" + safe[1:]
	}
	return safe[:min(len(safe), copyNameBytesMax)]
}
