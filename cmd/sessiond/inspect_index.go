package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"sessiond/kv"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

const inspectIndexLong = `inspect index shows the index of a daemon that is not running: what it holds of
each session, and whether that is true of the session's file. It writes nothing,
migrates nothing, and locks the index only while it copies a part of it.

What it says of a file:
  unchanged   the content up to the head is that of the index, and the file's
              stamp too, which alone would prove it
  same        the content up to the head is that of the index
  grown       so it is, and bytes were added since
  differs     it is not, or the file is too short
  missing     there is no file
  unreadable  the file cannot be read
  unverified  the index does not say enough, or --fast was given

The chunks of views are read from the spill folder and compared with their
hashes: verified are those that are what was packed, absent those that are in no
file, bad all others. A daemon packs absent and bad ones again.

--fast reads no file: it compares stamps (size, times, device, inode) only.

Exit codes: 1 the index is damaged or of a newer schema, 6 there is none, 8 a
daemon holds it (sessiond status asks the daemon).`

// indexOptions are the options of inspect index.
type indexOptions struct {
	*inspectOptions
	fast     bool
	spillDir string

	// checkChunks reads the chunks of a view in the spill files of a folder; nil:
	// they are not looked at.
	checkChunks func(ctx context.Context, spillDir string, v kv.View) (chunkCheck, error)
}

func newInspectIndexCommand(inspect *inspectOptions) *cobra.Command {
	o := &indexOptions{inspectOptions: inspect, checkChunks: verifyChunks}
	cmd := &cobra.Command{
		Use:               "index",
		Short:             "Show the index of a daemon that is not running, and compare it with the files",
		Long:              inspectIndexLong,
		Args:              usageArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return runInspectIndex(cmd, o) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.fast, "fast", false, "compare stamps only, read no session file")
	f.StringVar(&o.spillDir, "spill-dir", "", "folder of the spilled chunks (default spill in the state folder)")
	_ = cmd.MarkFlagDirname("spill-dir") // the flag exists
	return cmd
}

func runInspectIndex(cmd *cobra.Command, o *indexOptions) error {
	p, err := o.printer(cmd, formatText, formatJSON, formatJSONL)
	if err != nil {
		return err
	}
	dir, err := o.stateFolder()
	if err != nil {
		return err
	}
	spillDir := filepath.Join(dir, "spill")
	if o.spillDir != "" {
		if spillDir, err = filepath.Abs(o.spillDir); err != nil {
			return err
		}
	}
	r, err := kv.OpenReadOnly(cmd.Context(), filepath.Join(dir, "index.db"), kv.Options{})
	if err != nil {
		return explainIndex(err)
	}
	x := &indexInspection{
		indexOptions: o, index: r, out: &indexPrinter{printer: p}, spill: listSpill(spillDir),
		totals: indexTotals{Verdicts: map[verdict]int{}},
	}
	if err := x.run(cmd.Context()); err != nil {
		return explainIndex(errors.Join(err, p.Flush()))
	}
	return p.Flush()
}

// explainIndex says what to do where an index cannot be shown.
func explainIndex(err error) error {
	switch {
	case errors.Is(err, kv.ErrLocked), errors.Is(err, kv.ErrChanged):
		return &exitError{exitConflict, fmt.Errorf("%w; a daemon uses it: `sessiond status` tells how it is", err)}
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no index: %w", err)
	case errors.Is(err, kv.ErrNewerSchema):
		return fmt.Errorf("%w; a newer version of sessiond wrote it", err)
	case errors.Is(err, kv.ErrDamaged):
		return fmt.Errorf("%w; a daemon that starts sets it aside and begins a new one, sessions are not touched", err)
	}
	return err
}

// indexInspection compares an index with the files that it knows.
type indexInspection struct {
	*indexOptions
	index  *kv.Offline
	out    *indexPrinter
	spill  *spillFolder
	totals indexTotals
}

func (x *indexInspection) run(ctx context.Context) error {
	if err := x.out.begin(headerOf(x.index.Overview())); err != nil {
		return err
	}
	err := x.index.Entries(ctx, func(e kv.Entry) error {
		s, err := x.session(ctx, e)
		if err != nil {
			return err
		}
		return x.out.session(s)
	})
	if err != nil {
		return err
	}
	x.out.beginTombstones()
	err = x.index.Tombstones(ctx, func(t kv.TombstoneEntry) error {
		if x.totals.Tombstones++; t.Bad != nil {
			x.totals.BadValues++
		}
		return x.out.tombstone(tombstoneOf(t))
	})
	if err != nil {
		return err
	}
	return x.out.end(x.spill.report(), x.totals)
}

// session describes an entry and compares it with its file.
func (x *indexInspection) session(ctx context.Context, e kv.Entry) (indexSession, error) {
	s := sessionOf(e)
	file, err := verifyFile(ctx, e, x.fast)
	if err != nil {
		return s, err
	}
	s.File = file
	for _, v := range e.Views {
		view := viewOf(e, v)
		view.Missing = x.spill.name(v.Segments)
		if x.checkChunks != nil && !x.fast {
			check, err := x.chunks(ctx, e.Key, v.Name)
			if err != nil {
				return s, err
			}
			view.VerifiedChunks, view.AbsentChunks, view.BadChunks, view.ChunkError = &check.verified, &check.absent, &check.bad, check.detail
			if c := check.whole; c != nil {
				view.WholeAt = cursorText(generationOf(e), stamp.Point{Sequence: c.Sequence, Offset: c.Offset, Digest: c.Digest})
			}
			x.totals.VerifiedChunks += check.verified
			x.totals.BadChunks += check.bad
		}
		x.totals.Views++
		x.totals.Chunks += v.Chunks
		x.totals.ChunkBytes += v.Bytes
		x.totals.MissingSegments += len(view.Missing)
		s.Views = append(s.Views, view)
	}
	x.totals.Sessions++
	x.totals.Verdicts[file.Verdict]++
	x.totals.BadValues += len(e.Bad)
	return s, nil
}

// chunks checks the chunks of a view. A view that is gone by now has none.
func (x *indexInspection) chunks(ctx context.Context, key, name string) (chunkCheck, error) {
	v, ok, err := x.index.View(ctx, key, name)
	if err != nil || !ok {
		return chunkCheck{}, err
	}
	return x.checkChunks(ctx, x.spill.path, v)
}

// What inspect index tells; fields are only added.
type (
	indexHeader struct {
		SchemaVersion int         `json:"schemaVersion"` // of this object
		Path          string      `json:"path"`
		Bytes         int64       `json:"bytes"`
		Schema        int         `json:"schema"` // of the index
		Counts        indexCounts `json:"counts"`
	}
	indexCounts struct {
		Signatures  int `json:"signatures"`
		Listings    int `json:"listings"`
		Checkpoints int `json:"checkpoints"`
		Views       int `json:"views"`
		Tombstones  int `json:"tombstones"`
	}
	indexSession struct {
		Session     string      `json:"session"`
		ID          string      `json:"id"`
		Path        string      `json:"path"`
		Dialect     string      `json:"dialect"`
		Rules       string      `json:"rules"`
		Generation  string      `json:"generation"`
		Head        string      `json:"head"`
		Stamp       *indexStamp `json:"stamp"`
		Trusted     bool        `json:"trusted"`
		Bytes       *int64      `json:"bytes"`
		Messages    *int        `json:"messages"`
		Diagnostics *int        `json:"diagnostics"`
		Checkpoints int         `json:"checkpoints"`
		Views       []indexView `json:"views"`
		Bad         []indexBad  `json:"bad"`
		File        fileState   `json:"file"`
	}
	indexStamp struct {
		Size   int64     `json:"size"`
		MTime  time.Time `json:"mtime"`
		CTime  time.Time `json:"ctime"`
		Device uint64    `json:"device"`
		Inode  uint64    `json:"inode"`
	}
	indexView struct {
		View     string   `json:"view"`
		Rules    string   `json:"rules"`
		Target   int      `json:"target"`
		At       string   `json:"at"`
		Chunks   int      `json:"chunks"`
		Bytes    int64    `json:"bytes"`
		Segments []string `json:"segments"`
		Missing  []string `json:"missingSegments"`

		// Without --fast: full chunks that are what was packed, that are in no
		// file, and that are something else - there with what is kept beside them.
		VerifiedChunks *int   `json:"verifiedChunks,omitempty"`
		AbsentChunks   *int   `json:"absentChunks,omitempty"`
		BadChunks      *int   `json:"badChunks,omitempty"`
		ChunkError     string `json:"chunkError,omitempty"` // of the first bad one
		WholeAt        string `json:"wholeAt,omitempty"`    // cut of a snapshot that needs no packing
	}
	indexBad struct {
		Bucket string `json:"bucket"`
		Key    string `json:"key"`
		Error  string `json:"error"`
	}
	indexTombstone struct {
		Session string     `json:"session"`
		Removed *time.Time `json:"removed"`
		ID      string     `json:"id"`
		Head    string     `json:"head"`
		Bytes   *int64     `json:"bytes"`
		Error   string     `json:"error,omitempty"`
	}
	indexTotals struct {
		Sessions        int             `json:"sessions"`
		Verdicts        map[verdict]int `json:"verdicts"`
		Views           int             `json:"views"`
		Chunks          int             `json:"chunks"`
		ChunkBytes      int64           `json:"chunkBytes"`
		VerifiedChunks  int             `json:"verifiedChunks"`
		BadChunks       int             `json:"badChunks"`
		MissingSegments int             `json:"missingSegments"`
		Tombstones      int             `json:"tombstones"`
		BadValues       int             `json:"badValues"`
	}
)

// indexSchemaVersion is that of the JSON, not of the index.
const indexSchemaVersion = 1

func headerOf(o kv.Overview) indexHeader {
	return indexHeader{indexSchemaVersion, o.Path, o.Bytes, o.Schema, indexCounts{o.Signatures, o.Listings, o.Checkpoints, o.Views, o.Tombstones}}
}

func sessionOf(e kv.Entry) indexSession {
	s := indexSession{Session: e.Key, Checkpoints: len(e.Checkpoints), Views: []indexView{}, Bad: []indexBad{}}
	if l := e.Listing; l != nil {
		s.ID, s.Path, s.Messages, s.Diagnostics = l.ID, l.Path, l.MessageCount, l.DiagnosticsCount
	}
	if g := e.Signature; g != nil {
		s.Dialect, s.Rules, s.Trusted, s.Bytes = g.Dialect, g.Rules, g.Trusted, &g.Stamp.Size
		s.Generation, s.Head = g.Generation.String(), cursorText(g.Generation, g.Head)
		s.Stamp = &indexStamp{
			Size: g.Stamp.Size, MTime: time.Unix(0, g.Stamp.MTimeNano).UTC(), CTime: time.Unix(0, g.Stamp.CTimeNano).UTC(),
			Device: g.Stamp.Device, Inode: g.Stamp.Inode,
		}
	}
	for _, b := range e.Bad {
		s.Bad = append(s.Bad, indexBad{b.Bucket, b.Key, b.Err.Error()})
	}
	return s
}

func generationOf(e kv.Entry) (g wire.Generation) {
	if e.Signature != nil {
		g = e.Signature.Generation
	}
	return g
}

func viewOf(e kv.Entry, v kv.ViewEntry) indexView {
	out := indexView{
		View: v.Name, Rules: v.Rules, Target: v.Target, At: cursorText(generationOf(e), v.At), Chunks: v.Chunks, Bytes: v.Bytes, Segments: v.Segments,
	}
	if out.Segments == nil {
		out.Segments = []string{}
	}
	return out
}

func tombstoneOf(t kv.TombstoneEntry) indexTombstone {
	out := indexTombstone{Session: t.Key}
	if t.Bad != nil {
		out.Error = t.Bad.Error()
		return out
	}
	removed := t.Removed.UTC()
	out.Removed, out.ID, out.Head, out.Bytes = &removed, t.ID, cursorText(t.Generation, t.Head), &t.Bytes
	return out
}

func cursorText(g wire.Generation, p stamp.Point) string {
	return wire.Cursor{Generation: g, Sequence: wire.Sequence(p.Sequence), Offset: p.Offset, Digest: wire.Digest(p.Digest)}.String()
}
