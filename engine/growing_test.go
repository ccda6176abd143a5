package engine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sessiond/testdata/gen"
	"sessiond/wire"
)

// alone leaves the looks at files to the test.
func alone(o *Options) {
	o.Polling = true
	o.Timing.Rest = time.Hour
}

// steadyClock stands still: no step of it is seen.
func steadyClock(o *Options) {
	at := time.Now()
	o.Clock = func() (time.Time, time.Duration) { return at, 0 }
}

// A session of 40 prompts that two clients read after each: every byte is
// parsed once, whoever writes it and whatever the stamps are good for.
func TestGrowing_Counters(t *testing.T) {
	type counted struct{ Full, Tail, Bytes, Lines, Builds, Extensions, Hits uint64 }
	want := counted{0, 40, 196_260, 120, 1, 39, 40}
	for _, tc := range []struct {
		name     string
		owned    bool
		compares bool // the content is compared
		change   []func(*Options)
	}{
		{"appended through it", true, false, nil},
		{"by another program", false, true, nil},
		{"by another program, coarse stamps", false, true, []func(*Options){isCoarse, steadyClock}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, append([]func(*Options){alone}, tc.change...)...)
			name, path := "growing", ""
			if tc.owned {
				w.createAs(name, "eventlog")
			} else {
				path = w.write(name+".jsonl", "")
				w.e.changed(path)
				w.attachTo(name, wire.ViewTranscript)
			}
			before := w.e.counters.Values()
			for i := range gen.Prompts {
				if tc.owned {
					w.append(name, gen.Prompt(i)...)
				} else {
					w.extendFile(path, string(gen.PromptLines(i)))
				}
				for _, view := range []wire.View{wire.ViewTranscript, wire.ViewContext} {
					f := w.attachTo(name, view)
					if len(f.slots) != 2*(i+1) || int(f.cursor.Sequence) != 3*(i+1) {
						t.Fatalf("prompt %d, view %s: got %d messages up to %v", i, view, len(f.slots), f.cursor)
					}
				}
			}
			v := w.e.counters.Values()
			for name, n := range before {
				v[name] -= n
			}
			got := counted{
				v["full_scans"], v["tail_scans"], v["bytes_read"], v["lines_parsed"],
				v["replay_builds"], v["replay_extensions"], v["cache_hits"],
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("counters (-want +got):\n%s", diff)
			}
			if v["full_scans"]+before["full_scans"] > 0 || v["invalidations"] > 0 {
				t.Errorf("got %v", v)
			}
			if compares := v["digest_reads"] > 0 && v["check_bytes"] > 0; compares != tc.compares {
				t.Errorf("compared %d times, %d bytes; want any: %v", v["digest_reads"], v["check_bytes"], tc.compares)
			}
		})
	}
}

// attachTo reads a view up to the head and ends the attachment.
func (w *world) attachTo(session string, view wire.View) *follower {
	w.t.Helper()
	live := false
	f := w.attach(wire.Command{Session: session, View: view, Live: &live})
	f.untilOver()
	return f
}
