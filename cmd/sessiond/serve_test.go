package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sessiond/engine"
	"sessiond/replay/jsonl"
)

func TestKnownRoots(t *testing.T) {
	t.Setenv("HOME", "/home/u")
	for _, tt := range []struct {
		name string
		env  map[string]string
		want []engine.Root
	}{
		{"home", nil, []engine.Root{{Name: "pi", Path: "/home/u/.pi/agent/sessions"}, {Name: "prime", Path: "/home/u/.prime/agent/sessions"}}},
		{
			"agent folder",
			map[string]string{"PI_CODING_AGENT_DIR": "/agent"},
			[]engine.Root{{Name: "pi", Path: "/agent/sessions"}, {Name: "prime", Path: "/home/u/.prime/agent/sessions"}},
		},
		{
			"session folder wins",
			map[string]string{"PI_CODING_AGENT_DIR": "/agent", "PI_CODING_AGENT_SESSION_DIR": "/s"},
			[]engine.Root{{Name: "pi", Path: "/s"}, {Name: "prime", Path: "/home/u/.prime/agent/sessions"}},
		},
		{
			"relative is not taken",
			map[string]string{"PI_CODING_AGENT_SESSION_DIR": "s"},
			[]engine.Root{{Name: "pi", Path: "/home/u/.pi/agent/sessions"}, {Name: "prime", Path: "/home/u/.prime/agent/sessions"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := &serveOptions{rootOptions: &rootOptions{env: func(k string) string { return tt.env[k] }}}
			if d := cmp.Diff(tt.want, o.knownRoots()); d != "" {
				t.Errorf("known roots (-want +got):\n%s", d)
			}
		})
	}
}

func TestSessionsFolder(t *testing.T) {
	t.Setenv("HOME", "/home/u")
	for _, tt := range []struct {
		name, flag, stateDir, dataHome, want string
	}{
		{"default", "", "", "", "/home/u/.local/share/sessiond/sessions"},
		{"data home", "", "", "/data", "/data/sessiond/sessions"},
		{"state folder brings its own", "", "/state", "/data", "/state/sessions"},
		{"flag wins", "/mine", "/state", "/data", "/mine"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := &rootOptions{stateDir: tt.stateDir, env: func(k string) string {
				return map[string]string{"XDG_DATA_HOME": tt.dataHome}[k]
			}}
			o := &serveOptions{rootOptions: root, sessionsDir: tt.flag}
			got, err := o.sessionsFolder(tt.stateDir)
			if err != nil || got != tt.want {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestNotify(t *testing.T) {
	path := filepath.Join(shortDir(t), "n")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var log strings.Builder
	d := &daemon{log: slog.New(slog.NewTextHandler(&log, nil))}
	d.notify(path, "READY=1")
	buf := make([]byte, 100)
	n, err := l.Read(buf)
	if got := string(buf[:n]); err != nil || got != "READY=1" {
		t.Errorf("got %q, %v, want READY=1", got, err)
	}
	d.notify("", "READY=1")
	if log.Len() != 0 {
		t.Errorf("log: got %q, want nothing", log.String())
	}
	d.notify(path+"-none", "READY=1")
	if !strings.Contains(log.String(), "service manager not told") {
		t.Errorf("log: got %q, want a warning", log.String())
	}
}

// shortDir is a folder in which a socket path is not too long.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestShellWord(t *testing.T) {
	for _, word := range []string{"", "plain", "/a/b-c_d.e", "two words", "it's", "$HOME", "a\nb", "*", `"`, "ü"} {
		out, err := exec.Command("sh", "-c", "printf %s "+shellWord(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q as %s: got %q, %v", word, shellWord(word), out, err)
		}
	}
	if got := shellWord("bin/sessiond"); got != "bin/sessiond" {
		t.Errorf("a plain word: got %s, want it as it is", got)
	}
}

func TestGrowDemo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := time.Now()
		var last string
		calls := 0
		err := growDemo(t.Context(), 0, func(_ context.Context, entries []string) error {
			calls++
			if len(entries) != 2 {
				t.Fatalf("exchange %d: got %d entries, want 2", calls, len(entries))
			}
			for _, e := range entries {
				parent := jsonl.Get([]byte(e), "parentId")
				if first := last == ""; first != (parent.Kind == jsonl.Null) || !first && textOf([]byte(e), "parentId") != last {
					t.Fatalf("entry %s: want the parent %q", e, last)
				}
				last = textOf([]byte(e), "id")
			}
			return nil
		})
		if took := time.Since(from); err != nil || calls != 60 || took != time.Minute {
			t.Errorf("got %d exchanges in %v, %v, want 60 in a minute", calls, took, err)
		}
	})
}

// A demo that was stopped in between goes on where it was.
func TestGrowDemo_GoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var parents []string
		err := growDemo(t.Context(), 58, func(_ context.Context, entries []string) error {
			parents = append(parents, textOf([]byte(entries[0]), "parentId"))
			return nil
		})
		if want := []string{"00000074", "00000076"}; err != nil || !slices.Equal(parents, want) {
			t.Errorf("got parents %v, %v, want %v", parents, err, want)
		}
	})
}

func TestGrowDemo_Ends(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := growDemo(ctx, 0, func(context.Context, []string) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: got %v, want %v", err, context.Canceled)
	}
	full := errors.New("disk full")
	if err := growDemo(t.Context(), 0, func(context.Context, []string) error { return full }); !errors.Is(err, full) {
		t.Errorf("refused: got %v, want %v", err, full)
	}
}
