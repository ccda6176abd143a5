package gen

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestWriteHuge(t *testing.T) {
	const entries, long, hole = 1000, 1 << 20, 8 << 20
	path := filepath.Join(t.TempDir(), "s.jsonl")
	h, err := WriteHuge(path, HugeOptions{Seed: 1, Entries: entries, LongBytes: long, HoleBytes: hole})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	if got, want := hex.EncodeToString(sum[:]), "0047da386e2fa1fec6b123dc06a93e3d1694e07a718406999dfb8de51f1d385b"; got != want {
		t.Errorf("sha256: got %s, want %s", got, want)
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	if last := lines[len(lines)-1]; len(last) != 0 {
		t.Errorf("got a last line without LF: %q", last)
	}
	lines = lines[:len(lines)-1]
	if want := (Huge{Bytes: int64(len(data)), Records: int64(len(lines)), Entries: int64(len(lines)) - 2, Messages: messages(lines)}); h != want {
		t.Errorf("got %+v, want %+v", h, want)
	}
	if h.Entries < entries || h.Entries > entries+10 {
		t.Errorf("got %d entries, want %d and a few", h.Entries, entries)
	}
	var sound [][]byte // all but the hole
	longest := 0
	for _, line := range lines {
		if line[0] == 0 {
			if nuls := bytes.Count(line, []byte{0}); nuls != hole || len(line) != hole+1 {
				t.Errorf("hole: got %d NULs in %d bytes, want %d", nuls, len(line), hole)
			}
			continue
		}
		sound = append(sound, line)
		longest = max(longest, len(line))
	}
	if longest < long || longest > long+1000 {
		t.Errorf("longest line: got %d bytes, want %d and a little", longest, long)
	}
	if forks := checkEntries(t, sound); forks != 0 || len(sound) != len(lines)-1 {
		t.Errorf("got %d forks, %d sound lines of %d", forks, len(sound), len(lines))
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Blocks*512 > int64(len(data))-hole/2 {
		t.Errorf("%d bytes on disk of %d: not sparse", st.Blocks*512, len(data))
	}
	if _, err := WriteHuge(path, HugeOptions{}); !os.IsExist(err) {
		t.Errorf("over a file: got error %v, want %v", err, os.ErrExist)
	}
	if _, err := WriteHuge(path+"2", HugeOptions{Entries: -1}); err == nil {
		t.Error("invalid: got no error")
	}
}

// messages counts the lines that a transcript shows.
func messages(lines [][]byte) (n int64) {
	for _, line := range lines {
		if bytes.HasPrefix(line, []byte(`{"type":"message"`)) || bytes.HasPrefix(line, []byte(`{"type":"custom_message"`)) {
			n++
		}
	}
	return n
}
