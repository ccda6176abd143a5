package sock

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sessiond/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handlerFunc is a Handler of one function.
type handlerFunc func(ctx context.Context, r wire.Request) (wire.Response, error)

func (f handlerFunc) Handle(ctx context.Context, r wire.Request) (wire.Response, error) {
	return f(ctx, r)
}

// fakeStream gives out what was pushed, then waits for more.
type fakeStream struct {
	mu       sync.Mutex
	frames   []wire.Frame
	err      error // after the frames
	wake     func()
	starts   int
	closes   atomic.Int32
	released atomic.Int32
	pulled   int
}

func (s *fakeStream) Start(wake func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts++
	s.wake = wake
}

func (s *fakeStream) Next() (wire.Frame, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starts != 1 {
		return wire.Frame{}, false, errors.New("Next before Start")
	}
	if len(s.frames) == 0 {
		return wire.Frame{}, false, s.err
	}
	f := s.frames[0]
	s.frames = s.frames[1:]
	s.pulled++
	f.Release = func() { s.released.Add(1) }
	return f, true, nil
}

func (s *fakeStream) Close() { s.closes.Add(1) }

// push adds frames of the type x with a text and tells the connection.
func (s *fakeStream) push(texts ...string) {
	s.mu.Lock()
	for _, text := range texts {
		s.frames = append(s.frames, wire.Frame{Head: []byte(`{"type":"x","text":"`), Body: []byte(text), Tail: []byte("\"}\n")})
	}
	wake := s.wake
	s.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// end makes the stream end with err after its frames.
func (s *fakeStream) end(err error) {
	s.mu.Lock()
	s.err = err
	wake := s.wake
	s.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// attachTo is a Handler that answers attach with streams by session name.
func attachTo(streams map[string]*fakeStream) Handler {
	return handlerFunc(func(_ context.Context, r wire.Request) (wire.Response, error) {
		s := streams[r.Session]
		if r.Type != wire.CmdAttach || s == nil {
			return wire.Response{}, wire.Errorf(wire.CodeUnknownCommand, "%s", r.Type)
		}
		return wire.Response{Result: wire.AttachResult{Attachment: r.Attachment}, Stream: s}, nil
	})
}

// listen starts a server on a socket of its own and stops it in the end.
func listen(t *testing.T, o Options) *Server {
	t.Helper()
	o.Path = filepath.Join(socketDir(t), "s")
	s, err := Listen(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil && !errors.Is(err, ErrClosed) {
		t.Errorf("Shutdown: %v", err)
	}
	if got := s.Stats(); got.Attachments != 0 || got.Connections != 0 {
		t.Errorf("after Shutdown: got %+v, want no connection and no attachment", got)
	}
	if got := s.incoming.free.Load(); got != s.opt.IncomingBytesMax {
		t.Errorf("after Shutdown: got %d bytes of the incoming budget, want %d", got, s.opt.IncomingBytesMax)
	}
}

// peer is the client's side of a connection under test.
type peer struct {
	t *testing.T
	net.Conn
	frames *wire.FrameReader
}

func newPeer(t *testing.T, c net.Conn) *peer {
	t.Cleanup(func() { c.Close() })
	return &peer{t: t, Conn: c, frames: wire.NewFrameReader(c, 4096, 32<<20)}
}

// connect dials the server and reads its hello.
func connect(t *testing.T, s *Server) *peer {
	t.Helper()
	c, err := Dial(t.Context(), s.Path())
	if err != nil {
		t.Fatal(err)
	}
	p := newPeer(t, c)
	_ = c.SetDeadline(time.Now().Add(20 * time.Second)) // a hang fails here
	if f := p.read(); f.Type != wire.TypeHello {
		t.Fatalf("got %+v, want a hello first", f)
	}
	return p
}

func (p *peer) send(lines ...string) {
	p.t.Helper()
	if _, err := io.WriteString(p.Conn, strings.Join(lines, "\n")+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// frame holds what any frame of these tests has.
type frame struct {
	Type   string
	ID     string
	OK     bool
	Result json.RawMessage
	Error  *wire.Error
	Code   string
	Text   string
}

func (p *peer) read() frame {
	p.t.Helper()
	line, err := p.frames.ReadFrame()
	if err != nil {
		p.t.Fatalf("read: %v", err)
	}
	var f frame
	if err := json.Unmarshal(line, &f); err != nil {
		p.t.Fatalf("%s: %v", line, err)
	}
	return f
}

// wantReply reads a reply and checks its id and code ("" means ok).
func (p *peer) wantReply(id string, code wire.Code) frame {
	p.t.Helper()
	f := p.read()
	got := wire.Code("")
	if f.Error != nil {
		got = f.Error.Code
	}
	if f.Type != wire.TypeResponse || f.ID != id || f.OK != (code == "") || got != code {
		p.t.Fatalf("got %+v (%v), want a reply to %q with code %q", f, f.Error, id, code)
	}
	return f
}

func (p *peer) wantText(text string) {
	p.t.Helper()
	if f := p.read(); f.Text != text {
		p.t.Fatalf("got %+v, want the frame %q", f, text)
	}
}

func (p *peer) wantGoodbye(code string) {
	p.t.Helper()
	if f := p.read(); f.Type != wire.TypeGoodbye || f.Code != code {
		p.t.Fatalf("got %+v, want goodbye %s", f, code)
	}
	p.wantEnd()
}

func (p *peer) wantEnd() {
	p.t.Helper()
	if line, err := p.frames.ReadFrame(); err == nil {
		p.t.Fatalf("got %s, want the end", line)
	}
}
