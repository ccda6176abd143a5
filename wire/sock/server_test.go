package sock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sessiond/wire"
)

func TestServer_Hello(t *testing.T) {
	s := listen(t, Options{Handler: attachTo(nil), Version: "1.2.3", Instance: "i"})
	c, err := Dial(t.Context(), s.Path())
	if err != nil {
		t.Fatal(err)
	}
	p := newPeer(t, c)
	line, err := p.frames.ReadFrame()
	const want = `{"type":"hello","protocol":{"name":"sessiond","version":1},"schemaRevision":2,"server":{"version":"1.2.3","instance":"i"},` +
		`"capabilities":["raw_records","positions","amendments","provisional","refs","bounded_views"],"limits":{"frameBytes":16777216,"chunkBytes":524288,"inlineBytes":1048576}}`
	if err != nil || string(line) != want {
		t.Errorf("got  %s, %v\nwant %s", line, err, want)
	}
}

func TestServer_CommandsOfItsOwn(t *testing.T) {
	s := listen(t, Options{Handler: attachTo(nil)})
	p := connect(t, s)
	p.send(`{"id":"1","type":"ping"}`)
	p.wantReply("1", "")
	p.send(`nonsense`, `{"id":2,"type":7}`, `{"id":"3","type":"dance"}`, ``)
	p.wantReply("", wire.CodeBadFrame)
	for range 2 { // the handler's reply and the read loop's may come in any order
		if f := p.read(); f.OK {
			t.Errorf("got %+v, want an error", f)
		}
	}
	p.read()
	p.send(`{"id":"4","type":"detach","attachment":"a9"}`)
	p.wantReply("4", wire.CodeBadArgument)
	p.send(`{"id":"5","type":"ping"}`)
	p.wantReply("5", "")
}

func TestServer_ClientHello(t *testing.T) {
	var frameBytes atomic.Int64
	h := handlerFunc(func(_ context.Context, r wire.Request) (wire.Response, error) {
		frameBytes.Store(int64(r.FrameBytes))
		return wire.Response{Result: strings.Repeat("x", wire.FrameBytesMin)}, nil
	})
	s := listen(t, Options{Handler: h})
	p := connect(t, s)
	p.send(fmt.Sprintf(`{"type":"hello","clientId":"c","limits":{"frameBytes":%d}}`, wire.FrameBytesMin), `{"id":"1","type":"status"}`)
	p.wantReply("1", wire.CodeTooLarge) // rather than a frame that the client cannot take
	if got := frameBytes.Load(); got != wire.FrameBytesMin {
		t.Errorf("got frameBytes %d in the request, want %d", got, wire.FrameBytesMin)
	}
	p.send(`{"id":"2","type":"hello"}`)
	p.wantReply("2", wire.CodeBadArgument)
	p.wantGoodbye(wire.GoodbyeProtocolError)

	p = connect(t, s)
	p.send(fmt.Sprintf(`{"id":"1","type":"hello","limits":{"frameBytes":%d}}`, wire.FrameBytesMin-1))
	p.wantReply("1", wire.CodeBadArgument)
	p.wantGoodbye(wire.GoodbyeProtocolError)

	p = connect(t, s)
	p.send(`{"id":"1","type":"hello"}`)
	p.wantReply("1", "")
}

func TestServer_RepliesOvertake(t *testing.T) {
	gate := make(chan struct{})
	h := handlerFunc(func(_ context.Context, r wire.Request) (wire.Response, error) {
		if r.ID == "slow" {
			<-gate
		}
		return wire.Response{}, nil
	})
	p := connect(t, listen(t, Options{Handler: h}))
	p.send(`{"id":"slow","type":"status"}`, `{"id":"quick","type":"status"}`)
	p.wantReply("quick", "")
	close(gate)
	p.wantReply("slow", "")
}

func TestServer_CommandsInFlightAreBounded(t *testing.T) {
	gate, entered := make(chan struct{}), make(chan struct{})
	h := handlerFunc(func(context.Context, wire.Request) (wire.Response, error) {
		entered <- struct{}{}
		<-gate
		return wire.Response{}, nil
	})
	p := connect(t, listen(t, Options{Handler: h, CommandsInFlightMax: 2}))
	p.send(`{"id":"1","type":"status"}`, `{"id":"2","type":"status"}`)
	<-entered
	<-entered
	p.send(`{"id":"3","type":"status"}`)
	p.wantReply("3", wire.CodeBusy)
	p.send(`{"id":"4","type":"ping"}`)
	p.wantReply("4", "")
	close(gate)
	p.read()
	p.read()
	p.send(`{"id":"5","type":"status"}`)
	<-entered
	p.wantReply("5", "")
}

func TestServer_PanicIsInternal(t *testing.T) {
	h := handlerFunc(func(_ context.Context, r wire.Request) (wire.Response, error) {
		if r.ID == "p" {
			panic("secret")
		}
		return wire.Response{}, errors.New("secret")
	})
	s := listen(t, Options{Handler: h})
	p := connect(t, s)
	for _, id := range []string{"p", "e"} {
		p.send(`{"id":"` + id + `","type":"status"}`)
		if f := p.wantReply(id, wire.CodeInternal); strings.Contains(f.Error.Message, "secret") {
			t.Errorf("got the message %q, want nothing leaked", f.Error.Message)
		}
	}
	if got := s.Stats().Panics; got != 1 {
		t.Errorf("got %d panics counted, want 1", got)
	}
}

func TestServer_FrameTooLarge(t *testing.T) {
	p := connect(t, listen(t, Options{Handler: attachTo(nil), FrameBytesMax: 1000}))
	p.send(`{"id":"1","type":"ping","x":"` + strings.Repeat("x", 900) + `"}`)
	p.wantReply("1", "")
	p.send(strings.Repeat("x", 1001))
	p.wantGoodbye(wire.GoodbyeFrameTooLarge)
}

func TestServer_IncomingBudget(t *testing.T) {
	gate, entered := make(chan struct{}), make(chan struct{})
	h := handlerFunc(func(context.Context, wire.Request) (wire.Response, error) {
		entered <- struct{}{}
		<-gate
		return wire.Response{}, nil
	})
	s := listen(t, Options{Handler: h, IncomingBytesMax: 100 << 10})
	large := func(id string) string {
		return `{"id":"` + id + `","type":"append","entries":["` + strings.Repeat("x", 60<<10) + `"]}`
	}
	p, q := connect(t, s), connect(t, s)
	p.send(large("1"))
	<-entered // 60 KiB are taken until the command is done
	q.send(large("2"), `{"id":"3","type":"ping"}`)
	q.wantReply("2", wire.CodeOverloaded)
	q.wantReply("3", "")
	gate <- struct{}{}
	p.wantReply("1", "")
	q.send(large("4"))
	<-entered
	gate <- struct{}{}
	q.wantReply("4", "")
}

func TestServer_ReserveServesStatus(t *testing.T) {
	h := handlerFunc(func(context.Context, wire.Request) (wire.Response, error) { return wire.Response{}, nil })
	s := listen(t, Options{Handler: h, ConnectionsMax: 3, ConnectionsReserve: 1})
	p, _ := connect(t, s), connect(t, s)
	p.send(`{"id":"1","type":"create"}`)
	p.wantReply("1", "")

	last := connect(t, s)
	last.send(`{"id":"1","type":"status"}`, `{"id":"2","type":"list"}`)
	last.read()
	last.read()

	over, err := Dial(t.Context(), s.Path())
	if err != nil {
		t.Fatal(err)
	}
	newPeer(t, over).wantGoodbye(wire.GoodbyeOverloaded)

	last.send(`{"id":"3","type":"create"}`)
	last.wantReply("3", wire.CodeOverloaded)
	last.wantGoodbye(wire.GoodbyeOverloaded)
}

func TestServer_ReserveIsNotForIdlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := newServer(t.Context(), Options{Handler: attachTo(nil), ConnectionsMax: 2, ConnectionsReserve: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer stop(t, s)
		first, last := pipe(t, s), pipe(t, s)
		if f := last.read(); f.Type == wire.TypePing { // due at the same moment
			last.wantGoodbye(wire.GoodbyeIdle)
		} else if f.Code != wire.GoodbyeIdle {
			t.Errorf("got %+v, want goodbye idle", f)
		}
		if f := first.read(); f.Type != wire.TypePing {
			t.Errorf("an ordinary connection: got %+v, want a ping", f)
		}
		first.Close()
		last.Close()
	})
}

// pipe connects to a server without a socket; it reads the hello.
func pipe(t *testing.T, s *Server) *peer {
	t.Helper()
	a, b := net.Pipe()
	s.start(b, 0)
	p := newPeer(t, a)
	if f := p.read(); f.Type != wire.TypeHello {
		t.Fatalf("got %+v, want a hello", f)
	}
	return p
}

func TestServer_HalfClosedPeerGetsItsReplies(t *testing.T) {
	gate := make(chan struct{})
	h := handlerFunc(func(context.Context, wire.Request) (wire.Response, error) {
		<-gate
		return wire.Response{}, nil
	})
	p := connect(t, listen(t, Options{Handler: h}))
	p.send(`{"id":"1","type":"status"}`)
	if err := p.Conn.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	close(gate)
	p.wantReply("1", "")
	p.wantEnd()
}

func TestServer_ShutdownFinishesCommands(t *testing.T) {
	gate, entered := make(chan struct{}), make(chan struct{})
	h := handlerFunc(func(context.Context, wire.Request) (wire.Response, error) {
		close(entered)
		<-gate
		return wire.Response{}, nil
	})
	s := listen(t, Options{Handler: h})
	p, idle := connect(t, s), connect(t, s)
	p.send(`{"id":"1","type":"append"}`)
	<-entered
	done := make(chan struct{})
	go func() {
		defer close(done)
		stop(t, s)
	}()
	idle.wantGoodbye(wire.GoodbyeShuttingDown)
	if _, err := Dial(t.Context(), s.Path()); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("dial during shutdown: got %v, want ErrNoDaemon", err)
	}
	close(gate)
	p.wantReply("1", "")
	p.wantGoodbye(wire.GoodbyeShuttingDown)
	<-done
}

func TestServer_ShutdownCutsAtItsDeadline(t *testing.T) {
	entered := make(chan struct{})
	h := handlerFunc(func(ctx context.Context, _ wire.Request) (wire.Response, error) {
		close(entered)
		<-ctx.Done()
		return wire.Response{}, ctx.Err()
	})
	s := listen(t, Options{Handler: h})
	p := connect(t, s)
	p.send(`{"id":"1","type":"append"}`)
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if err := s.Shutdown(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("second Shutdown: got %v, want ErrClosed", err)
	}
}

func TestServer_HandlerContextEndsWithThePeer(t *testing.T) {
	entered, ended := make(chan struct{}), make(chan struct{})
	h := handlerFunc(func(ctx context.Context, r wire.Request) (wire.Response, error) {
		if r.Type == wire.CmdAttach {
			s := &fakeStream{}
			s.push(strings.Repeat("x", 4<<20))
			return wire.Response{Stream: s}, nil
		}
		close(entered)
		<-ctx.Done()
		close(ended)
		return wire.Response{}, ctx.Err()
	})
	s := listen(t, Options{Handler: h})
	p := connect(t, s)
	p.send(`{"id":"1","type":"status"}`)
	<-entered
	p.send(`{"id":"2","type":"attach"}`) // something to write that meets a broken pipe
	p.Close()
	<-ended
}

func TestListen_Options(t *testing.T) {
	if _, err := Listen(t.Context(), Options{}); err == nil {
		t.Error("no handler: got no error")
	}
	if _, err := Listen(t.Context(), Options{Handler: attachTo(nil), Path: "/" + strings.Repeat("x", 200)}); !errors.Is(err, ErrPathTooLong) {
		t.Errorf("long path: got %v, want ErrPathTooLong", err)
	}
}

// FuzzServer_Bytes sends anything: the server answers or closes, and is whole
// afterwards.
func FuzzServer_Bytes(f *testing.F) {
	f.Add([]byte("{\"id\":\"1\",\"type\":\"attach\",\"session\":\"s\"}\n{\"id\":1,\"type\":\"detach\",\"attachment\":\"a1\"}\n"))
	f.Add([]byte("{\"type\":\"hello\",\"limits\":{\"frameBytes\":1}}\n\n\n{"))
	f.Fuzz(func(t *testing.T, in []byte) {
		s, err := newServer(t.Context(), Options{Handler: attachTo(map[string]*fakeStream{"s": {}}), FrameBytesMax: 100, CommandsInFlightMax: 2})
		if err != nil {
			t.Fatal(err)
		}
		a, b := net.Pipe()
		s.start(b, 0)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.Copy(io.Discard, a)
		}()
		_ = a.SetWriteDeadline(time.Now().Add(10 * time.Second))
		_, _ = a.Write(in)
		stop(t, s)
		a.Close()
		<-done
	})
}
