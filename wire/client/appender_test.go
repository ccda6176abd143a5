package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sessiond/wire"
	"sessiond/wire/sock"
)

func entries(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf(`{"id":"e%d","m":[%d]}`, i, i))
	}
	return out
}

// rules are both rules of idempotency.
func rules(d *fakeDaemon) map[string]AppendOptions {
	head := d.cursorAfter(len(d.lines))
	return map[string]AppendOptions{
		"ids":    {Session: "s", Reconnect: soon, BatchEntries: 3},
		"expect": {Session: "s", Reconnect: soon, BatchEntries: 3, Expect: &head},
	}
}

func TestAppender_EachOnceDespiteLostReplies(t *testing.T) {
	for _, rule := range []string{"ids", "expect"} {
		d := newFakeDaemon(t, sampleLines()...)
		want := append(sampleLines(), entries(0, 20)...)
		ao := rules(d)[rule]
		var last sock.Conn // the appender's connection; of the daemon's lock
		a := NewAppender(Options{Dial: func(ctx context.Context) (sock.Conn, error) {
			c, err := sock.Dial(ctx, d.path)
			d.set(func() { last = c })
			return c, err
		}}, ao)
		t.Cleanup(a.Close)
		// Every second append is written, but its reply is lost.
		d.set(func() {
			d.afterAck = func(n int) {
				if n%2 == 1 {
					last.Close()
				}
			}
		})
		acks, err := a.Append(testContext(t), entries(0, 20))
		if err != nil {
			t.Fatalf("%s: %v", rule, err)
		}
		d.stop() // its lines are the test's from here on
		if diff := cmp.Diff(want, d.held()); diff != "" {
			t.Errorf("%s: the file (-want +got):\n%s", rule, diff)
		}
		if len(acks) != 20 {
			t.Fatalf("%s: got %d acks, want 20", rule, len(acks))
		}
		for i, ack := range acks {
			if ack.Cursor != d.cursorAfter(len(sampleLines())+i+1) || !ack.Duplicate {
				t.Errorf("%s: ack %d: got %+v, want the cursor after it, and a duplicate", rule, i, ack)
			}
		}
		if got := a.Head(); got != d.cursorAfter(len(want)) {
			t.Errorf("%s: got head %s, want the file's", rule, got)
		}
	}
}

func TestAppender_SurvivesRestarts(t *testing.T) {
	d := newFakeDaemon(t)
	head := d.cursorAfter(0)
	a := NewAppender(d.options(), AppendOptions{Session: "s", Expect: &head, Reconnect: soon})
	defer a.Close()
	for i := range 5 {
		if _, err := a.Append(testContext(t), entries(i, i+1)); err != nil {
			t.Fatal(err)
		}
		d.stop()
		d.start()
	}
	if diff := cmp.Diff(entries(0, 5), d.held()); diff != "" {
		t.Errorf("the file (-want +got):\n%s", diff)
	}
}

func TestAppender_RetriesWhatMayPass(t *testing.T) {
	d := newFakeDaemon(t)
	d.set(func() {
		d.onAppend = func(n int) *wire.Error {
			if n < 4 {
				return wire.Errorf(wire.CodeNoSpace, "disk full").With("outcome", wire.OutcomeNone)
			}
			return nil
		}
	})
	a := NewAppender(d.options(), AppendOptions{Session: "s", Reconnect: soon})
	defer a.Close()
	if _, err := a.Append(testContext(t), entries(0, 1)); err != nil || d.count(&d.appends) != 4 {
		t.Errorf("got %v after %d appends, want success after 4", err, d.count(&d.appends))
	}
}

func TestAppender_Refusals(t *testing.T) {
	d := newFakeDaemon(t, sampleLines()...)
	other := wire.Cursor{Sequence: 1, Offset: 5}
	for name, c := range map[string]struct {
		ao      AppendOptions
		entries []string
		code    wire.Code
	}{
		"conflict":      {AppendOptions{Session: "s", Expect: &other}, entries(0, 1), wire.CodeConflict},
		"invalid UTF-8": {AppendOptions{Session: "s"}, []string{"{\"a\":\"\xff\"}"}, wire.CodeBadArgument},
		"too large":     {AppendOptions{Session: "s"}, []string{strings.Repeat("x", wire.FrameBytesMax)}, wire.CodeTooLarge},
	} {
		a := NewAppender(d.options(), c.ao)
		_, err := a.Append(testContext(t), c.entries)
		a.Close()
		if wire.CodeOf(err) != c.code {
			t.Errorf("%s: got %v, want %s", name, err, c.code)
		}
		if _, err := a.Append(t.Context(), c.entries); !errors.Is(err, ErrClosed) && wire.CodeOf(err) != c.code {
			t.Errorf("%s: after Close got %v", name, err)
		}
	}
}

func TestAppender_Batches(t *testing.T) {
	a := NewAppender(Options{}, AppendOptions{BatchBytes: 100, BatchEntries: 3})
	for name, c := range map[string]struct {
		in   []string
		want int
	}{
		"few":            {[]string{"a", "b"}, 2},
		"many":           {[]string{"a", "b", "c", "d"}, 3},
		"bytes":          {[]string{strings.Repeat("a", 60), strings.Repeat("b", 60)}, 1},
		"escapes count":  {[]string{strings.Repeat(`"`, 30), strings.Repeat(`"`, 30)}, 1},
		"one giant goes": {[]string{strings.Repeat("a", 1000)}, 1},
	} {
		if got, err := a.batch(c.in); err != nil || got != c.want {
			t.Errorf("%s: got %d, %v, want %d", name, got, err, c.want)
		}
	}
}

func TestAppendAll(t *testing.T) {
	d := newFakeDaemon(t)
	in := make(chan string)
	go func() {
		defer close(in)
		for _, e := range entries(0, 50) {
			in <- e
		}
	}()
	acked := 0
	err := AppendAll(testContext(t), d.options(), AppendOptions{Session: "s", Reconnect: soon}, in, func(acks []wire.Ack) error {
		acked += len(acks)
		return nil
	})
	if diff := cmp.Diff(entries(0, 50), d.held()); err != nil || diff != "" || acked != 50 {
		t.Errorf("got %v, %d acks, the file (-want +got):\n%s", err, acked, diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := AppendAll(ctx, d.options(), AppendOptions{Session: "s"}, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want context.Canceled", err)
	}
}
