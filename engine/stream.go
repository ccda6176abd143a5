package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"sessiond/replay/dialect"
	"sessiond/replay/pages"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

// stream is one attachment: it pulls what its client has not seen from replay
// and file, a frame at a time, and holds a place, never a queue.
type stream struct {
	// Set at construction.
	e          *Engine
	s          *session
	attachment string
	view       wire.View
	raw        bool
	live       bool
	bounded    string // what the client accepts of a view over the limits
	bodyMax    int    // bytes of a raw body
	ctx        context.Context
	cancel     context.CancelFunc
	wake       atomic.Pointer[func()]
	once       sync.Once

	// Owned by the connection's write loop (and by attach before it starts).
	id       string // the session's, for frames
	rules    string
	g        *generation
	window   *dialect.Window
	snap     *snapshot // being sent, nil: events
	queue    []wire.Frame
	at       stamp.Point // end of the last record that the client has
	digest   *stamp.Digest
	have     int         // slots that it has, message views
	first    int         // of them, where that is known: those below it are absent
	split    int64       // raw: bytes of the record after at that it has
	seam     stamp.Point // head when the tail began
	seamed   bool        // session_live was sent
	reader   *recordReader
	pass     *pass
	complete bool   // at and have are the head's, as last looked
	state    string // last sent, as text
	tail     tailSeen
	removed  bool
	doubt    doubt
	failures int // of snapshots since the last that was whole
}

// doubt is an error that may come of a change of the file that is yet to be
// noticed.
type doubt struct {
	err  error
	look uint64 // of the session, that is to tell
}

// tailSeen is the provisional tail that the client was shown.
type tailSeen struct{ offset, bytes int64 }

var _ wire.Stream = (*stream)(nil)

func newStream(s *session, g *generation, r wire.Request) *stream {
	st := &stream{
		e: s.e, s: s, g: g, attachment: r.Attachment, view: r.View, raw: r.Encoding == wire.EncodingRaw,
		live: r.Live == nil || *r.Live, bodyMax: rawBodyBytes,
		bounded: r.Bounded,
	}
	if r.FrameBytes > 0 {
		st.bodyMax = min(st.bodyMax, r.FrameBytes)
	}
	st.ctx, st.cancel = context.WithCancel(s.e.ctx)
	return st
}

// Start implements wire.Stream.
func (st *stream) Start(wake func()) { st.wake.Store(&wake) }

func (st *stream) wakeUp() {
	if f := st.wake.Load(); f != nil {
		(*f)()
	}
}

// Close implements wire.Stream.
func (st *stream) Close() {
	st.once.Do(func() {
		st.cancel()
		st.leaveSnapshot()
		st.s.removeStream(st)
		st.s.done(st.g)
	})
}

// Next implements wire.Stream. A stream that waits holds no buffer.
func (st *stream) Next() (wire.Frame, bool, error) {
	defer st.borrowWindow()()
	f, ok, err := st.next()
	if !ok {
		st.reader = nil
	}
	return f, ok, err
}

// borrowWindow gives the stream a window for the time of a call.
func (st *stream) borrowWindow() (giveBack func()) {
	w := windows.Get().(*dialect.Window)
	w.Reset(st.g.content)
	st.window = w
	return func() {
		st.window = nil
		windows.Put(w)
	}
}

func (st *stream) next() (wire.Frame, bool, error) {
	if len(st.queue) > 0 {
		f := st.queue[0]
		st.queue = st.queue[1:]
		return f, true, nil
	}
	switch {
	case st.removed, st.ctx.Err() != nil:
		return wire.Frame{}, false, io.EOF
	case st.doubt.err != nil && (!st.s.hasLooked(st.doubt.look) || st.s.unsure()):
		return wire.Frame{}, false, nil // woken when it has
	}
	if err := st.turn(); err != nil {
		return wire.Frame{}, false, err
	}
	if err := st.doubt.err; err != nil {
		return st.failed(err) // the file is what it was
	}
	f, ok, err := st.produce()
	if err == nil || err == io.EOF { //nolint:errorlint // as produce gives it
		return f, ok, err
	}
	if st.ctx.Err() != nil {
		return wire.Frame{}, false, io.EOF
	}
	var lost *pages.LostError
	if errors.As(err, &lost) && !st.g.replay.Lost() { // of a snapshot that a former reading had begun
		if err := st.goOn(); err != nil {
			return wire.Frame{}, false, err
		}
		return st.next()
	}
	st.s.mu.Lock()
	st.s.doubted = true
	st.s.mu.Unlock()
	st.doubt = doubt{err, st.s.kick()}
	return wire.Frame{}, false, nil
}

// snapshotTries bounds how often a snapshot that failed is begun again before
// the client is left to come back by itself.
const snapshotTries = 3

// failed turns an error into what the client can go on from: a snapshot fails
// and is begun again. Anything else ends the connection, and the client
// resumes at its cursor.
func (st *stream) failed(err error) (wire.Frame, bool, error) {
	st.doubt = doubt{}
	st.e.o.Logger.Warn("attachment", "session", st.s.key, "view", string(st.view), "error", err)
	err = toWire(err)
	var w *wire.Error
	if st.failures++; st.snap == nil || st.failures > snapshotTries || !errors.As(err, &w) {
		return wire.Frame{}, false, fmt.Errorf("engine: session %s: %w", st.s.key, err)
	}
	begun := st.snap.begun
	f, err := st.snapshotFailed(w)
	if err == nil {
		err = st.startSnapshot(wire.PurposeResync, "", nil)
	}
	if err == nil && !begun { // the client was told of none
		return st.next()
	}
	return f, err == nil, err
}

// turn notices that the session has another generation or none.
func (st *stream) turn() error {
	st.s.mu.Lock()
	g, gone := st.s.gen, st.s.gone
	if g != nil && g != st.g {
		g.retain()
	}
	st.s.mu.Unlock()
	switch {
	case gone:
		return st.remove()
	case g == nil:
		return nil
	case g == st.g:
		if _, rules := g.replay.Dialect(); rules != st.rules && st.view != wire.ViewRecords {
			return st.replaceBy(wire.ReasonExpired, nil)
		}
		return nil
	}
	old := st.g
	st.g = g
	st.window.Reset(g.content)
	st.reader, st.doubt = nil, doubt{}
	defer old.release()
	if g.replay == old.replay { // the same history in another file
		if st.snap != nil && st.snap.pairs != nil {
			st.snap.pairs.reset(g.content)
		}
		return nil
	}
	if g.id == old.id {
		return st.goOn()
	}
	return st.replaceBy(g.reason, g)
}

// goOn goes on in a fresh replay of the same history: what was begun with the
// old one, which has lost a page of its index, is begun again.
func (st *stream) goOn() error {
	st.pass = nil
	if st.failures++; st.failures > snapshotTries { // it is lost again and again
		return wire.Errorf(wire.CodeIO, "session %s: its record index cannot be read", st.s.key)
	}
	if st.snap == nil || st.view == wire.ViewRecords {
		return nil
	}
	if err := st.giveUpSnapshot(); err != nil {
		return err
	}
	return st.startSnapshot(wire.PurposeResync, "", nil)
}

// giveUpSnapshot ends the snapshot that is being sent, if there is one, for
// another.
func (st *stream) giveUpSnapshot() error {
	if st.snap == nil {
		return nil
	}
	f, err := st.snapshotFailed(wire.Errorf(wire.CodeSuperseded, "a newer state of the session begins"))
	if err != nil {
		return err
	}
	if st.snap.begun {
		st.queue = append(st.queue, f)
	}
	st.leaveSnapshot()
	return nil
}

func (st *stream) replaceBy(reason string, from *generation) error {
	if err := st.giveUpSnapshot(); err != nil {
		return err
	}
	_, st.rules = st.g.replay.Dialect()
	return st.startSnapshot(wire.PurposeReplacement, reason, from)
}

func (st *stream) remove() error {
	f, err := line(wire.Removed{
		Type: wire.TypeRemoved, Attachment: st.attachment, ActiveSessionID: st.id, Bytes: st.g.replay.Head().Offset,
	})
	st.leaveSnapshot()
	st.removed = true
	st.queue = append(st.queue, f)
	return err
}

// produce makes the next frame.
func (st *stream) produce() (wire.Frame, bool, error) {
	if len(st.queue) > 0 {
		f := st.queue[0]
		st.queue = st.queue[1:]
		return f, true, nil
	}
	if st.snap != nil {
		if err := st.admit(); err != nil && !st.snap.begun { // one that began is whole
			return st.refuse(err)
		}
		return st.nextOfSnapshot()
	}
	if !st.seamed {
		there, err := st.atSeam()
		if err != nil {
			return wire.Frame{}, false, err
		}
		if there {
			return st.liveFrame()
		}
	}
	if st.seamed && !st.live {
		if !st.raw {
			if f, ok, err := st.provisional(); ok || err != nil {
				return f, ok, err
			}
		}
		return wire.Frame{}, false, io.EOF
	}
	f, ok, err := st.nextEvent()
	if ok || err != nil || st.raw {
		return f, ok, err
	}
	return st.provisional()
}

// atSeam reports whether the client has all that there was when the tail
// began.
func (st *stream) atSeam() (bool, error) {
	if st.pass != nil || st.at.Offset+st.split < st.seam.Offset {
		return false, nil
	}
	if st.view == wire.ViewRecords || st.at.Offset > st.seam.Offset {
		return true, nil
	}
	more, err := st.beginPass()
	return !more, err
}

func (st *stream) nextEvent() (wire.Frame, bool, error) {
	switch {
	case st.raw:
		return st.nextBody()
	case st.view == wire.ViewRecords:
		return st.nextRecord()
	}
	if err := st.admit(); err != nil {
		return st.refuse(err)
	}
	return st.nextDelta()
}

// tailFrom begins the events after a point.
func (st *stream) tailFrom(at stamp.Point, d *stamp.Digest, have int, seam stamp.Point) {
	st.leaveSnapshot()
	st.pass, st.reader = nil, nil
	st.at, st.digest, st.have, st.seam, st.seamed, st.split = at, d, have, seam, false, 0
	st.first = 0
	st.tail, st.complete = tailSeen{}, false
}

// liveFrame marks the seam.
func (st *stream) liveFrame() (wire.Frame, bool, error) {
	state, err := st.stateNow()
	if err != nil {
		return wire.Frame{}, false, err
	}
	st.seamed = true
	f, err := line(wire.Live{Type: wire.TypeLive, Attachment: st.attachment, Cursor: st.g.cursor(st.at), State: state})
	return f, err == nil, err
}

// stateNow returns the turn state and notes it as sent.
func (st *stream) stateNow() (*wire.State, error) {
	state, err := st.g.stateNow(st.window)
	if err != nil {
		return nil, err
	}
	st.state = state.text
	return state.State, nil
}

// stateIfChanged returns the turn state where it is another than the client
// was told.
func (st *stream) stateIfChanged() (*wire.State, error) {
	told := st.state
	state, err := st.stateNow()
	if err != nil || st.state == told {
		return nil, err
	}
	return state, nil
}

// line makes a frame of one JSON object.
func line(v any) (wire.Frame, error) {
	b, err := wire.AppendLine(nil, v)
	return wire.Frame{Head: b}, err
}

// open makes a frame of a JSON object that members given as bytes follow.
func open(v any, members ...[]byte) (wire.Frame, error) {
	b, err := wire.AppendLine(nil, v)
	if err != nil {
		return wire.Frame{}, err
	}
	b = append(b[:len(b)-2], ',') // the brace and LF
	f := wire.Frame{Head: b, Tail: []byte("}\n")}
	if len(members) == 1 {
		f.Body = members[0]
		return f, nil
	}
	for _, m := range members {
		f.Head = append(f.Head, m...)
	}
	return f, nil
}
