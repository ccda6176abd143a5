package engine

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sessiond/wire"
)

func TestEngine_CreateAppendAttach(t *testing.T) {
	w := newWorld(t)
	c := w.create("s1")
	r := w.append("s1", chain(0, 10)...)
	if r.Head.Sequence != 11 || len(r.Acks) != 10 || *r.Leaf != "e9" {
		t.Fatalf("append: got %+v", r)
	}
	for _, view := range []wire.View{wire.ViewTranscript, wire.ViewContext, wire.ViewRecords} {
		f := w.attach(wire.Command{Session: "s1", View: view})
		f.untilLive()
		want := 10
		if view == wire.ViewRecords {
			want = 11
		}
		if len(f.slots) != want {
			t.Errorf("%s: got %d slots, want %d: %v", view, len(f.slots), want, f.slots)
		}
	}
	f := w.attach(wire.Command{Session: "s1", View: wire.ViewRecords, Encoding: wire.EncodingRaw})
	f.untilLive()
	w.append("s1", chain(10, 5)...)
	f.untilSequence(16)
	if !bytes.Equal(f.raw.Bytes(), readFile(t, c.Path)) {
		t.Errorf("raw: got %q", f.raw.Bytes())
	}
}

func TestEngine_LiveDeltas(t *testing.T) {
	w := newWorld(t)
	w.create("s1")
	w.append("s1", chain(0, 3)...)
	f := w.attach(wire.Command{Session: "s1", View: wire.ViewContext})
	f.untilLive()
	w.append("s1", chain(3, 2)...)
	f.untilSequence(6)
	if len(f.slots) != 5 {
		t.Fatalf("got %d slots, want 5", len(f.slots))
	}
	// Back to e1: a branch.
	w.append("s1", user("b1", "e1", "branch"))
	f.untilSequence(7)
	if len(f.slots) != 3 || !strings.Contains(f.slots[2], "branch") {
		t.Fatalf("after a branch: %v", f.slots)
	}
	w.append("s1", `{"type":"compaction","id":"c1","parentId":"b1","timestamp":"2026-01-02T03:04:05.000Z","summary":"sum","firstKeptEntryId":"e1","tokensBefore":5}`)
	f.untilSequence(8)
	if len(f.slots) != 3 || !strings.Contains(f.slots[0], "compactionSummary") || !strings.Contains(f.slots[0], `"retainedMessageCount":2`) {
		t.Fatalf("after a compaction: %v", f.slots)
	}
	fresh := w.attach(wire.Command{Session: "s1", View: wire.ViewContext})
	fresh.untilLive()
	if !slices.Equal(fresh.slots, f.slots) {
		t.Errorf("live %v, fresh %v", f.slots, fresh.slots)
	}
}

func TestEngine_ResumeAfterRestart(t *testing.T) {
	for _, view := range []wire.View{wire.ViewTranscript, wire.ViewContext, wire.ViewRecords} {
		t.Run(string(view), func(t *testing.T) {
			w := newWorld(t)
			w.create("s1")
			w.append("s1", chain(0, 50)...)
			f := w.attach(wire.Command{Session: "s1", View: view})
			f.untilLive()
			w.append("s1", chain(50, 20)...)
			f.st.Close()
			w.stop()
			w.start()
			g := w.attach(f.resume())
			if g.result.Mode != wire.ModeTail || g.result.Generation != f.result.Generation {
				t.Fatalf("got mode %s reason %v generation %s, want tail in %s", g.result.Mode, g.result.Reason, g.result.Generation, f.result.Generation)
			}
			g.slots = f.slots
			g.untilLive()
			want := 70
			if view == wire.ViewRecords {
				want++
			}
			if len(g.slots) != want {
				t.Errorf("got %d slots, want %d", len(g.slots), want)
			}
			if n := len(g.frames); n != 21 || g.frames[20] != wire.TypeLive {
				t.Errorf("got frames %v, want 20 events and live", g.frames)
			}
		})
	}
}

func TestEngine_AppendIsIdempotent(t *testing.T) {
	w := newWorld(t)
	w.create("s1")
	batch := chain(0, 5)
	first := w.append("s1", batch...)
	again := w.append("s1", batch...)
	for i, a := range again.Acks {
		if !a.Duplicate || a.Cursor != first.Acks[i].Cursor {
			t.Errorf("ack %d: got %+v, want a duplicate at %v", i, a, first.Acks[i].Cursor)
		}
	}
	_, err := w.call(wire.Command{Type: wire.CmdAppend, Session: "s1", Entries: []string{user("e2", "e1", "other")}})
	if wire.CodeOf(err) != wire.CodeConflict {
		t.Errorf("other bytes under an id: got %v, want conflict", err)
	}
	expect := first.Acks[2].Cursor
	r, err := w.call(wire.Command{Type: wire.CmdAppend, Session: "s1", Expect: &expect, Entries: append(batch[3:], chain(5, 2)...)})
	if err != nil {
		t.Fatal(err)
	}
	acks := r.(wire.AppendResult).Acks
	if !acks[0].Duplicate || !acks[1].Duplicate || acks[2].Duplicate || acks[3].Duplicate {
		t.Errorf("by place: got %+v", acks)
	}
	_, err = w.call(wire.Command{Type: wire.CmdAppend, Session: "s1", Expect: &expect, Entries: []string{user("x", "e1", "x")}})
	if wire.CodeOf(err) != wire.CodeConflict {
		t.Errorf("by place, other bytes: got %v, want conflict", err)
	}
}

func TestEngine_ConcurrentAppends(t *testing.T) {
	w := newWorld(t)
	c := w.create("s1")
	f := w.attach(wire.Command{Session: "s1", View: wire.ViewRecords, Encoding: wire.EncodingRaw})
	const writers, each = 16, 20
	done := make(chan error, writers)
	for k := range writers {
		go func() {
			for i := range each {
				_, err := w.call(wire.Command{Type: wire.CmdAppend, Session: "s1", Entries: []string{user(fmt.Sprintf("w%d-%d", k, i), "", "x")}})
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range writers {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	f.untilSequence(writers*each + 1)
	if got, want := f.raw.Bytes(), readFile(t, c.Path); !bytes.Equal(got, want) {
		t.Errorf("follower has %d bytes, the file %d", len(got), len(want))
	}
}
