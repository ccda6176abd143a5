package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/goleak"

	"sessiond/wire"
	"sessiond/wire/sock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeDaemon serves one session "s", kept in memory, over a real socket. Its
// lines are deltas of a message view: {"id":..,"keep":N,"amend":[..],"m":[..]}.
type fakeDaemon struct {
	t      *testing.T
	path   string
	server *sock.Server

	// perFrame is how many messages, records or raw bytes make one frame.
	perFrame int

	mu       sync.Mutex
	lines    []string
	streams  map[*fakeStream]bool
	modes    []string // of the attaches answered
	window   int      // slots of a bounded snapshot; 0: there are no limits
	attaches int
	appends  int

	// Hooks of tests, called with mu held; nil means nothing special.
	onAttach func(n int, r wire.Request) *wire.Error
	onAppend func(n int) *wire.Error
	afterAck func(n int) // the entries are written, the reply is not yet made
	mangle   func(attach int, frame []byte) []byte
}

func newFakeDaemon(t *testing.T, lines ...string) *fakeDaemon {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &fakeDaemon{t: t, path: filepath.Join(dir, "s"), lines: slices.Clone(lines), perFrame: 3, streams: map[*fakeStream]bool{}}
	d.start()
	t.Cleanup(d.stop)
	return d
}

func (d *fakeDaemon) start() {
	d.t.Helper()
	s, err := sock.Listen(context.Background(), sock.Options{Path: d.path, Handler: d, Version: "fake"})
	if err != nil {
		d.t.Fatal(err)
	}
	d.server = s
}

func (d *fakeDaemon) stop() {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := d.server.Shutdown(ctx); err != nil && !errors.Is(err, sock.ErrClosed) {
		d.t.Errorf("Shutdown: %v", err)
	}
}

// set changes what the handlers see.
func (d *fakeDaemon) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// count reads one of the daemon's counters.
func (d *fakeDaemon) count(n *int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return *n
}

// held returns the lines that the daemon has.
func (d *fakeDaemon) held() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

// options reach the daemon; a break is followed by an attempt at once.
func (d *fakeDaemon) options() Options { return Options{Path: d.path, ClientID: d.t.Name()} }

// soon tries again after a millisecond.
var soon = Reconnect{For: 20 * time.Second, Jitter: func(time.Duration) time.Duration { return time.Millisecond }}

// add appends lines as another client would.
func (d *fakeDaemon) add(lines ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.addLocked(lines...)
}

func (d *fakeDaemon) addLocked(lines ...string) {
	d.lines = append(d.lines, lines...)
	for s := range d.streams {
		s.wake()
	}
}

func (d *fakeDaemon) file() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fileOf(d.lines)
}

func fileOf(lines []string) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
	return b.String()
}

// cursorAfter is the cursor after the first n lines.
func (d *fakeDaemon) cursorAfter(n int) wire.Cursor {
	file := fileOf(d.lines[:n])
	return wire.Cursor{
		Generation: wire.Generation{1}, Sequence: wire.Sequence(n), Offset: int64(len(file)),
		Digest: wire.Digest(xxhash.Sum64String(file)),
	}
}

// change is what a line does to a message view.
type change struct {
	ID    string            `json:"id"`
	Keep  *int              `json:"keep,omitempty"`
	Amend []wire.Amendment  `json:"amend,omitempty"`
	M     []json.RawMessage `json:"m"`
}

func parseChange(line string) change {
	var c change
	if err := json.Unmarshal([]byte(line), &c); err != nil {
		panic(err)
	}
	return c
}

// viewOf is the model: the slots after n lines, as first sent and as amended.
func viewOf(lines []string) (sent, now []json.RawMessage) {
	for _, l := range lines {
		c := parseChange(l)
		if c.Keep != nil {
			sent, now = sent[:*c.Keep], now[:*c.Keep]
		}
		for _, a := range c.Amend {
			now[a.Index] = a.Message
		}
		sent, now = append(sent, c.M...), append(now, c.M...)
	}
	return sent, now
}

// Handle implements sock.Handler.
func (d *fakeDaemon) Handle(_ context.Context, r wire.Request) (wire.Response, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch r.Type {
	case wire.CmdAttach:
		return d.attachLocked(r)
	case wire.CmdAppend:
		return d.appendLocked(r)
	case wire.CmdList:
		return wire.Response{Result: page(r)}, nil
	case wire.CmdCreate:
		return wire.Response{Result: wire.CreateResult{Session: "owned:" + r.SessionID, ID: r.SessionID}}, nil
	case wire.CmdRead:
		file := fileOf(d.lines)
		from := min(r.From, int64(len(file)))
		data := file[from:min(from+10, int64(len(file)))]
		return wire.Response{Result: wire.ReadResult{Data: []byte(data), More: from+int64(len(data)) < r.Ref.Bytes}}, nil
	case wire.CmdStatus:
		return wire.Response{Result: map[string]int{"sessions": 1}}, nil
	}
	return wire.Response{}, wire.Errorf(wire.CodeUnknownCommand, "%s", r.Type)
}

// page lists five sessions, two at a time.
func page(r wire.Request) wire.ListResult {
	first := 0
	_, _ = fmt.Sscanf(r.After, "n%d", &first)
	var out wire.ListResult
	for i := first; i < min(first+2, 5); i++ {
		out.Sessions = append(out.Sessions, wire.Session{ID: fmt.Sprint(i)})
	}
	if first+2 < 5 {
		out.More, out.Next = true, fmt.Sprintf("n%d", first+2)
	}
	return out
}

func (d *fakeDaemon) appendLocked(r wire.Request) (wire.Response, error) {
	d.appends++
	if d.onAppend != nil {
		if err := d.onAppend(d.appends); err != nil {
			return wire.Response{}, err
		}
	}
	res := wire.AppendResult{}
	at := len(d.lines)
	if r.Expect != nil {
		if at = int(r.Expect.Sequence); at > len(d.lines) || !same(d.cursorAfter(at), *r.Expect) {
			return wire.Response{}, wire.Errorf(wire.CodeConflict, "expected another head")
		}
	}
	for _, e := range r.Entries {
		held := -1
		if r.Expect != nil && at < len(d.lines) {
			if d.lines[at] != e {
				return wire.Response{}, wire.Errorf(wire.CodeConflict, "line %d differs", at+1)
			}
			held = at
		}
		for i, l := range d.lines {
			if r.Expect == nil && parseChange(l).ID == parseChange(e).ID {
				held = i
			}
		}
		ack := wire.Ack{Duplicate: held >= 0}
		if held < 0 {
			d.addLocked(e)
			held = len(d.lines) - 1
		}
		at++
		ack.Cursor = d.cursorAfter(held + 1)
		res.Acks = append(res.Acks, ack)
	}
	res.Head = d.cursorAfter(len(d.lines))
	if d.afterAck != nil {
		d.afterAck(d.appends)
	}
	return wire.Response{Result: res}, nil
}

func (d *fakeDaemon) attachLocked(r wire.Request) (wire.Response, error) {
	d.attaches++
	if r.Session != "s" {
		return wire.Response{}, wire.Errorf(wire.CodeUnknownSession, "no session %q", r.Session)
	}
	if d.onAttach != nil {
		if err := d.onAttach(d.attaches, r); err != nil {
			return wire.Response{}, err
		}
	}
	s := &fakeStream{d: d, r: r, attach: d.attaches, live: r.Live == nil || *r.Live}
	res := wire.AttachResult{Attachment: r.Attachment, Session: "s", RulesRevision: "fake/1", Head: d.cursorAfter(len(d.lines))}
	if c := r.Resume; c != nil && int(c.Sequence) <= len(d.lines) && c.Same(d.cursorAfter(int(c.Sequence))) {
		res.Mode = wire.ModeTail
		s.sent = int(c.Sequence)
		s.tail()
	} else {
		res.Mode = wire.ModeSnapshot
		cut, first := len(d.lines), 0
		if p := r.Position; p != nil && int(p.Cut.Sequence) <= len(d.lines) && p.Cut.Same(d.cursorAfter(int(p.Cut.Sequence))) {
			cut, first = int(p.Cut.Sequence), p.Index
		}
		s.sent = cut
		s.snapshot(cut, first)
		s.tail()
	}
	d.modes = append(d.modes, res.Mode)
	return wire.Response{Result: res, Stream: s}, nil
}

// fakeStream is an attachment: frames made at attach, then the lines that are
// added.
type fakeStream struct {
	d      *fakeDaemon
	r      wire.Request
	attach int
	live   bool
	sent   int // lines
	frames [][]byte
	notify func()
}

func (s *fakeStream) push(head any, body ...string) {
	line, err := wire.AppendLine(nil, head)
	if err != nil {
		panic(err)
	}
	line = append(line, strings.Join(body, "")...)
	if s.d.mangle != nil {
		line = s.d.mangle(s.attach, line)
	}
	s.frames = append(s.frames, line)
}

func (s *fakeStream) snapshot(cut, first int) {
	d, c := s.d, s.d.cursorAfter(cut)
	id := wire.SnapshotID(uint64(c.Digest) ^ uint64(len(s.r.View)))
	begin := wire.SnapshotBegin{
		Type: wire.TypeSnapshotBegin, Attachment: s.r.Attachment, SnapshotID: id, View: s.r.View, RulesRevision: "fake/1",
		Cut: c, TargetChunkBytes: 100, FirstIndex: first, Purpose: wire.PurposeAttach,
	}
	if sent, _ := viewOf(d.lines[:cut]); s.r.Bounded != "" && d.window > 0 && len(sent) > d.window {
		begin.Bounded = &wire.Bounded{Mode: s.r.Bounded, First: len(sent) - d.window, Unit: "records", Limit: int64(d.window), Seen: int64(cut)}
	}
	s.push(begin)
	if s.r.Encoding == wire.EncodingRaw {
		s.records(0, cut)
		s.push(wire.SnapshotEnd{Type: wire.TypeSnapshotEnd, Attachment: s.r.Attachment, SnapshotID: id, Cut: c})
		return
	}
	sent, now := viewOf(d.lines[:cut])
	if s.r.View == wire.ViewRecords {
		sent = nil
		for _, l := range d.lines[:cut] {
			sent = append(sent, json.RawMessage(l))
		}
		now = sent
	}
	slot := begin.Bounded.FirstSlot()
	sent, now = sent[slot:], now[slot:]
	all, index := xxhash.New(), 0
	for at := 0; at < len(sent); at += d.perFrame {
		messages, _ := json.Marshal(sent[at:min(at+d.perFrame, len(sent))])
		digest := xxhash.Sum64(messages)
		fmt.Fprintf(all, "%s", be(digest))
		if index >= first {
			s.push(wire.SnapshotChunk{
				Type: wire.TypeSnapshotChunk, Attachment: s.r.Attachment, SnapshotID: id, Index: index,
				Digest: wire.Digest(digest), Meta: json.RawMessage("[]"), Messages: messages,
			})
		}
		index++
	}
	amend := wire.SnapshotAmend{Type: wire.TypeSnapshotAmend, Attachment: s.r.Attachment, SnapshotID: id}
	for i := range sent {
		if !bytes.Equal(sent[i], now[i]) {
			amend.Amendments = append(amend.Amendments, wire.Amendment{Index: slot + i, Message: now[i]})
		}
	}
	if len(amend.Amendments) > 0 {
		s.push(amend)
	}
	s.push(wire.SnapshotEnd{
		Type: wire.TypeSnapshotEnd, Attachment: s.r.Attachment, SnapshotID: id, ChunkCount: index, MessageCount: len(sent),
		Digest: wire.Digest(all.Sum64()), Cut: c, AmendmentCount: len(amend.Amendments),
	})
}

func be(n uint64) []byte {
	b := make([]byte, 8)
	for i := range b {
		b[i] = byte(n >> (56 - 8*i))
	}
	return b
}

// tail pushes what follows s.sent, and live at its end.
func (s *fakeStream) tail() {
	s.more(true)
	s.push(wire.Live{Type: wire.TypeLive, Attachment: s.r.Attachment, Cursor: s.d.cursorAfter(s.sent)})
}

func (s *fakeStream) more(replayed bool) {
	d := s.d
	if s.r.Encoding == wire.EncodingRaw {
		s.records(s.sent, len(d.lines))
		s.sent = len(d.lines)
		return
	}
	for ; s.sent < len(d.lines); s.sent++ {
		e := wire.Event{Type: wire.TypeEvent, Attachment: s.r.Attachment, Cursor: d.cursorAfter(s.sent + 1), Replayed: replayed}
		if s.r.View == wire.ViewRecords {
			e.Record = json.RawMessage(d.lines[s.sent])
		} else {
			c := parseChange(d.lines[s.sent])
			_, now := viewOf(d.lines[:s.sent+1])
			have := len(now)
			e.Keep, e.Amended, e.Have = c.Keep, c.Amend, &have
			e.Messages, _ = json.Marshal(c.M)
		}
		s.push(e)
	}
}

// records pushes lines [from, to) as bodies of perFrame*10 bytes.
func (s *fakeStream) records(from, to int) {
	size := 10 * s.d.perFrame
	start, end := int(s.d.cursorAfter(from).Offset), int(s.d.cursorAfter(to).Offset)
	file := fileOf(s.d.lines)
	for at := start; at < end; {
		n := min(size, end-at)
		body := file[at : at+n]
		count := strings.Count(body, "\n")
		s.push(wire.Records{
			Type: wire.TypeRecords, Attachment: s.r.Attachment, First: wire.Sequence(from + 1), Count: int64(count),
			Bytes: n, More: body[n-1] != '\n', Cursor: s.d.cursorAfter(from + count),
		}, body)
		from, at = from+count, at+n
	}
}

// Start implements wire.Stream.
func (s *fakeStream) Start(wake func()) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.notify = wake
	s.d.streams[s] = true
}

// Next implements wire.Stream.
func (s *fakeStream) Next() (wire.Frame, bool, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if len(s.frames) == 0 && s.live {
		s.more(false)
	}
	if len(s.frames) == 0 {
		if !s.live {
			return wire.Frame{}, false, io.EOF
		}
		return wire.Frame{}, false, nil
	}
	f := s.frames[0]
	s.frames = s.frames[1:]
	return wire.Frame{Head: f}, true, nil
}

func (s *fakeStream) wake() { s.notify() }

// Close implements wire.Stream.
func (s *fakeStream) Close() {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	delete(s.d.streams, s)
}

// sampleLines is a session with appends, amendments, rewinds and a line of
// many bytes.
func sampleLines() []string {
	long := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("long "), 30))
	return []string{
		`{"id":"1","m":[{"a":1}]}`,
		`{"id":"2","m":[{"a":"<&> \u2028 ]}\""},"two"]}`,
		`{"id":"3","m":[]}`,
		`{"id":"4","amend":[{"index":0,"message":{"a":"changed"}},{"index":1,"message":null}],"m":[4]}`,
		`{"id":"5","m":["` + long + `"]}`,
		`{"id":"6","keep":3,"amend":[{"index":2,"message":"again"}],"m":[6,66]}`,
		`{"id":"7","m":[7]}`,
		`{"id":"8","keep":0,"m":["new root",{"messages":[1]}]}`,
		`{"id":"9","m":[9,10,11,12]}`,
	}
}
