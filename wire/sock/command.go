package sock

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"

	"sessiond/wire"
)

// command starts what one frame asks for. held bytes of the incoming budget
// are given back when it is done.
func (c *conn) command(line []byte, held int, first bool) {
	cmd, bad := wire.DecodeCommand(line)
	release := func() { c.srv.incoming.give(held) }
	switch {
	case bad != nil:
		release()
		c.fail(cmd.ID, bad)
	case cmd.Type == wire.CmdHello:
		release()
		c.clientHello(cmd, first)
	case cmd.Type == wire.CmdPing:
		release()
		c.reply(cmd.ID, nil)
	case cmd.Type == wire.CmdDetach:
		release()
		c.enqueue(entry{detach: cmd.Attachment, id: cmd.ID})
	case c.reserved && cmd.Type != wire.CmdStatus && cmd.Type != wire.CmdList:
		release()
		c.fail(cmd.ID, wire.Errorf(wire.CodeOverloaded, "too many connections: this one serves status and list only"))
		c.drain(wire.GoodbyeOverloaded, "too many connections")
	case int(c.running.Load()) >= c.srv.opt.CommandsInFlightMax:
		release()
		c.fail(cmd.ID, wire.Errorf(wire.CodeBusy, "%d commands are in flight", c.srv.opt.CommandsInFlightMax))
	case cmd.Type == wire.CmdAttach && int(c.attachments.Load()) >= c.srv.opt.AttachmentsMax:
		release()
		c.fail(cmd.ID, wire.Errorf(wire.CodeBusy, "%d attachments are open on this connection", c.srv.opt.AttachmentsMax))
	default:
		c.run(cmd, release)
	}
}

// clientHello takes the client's limits; it is answered where it fails, or
// where it has an id.
func (c *conn) clientHello(cmd *wire.Command, first bool) {
	bad := func() *wire.Error {
		if !first {
			return wire.Errorf(wire.CodeBadArgument, "hello is a connection's first frame only")
		}
		if cmd.Limits == nil || cmd.Limits.FrameBytes == 0 {
			return nil
		}
		if n := cmd.Limits.FrameBytes; n < wire.FrameBytesMin {
			return wire.Errorf(wire.CodeBadArgument, "limits.frameBytes is %d, want at least %d", n, wire.FrameBytesMin)
		}
		c.frameBytes = min(cmd.Limits.FrameBytes, wire.FrameBytesMax)
		return nil
	}()
	switch {
	case bad != nil:
		c.fail(cmd.ID, bad)
		c.drain(wire.GoodbyeProtocolError, bad.Message)
	case cmd.ID != "":
		c.reply(cmd.ID, nil)
	default:
		<-c.owed // nothing is owed
	}
	c.srv.opt.Logger.Debug("client hello", "conn", c.id, "uid", c.uid, "client", fmt.Sprintf("%.80q", cmd.ClientID))
}

// run carries a command out on a goroutine of its own.
func (c *conn) run(cmd *wire.Command, release func()) {
	r := wire.Request{Command: *cmd, FrameBytes: c.frameBytes}
	attaching := cmd.Type == wire.CmdAttach
	if attaching {
		c.attachID++
		r.Attachment = "a" + strconv.Itoa(c.attachID)
		c.countAttachments(1)
	}
	c.running.Add(1)
	c.cmds.Go(func() {
		e, err := c.handle(r)
		release()
		c.running.Add(-1)
		if err != nil {
			if attaching {
				c.countAttachments(-1)
			}
			c.fail(r.ID, c.wireError(r, err))
			return
		}
		c.enqueue(e)
	})
}

// handle calls the Handler and makes the reply. A stream that no reply will
// announce is closed here.
func (c *conn) handle(r wire.Request) (e entry, err error) {
	var res wire.Response
	defer func() {
		if p := recover(); p != nil {
			c.srv.panicked(r.Type, p)
			err = fmt.Errorf("panic: %v", p)
		}
		if err != nil && res.Stream != nil {
			res.Stream.Close()
		}
	}()
	if res, err = c.srv.opt.Handler.Handle(c.ctx, r); err != nil {
		return entry{}, err
	}
	if isAttach := r.Type == wire.CmdAttach; isAttach != (res.Stream != nil) {
		return entry{}, fmt.Errorf("sock: the handler of %s returned stream %T", r.Type, res.Stream)
	}
	if e.line, err = replyLine(r.ID, res.Result); err != nil {
		return entry{}, err
	}
	if len(e.line) > r.FrameBytes {
		return entry{}, wire.Errorf(wire.CodeTooLarge, "the reply has %d bytes, the client takes %d", len(e.line), r.FrameBytes)
	}
	if res.Stream != nil {
		e.attach = &attachment{id: r.Attachment, stream: res.Stream, conn: c}
	}
	return e, nil
}

// wireError is err as it may travel. What the closed set of codes does not
// name stays in the log: its text may hold anything.
func (c *conn) wireError(r wire.Request, err error) *wire.Error {
	var e *wire.Error
	if errors.As(err, &e) {
		return e
	}
	if c.ctx.Err() != nil {
		return wire.Errorf(wire.CodeShuttingDown, "the connection is ending")
	}
	c.srv.opt.Logger.Error("command failed", "command", r.Type, "session", r.Session, "conn", c.id, "error", err)
	return wire.Errorf(wire.CodeInternal, "internal error; the daemon's log has it")
}

func (c *conn) countAttachments(n int) {
	c.attachments.Add(int32(n))
	c.srv.stats.attachments.Add(int64(n))
}

// reply queues the answer of a command that sock handles itself.
func (c *conn) reply(id string, result any) {
	line, err := replyLine(id, result)
	if err != nil {
		panic(err) // results of this package's own
	}
	c.enqueue(entry{line: line})
}

func (c *conn) fail(id string, e *wire.Error) { c.enqueue(entry{line: errorLine(id, e)}) }

func (s *Server) panicked(where string, p any) {
	s.stats.panics.Add(1)
	s.opt.Logger.Error("panic", "in", where, "panic", p, "stack", string(debug.Stack()))
}

// replyLine is the reply of a command that went well; a nil result is {}.
func replyLine(id string, result any) ([]byte, error) {
	if result == nil {
		result = struct{}{}
	}
	return wire.AppendLine(nil, struct {
		Type   string `json:"type"`
		ID     string `json:"id"`
		OK     bool   `json:"ok"`
		Result any    `json:"result"`
	}{wire.TypeResponse, id, true, result})
}

func errorLine(id string, e *wire.Error) []byte {
	line, err := wire.AppendLine(nil, wire.Reply{Type: wire.TypeResponse, ID: id, Error: e})
	if err != nil { // a detail that has no JSON
		line, _ = wire.AppendLine(nil, wire.Reply{Type: wire.TypeResponse, ID: id, Error: wire.Errorf(e.Code, "%s", e.Message)})
	}
	return line
}

func goodbyeLine(code, message string) []byte {
	line, _ := wire.AppendLine(nil, wire.Goodbye{Type: wire.TypeGoodbye, Code: code, Message: message})
	return line
}
