package journal

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"sessiond/engine/vfs"
	"sessiond/replay/stamp"
)

const (
	// BatchBytesMax is the default of Options.BatchBytesMax.
	BatchBytesMax = 4 << 20
	// inboxMax bounds the requests that wait; their callers wait with them.
	inboxMax = 256
)

// Options configure a journal; the zero value is usable but keeps no copy of
// a torn tail.
type Options struct {
	FS vfs.FS // default vfs.OS
	// TornDir keeps the tails that Open cuts; empty: none is ever cut.
	TornDir string
	// Session begins the names of those copies; default: the file's name.
	Session string
	Now     func() time.Time // default time.Now
	Syncs   *Syncs           // default: no bound beyond this journal's one
	// BatchBytesMax ends a group: no further request is taken into a group
	// that has this many bytes.
	BatchBytesMax int
	// OnCommit is told of each head after Open's, in order, in the writer
	// goroutine, after it was published and before its callers are answered. batch is the
	// bytes from the head before to this one, valid during the call; nil says
	// that bytes of another program are among them, to be read from the file.
	OnCommit func(head *Head, batch []byte)
}

func (o Options) withDefaults(path string) Options {
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	if o.Session == "" {
		o.Session = filepath.Base(path)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Syncs == nil {
		o.Syncs = NewSyncs(1)
	}
	if o.BatchBytesMax <= 0 {
		o.BatchBytesMax = BatchBytesMax
	}
	if o.OnCommit == nil {
		o.OnCommit = func(*Head, []byte) {}
	}
	return o
}

// Head is the end of the last durable record. It is immutable.
type Head struct {
	stamp.Point
	// Stamp is the file's when this head was published. A Size beyond Offset
	// means that another program has appended already.
	Stamp stamp.Stamp

	digest *stamp.Digest // at Offset; never written to
}

// Digest returns the digest of all bytes before the head, to go on with.
func (h *Head) Digest() *stamp.Digest { return h.digest.Clone() }

// Checkpoint returns the head in the form that Open takes.
func (h *Head) Checkpoint() stamp.Checkpoint {
	return stamp.Checkpoint{Point: h.Point, State: h.digest.State()}
}

// Journal is one session file open for appending.
type Journal struct {
	// Set at construction.
	path    string
	o       Options
	id      stamp.Stamp // device and inode are those of the open file
	inbox   chan *request
	closing chan struct{}
	stopped chan struct{} // closed by run on its way out
	once    sync.Once

	// Written by run only.
	head          atomic.Pointer[Head]
	failure       atomic.Pointer[failure]
	interleavings atomic.Uint64
	committing    atomic.Bool

	// Owned by run.
	file     vfs.File // nil after a failed sync, and when lost
	end      int64    // size of the file as last seen
	suspect  *suspect // not nil: latched
	lost     error    // not nil: final
	buf      []byte   // of the last group, used again
	closeErr error    // read after stopped
}

type failure struct{ err error }

// Prepare decides what a request writes: head is where its first line will
// begin, behind everything that was taken before it. Lines come without LF and
// are written as given; none and no error means that what was asked for is
// there already, and is acknowledged at the head once that is durable. An
// error is returned by Append, likewise not before the head it was based on is
// durable. Prepare may be called twice, the second time at a later head, where
// another program's line took the first line of the first time with it; then
// OnCommit has told of what lies between. It never runs after Append returned.
type Prepare func(head stamp.Point) (lines [][]byte, err error)

// Result is what an Append did.
type Result struct {
	// Points are the ends of the lines written.
	Points []stamp.Point
	// After is the last of them; without lines, the durable head at the end of
	// the request.
	After stamp.Point
	// Interleaved says that another program wrote between Prepare's head and
	// the lines, so that they do not follow it directly.
	Interleaved bool
}

// request is one Append on its way.
type request struct {
	prepare Prepare
	taken   atomic.Bool // by the writer, or by a caller that gives up
	done    chan struct{}

	// Set by run before done is closed.
	lines  [][]byte
	result Result
	err    error
}

// Append enqueues a request and waits for its outcome. A context that ends
// while the request still waits for the writer withdraws it, outcome none;
// once the writer has it, Append waits for the true outcome, which takes one
// write and one sync.
func (j *Journal) Append(ctx context.Context, prepare Prepare) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, &AppendError{OutcomeNone, err}
	}
	r := &request{prepare: prepare, done: make(chan struct{})}
	select {
	case <-j.closing: // the send below would race with it
		return Result{}, &AppendError{OutcomeNone, ErrClosed}
	default:
	}
	select {
	case j.inbox <- r:
	case <-ctx.Done():
		return Result{}, &AppendError{OutcomeNone, ctx.Err()}
	case <-j.closing:
		return Result{}, &AppendError{OutcomeNone, ErrClosed}
	}
	var withdraw error
	select {
	case <-r.done:
		return r.result, r.err
	case <-ctx.Done():
		withdraw = ctx.Err()
	case <-j.stopped:
		withdraw = ErrClosed
	}
	if r.take() {
		return Result{}, &AppendError{OutcomeNone, withdraw}
	}
	<-r.done
	return r.result, r.err
}

// take decides who has the request: the writer, or the caller that gives up.
func (r *request) take() bool { return r.taken.CompareAndSwap(false, true) }

// Head returns the last durable record's end. It never blocks.
func (j *Journal) Head() *Head { return j.head.Load() }

// Failure returns why the journal refuses appends - an error that is
// ErrLatched, ErrGone or ErrRewritten - or nil.
func (j *Journal) Failure() error {
	if f := j.failure.Load(); f != nil {
		return f.err
	}
	return nil
}

// IsCommitting reports whether a group is on its way: the file may be longer
// than the head because of it. Head is as new as that, if asked afterwards.
func (j *Journal) IsCommitting() bool { return j.committing.Load() }

// Interleavings counts how often bytes of another program were found in the
// file since it was opened.
func (j *Journal) Interleavings() uint64 { return j.interleavings.Load() }

// Close refuses new requests, answers those that wait, and closes the file.
// It returns why the journal could not leave the file clean, if so. A context
// that ends makes it return early; what runs then ends when the disk answers.
func (j *Journal) Close(ctx context.Context) error {
	j.once.Do(func() { close(j.closing) })
	select {
	case <-j.stopped:
		return j.closeErr
	case <-ctx.Done():
		return fmt.Errorf("journal: closing %s: %w", j.path, ctx.Err())
	}
}

// run is the writer goroutine.
func (j *Journal) run() {
	defer close(j.stopped)
	for {
		select {
		case r := <-j.inbox:
			if r.take() {
				j.commit(r)
			}
		case <-j.closing:
			for r := j.next(); r != nil; r = j.next() {
				j.commit(r)
			}
			j.closeErr = j.shut()
			return
		}
	}
}

// next takes a request that waits, if one does.
func (j *Journal) next() *request {
	for {
		select {
		case r := <-j.inbox:
			if r.take() {
				return r
			}
		default:
			return nil
		}
	}
}

// shut tries a last time to cut what is suspect, and closes the file.
func (j *Journal) shut() error {
	var err error
	if j.lost == nil && j.suspect != nil {
		_, err = j.cut()
	}
	if j.file != nil {
		err = errors.Join(err, j.file.Close())
		j.file = nil
	}
	return err
}
