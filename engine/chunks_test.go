package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sessiond/chunks"
	"sessiond/wire"
)

// spilling lets every full chunk go to spill.
func spilling(o *Options) { smallChunks(o); o.ChunkMemoryBytes = 1 }

// onDemand lets no chunk be held: each is packed when it is asked for.
func onDemand(o *Options) { o.ChunkMemoryBytes, o.ChunkTotalBytes, o.SpillBytes = 1, 1, -1 }

func (w *world) chunkStats() chunks.Stats {
	w.t.Helper()
	r, err := w.call(wire.Command{Type: wire.CmdStatus})
	if err != nil {
		w.fail.Fatalf("status: %v", err)
	}
	return r.(Status).Chunks
}

func (w *world) spillFiles() []string {
	w.t.Helper()
	list, err := filepath.Glob(filepath.Join(w.opt.SpillDir, "*.spill"))
	if err != nil {
		w.fail.Fatalf("%v", err)
	}
	return list
}

// longSession makes a session of many chunks.
func (w *world) longSession(id string) {
	w.t.Helper()
	w.create(id)
	var entries []string
	parent := ""
	for i := range 60 {
		e := id + string(rune('a'+i/26)) + string(rune('a'+i%26))
		entries = append(entries, user(e, parent, strings.Repeat("x", 300)))
		parent = e
	}
	w.append(id, entries...)
}

func newSpillingWorld(t *testing.T) *world {
	t.Helper()
	w := newStoppedWorld(t, spilling)
	w.opt.SpillDir = filepath.Join(w.state, "s")
	w.start()
	return w
}

// What is damaged in spill is packed again, and clients see nothing of it.
func TestChunks_SpilledAndDamaged(t *testing.T) {
	w := newSpillingWorld(t)
	w.longSession("s1")
	for _, view := range []wire.View{wire.ViewTranscript, wire.ViewRecords} {
		c := wire.Command{Session: "s1", View: view}
		first := w.attach(c)
		first.untilLive()
		st := w.chunkStats()
		if st.Spilled < 10 || len(w.spillFiles()) == 0 {
			t.Fatalf("%s: got %+v, files %v", view, st, w.spillFiles())
		}
		w.attach(c).untilLive()
		if got := w.chunkStats(); got.Spilled != st.Spilled || got.Damaged != st.Damaged {
			t.Errorf("%s: attached again: got %+v, was %+v", view, got, st)
		}
		for _, path := range w.spillFiles() {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte{0}, 2000); err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
		again := w.attach(c)
		again.untilLive()
		if !slices.Equal(again.slots, first.slots) {
			t.Errorf("%s: got %d slots, first %d", view, len(again.slots), len(first.slots))
		}
		if got := w.chunkStats(); got.Damaged == st.Damaged || got.Repacked == st.Repacked || w.log.count("packed again") == 0 {
			t.Errorf("%s: damaged: got %+v", view, got)
		}
		first.st.Close()
	}
}

// Clients that attach at the same cut share a snapshot, which goes with the
// last of them.
func TestChunks_SnapshotIsShared(t *testing.T) {
	w := newSpillingWorld(t)
	w.longSession("s1")
	list := make([]*follower, 3)
	for i := range list {
		list[i] = w.attach(wire.Command{Session: "s1", View: wire.ViewTranscript})
		list[i].pull(1)
	}
	if got := w.chunkStats().Snapshots; got != 1 {
		t.Errorf("got %d snapshots, want 1", got)
	}
	list[0].st.Close() // before it has a chunk
	for _, f := range list[1:] {
		f.untilLive()
	}
	if list[1].text() != list[2].text() {
		t.Error("they differ")
	}
	w.stop() // waits for the packer
}

func TestChunks_SpillFolder(t *testing.T) {
	w := newSpillingWorld(t)
	if w.spillFiles() != nil {
		t.Error("files without a session")
	}
	w.longSession("s1")
	f := w.attach(wire.Command{Session: "s1", View: wire.ViewTranscript})
	f.untilLive()
	f.st.Close()
	w.stop()
	stray := filepath.Join(w.opt.SpillDir, "00000000000000ff-1.spill")
	if err := os.WriteFile(stray, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.eventually("the sweep", func() bool { return !slices.Contains(w.spillFiles(), stray) })
	w.stop()
	if len(w.spillFiles()) == 0 {
		t.Error("no file is left of those that the index names")
	}
	if err := os.Chmod(w.opt.SpillDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), w.opt); !errors.Is(err, ErrStateDir) {
		t.Errorf("a folder that others read: got %v, want %v", err, ErrStateDir)
	}
}
