package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sessiond/wire"
	"sessiond/wire/sock"
)

func dial(t *testing.T, o Options) *Conn {
	t.Helper()
	c, err := Dial(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestConn_Commands(t *testing.T) {
	d := newFakeDaemon(t, sampleLines()...)
	c := dial(t, d.options())
	if got := c.Hello().Server.Version; got != "fake" {
		t.Errorf("got version %q, want fake", got)
	}
	var ids []string
	for s, err := range c.List(t.Context(), ListOptions{Page: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.ID)
	}
	if diff := cmp.Diff([]string{"0", "1", "2", "3", "4"}, ids); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if r, err := c.Create(t.Context(), CreateOptions{SessionID: "x"}); err != nil || r.Session != "owned:x" {
		t.Errorf("create: got %+v, %v", r, err)
	}
	if b, err := c.Status(t.Context()); err != nil || string(b) != `{"sessions":1}` {
		t.Errorf("status: got %s, %v", b, err)
	}
	var out strings.Builder
	size := int64(len(d.file()))
	n, err := c.Read(t.Context(), "s", wire.ViewRecords, wire.Ref{Bytes: size}, &out)
	if err != nil || n != size || out.String() != d.file() {
		t.Errorf("read: got %d bytes %q, %v, want the file", n, out.String(), err)
	}
	if _, err := c.Read(t.Context(), "s", wire.ViewRecords, wire.Ref{Bytes: size + 1}, io.Discard); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("read beyond the end: got %v, want io.ErrNoProgress", err)
	}
	if err := c.Call(t.Context(), wire.Command{Type: "dance"}, nil); wire.CodeOf(err) != wire.CodeUnknownCommand {
		t.Errorf("unknown command: got %v", err)
	}
	if err := c.Call(t.Context(), wire.Command{Type: wire.CmdStatus}, new(int)); err == nil {
		t.Error("a result of another kind: got no error")
	}
}

func TestConn_CallsAtTheSameTime(t *testing.T) {
	d := newFakeDaemon(t, sampleLines()...)
	c := dial(t, d.options())
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := c.Status(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestConn_EndsWithTheDaemon(t *testing.T) {
	d := newFakeDaemon(t)
	c := dial(t, d.options())
	d.stop()
	<-c.Done()
	var g *GoodbyeError
	if !errors.As(c.Err(), &g) || g.Code != wire.GoodbyeShuttingDown {
		t.Errorf("got %v, want goodbye shutting_down", c.Err())
	}
	if err := c.Call(t.Context(), wire.Command{Type: wire.CmdStatus}, nil); err == nil {
		t.Error("a call after the end: got no error")
	}
	c.Close()
	c.Close()
}

func TestConn_TooLargeIsNotSent(t *testing.T) {
	d := newFakeDaemon(t)
	c := dial(t, d.options())
	_, err := c.Append(t.Context(), "s", []string{strings.Repeat("x", wire.FrameBytesMax)}, nil)
	if wire.CodeOf(err) != wire.CodeTooLarge {
		t.Errorf("got %v, want too_large", err)
	}
	if _, err := c.Status(t.Context()); err != nil {
		t.Errorf("the connection does not live on: %v", err)
	}
}

// speaker is a daemon that says what it is told and reads what comes.
func speaker(t *testing.T, lines string) Options {
	return Options{Dial: func(context.Context) (sock.Conn, error) {
		a, b := net.Pipe()
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = io.Copy(io.Discard, b) })
		wg.Go(func() {
			_, _ = io.WriteString(b, lines)
			if lines != "" {
				b.Close()
			}
		})
		t.Cleanup(func() { a.Close(); b.Close(); wg.Wait() })
		return a, nil
	}}
}

func TestDial_Hellos(t *testing.T) {
	const goodbye = `{"type":"goodbye","code":"overloaded","message":"full"}` + "\n"
	for name, c := range map[string]struct {
		in   string
		want func(error) bool
	}{
		"other program":   {"HTTP/1.1 400 Bad Request\r\n", func(err error) bool { return errors.Is(err, ErrNotSessiond) && permanent(err) }},
		"other protocol":  {`{"type":"hello","protocol":{"name":"x","version":1}}` + "\n", func(err error) bool { return errors.Is(err, ErrNotSessiond) }},
		"newer protocol":  {`{"type":"hello","protocol":{"name":"sessiond","version":2}}` + "\n", func(err error) bool { return wire.CodeOf(err) == wire.CodeUnsupportedVersion && permanent(err) }},
		"cut":             {`{"type":"hel`, func(err error) bool { return errors.Is(err, ErrBroken) && !permanent(err) }},
		"goodbye":         {goodbye, func(err error) bool { var g *GoodbyeError; return errors.As(err, &g) && !permanent(err) }},
		"endless garbage": {strings.Repeat("x", frameBytesDefault+2), func(err error) bool { return errors.Is(err, wire.ErrFrameTooLarge) && permanent(err) }},
	} {
		if _, err := Dial(testContext(t), speaker(t, c.in)); err == nil || !c.want(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(ctx, speaker(t, "")); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want context.Canceled", err)
	}
}

func TestDial_NoDaemon(t *testing.T) {
	if _, err := Dial(t.Context(), Options{Path: "/tmp/sessiond-none/s"}); !errors.Is(err, sock.ErrNoDaemon) || permanent(err) {
		t.Errorf("got %v, want ErrNoDaemon, to be tried again", err)
	}
}

func TestDecodeReply_RefusalWithoutReason(t *testing.T) {
	if err := decodeReply(wire.Reply{}, nil); wire.CodeOf(err) != wire.CodeInternal {
		t.Errorf("got %v, want internal", err)
	}
	if err := decodeReply(wire.Reply{OK: true, Result: json.RawMessage(`{}`)}, nil); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}
