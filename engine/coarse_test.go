package engine

import (
	"io/fs"
	"time"

	"sessiond/engine/vfs"
	"sessiond/replay/stamp"
)

// coarse is a file system on another machine: its type is none of those whose
// stamps may be believed, and its times are whole seconds.
type coarse struct{ vfs.FS }

func isCoarse(o *Options) { o.FS = coarse{vfs.OS{}} }

func (coarse) Type(string) (string, error) { return "nfs", nil }

func (c coarse) Stat(path string) (vfs.Info, error) { return roundInfo(c.FS.Stat(path)) }

func (c coarse) Lstat(path string) (vfs.Info, error) { return roundInfo(c.FS.Lstat(path)) }

func (c coarse) OpenRead(path string) (vfs.File, error) { return coarseOf(c.FS.OpenRead(path)) }

func (c coarse) OpenAppend(path string) (vfs.File, error) { return coarseOf(c.FS.OpenAppend(path)) }

func (c coarse) Create(path string, mode fs.FileMode) (vfs.File, error) {
	return coarseOf(c.FS.Create(path, mode))
}

type coarseFile struct{ vfs.File }

func coarseOf(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return coarseFile{f}, nil
}

func (f coarseFile) Info() (vfs.Info, error) { return roundInfo(f.File.Info()) }

func roundInfo(info vfs.Info, err error) (vfs.Info, error) {
	info.Stamp = roundStamp(info.Stamp)
	return info, err
}

func roundStamp(s stamp.Stamp) stamp.Stamp {
	s.MTimeNano -= s.MTimeNano % int64(time.Second)
	s.CTimeNano -= s.CTimeNano % int64(time.Second)
	return s
}
