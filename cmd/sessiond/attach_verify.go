package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/spf13/cobra"

	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
	"sessiond/replay/pages"
	"sessiond/replay/report"
	"sessiond/wire"
	"sessiond/wire/client"
)

// proof is what --verify knows of an attachment: of view records a running
// sum of the bytes, of a message view the sum of every slot.
type proof struct {
	opt     client.Options
	session string // as given, then its key
	view    wire.View
	raw     bool
	partial bool // a message view that began with slots of an earlier run

	from  wire.Cursor // where the bytes begin
	bytes hash.Hash
	lines int64

	first int                 // slot that is held, of a bounded view
	slots [][sha256.Size]byte // from first on; zero: left out
}

func newProof(opt client.Options, session string, ao client.AttachOptions) *proof {
	p := &proof{opt: opt, session: session, view: ao.View, raw: ao.Encoding == wire.EncodingRaw, bytes: sha256.New()}
	p.partial = !p.raw && !ao.From.IsStart()
	p.from = ao.From.Cursor
	return p
}

// item takes what was received; place is the attachment's after it.
func (p *proof) item(ctx context.Context, item client.Item, place client.Place) error {
	switch f := item.(type) {
	case *wire.AttachResult:
		p.session = f.Session
		if p.raw && p.lines == 0 && f.Mode == wire.ModeTail {
			p.from = place.Cursor
		}
	case *wire.SnapshotBegin:
		if f.FirstIndex == 0 {
			p.from, p.lines, p.slots, p.partial = wire.Cursor{}, 0, nil, false
			p.first = f.Bounded.FirstSlot()
			p.bytes.Reset()
		}
	case *client.Records:
		p.bytes.Write(f.Body)
		p.lines += int64(bytes.Count(f.Body, []byte{'\n'}))
	case *wire.SnapshotChunk:
		return p.add(ctx, f.Messages)
	case *wire.SnapshotAmend:
		return p.amend(ctx, f.Amendments)
	case *wire.Event:
		if f.Keep != nil && *f.Keep <= p.first+len(p.slots) {
			p.slots = p.slots[:max(*f.Keep-p.first, 0)]
			p.first = min(p.first, *f.Keep)
		}
		return errors.Join(p.amend(ctx, f.Amended), p.add(ctx, f.Messages))
	}
	return nil
}

func (p *proof) add(ctx context.Context, messages json.RawMessage) error {
	for v := range jsonl.Elements(messages) {
		sum, err := p.sum(ctx, v.Bytes(messages))
		if err != nil {
			return err
		}
		p.slots = append(p.slots, sum)
	}
	return nil
}

func (p *proof) amend(ctx context.Context, list []wire.Amendment) error {
	for _, a := range list {
		sum, err := p.sum(ctx, a.Message)
		if err != nil {
			return err
		}
		if i := a.Index - p.first; i >= 0 && i < len(p.slots) {
			p.slots[i] = sum
		}
	}
	return nil
}

// sum is of the message itself, also where a ref stands for it.
func (p *proof) sum(ctx context.Context, message []byte) (sum [sha256.Size]byte, err error) {
	if string(message) == "null" {
		return sum, nil
	}
	ref := refOf(message)
	if ref == nil {
		return sha256.Sum256(message), nil
	}
	c, err := client.Dial(ctx, p.opt)
	if err != nil {
		return sum, err
	}
	h := sha256.New()
	_, err = c.Read(ctx, p.session, p.view, *ref, h)
	h.Sum(sum[:0])
	return sum, errors.Join(err, c.Close())
}

// report prints the last line, and fails where it proves a fault.
func (p *proof) report(ctx context.Context, cmd *cobra.Command, place client.Place) error {
	if place.Position != nil {
		notice(cmd, "verify: ended inside a snapshot, nothing to prove yet")
		return nil
	}
	if p.partial {
		notice(cmd, "verify: a message view that goes on from a cursor has only the end of the view; begin at the start to prove it")
		return nil
	}
	what, got := fmt.Sprintf("messages %d", p.messages()), p.messageSum()
	if p.first > 0 {
		what += fmt.Sprintf(" from %d on", p.first)
	}
	var gaps, duplicates int64
	if p.raw {
		what, got = fmt.Sprintf("records %d", p.lines), fmt.Sprintf("%x", p.bytes.Sum(nil))
		missing := int64(place.Cursor.Sequence-p.from.Sequence) - p.lines
		gaps, duplicates = max(missing, 0), max(-missing, 0)
	}
	line := fmt.Sprintf("verify: %s, gaps %d, duplicates %d, sha256 %s", what, gaps, duplicates, got)
	want, err := p.file(ctx, place.Cursor)
	if err != nil {
		notice(cmd, "%s, file not read: %v", line, err)
		return nil
	}
	notice(cmd, "%s, file sha256 %s", line, want)
	if gaps+duplicates > 0 || got != want {
		return fmt.Errorf("verify: what was received is not what the file holds")
	}
	return nil
}

func (p *proof) messages() int {
	n := 0
	for _, s := range p.slots {
		if s != [sha256.Size]byte{} {
			n++
		}
	}
	return n
}

func (p *proof) messageSum() string {
	h := sha256.New()
	for _, s := range p.slots {
		if s != [sha256.Size]byte{} {
			h.Write(s[:])
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// file makes the same sum of the session's file, up to a cursor.
func (p *proof) file(ctx context.Context, to wire.Cursor) (string, error) {
	path, err := p.path(ctx)
	if err != nil {
		return "", err
	}
	f, err := openSession(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if p.raw {
		n, err := io.Copy(h, io.NewSectionReader(f.Source, p.from.Offset, to.Offset-p.from.Offset))
		if err == nil && n < to.Offset-p.from.Offset {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Sprintf("%x", h.Sum(nil)), err
	}
	v := dialect.Transcript
	if p.view == wire.ViewContext {
		v = dialect.Context
	}
	f.Size = to.Offset
	opt := report.Options{Pages: newPages(pages.DefaultBytes, os.Stderr)}
	err = report.EachMessage(ctx, f.File, v, opt, func(m report.Message) error {
		if m.Slot >= p.first {
			sum := sha256.Sum256(m.Text)
			h.Write(sum[:])
		}
		return nil
	})
	return fmt.Sprintf("%x", h.Sum(nil)), err
}

// path asks the daemon where the session's file is.
func (p *proof) path(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	c, err := client.Dial(ctx, p.opt)
	if err != nil {
		return "", err
	}
	defer c.Close()
	for s, err := range c.List(ctx, client.ListOptions{Order: "key"}) {
		if err != nil {
			return "", err
		}
		if s.Session == p.session {
			return s.Path, nil
		}
	}
	return "", fmt.Errorf("session %s is not listed", p.session)
}
