package engine

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"time"

	"sessiond/chunks"
	"sessiond/kv"
	"sessiond/replay/dialect"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

// keptLog is what of a view's log goes to the index beside the chunks' places:
// the calls that had no result among the slots that were packed.
type keptLog struct {
	Fed  int                  `json:"fed"`
	Open []dialect.Unanswered `json:"open,omitempty"`
}

// keptOpenMax bounds the unanswered calls that are kept.
const keptOpenMax = 10_000

// keptEnd is what a whole snapshot has beside its chunks. With it a restarted
// daemon sends the snapshot without reading the session file.
type keptEnd struct {
	Slots      int               `json:"slots"`
	Amendments [][]byte          `json:"amendments,omitempty"` // base64: JSON in JSON would be written anew
	Unanswered []wire.Unanswered `json:"unanswered"`
}

func cutOf(p stamp.Point) chunks.Cut {
	return chunks.Cut{Sequence: p.Sequence, Offset: p.Offset, Digest: p.Digest}
}

// adopt opens the log of a view that the index knows, nil where it knows none
// that is of this history and these rules. Files of another are removed.
func (g *generation) adopt(view wire.View) *viewLog {
	s := g.content.s
	v, ok := s.e.index.View(s.e.ctx, s.key, string(view))
	if !ok {
		return nil
	}
	_, rules := g.replay.Dialect()
	if v.Rules != rules || v.Target != s.e.o.ChunkBytes || v.At.Offset > g.replay.Head().Offset {
		s.e.discard(v)
		return nil
	}
	if _, err := g.replay.Verify(g.content, v.At); err != nil && v.At.Offset > 0 {
		if errors.Is(err, stamp.ErrMismatch) {
			s.e.discard(v)
		}
		return nil
	}
	head, saved, ok := splitViewData(v.Data)
	var kept keptLog
	if !ok || json.Unmarshal(head, &kept) != nil {
		return nil
	}
	log, err := s.e.chunks.Adopt(saved, s.e.logOptions(false))
	if err != nil {
		return nil
	}
	l := &viewLog{Log: log, rules: rules, at: v.At, fed: kept.Fed}
	l.pairs.Restore(kept.Open)
	l.saved = log.Revision()
	return l
}

// discard removes the spill files of a view that is of no use any more.
func (e *Engine) discard(v kv.View) {
	if _, saved, ok := splitViewData(v.Data); ok {
		e.chunks.Discard(saved)
	}
}

// discardViews removes the spill files of a session that is gone.
func (s *session) discardViews() {
	for _, view := range []wire.View{wire.ViewTranscript, wire.ViewContext, wire.ViewRecords} {
		if v, ok := s.e.index.View(s.e.ctx, s.key, string(view)); ok {
			s.e.discard(v)
		}
	}
}

// A view's data in the index is a header's length as uvarint, the header in
// JSON, and the chunks' own part.

func encodeViewData(kept keptLog, log []byte) ([]byte, error) {
	head, err := json.Marshal(kept)
	if err != nil {
		return nil, err
	}
	data := binary.AppendUvarint(nil, uint64(len(head)))
	return append(append(data, head...), log...), nil
}

func splitViewData(data []byte) (head, log []byte, ok bool) {
	n, size := binary.Uvarint(data)
	if size <= 0 || n > uint64(len(data)-size) {
		return nil, nil, false
	}
	return data[size : size+int(n)], data[size+int(n):], true
}

// ViewChunks is the part of a view's data in the index that package chunks
// knows; ok is false where the data is of another form.
func ViewChunks(v kv.View) (saved []byte, ok bool) {
	_, saved, ok = splitViewData(v.Data)
	return saved, ok
}

// keep returns what adds to a batch what has changed in the view's log since
// the index was given it; nil where nothing has. The log may be closed before
// that is called.
func (l *viewLog) keep(key string, view wire.View, target int) func(*kv.Batch) (written func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	revision := l.Revision()
	if revision == l.saved {
		return nil
	}
	log := l.Save()
	segments := chunks.Segments(log)
	written := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.saved = max(l.saved, revision)
	}
	if len(segments) == 0 { // nothing would be found again
		return func(b *kv.Batch) func() {
			b.DeleteView(key, string(view))
			return written
		}
	}
	kept := keptLog{Fed: l.fed, Open: l.pairs.List()}
	if len(kept.Open) > keptOpenMax {
		kept = keptLog{}
	}
	data, err := encodeViewData(kept, log)
	if err != nil {
		return nil // it cannot
	}
	count, bytes := l.Size()
	v := kv.View{Rules: l.rules, Target: target, At: l.at, Segments: segments, Chunks: count, Bytes: bytes, Data: data}
	return func(b *kv.Batch) func() {
		b.PutView(key, string(view), v)
		return written
	}
}

// keepLogs is keep for the generation's logs.
func (g *generation) keepLogs() func(*kv.Batch) (written func()) {
	if g.ended.Load() {
		return func(*kv.Batch) func() { return nil }
	}
	s := g.content.s
	var writes []func(*kv.Batch) func()
	for key, l := range g.openLogs() {
		if write := l.keep(s.key, key.view, s.e.o.ChunkBytes); write != nil {
			writes = append(writes, write)
		}
	}
	return func(b *kv.Batch) func() {
		var all []func()
		for _, write := range writes {
			all = append(all, write(b))
		}
		return func() {
			for _, written := range all {
				written()
			}
		}
	}
}

// keepsMore reports whether a log of the generation has changed since the
// index was given it.
func (g *generation) keepsMore() bool {
	for _, l := range g.openLogs() {
		if l.hasChanged() {
			return true
		}
	}
	return false
}

func (l *viewLog) hasChanged() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Revision() != l.saved
}

// sweepSpill removes the spill files that nothing in the index names, or only
// views of another chunk size.
func (e *Engine) sweepSpill() {
	if err := e.reconcile(); err != nil && e.ctx.Err() == nil {
		e.o.Logger.Warn("index not compared with the roots", "error", err)
	}
	e.behind.flush(e.ctx)
	named := map[string]bool{}
	err := e.index.Views(e.ctx, func(_, _ string, v kv.View) error {
		if v.Target != e.o.ChunkBytes {
			return nil
		}
		for _, name := range v.Segments {
			named[name] = true
		}
		return nil
	})
	if err != nil {
		return // the daemon ends
	}
	e.chunks.Sweep(func(segment string) bool { return named[segment] })
}

// keepEnd keeps what a whole snapshot of the log has beside the chunks, if it
// is at the head and the chunks are in files.
func (l *viewLog) keepEnd(ctx context.Context, g *generation, p *messagePacker, c *chunks.Snapshot, amended []amendedBody) {
	if p.cut != g.replay.Head() || !l.Spilled() {
		return
	}
	l.mu.Lock()
	tried := l.tried == p.cut
	l.tried = p.cut
	l.mu.Unlock()
	if tried {
		return
	}
	extra, err := encodeEnd(ctx, g, p, amended)
	if err == nil {
		err = l.SetEnd(cutOf(p.cut), c, extra)
	}
	if errors.Is(err, chunks.ErrDisposed) { // the last client has left: it is packed once more when the session rests
		l.mu.Lock()
		l.tried = stamp.Point{}
		l.mu.Unlock()
		return
	}
	if err != nil && !errors.Is(err, chunks.ErrNotKept) && ctx.Err() == nil {
		g.content.s.e.o.Logger.Warn("end of a snapshot not kept", "session", g.content.s.key, "error", err)
	}
}

func encodeEnd(ctx context.Context, g *generation, p *messagePacker, amended []amendedBody) ([]byte, error) {
	unanswered, err := p.unanswered(ctx)
	if err != nil {
		return nil, err
	}
	end := keptEnd{Slots: int(p.slots.Len()), Unanswered: wireUnanswered(unanswered)}
	w := windows.Get().(*dialect.Window)
	defer windows.Put(w)
	w.Reset(g.content)
	for _, a := range amended {
		text, err := appendAmendment(nil, a.index, a.slot, a.body, w)
		if err != nil {
			return nil, err
		}
		end.Amendments = append(end.Amendments, text)
	}
	return json.Marshal(end)
}

// lazySource packs again what was lost of a snapshot that was kept: only then
// the records are read.
type lazySource struct {
	g    *generation
	cut  stamp.Point
	view dialect.View
	p    *messagePacker
}

var _ chunks.Source = (*lazySource)(nil)

// Before implements chunks.Source. The snapshot is complete, so that nothing
// asks.
func (l *lazySource) Before(chunks.Place) bool { return true }

// Pack implements chunks.Source.
func (l *lazySource) Pack(ctx context.Context, b *chunks.Builder, from chunks.Place) (chunks.Place, bool, error) {
	if l.p == nil {
		if err := l.g.awake(ctx); err != nil {
			return from, false, err
		}
		v, err := l.g.viewAt(ctx, l.view, l.cut) // it may have grown since
		if err != nil {
			return from, false, err
		}
		l.p = l.g.packer(v, l.view) // without a log: it pairs nothing
	}
	return l.p.Pack(ctx, b, from)
}

// startKept begins the snapshot at the head of a replay that was not read
// again, if it was kept whole.
func (st *stream) startKept(cut stamp.Point, purpose, reason string) bool {
	g := st.g.retain()
	log := g.log(st.e, logKey{st.view, wire.EncodingJSON})
	id := snapshotID(st.rules, st.view, st.e.o.ChunkBytes, cut, 0)
	source := &lazySource{g: g, cut: cut, view: viewOf(st.view)}
	s, release, extra, ok := log.EndAt(cutOf(cut), chunks.SnapshotOptions{Session: st.s.key, ID: id, Close: g.release, Source: source})
	if !ok {
		g.release()
		return false
	}
	var end keptEnd
	if json.Unmarshal(extra, &end) != nil {
		release()
		return false
	}
	head, d := st.g.replay.HeadDigest()
	if head != cut { // it grew just now
		release()
		return false
	}
	n, err := st.g.replay.DiagnosticsCount()
	if err != nil {
		release()
		return false
	}
	v := snapshotView{cut: cut, replay: st.g.replay, diagnostics: n, count: end.Slots}
	sn := st.newSnapshot(v, d, purpose, reason, nil)
	sn.kept, sn.chunks, sn.stop = &end, begun{Snapshot: s, release: release}, s.Notify(st.wakeUp)
	return true
}

// keepEnds packs the ends of views whose session has grown since they were
// kept and rests now.
func (s *session) keepEnds(ctx context.Context) {
	s.mu.Lock()
	g := s.gen
	if g == nil || s.e.o.Now().UnixNano()-s.info.Stamp.CTimeNano < int64(s.e.o.Timing.Rest) {
		s.mu.Unlock()
		return
	}
	g.retain()
	s.mu.Unlock()
	defer g.release()
	if g.replay.IsAsleep() {
		return
	}
	var stale []logKey
	for key, l := range g.openLogs() {
		if key.view != wire.ViewRecords && l.isStale(g.replay.Head()) {
			stale = append(stale, key)
		}
	}
	for _, key := range stale {
		g.packEnd(ctx, key)
	}
	if len(stale) > 0 {
		s.remember(g)
	}
}

// isStale reports whether the log has spilled chunks and no end at the head.
func (l *viewLog) isStale(head stamp.Point) bool {
	if !l.Spilled() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tried != head
}

// packEndTime bounds the packing of an end.
const packEndTime = 10 * time.Second

// packEnd packs what a view has behind its full chunks, and keeps it.
func (g *generation) packEnd(ctx context.Context, key logKey) {
	e := g.content.s.e
	view := viewOf(key.view)
	v, err := viewOfReplay(g.replay, view)
	if err != nil {
		return // nobody waits for it
	}
	_, rules := g.replay.Dialect()
	p := g.packer(v, view)
	log := g.log(e, key)
	b, ok, err := log.begin(p, rules, chunks.SnapshotOptions{
		Session: g.content.s.key, ID: snapshotID(rules, key.view, e.o.ChunkBytes, v.cut, 0), Close: g.retain().release,
	})
	if !ok || err != nil {
		g.release()
		return
	}
	defer b.release()
	if !b.fresh { // a client has it packed
		return
	}
	ctx, cancel := context.WithTimeout(ctx, packEndTime) // where there is no room it would wait for a reader
	defer cancel()
	if b.Pack(ctx) == nil {
		log.keepEnd(ctx, g, p, b.Snapshot, v.amended)
	}
}
