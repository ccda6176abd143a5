package engine

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	"sessiond/engine/vfs"
	"sessiond/replay/stamp"
)

// fineTypes are the file systems whose change metadata can be fine-grained;
// whether it is, the probe finds out.
var fineTypes = []string{"ext4", "xfs", "btrfs", "tmpfs", "overlay"}

// Bounds of the probe: a change must move the stamp within so much time.
const (
	probeGrain = 20 * time.Millisecond
	probeTries = 10_000
)

// believe probes the change metadata of the state folder's device: a stamp on
// any other device proves nothing, for nothing is ever written there.
func (e *Engine) believe() error {
	kind, err := e.o.FS.Type(e.o.StateDir)
	if err != nil || !slices.Contains(fineTypes, kind) {
		return err
	}
	device, fine, err := probe(e.o.FS, filepath.Join(e.o.StateDir, ".probe"))
	if fine {
		e.trust.Believe(device)
	}
	return err
}

// probe writes a file until its stamp has moved twice, and reports whether it
// does so finely.
func probe(fsys vfs.FS, path string) (device uint64, fine bool, err error) {
	_ = fsys.Remove(path) // of a process that was killed
	f, err := fsys.Create(path, 0o600)
	if err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, f.Close(), fsys.Remove(path)) }()
	var seen []stamp.Stamp
	for range probeTries {
		if _, err := f.Write([]byte{'.'}); err != nil {
			return 0, false, err
		}
		info, err := f.Info()
		if err != nil {
			return 0, false, err
		}
		if n := len(seen); n == 0 || seen[n-1].CTimeNano != info.Stamp.CTimeNano {
			seen = append(seen, info.Stamp)
		}
		if len(seen) == 3 {
			break
		}
	}
	if len(seen) < 3 {
		return 0, false, nil
	}
	grain := time.Duration(seen[2].CTimeNano - seen[1].CTimeNano) // the first one began in mid-tick
	return seen[0].Device, grain > 0 && grain <= probeGrain, nil
}
