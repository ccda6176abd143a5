package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/wire"
)

// modelClient is a client that keeps what it has across attachments.
type modelClient struct {
	m        *model
	name     string // as it asks for it
	key      string // of the session that it was given last
	f        *follower
	attached bool
	refused  error // why it could not attach, last
	drained  bool  // nothing more came
	goesOn   bool  // attached inside a snapshot
	joined   []byte
	joins    int // of the slots: those that are joined
}

func (m *model) client() *modelClient {
	view := []wire.Command{
		{View: wire.ViewTranscript},
		{View: wire.ViewContext},
		{View: wire.ViewRecords},
		{View: wire.ViewRecords, Encoding: wire.EncodingRaw},
	}[m.rng.IntN(4)]
	name := modelNames[m.rng.IntN(len(modelNames))]
	if _, there := m.d.content(aliasOf(name)); there && m.rng.IntN(3) == 0 {
		name = aliasOf(name)
	}
	return m.clientOf(name, view)
}

func (m *model) clientOf(name string, view wire.Command) *modelClient {
	view.Session = followedRoot + ":" + name
	c := &modelClient{m: m, name: name, key: view.Session, f: &follower{t: m.t, command: view}}
	c.attach()
	return c
}

func (c *modelClient) String() string {
	return fmt.Sprintf("client of %s (%s %s) at %v, %d slots, %d bytes, attached %v, live %v, refused: %v, frames %v",
		c.key, c.f.command.View, c.f.command.Encoding, c.f.cursor, len(c.f.slots), c.f.raw.Len(), c.attached, c.f.live, c.refused,
		c.f.frames[max(0, len(c.f.frames)-12):])
}

// path is the name that the client's session has.
func (c *modelClient) path() string { return strings.TrimPrefix(c.key, followedRoot+":") }

func (c *modelClient) isRaw() bool { return c.f.command.Encoding == wire.EncodingRaw }

func (c *modelClient) detach() {
	if c.attached {
		c.f.st.Close()
		c.attached = false
	}
}

// resume is the command that goes on from what the client has.
func (c *modelClient) resume() wire.Command {
	f := c.f
	cmd := f.resume()
	if c.isRaw() && f.cursor.Offset > 0 { // also inside a snapshot
		f.raw.Truncate(int(f.cursor.Offset))
		cursor := f.cursor
		cmd.Resume = &cursor
	}
	return cmd
}

// attach goes on, and is false where that is refused as it may be for now.
func (c *modelClient) attach() bool {
	c.m.t.Helper()
	cmd, rules := c.resume(), c.f.result.RulesRevision
	err := c.f.attach(c.m.w, cmd)
	if c.refused = err; err != nil {
		c.m.stats.Refused++
		var e *wire.Error
		if !errors.As(err, &e) || !slices.Contains([]wire.Code{
			wire.CodeUnknownSession, wire.CodeSessionGone, wire.CodeUnstable, wire.CodeSourceChanged,
		}, e.Code) {
			c.fail("attach by %+v: %v", cmd, err)
		}
		if _, there := c.m.d.content(c.name); !there {
			return false
		}
		if _, _, upset := c.m.d.past(c.name); !upset {
			c.fail("refused, though the file did no more than grow")
		}
		return false
	}
	c.m.stats.Attached++
	c.attached, c.drained, c.key = true, false, c.f.result.Session
	wake := func() {
		select {
		case c.m.wake <- struct{}{}:
		default:
		}
	}
	c.f.st.Start(wake)
	c.goesOn = cmd.Position != nil && c.f.result.Reason == nil
	switch {
	case c.f.result.Mode == wire.ModeTail:
		c.m.stats.Tails++
	case c.goesOn:
		c.m.stats.Positions++
	default:
		// By an alias that parted from its file the client may have had another.
		if _, _, upset := c.m.d.past(c.path()); !upset && c.hasBegun(cmd) && (cmd.Resume != nil || cmd.Position != nil) && rules == c.f.result.RulesRevision {
			c.fail("it does not go on (%s) by %+v, though the file did no more than grow", c.f.reason(), cmd)
		}
		c.forget()
	}
	c.check()
	return true
}

// join puts the records together that it has.
func (c *modelClient) join() []byte {
	c.m.t.Helper()
	c.joined = append(c.joined, joinRecords(c.m.t, c.f.slots[c.joins:])...)
	c.joins = len(c.f.slots)
	return c.joined
}

func (c *modelClient) forget() {
	c.joined, c.joins = nil, 0
	c.f.slots, c.f.have, c.f.cursor = nil, 0, wire.Cursor{}
	c.f.raw.Reset()
}

// pull takes some frames, and looks at what it has after each.
func (c *modelClient) pull(n int) {
	c.m.t.Helper()
	c.drained = false
	for range n {
		fr, ok, err := c.f.st.Next()
		switch {
		case errors.Is(err, io.EOF):
			if c.f.removed == nil {
				c.fail("over, but not removed")
			}
			c.m.stats.Removed++
			c.detach()
			c.f.removed = nil
			if c.m.rng.IntN(2) == 0 { // else it tries to go on in what comes
				c.forget()
			}
			return
		case err != nil:
			c.broken(err)
			return
		case !ok:
			c.drained = true
			c.check()
			return
		}
		c.take(fr)
		c.check()
	}
}

// broken is the end of the connection: the client resumes at its cursor.
func (c *modelClient) broken(err error) {
	c.m.t.Helper()
	c.m.stats.Broken++
	if _, _, upset := c.m.d.past(c.path()); !upset {
		c.fail("broken by %v, though the file did no more than grow", err)
	}
	c.detach()
}

func (c *modelClient) take(fr wire.Frame) {
	c.m.t.Helper()
	c.m.stats.Frames++
	f := c.f
	f.take(fr)
	if f.slots == nil {
		c.joined, c.joins = nil, 0
	}
	switch typ := f.frames[len(f.frames)-1]; {
	case typ == wire.TypeSnapshotFailed:
		f.raw.Reset()
	case typ == wire.TypeSnapshotBegin && f.begin.Purpose == wire.PurposeReplacement:
		c.m.stats.Replaced++
		if f.begin.FirstIndex != 0 {
			c.fail("a replacement begins in the middle: %+v", f.begin)
		}
	default:
		return
	}
	if f.begin.Reason != nil && *f.begin.Reason == wire.ReasonExpired {
		return // the file was too short to tell its dialect
	}
	if _, _, upset := c.m.d.past(c.path()); !upset {
		c.fail("replaced or failed, though the file did no more than grow: %+v %+v", f.begin, f.failed)
	}
}

// check holds what the client has against the contents that there were.
func (c *modelClient) check() {
	c.m.t.Helper()
	if c.f.command.View == wire.ViewRecords {
		c.checkRecords()
	} else {
		c.checkMessages()
	}
}

// checkRecords: the bytes are those of the cursor, and the beginning of one
// content. Where bytes were changed in place behind a reader's back, its bytes
// are of one content and then of a later one, until that is noticed.
func (c *modelClient) checkRecords() {
	c.m.t.Helper()
	f := c.f
	if c.m.large && !c.drained {
		return // it takes long
	}
	got := f.raw.Bytes()
	if !c.isRaw() {
		got = c.join()
	} else if at := int(f.cursor.Offset); at <= len(got) && !bytes.Contains(got[at:], []byte{'\n'}) {
		got = got[:at] // a part of a record may follow
	}
	inside := !c.isRaw() && (f.snapshot != nil || c.goesOn && f.count(wire.TypeSnapshotBegin) == 0) // the cursor comes at the snapshot's end
	if at := f.cursor; !inside && (int64(len(got)) != at.Offset ||
		at.Offset > 0 && (wire.Digest(xxhash.Sum64(got)) != at.Digest || int(at.Sequence) != bytes.Count(got, []byte{'\n'}))) {
		c.fail("the cursor is not that of the %d bytes of digest %016x that were sent", len(got), xxhash.Sum64(got))
	}
	contents, smudged, _ := c.m.d.past(c.path())
	spliced := 0 // bytes that the contents explain, one after another
	for _, content := range contents {
		if content.begins(got) {
			return
		}
		for spliced < min(len(got), len(content.now)) && got[spliced] == content.now[spliced] {
			spliced++
		}
	}
	if smudged && spliced == len(got) {
		c.m.stats.Splices++
		return
	}
	c.fail("%d bytes that the file never held (in place: %v, explained up to %d): …%q", len(got), smudged, spliced,
		got[max(0, spliced-60):min(len(got), spliced+60)])
}

// checkMessages: a client that has all there was for it has the messages of
// its cursor's content. A cursor of no content that there was is one of two, as
// above.
func (c *modelClient) checkMessages() {
	c.m.t.Helper()
	f := c.f
	if !c.drained || !c.attached || !f.live {
		return
	}
	if st := f.st.(*stream); st.pass != nil || st.snap != nil || st.doubt.err != nil {
		return
	}
	contents, smudged, _ := c.m.d.past(c.path())
	for _, content := range contents {
		if int64(len(content.now)) < f.cursor.Offset {
			continue
		}
		content := content.now[:f.cursor.Offset]
		if f.cursor.Offset > 0 && (wire.Digest(xxhash.Sum64(content)) != f.cursor.Digest || bytes.Count(content, []byte{'\n'}) != int(f.cursor.Sequence)) {
			continue
		}
		if diff := cmp.Diff(c.messagesOf(content), f.slots, cmpopts.EquateEmpty()); diff != "" {
			c.fail("messages are not those of the cursor (in place: %v; -want +got):\n%s", smudged, diff)
		}
		return
	}
	if !smudged {
		c.fail("the cursor is of a content that the file never had")
	}
	c.m.stats.Splices++
}

// messagesOf are those of the client's view of a content.
func (c *modelClient) messagesOf(content []byte) []string {
	c.m.t.Helper()
	r, err := replay.Build(context.Background(), bytes.NewReader(content), int64(len(content)), replay.Options{})
	if err != nil {
		c.m.t.Fatal(err)
	}
	return slotsOf(r, viewOf(c.f.command.View), dialect.NewWindow(bytes.NewReader(content)))
}

// isDone takes what comes and reports whether the client has what is there.
func (c *modelClient) isDone() bool {
	c.m.t.Helper()
	if !c.attached {
		_, there := c.m.d.content(c.name)
		if c.attach(); !c.attached {
			return !there && slices.Contains([]wire.Code{wire.CodeUnknownSession, wire.CodeSessionGone}, codeOfError(c.refused))
		}
	}
	c.pull(1 << 20)
	content, there := c.m.d.content(c.path())
	if !c.attached || !c.f.live || !there {
		return false // one that is removed tries again
	}
	want := whole(content)
	if c.f.cursor.Offset != int64(len(want)) || len(want) > 0 && c.f.cursor.Digest != wire.Digest(xxhash.Sum64(want)) {
		return false
	}
	switch {
	case c.isRaw():
		return bytes.Equal(c.f.raw.Bytes(), want)
	case c.f.command.View == wire.ViewRecords:
		return bytes.Equal(c.join(), want)
	}
	return slices.Equal(c.messagesOf(want), c.f.slots) && c.hasState(want)
}

// hasState reports whether the client was told the turn state of a content.
func (c *modelClient) hasState(content []byte) bool {
	c.m.t.Helper()
	src := bytes.NewReader(content)
	r, err := replay.Build(context.Background(), src, int64(len(content)), replay.Options{})
	if err != nil {
		c.m.t.Fatal(err)
	}
	state, err := stateOf(r, dialect.NewWindow(src))
	if err != nil {
		c.m.t.Fatal(err)
	}
	return c.f.state != nil && stateText(c.f.state) == stateText(state)
}

func codeOfError(err error) wire.Code {
	var e *wire.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func (c *modelClient) fail(format string, args ...any) {
	c.m.t.Helper()
	c.m.t.Fatalf("round %d: %s\n%s", c.m.round, fmt.Sprintf(format, args...), c)
}

// hasBegun reports whether what a client goes on from is the beginning of what
// its path leads to.
func (c *modelClient) hasBegun(cmd wire.Command) bool {
	content, there := c.m.d.content(c.path())
	at := cmd.Resume
	if at == nil && cmd.Position != nil {
		at = &cmd.Position.Cut
	}
	return there && at != nil && at.Offset <= int64(len(content)) &&
		(at.Offset == 0 || wire.Digest(xxhash.Sum64(content[:at.Offset])) == at.Digest)
}
