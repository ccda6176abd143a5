package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"sessiond/engine/vfs"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

// OwnedRoot is the name of the root that holds the owned sessions.
const OwnedRoot = "owned"

// Root is a folder whose session files are followed, under a label.
type Root struct {
	Name string
	Path string // absolute
}

// Options of an engine. Zero values are the defaults.
type Options struct {
	StateDir    string // required: lock, index, torn tails
	SessionsDir string // owned sessions; "": StateDir/sessions
	SpillDir    string // packed chunks that are not held in memory, of this engine alone; "": StateDir/spill
	Roots       []Root

	FS     vfs.FS
	Now    func() time.Time
	Clock  stamp.Clock // by which stamps are believed; nil: the machine's
	Logger *slog.Logger

	Version    string
	SocketPath string // for the text of the lock file

	ReplayCacheBytes int64 // replays of sessions that nobody is attached to; 0: none
	IndexMemoryBytes int64 // of all sessions' record indexes, whose other pages wait in a file; 0: 8 MiB
	IndexPageBytes   int   // of a page of these; 0: 32 KiB
	RecordBytesMax   int64 // longer records are shown by a marker; 0: 64 MiB
	MaxReplayRecords int64 // a message view made of more fails; 0: no limit
	MaxReplayBytes   int64 // the same in bytes
	ChunkBytes       int   // packing target; 0: 512 KiB
	ChunkMemoryBytes int64 // packed chunks held in memory for a view, which go to spill beyond; 0: 4 MiB
	ChunkTotalBytes  int64 // and for all views together; 0: 8 MiB
	SpillBytes       int64 // of all spilled chunks; 0: 1 GiB, negative: none is spilled
	OpenMax          int   // generations open at once; 0: 256
	IdleAfter        time.Duration
	Polling          bool // follow by looking, without events
	Timing           Timing
}

// DefaultReplayCacheBytes is what serve gives the replay cache.
const DefaultReplayCacheBytes = 32 << 20

func (o Options) withDefaults() Options {
	if o.SessionsDir == "" {
		o.SessionsDir = filepath.Join(o.StateDir, "sessions")
	}
	if o.SpillDir == "" {
		o.SpillDir = filepath.Join(o.StateDir, "spill")
	}
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.ChunkBytes == 0 {
		o.ChunkBytes = wire.ChunkBytes
	}
	if o.ChunkMemoryBytes == 0 {
		o.ChunkMemoryBytes = 4 << 20
	}
	if o.ChunkTotalBytes == 0 {
		o.ChunkTotalBytes = 8 << 20
	}
	if o.OpenMax == 0 {
		o.OpenMax = 256
	}
	if o.IdleAfter == 0 {
		o.IdleAfter = 30 * time.Second
	}
	o.Timing = o.Timing.withDefaults()
	return o
}

func (o Options) validate() error {
	if !filepath.IsAbs(o.StateDir) || !filepath.IsAbs(o.SessionsDir) {
		return fmt.Errorf("engine: state folder %q and sessions folder %q must be absolute", o.StateDir, o.SessionsDir)
	}
	if !filepath.IsAbs(o.SpillDir) {
		return fmt.Errorf("engine: spill folder %q must be absolute", o.SpillDir)
	}
	if o.ChunkBytes < 1<<10 || o.ChunkBytes > wire.InlineBytes {
		return fmt.Errorf("engine: chunk target of %d bytes, want 1024 to %d", o.ChunkBytes, wire.InlineBytes)
	}
	if o.MaxReplayRecords < 0 || o.MaxReplayBytes < 0 {
		return fmt.Errorf("engine: views of at most %d records and %d bytes; want no negative number", o.MaxReplayRecords, o.MaxReplayBytes)
	}
	seen := map[string]bool{OwnedRoot: true}
	for _, r := range o.Roots {
		switch {
		case !validRootName(r.Name):
			return fmt.Errorf("engine: root name %q: want letters, digits, '-', '_' or '.'", r.Name)
		case seen[r.Name]:
			return fmt.Errorf("engine: root name %q is taken; each root needs its own", r.Name)
		case !filepath.IsAbs(r.Path):
			return fmt.Errorf("engine: root %s: path %q must be absolute", r.Name, r.Path)
		}
		seen[r.Name] = true
	}
	return nil
}

const idChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

func validRootName(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(name, idChars) == ""
}

// validID reports whether an id may name an owned session: it becomes a file
// name.
func validID(id string) bool {
	return id != "" && len(id) <= wire.SessionIDMax && strings.Trim(id, idChars) == "" &&
		!strings.ContainsRune("._-", rune(id[0]))
}

var (
	// ErrLocked: another daemon holds the state folder.
	ErrLocked = errors.New("engine: state folder is in use")
	// ErrStateDir: the state folder is not this user's own.
	ErrStateDir = errors.New("engine: state folder is not safe")
)
