package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"sessiond/wire"
)

// Conn is a connection for calls. It does not come back after a break: Done
// and Err tell, and the caller dials again.
type Conn struct {
	link *link
	done chan struct{} // closed when the connection ended

	writing sync.Mutex // held while a command is written

	mu    sync.Mutex
	id    int
	calls map[string]chan wire.Reply // by id, waiting; capacity 1
	err   error                      // why it ended
}

// Dial connects to a daemon. Close must be called in the end.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	l, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	c := &Conn{link: l, done: make(chan struct{}), calls: map[string]chan wire.Reply{}}
	go c.read()
	return c, nil
}

// Hello is what the daemon said of itself.
func (c *Conn) Hello() wire.Hello { return c.link.hello }

// Done is closed when the connection ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection ended, nil while it lives.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection and waits for its goroutine. Calls in flight
// return ErrClosed. Safe to call twice.
func (c *Conn) Close() error {
	c.fail(ErrClosed)
	<-c.done
	return nil
}

// fail notes the first reason for the end and breaks the connection.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.link.close()
}

// read hands replies to their calls. Frames of attachments are not asked for
// on a Conn and skipped.
func (c *Conn) read() {
	defer close(c.done)
	for {
		line, err := c.link.read()
		if err != nil {
			c.fail(err)
			return
		}
		if wire.FrameType(line) != wire.TypeResponse {
			continue
		}
		var r wire.Reply
		if err := json.Unmarshal(line, &r); err != nil {
			c.fail(fmt.Errorf("%w: a reply does not decode: %w", ErrBroken, err))
			return
		}
		c.mu.Lock()
		call := c.calls[r.ID]
		delete(c.calls, r.ID)
		c.mu.Unlock()
		if call != nil {
			call <- r
		}
	}
}

// Call sends a command and decodes its result into result (nil: discarded).
// The id is assigned here. A refusal is a *wire.Error. When ctx ends first the
// call is abandoned; whether it was carried out is then not known.
func (c *Conn) Call(ctx context.Context, cmd wire.Command, result any) error {
	call := make(chan wire.Reply, 1)
	c.mu.Lock()
	c.id++
	cmd.ID = strconv.Itoa(c.id)
	c.calls[cmd.ID] = call
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.calls, cmd.ID)
		c.mu.Unlock()
	}()
	if err := c.send(ctx, cmd); err != nil {
		return err
	}
	select {
	case r := <-call:
		return decodeReply(r, result)
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.done:
	}
	select {
	case r := <-call: // it came just before the end
		return decodeReply(r, result)
	default:
		return c.Err()
	}
}

// send writes one command. When ctx ends in the middle, the connection is
// broken: half a frame cannot be taken back.
func (c *Conn) send(ctx context.Context, cmd wire.Command) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	stop := context.AfterFunc(ctx, func() { c.fail(fmt.Errorf("%w: a command was cut: %w", ErrBroken, context.Cause(ctx))) })
	defer stop()
	err := c.link.write(cmd)
	if errors.Is(err, ErrBroken) {
		<-c.done // the read side may know why: a goodbye
		return c.Err()
	}
	return err
}

func decodeReply(r wire.Reply, result any) error {
	if !r.OK {
		if r.Error == nil {
			return wire.Errorf(wire.CodeInternal, "the daemon refused without a reason")
		}
		return r.Error
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(r.Result, result); err != nil {
		return wire.Errorf(wire.CodeInternal, "the daemon's result does not decode: %v", err)
	}
	return nil
}
