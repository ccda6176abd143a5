package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sessiond/testdata/gen"
)

// inspect runs `sessiond inspect` in this process.
func inspect(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	var out, msg bytes.Buffer
	root := newRootCommand()
	root.SetArgs(append([]string{"inspect"}, args...))
	root.SetOut(&out)
	root.SetErr(&msg)
	code = execute(ctx, root)
	return out.String(), msg.String(), code
}

// FuzzInspect runs every form over any bytes: no panic, text that drives no
// terminal, JSON that parses, raw records that are the file, and a file that
// stays what it was.
func FuzzInspect(f *testing.F) {
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range scripts {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(line, `{"type":`) {
				f.Add([]byte(`{"type":"session","version":3,"id":"s"}`+"\n"+line+"\n"), int64(1<<20))
			}
		}
	}
	f.Add([]byte("\xef\xbb\xbf{\"type\":\"session\",\"id\":\"\x9b\x1b\"}\n\x00\x00{}\r\n{\"a\":1"), int64(4))
	path := filepath.Join(f.TempDir(), "f.jsonl")
	f.Fuzz(func(t *testing.T, data []byte, limit int64) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		most := "--record-bytes-max=" + strconv.FormatInt(max(limit, 1), 10)
		for _, form := range []string{"", "check", "transcript", "context", "records"} {
			for _, format := range []string{"text", "json", "jsonl"} {
				args := []string{path, most, "-o", format}
				if form != "" {
					args = append([]string{form}, args...)
				}
				out, msg, code := inspect(t.Context(), args...)
				checkOutput(t, args, format, out, msg, code)
			}
		}
		if out, _, _ := inspect(t.Context(), "records", path, most, "-o", "raw"); out != string(data) {
			t.Errorf("records -o raw: got %q, want %q", out, data)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, data) {
			t.Errorf("the file changed: got %q, %v, want %q", after, err, data)
		}
	})
}

func checkOutput(t *testing.T, args []string, format, out, msg string, code int) {
	t.Helper()
	noMessages := code == exitFailure && strings.Contains(msg, "no known format")
	if code != 0 && (code < exitUnfinished || code > exitNewer) && !noMessages {
		t.Errorf("%q: exit code %d: %s", args, code, msg)
	}
	for _, text := range []string{out, msg} {
		if bad := unsafeText(text); bad != "" && (format == "text" || text == msg) {
			t.Errorf("%q: output has %s", args, bad)
		}
	}
	switch {
	case noMessages:
	case format == "json" && !json.Valid([]byte(out)):
		t.Errorf("%q: no JSON: %q", args, out)
	case format == "jsonl":
		for line := range strings.Lines(out) {
			if !json.Valid([]byte(line)) {
				t.Errorf("%q: a line is no JSON: %q", args, line)
			}
		}
	}
}

// TestInspect_WhileWritten reads a file while it grows, also in the middle of
// lines: each time it is a good session, whole or with an unfinished end.
func TestInspect_WhileWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "growing.jsonl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	wrote := make(chan error, 1)
	go func() {
		for line := range gen.Lines(gen.Options{Bytes: 4 << 20}) {
			half := len(line) / 2
			_, err1 := f.Write(line[:half])
			_, err2 := f.Write(line[half:])
			if err := errors.Join(err1, err2); err != nil {
				wrote <- err
				return
			}
		}
		wrote <- nil
	}()
	for done := false; !done; {
		select {
		case err := <-wrote:
			if err != nil {
				t.Fatal(err)
			}
			done = true // and look once more
		default:
		}
		for _, form := range [][]string{{path}, {"check", path}, {"context", path, "-o", "jsonl"}, {"records", path, "--range", "1:9"}} {
			if _, msg, code := inspect(t.Context(), form...); code != exitOK && code != exitUnfinished {
				t.Errorf("inspect %q: exit code %d: %s", form, code, msg)
			}
		}
	}
}

// TestInspect_Interrupted ends with the exit code of an interrupt.
func TestInspect_Interrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	if _, err := gen.AppendFile(path, gen.Options{Bytes: 1 << 20}, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, form := range [][]string{{path}, {"check", path}, {"transcript", path}, {"records", path}} {
		if _, _, code := inspect(ctx, form...); code != exitInterrupted {
			t.Errorf("inspect %q: exit code %d, want %d", form, code, exitInterrupted)
		}
	}
}

// TestInspect_Memory inspects a file that is larger than the memory it may
// take.
func TestInspect_Memory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 64 MiB")
	}
	const heapMax = 48 << 20
	path := filepath.Join(t.TempDir(), "big.jsonl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gen.Write(f, gen.Options{Bytes: 64 << 20, TurnsPerFork: 50}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	peak := heapPeak(func() {
		if _, msg, code := inspect(t.Context(), path, "-o", "json"); code != exitOK {
			t.Errorf("exit code %d: %s", code, msg)
		}
	})
	t.Logf("peak heap %.1f MiB", float64(peak)/(1<<20))
	if peak > heapMax {
		t.Errorf("peak heap: got %d bytes, want at most %d", peak, heapMax)
	}
}

// heapPeak samples the heap in use while f runs.
func heapPeak(f func()) uint64 {
	runtime.GC()
	var peak atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		var m runtime.MemStats
		for {
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapInuse))
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	f()
	close(stop)
	<-stopped
	return peak.Load()
}
