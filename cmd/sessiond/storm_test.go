package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sessiond/replay/stamp"
	"sessiond/wire"
	"sessiond/wire/client"
)

const (
	stormFor      = 6 * time.Second
	stormForShort = 3 * time.Second
	stormPatience = 2 * time.Minute // for everybody to come to the end afterwards
	stormEnd      = "the end"       // text of the last entry
)

// TestStorm kills the daemon again and again while clients append and follow.
// SESSIOND_STORM is how long (a duration), SESSIOND_STORM_SEED repeats the
// choices of a run, though not its timing.
func TestStorm(t *testing.T) {
	s := newStorm(t)
	ctx, cancel := context.WithTimeout(t.Context(), s.duration+stormPatience)
	defer cancel()
	s.start()
	s.waitReady()
	s.create(ctx)

	var followers, appenders sync.WaitGroup
	defer func() { // also when it goes wrong
		cancel()
		followers.Wait()
		appenders.Wait()
	}()
	raws := []*rawFollower{{}, {comesAndGoes: s.random()}, {comesAndGoes: s.random()}}
	views := []*viewFollower{{view: wire.ViewTranscript}, {view: wire.ViewContext}, {view: wire.ViewTranscript, comesAndGoes: s.random()}}
	for _, f := range raws {
		followers.Go(func() { s.check(f.run(ctx, s.opt)) })
	}
	for _, f := range views {
		followers.Go(func() { s.check(f.run(ctx, s.opt)) })
	}
	stop := make(chan struct{})
	writers := make([]*stormWriter, 4)
	for i := range writers {
		writers[i] = &stormWriter{name: string(rune('a' + i)), storm: s, random: s.random()}
		appenders.Go(func() { s.check(writers[i].run(ctx, stop)) })
	}
	s.rage()
	close(stop)
	appenders.Wait()
	last := &stormWriter{name: "z", storm: s, random: s.random()}
	s.check(last.add(ctx, s.appender(), []string{last.entry(stormEnd)}))
	followers.Wait()
	if t.Failed() {
		return
	}
	s.judge(ctx, append(writers, last), raws, views)
	s.end(syscall.SIGTERM)
}

// storm is one run.
type storm struct {
	t        *testing.T
	duration time.Duration
	dir      string
	file     string // of the session
	opt      client.Options
	seed     uint64
	rng      *rand.Rand // of the goroutine that kills
	daemon   *exec.Cmd
	log      *os.File // of all daemons
	kills    int

	mu    sync.Mutex
	leaf  string // id of the last entry that was acknowledged to anybody
	seeds *rand.Rand
}

func newStorm(t *testing.T) *storm {
	s := &storm{t: t, duration: stormFor, seed: uint64(time.Now().UnixNano())}
	if testing.Short() {
		s.duration = stormForShort
	}
	var err error
	if text := os.Getenv("SESSIOND_STORM"); text != "" {
		if s.duration, err = time.ParseDuration(text); err != nil {
			t.Fatalf("SESSIOND_STORM: %v", err)
		}
	}
	if text := os.Getenv("SESSIOND_STORM_SEED"); text != "" {
		if s.seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SESSIOND_STORM_SEED: %v", err)
		}
	}
	t.Logf("SESSIOND_STORM_SEED=%d", s.seed)
	s.seeds = rand.New(rand.NewPCG(s.seed, 1))
	s.rng = s.random()
	if s.dir, err = os.MkdirTemp("", "sd"); err != nil { // short, for the socket
		t.Fatal(err)
	}
	if s.log, err = os.Create(filepath.Join(s.dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.daemon.Process.Kill() // where it did not come to an end
		_ = s.log.Close()
		if t.Failed() {
			t.Logf("kept %s", s.dir)
			return
		}
		_ = os.RemoveAll(s.dir)
	})
	s.file = filepath.Join(s.dir, "sessions", "storm.jsonl")
	s.opt = client.Options{Path: filepath.Join(s.dir, "s"), ClientID: "storm"}
	return s
}

// random returns a source of its own for a goroutine.
func (s *storm) random() *rand.Rand { return rand.New(rand.NewPCG(s.seeds.Uint64(), s.seeds.Uint64())) }

func (s *storm) check(err error) {
	s.t.Helper()
	if err != nil && !(s.t.Failed() && errors.Is(err, context.Canceled)) {
		s.t.Error(err)
	}
}

// stormReconnect tries again soon: daemons do not live long here.
var stormReconnect = client.Reconnect{Min: 5 * time.Millisecond, Max: 100 * time.Millisecond}

func (s *storm) create(ctx context.Context) {
	s.t.Helper()
	if _, err := createSession(ctx, s.opt, client.CreateOptions{SessionID: "storm", CWD: "/"}, stormPatience); err != nil {
		s.t.Fatal(err)
	}
}

func (s *storm) appender() *client.Appender {
	return client.NewAppender(s.opt, client.AppendOptions{Session: "storm", Reconnect: stormReconnect})
}

// start runs a daemon with one or another setting.
func (s *storm) start() {
	s.t.Helper()
	args := []string{"serve", "--state-dir", s.dir, "--socket", s.opt.Path, "--root", "none=" + filepath.Join(s.dir, "none")}
	if s.rng.IntN(3) == 0 {
		args = append(args, "--replay-cache-bytes", "0")
	}
	if s.rng.IntN(3) == 0 {
		args = append(args, "--chunk-bytes", "4KiB")
	}
	s.daemon = exec.Command("sessiond", args...)
	s.daemon.Stderr = s.log
	if err := s.daemon.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// end ends the daemon by a signal and looks at how it went. A signal that
// comes before it is listened for ends the process too.
func (s *storm) end(with syscall.Signal) {
	s.t.Helper()
	if err := s.daemon.Process.Signal(with); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Fatal(err)
	}
	err := s.daemon.Wait()
	status, _ := s.daemon.ProcessState.Sys().(syscall.WaitStatus)
	ended := status.Signaled() && status.Signal() == with || with == syscall.SIGTERM && err == nil
	log := s.lastLog()
	if !ended || strings.Contains(log, "panic") || strings.Contains(log, "DATA RACE") {
		s.t.Fatalf("the daemon ended with %v after %v; its log:\n%s", err, with, log)
	}
}

// lastLog is the end of the daemons' log.
func (s *storm) lastLog() string {
	b, err := os.ReadFile(s.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-8<<10):])
}

// waitReady waits until the daemon answers.
func (s *storm) waitReady() {
	s.t.Helper()
	for end := time.Now().Add(patience); answers(s.opt.Path) != nil; time.Sleep(lookEach) {
		if time.Now().After(end) {
			s.t.Fatalf("no daemon within %v; its log:\n%s", patience, s.lastLog())
		}
	}
}

// rage kills and restarts the daemon until the time is over, and leaves one
// running.
func (s *storm) rage() {
	s.t.Helper()
	over := time.After(s.duration)
	for {
		life := time.Duration(s.rng.IntN(500)) * time.Millisecond
		if s.rng.IntN(4) == 0 { // not even ready
			life = time.Duration(s.rng.IntN(10_000)) * time.Microsecond
		} else {
			s.waitReady()
		}
		select {
		case <-over:
			s.t.Logf("%d daemons killed", s.kills)
			s.waitReady()
			return
		case <-time.After(life):
		}
		with := syscall.SIGKILL
		if s.rng.IntN(6) == 0 {
			with = syscall.SIGTERM
		}
		s.end(with)
		s.kills++
		if s.rng.IntN(3) == 0 {
			if err := os.Remove(filepath.Join(s.dir, "index.db")); err != nil && !errors.Is(err, os.ErrNotExist) {
				s.t.Fatal(err)
			}
		}
		s.start()
	}
}

// stormWriter appends entries with ids of its own, each after the one that was
// acknowledged last to anybody, which makes branches now and then.
type stormWriter struct {
	name   string
	storm  *storm
	random *rand.Rand
	next   int
	acked  []ackedEntry
	maybe  []string // sent last, not acknowledged
}

type ackedEntry struct {
	text string
	at   wire.Cursor
}

func (w *stormWriter) run(ctx context.Context, stop <-chan struct{}) error {
	a := w.storm.appender()
	defer a.Close()
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		batch := make([]string, 1+w.random.IntN(4))
		for i := range batch {
			batch[i] = w.entry(strings.Repeat("storm ", w.random.IntN(100)))
		}
		if err := w.add(ctx, a, batch); err != nil {
			return err
		}
	}
}

func (w *stormWriter) entry(text string) string {
	w.next++
	w.storm.mu.Lock()
	defer w.storm.mu.Unlock()
	e, id := demoEntry(demoMessage{w.name + strconv.Itoa(w.next), "user", text}, w.storm.leaf, time.Unix(int64(w.next), 0))
	if w.random.IntN(2) == 0 { // for the next of the batch
		w.storm.leaf = id
	}
	return e
}

func (w *stormWriter) add(ctx context.Context, a *client.Appender, batch []string) error {
	w.maybe = batch
	acks, err := a.Append(ctx, batch)
	for i, ack := range acks {
		w.acked = append(w.acked, ackedEntry{batch[i], ack.Cursor})
	}
	if err != nil {
		return fmt.Errorf("appender %s: %w", w.name, err)
	}
	w.maybe = nil
	return nil
}

// rawFollower collects the bytes of the file.
type rawFollower struct {
	comesAndGoes *rand.Rand // nil: it stays
	got          []byte
	attached     int
}

func (f *rawFollower) run(ctx context.Context, opt client.Options) error {
	return follow(ctx, opt, client.AttachOptions{View: wire.ViewRecords, Encoding: wire.EncodingRaw}, f.comesAndGoes,
		func(item client.Item) (done bool, err error) {
			switch i := item.(type) {
			case *wire.AttachResult:
				f.attached++
				if i.Mode != wire.ModeTail && bytes.IndexByte(f.got, '\n') >= 0 {
					return false, fmt.Errorf("raw follower: attached in mode %s (%s) with %d bytes in hand", i.Mode, optionalText(i.Reason), len(f.got))
				}
			case *wire.SnapshotBegin:
				f.got = nil
			case *client.Records:
				f.got = append(f.got, i.Body...)
			}
			return bytes.HasSuffix(f.got, []byte("\n")) && bytes.Contains(lastLine(f.got), []byte(stormEnd)), nil
		},
		func(p client.Place) { f.got = f.got[:p.Cursor.Offset] })
}

func optionalText(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func lastLine(b []byte) []byte {
	b = bytes.TrimSuffix(b, []byte("\n"))
	return b[bytes.LastIndexByte(b, '\n')+1:]
}

// viewFollower keeps the slots of a message view.
type viewFollower struct {
	view         wire.View
	comesAndGoes *rand.Rand
	slots        client.Slots
}

func (f *viewFollower) run(ctx context.Context, opt client.Options) error {
	return follow(ctx, opt, client.AttachOptions{View: f.view}, f.comesAndGoes,
		func(item client.Item) (done bool, err error) {
			if err := f.slots.Apply(item); err != nil {
				return false, fmt.Errorf("follower of %s: %w", f.view, err)
			}
			messages := f.slots.Messages()
			return len(messages) > 0 && bytes.Contains(messages[len(messages)-1], []byte(stormEnd)), nil
		}, func(client.Place) {})
}

// follow gives items to take until that is done. A follower that comes and
// goes closes now and then and goes on at its place, to which it went back.
func follow(ctx context.Context, opt client.Options, ao client.AttachOptions, goes *rand.Rand, take func(client.Item) (bool, error), back func(client.Place)) error {
	ao.Session, ao.Reconnect = "storm", stormReconnect
	for {
		a, err := client.Attach(ctx, opt, ao)
		if err != nil {
			return fmt.Errorf("attach %s: %w", ao.View, err)
		}
		again := false
		for item, err := range a.Frames(ctx) {
			if err != nil {
				a.Close()
				return fmt.Errorf("follow %s: %w", ao.View, err)
			}
			done, err := take(item)
			if done || err != nil {
				a.Close()
				return err
			}
			if again = goes != nil && goes.IntN(50) == 0; again {
				break
			}
		}
		a.Close()
		if !again {
			return fmt.Errorf("follow %s: ended before the end", ao.View)
		}
		ao.From = a.Place()
		back(ao.From)
	}
}

// judge looks at what came of it all.
func (s *storm) judge(ctx context.Context, writers []*stormWriter, raws []*rawFollower, views []*viewFollower) {
	s.t.Helper()
	file, err := os.ReadFile(s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	s.judgeFile(file, writers)
	for i, f := range raws {
		if !bytes.Equal(f.got, file) {
			s.t.Errorf("raw follower %d: got %d bytes, want the %d of the file", i, len(f.got), len(file))
		}
	}
	for i, f := range views {
		var fresh client.Slots
		a, err := client.Attach(ctx, s.opt, client.AttachOptions{Session: "storm", View: f.view, Once: true, Reconnect: stormReconnect})
		if err != nil {
			s.t.Fatal(err)
		}
		for item, err := range a.Frames(ctx) {
			if err == nil {
				err = fresh.Apply(item)
			}
			if err != nil {
				s.t.Fatal(err)
			}
		}
		a.Close()
		if d := cmp.Diff(asText(fresh.Messages()), asText(f.slots.Messages())); d != "" {
			s.t.Errorf("follower %d of %s differs from a fresh snapshot (-want +got):\n%.2000s", i, f.view, d)
		}
	}
}

func asText(messages []json.RawMessage) []string {
	out := make([]string, len(messages))
	for i, m := range messages {
		out[i] = string(m)
	}
	return out
}

// judgeFile: every acknowledged entry is there once, where its cursor says, in
// the order of its writer; what is there was sent, and none twice.
func (s *storm) judgeFile(file []byte, writers []*stormWriter) {
	s.t.Helper()
	type place struct {
		text string
		end  stamp.Point
	}
	places := map[string]place{}
	order := map[string]int{} // of each writer: the last number seen
	d := stamp.NewDigest()
	at := stamp.Point{}
	for line := range bytes.Lines(file) {
		_, _ = d.Write(line) // never fails
		at = stamp.Point{Sequence: at.Sequence + 1, Offset: at.Offset + int64(len(line)), Digest: d.Sum64()}
		text := strings.TrimSuffix(string(line), "\n")
		id := textOf([]byte(text), "id")
		if at.Sequence == 1 {
			continue // the header
		}
		if _, twice := places[id]; twice {
			s.t.Errorf("entry %s is in the file twice, again in line %d", id, at.Sequence)
		}
		places[id] = place{text, at}
		n, err := strconv.Atoi(id[min(1, len(id)):])
		if err != nil || n <= order[id[:1]] {
			s.t.Errorf("line %d has entry %q after %d of that writer: %v", at.Sequence, id, order[id[:1]], err)
			return
		}
		order[id[:1]] = n
	}
	acked := 0
	for _, w := range writers {
		for _, e := range w.acked {
			id := textOf([]byte(e.text), "id")
			p, ok := places[id]
			got := stamp.Point{Sequence: uint64(e.at.Sequence), Offset: e.at.Offset, Digest: uint64(e.at.Digest)}
			if !ok || p.text != e.text || p.end != got {
				s.t.Errorf("entry %s was acknowledged at %s; the file has it: %t, at %+v", id, e.at, ok, p.end)
			}
			delete(places, id)
			acked++
		}
		for _, text := range w.maybe {
			delete(places, textOf([]byte(text), "id"))
		}
	}
	for id := range places {
		s.t.Errorf("entry %s is in the file, but was not acknowledged", id)
	}
	s.t.Logf("%d entries acknowledged, %d bytes", acked, len(file))
}
