package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"sessiond/wire"
)

// Item is one of the types that the package doc lists. It belongs to the
// caller, but for the body of a *Records.
type Item any

// Records is a piece of the file, in encoding raw.
type Records struct {
	wire.Records        // as sent; after a break Body may be shorter than Bytes
	Body         []byte // valid until the next call
}

// AttachOptions say what to attach to and from where.
type AttachOptions struct {
	Session  string
	View     wire.View // "" means records
	Encoding string    // of view records: "" means json

	// Bounded is what to accept in place of a message view over the daemon's
	// limits, wire.BoundedWindow or wire.BoundedSummary; "": nothing, and the
	// daemon refuses such a view.
	Bounded string

	From Place // where to go on; the zero Place is the start
	Now  bool  // skip what is there already; view records only

	// Once ends the attachment, with io.EOF, where live would begin.
	Once bool

	Reconnect Reconnect

	// OnFrame, where set, sees the lines behind the items, and raw bodies.
	// Both are valid during the call only.
	OnFrame func(line, body []byte)

	// OnBreak is told of each error after which the attachment tries again,
	// before it waits. May be nil.
	OnBreak func(err error)
}

func (o AttachOptions) validate() error {
	switch {
	case o.Session == "":
		return wire.Errorf(wire.CodeBadArgument, "no session")
	case !o.View.Valid():
		return wire.Errorf(wire.CodeBadArgument, "view %.40q: want records, transcript or context", o.View)
	case o.Encoding != "" && o.Encoding != wire.EncodingJSON && o.Encoding != wire.EncodingRaw,
		o.Encoding == wire.EncodingRaw && o.View != wire.ViewRecords:
		return wire.Errorf(wire.CodeBadArgument, "encoding %.40q of view %s", o.Encoding, o.View)
	case o.Bounded != "" && (o.View == wire.ViewRecords || !slices.Contains(wire.BoundedModes, o.Bounded)):
		return wire.Errorf(wire.CodeBadArgument, "bounded %.40q of view %s", o.Bounded, o.View)
	case o.Now && (o.View != wire.ViewRecords || !o.From.IsStart()):
		return wire.Errorf(wire.CodeBadArgument, "from now on: in view records, and without a place")
	case o.From.Position != nil && (o.From.Position.View != o.View || o.Encoding == wire.EncodingRaw):
		return wire.Errorf(wire.CodeBadArgument, "a position of view %s cannot go on as view %s, encoding %q", o.From.Position.View, o.View, o.Encoding)
	case o.From.Position == nil && !o.From.IsStart() && o.View != wire.ViewRecords && o.From.Have == nil:
		return wire.Errorf(wire.CodeBadArgument, "a cursor of view %s needs the number of slots held", o.View)
	}
	return nil
}

// Attachment is a view of one session that outlives connections.
type Attachment struct {
	opt     Options
	ao      AttachOptions
	track   *tracker
	backoff backoff

	link   *link  // nil: to be attached
	name   string // of the attachment on link
	first  Item   // what Attach received already
	failed error  // of a snapshot, to be judged by the next call
	resync bool   // a corrupt stream was met
	over   error  // why there is nothing more
	body   []byte // of the last Records
}

// Attach attaches to a session. It tries for as long as ao.Reconnect says, and
// returns errors that trying again cannot cure at once. Close must be called
// in the end.
func Attach(ctx context.Context, o Options, ao AttachOptions) (*Attachment, error) {
	if ao.View == "" {
		ao.View = wire.ViewRecords
	}
	if err := ao.validate(); err != nil {
		return nil, err
	}
	a := &Attachment{
		opt: o, ao: ao,
		track:   newTracker(ao.View, ao.Encoding == wire.EncodingRaw, ao.Bounded, ao.From),
		backoff: newBackoff(ao.Reconnect),
	}
	item, err := a.Next(ctx)
	if err != nil {
		a.Close()
		return nil, err
	}
	a.first = item
	return a, nil
}

// Place returns where to go on after the last item that Next returned.
func (a *Attachment) Place() Place { return a.track.place }

// Close ends the attachment.
func (a *Attachment) Close() {
	a.disconnect()
	if a.over == nil {
		a.over = ErrClosed
	}
}

// Frames gives all items until the attachment is over; io.EOF is no error.
func (a *Attachment) Frames(ctx context.Context) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for {
			item, err := a.Next(ctx)
			if errors.Is(err, io.EOF) || !yield(item, err) || err != nil {
				return
			}
		}
	}
}

// Next returns the next item, whatever breaks in between. io.EOF means that
// the attachment is over. After ctx ended, Next may be called again.
func (a *Attachment) Next(ctx context.Context) (Item, error) {
	if item := a.first; item != nil {
		a.first = nil
		return item, nil
	}
	for a.over == nil {
		item, err := a.step(ctx)
		switch {
		case err == nil && item != nil:
			return item, nil
		case err == nil:
			continue
		case ctx.Err() != nil:
			a.disconnect()
			return nil, context.Cause(ctx)
		}
		a.disconnect()
		if err := a.judge(ctx, err); err != nil {
			return nil, err
		}
	}
	return nil, a.over
}

// step makes one attempt at one thing; nil, nil means that it gave no item.
func (a *Attachment) step(ctx context.Context) (Item, error) {
	if a.link == nil {
		bounded, cancel := a.backoff.bound(ctx)
		defer cancel()
		r, err := a.attach(bounded)
		if err != nil {
			return nil, err
		}
		a.backoff.contact = a.link.contact
		return r, nil
	}
	if err := a.failed; err != nil {
		a.failed = nil
		return nil, err
	}
	l := a.link
	defer l.interruptible(ctx)()
	item, err := a.receive()
	a.backoff.contact = l.contact
	if item != nil {
		a.backoff.progressed()
	}
	return item, err
}

// judge decides whether to go on after an error: nil means yes, now.
func (a *Attachment) judge(ctx context.Context, err error) error {
	var corrupt *CorruptStreamError
	switch {
	case errors.As(err, &corrupt) && !a.resync:
		a.resync = true
		a.track.restart()
	case corrupt != nil, permanent(err):
		a.over = err
		return err
	}
	if a.ao.OnBreak != nil && a.backoff.For >= 0 {
		a.ao.OnBreak(err)
	}
	if err := a.backoff.wait(ctx, err); err != nil {
		if ctx.Err() == nil {
			a.over = err
		}
		return err
	}
	return nil
}

func (a *Attachment) disconnect() {
	if a.link != nil {
		a.link.close()
		a.link = nil
	}
}

// attach connects and attaches at the place.
func (a *Attachment) attach(ctx context.Context) (*wire.AttachResult, error) {
	if a.ao.Now {
		l, r, err := a.request(ctx, a.command(Place{}))
		if err != nil {
			return nil, err
		}
		l.close() // before its snapshot comes: only the head was wanted
		a.ao.Now = false
		a.track = newTracker(a.ao.View, a.track.raw, "", Place{Cursor: r.Head})
	}
	l, r, err := a.request(ctx, a.command(a.track.place))
	if err != nil {
		return nil, err
	}
	if err := a.track.attached(r); err != nil {
		l.close()
		return nil, err
	}
	a.link, a.name = l, r.Attachment
	return r, nil
}

func (a *Attachment) command(from Place) wire.Command {
	cmd := wire.Command{
		ID: "1", Type: wire.CmdAttach, Session: a.ao.Session, View: a.ao.View, Encoding: a.ao.Encoding,
		RulesRevision: from.RulesRevision, Bounded: a.ao.Bounded,
	}
	if a.ao.Once {
		cmd.Live = new(bool)
	}
	switch {
	case from.Position != nil:
		cmd.Position = from.Position
	case !from.IsStart():
		cmd.Resume, cmd.Have = &from.Cursor, from.Have
	}
	return cmd
}

// request opens a connection and returns it with the answer to one attach.
func (a *Attachment) request(ctx context.Context, cmd wire.Command) (*link, *wire.AttachResult, error) {
	l, err := a.opt.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	r, err := func() (*wire.AttachResult, error) {
		defer l.interruptible(ctx)()
		if err := l.write(cmd); err != nil {
			return nil, err
		}
		for {
			line, err := l.read()
			if err != nil {
				return nil, err
			}
			var reply wire.Reply
			if wire.FrameType(line) != wire.TypeResponse {
				continue
			}
			if err := json.Unmarshal(line, &reply); err != nil {
				return nil, fmt.Errorf("%w: a reply does not decode: %w", ErrBroken, err)
			}
			if reply.ID == cmd.ID {
				if a.ao.OnFrame != nil {
					a.ao.OnFrame(line, nil)
				}
				r := new(wire.AttachResult)
				return r, decodeReply(reply, r)
			}
		}
	}()
	if err != nil {
		l.close()
		return nil, nil, err
	}
	return l, r, nil
}
