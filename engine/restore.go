package engine

import (
	"context"
	"encoding/json"
	"time"

	"sessiond/kv"
	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

// restored makes a session's replay of what the index remembers, if the file
// is what it was then; nil where it has to be read. Only where the stamp does
// not prove it the content is compared, and nothing is parsed.
func (s *session) restored(ctx context.Context, src replay.Source) *replay.Replay {
	sig, ok := s.e.index.Signature(ctx, s.key)
	limited := s.e.o.MaxReplayRecords > 0 || s.e.o.MaxReplayBytes > 0 // what a view is made of is to be known
	if !ok || limited || sig.Head.Offset == 0 || sig.Head.Offset != src.Size {
		return nil
	}
	saved, ok := s.saved(ctx, sig)
	if !ok {
		return nil
	}
	r, ok := replay.Restore(saved, s.replayOptions())
	if !ok {
		return nil
	}
	proven := sig.Stamp == src.Stamp && sig.Trusted && sig.BootID == s.e.bootID && s.e.trust.Prove(src.Stamp) != 0
	if !proven && r.Compare(ctx, src, true) != nil {
		return nil
	}
	return r
}

// saved puts together what the index has of a session.
func (s *session) saved(ctx context.Context, sig kv.Signature) (saved replay.Saved, ok bool) {
	l, haveListing := s.e.index.Listing(ctx, s.key)
	points, havePoints := s.e.index.Checkpoints(ctx, s.key)
	n := len(points)
	if !haveListing || !havePoints || n == 0 || points[n-1].Point != sig.Head ||
		l.State == nil || l.RecordCount == nil || l.DiagnosticsCount == nil || l.MessageCount == nil || l.ContextCount == nil {
		return saved, false
	}
	head := points[n-1]
	before := stamp.Start
	if n > 1 {
		before = points[n-2].Point
	}
	if head.Offset-before.Offset < stamp.CheckpointBytes { // it is there as the head only
		points = points[:n-1]
	}
	saved = replay.Saved{
		Head: sig.Head, State: head.State, Checkpoints: points, Dialect: sig.Dialect, Rules: sig.Rules,
		Records: *l.RecordCount, Diagnostics: *l.DiagnosticsCount,
		Info: dialect.Info{
			ID: l.ID, Title: text(l.Title), CWD: text(l.CWD), Created: timeOf(l.Created), Modified: timeOf(l.Modified),
			Messages: [dialect.Views]int{dialect.Transcript: *l.MessageCount, dialect.Context: *l.ContextCount},
		},
		Turn: dialect.State{
			Turn: l.State.Turn, OpenCalls: l.State.OpenCalls, PendingRequests: l.State.PendingRequests,
			Queued: l.State.Queued, Settings: json.RawMessage(l.State.Settings),
		},
		Leaf: text(l.Leaf),
	}
	return saved, true
}

// checkpoints are what the index holds to restore a replay: those of the
// digest, and the head.
func checkpoints(r *replay.Replay) (head stamp.Point, list stamp.Checkpoints) {
	head, d := r.HeadDigest()
	list = r.Checkpoints()
	for n := len(list); n > 0 && list[n-1].Offset > head.Offset; n-- { // it grew in between
		list = list[:n-1]
	}
	if n := len(list); head.Offset > 0 && (n == 0 || list[n-1].Offset < head.Offset) {
		list = append(list, stamp.Checkpoint{Point: head, State: d.State()})
	}
	return head, list
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func timeOf(s *string) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, text(s)) // the zero time where there is none
	return t
}

// awake makes sure that the generation's records were read.
func (g *generation) awake(ctx context.Context) error {
	if err := g.replay.Wake(ctx, g.file); err != nil {
		return wire.Errorf(codeOf(err), "session %s: %v", g.content.s.key, err)
	}
	return nil
}
