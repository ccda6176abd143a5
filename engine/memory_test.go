//go:build linux

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"sessiond/testdata/gen"
	"sessiond/wire"
)

const (
	memorySessions = 200
	memoryCache    = "SESSIOND_TEST_REPLAY_CACHE" // bytes, in the processes that TestMemory_ReplayCache starts
	memoryRoot     = "SESSIOND_TEST_ROOT"
)

// What the replay cache may take is what the process is larger by: the peak of
// one that has read many sessions, beside one without a cache.
func TestMemory_ReplayCache(t *testing.T) {
	if raceOn || testing.Short() {
		t.Skip("the race detector's memory is not the cache's")
	}
	const bound, slack = 8 << 20, 6 << 20
	root := t.TempDir()
	var text bytes.Buffer
	if _, err := gen.Write(&text, gen.Options{Profile: gen.Small, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	for i := range memorySessions {
		if err := os.WriteFile(fmt.Sprintf("%s/%d.jsonl", root, i), text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	off := peakWithCache(t, root, 0)
	on := peakWithCache(t, root, bound)
	all := peakWithCache(t, root, 1<<30)
	t.Logf("peak RSS: %d KiB without a cache, %d with one of %d, %d with all that is read", off>>10, on>>10, bound>>10, all>>10)
	if off > 64<<20 { // what is closed is let go of at once
		t.Errorf("without a cache the process takes %d bytes", off)
	}
	if over := on - off; over > bound+slack {
		t.Errorf("a cache of %d bytes takes %d", bound, over)
	}
	if all-off < 2*(bound+slack) {
		t.Errorf("all replays take %d bytes: too few to tell a bound from none", all-off)
	}
}

// peakWithCache runs TestMemory_Peak in a process of its own.
func peakWithCache(t *testing.T, root string, cache int64) int64 {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestMemory_Peak$", "-test.v", "-test.timeout", "2m")
	cmd.Env = append(os.Environ(), memoryCache+"="+strconv.FormatInt(cache, 10), memoryRoot+"="+root)
	out, err := cmd.CombinedOutput()
	_, after, ok := strings.Cut(string(out), "peak=")
	digits, _, _ := strings.Cut(after, ";")
	peak, perr := strconv.ParseInt(digits, 10, 64)
	if err != nil || !ok || perr != nil {
		t.Fatalf("%v, %v:\n%s", err, perr, out)
	}
	return peak
}

// TestMemory_Peak reads many sessions, one after the other, and tells the peak
// of its process.
func TestMemory_Peak(t *testing.T) {
	cache, err := strconv.ParseInt(os.Getenv(memoryCache), 10, 64)
	if err != nil {
		t.Skip("it is run by TestMemory_ReplayCache")
	}
	w := newWorld(t, alone, onDemand, func(o *Options) {
		o.ReplayCacheBytes, o.OpenMax = cache, 1
		o.IndexMemoryBytes = 1 << 20 // pages have a bound of their own
		o.Roots = []Root{{followedRoot, os.Getenv(memoryRoot)}}
	})
	for i := range memorySessions {
		w.readThrough(strconv.Itoa(i))
	}
	held, bound := w.e.cache.Bytes()
	if held > bound || cache > 0 && held < min(bound, 16<<20)/2 {
		t.Errorf("the cache says that it holds %d of %d bytes", held, bound)
	}
	status := string(readFile(t, "/proc/self/status"))
	_, after, _ := strings.Cut(status, "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("held %d; peak=%d;", held, kib<<10)
}

// readThrough reads a transcript and keeps nothing of it, as followers do.
func (w *world) readThrough(session string) {
	w.t.Helper()
	r, err := w.e.Handle(context.Background(), wire.Request{Attachment: "a1", Command: wire.Command{
		Type: wire.CmdAttach, Session: session, View: wire.ViewTranscript, Live: new(bool),
	}})
	if err != nil {
		w.fail.Fatalf("attach: %v", err)
	}
	defer r.Stream.Close()
	wake := make(chan struct{}, 1)
	r.Stream.Start(func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	for {
		frame, ok, err := r.Stream.Next()
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			w.fail.Fatalf("Next: %v", err)
		case !ok:
			<-wake
		case frame.Release != nil:
			frame.Release()
		}
	}
}
