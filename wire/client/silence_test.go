package client

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"sessiond/wire"
	"sessiond/wire/sock"
)

// TestLink_SilentDaemonIsABreak: a daemon that was stopped, or a peer that is
// gone without a word, must not hold a client for ever.
func TestLink_SilentDaemonIsABreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		go func() {
			hello, _ := wire.AppendLine(nil, wire.Hello{
				Type: wire.TypeHello, Protocol: wire.Protocol{Name: wire.ProtocolName, Version: wire.ProtocolVersion},
			})
			_, _ = theirs.Write(hello)
			buf := make([]byte, 1<<10)
			_, _ = theirs.Read(buf) // the client's hello
			for range 3 {
				time.Sleep(wire.PingInterval)
				_, _ = theirs.Write([]byte(`{"type":"ping"}` + "\n"))
			}
		}()
		l, err := Options{Dial: func(context.Context) (sock.Conn, error) { return ours, nil }}.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer l.close()
		start := time.Now()
		if _, err = l.read(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v, want a deadline", err)
		}
		if got, want := time.Since(start), 3*wire.PingInterval+silenceDefault; got != want {
			t.Errorf("gave up after %v, want %v: pings count as life", got, want)
		}
	})
}
