package gen

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestWrite_Pinned: measurements of two commits are of the same sessions.
func TestWrite_Pinned(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		o          Options
	}{
		{"brief", "fffcb6303b7fcaa5d671da4e9516bf3d803a1a68488cf06af5121c4c940fda6a", Options{Seed: 1, Bytes: 200_000}},
		{"small", "21e966b6a367b398d3e2846c1ee0eae966e0d7b70337a2ee34e968ebd7639f2d", Options{Seed: 1, Bytes: 200_000, Profile: Small}},
		{"forked", "44ffdbfb9ce7a032930ef75966967c712b674409f96fd9264f39000a35564d2e", Options{Seed: 2, Bytes: 200_000, TurnsPerFork: 5}},
		{"log", "cea71741de69f7066599acb42fdb5e1f36131951a562c4f023a18a4fe0a83ab8", Options{Seed: 1, Bytes: 200_000, Profile: Log, TurnsPerFork: 3, TurnsPerCompaction: 4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := sha256.Sum256(write(t, tt.o))
			if got := hex.EncodeToString(h[:]); got != tt.want {
				t.Errorf("sha256: got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestWrite_Form(t *testing.T) {
	for _, tt := range []struct {
		name             string
		o                Options
		lineMin, lineMax int // mean, bytes
		forks            bool
	}{
		{"brief", Options{Seed: 3, Bytes: 4 << 20}, 1600, 1800, false},
		{"small", Options{Seed: 3, Bytes: 4 << 20, Profile: Small}, 190, 210, false},
		{"forked", Options{Seed: 3, Bytes: 4 << 20, Profile: Small, TurnsPerFork: 3}, 190, 210, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data := write(t, tt.o)
			lines := bytes.SplitAfter(data, []byte("\n"))
			if last := lines[len(lines)-1]; len(last) != 0 {
				t.Fatalf("got a last line without LF: %q", last)
			}
			lines = lines[:len(lines)-1]
			if mean := len(data) / len(lines); mean < tt.lineMin || mean > tt.lineMax {
				t.Errorf("mean line: got %d bytes, want %d to %d", mean, tt.lineMin, tt.lineMax)
			}
			if over := int64(len(data)) - tt.o.Bytes; over < 0 || over >= int64(len(lines[len(lines)-1])) {
				t.Errorf("size: got %d, want the first line end from %d on", len(data), tt.o.Bytes)
			}
			if forks := checkEntries(t, lines); (forks > 0) != tt.forks {
				t.Errorf("forks: got %d, want some: %v", forks, tt.forks)
			}
		})
	}
}

// checkEntries checks that lines are a header and one tree of entries whose
// tool results answer the call before them; it returns how many entries do
// not go on from the one before.
func checkEntries(t *testing.T, lines [][]byte) (forks int) {
	t.Helper()
	seen := map[string]bool{}
	last, call := "", ""
	for i, line := range lines {
		var e struct {
			Type, ID, Timestamp string
			ParentID            *string
			Version             int
			Message             struct {
				Role, ToolCallID string
				Content          []struct{ Type, ID string }
			}
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		if i == 0 {
			if e.Type != "session" || e.Version != 3 || e.ID == "" {
				t.Fatalf("header: got %s", line)
			}
			continue
		}
		switch {
		case seen[e.ID] || e.ID == "" || e.Timestamp == "":
			t.Fatalf("line %d: id %q, timestamp %q", i+1, e.ID, e.Timestamp)
		case (e.ParentID == nil) != (i == 1) || e.ParentID != nil && !seen[*e.ParentID]:
			t.Fatalf("line %d: parent is no entry before it", i+1)
		case e.ParentID != nil && *e.ParentID != last:
			forks++
		}
		if e.Message.Role == "toolResult" && e.Message.ToolCallID != call {
			t.Fatalf("line %d: result of %q, want %q", i+1, e.Message.ToolCallID, call)
		}
		for _, c := range e.Message.Content {
			if c.Type == "toolCall" {
				call = c.ID
			}
		}
		seen[e.ID], last = true, e.ID
	}
	return forks
}

func TestWrite_LongerStartsWithShorter(t *testing.T) {
	for _, p := range []Profile{Brief, Small, Log} {
		short := write(t, Options{Profile: p, Seed: 9, Bytes: 30_000, TurnsPerFork: 2})
		long := write(t, Options{Profile: p, Seed: 9, Bytes: 90_000, TurnsPerFork: 2})
		if !bytes.HasPrefix(long, short) {
			t.Errorf("%s: 90,000 bytes do not start with 30,000", p)
		}
		if other := write(t, Options{Profile: p, Seed: 10, Bytes: 30_000}); bytes.Equal(other, short) {
			t.Errorf("%s: another seed gave the same session", p)
		}
	}
}

func TestWrite_Invalid(t *testing.T) {
	for _, o := range []Options{{Profile: "huge"}, {Bytes: -1}, {TurnsPerFork: -1}, {TurnsPerCompaction: 1}, {Profile: Log, TurnsPerCompaction: -1}} {
		if _, err := Write(&bytes.Buffer{}, o); err == nil {
			t.Errorf("Write(%+v): got no error", o)
		}
	}
}

func TestAppendFile(t *testing.T) {
	o := Options{Seed: 4, Bytes: 20_000, Profile: Small}
	path := filepath.Join(t.TempDir(), "s.jsonl")
	n, err := AppendFile(path, o, 50)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := write(t, o); !bytes.Equal(got, want) || n != int64(len(want)) {
		t.Errorf("AppendFile: got %d bytes, reported %d, want the %d of Write", len(got), n, len(want))
	}
	if _, err := AppendFile(path, o, 0); !os.IsExist(err) {
		t.Errorf("AppendFile over a file: got error %v, want %v", err, os.ErrExist)
	}
}

func write(t *testing.T, o Options) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := Write(&b, o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
