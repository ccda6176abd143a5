package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"sessiond/wire"
)

// ListOptions select sessions; the zero value lists all.
type ListOptions struct {
	Root  string
	Order string
	Page  int // sessions a request, 0 means the daemon's choice
}

// List gives all sessions, page by page as they are consumed.
func (c *Conn) List(ctx context.Context, o ListOptions) iter.Seq2[wire.Session, error] {
	return func(yield func(wire.Session, error) bool) {
		cmd := wire.Command{Type: wire.CmdList, Root: o.Root, Order: o.Order, Limit: o.Page}
		for {
			var page wire.ListResult
			if err := c.Call(ctx, cmd, &page); err != nil {
				yield(wire.Session{}, err)
				return
			}
			for _, s := range page.Sessions {
				if !yield(s, nil) {
					return
				}
			}
			if !page.More {
				return
			}
			if page.Next == cmd.After { // would go on for ever
				yield(wire.Session{}, fmt.Errorf("client: list: more after %q, but no next page", cmd.After))
				return
			}
			cmd.After = page.Next
		}
	}
}

// CreateOptions describe a session to be; the zero value lets the daemon
// choose everything.
type CreateOptions struct {
	SessionID string
	Dialect   string
	CWD       string
	Header    json.RawMessage
}

// Create makes an owned session, or finds the same one there already.
func (c *Conn) Create(ctx context.Context, o CreateOptions) (wire.CreateResult, error) {
	var r wire.CreateResult
	err := c.Call(ctx, wire.Command{
		Type: wire.CmdCreate, SessionID: o.SessionID, Dialect: o.Dialect, CWD: o.CWD, Header: o.Header,
	}, &r)
	return r, err
}

// Append sends one batch; expect may be nil in dialects that have ids. See
// Appender for one that survives breaks.
func (c *Conn) Append(ctx context.Context, session string, entries []string, expect *wire.Cursor) (wire.AppendResult, error) {
	var r wire.AppendResult
	err := c.Call(ctx, wire.Command{Type: wire.CmdAppend, Session: session, Entries: entries, Expect: expect}, &r)
	if err == nil && len(r.Acks) != len(entries) {
		err = wire.Errorf(wire.CodeInternal, "append: %d acknowledgements for %d entries", len(r.Acks), len(entries))
	}
	return r, err
}

// Status returns the daemon's figures, as JSON.
func (c *Conn) Status(ctx context.Context) (json.RawMessage, error) {
	var r json.RawMessage
	err := c.Call(ctx, wire.Command{Type: wire.CmdStatus}, &r)
	return r, err
}

// Read writes all bytes of the object that ref stands for to w, and returns
// how many.
func (c *Conn) Read(ctx context.Context, session string, view wire.View, ref wire.Ref, w io.Writer) (int64, error) {
	var n int64
	for {
		var part wire.ReadResult
		err := c.Call(ctx, wire.Command{
			Type: wire.CmdRead, Session: session, View: view, Ref: &ref, From: n, Length: ref.Bytes - n,
		}, &part)
		if err != nil {
			return n, err
		}
		k, err := w.Write(part.Data)
		n += int64(k)
		switch {
		case err != nil:
			return n, err
		case !part.More && n != ref.Bytes:
			return n, fmt.Errorf("client: read: got %d bytes of a reference to %d: %w", n, ref.Bytes, io.ErrUnexpectedEOF)
		case !part.More:
			return n, nil
		case k == 0:
			return n, fmt.Errorf("client: read: more after %d bytes, but none came: %w", n, io.ErrNoProgress)
		}
	}
}
