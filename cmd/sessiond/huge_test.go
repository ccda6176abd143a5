//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sessiond/replay/report"
	"sessiond/testdata/gen"
	"sessiond/wire"
	"sessiond/wire/client"
)

const (
	hugeRSSMax   = 64 << 20
	hugeLimit    = 128 << 20 // of a process that is confined
	hugePatience = 10 * time.Minute
	hugeClients  = 20
)

// hugeSizes are those of the tests here: SESSIOND_HUGE=full is what they are
// for, the short forms look for the same faults in less time. Their long entry
// and their hole are still over the record limit.
func hugeSizes() (file gen.HugeOptions, crowd int64) {
	switch {
	case os.Getenv("SESSIOND_HUGE") == "full":
		return gen.HugeOptions{}, 100 << 20
	case raceOn: // all is ten times slower
		return gen.HugeOptions{Entries: 20_000, LongBytes: 70 << 20, HoleBytes: 70 << 20}, 2 << 20
	}
	return gen.HugeOptions{Entries: 100_000, LongBytes: 70 << 20, HoleBytes: 200 << 20}, 10 << 20
}

// hugeFile is a huge session in a folder of its own.
type hugeFile struct {
	gen.Huge
	path string
	info os.FileInfo
	sum  string
}

func newHugeFile(t *testing.T) *hugeFile {
	t.Helper()
	f := &hugeFile{path: filepath.Join(t.TempDir(), "huge.jsonl")}
	options, _ := hugeSizes()
	var err error
	if f.Huge, err = gen.WriteHuge(f.path, options); err != nil {
		t.Fatal(err)
	}
	rest(t, f.path)
	f.info, f.sum = f.now(t)
	t.Logf("%d bytes, %d on disk, %d records", f.Bytes, f.info.Sys().(*syscall.Stat_t).Blocks*512, f.Records)
	return f
}

// rest makes a file one that nobody has written for an hour: what was written
// a moment ago may have holes that are still to be filled.
func rest(t *testing.T, path string) {
	t.Helper()
	ago := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(path, ago, ago); err != nil {
		t.Fatal(err)
	}
}

func (f *hugeFile) now(t *testing.T) (os.FileInfo, string) {
	t.Helper()
	file, err := os.Open(f.path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		t.Fatal(err)
	}
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info, hex.EncodeToString(h.Sum(nil))
}

func (f *hugeFile) checkUntouched(t *testing.T) {
	t.Helper()
	info, sum := f.now(t)
	if !info.ModTime().Equal(f.info.ModTime()) || info.Mode() != f.info.Mode() || !os.SameFile(info, f.info) || sum != f.sum {
		t.Errorf("the file was touched: modified at %v, content %s; was %v, %s", info.ModTime(), sum, f.info.ModTime(), f.sum)
	}
}

// confinement makes a command that is held to hugeLimit in one way or another,
// or skips the test.
type confinement func(t *testing.T, args ...string) *exec.Cmd

var confinements = []struct {
	name    string
	command confinement
}{{"free", free}, {"data limit", underDataLimit}, {"cgroup", underCgroup}}

func free(t *testing.T, args ...string) *exec.Cmd {
	return exec.CommandContext(t.Context(), "sessiond", args...)
}

// underDataLimit bounds all private memory that may be written, used or not.
// Stacks of threads, which only a process with cgo maps, are made small.
func underDataLimit(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if raceOn {
		t.Skip("the race detector maps more than the limit")
	}
	script := fmt.Sprintf(`ulimit -s 256 && ulimit -d %d && exec sessiond "$@"`, hugeLimit>>10)
	return exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", script, "sh"}, args...)...)
}

// underCgroup bounds resident memory with the page cache that the process
// fills, none of which it needs.
func underCgroup(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if raceOn {
		t.Skip("the race detector takes more than the limit")
	}
	dir, err := memoryCgroup()
	if dir != "" {
		t.Cleanup(func() { _ = os.Remove(dir) }) // when the process has ended
	}
	if err != nil {
		t.Skipf("no cgroup with a memory limit can be made here: %v", err)
	}
	script := `echo $$ >"$0"/cgroup.procs && exec sessiond "$@"`
	return exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", script, dir}, args...)...)
}

// memoryCgroup makes a group below that of this process. A folder that it
// returns with an error is to be removed all the same.
func memoryCgroup() (dir string, err error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	mount, limit, controller := "/sys/fs/cgroup", "memory.max", "::"
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err != nil { // version 1
		mount, limit, controller = filepath.Join(mount, "memory"), "memory.limit_in_bytes", ":memory:"
	}
	_, own, ok := strings.Cut(string(groups), controller)
	if !ok {
		return "", errors.New("this process is in none")
	}
	own, _, _ = strings.Cut(own, "\n")
	dir, err = os.MkdirTemp(filepath.Join(mount, own), "sessiond-test-")
	if err != nil {
		return "", err
	}
	_ = os.WriteFile(filepath.Join(dir, "memory.swap.max"), []byte("0"), 0o600) // not everywhere
	return dir, os.WriteFile(filepath.Join(dir, limit), []byte(strconv.Itoa(hugeLimit)), 0o600)
}

// TestHuge_File reads a file of any size in bounded memory: offline and
// through a daemon, free and confined. It is not changed by that.
func TestHuge_File(t *testing.T) {
	f := newHugeFile(t)
	for _, c := range confinements {
		t.Run("inspect, "+c.name, func(t *testing.T) { f.inspect(t, c.command(t, "inspect", f.path, "-o", "json")) })
		t.Run("attach, "+c.name, func(t *testing.T) {
			f.attach(t, newHugeDaemon(t, filepath.Dir(f.path), c.command))
		})
	}
	f.checkUntouched(t)
}

// inspect checks a summary and what it cost.
func (f *hugeFile) inspect(t *testing.T, cmd *exec.Cmd) {
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	peak := watchPeak(cmd.Process.Pid)
	err := cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != exitDamaged {
		t.Fatalf("exit code: got %d (%v), want %d; it said:\n%s", got, err, exitDamaged, endOf(complaints.Bytes()))
	}
	var s report.Summary
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	// The header is an entry here; the hole is over the record limit, as the long entry is.
	want := report.Records{Total: f.Records, Entries: f.Entries + 1, Malformed: 1, Oversized: 2}
	if s.Records != want || s.Bytes != f.Bytes || s.SHA256 != f.sum {
		t.Errorf("got %+v of %d bytes (%s), want %+v of %d (%s)", s.Records, s.Bytes, s.SHA256, want, f.Bytes, f.sum)
	}
	if got := int64(s.Messages.Transcript); got != f.Messages {
		t.Errorf("got %d messages, want %d", got, f.Messages)
	}
	checkPeak(t, peak())
}

// attach reads the transcript through a daemon.
func (f *hugeFile) attach(t *testing.T, d *hugeDaemon) {
	got, big, err := transcript(t.Context(), d.options, "test:"+filepath.Base(f.path))
	if err != nil {
		t.Fatalf("%v; the daemon's log:\n%s", err, d.lastLog())
	}
	if got != f.Messages || big != 1 {
		t.Errorf("got %d messages, %d of them too long to show, want %d, 1", got, big, f.Messages)
	}
	peak, err := peakRSS(d.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	checkPeak(t, peak)
}

// TestHuge_Crowd: clients that come at once to a cold session cost one replay.
func TestHuge_Crowd(t *testing.T) {
	_, size := hugeSizes()
	path := filepath.Join(t.TempDir(), "crowd.jsonl")
	if _, err := gen.AppendFile(path, gen.Options{Profile: gen.Small, Seed: 1, Bytes: size}, 0); err != nil {
		t.Fatal(err)
	}
	rest(t, path)
	var lines uint64
	for range gen.Lines(gen.Options{Profile: gen.Small, Seed: 1, Bytes: size}) {
		lines++
	}
	d := newHugeDaemon(t, filepath.Dir(path), free)
	var (
		crowd sync.WaitGroup
		start = make(chan struct{})
		got   [hugeClients]int64
		errs  [hugeClients]error
	)
	for i := range hugeClients {
		crowd.Go(func() {
			<-start
			got[i], _, errs[i] = transcript(t.Context(), d.options, "test:crowd.jsonl")
		})
	}
	close(start)
	crowd.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatalf("%v; the daemon's log:\n%s", err, d.lastLog())
	}
	for i, n := range got {
		if n == 0 || n != got[0] {
			t.Errorf("client %d: got %d messages, the first %d", i, n, got[0])
		}
	}
	v := d.counters(t)
	if v["replay_builds"] != 1 || v["full_scans"] != 1 || v["lines_parsed"] != lines {
		t.Errorf("got %d builds, %d full scans, %d lines parsed, want 1, 1, %d", v["replay_builds"], v["full_scans"], v["lines_parsed"], lines)
	}
}

// transcript attaches once and counts the messages, and those of them that
// stand for a record over the limit.
func transcript(ctx context.Context, o client.Options, session string) (messages, big int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, hugePatience)
	defer cancel()
	a, err := client.Attach(ctx, o, client.AttachOptions{Session: session, View: wire.ViewTranscript, Once: true, Reconnect: client.Reconnect{For: -1}})
	if err != nil {
		return 0, 0, err
	}
	defer a.Close()
	for item, err := range a.Frames(ctx) {
		if err != nil {
			return messages, big, err
		}
		switch f := item.(type) {
		case *wire.SnapshotChunk:
			var list []json.RawMessage
			if err := json.Unmarshal(f.Messages, &list); err != nil {
				return messages, big, err
			}
			messages += int64(len(list))
			big += int64(bytes.Count(f.Messages, []byte(`{"role":"sessiond","kind":"oversized",`)))
		case *wire.SnapshotEnd:
			if int64(f.MessageCount) != messages {
				return messages, big, fmt.Errorf("got %d messages, the snapshot has %d", messages, f.MessageCount)
			}
		}
	}
	return messages, big, nil
}

// hugeDaemon is a daemon in a process of its own.
type hugeDaemon struct {
	cmd     *exec.Cmd
	options client.Options
	log     string
}

// newHugeDaemon follows a root until the end of the test, when it must end
// well.
func newHugeDaemon(t *testing.T, root string, command confinement) *hugeDaemon {
	t.Helper()
	state := shortDir(t)
	socket := filepath.Join(state, "s")
	cmd := command(t, "serve", "--state-dir", state, "--socket", socket, "--root", "test="+root, "--log-level", "error")
	d := &hugeDaemon{cmd: cmd, options: client.Options{Path: socket, ClientID: "huge"}, log: filepath.Join(state, "log")}
	log, err := os.Create(d.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // at the end of the test
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the daemon ended with %v; its log:\n%s", err, d.lastLog())
		}
	})
	for end := time.Now().Add(patience); answers(d.options.Path) != nil; time.Sleep(lookEach) {
		if time.Now().After(end) {
			t.Fatalf("no daemon within %v; its log:\n%s", patience, d.lastLog())
		}
	}
	return d
}

func (d *hugeDaemon) lastLog() string {
	b, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	return endOf(b)
}

// endOf is the end of a log; a panic says most at its beginning.
func endOf(log []byte) string {
	if i := bytes.Index(log, []byte("\nruntime stack:")); i >= 0 {
		log = log[:i]
	}
	return string(log[max(0, len(log)-4<<10):])
}

func (d *hugeDaemon) counters(t *testing.T) map[string]uint64 {
	t.Helper()
	c, err := client.Dial(t.Context(), d.options)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var st daemonStatus
	if err := json.Unmarshal(raw, &st); err != nil {
		t.Fatal(err)
	}
	return st.Replay
}

// peakRSS is the high-water mark of a process's resident memory. What wait
// tells of a process begins with what its parent took.
func peakRSS(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, after, ok := strings.Cut(string(status), "VmHWM:")
	if !ok {
		return 0, errors.New("no VmHWM")
	}
	kib, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	return kib << 10, err
}

// watchPeak looks at a process until it ends; peak waits for that.
func watchPeak(pid int) (peak func() int64) {
	seen := make(chan int64, 1)
	go func() {
		var last int64
		for {
			now, err := peakRSS(pid)
			if err != nil {
				seen <- last
				return
			}
			last = max(last, now)
			time.Sleep(lookEach)
		}
	}()
	return func() int64 { return <-seen }
}

func checkPeak(t *testing.T, peak int64) {
	t.Helper()
	t.Logf("peak RSS: %.1f MiB", float64(peak)/(1<<20))
	if !raceOn && peak >= hugeRSSMax {
		t.Errorf("peak RSS: got %d KiB, want less than %d", peak>>10, hugeRSSMax>>10)
	}
}
