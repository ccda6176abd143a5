package engine

import (
	"io/fs"
	"math"
	"time"

	"sessiond/engine/vfs"
)

// coarse is a file system on another machine: its type is none of those whose
// stamps may be believed, and its times are multiples of a grain.
type coarse struct {
	vfs.FS
	grain time.Duration
}

// isCoarse gives files times in whole seconds.
func isCoarse(o *Options) { o.FS = coarse{vfs.OS{}, time.Second} }

// isTimeless gives files no times: their stamps tell sizes apart and no more.
func isTimeless(o *Options) { o.FS = coarse{vfs.OS{}, math.MaxInt64} }

func (coarse) Type(string) (string, error) { return "nfs", nil }

func (c coarse) Stat(path string) (vfs.Info, error) { return c.round(c.FS.Stat(path)) }

func (c coarse) Lstat(path string) (vfs.Info, error) { return c.round(c.FS.Lstat(path)) }

func (c coarse) OpenRead(path string) (vfs.File, error) { return c.file(c.FS.OpenRead(path)) }

func (c coarse) OpenAppend(path string) (vfs.File, error) { return c.file(c.FS.OpenAppend(path)) }

func (c coarse) Create(path string, mode fs.FileMode) (vfs.File, error) {
	return c.file(c.FS.Create(path, mode))
}

type coarseFile struct {
	vfs.File
	fs coarse
}

func (c coarse) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return coarseFile{f, c}, nil
}

func (f coarseFile) Info() (vfs.Info, error) { return f.fs.round(f.File.Info()) }

func (c coarse) round(info vfs.Info, err error) (vfs.Info, error) {
	info.Stamp.MTimeNano -= info.Stamp.MTimeNano % int64(c.grain)
	info.Stamp.CTimeNano -= info.Stamp.CTimeNano % int64(c.grain)
	return info, err
}
