package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sessiond/wire/sock"
)

func TestReconnect_GivesUpInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ceilings []time.Duration
		dials := 0
		o := Options{Dial: func(context.Context) (sock.Conn, error) {
			dials++
			return nil, fmt.Errorf("no luck: %w", sock.ErrNoDaemon)
		}}
		start := time.Now()
		_, err := Attach(t.Context(), o, AttachOptions{Session: "s", Reconnect: Reconnect{
			For: 10 * time.Second, Min: 100 * time.Millisecond, Max: time.Second,
			Jitter: func(c time.Duration) time.Duration { ceilings = append(ceilings, c); return c },
		}})
		if !errors.Is(err, sock.ErrNoDaemon) || !strings.Contains(err.Error(), "gave up 10s after") {
			t.Errorf("got %v, want ErrNoDaemon after giving up", err)
		}
		if got := time.Since(start); got != 10*time.Second {
			t.Errorf("gave up after %v, want 10s", got)
		}
		want := []time.Duration{100, 200, 400, 800, 1000, 1000}
		for i := range want {
			want[i] *= time.Millisecond
		}
		if diff := cmp.Diff(want, ceilings[:len(want)]); diff != "" {
			t.Errorf("ceilings (-want +got):\n%s", diff)
		}
		dials = 0
		_, err = Attach(t.Context(), o, AttachOptions{Session: "s", Reconnect: Reconnect{For: -1}})
		if !errors.Is(err, sock.ErrNoDaemon) || dials != 1 {
			t.Errorf("never: got %v after %d attempts, want one", err, dials)
		}
	})
}

func TestReconnect_SilentDaemonIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		o := Options{Dial: func(context.Context) (sock.Conn, error) {
			dials++
			a, b := net.Pipe()
			t.Cleanup(func() { b.Close() })
			return a, nil // connected, and no hello
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := Attach(ctx, o, AttachOptions{Session: "s"}); !errors.Is(err, context.DeadlineExceeded) || dials != 1 {
			t.Errorf("for ever: got %v after %d dials, want a wait of an hour on one", err, dials)
		}
		if _, err := Attach(t.Context(), o, AttachOptions{Session: "s", Reconnect: Reconnect{For: time.Minute}}); err == nil {
			t.Error("for a minute: got no error")
		}
	})
}
