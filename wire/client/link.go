package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"sessiond/wire"
	"sessiond/wire/sock"
)

const (
	readBufferBytes   = 64 << 10
	silenceDefault    = 3*wire.PingInterval + 5*time.Second
	frameBytesDefault = 4 << 20
)

// Options say how to reach a daemon.
type Options struct {
	Path       string // of the socket
	ClientID   string // a name for the daemon's log
	FrameBytes int    // largest frame and raw body to receive; 0 means 4 MiB
	// SilenceMax is how long a daemon, which pings every PingInterval, may be
	// silent before the connection counts as broken; 0 means 35 s.
	SilenceMax time.Duration

	// Dial replaces the connection to Path, in tests.
	Dial func(ctx context.Context) (sock.Conn, error)
}

// link is one connection after the hellos. Reading and writing are each one
// goroutine's at a time.
type link struct {
	nc      sock.Conn
	frames  *wire.FrameReader
	hello   wire.Hello
	contact time.Time // the last frame, pings included
	silence time.Duration

	mu          sync.Mutex
	interrupted bool // guarded by mu: deadlines are past and stay so
}

// past makes any read or write return at once.
var past = time.Unix(1, 0)

// open connects and exchanges hellos.
func (o Options) open(ctx context.Context) (*link, error) {
	size := o.FrameBytes
	if size == 0 {
		size = frameBytesDefault
	}
	if size < wire.FrameBytesMin || size > wire.FrameBytesMax {
		return nil, wire.Errorf(wire.CodeBadArgument, "frame size %d: want %d to %d", size, wire.FrameBytesMin, wire.FrameBytesMax)
	}
	dial := o.Dial
	if dial == nil {
		dial = func(ctx context.Context) (sock.Conn, error) { return sock.Dial(ctx, o.Path) }
	}
	nc, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	l := &link{nc: nc, frames: wire.NewFrameReader(nc, readBufferBytes, size), silence: o.SilenceMax}
	if l.silence <= 0 {
		l.silence = silenceDefault
	}
	stop := l.interruptible(ctx)
	err = l.greet(o.ClientID, size)
	stop()
	if ctx.Err() != nil { // also the cause of whatever error there is
		err = context.Cause(ctx)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// interruptible makes reads and writes fail when ctx ends, until stop. The
// connection is of no use afterwards.
func (l *link) interruptible(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.interrupted = true
		_ = l.nc.SetDeadline(past)
	})
}

// expect gives the daemon until SilenceMax from now to say something. Before
// its hello it is busy, however long that takes.
func (l *link) expect() {
	if l.hello.Type == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.interrupted {
		_ = l.nc.SetReadDeadline(time.Now().Add(l.silence))
	}
}

// greet reads the server's hello and sends the client's.
func (l *link) greet(clientID string, frameBytes int) error {
	line, err := l.read()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, &l.hello); err != nil || l.hello.Type != wire.TypeHello || l.hello.Protocol.Name != wire.ProtocolName {
		return fmt.Errorf("%w: it began with %.80q", ErrNotSessiond, line)
	}
	if v := l.hello.Protocol.Version; v != wire.ProtocolVersion {
		return wire.Errorf(wire.CodeUnsupportedVersion, "the daemon speaks protocol version %d, this client version %d", v, wire.ProtocolVersion)
	}
	return l.write(wire.Command{Type: wire.CmdHello, ClientID: clientID, Limits: &wire.Limits{FrameBytes: frameBytes}})
}

// read returns the next frame that is no ping; a goodbye is an error.
func (l *link) read() ([]byte, error) {
	for {
		l.expect()
		line, err := l.frames.ReadFrame()
		if err != nil {
			return nil, broken(err)
		}
		l.contact = time.Now()
		switch wire.FrameType(line) {
		case wire.TypePing:
		case wire.TypeGoodbye:
			var g wire.Goodbye
			if err := json.Unmarshal(line, &g); err != nil {
				return nil, broken(err)
			}
			return nil, &GoodbyeError{Code: g.Code, Message: g.Message}
		default:
			return line, nil
		}
	}
}

// write sends one command. An error leaves the connection unusable, unless it
// is a *wire.Error.
func (l *link) write(cmd wire.Command) error {
	line, err := wire.AppendLine(nil, cmd)
	if err != nil {
		return err
	}
	if most := l.hello.Limits.FrameBytes; most > 0 && len(line) > most {
		return wire.Errorf(wire.CodeTooLarge, "the command has %d bytes, the daemon takes %d", len(line), most)
	}
	if _, err := l.nc.Write(line); err != nil {
		return broken(err)
	}
	return nil
}

func (l *link) close() { l.nc.Close() }

// broken marks an error of the connection.
func broken(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: the daemon closed it", ErrBroken)
	}
	return fmt.Errorf("%w: %w", ErrBroken, err)
}
