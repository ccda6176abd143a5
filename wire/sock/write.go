package sock

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"sessiond/wire"
)

// A batch is what one round of the write loop puts out together.
const (
	batchFramesMax = 64
	batchBytesMax  = 256 << 10 // no frame is added after this many bytes
)

var pingLine = []byte(`{"type":"ping"}` + "\n")

// attachment is a stream and its place in the write loop.
type attachment struct {
	id     string
	stream wire.Stream
	conn   *conn
	ready  atomic.Bool // Next may have a frame

	started bool // owned by the write loop
}

func (a *attachment) wake() {
	a.ready.Store(true)
	a.conn.wake()
}

func (a *attachment) next() (wire.Frame, bool, error) {
	if !a.started {
		a.started = true
		a.stream.Start(a.wake)
	}
	return a.stream.Next()
}

func (a *attachment) close() {
	a.stream.Close()
	a.conn.countAttachments(-1)
}

// writer is the state of a write loop.
type writer struct {
	c    *conn
	atts []*attachment
	turn int // index of the attachment whose turn it is

	// the batch
	bufs     [][]byte
	bytes    int
	releases []func()
	answers  int
	last     bool

	// The window of the slow-client rule: while data waited without a break,
	// how long writes took and how much the peer accepted.
	blocked  time.Duration
	accepted int
	piece    net.Buffers // scratch of flush
}

var errSlowClient = errors.New("sock: slow client")

// writeLoop writes what there is until the connection ends, and closes all
// attachments.
func (c *conn) writeLoop() {
	w := &writer{c: c}
	defer w.end()
	ping := time.NewTimer(c.srv.opt.PingInterval)
	defer ping.Stop()
	for !w.last {
		streamErr := w.guard("stream", w.collect)
		if streamErr != nil {
			c.srv.opt.Logger.Warn("attachment failed", "conn", c.id, "error", streamErr)
		}
		if len(w.bufs) == 0 && !w.last {
			if streamErr != nil {
				return
			}
			w.blocked, w.accepted = 0, 0 // nothing waits for the peer
			select {
			case <-c.wakeup:
				continue
			case <-c.ctx.Done():
				return
			case <-ping.C:
				w.add(pingLine)
			}
		}
		if err := w.flush(); err != nil {
			c.writeFailed(err)
			return
		}
		if streamErr != nil {
			return
		}
		ping.Reset(c.srv.opt.PingInterval)
	}
}

func (c *conn) writeFailed(err error) {
	if errors.Is(err, errSlowClient) {
		c.srv.stats.slowClients.Add(1)
		c.srv.opt.Logger.Warn("slow client closed", "conn", c.id, "error", err)
	}
}

// end closes what the connection retains and breaks it, which also ends the
// read loop if the write loop was first.
func (w *writer) end() {
	c := w.c
	w.done()
	c.mu.Lock()
	c.gone = true
	rest := c.queue
	c.queue = nil
	c.mu.Unlock()
	for _, e := range rest {
		if e.attach != nil {
			e.attach.close()
		}
	}
	for _, a := range w.atts {
		a.close()
	}
	c.cut()
}

// guard calls f and makes an error of its panic.
func (w *writer) guard(where string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			w.c.srv.panicked(where, p)
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

// collect fills the batch: all answers, then frames in turn. The error is a
// stream's and ends the connection after the batch.
func (w *writer) collect() error {
	c := w.c
	c.mu.Lock()
	queue := c.queue
	c.queue = nil
	if c.ending {
		w.last = true
	}
	goodbye := c.goodbye
	c.mu.Unlock()

	for _, e := range queue {
		w.answers++
		if e.line == nil {
			w.add(w.detach(e))
			continue
		}
		w.add(e.line)
		if e.attach != nil {
			e.attach.ready.Store(true)
			w.atts = append(w.atts, e.attach)
		}
	}
	if w.last {
		if goodbye != nil {
			w.add(goodbye)
		}
		return nil
	}
	return w.collectFrames()
}

func (w *writer) collectFrames() error {
	for n := 0; n < batchFramesMax && w.bytes < batchBytesMax; {
		a := w.nextReady()
		if a == nil {
			return nil
		}
		a.ready.Store(false) // before Next, so that no wake is lost
		f, ok, err := a.next()
		switch {
		case errors.Is(err, io.EOF):
			w.remove(a)
		case err != nil:
			return fmt.Errorf("attachment %s: %w", a.id, err)
		case ok:
			a.ready.Store(true)
			w.addFrame(f)
			n++
		}
	}
	return nil
}

// nextReady returns the next attachment in turn that may have a frame.
func (w *writer) nextReady() *attachment {
	for range w.atts {
		w.turn %= len(w.atts)
		a := w.atts[w.turn]
		w.turn++
		if a.ready.Load() {
			return a
		}
	}
	return nil
}

func (w *writer) remove(a *attachment) {
	i := slices.Index(w.atts, a)
	w.atts = slices.Delete(w.atts, i, i+1)
	if w.turn > i {
		w.turn--
	}
	a.close()
}

// detach ends an attachment and returns the reply.
func (w *writer) detach(e entry) []byte {
	i := slices.IndexFunc(w.atts, func(a *attachment) bool { return a.id == e.detach })
	if i < 0 {
		return errorLine(e.id, wire.Errorf(wire.CodeBadArgument, "no attachment %.40q on this connection", e.detach))
	}
	w.remove(w.atts[i])
	line, _ := replyLine(e.id, nil)
	return line
}

func (w *writer) add(line []byte) {
	w.bufs = append(w.bufs, line)
	w.bytes += len(line)
}

func (w *writer) addFrame(f wire.Frame) {
	for _, b := range [...][]byte{f.Head, f.Body, f.Tail} {
		if len(b) > 0 {
			w.add(b)
		}
	}
	if f.Release != nil {
		w.releases = append(w.releases, f.Release)
	}
}

// done empties the batch: its frames' bytes are free again, its answers given.
func (w *writer) done() {
	for _, release := range w.releases {
		release()
	}
	for range w.answers {
		<-w.c.owed
	}
	clear(w.bufs)
	clear(w.releases)
	w.bufs, w.bytes, w.releases, w.answers = w.bufs[:0], 0, w.releases[:0], 0
}

// flush writes the batch in pieces, so that progress is seen, and enforces
// the slow-client rule on the way.
func (w *writer) flush() error {
	defer w.done()
	opt := &w.c.srv.opt
	for i, from := 0, 0; i < len(w.bufs); {
		start := time.Now()
		if err := w.c.nc.SetWriteDeadline(start.Add(opt.SlowClientWindow - w.blocked)); err != nil {
			return err
		}
		n, err := w.writePiece(i, from, opt.SlowClientBytes)
		for from += n; i < len(w.bufs) && from >= len(w.bufs[i]); i++ {
			from -= len(w.bufs[i])
		}
		w.blocked += time.Since(start)
		w.accepted += n
		late := errors.Is(err, os.ErrDeadlineExceeded)
		switch {
		case err != nil && !late:
			return err
		case w.accepted >= opt.SlowClientBytes:
			w.blocked, w.accepted = 0, 0 // a new window
		case late:
			return fmt.Errorf("%w: %d bytes accepted in %v, want %d", errSlowClient, w.accepted, opt.SlowClientWindow, opt.SlowClientBytes)
		}
	}
	return nil
}

// writePiece writes up to most bytes of the batch, from byte `from` of buffer
// i on, with one vectored write where the platform has it.
func (w *writer) writePiece(i, from, most int) (int, error) {
	bufs := w.piece[:0]
	for ; i < len(w.bufs) && most > 0; i++ {
		b := w.bufs[i][from:]
		b = b[:min(len(b), most)]
		bufs = append(bufs, b)
		most -= len(b)
		from = 0
	}
	w.piece = bufs // WriteTo consumes its own header; the array is kept
	n, err := bufs.WriteTo(w.c.nc)
	clear(w.piece)
	return int(n), err
}
