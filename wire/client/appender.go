package client

import (
	"context"
	"errors"
	"unicode/utf8"

	"sessiond/wire"
)

const (
	batchBytesDefault   = 1 << 20
	batchEntriesDefault = 1000
)

// AppendOptions say where to append and by which rule of idempotency.
type AppendOptions struct {
	Session string

	// Expect selects rule 1: the entries go directly after this cursor. Nil
	// selects rule 2: the entries have ids.
	Expect *wire.Cursor

	BatchBytes   int // encoded bytes a request, 0 means 1 MiB
	BatchEntries int // 0 means 1000

	Reconnect Reconnect // For counts from the last success
}

// Appender writes entries to an owned session, each once: after a break, or an
// error that may pass, it sends the same bytes again, and the daemon knows
// what it has. Entries are on disk when Append returns.
type Appender struct {
	opt     Options
	ao      AppendOptions
	backoff backoff
	conn    *Conn // nil: to be dialled
	head    wire.Cursor
	closed  bool
}

// NewAppender makes an Appender; it connects when there is something to send.
// Close must be called in the end.
func NewAppender(o Options, ao AppendOptions) *Appender {
	if ao.BatchBytes <= 0 {
		ao.BatchBytes = batchBytesDefault
	}
	if ao.BatchEntries <= 0 {
		ao.BatchEntries = batchEntriesDefault
	}
	a := &Appender{opt: o, ao: ao}
	if ao.Expect != nil {
		a.head = *ao.Expect
	}
	return a
}

// Head is the cursor after the last entry that was acknowledged.
func (a *Appender) Head() wire.Cursor { return a.head }

// Close ends the connection.
func (a *Appender) Close() {
	a.closed = true
	a.disconnect()
}

func (a *Appender) disconnect() {
	if a.conn != nil {
		a.conn.Close()
		a.conn = nil
	}
}

// Append sends entries, in batches, and returns an acknowledgement for each.
// After an error those of the batches before are returned; what became of the
// rest is not known, and only the same entries may be sent again.
func (a *Appender) Append(ctx context.Context, entries []string) ([]wire.Ack, error) {
	var acks []wire.Ack
	for first := true; first || len(entries) > 0; first = false { // none is a question, too: is the session there?
		n, err := a.batch(entries)
		if err != nil {
			return acks, err
		}
		got, err := a.send(ctx, entries[:n])
		if err != nil {
			return acks, err
		}
		acks = append(acks, got...)
		entries = entries[n:]
	}
	return acks, nil
}

// batch returns how many of entries make the next request: at least one.
func (a *Appender) batch(entries []string) (int, error) {
	size := 0
	for i, e := range entries {
		if !utf8.ValidString(e) {
			return 0, wire.Errorf(wire.CodeBadArgument, "an entry of %d bytes is no valid UTF-8: its bytes would not arrive", len(e))
		}
		if size += encodedBytes(e); i > 0 && size > a.ao.BatchBytes || i == a.ao.BatchEntries {
			return i, nil
		}
	}
	return len(entries), nil
}

// encodedBytes is about the size of a string in a frame.
func encodedBytes(s string) int {
	n := len(s) + len(`"",`)
	for i := range len(s) {
		if c := s[i]; c == '"' || c == '\\' {
			n++
		} else if c < ' ' {
			n += len(`u00ff`)
		}
	}
	return n
}

// send sends one batch until it is acknowledged.
func (a *Appender) send(ctx context.Context, entries []string) ([]wire.Ack, error) {
	a.backoff = newBackoff(a.ao.Reconnect)
	for {
		acks, err := a.attempt(ctx, entries)
		switch {
		case err == nil:
			if n := len(acks); n > 0 {
				a.head = acks[n-1].Cursor
			}
			return acks, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case permanent(err):
			return nil, err
		}
		if err := a.backoff.wait(ctx, err); err != nil {
			return nil, err
		}
	}
}

func (a *Appender) attempt(ctx context.Context, entries []string) ([]wire.Ack, error) {
	if a.closed {
		return nil, ErrClosed
	}
	ctx, cancel := a.backoff.bound(ctx)
	defer cancel()
	if a.conn == nil {
		var err error
		if a.conn, err = Dial(ctx, a.opt); err != nil {
			a.conn = nil
			return nil, err
		}
	}
	var expect *wire.Cursor
	if a.ao.Expect != nil {
		expect = &a.head
	}
	r, err := a.conn.Append(ctx, a.ao.Session, entries, expect)
	if err != nil && a.conn.Err() != nil || ctx.Err() != nil {
		a.disconnect()
	}
	return r.Acks, err
}

// AppendAll appends entries as they come, those that wait together in one
// batch, until the channel is closed. It reports acknowledgements to acked,
// where set, and returns the first error of either side.
func AppendAll(ctx context.Context, o Options, ao AppendOptions, entries <-chan string, acked func([]wire.Ack) error) error {
	a := NewAppender(o, ao)
	defer a.Close()
	for {
		batch, err := a.gather(ctx, entries)
		if err != nil || len(batch) == 0 {
			return err
		}
		acks, err := a.Append(ctx, batch)
		if acked != nil && len(acks) > 0 {
			err = errors.Join(err, acked(acks))
		}
		if err != nil {
			return err
		}
	}
}

// gather waits for an entry and takes those that are there already with it;
// it returns none when the channel is closed.
func (a *Appender) gather(ctx context.Context, entries <-chan string) ([]string, error) {
	var batch []string
	select {
	case e, ok := <-entries:
		if !ok {
			return nil, nil
		}
		batch = append(batch, e)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for size := encodedBytes(batch[0]); size < a.ao.BatchBytes && len(batch) < a.ao.BatchEntries; {
		select {
		case e, ok := <-entries:
			if !ok {
				return batch, nil
			}
			batch = append(batch, e)
			size += encodedBytes(e)
		default:
			return batch, nil
		}
	}
	return batch, nil
}
