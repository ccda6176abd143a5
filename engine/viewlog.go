package engine

import (
	"maps"
	"sync"

	"sessiond/chunks"
	"sessiond/replay/dialect"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

type logKey struct {
	view     wire.View
	encoding string
}

// viewLog is the chunk log of a view, with what its packing finds out.
type viewLog struct {
	*chunks.Log
	mu    sync.Mutex
	rules string        // rules revision that it was packed by; guarded by mu
	at    stamp.Point   // head up to which cuts were applied; guarded by mu
	saved uint64        // revision that the index has; guarded by mu
	tried stamp.Point   // head at which the end was kept last; guarded by mu
	cuts  int           // how many were; guarded by mu
	pairs dialect.Pairs // calls of the first fed slots; guarded by mu
	fed   int           // guarded by mu
}

// log returns the chunk log of a view.
func (g *generation) log(e *Engine, key logKey) *viewLog {
	g.opening.Lock()
	defer g.opening.Unlock()
	g.mu.Lock()
	l, moved := g.logs[key], g.moved
	g.mu.Unlock()
	switch {
	case moved != nil:
		return moved.log(e, key)
	case l != nil:
		return l
	}
	if l = g.adopt(key.view); l == nil {
		l = e.newViewLog(false)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.logs[key] = l
	return l
}

func (e *Engine) newViewLog(private bool) *viewLog {
	return &viewLog{Log: e.chunks.NewLog(e.logOptions(private)), at: stamp.Start}
}

func (e *Engine) logOptions(private bool) chunks.LogOptions {
	return chunks.LogOptions{Target: e.o.ChunkBytes, MemoryBytes: e.o.ChunkMemoryBytes, Private: private}
}

// openLogs returns the logs that were asked for.
func (g *generation) openLogs() map[logKey]*viewLog {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.logs)
}

// closeLogs gives up the logs of a generation that nobody uses any more. What
// they have spilled is left for who opens the session next, unless the
// history has ended.
func (g *generation) closeLogs() {
	for _, l := range g.openLogs() {
		if g.ended.Load() {
			l.Close()
		} else {
			l.Detach()
		}
	}
}

// moveLogs gives the logs to a generation of the same history.
func (g *generation) moveLogs(to *generation) {
	g.opening.Lock()
	defer g.opening.Unlock()
	g.mu.Lock()
	logs := g.logs
	g.logs, g.moved = map[logKey]*viewLog{}, to
	g.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	to.logs = logs
}

// begun is a snapshot's chunks and how they are given back.
type begun struct {
	*chunks.Snapshot
	release func()
	fresh   bool // nobody packs them yet
}

// beginRecords begins a snapshot of view records, which nothing ever cuts.
func (l *viewLog) beginRecords(rules string, cut stamp.Point, o chunks.SnapshotOptions) begun {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rules = rules
	if cut.Offset > l.at.Offset {
		l.at = cut
	}
	return l.beginPlain(o)
}

func (l *viewLog) beginPlain(o chunks.SnapshotOptions) begun {
	s, release, fresh := l.Begin(o)
	return begun{s, release, fresh}
}

// begin begins a snapshot of a message view after it has applied to the log
// the cuts since it was used last. It is false where the view was cut since
// the snapshot's own cut: the log is of another history then.
func (l *viewLog) begin(p *messagePacker, rules string, o chunks.SnapshotOptions) (b begun, shared bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, err := p.replay.Delta(p.view, l.at.Sequence)
	if err != nil {
		return b, false, err
	}
	keep := d.Cut.Keep
	if l.rules != rules {
		keep, l.rules = 0, rules
	}
	l.at = d.Head
	if keep < dialect.All {
		l.CutBack(keep)
		l.cuts++
		if keep < l.fed {
			l.pairs, l.fed = dialect.Pairs{}, 0
		}
	}
	if d, err = p.replay.Delta(p.view, p.cut.Sequence); err != nil || d.Cut.Keep < dialect.All {
		return b, false, err
	}
	p.log, p.logCuts = l, l.cuts
	o.Source = p.clone()
	return l.beginPlain(o), true, nil // with mu: no cut comes in between
}

// feed lets the log pair calls and results while messages are at hand: a
// packer that began at from gives it those that matter, in order.
func (l *viewLog) feed(cuts, from, slot int, sequence uint64, message []byte) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if cuts == l.cuts && from <= l.fed && slot >= l.fed {
		l.pairs.Add(sequence, message)
		l.fed = slot + 1
	}
}

// fedUpTo says that a packer that began at from has given all before next.
func (l *viewLog) fedUpTo(cuts, from, next int) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if cuts == l.cuts && from <= l.fed {
		l.fed = max(l.fed, next)
	}
}

// unanswered lists the calls without a result, if exactly so many slots were
// fed.
func (l *viewLog) unanswered(cuts, slots int) ([]dialect.Unanswered, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cuts != l.cuts || l.fed != slots {
		return nil, false
	}
	return l.pairs.List(), true
}

func viewOf(v wire.View) dialect.View {
	if v == wire.ViewContext {
		return dialect.Context
	}
	return dialect.Transcript
}
