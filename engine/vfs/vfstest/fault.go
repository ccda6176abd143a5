package vfstest

import (
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"sessiond/engine/vfs"
)

// Op names an operation of vfs.FS or vfs.File.
type Op string

// The operations that rules and counts know.
const (
	OpenRead     Op = "open_read"
	OpenAppend   Op = "open_append"
	Create       Op = "create"
	Scratch      Op = "scratch"
	ReadScratch  Op = "read_scratch"
	WriteScratch Op = "write_scratch"
	Stat         Op = "stat"
	Lstat        Op = "lstat"
	Resolve      Op = "resolve"
	ReadDir      Op = "read_dir"
	Link         Op = "link"
	Rename       Op = "rename"
	Remove       Op = "remove"
	MkdirAll     Op = "mkdir_all"
	SyncDir      Op = "sync_dir"
	Type         Op = "type"
	Free         Op = "free"
	ReadAt       Op = "read_at"
	Write        Op = "write"
	Position     Op = "position"
	Datasync     Op = "datasync"
	Truncate     Op = "truncate"
	Allocate     Op = "allocate"
	Info         Op = "info"
	TryLock      Op = "try_lock"
	Close        Op = "close"
)

// Always makes a rule hold for good.
const Always = -1

// Rule says what becomes of some operations.
type Rule struct {
	Op    Op
	Path  string // matches a whole path or the end of one; empty: any
	Skip  int    // matching operations that pass first
	Times int    // operations it then holds for; 0: one, Always: all
	// Do runs before the operation.
	Do func()
	// Err fails the operation, which then does not happen; nil lets it happen.
	Err error
	// WriteBytes is how much of a failing Write still reaches the file.
	WriteBytes int
}

// FS is a file system with faults.
type FS struct {
	under vfs.FS

	mu     sync.Mutex
	rules  []*Rule      // guarded by mu
	counts map[call]int // guarded by mu
	space  *[2]int64    // free and total bytes, if they were set; guarded by mu
}

type call struct {
	op   Op
	path string
}

var _ vfs.FS = (*FS)(nil)

// New returns a file system that behaves as under until a rule says otherwise.
func New(under vfs.FS) *FS { return &FS{under: under, counts: map[call]int{}} }

// Add adds a rule; the first that matches an operation and is not used up
// decides it.
func (f *FS) Add(r Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Times == 0 {
		r.Times = 1
	}
	f.rules = append(f.rules, &r)
}

// Heal drops all rules.
func (f *FS) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// SetFree makes Free answer this.
func (f *FS) SetFree(free, total int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.space = &[2]int64{free, total}
}

// Count returns how often an operation was asked for on paths that match, as
// in a rule.
func (f *FS) Count(op Op, path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for c, k := range f.counts {
		if c.op == op && matches(c.path, path) {
			n += k
		}
	}
	return n
}

// before counts an operation, runs its hook, and returns its failure.
func (f *FS) before(op Op, path string) (writeBytes int, err error) {
	r := f.match(op, path)
	if r == nil {
		return 0, nil
	}
	if r.Do != nil {
		r.Do()
	}
	if r.Err == nil {
		return 0, nil
	}
	return r.WriteBytes, &fs.PathError{Op: string(op), Path: path, Err: r.Err}
}

func (f *FS) match(op Op, path string) *Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[call{op, path}]++
	for _, r := range f.rules {
		switch {
		case r.Op != op || !matches(path, r.Path) || r.Times == 0:
		case r.Skip > 0:
			r.Skip--
		default:
			if r.Times != Always {
				r.Times--
			}
			return r
		}
	}
	return nil
}

func matches(path, pattern string) bool {
	return pattern == "" || path == pattern || strings.HasSuffix(path, string(filepath.Separator)+pattern)
}

// OpenRead implements vfs.FS.
func (f *FS) OpenRead(path string) (vfs.File, error) {
	return f.open(OpenRead, path, func() (vfs.File, error) { return f.under.OpenRead(path) })
}

// OpenAppend implements vfs.FS.
func (f *FS) OpenAppend(path string) (vfs.File, error) {
	return f.open(OpenAppend, path, func() (vfs.File, error) { return f.under.OpenAppend(path) })
}

// Create implements vfs.FS.
func (f *FS) Create(path string, mode fs.FileMode) (vfs.File, error) {
	return f.open(Create, path, func() (vfs.File, error) { return f.under.Create(path, mode) })
}

func (f *FS) open(op Op, path string, do func() (vfs.File, error)) (vfs.File, error) {
	u, err := try(f, op, path, do)
	if err != nil {
		return nil, err
	}
	return &file{File: u, fs: f}, nil
}

// Scratch implements vfs.FS. Reads and writes of the file fail by the rules of
// its folder.
func (f *FS) Scratch(dir string) (vfs.Scratch, error) {
	return try(f, Scratch, dir, func() (vfs.Scratch, error) {
		under, err := f.under.Scratch(dir)
		return &scratch{under, f, dir}, err
	})
}

type scratch struct {
	vfs.Scratch
	fs  *FS
	dir string
}

func (s *scratch) ReadAt(p []byte, off int64) (int, error) {
	if _, err := s.fs.before(ReadScratch, s.dir); err != nil {
		return 0, err
	}
	return s.Scratch.ReadAt(p, off)
}

func (s *scratch) WriteAt(p []byte, off int64) (int, error) {
	if n, err := s.fs.before(WriteScratch, s.dir); err != nil {
		n, _ = s.Scratch.WriteAt(p[:min(n, len(p))], off)
		return n, err
	}
	return s.Scratch.WriteAt(p, off)
}

// Stat implements vfs.FS.
func (f *FS) Stat(path string) (vfs.Info, error) {
	return try(f, Stat, path, func() (vfs.Info, error) { return f.under.Stat(path) })
}

// Lstat implements vfs.FS.
func (f *FS) Lstat(path string) (vfs.Info, error) {
	return try(f, Lstat, path, func() (vfs.Info, error) { return f.under.Lstat(path) })
}

// Resolve implements vfs.FS.
func (f *FS) Resolve(path string) (string, error) {
	return try(f, Resolve, path, func() (string, error) { return f.under.Resolve(path) })
}

// ReadDir implements vfs.FS.
func (f *FS) ReadDir(path string) ([]fs.DirEntry, error) {
	return try(f, ReadDir, path, func() ([]fs.DirEntry, error) { return f.under.ReadDir(path) })
}

// Link implements vfs.FS; rules match the new path.
func (f *FS) Link(oldPath, newPath string) error {
	return f.do(Link, newPath, func() error { return f.under.Link(oldPath, newPath) })
}

// Rename implements vfs.FS; rules match the new path.
func (f *FS) Rename(oldPath, newPath string) error {
	return f.do(Rename, newPath, func() error { return f.under.Rename(oldPath, newPath) })
}

// Remove implements vfs.FS.
func (f *FS) Remove(path string) error {
	return f.do(Remove, path, func() error { return f.under.Remove(path) })
}

// MkdirAll implements vfs.FS.
func (f *FS) MkdirAll(path string, mode fs.FileMode) error {
	return f.do(MkdirAll, path, func() error { return f.under.MkdirAll(path, mode) })
}

// Type implements vfs.FS.
func (f *FS) Type(path string) (string, error) {
	return try(f, Type, path, func() (string, error) { return f.under.Type(path) })
}

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(path string) error {
	return f.do(SyncDir, path, func() error { return f.under.SyncDir(path) })
}

// Free implements vfs.FS.
func (f *FS) Free(path string) (free, total int64, err error) {
	if _, err := f.before(Free, path); err != nil {
		return 0, 0, err
	}
	f.mu.Lock()
	space := f.space
	f.mu.Unlock()
	if space != nil {
		return space[0], space[1], nil
	}
	return f.under.Free(path)
}

func (f *FS) do(op Op, path string, do func() error) error {
	if _, err := f.before(op, path); err != nil {
		return err
	}
	return do()
}

func try[T any](f *FS, op Op, path string, do func() (T, error)) (T, error) {
	if _, err := f.before(op, path); err != nil {
		var zero T
		return zero, err
	}
	return do()
}

// file is one open file with the faults of its file system.
type file struct {
	vfs.File
	fs *FS
}

var _ vfs.File = (*file)(nil)

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	return try(f.fs, ReadAt, f.Name(), func() (int, error) { return f.File.ReadAt(p, off) })
}

func (f *file) Write(p []byte) (int, error) {
	n, err := f.fs.before(Write, f.Name())
	if err == nil {
		return f.File.Write(p)
	}
	if n = min(n, len(p)); n > 0 {
		if n, werr := f.File.Write(p[:n]); werr != nil {
			return n, werr
		}
	}
	return n, err
}

func (f *file) Position() (int64, error) {
	return try(f.fs, Position, f.Name(), f.File.Position)
}

func (f *file) Datasync() error { return f.fs.do(Datasync, f.Name(), f.File.Datasync) }

func (f *file) Truncate(size int64) error {
	return f.fs.do(Truncate, f.Name(), func() error { return f.File.Truncate(size) })
}

func (f *file) Allocate(size int64) error {
	return f.fs.do(Allocate, f.Name(), func() error { return f.File.Allocate(size) })
}

func (f *file) Info() (vfs.Info, error) { return try(f.fs, Info, f.Name(), f.File.Info) }

func (f *file) TryLock() error { return f.fs.do(TryLock, f.Name(), f.File.TryLock) }

// Close always closes: a failing close has no other effect that can be relied
// on.
func (f *file) Close() error {
	_, err := f.fs.before(Close, f.Name())
	if cerr := f.File.Close(); err == nil {
		err = cerr
	}
	return err
}
