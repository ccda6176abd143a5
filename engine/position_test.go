package engine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sessiond/wire"
)

func smallChunks(o *Options) { o.ChunkBytes = 1 << 10 }

// What happened to the session between the two halves of a snapshot.
func TestPosition_SnapshotGoesOnAtItsNextChunk(t *testing.T) {
	entries := func() []string {
		list := chain(0, 100)
		list[50] = assistant("e50", "e49", "answer")
		return list
	}
	for _, row := range []struct {
		name  string
		since []string // appended
	}{
		{"nothing", nil},
		{"grew", chain(100, 10)},
		{"branched back behind the next chunk", []string{user("b", "e90", "branch")}},
		{"branched back before the next chunk", []string{user("b", "e2", "branch"), user("b2", "b", "more")}},
		{"compacted", []string{compaction("c", "e99", "e70"), user("u", "c", "after")}},
		{"amended", []string{childUsage("a", "e99", "e50", 7)}},
		{"edited", []string{contextEdit("x", "e99", "e98", "null"), contextEdit("y", "x", "e97", `{"content":"new"}`)}},
		{"an id repeated", []string{user("e3", "e2", "again")}},
	} {
		for _, how := range []string{"same daemon", "restart", "restart without index", "restart without cache"} {
			t.Run(row.name+"/"+how, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, smallChunks)
				head := w.create("s1").Head
				head = w.appendAt("s1", head, entries()...).Head
				var wholes, parts []*follower
				for _, view := range []wire.View{wire.ViewTranscript, wire.ViewContext, wire.ViewRecords} {
					whole, part := w.attach(wire.Command{Session: "s1", View: view}), w.attach(wire.Command{Session: "s1", View: view})
					whole.untilLive()
					part.until("3 chunks", func() bool { return part.next == 3 })
					wholes, parts = append(wholes, whole), append(parts, part)
				}
				if len(row.since) > 0 {
					head = w.appendAt("s1", head, row.since...).Head
				}
				for i := range parts {
					wholes[i].st.Close()
					parts[i].st.Close()
				}
				w.startAgain(how)
				for i := range parts {
					goOn(t, w, parts[i], wholes[i], head)
				}
			})
		}
	}
}

// goOn resumes inside a snapshot of which another client has the whole.
func goOn(t *testing.T, w *world, part, whole *follower, head wire.Cursor) {
	t.Helper()
	view := part.command.View
	part.again(w)
	if part.result.Reason != nil {
		t.Fatalf("%s: reason %s, want none", view, part.reason())
	}
	part.until("the end", func() bool { return part.count(wire.TypeSnapshotEnd) == 1 })
	if part.begin.FirstIndex != 3 || part.begin.SnapshotID != whole.begin.SnapshotID {
		t.Errorf("%s: begin: got index %d of %s, want 3 of %s", view, part.begin.FirstIndex, part.begin.SnapshotID, whole.begin.SnapshotID)
	}
	if !slices.Equal(part.slots, whole.slots) || part.end.Digest != whole.end.Digest || !part.end.Cut.Same(whole.end.Cut) {
		t.Errorf("%s: got %s at %v\n%s\nwant %s at %v\n%s", view, part.end.Digest, part.end.Cut, part.text(), whole.end.Digest, whole.end.Cut, whole.text())
	}
	part.untilLive()
	part.drain()
	fresh := w.attach(wire.Command{Session: "s1", View: view, Bounded: part.command.Bounded})
	fresh.untilLive()
	if !slices.Equal(part.slots[fresh.first-part.first:], fresh.slots) || !part.cursor.Same(head) {
		t.Errorf("%s: then at %v, want %v; got\n%s\nwant\n%s", view, part.cursor, head, part.text(), fresh.text())
	}
}

// startAgain starts the daemon again in one of the ways of a test's rows.
func (w *world) startAgain(how string) {
	w.t.Helper()
	switch how {
	case "restart":
		w.restart()
	case "restart without index":
		w.stop()
		must(w, os.Remove(filepath.Join(w.state, "index.db")))
		w.start()
	case "restart without cache":
		w.opt.ReplayCacheBytes = 0
		w.restart()
	}
}

func TestPosition_ThatCannotBeReproducedIsExpired(t *testing.T) {
	w := newWorld(t, smallChunks)
	w.create("s1")
	w.append("s1", chain(0, 100)...)
	part := w.attach(wire.Command{Session: "s1", View: wire.ViewTranscript})
	part.until("2 chunks", func() bool { return part.next == 2 })
	good := *part.resume().Position
	for _, row := range []struct {
		name   string
		change func(p *wire.Position)
	}{
		{"another snapshot", func(p *wire.Position) { p.SnapshotID++ }},
		{"another target", func(p *wire.Position) { p.Target = 4 << 10 }},
		{"another cut", func(p *wire.Position) { p.Cut.Digest++ }},
		{"a cut that is ahead", func(p *wire.Position) { p.Cut.Offset += 1 << 20 }},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := good
			row.change(&p)
			f := w.attach(wire.Command{Session: "s1", View: wire.ViewTranscript, Position: &p})
			if f.reason() != wire.ReasonExpired || f.result.Mode != wire.ModeSnapshot {
				t.Fatalf("got mode %s, reason %q; want a snapshot for %s", f.result.Mode, f.reason(), wire.ReasonExpired)
			}
			f.untilLive()
			if f.begin.FirstIndex != 0 || f.begin.Purpose != wire.PurposeResync || len(f.slots) != 100 {
				t.Errorf("got %d slots from chunk %d, purpose %s", len(f.slots), f.begin.FirstIndex, f.begin.Purpose)
			}
		})
	}
	p := good
	p.View = wire.ViewContext
	w.refuse(wire.Command{Type: wire.CmdAttach, Session: "s1", View: wire.ViewTranscript, Position: &p}, wire.CodeBadArgument)
}

// Beyond the last chunk there is the end.
func TestPosition_BehindTheLastChunk(t *testing.T) {
	w := newWorld(t, smallChunks)
	w.create("s1")
	w.append("s1", chain(0, 20)...)
	part := w.attach(wire.Command{Session: "s1", View: wire.ViewTranscript})
	part.until("all chunks", func() bool { return len(part.slots) == 20 })
	part.again(w)
	part.untilLive()
	if got := strings.Join(part.frames, " "); got != "session_snapshot_begin session_snapshot_end session_live" {
		t.Errorf("got %s", got)
	}
}
