package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

const (
	modelFor      = 8 * time.Second
	modelForShort = 3 * time.Second
	modelClients  = 7
	modelBytes    = 16 << 10 // a larger file is begun anew: it is looked at often
)

// modelTiming makes what follows quiet follow soon.
var modelTiming = Timing{Quiet: 20 * time.Millisecond, Declare: 100 * time.Millisecond, Hole: 20 * time.Millisecond, Rest: 20 * time.Millisecond}

// Programs write, cut, rewrite, rename and link session files while clients
// come and go and the daemon is started again. At every moment what a client
// holds is what its cursor says, of one content that the file had; and when
// the programs have stopped, everybody comes to what is there.
//
// A run goes on in rounds of which some do no more than append, some replace
// whole files, and some write in place. SESSIOND_MODEL is how long it takes (a
// duration), SESSIOND_MODEL_SEED repeats the choices of a run, though not its
// timing, and SESSIOND_MODEL_OPS (names by comma) leaves only some operations.
func TestModel_ByEvents(t *testing.T) { testModel(t) }

func TestModel_ByPolling(t *testing.T) { testModel(t, polling) }

// Without what makes it fast nothing else changes.
func TestModel_WithoutCache(t *testing.T) {
	testModel(t, func(o *Options) { o.ReplayCacheBytes = 0; o.ChunkMemoryBytes = 1; o.ChunkTotalBytes = 1 })
}

// In files with checkpoints old bytes are not compared at once.
func TestModel_LargeFiles(t *testing.T) {
	testModel(t, func(o *Options) { o.ChunkBytes = 256 << 10 })
}

func testModel(t *testing.T, change ...func(*Options)) {
	m := newModel(t, change...)
	over := time.Now().Add(m.duration)
	for m.round = 0; time.Now().Before(over) && !t.Failed(); m.round++ {
		m.play()
		m.settle()
	}
	t.Logf("%d rounds: %+v", m.round, m.stats)
}

// model is one run.
type model struct {
	t        *testing.T
	w        *world
	d        *modelDisk
	duration time.Duration
	ops      []string // allowed, nil: all
	large    bool     // files have checkpoints
	rng      *rand.Rand
	writers  int
	clients  []*modelClient
	wake     chan struct{}
	round    int
	stats    modelStats
}

type modelStats struct {
	Ops, Attached, Tails, Positions, Refused, Frames, Broken, Replaced, Removed, Restarts, Splices int
}

func newModel(t *testing.T, change ...func(*Options)) *model {
	m := &model{t: t, duration: modelFor, wake: make(chan struct{}, 1)}
	if testing.Short() {
		m.duration = modelForShort
	}
	var err error
	if text := os.Getenv("SESSIOND_MODEL"); text != "" {
		if m.duration, err = time.ParseDuration(text); err != nil {
			t.Fatalf("SESSIOND_MODEL: %v", err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SESSIOND_MODEL_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SESSIOND_MODEL_SEED: %v", err)
		}
	}
	if text := os.Getenv("SESSIOND_MODEL_OPS"); text != "" {
		m.ops = strings.Split(text, ",")
	}
	t.Logf("SESSIOND_MODEL_SEED=%d", seed)
	m.rng = rand.New(rand.NewPCG(seed, 1))
	m.w = newWorld(t, append([]func(*Options){smallChunks, withoutSync, func(o *Options) {
		o.Timing = modelTiming
		o.IdleAfter = time.Millisecond
	}}, change...)...)
	m.large = m.w.opt.ChunkBytes > 1<<10
	m.d = newModelDisk(t, m.w.root)
	w := m.writer(nil)
	for _, name := range modelNames {
		m.d.create(name, w.fresh())
		m.w.e.changed(m.d.path(name))
	}
	m.d.settle()
	t.Cleanup(func() {
		for _, c := range m.clients {
			c.detach()
		}
		if t.Failed() {
			t.Logf("what was done last:\n%s", m.d.history())
			m.w.log.mu.Lock()
			defer m.w.log.mu.Unlock()
			b := m.w.log.b.Bytes()
			t.Logf("the log's end:\n%s", b[max(0, len(b)-6<<10):])
		}
	})
	return m
}

func (m *model) writer(ops []string) *modelWriter {
	m.writers++
	return &modelWriter{
		d: m.d, id: fmt.Sprintf("w%d", m.writers), ops: ops, names: modelNames, large: m.large,
		rng: rand.New(rand.NewPCG(m.rng.Uint64(), m.rng.Uint64())),
	}
}

// play is a round: programs write and clients do what they like until the
// programs have done their share.
func (m *model) play() {
	kind := min(m.rng.IntN(5), 2) // how far it goes
	if m.large {
		kind = 2
	}
	ops := slices.Concat(modelOps[:kind+1]...)
	ops = append(ops, modelOps[kind]...)
	if m.ops != nil {
		ops = slices.DeleteFunc(ops, func(op string) bool { return !slices.Contains(m.ops, op) })
	}
	var work sync.WaitGroup
	for range 1 + m.rng.IntN(3) {
		w, n := m.writer(ops), 4+m.rng.IntN(12)
		if m.large {
			n /= 2
		}
		if len(ops) == 0 {
			n = 0
		}
		m.stats.Ops += n
		work.Go(func() { w.run(n) })
	}
	done := make(chan struct{})
	go func() { work.Wait(); close(done) }()
	defer func() { <-done }()
	for {
		select {
		case <-done:
			return
		default:
			m.act()
		}
	}
}

// act is one thing that clients or the daemon do.
func (m *model) act() {
	switch n := m.rng.IntN(100); {
	case n < 12 && len(m.clients) < modelClients:
		m.clients = append(m.clients, m.client())
	case n < 14:
		m.restart(m.rng.IntN(2) == 0)
	case n < 18:
		m.idle()
	case n < 22 && len(m.clients) > 0: // leaves for good
		i := m.rng.IntN(len(m.clients))
		m.clients[i].detach()
		m.clients = slices.Delete(m.clients, i, i+1)
	case n < 40 && len(m.clients) > 0:
		m.pick().detach()
	case n < 85 && len(m.clients) > 0:
		c := m.pick()
		if c.attached || c.attach() {
			c.pull(1 + m.rng.IntN(5))
		}
		if c.f.snapshot != nil && m.rng.IntN(2) == 0 { // leaves in its middle
			c.detach()
			c.attach()
		}
	case n < 92:
		m.wait(3 * time.Millisecond)
	case len(m.clients) > 0:
		if c := m.pick(); c.attached {
			c.pull(1 << 20)
		}
	}
}

func (m *model) pick() *modelClient { return m.clients[m.rng.IntN(len(m.clients))] }

// wait is until an attachment is woken, at most for a while.
func (m *model) wait(most time.Duration) {
	tick := time.NewTimer(most)
	defer tick.Stop()
	select {
	case <-m.wake:
	case <-tick.C:
	}
}

func (m *model) restart(forget bool) {
	m.stats.Restarts++
	for _, c := range m.clients {
		c.detach()
	}
	m.w.stop()
	if forget {
		if err := os.Remove(filepath.Join(m.w.state, "index.db")); err != nil {
			m.t.Fatal(err)
		}
	}
	m.w.start()
}

// idle lets nobody use a session for a moment.
func (m *model) idle() {
	if len(m.clients) == 0 {
		return
	}
	key := m.pick().key
	for _, c := range m.clients {
		if c.key == key {
			c.detach()
		}
	}
	m.w.e.closeIdle(time.Now().Add(time.Second))
}

// settle waits until everybody has what is there, and compares it.
func (m *model) settle() {
	m.t.Helper()
	if m.t.Failed() {
		return
	}
	for _, name := range modelNames {
		if content, there := m.d.content(name); there && !m.large && len(content) > modelBytes {
			m.d.replace(name, m.writer(nil).fresh())
		}
	}
	end := time.Now().Add(patience)
	m.sweep()
	for len(m.clients) < 3 {
		m.clients = append(m.clients, m.client())
	}
	for _, c := range m.clients {
		for !c.isDone() {
			if time.Now().After(end) {
				m.t.Fatalf("round %d: not within %v after the last change: %s", m.round, patience, c)
			}
			m.wait(20 * time.Millisecond)
		}
	}
	for _, name := range modelNames {
		for _, name := range []string{name, aliasOf(name)} {
			m.settled(name, end)
		}
	}
	m.d.settle()
}

// sweep does for names that nobody is attached to what the watcher does each
// half a minute, and now and then for all.
func (m *model) sweep() {
	all := m.w.opt.Polling && m.rng.IntN(2) == 0
	for _, first := range modelNames {
		for _, name := range []string{first, aliasOf(first)} {
			if all || !slices.ContainsFunc(m.clients, func(c *modelClient) bool { return c.attached && c.path() == name }) {
				m.w.e.changed(m.d.path(name))
			}
		}
	}
}

// settled demands that a name is served as what it leads to, and that the
// replay is as good as a new one.
func (m *model) settled(name string, end time.Time) {
	m.t.Helper()
	content, there := m.d.content(name)
	if !there {
		return
	}
	c := m.clientOf(name, wire.Command{View: wire.ViewRecords, Encoding: wire.EncodingRaw})
	defer c.detach()
	want := whole(content)
	for !c.attached || !c.f.live || c.f.raw.String() != string(want) {
		if time.Now().After(end) {
			m.t.Fatalf("round %d: not served within %v after the last change as the %d bytes that it has: %s", m.round, patience, len(want), c)
		}
		if c.attached || c.attach() {
			c.pull(1 << 20)
		}
		m.wait(10 * time.Millisecond)
	}
	for {
		diff := m.replayDiff(name, content)
		if diff == "" {
			return
		}
		if time.Now().After(end) {
			m.t.Fatalf("round %d: %s: the replay is not as good as a new one (-new +held):\n%s", m.round, name, diff)
		}
		m.wait(10 * time.Millisecond)
	}
}

func whole(content []byte) []byte { return content[:bytes.LastIndexByte(content, '\n')+1] }

// replaySummary is all that a replay says.
type replaySummary struct {
	Head        stamp.Point
	Dialect     string
	Counts      replay.Counts
	Tail        replay.Tail
	Info        dialect.Info
	State       dialect.State
	Leaf        string
	Diagnostics []jsonl.Diagnostic
	Checkpoints stamp.Checkpoints
	Views       [2]replay.View
	Messages    [2][]string
}

func (m *model) replayDiff(name string, content []byte) string {
	g, err := m.w.session(followedRoot+":"+name).use(context.Background(), true)
	if err != nil {
		return err.Error()
	}
	defer m.w.session(followedRoot + ":" + name).done(g)
	if err := g.awake(context.Background()); err != nil {
		return err.Error()
	}
	fresh, err := replay.Build(context.Background(), bytes.NewReader(content), int64(len(content)), replay.Options{})
	if err != nil {
		m.t.Fatal(err)
	}
	want := m.summarise(fresh, bytes.NewReader(content))
	return cmp.Diff(want, m.summarise(g.replay, g.file), cmpopts.IgnoreTypes(replay.Bodies{}, dialect.Slots{}, replay.Budget{}), cmpopts.EquateEmpty())
}

func (m *model) summarise(r *replay.Replay, src io.ReaderAt) (s replaySummary) {
	w := dialect.NewWindow(src)
	s.Head, s.Counts, s.Tail, s.Checkpoints = r.Head(), r.Counts(), r.Tail(), r.Checkpoints()
	s.Dialect, _ = r.Dialect()
	var errFindings, errInfo, errState, errLeaf error
	s.Diagnostics, _, errFindings = r.Diagnostics()
	s.Info, _, errInfo = r.Info(w)
	s.State, errState = r.State(w)
	s.Leaf, errLeaf = r.Leaf(w)
	if err := errors.Join(errFindings, errInfo, errState, errLeaf); err != nil {
		s.Leaf = err.Error()
	}
	for _, v := range []dialect.View{dialect.Transcript, dialect.Context} {
		view, err := r.View(v)
		if err != nil {
			s.Leaf = err.Error()
		}
		s.Views[v] = view
		s.Messages[v] = slotsOf(r, v, w)
	}
	return s
}

// slotsOf are a view's messages as of the head.
func slotsOf(r *replay.Replay, v dialect.View, w *dialect.Window) []string {
	out := []string{}
	slots, bodies, err := r.Slots(v)
	if err != nil {
		return []string{err.Error()}
	}
	for i := range int(slots.Len()) {
		slot, body, err := bodies.BodyAt(&slots, i, true)
		var text []byte
		if err == nil {
			text, err = appendMessage(nil, slot, body, w)
		}
		if err != nil {
			text = []byte(err.Error())
		}
		out = append(out, string(text))
	}
	return out
}
