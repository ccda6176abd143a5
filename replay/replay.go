package replay

import (
	"context"
	"io"
	"math"
	"sync"
	"sync/atomic"

	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
	"sessiond/replay/pages"
	"sessiond/replay/stamp"
)

// Options of a replay. The zero value serves a daemon.
type Options struct {
	RecordBytesMax int64 // longer records are never held; 0: 64 MiB
	BufferBytes    int   // of the reader; 0: 256 KiB
	// MaxRecords and MaxBytes bound what a message view may be made of; 0: no
	// bound. See Replay.Admit.
	MaxRecords, MaxBytes int64
	// Tail takes a provisional tail as the last entry: for a replay that is
	// built once and not extended.
	Tail bool
	// Observe, if set, is called for every record during the scan, once, also
	// where a part of the file is read a second time.
	Observe func(Record)
	// Diagnostics, if set, gets every line's findings in file order as they
	// are found, without a bound, each once.
	Diagnostics func(jsonl.Diagnostic)
	// Hole, if set, is asked about every complete record that holds NUL bytes,
	// by its offset: while it says so the record and all behind it wait, for
	// a file system may show a length before the bytes.
	Hole func(offset int64) (wait bool)
	// Counters, if set, are counted up.
	Counters *Counters
	// Pages bounds what indexes hold in memory; nil: no bound.
	Pages *pages.Pool
}

// Record is what Observe sees of a line.
type Record struct {
	Sequence uint64
	Line     jsonl.Line
	Class    Class
	Objects  []dialect.Object // valid during the call
	Family   dialect.Session  // nil in an unknown dialect
}

// Class tells what a line is.
type Class uint8

// The classes of lines.
const (
	ClassEntry     Class = iota // one object
	ClassBlank                  // white space only
	ClassMalformed              // no object that could be taken
	ClassSalvaged               // malformed, with objects taken from it
	ClassNonObject              // valid JSON, but no object
)

// Counts are the records of a replay by class; they add up to Records.
type Counts struct {
	Records, Entries, Blank, Malformed, Salvaged, NonObject int64

	Oversized int64 // of these
}

// TailState says what follows the last LF.
type TailState string

// The states of a tail.
const (
	TailClean        TailState = "clean"
	TailProvisional  TailState = "provisional"  // one whole object
	TailUnterminated TailState = "unterminated" // anything else
)

// Tail is what follows the last LF.
type Tail struct {
	State  TailState
	Offset int64
	Bytes  int64
	NULs   bool // it holds NUL bytes
	Hole   bool // complete records wait in it for NUL bytes to be filled
}

// DiagnosticsMax bounds the line findings that a replay holds.
const DiagnosticsMax = 10_000

// tailBytesMax bounds the tail that an online replay looks into: a longer one
// is unterminated, whatever it holds.
const tailBytesMax = 1 << 20

// Replay is what is known of a session file up to its head.
type Replay struct {
	opt Options

	grow     sync.Mutex // one Extend at a time; taken before mu
	private  bool       // nobody else has it yet; guarded by grow
	observed uint64     // records that Observe and Diagnostics were told of; guarded by grow

	marks atomic.Pointer[marks]

	mu sync.RWMutex
	reading
}

// marks are the points of a replay whose digests are known. They are read
// without a lock: what a source gives to a reader that holds the lock may
// depend on them.
type marks struct {
	head        stamp.Point
	checkpoints stamp.Checkpoints
}

// markLocked publishes the points as they are now.
func (r *Replay) markLocked() {
	r.marks.Store(&marks{r.head, r.checkpoints[:len(r.checkpoints):len(r.checkpoints)]})
}

// reading is what was read of a file, in one understanding of it. It is
// written under both locks of its Replay.
type reading struct {
	family      dialect.Family // nil: unknown
	asleep      *asleep        // not nil: of the records only this is known
	final       bool           // detection is over
	space       *pages.Space   // of the session
	session     dialect.Session
	floor       uint64 // readers at an earlier sequence hold nothing that stands
	head        stamp.Point
	digest      *stamp.Digest
	checkpoints stamp.Checkpoints
	counts      Counts
	parsed      int64
	diagnostics []jsonl.Diagnostic
	truncated   bool
	tail        Tail

	tailSum uint64      // of the end of a tail that was not looked into
	empty   bool        // what was looked at first was a file without bytes
	built   bool        // a scan has made it
	front   stamp.Point // the first record's end that is far enough to tell files apart
	near    []near      // the last places from which the digest may go on, ascending

	cutoff uint64 // sequence of the compaction that was counted last
}

// near is a record's end with the digest there.
type near struct {
	stamp.Point
	digest *stamp.Digest
}

// Build reads a whole file of the given size.
func Build(ctx context.Context, src io.ReaderAt, size int64, opt Options) (*Replay, error) {
	r := newReplay(opt)
	r.markLocked()
	r.private = true
	if err := r.Extend(ctx, src, size); err != nil {
		return nil, err
	}
	r.private = false
	return r, nil
}

func newReplay(opt Options) *Replay {
	if opt.Counters == nil {
		opt.Counters = new(Counters)
	}
	return &Replay{opt: opt, reading: opt.newReading(nil, 0)}
}

// newReading is what is known before the first byte.
func (o *Options) newReading(f dialect.Family, hint int) reading {
	r := reading{
		family: f, final: f != nil, head: stamp.Start, digest: stamp.NewDigest(), tail: Tail{State: TailClean},
		space: o.Pages.NewSpace(),
	}
	if f != nil {
		r.session = f.New(hint, r.space)
	}
	return r
}

// edit locks the reading for a change of what the dialect holds.
func (r *Replay) edit() (done func()) {
	r.mu.Lock()
	space := r.space
	space.Lock()
	return func() {
		space.Relax()
		space.Unlock()
		r.mu.Unlock()
	}
}

// Lost reports whether a page of the index could not be read again: the replay
// is of no use any more, and its methods return errors.
func (r *Replay) Lost() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.space.Lost()
}

// check returns the error of a replay that is of no use any more.
func (r *Replay) check() (err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	defer pages.Catch(&err)
	r.space.Check()
	return nil
}

// Head is the end of the last complete record read.
func (r *Replay) Head() stamp.Point { return r.marks.Load().head }

// HeadDigest returns the head with a digest that can go on from it.
func (r *Replay) HeadDigest() (stamp.Point, *stamp.Digest) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.head, r.digest.Clone()
}

// Checkpoints returns the digest's checkpoints so far.
func (r *Replay) Checkpoints() stamp.Checkpoints { return r.marks.Load().checkpoints }

// Dialect returns the family's name and its rules revision.
func (r *Replay) Dialect() (name, rules string) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	f := r.family
	if r.asleep != nil {
		f = r.asleep.family
	}
	if f == nil {
		return Unknown, Unknown + "/1"
	}
	return f.Name(), f.Rules()
}

// Counts returns the records by class.
func (r *Replay) Counts() Counts {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.counts
}

// Tail returns what follows the head.
func (r *Replay) Tail() Tail {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.tail
}

// What a replay and the elements of its lists cost, about.
const (
	replayBytes     = 4 << 10
	checkpointBytes = 160
	diagnosticBytes = 160
)

// Bytes is about the memory that the replay holds.
func (r *Replay) Bytes() int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	n := int64(len(r.checkpoints))*checkpointBytes + int64(len(r.near))*checkpointBytes +
		int64(len(r.diagnostics))*diagnosticBytes + replayBytes
	if r.session != nil {
		n += r.session.Bytes()
	}
	return n
}

// Info returns the listing fields; ok is false in an unknown dialect.
func (r *Replay) Info(w *dialect.Window) (in dialect.Info, ok bool, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	defer pages.Catch(&err)
	r.space.Check()
	if r.asleep != nil {
		return r.asleep.info, true, nil
	}
	if r.session == nil {
		return dialect.Info{}, false, nil
	}
	in, err = r.session.Info(w)
	return in, err == nil, err
}

// State returns the turn state at the head.
func (r *Replay) State(w *dialect.Window) (st dialect.State, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	defer pages.Catch(&err)
	r.space.Check()
	if r.asleep != nil {
		return r.asleep.turn, nil
	}
	if r.session == nil {
		return dialect.State{Turn: "unknown"}, nil
	}
	return r.session.State(w)
}

// Leaf returns the id of the entry at the head, "" if there is none.
func (r *Replay) Leaf(w *dialect.Window) (id string, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	defer pages.Catch(&err)
	r.space.Check()
	if r.asleep != nil {
		return r.asleep.leaf, nil
	}
	if r.session == nil {
		return "", nil
	}
	return r.session.Leaf(w)
}

// Held returns where objects with the entry's id stand; ok is false in
// dialects without ids.
func (r *Replay) Held(entry []byte) (id string, held []dialect.Place, ok bool, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	defer pages.Catch(&err)
	r.space.Check()
	if r.session == nil {
		return "", nil, false, nil
	}
	id, held, ok = r.session.Held(entry, math.MaxInt)
	return id, held, ok, nil
}

// Decided reports whether the dialect is final: a file that is still short
// may turn out to be of a known one.
func (r *Replay) Decided() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.final
}
