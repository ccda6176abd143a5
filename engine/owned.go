package engine

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"sessiond/engine/journal"
	"sessiond/engine/vfs"
	"sessiond/replay"
	"sessiond/replay/jsonl"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

// openJournal opens an owned session for appending: its tail is repaired, and
// file and folder are synced before anything of it is shown. Called with the
// token.
func (s *session) openJournal(ctx context.Context) error {
	j, rec, err := journal.Open(ctx, s.path, stamp.Checkpoint{}, journal.Options{
		FS: s.e.o.FS, TornDir: filepath.Join(s.e.o.StateDir, "torn"), Session: s.stem,
		Now: s.e.o.Now, Syncs: s.e.syncs, OnCommit: s.committed,
	})
	if err != nil {
		return err
	}
	if t := rec.Tail; t.Repair != journal.None {
		s.e.o.Logger.Warn("tail repaired", "session", s.key, "repair", string(t.Repair),
			"offset", t.Offset, "bytes", t.Bytes, "copy", t.Copy, "error", errText(t.CopyErr))
	}
	s.mu.Lock()
	s.journal, s.foreign, s.foreignSeen = j, 0, 0
	s.degraded = nil
	s.mu.Unlock()
	return nil
}

// committed runs in the journal's goroutine after a head was published and
// before its callers are answered.
func (s *session) committed(head *journal.Head, _ []byte) {
	s.mu.Lock()
	g := s.gen
	if g != nil {
		g.retain()
	}
	s.used = s.e.o.Now()
	s.mu.Unlock()
	if g == nil {
		return
	}
	defer g.release()
	writes, before := s.writes.Add(1), g.replay.Head()
	if err := g.replay.Extend(s.e.ctx, g.file, head.Offset); err != nil && s.e.ctx.Err() == nil {
		// Readers stay behind; the next commit or opening tries again.
		s.e.o.Logger.Error("appended records not read back", "session", s.key, "error", err)
		if g.replay.Lost() {
			s.kick() // which makes it anew
		}
		return
	}
	if g.replay.Head() != before {
		g.unserved.Store(true)
	}
	g.setKnown(replay.Known{Stamp: head.Stamp, Writes: writes, Proof: s.e.trust.Vouch(head.Stamp)})
	s.remember(g)
	s.wake()
}

// create makes an owned session. The whole file is there, synced, or it is
// not there at all.
func (e *Engine) create(ctx context.Context, c wire.Command) (wire.CreateResult, error) {
	id := c.SessionID
	if id == "" {
		id = newSessionID(e.o.Now())
	}
	if !validID(id) {
		return wire.CreateResult{}, wire.Errorf(wire.CodeBadArgument,
			"session id %q: want 1 to %d letters, digits, '.', '_' or '-', beginning with a letter or digit", clip(id), wire.SessionIDMax)
	}
	header, err := e.header(c, id)
	if err != nil {
		return wire.CreateResult{}, err
	}
	path := filepath.Join(e.o.SessionsDir, id+fileEnding)
	err = vfs.PublishFile(e.o.FS, path, header, 0o600)
	if errors.Is(err, fs.ErrNotExist) { // somebody removed the folder
		if err = e.makeFolders(); err == nil {
			err = vfs.PublishFile(e.o.FS, path, header, 0o600)
		}
	}
	existing := errors.Is(err, fs.ErrExist)
	if err != nil && !existing {
		return wire.CreateResult{}, toWire(err)
	}
	info, err := e.o.FS.Stat(path)
	if err != nil {
		return wire.CreateResult{}, toWire(err)
	}
	e.add(Root{OwnedRoot, e.o.SessionsDir}, id+fileEnding, path, info, nil)
	s, err := e.resolve(OwnedRoot + ":" + id + fileEnding)
	if err != nil {
		return wire.CreateResult{}, err
	}
	if err := s.lookNow(ctx); err != nil { // it may have been another file a moment ago
		return wire.CreateResult{}, err
	}
	g, _, err := s.useToAppend(ctx) // the journal syncs what it finds
	if err != nil {
		return wire.CreateResult{}, err
	}
	defer s.done(g)
	if existing && len(c.Header) > 0 {
		if err := sameHeader(g, header); err != nil {
			return wire.CreateResult{}, err
		}
	}
	return wire.CreateResult{Session: s.key, ID: id, Path: path, Existing: existing, Head: g.cursor(g.replay.Head())}, nil
}

// header makes the first bytes of a new session.
func (e *Engine) header(c wire.Command, id string) ([]byte, error) {
	switch c.Dialect {
	case "", "pi", "raw", "eventlog":
	default:
		return nil, wire.Errorf(wire.CodeBadArgument, "dialect %q: want pi, eventlog or raw", clip(c.Dialect))
	}
	if len(c.Header) > 0 {
		if err := checkEntry(c.Header); err != nil {
			return nil, wire.Errorf(wire.CodeBadArgument, "header: %v", err)
		}
		return append(bytes.Clone(c.Header), '\n'), nil
	}
	if c.Dialect == "raw" || c.Dialect == "eventlog" {
		return nil, nil // they begin with their first record
	}
	f, _ := replay.FamilyOf("pi")
	return f.Header(id, c.CWD, e.o.Now())
}

func sameHeader(g *generation, header []byte) error {
	have := make([]byte, len(header))
	if n, _ := g.file.ReadAt(have, 0); n < len(header) || !bytes.Equal(have, header) {
		return wire.Errorf(wire.CodeConflict, "the session exists with another header")
	}
	return nil
}

// newSessionID makes a version-7 UUID: sorted by time, unique by chance.
func newSessionID(now time.Time) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	ms := now.UnixMilli()
	for i := range 6 {
		b[i] = byte(ms >> (8 * (5 - i)))
	}
	b[6], b[8] = b[6]&0x0f|0x70, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// checkEntry refuses what would not be one record.
func checkEntry(entry []byte) error {
	if i := bytes.IndexByte(entry, '\n'); i >= 0 {
		return fmt.Errorf("a raw line feed at byte %d; one entry is one line", i)
	}
	scan := jsonl.NewScanner(jsonl.Keys{}).Scan(entry)
	switch {
	case scan.Kind == jsonl.Invalid:
		return fmt.Errorf("no JSON at byte %d", scan.ErrOffset)
	case scan.Kind != jsonl.Object:
		return fmt.Errorf("JSON, but %s instead of an object", scan.Kind)
	case scan.InvalidUTF8 >= 0:
		return fmt.Errorf("bytes that are no UTF-8 at %d", scan.InvalidUTF8)
	}
	return nil
}

func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
