package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"sessiond/engine/follow"
	"sessiond/engine/journal"
	"sessiond/engine/vfs"
	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

// generation is one incarnation of a file's history.
type generation struct {
	// Set at construction.
	id       wire.Generation
	file     vfs.File
	content  content // of file, as clients get it
	replay   *replay.Replay
	reason   string // why it took the place of another, "" for the first
	oldBytes int64  // of the one before

	refs atomic.Int32

	state atHead[turnState]
	leaf  atHead[*string] // as leafOf tells it

	ended    atomic.Bool // another history took its place, or none
	unserved atomic.Bool // records were read that nobody has asked for yet

	opening sync.Mutex // held while a log is opened; taken before mu

	mu    sync.Mutex
	under replay.Known // what the content was read under; guarded by mu
	logs  map[logKey]*viewLog
	moved *generation // has the logs now; guarded by mu
}

// newGeneration returns a generation with one use.
func (s *session) newGeneration(id wire.Generation, f vfs.File, r *replay.Replay, under replay.Known) *generation {
	g := &generation{id: id, file: f, replay: r, under: under, logs: map[logKey]*viewLog{}}
	g.content = content{g, s}
	g.refs.Store(1)
	return g
}

func (g *generation) retain() *generation {
	g.refs.Add(1)
	return g
}

// release gives up one use; the last closes the file.
func (g *generation) release() {
	if g.refs.Add(-1) == 0 {
		_ = g.file.Close() // read only
		g.content.s.e.blocks.forget(g)
		g.closeLogs()
	}
}

func (g *generation) known() replay.Known {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.under
}

func (g *generation) setKnown(k replay.Known) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.under = k
}

// stateNow returns the turn state at the head, not to be modified. It is read
// once for a head, however many clients are told of it: what it is read from
// may be large.
func (g *generation) stateNow(w *dialect.Window) (turnState, error) {
	return g.state.get(g.replay, func() (turnState, error) {
		s, err := stateOf(g.replay, w)
		if err != nil {
			return turnState{}, err
		}
		return turnState{s, stateText(s)}, nil
	})
}

// leafNow returns the id of the leaf at the head, as leafOf tells it. Its
// record may be large too.
func (g *generation) leafNow(w *dialect.Window) (*string, error) {
	return g.leaf.get(g.replay, func() (*string, error) {
		id, err := g.replay.Leaf(w)
		return leafOf(id), err
	})
}

// atHead is something that is read once for a head, one at a time.
type atHead[T any] struct {
	mu    sync.Mutex  // held while it is read
	value T           // guarded by mu
	head  stamp.Point // of value; zero, which is no head: none yet; guarded by mu
}

// get returns what read gives at the replay's head.
func (a *atHead[T]) get(r *replay.Replay, read func() (T, error)) (T, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	head := r.Head()
	if a.head == head {
		return a.value, nil
	}
	value, err := read()
	if err == nil && r.Head() == head {
		a.value, a.head = value, head
	}
	return value, err
}

func stateText(s *wire.State) string {
	return fmt.Sprintf("%s %q %q %q %s", s.Turn, s.OpenCalls, s.PendingRequests, s.Queued, s.Settings)
}

// turnState is a turn state and a text that is equal where the state is.
type turnState struct {
	*wire.State
	text string
}

// cursor turns a point into a cursor of this generation.
func (g *generation) cursor(p stamp.Point) wire.Cursor {
	return wire.Cursor{
		Generation: g.id, Sequence: wire.Sequence(p.Sequence), Offset: p.Offset, Digest: wire.Digest(p.Digest),
	}
}

func pointOf(c wire.Cursor) stamp.Point {
	if c.Offset == 0 { // the start of every file, whatever digest it was given
		return stamp.Start
	}
	return stamp.Point{Sequence: uint64(c.Sequence), Offset: c.Offset, Digest: uint64(c.Digest)}
}

// openTries bounds how often a file that changes while it is read is read
// again.
const openTries = 3

// openGeneration opens and replays the file as it is now. Called with the
// token.
func (s *session) openGeneration(ctx context.Context) (*generation, error) {
	s.e.behind.flushLast(ctx, s.key)
	var last error
	for range openTries {
		g, err := s.tryOpen(ctx)
		if err == nil || !errors.Is(err, errChanged) {
			return g, err
		}
		last = err
	}
	return nil, wire.Errorf(wire.CodeUnstable, "session %s changes while it is read: %v", s.key, last)
}

var errChanged = errors.New("engine: file changed while it was read")

// openRead opens the file, unless a link has led out of the root.
func (s *session) openRead() (vfs.File, error) {
	r, _, _ := s.e.rootOf(s.path)
	real, err := s.e.o.FS.Resolve(s.path)
	if err != nil {
		return nil, err
	}
	if !isBelow(real, s.e.resolveRoot(r.Path)) {
		return nil, fmt.Errorf("%w: %s", follow.ErrOutside, real)
	}
	return s.e.o.FS.OpenRead(s.path)
}

func (s *session) tryOpen(ctx context.Context) (g *generation, err error) {
	f, err := s.openRead()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = f.Close() // read only; the error that counts is there
		}
	}()
	info, err := f.Info()
	if err != nil {
		return nil, err
	}
	s.e.setInfo(s, info)
	src := s.source(f, info.Stamp)
	held, err := s.e.cache.Load(ctx, s.key, src, func(ctx context.Context) (*replay.Replay, error) {
		if r := s.restored(ctx, src); r != nil {
			return r, nil
		}
		return replay.Build(ctx, f, src.Size, s.replayOptions())
	})
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: %w", errChanged, err)
	}
	if err != nil {
		return nil, err
	}
	after, err := f.Info()
	if err != nil {
		return nil, err
	}
	if now := after.Stamp; now != info.Stamp && now.Size <= src.Size && s.journalOf() == nil {
		return nil, fmt.Errorf("%w: %s, then %s", errChanged, info.Stamp, now)
	}
	g = s.newGeneration(s.e.generationOf(ctx, s.key, held.Replay, f), f, held.Replay, held.Known)
	g.unserved.Store(!held.Hit)
	return g, nil
}

func (s *session) journalOf() *journal.Journal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.journal
}

// source is the session's file as a replay reads it.
func (s *session) source(f vfs.File, st stamp.Stamp) replay.Source {
	return replay.Source{ReaderAt: f, Size: s.readable(st.Size), Stamp: st, Writes: s.writes.Load()}
}

// readable is how far readers may look: of a file with a journal up to its
// durable head, of another to its end.
func (s *session) readable(size int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.journal != nil {
		return s.journal.Head().Offset
	}
	return size
}

func (e *Engine) replayOptions() replay.Options {
	return replay.Options{
		RecordBytesMax: e.o.RecordBytesMax, Counters: e.counters, Pages: e.pages, MaxRecords: e.o.MaxReplayRecords, MaxBytes: e.o.MaxReplayBytes,
	}
}

// replayOptions are those of a replay that goes on with the file.
func (s *session) replayOptions() replay.Options {
	o := s.e.replayOptions()
	if !s.owned {
		o.Hole = s.waitsForHole
	}
	return o
}
