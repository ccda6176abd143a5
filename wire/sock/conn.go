package sock

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"sessiond/wire"
)

const (
	readBufferBytes = 16 << 10 // a larger frame takes from the incoming budget

	// repliesOwedFactor times CommandsInFlightMax is how many replies may be
	// owed to a client before its next command is read.
	repliesOwedFactor = 2
)

// conn is one connection.
type conn struct {
	srv      *Server
	nc       net.Conn
	uid, id  int
	reserved bool // serves status and list only

	ctx    context.Context // ends when the connection is broken or done
	cancel context.CancelFunc

	// Owned by the read loop.
	frames      *wire.FrameReader
	attachID    int
	cmds        sync.WaitGroup
	frameBytes  int // the largest frame that the client takes
	running     atomic.Int32
	attachments atomic.Int32 // attached or attaching

	owed     chan struct{} // one token for each frame read and not yet answered
	draining chan struct{} // closed by drain

	wakeup chan struct{} // tells the write loop to look again; capacity 1

	mu      sync.Mutex
	queue   []entry
	ending  bool   // the read side is done: write the queue and end
	goodbye []byte // to be written at the end
	drained bool   // draining is closed
	gone    bool   // the write loop ended: nothing may be queued
}

// entry is one answer on its way to the write loop.
type entry struct {
	line   []byte      // nil for a detach: the write loop makes it
	attach *attachment // starts after the line was written
	detach string      // the attachment to end
	id     string      // of the detach command
}

func newConn(s *Server, nc net.Conn, uid, id int) *conn {
	c := &conn{
		srv: s, nc: nc, uid: uid, id: id,
		frames:     wire.NewFrameReader(nc, readBufferBytes, s.opt.FrameBytesMax),
		frameBytes: wire.FrameBytesMax,
		owed:       make(chan struct{}, repliesOwedFactor*s.opt.CommandsInFlightMax),
		draining:   make(chan struct{}),
		wakeup:     make(chan struct{}, 1),
	}
	c.frames.Admit = s.incoming.take
	c.ctx, c.cancel = context.WithCancel(s.base)
	c.queue = append(c.queue, entry{line: s.hello})
	c.owed <- struct{}{} // the hello's
	return c
}

// serve runs the connection to its end.
func (c *conn) serve() {
	var writer sync.WaitGroup
	writer.Go(c.writeLoop)
	c.readLoop()
	c.cmds.Wait()
	c.mu.Lock()
	c.ending = true
	c.mu.Unlock()
	c.wake()
	writer.Wait()
	c.cut()
}

// drain makes the connection end as soon as the commands in flight are
// answered, with a goodbye where code is set.
func (c *conn) drain(code, message string) {
	c.mu.Lock()
	if c.drained {
		c.mu.Unlock()
		return
	}
	c.drained = true
	if code != "" {
		c.goodbye = goodbyeLine(code, message)
	}
	close(c.draining)
	c.mu.Unlock()
	_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // wakes the read loop
}

// cut ends the connection where it stands.
func (c *conn) cut() {
	c.cancel()
	c.nc.Close()
}

func (c *conn) wake() {
	select {
	case c.wakeup <- struct{}{}:
	default:
	}
}

// enqueue hands an answer to the write loop, or drops it when that ended.
func (c *conn) enqueue(e entry) {
	c.mu.Lock()
	gone := c.gone
	if !gone {
		c.queue = append(c.queue, e)
	}
	c.mu.Unlock()
	if gone {
		if e.attach != nil {
			e.attach.close()
		}
		return
	}
	c.wake()
}

// readLoop reads commands until the peer, the protocol or drain ends it.
func (c *conn) readLoop() {
	for first := true; ; first = false {
		select {
		case c.owed <- struct{}{}:
		case <-c.draining:
			return
		case <-c.ctx.Done():
			return
		}
		if c.reserved {
			// A place of the reserve is for one who uses it.
			_ = c.nc.SetReadDeadline(time.Now().Add(c.srv.opt.PingInterval))
		}
		select {
		case <-c.draining:
			return // the deadline above may have undone drain's
		default:
		}
		line, err := c.frames.ReadFrame()
		held := c.frames.Admitted()
		if err == nil {
			c.command(line, held, first)
			continue
		}
		c.srv.incoming.give(held)
		if !errors.Is(err, wire.ErrNotAdmitted) {
			c.readFailed(err)
			return
		}
		cmd, _ := wire.DecodeCommand(line) // cut short, so only its id counts
		c.fail(cmd.ID, wire.Errorf(wire.CodeOverloaded, "the daemon holds too many large frames: %v", err))
	}
}

func (c *conn) readFailed(err error) {
	var timeout net.Error
	switch {
	case errors.Is(err, wire.ErrFrameTooLarge):
		c.drain(wire.GoodbyeFrameTooLarge, err.Error())
	case c.reserved && errors.As(err, &timeout) && timeout.Timeout():
		c.drain(wire.GoodbyeIdle, "no command on a connection of the reserve")
	}
}
