package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sessiond/wire"
	"sessiond/wire/sock"
)

// result is what a consumer makes of an attachment's items.
type result struct {
	raws   bool // encoding raw: there are no slots
	slots  Slots
	raw    []byte
	begins int // times it had to start over
	live   bool
	items  int
}

func (r *result) apply(item Item) error {
	r.items++
	switch f := item.(type) {
	case *wire.SnapshotBegin:
		if f.FirstIndex == 0 {
			r.begins++
			r.raw = nil
		}
	case *Records:
		r.raws = true
		r.raw = append(r.raw, f.Body...)
	case *wire.Live:
		r.live = true
	}
	if r.raws {
		return nil
	}
	return r.slots.Apply(item)
}

// text is the view, spelled one way.
func (r *result) text() string {
	b, err := json.Marshal(r.slots.Messages())
	if err != nil {
		panic(err)
	}
	return string(b) + string(r.raw)
}

// follow consumes items until the place is live after `lines` records.
func (r *result) follow(ctx context.Context, a *Attachment, lines int) error {
	for !r.live || a.Place().Cursor.Sequence < wire.Sequence(lines) {
		item, err := a.Next(ctx)
		if err != nil {
			return err
		}
		if err := r.apply(item); err != nil {
			return err
		}
		if p := a.Place(); p.Have != nil && *p.Have != r.slots.Len() {
			return fmt.Errorf("place has %d slots, the consumer %d", *p.Have, r.slots.Len())
		}
	}
	return nil
}

// wantView is the model's text of a view of lines.
func wantView(lines []string, o AttachOptions) string {
	var r result
	if o.Encoding == wire.EncodingRaw {
		r.raw = []byte(fileOf(lines))
		return r.text()
	}
	_, r.slots.slots = viewOf(lines)
	if o.View == wire.ViewRecords {
		r.slots.slots = nil
		for _, l := range lines {
			r.slots.slots = append(r.slots.slots, json.RawMessage(l))
		}
	}
	for i, m := range r.slots.slots {
		r.slots.slots[i] = present(m)
	}
	return r.text()
}

var views = map[string]AttachOptions{
	"transcript":   {Session: "s", View: wire.ViewTranscript},
	"records json": {Session: "s", View: wire.ViewRecords},
	"records raw":  {Session: "s", View: wire.ViewRecords, Encoding: wire.EncodingRaw},
}

// testContext ends a test that hangs.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func attach(t *testing.T, d *fakeDaemon, o Options, ao AttachOptions) *Attachment {
	t.Helper()
	ao.Reconnect = soon
	a, err := Attach(testContext(t), o, ao)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func TestAttach_SnapshotThenLive(t *testing.T) {
	lines := sampleLines()
	for name, ao := range views {
		for start := range lines { // also from an empty file, and amid amendments
			d := newFakeDaemon(t, lines[:start]...)
			a := attach(t, d, d.options(), ao)
			var r result
			if err := r.follow(t.Context(), a, start); err != nil {
				t.Fatalf("%s, %d lines: %v", name, start, err)
			}
			if diff := cmp.Diff(wantView(lines[:start], ao), r.text()); diff != "" {
				t.Errorf("%s, %d lines (-want +got):\n%s", name, start, diff)
			}
			d.add(lines[start:]...)
			if err := r.follow(t.Context(), a, len(lines)); err != nil {
				t.Fatalf("%s, live after %d lines: %v", name, start, err)
			}
			if diff := cmp.Diff(wantView(lines, ao), r.text()); diff != "" {
				t.Errorf("%s, live after %d lines (-want +got):\n%s", name, start, diff)
			}
			if r.begins != 1 {
				t.Errorf("%s: got %d snapshots, want 1", name, r.begins)
			}
			a.Close()
			d.stop()
		}
	}
}

// dropping makes connections that die after so many bytes of input each; the
// last limit is for all further ones, 0 means none.
type dropping struct {
	mu     sync.Mutex
	path   string
	limits []int
	dials  int
	first  []byte // what the first connection received
}

func (d *dropping) dial(ctx context.Context) (sock.Conn, error) {
	c, err := sock.Dial(ctx, d.path)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dials++
	return &droppedConn{Conn: c, d: d, index: d.dials - 1, left: d.limits[min(d.dials, len(d.limits))-1]}, nil
}

type droppedConn struct {
	net.Conn
	d     *dropping
	index int
	left  int
}

func (c *droppedConn) Read(p []byte) (int, error) {
	if c.left < 0 {
		return 0, syscall.ECONNRESET
	}
	if c.left > 0 {
		p = p[:min(len(p), c.left)]
	}
	n, err := c.Conn.Read(p)
	if c.index == 0 {
		c.d.mu.Lock()
		c.d.first = append(c.d.first, p[:n]...)
		c.d.mu.Unlock()
	}
	if c.left > 0 {
		if c.left -= n; c.left == 0 {
			c.left = -1
			c.Close()
		}
	}
	return n, err
}

// TestAttach_DroppedAnywhere breaks the first connection before, at and after
// the end of every line and in many other places: the consumer must not see
// the difference.
func TestAttach_DroppedAnywhere(t *testing.T) {
	lines := sampleLines()
	const before = 7 // lines when the first connection attaches
	step := 11
	if testing.Short() || raceEnabled {
		step = 101
	}
	for name, ao := range views {
		t.Run(name, func(t *testing.T) {
			d := newFakeDaemon(t, lines[:before]...)
			run := func(limits ...int) (*result, *dropping) {
				t.Helper()
				d.set(func() { d.lines = slices.Clone(lines[:before]) })
				drop := &dropping{path: d.path, limits: limits}
				a := attach(t, d, Options{Dial: drop.dial}, ao)
				defer a.Close()
				r := new(result)
				if err := r.follow(t.Context(), a, before); err != nil {
					t.Fatalf("limits %v: %v", limits, err)
				}
				d.add(lines[before:]...)
				if err := r.follow(t.Context(), a, len(lines)); err != nil {
					t.Fatalf("limits %v, live: %v", limits, err)
				}
				return r, drop
			}
			whole, drop := run(0)
			if want := wantView(lines, ao); whole.text() != want {
				t.Fatalf("undropped: got %s, want %s", whole.text(), want)
			}
			for cut := 1; cut <= len(drop.first); cut++ {
				atEnd := bytes.IndexByte(drop.first[max(0, cut-2):min(cut+1, len(drop.first))], '\n') >= 0
				if !atEnd && cut%step != 0 {
					continue // beside the ends of lines some bytes will do
				}
				r, _ := run(cut, 0)
				if r.text() != whole.text() {
					t.Fatalf("dropped after %d bytes: got %s\nwant %s", cut, r.text(), whole.text())
				}
				if r.begins != 1 && !(ao.Encoding == wire.EncodingRaw && r.begins == 2) {
					t.Fatalf("dropped after %d bytes: got %d snapshots, want 1", cut, r.begins)
				}
			}
		})
	}
}

// TestAttach_DroppedAgainAndAgain lets every connection die; each gets a bit
// further than the last.
func TestAttach_DroppedAgainAndAgain(t *testing.T) {
	lines := sampleLines()
	for name, ao := range views {
		d := newFakeDaemon(t, lines...)
		limits := []int{}
		for n := 700; n < 4000; n += 13 {
			limits = append(limits, n)
		}
		drop := &dropping{path: d.path, limits: append(limits, 0)}
		a := attach(t, d, Options{Dial: drop.dial}, ao)
		var r result
		if err := r.follow(t.Context(), a, len(lines)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(wantView(lines, ao), r.text()); diff != "" {
			t.Errorf("%s, %d connections (-want +got):\n%s", name, drop.dials, diff)
		}
		if drop.dials < 2 {
			t.Errorf("%s: got %d connections, want several", name, drop.dials)
		}
	}
}

// TestAttach_OtherProcessGoesOn stops after every step, and a new Attachment
// goes on at the place as a cursor file has it.
func TestAttach_OtherProcessGoesOn(t *testing.T) {
	lines := sampleLines()
	for name, ao := range views {
		d := newFakeDaemon(t, lines[:7]...)
		d.set(func() { d.perFrame = 2 })
		var r result
		place := Place{}
		for stops := 0; place.Cursor.Sequence < wire.Sequence(len(lines)); stops++ {
			from := ao
			var err error
			if from.From, err = ParsePlace(place.String() + "\n"); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			a := attach(t, d, d.options(), from)
			for before := place.String(); a.Place().String() == before; {
				item, err := a.Next(t.Context())
				if err == nil {
					err = r.apply(item)
				}
				if err != nil {
					t.Fatalf("%s, after %d stops: %v", name, stops, err)
				}
			}
			place = a.Place()
			a.Close()
			if ao.Encoding == wire.EncodingRaw {
				r.raw = r.raw[:place.Cursor.Offset] // half a record comes again
			}
			if place.Cursor.Sequence == 7 && len(d.file()) < len(fileOf(lines)) {
				d.add(lines[7:]...)
			}
			if stops > 100 {
				t.Fatalf("%s: no progress at %s", name, place)
			}
		}
		if diff := cmp.Diff(wantView(lines, ao), r.text()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAttach_SurvivesRestarts(t *testing.T) {
	lines := sampleLines()
	d := newFakeDaemon(t, lines[:3]...)
	a := attach(t, d, d.options(), AttachOptions{Session: "s", View: wire.ViewTranscript})
	var r result
	for n := 3; n <= len(lines); n++ {
		if err := r.follow(t.Context(), a, n); err != nil {
			t.Fatal(err)
		}
		d.stop() // says goodbye
		d.start()
		if n < len(lines) {
			d.add(lines[n])
		}
	}
	if diff := cmp.Diff(wantView(lines, AttachOptions{View: wire.ViewTranscript}), r.text()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	d.stop()
	for i, mode := range d.modes {
		if want := map[bool]string{true: wire.ModeSnapshot, false: wire.ModeTail}[i == 0]; mode != want {
			t.Errorf("attach %d: got mode %s, want %s", i, mode, want)
		}
	}
}

// A window keeps the indexes of the whole view, over restarts and cuts.
func TestAttach_Bounded(t *testing.T) {
	lines := sampleLines()
	d := newFakeDaemon(t, lines[:5]...)
	d.window = 2
	a := attach(t, d, d.options(), AttachOptions{Session: "s", View: wire.ViewTranscript, Bounded: wire.BoundedWindow})
	var r result
	for n := 5; n <= len(lines); n++ {
		if err := r.follow(t.Context(), a, n); err != nil {
			t.Fatal(err)
		}
		_, now := viewOf(lines[:n])
		want := Slots{first: r.slots.First()}
		for _, m := range now[want.first:] {
			want.slots = append(want.slots, present(m))
		}
		if diff := cmp.Diff(texts(&want), texts(&r.slots)); diff != "" || n == 5 && want.first != 3 || n == len(lines) && want.first != 0 {
			t.Errorf("after %d lines, from slot %d on (-want +got):\n%s", n, want.first, diff)
		}
		d.stop()
		d.start()
		if n < len(lines) {
			d.add(lines[n])
		}
	}
}

// A part that was not accepted would pass for the whole.
func TestAttach_BoundedUnasked(t *testing.T) {
	tr := newTracker(wire.ViewTranscript, false, "", Place{})
	var corrupt *CorruptStreamError
	if _, err := tr.begin(&wire.SnapshotBegin{Bounded: &wire.Bounded{Mode: wire.BoundedWindow, First: 3}}); !errors.As(err, &corrupt) {
		t.Errorf("got %v, want a corrupt stream", err)
	}
	for _, o := range []AttachOptions{
		{Session: "s", View: wire.ViewRecords, Bounded: wire.BoundedWindow},
		{Session: "s", View: wire.ViewContext, Bounded: "half"},
	} {
		if _, err := Attach(t.Context(), Options{}, o); wire.CodeOf(err) != wire.CodeBadArgument {
			t.Errorf("%+v: got %v, want %s", o, err, wire.CodeBadArgument)
		}
	}
}

func TestAttach_RewrittenStartsOver(t *testing.T) {
	lines := sampleLines()
	d := newFakeDaemon(t, lines...)
	for name, ao := range views {
		d.set(func() { d.lines = lines })
		drop := &dropping{path: d.path, limits: []int{0}}
		a := attach(t, d, Options{Dial: drop.dial}, ao)
		var r result
		if err := r.follow(t.Context(), a, len(lines)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		d.set(func() { d.lines = lines[4:5] })
		a.link.nc.Close() // a break
		r.live = false
		if err := r.follow(t.Context(), a, 1); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(wantView(lines[4:5], ao), r.text()); diff != "" || r.begins != 2 {
			t.Errorf("%s: got %d snapshots, want 2; (-want +got):\n%s", name, r.begins, diff)
		}
	}
}

func TestAttach_RetriesWhatMayPass(t *testing.T) {
	d := newFakeDaemon(t, sampleLines()...)
	codes := []wire.Code{wire.CodeSessionStarting, wire.CodeOverloaded, wire.CodeBusy}
	d.set(func() {
		d.onAttach = func(n int, _ wire.Request) *wire.Error {
			if n <= len(codes) {
				return wire.Errorf(codes[n-1], "later")
			}
			return nil
		}
	})
	a := attach(t, d, d.options(), views["transcript"])
	if item, err := a.Next(t.Context()); err != nil || item.(*wire.AttachResult).Mode != wire.ModeSnapshot {
		t.Errorf("got %v, %v, want an attach", item, err)
	}
	if got := d.count(&d.attaches); got != len(codes)+1 {
		t.Errorf("got %d attaches, want %d", got, len(codes)+1)
	}
}

func TestAttach_PermanentErrorsEndIt(t *testing.T) {
	d := newFakeDaemon(t)
	for name, c := range map[string]struct {
		o    Options
		ao   AttachOptions
		code wire.Code
	}{
		"unknown session":      {d.options(), AttachOptions{Session: "x"}, wire.CodeUnknownSession},
		"no session":           {d.options(), AttachOptions{}, wire.CodeBadArgument},
		"unknown view":         {d.options(), AttachOptions{Session: "s", View: "x"}, wire.CodeBadArgument},
		"raw transcript":       {d.options(), AttachOptions{Session: "s", View: wire.ViewTranscript, Encoding: wire.EncodingRaw}, wire.CodeBadArgument},
		"now, transcript":      {d.options(), AttachOptions{Session: "s", View: wire.ViewTranscript, Now: true}, wire.CodeBadArgument},
		"cursor without have":  {d.options(), AttachOptions{Session: "s", View: wire.ViewContext, From: Place{Cursor: wire.Cursor{Sequence: 1, Offset: 2}}}, wire.CodeBadArgument},
		"position, other view": {d.options(), AttachOptions{Session: "s", From: Place{Position: &wire.Position{View: wire.ViewContext}}}, wire.CodeBadArgument},
		"small frames":         {Options{Path: d.path, FrameBytes: 1}, AttachOptions{Session: "s"}, wire.CodeBadArgument},
	} {
		_, err := Attach(testContext(t), c.o, c.ao)
		if wire.CodeOf(err) != c.code {
			t.Errorf("%s: got %v, want %s", name, err, c.code)
		}
	}
}

func TestAttach_Now(t *testing.T) {
	lines := sampleLines()
	d := newFakeDaemon(t, lines[:4]...)
	ao := views["records json"]
	ao.Now = true
	a := attach(t, d, d.options(), ao)
	var r result
	if err := r.follow(t.Context(), a, 4); err != nil {
		t.Fatal(err)
	}
	d.add(lines[4])
	if err := r.follow(t.Context(), a, 5); err != nil {
		t.Fatal(err)
	}
	if want := wantView(lines[4:5], ao); r.text() != want || r.begins != 0 {
		t.Errorf("got %s and %d snapshots, want %s and none", r.text(), r.begins, want)
	}
}

func TestAttach_Once(t *testing.T) {
	d := newFakeDaemon(t, sampleLines()...)
	for name, ao := range views {
		ao.Once = true
		a := attach(t, d, d.options(), ao)
		var r result
		for item, err := range a.Frames(testContext(t)) {
			if err == nil {
				err = r.apply(item)
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if want := wantView(sampleLines(), ao); r.text() != want {
			t.Errorf("%s: got %s, want %s", name, r.text(), want)
		}
		if _, err := a.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("%s: after the end got %v, want io.EOF", name, err)
		}
	}
}

func TestAttach_OnFrameSeesLinesAndBodies(t *testing.T) {
	d := newFakeDaemon(t, sampleLines()...)
	ao := views["records raw"]
	ao.Once = true
	var raw strings.Builder
	types := map[string]int{}
	ao.OnFrame = func(line, body []byte) {
		types[wire.FrameType(line)]++
		raw.Write(body)
	}
	a := attach(t, d, d.options(), ao)
	for _, err := range a.Frames(testContext(t)) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if raw.String() != d.file() {
		t.Errorf("got bodies %q, want the file", raw.String())
	}
	if types[wire.TypeSnapshotBegin] != 1 || types[wire.TypeLive] != 1 || types[wire.TypeRecords] < 2 {
		t.Errorf("got frames %v", types)
	}
}

func TestAttach_ContextEndsAWaitOnly(t *testing.T) {
	d := newFakeDaemon(t, sampleLines()[:2]...)
	a := attach(t, d, d.options(), views["transcript"])
	var r result
	if err := r.follow(t.Context(), a, 2); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(5*time.Millisecond, cancel)
	if item, err := a.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, %v, want context.Canceled", item, err)
	}
	d.add(sampleLines()[2:]...)
	if err := r.follow(t.Context(), a, 9); err != nil {
		t.Fatal(err)
	}
	if want := wantView(sampleLines(), views["transcript"]); r.text() != want {
		t.Errorf("got %s, want %s", r.text(), want)
	}
}
