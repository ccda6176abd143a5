package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"sessiond/chunks"
	"sessiond/engine"
	"sessiond/engine/vfs"
	"sessiond/kv"
	"sessiond/replay/stamp"
)

// verdict is what a comparison of an entry with its file came to.
type verdict string

// The verdicts; the help text of inspect index explains them.
const (
	fileUnchanged  verdict = "unchanged"
	fileSame       verdict = "same"
	fileGrown      verdict = "grown"
	fileDiffers    verdict = "differs"
	fileMissing    verdict = "missing"
	fileUnreadable verdict = "unreadable"
	fileUnverified verdict = "unverified"
)

// fileState is the file of an entry as it is now.
type fileState struct {
	Verdict verdict `json:"verdict"`
	Bytes   *int64  `json:"bytes"` // nil: not known
	Detail  string  `json:"detail,omitempty"`
}

// verifyFile compares an entry with its file; the error is the context's.
func verifyFile(ctx context.Context, e kv.Entry, fast bool) (fileState, error) {
	switch {
	case e.Signature == nil:
		return fileState{Verdict: fileUnverified, Detail: "the index has no signature"}, nil
	case e.Listing == nil || !filepath.IsAbs(e.Listing.Path):
		return fileState{Verdict: fileUnverified, Detail: "the index does not say where the file is"}, nil
	case fast:
		info, err := vfs.OS{}.Stat(e.Listing.Path)
		if err != nil {
			return fileError(err), nil
		}
		return verifyStamp(*e.Signature, info.Stamp), nil
	}
	f, err := vfs.OS{}.OpenRead(e.Listing.Path)
	if err != nil {
		return fileError(err), nil
	}
	defer f.Close()
	info, err := f.Info()
	if err != nil {
		return fileError(err), nil
	}
	return verifyContent(ctx, e, f, info.Stamp)
}

func fileError(err error) fileState {
	s := fileState{Verdict: fileUnreadable}
	if errors.Is(err, fs.ErrNotExist) {
		s.Verdict = fileMissing
		return s
	}
	cause := (*fs.PathError)(nil)
	switch { // the path is told beside it
	case errors.Is(err, vfs.ErrNotRegular):
		err = vfs.ErrNotRegular
	case errors.As(err, &cause):
		err = cause.Err
	}
	s.Detail = err.Error()
	return s
}

// verifyStamp tells what a stamp alone can.
func verifyStamp(sig kv.Signature, now stamp.Stamp) fileState {
	s := fileState{Verdict: fileUnverified, Bytes: &now.Size}
	switch {
	case now == sig.Stamp && sig.Trusted:
		s.Verdict = fileUnchanged
	case now.Size < sig.Head.Offset:
		s.Verdict, s.Detail = fileDiffers, tooShort(now.Size, sig.Head.Offset)
	case now == sig.Stamp:
		s.Detail = "the stamp is equal, but the file had changed within the second before it was read"
	default:
		s.Detail = "the stamp differs in " + stampDiff(sig.Stamp, now)
	}
	return s
}

func stampDiff(a, b stamp.Stamp) string {
	var names []string
	for _, f := range []struct {
		name string
		same bool
	}{
		{"size", a.Size == b.Size},
		{"mtime", a.MTimeNano == b.MTimeNano},
		{"ctime", a.CTimeNano == b.CTimeNano},
		{"device", a.Device == b.Device},
		{"inode", a.Inode == b.Inode},
	} {
		if !f.same {
			names = append(names, f.name)
		}
	}
	return strings.Join(names, ", ")
}

func tooShort(size, head int64) string {
	return fmt.Sprintf("the file has %d bytes, the head is at %d", size, head)
}

// verifyContent compares the content up to the head.
func verifyContent(ctx context.Context, e kv.Entry, src io.ReaderAt, now stamp.Stamp) (fileState, error) {
	sig := *e.Signature
	s := fileState{Bytes: &now.Size}
	detail, err := compareContent(ctx, src, e.Checkpoints, sig.Head, now.Size)
	switch {
	case ctx.Err() != nil:
		return s, context.Cause(ctx)
	case err != nil:
		return fileError(err), nil
	case detail != "":
		if now == sig.Stamp && sig.Trusted {
			detail += ", and the stamp does not show it"
		}
		s.Verdict, s.Detail = fileDiffers, detail
	case now == sig.Stamp && sig.Trusted:
		s.Verdict = fileUnchanged
	case now.Size > sig.Stamp.Size:
		s.Verdict, s.Detail = fileGrown, fmt.Sprintf("%d bytes were added", now.Size-sig.Stamp.Size)
	default:
		s.Verdict = fileSame
	}
	return s, nil
}

// pieceBytes is how much is read between two looks at the context.
const pieceBytes = 4 << 20

// compareContent says what of the head and the checkpoints before it is not
// true of src, and where; empty: nothing.
func compareContent(ctx context.Context, src io.ReaderAt, c stamp.Checkpoints, head stamp.Point, size int64) (string, error) {
	if size < head.Offset {
		return tooShort(size, head.Offset), nil
	}
	var bad, good int64 // the first checkpoint that is wrong; the last place before that is right
	at, d := stamp.Start, stamp.NewDigest()
	last := byte('\n')
	advance := func(to int64) error {
		for at.Offset < to {
			if err := ctx.Err(); err != nil {
				return err
			}
			next := min(at.Offset+pieceBytes, to)
			lfs, b, err := stamp.Advance(src, d, at.Offset, next)
			if err != nil {
				return err
			}
			at.Offset, at.Sequence, last = next, at.Sequence+lfs, b
		}
		return nil
	}
	for _, p := range c {
		if p.Offset > head.Offset {
			return fmt.Sprintf("the index has a checkpoint at byte %d, behind the head at %d", p.Offset, head.Offset), nil
		}
		if err := advance(p.Offset); err != nil {
			return cutShort(err, at.Offset)
		}
		switch right := d.Sum64() == p.Digest && at.Sequence == p.Sequence; {
		case right && bad == 0:
			good = p.Offset
		case !right && bad == 0:
			bad = p.Offset
		}
	}
	if err := advance(head.Offset); err != nil {
		return cutShort(err, at.Offset)
	}
	isHead := head.Offset == 0 || d.Sum64() == head.Digest
	switch {
	case !isHead:
		return fmt.Sprintf("the content differs between bytes %d and %d", good, cmp.Or(bad, head.Offset)), nil
	case at.Sequence != head.Sequence:
		return fmt.Sprintf("the head at byte %d has %d records before it, the index says %d", head.Offset, at.Sequence, head.Sequence), nil
	case last != '\n':
		return fmt.Sprintf("the head at byte %d is inside a record", head.Offset), nil
	case bad != 0:
		return fmt.Sprintf("the checkpoint at byte %d is wrong, the head is right", bad), nil
	}
	return "", nil
}

func cutShort(err error, at int64) (string, error) {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Sprintf("the file was cut behind byte %d while it was read", at), nil
	}
	return "", err
}

// spillFolder is the folder of the spill files.
type spillFolder struct {
	path  string
	files map[string]spillFile // by path below the folder
	err   error
}

type spillFile struct {
	bytes int64
	named bool // by a view of the index
}

// spillReport is what inspect index tells of the spill folder.
type spillReport struct {
	Path         string         `json:"path"`
	Files        int            `json:"files"`
	Bytes        int64          `json:"bytes"`
	Unnamed      []unnamedSpill `json:"unnamed"` // files that no view names
	UnnamedBytes int64          `json:"unnamedBytes"`
	Error        string         `json:"error,omitempty"`
}

type unnamedSpill struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// chunkCheck is what became of a view's chunks in the spill folder.
type chunkCheck struct {
	verified, absent, bad int
	detail                string      // of the first bad one
	whole                 *chunks.Cut // of a snapshot that is kept whole
}

// verifyChunks reads the chunks of a view, and compares them with their hashes.
func verifyChunks(_ context.Context, spillDir string, v kv.View) (chunkCheck, error) {
	saved, ok := engine.ViewChunks(v)
	if !ok {
		return chunkCheck{bad: v.Chunks, detail: "the index does not say where the chunks are"}, nil
	}
	r, err := chunks.Verify(vfs.OS{}, spillDir, saved)
	if err != nil {
		return chunkCheck{bad: v.Chunks, detail: err.Error()}, nil
	}
	out := chunkCheck{verified: r.Chunks - r.Absent, absent: r.Absent, bad: len(r.Damaged), whole: r.End}
	for _, d := range r.Damaged {
		if d.Index >= 0 { // else it is none of the full chunks
			out.verified--
		}
		if out.detail == "" {
			out.detail = d.Err.Error()
		}
	}
	return out, nil
}

// listSpill lists a folder that need not be there.
func listSpill(dir string) *spillFolder {
	s := &spillFolder{path: dir, files: map[string]spillFile{}}
	s.err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // no folder, or gone since
		}
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil // gone since
		}
		s.files[filepath.ToSlash(name)] = spillFile{bytes: info.Size()}
		return nil
	})
	return s
}

// name notes that a view names files, and returns those that are missing.
func (s *spillFolder) name(names []string) []string {
	missing := []string{}
	for _, name := range names {
		f, ok := s.files[name]
		if !ok {
			missing = append(missing, name)
			continue
		}
		f.named = true
		s.files[name] = f
	}
	return missing
}

func (s *spillFolder) report() spillReport {
	r := spillReport{Path: s.path, Files: len(s.files), Unnamed: []unnamedSpill{}}
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		f := s.files[name]
		r.Bytes += f.bytes
		if !f.named {
			r.Unnamed = append(r.Unnamed, unnamedSpill{name, f.bytes})
			r.UnnamedBytes += f.bytes
		}
	}
	if s.err != nil {
		r.Error = s.err.Error()
	}
	return r
}
