package client

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sessiond/wire"
)

// mangles are damages of single frames, by the type they apply to.
var mangles = map[string]struct {
	view, frameType string
	old, new        string
}{
	"chunk bytes":            {"transcript", wire.TypeSnapshotChunk, `"two"`, `"tow"`},
	"chunk digest":           {"transcript", wire.TypeSnapshotChunk, `"digest":"`, `"digest":"0000000000000000","x":"`},
	"chunk order":            {"transcript", wire.TypeSnapshotChunk, `"index":0`, `"index":1`},
	"chunk of another":       {"transcript", wire.TypeSnapshotChunk, `"snapshotId":"`, `"snapshotId":"0000000000000000","x":"`},
	"no JSON":                {"transcript", wire.TypeSnapshotChunk, `"meta":`, `"meta"`},
	"begin amid":             {"transcript", wire.TypeSnapshotBegin, `"targetChunkBytes"`, `"firstIndex":5,"targetChunkBytes"`},
	"end count":              {"transcript", wire.TypeSnapshotEnd, `"chunkCount":`, `"chunkCount":1`},
	"end digest":             {"transcript", wire.TypeSnapshotEnd, `"digest":"`, `"digest":"0000000000000000","x":"`},
	"live elsewhere":         {"records json", wire.TypeLive, `"sequence":`, `"sequence":1,"x":`},
	"event twice":            {"records json", wire.TypeEvent, `"sequence":8`, `"sequence":7`},
	"event left out":         {"records json", wire.TypeEvent, `"sequence":8`, `"sequence":9`},
	"event without have":     {"transcript", wire.TypeEvent, `"have":`, `"hove":`},
	"event back":             {"transcript", wire.TypeEvent, `"sequence":8`, `"sequence":2`},
	"impossible cursor":      {"transcript", wire.TypeEvent, `"sequence":`, `"sequence":9999`},
	"raw byte":               {"records raw", wire.TypeRecords, `"a":1`, `"a":2`},
	"raw line too many":      {"records raw", wire.TypeRecords, `"count":1`, `"count":2`},
	"raw first":              {"records raw", wire.TypeRecords, `"first":1`, `"first":2`},
	"raw cursor":             {"records raw", wire.TypeRecords, `"offset":25`, `"offset":26`},
	"raw digest":             {"records raw", wire.TypeRecords, `"digest":"8`, `"digest":"7`},
	"raw body of no bytes":   {"records raw", wire.TypeRecords, `"bytes":30`, `"bytes":-1`},
	"raw end at another cut": {"records raw", wire.TypeSnapshotEnd, `"offset":494`, `"offset":495`},
}

// mangler changes the first frame that fits, in the attachments chosen.
func (d *fakeDaemon) mangler(frameType, from, to string, inAttach func(int) bool) (hits *int) {
	hits = new(int)
	done := map[int]bool{}
	mangle := func(attach int, frame []byte) []byte {
		if done[attach] || !inAttach(attach) || wire.FrameType(frame) != frameType || !bytes.Contains(frame, []byte(from)) {
			return frame
		}
		done[attach] = true
		*hits++
		return bytes.Replace(frame, []byte(from), []byte(to), 1)
	}
	d.set(func() { d.mangle = mangle })
	return hits
}

func TestCorruptStream_OnceIsRepaired(t *testing.T) {
	for name, c := range mangles {
		t.Run(name, func(t *testing.T) {
			lines, ao := sampleLines(), views[c.view]
			d := newFakeDaemon(t, lines[:7]...)
			hits := d.mangler(c.frameType, c.old, c.new, func(attach int) bool { return attach == 1 })
			a := attach(t, d, d.options(), ao)
			var r result
			if err := r.follow(testContext(t), a, 7); err != nil {
				t.Fatal(err)
			}
			d.add(lines[7:]...)
			if err := r.follow(testContext(t), a, len(lines)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wantView(lines, ao), r.text()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if hits, attaches := d.count(hits), d.count(&d.attaches); hits != 1 || attaches != 2 {
				t.Errorf("got %d frames changed and %d attaches, want 1 and 2", hits, attaches)
			}
		})
	}
}

func TestCorruptStream_TwiceEndsIt(t *testing.T) {
	d := newFakeDaemon(t, sampleLines()...)
	d.mangler(wire.TypeSnapshotChunk, `"new root"`, `"new boot"`, func(int) bool { return true })
	a := attach(t, d, d.options(), views["transcript"])
	var r result
	err := r.follow(testContext(t), a, 9)
	var corrupt *CorruptStreamError
	if !errors.As(err, &corrupt) || corrupt.Place.Position == nil || corrupt.Place.Position.Index != 0 {
		t.Fatalf("got %v, want a *CorruptStreamError at chunk 0", err)
	}
	if _, again := a.Next(t.Context()); !errors.Is(again, err) {
		t.Errorf("after the end: got %v, want the same error", again)
	}
}

func TestSnapshotFailed(t *testing.T) {
	fail := func(err *wire.Error) func(int, []byte) []byte {
		return func(attach int, frame []byte) []byte {
			if attach > 1 || wire.FrameType(frame) != wire.TypeSnapshotEnd {
				return frame
			}
			line, _ := wire.AppendLine(nil, wire.SnapshotFailed{Type: wire.TypeSnapshotFailed, Attachment: "a1", Error: err})
			return line
		}
	}
	for name, c := range map[string]struct {
		err      *wire.Error
		attaches int
		code     wire.Code
	}{
		"may pass":  {wire.Errorf(wire.CodeSourceChanged, "x"), 2, ""},
		"permanent": {wire.Errorf(wire.CodeHistoryBudgetExceeded, "x"), 1, wire.CodeHistoryBudgetExceeded},
		"no reason": {nil, 1, wire.CodeInternal},
	} {
		d := newFakeDaemon(t, sampleLines()...)
		d.set(func() { d.mangle = fail(c.err) })
		a := attach(t, d, d.options(), views["transcript"])
		var r result
		err := r.follow(testContext(t), a, 9)
		if c.code != "" && wire.CodeOf(err) != c.code || c.code == "" && err != nil {
			t.Errorf("%s: got %v, want code %q", name, err, c.code)
		}
		if got := d.count(&d.attaches); got != c.attaches {
			t.Errorf("%s: got %d attaches, want %d", name, got, c.attaches)
		}
	}
}

func FuzzDecodeItem(f *testing.F) {
	f.Add([]byte(`{"type":"session_snapshot_chunk","attachment":"a1","index":0,"digest":"0000000000000000","meta":[],"messages":[{}]}`))
	f.Add([]byte(`{"type":"session_records","attachment":"a1","first":1,"count":1,"bytes":3,"cursor":{}}`))
	f.Add([]byte(`{"type":"session_event","attachment":"a1","have":1,"messages":[1]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		item, _, err := decodeItem(line)
		if err != nil || item == nil {
			return
		}
		// Whatever decodes must be refused or taken, in any state.
		for _, view := range []wire.View{wire.ViewRecords, wire.ViewTranscript} {
			for _, raw := range []bool{false, view == wire.ViewRecords} {
				a := &Attachment{track: newTracker(view, raw, wire.BoundedWindow, Place{})}
				var s Slots
				for range 3 {
					got, err := a.accept(item, []byte("{}\n"))
					if err == nil && got != nil {
						_ = s.Apply(got)
					}
				}
			}
		}
	})
}
