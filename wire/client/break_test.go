package client

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sessiond/wire"
	"sessiond/wire/sock"
)

// Who waits is told why before each wait, and not when nothing is tried again.
func TestAttach_OnBreakComesBeforeEachWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		dials := 0
		o := Options{Dial: func(context.Context) (sock.Conn, error) {
			dials++
			told = append(told, "dial")
			return nil, fmt.Errorf("attempt %d: %w", dials, sock.ErrNoDaemon)
		}}
		ao := AttachOptions{
			Session: "s",
			OnBreak: func(err error) {
				if !errors.Is(err, sock.ErrNoDaemon) {
					t.Errorf("got %v, want the cause", err)
				}
				told = append(told, fmt.Sprintf("break %d", dials))
			},
			Reconnect: Reconnect{For: 2500 * time.Millisecond, Min: time.Second, Max: time.Second, Jitter: func(c time.Duration) time.Duration {
				told = append(told, "wait")
				return c
			}},
		}
		if _, err := Attach(t.Context(), o, ao); !errors.Is(err, sock.ErrNoDaemon) {
			t.Errorf("got %v, want ErrNoDaemon", err)
		}
		want := []string{"dial", "break 1", "wait", "dial", "break 2", "wait", "dial", "break 3", "wait", "dial", "break 4", "wait"}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}

		told, dials = nil, 0
		ao.Reconnect.For = -1
		if _, err := Attach(t.Context(), o, ao); !errors.Is(err, sock.ErrNoDaemon) {
			t.Errorf("never: got %v, want ErrNoDaemon", err)
		}
		if diff := cmp.Diff([]string{"dial"}, told); diff != "" {
			t.Errorf("never (-want +got):\n%s", diff)
		}
	})
}

// It is told of a break in the middle too, and of no error that ends it.
func TestAttach_OnBreakIsToldOfTheCause(t *testing.T) {
	lines := sampleLines()
	d := newFakeDaemon(t, lines...)
	var causes []error
	ao := views["transcript"]
	ao.OnBreak = func(err error) { causes = append(causes, err) }
	a := attach(t, d, d.options(), ao)
	var r result
	if err := r.follow(t.Context(), a, len(lines)); err != nil || len(causes) > 0 {
		t.Fatalf("before: got %v, told of %v", err, causes)
	}
	a.link.nc.Close()
	d.add(`{"id":"10","m":[10]}`)
	if err := r.follow(t.Context(), a, len(lines)+1); err != nil {
		t.Fatal(err)
	}
	if len(causes) != 1 || !errors.Is(causes[0], ErrBroken) {
		t.Errorf("a break: told of %v, want one %v", causes, ErrBroken)
	}
	causes = nil
	ao.Session = "x"
	if _, err := Attach(testContext(t), d.options(), ao); wire.CodeOf(err) != wire.CodeUnknownSession || len(causes) > 0 {
		t.Errorf("unknown session: got %v, told of %v", err, causes)
	}
}

// Nothing to append is a question all the same: the daemon says whether the
// session is there.
func TestAppender_NothingIsAsked(t *testing.T) {
	d := newFakeDaemon(t, sampleLines()...)
	d.set(func() {
		d.onAppend = func(n int) *wire.Error {
			if n == 1 {
				return wire.Errorf(wire.CodeUnknownSession, "no session")
			}
			return nil
		}
	})
	a := NewAppender(d.options(), AppendOptions{Session: "s", Reconnect: soon})
	t.Cleanup(a.Close)
	if acks, err := a.Append(testContext(t), nil); wire.CodeOf(err) != wire.CodeUnknownSession || len(acks) > 0 {
		t.Errorf("unknown session: got %v, %v", acks, err)
	}
	if acks, err := a.Append(testContext(t), nil); err != nil || len(acks) > 0 {
		t.Errorf("known: got %v, %v, want nothing", acks, err)
	}
	if got := d.count(&d.appends); got != 2 {
		t.Errorf("the daemon was asked %d times, want twice", got)
	}
	if got := a.Head(); !got.Same(wire.Cursor{}) {
		t.Errorf("head: got %v, want none", got)
	}
	d.stop()
	nobody := NewAppender(d.options(), AppendOptions{Session: "s", Reconnect: Reconnect{For: -1}})
	t.Cleanup(nobody.Close)
	if _, err := nobody.Append(testContext(t), nil); !errors.Is(err, sock.ErrNoDaemon) {
		t.Errorf("no daemon: got %v, want %v", err, sock.ErrNoDaemon)
	}
}
