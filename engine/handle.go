package engine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sort"

	"sessiond/replay/dialect"
	"sessiond/wire"
)

// Handle carries a command out. Errors are *wire.Error.
func (e *Engine) Handle(ctx context.Context, r wire.Request) (wire.Response, error) {
	out, err := e.handle(ctx, r)
	if err != nil && r.Session != "" && e.hasLost(r.Session) { // whose index is made anew
		out, err = e.handle(ctx, r)
	}
	if err != nil {
		return wire.Response{}, toWire(err)
	}
	return out, nil
}

func (e *Engine) handle(ctx context.Context, r wire.Request) (out wire.Response, err error) {
	switch r.Type {
	case wire.CmdList:
		out.Result, err = e.list(ctx, r.Command)
	case wire.CmdCreate:
		out.Result, err = e.create(ctx, r.Command)
	case wire.CmdAppend:
		out.Result, err = e.append(ctx, r.Command)
	case wire.CmdAttach:
		out.Result, out.Stream, err = e.attach(ctx, r)
	case wire.CmdRead:
		out.Result, err = e.read(ctx, r.Command)
	case wire.CmdStatus:
		out.Result = e.status(ctx)
	default:
		err = wire.Errorf(wire.CodeUnknownCommand, "no command %q in protocol version %d", clip(r.Type), wire.ProtocolVersion)
	}
	return out, err
}

// hasLost reports whether a session's replay has lost a page of its index.
func (e *Engine) hasLost(session string) bool {
	s, err := e.resolve(session)
	if err != nil {
		return false
	}
	s.mu.Lock()
	g := s.gen
	s.mu.Unlock()
	return g != nil && g.replay.Lost()
}

// readBytesMax is how much one read returns: base64 of it is within the
// inline limit.
const readBytesMax = wire.InlineBytes / 4 * 3

// read answers read: a part of the bytes that a ref stands for.
func (e *Engine) read(ctx context.Context, c wire.Command) (wire.ReadResult, error) {
	switch {
	case !c.View.Valid():
		return wire.ReadResult{}, wire.Errorf(wire.CodeBadArgument, "view %q: want records, transcript or context", clip(string(c.View)))
	case c.Ref == nil || c.From < 0 || c.From > c.Ref.Bytes || c.Length <= 0:
		return wire.ReadResult{}, wire.Errorf(wire.CodeBadArgument, "read wants a ref, from within its bytes, and a length")
	}
	s, err := e.resolve(c.Session)
	if err != nil {
		return wire.ReadResult{}, err
	}
	g, err := s.use(ctx, false)
	if err != nil {
		return wire.ReadResult{}, err
	}
	defer s.done(g)
	if c.View != wire.ViewRecords {
		if err := g.awake(ctx); err != nil {
			return wire.ReadResult{}, err
		}
	}
	object, err := e.objects.find(e.o.Now(), g, c.View, *c.Ref)
	if err != nil {
		return wire.ReadResult{}, err
	}
	n := min(c.Length, readBytesMax, c.Ref.Bytes-c.From)
	data := make([]byte, n)
	if got, err := object.ReadAt(data, c.From); int64(got) < n {
		return wire.ReadResult{}, fmt.Errorf("engine: reading the object of a ref: %w", err)
	}
	return wire.ReadResult{Data: data, More: c.From+n < c.Ref.Bytes}, nil
}

// object returns exactly the object that a ref stands for.
func (g *generation) object(view wire.View, ref wire.Ref) (*object, error) {
	candidates := []func() (*object, error){
		func() (*object, error) { return g.messageObject(viewOf(view), ref, false) },
		func() (*object, error) { return g.messageObject(viewOf(view), ref, true) },
	}
	if view == wire.ViewRecords {
		candidates = []func() (*object, error){func() (*object, error) { return g.recordObject(ref) }}
	}
	for _, candidate := range candidates {
		found, err := candidate()
		if err != nil {
			return nil, err
		}
		if found == nil || found.Size() != ref.Bytes {
			continue
		}
		sum, err := sumBody(found, 0, ref.Bytes)
		if err != nil {
			return nil, err
		}
		if sum == ref.Digest {
			return found, nil
		}
	}
	return nil, wire.Errorf(wire.CodeConflict, "the session does not hold the object of this ref any more")
}

func (g *generation) recordObject(ref wire.Ref) (*object, error) {
	if ref.Sequence == 0 || uint64(ref.Sequence) > g.replay.Head().Sequence {
		return nil, nil
	}
	end, err := g.pointOf(uint64(ref.Sequence))
	if err != nil {
		return nil, err
	}
	begin := end.Offset - ref.Bytes - 1
	if begin < 0 {
		return nil, nil
	}
	return &object{SectionReader: io.NewSectionReader(g.content, begin, ref.Bytes)}, nil
}

// messageObject returns a message as of its own record or, amended, as of the
// head; the ref's digest tells which is meant.
func (g *generation) messageObject(v dialect.View, ref wire.Ref, amended bool) (*object, error) {
	slots, bodies, err := g.replay.Slots(v)
	if err != nil {
		return nil, err
	}
	n := int(slots.Len())
	var lost error
	look := func(i int) (part int, sequence uint64) {
		slot, b, err := bodies.BodyAt(&slots, i, false)
		if err != nil {
			lost = err
		}
		return int(slot.Part), b.Sequence
	}
	match := func(i int) bool {
		part, sequence := look(i)
		return part == ref.Part && sequence == uint64(ref.Sequence)
	}
	// Slots are in file order but for oddities; look there first.
	i := sort.Search(n, func(i int) bool {
		_, sequence := look(i)
		return sequence >= uint64(ref.Sequence)
	})
	for ; i < n && !match(i); i++ {
		if _, sequence := look(i); sequence != uint64(ref.Sequence) {
			i = n
		}
	}
	if i >= n {
		for i = 0; i < n && lost == nil && !match(i); i++ {
		}
	}
	if lost != nil || i == n {
		return nil, lost
	}
	_, b, err := bodies.BodyAt(&slots, i, amended)
	if err != nil {
		return nil, err
	}
	if b.Render == nil && !b.Fix {
		return &object{SectionReader: io.NewSectionReader(g.content, b.Offset, b.Bytes)}, nil
	}
	m, err := dialect.AppendBody(nil, b, dialect.NewWindow(g.content))
	if err != nil {
		return nil, err
	}
	return &object{SectionReader: io.NewSectionReader(bytes.NewReader(m), 0, int64(len(m))), inMemory: true}, nil
}
