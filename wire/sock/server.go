package sock

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"sessiond/wire"
)

const (
	acceptPauseMax = time.Second     // after accept errors such as too many open files
	stopGrace      = 2 * time.Second // for handlers once their connections were cut
)

// Server is a listening socket and its connections.
type Server struct {
	opt      Options
	hello    []byte
	incoming budget
	socket   *socket       // replaced by Rebind with binding and mu held
	stopping chan struct{} // closed when Shutdown begins
	wg       sync.WaitGroup

	// base ends the handlers' contexts when a shutdown runs out of time.
	base   context.Context
	cancel context.CancelFunc

	binding sync.Mutex // held while the socket is bound again or closed; before mu

	mu     sync.Mutex
	conns  map[*conn]struct{}
	nextID int
	closed bool

	stats struct {
		attachments, panics, slowClients, refusedPeers atomic.Int64
	}
}

// Stats are figures for status.
type Stats struct {
	Connections  int   `json:"connections"`
	Attachments  int64 `json:"attachments"`
	Panics       int64 `json:"panics"`
	SlowClients  int64 `json:"slowClients"`
	RefusedPeers int64 `json:"refusedPeers"`
}

// Listen binds the socket and serves connections until Shutdown. ctx bounds
// the start only. The caller holds the lock of the state folder.
func Listen(ctx context.Context, o Options) (*Server, error) {
	s, err := newServer(ctx, o)
	if err != nil {
		return nil, err
	}
	if s.socket, err = bind(ctx, s.opt.Path); err != nil {
		return nil, err
	}
	s.wg.Go(func() { s.accept(s.socket) })
	return s, nil
}

func newServer(ctx context.Context, o Options) (*Server, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	hello, err := wire.AppendLine(nil, wire.Hello{
		Type:           wire.TypeHello,
		Protocol:       wire.Protocol{Name: wire.ProtocolName, Version: wire.ProtocolVersion},
		SchemaRevision: wire.SchemaRevision,
		Server:         wire.Server{Version: o.Version, Instance: o.Instance},
		Capabilities:   o.Capabilities,
		Limits:         wire.Limits{FrameBytes: o.FrameBytesMax, ChunkBytes: o.ChunkBytes, InlineBytes: wire.InlineBytes},
	})
	if err != nil {
		return nil, err
	}
	s := &Server{opt: o, hello: hello, stopping: make(chan struct{}), conns: map[*conn]struct{}{}}
	s.incoming.free.Store(o.IncomingBytesMax)
	// Handlers finish their work after the daemon was told to stop: see Shutdown.
	s.base, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return s, nil
}

// Path returns the absolute path of the socket.
func (s *Server) Path() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.socket.path
}

// Rebind listens again where the socket's file was removed or replaced, as
// cleaners of temp folders do, and reports whether it had to. Connections go
// on.
func (s *Server) Rebind(ctx context.Context) (bool, error) {
	s.binding.Lock()
	defer s.binding.Unlock()
	s.mu.Lock()
	old, closed := s.socket, s.closed
	s.mu.Unlock()
	if closed {
		return false, nil
	}
	if now, err := os.Lstat(old.path); err == nil && sameSocket(now, old.file) {
		return false, nil
	}
	fresh, err := bind(ctx, old.path)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	s.socket = fresh
	s.mu.Unlock()
	s.wg.Go(func() { s.accept(fresh) })
	return true, old.UnixListener.Close()
}

// Stats returns the figures of now.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	n := len(s.conns)
	s.mu.Unlock()
	return Stats{
		Connections:  n,
		Attachments:  s.stats.attachments.Load(),
		Panics:       s.stats.panics.Load(),
		SlowClients:  s.stats.slowClients.Load(),
		RefusedPeers: s.stats.refusedPeers.Load(),
	}
}

// accept takes connections until the socket closes. Errors such as running
// out of descriptors pass; it pauses and goes on.
func (s *Server) accept(from *socket) {
	var pause time.Duration
	for {
		nc, err := from.AcceptUnix()
		if err == nil {
			pause = 0
			s.admit(nc)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		pause = min(max(2*pause, 5*time.Millisecond), acceptPauseMax)
		s.opt.Logger.Warn("accept failed", "error", err, "pause", pause)
		select {
		case <-time.After(pause):
		case <-s.stopping:
			return
		}
	}
}

func (s *Server) admit(nc *net.UnixConn) {
	uid, err := peerUID(nc)
	if err == nil {
		err = checkPeer(uid, os.Geteuid(), s.opt.AllowUIDs)
	}
	if err != nil {
		s.stats.refusedPeers.Add(1)
		s.opt.Logger.Warn("peer refused", "error", err)
		nc.Close()
		return
	}
	s.start(nc, uid)
}

// start runs a connection, unless the server is full or stopping.
func (s *Server) start(nc net.Conn, uid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.turnAway(nc, wire.GoodbyeShuttingDown, "the daemon is stopping")
		return
	}
	if len(s.conns) >= s.opt.ConnectionsMax {
		s.turnAway(nc, wire.GoodbyeOverloaded, "too many connections")
		return
	}
	s.nextID++
	c := newConn(s, nc, uid, s.nextID)
	c.reserved = len(s.conns) >= s.opt.ConnectionsMax-s.opt.ConnectionsReserve
	s.conns[c] = struct{}{}
	s.wg.Go(func() {
		c.serve()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	})
}

// turnAway says goodbye to a connection that is not served. The line fits any
// fresh socket buffer; the deadline is for a peer that is no such thing.
func (s *Server) turnAway(nc net.Conn, code, message string) {
	s.wg.Go(func() {
		_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = nc.Write(goodbyeLine(code, message))
		nc.Close()
	})
}

// Shutdown stops listening, lets the commands in flight finish and their
// replies out, says goodbye at a frame boundary to everyone, and waits for
// all goroutines. When ctx ends first it cuts the connections and returns the
// context's error. A second call returns ErrClosed at once.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.closed = true
	close(s.stopping)
	s.mu.Unlock()

	var err error
	s.binding.Lock()
	if s.socket != nil { // before the goodbyes: who comes back finds nobody
		err = s.socket.Close()
	}
	s.binding.Unlock()
	s.mu.Lock()
	for c := range s.conns {
		c.drain(wire.GoodbyeShuttingDown, "the daemon is stopping")
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		s.cancel()
		return err
	case <-ctx.Done():
	}
	s.cancel()
	s.mu.Lock()
	for c := range s.conns {
		c.cut()
	}
	s.mu.Unlock()
	select {
	case <-done:
	case <-time.After(stopGrace): // a handler that ignores its context
	}
	return errors.Join(ctx.Err(), err)
}

// budget is a number of bytes to be taken and given back.
type budget struct{ free atomic.Int64 }

func (b *budget) take(n int) bool {
	if b.free.Add(-int64(n)) >= 0 {
		return true
	}
	b.free.Add(int64(n))
	return false
}

func (b *budget) give(n int) { b.free.Add(int64(n)) }
