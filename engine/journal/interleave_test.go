package journal_test

import (
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"sessiond/engine/journal"
	"sessiond/engine/vfs/vfstest"
	"sessiond/replay/stamp"
)

// Another program appends before an append, between its look at the size and
// its write, or right behind its write.
func TestInterleave(t *testing.T) {
	const theirs = `{"id":"theirs"}` + "\n"
	ours := object("1") + "\n" + object("2") + "\n"
	for _, row := range []struct {
		name        string
		before      string // bytes they appended before
		during      string // bytes they append at this operation
		at          vfstest.Op
		want        string
		interleaved bool
	}{
		{"whole line before", theirs, "", "", base + theirs + ours, false},
		{"several lines before", theirs + "\n" + theirs, "", "", base + theirs + "\n" + theirs + ours, false},
		{"unfinished line before", `{"id":`, "", "", base + `{"id":` + "\n" + ours, false},
		{"whole and unfinished line before", theirs + `{"id":`, "", "", base + theirs + `{"id":` + "\n" + ours, false},
		{"whole line during", "", theirs, vfstest.Write, base + theirs + ours, true},
		{"unfinished line during", "", `{"id":`, vfstest.Write, base + `{"id":` + ours + "\n" + ours, true},
		{"whole and unfinished line during", "", theirs + `{"id":`, vfstest.Write, base + theirs + `{"id":` + ours + "\n" + ours, true},
		{"unfinished before, finished during", `{"id":`, `"x"}` + "\n", vfstest.Write, base + `{"id":"x"}` + "\n\n" + ours, true},
		{"unfinished before, continued during", `{"id":`, `"x`, vfstest.Write, base + `{"id":"x` + "\n" + ours, true},
		{"large line during", "", strings.Repeat("y", 300_000) + "\n", vfstest.Write, base + strings.Repeat("y", 300_000) + "\n" + ours, true},
		{"our own bytes during", "", ours, vfstest.Write, base + ours + ours, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := lay(t, base)
			covered := pointOf(base).Offset
			b.o.OnCommit = func(h *journal.Head, batch []byte) {
				if batch != nil && int64(len(batch)) != h.Offset-covered {
					t.Errorf("batch: got %d bytes for a step of %d", len(batch), h.Offset-covered)
				}
				covered = h.Offset
			}
			b.open()
			b.foreign(row.before)
			if row.at != "" {
				b.fs.Add(vfstest.Rule{Op: row.at, Do: func() { b.foreign(row.during) }})
			}
			r := b.mustAppend(object("1"), object("2"))
			b.wantContent(row.want)
			if want := pointOf(row.want); r.After != want || len(r.Points) != 2 || r.Points[1] != want {
				t.Errorf("result: got %+v, want %+v", r, want)
			}
			if r.Interleaved != row.interleaved {
				t.Errorf("interleaved: got %v, want %v", r.Interleaved, row.interleaved)
			}
			if got := b.j.Interleavings(); got == 0 {
				t.Error("interleavings: got 0")
			}
			noticed := b.j.Interleavings()
			b.mustAppend(object("3"))
			b.wantContent(row.want + object("3") + "\n")
			if got := b.j.Interleavings(); got != noticed {
				t.Errorf("interleavings of an undisturbed append: got %d", got-noticed)
			}
		})
	}
}

func TestInterleave_BehindOurs(t *testing.T) {
	b := setUp(t, base)
	b.fs.Add(vfstest.Rule{Op: vfstest.Datasync, Do: func() { b.foreign(`{"id":"theirs"}` + "\n" + `{"i`) }})
	b.mustAppend(object("1"))
	own := base + object("1") + "\n"
	b.wantHead(own) // theirs may not be on disk
	if got := b.j.Head().Stamp.Size; got <= b.j.Head().Offset {
		t.Errorf("size in the head's stamp: got %d, want more than %d", got, b.j.Head().Offset)
	}
	b.foreign(`d":"more"}` + "\n")
	b.mustAppend(object("2"))
	b.wantContent(own + `{"id":"theirs"}` + "\n" + `{"id":"more"}` + "\n" + object("2") + "\n")
}

// What another program wrote is synced before a request sees it, and an
// append of nothing is enough to take it in; its unfinished line is left.
func TestInterleave_TakenInByAnEmptyAppend(t *testing.T) {
	b := setUp(t, base)
	b.foreign(object("theirs") + "\n" + `{"id"`)
	syncs := b.fs.Count(vfstest.Datasync, "")
	var seen stamp.Point
	r, err := b.j.Append(t.Context(), func(stamp.Point) ([][]byte, error) {
		seen = b.j.Head().Point
		return nil, nil
	})
	want := pointOf(base + object("theirs") + "\n")
	if err != nil || r.After != want || seen != want {
		t.Errorf("got %+v, %v, head at prepare %+v; want %+v", r, err, seen, want)
	}
	if got := b.fs.Count(vfstest.Datasync, "") - syncs; got != 1 {
		t.Errorf("syncs: got %d, want 1", got)
	}
	b.foreign(`:"x"}` + "\n")
	b.mustAppend(object("1"))
	b.wantContent(base + object("theirs") + "\n" + object("x") + "\n" + object("1") + "\n")
}

// Of a group only the request whose line was spoilt is prepared again, and it
// may then find its other lines there.
func TestInterleave_OnlyTheSpoiltIsPreparedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, base)
		release := make(chan struct{})
		b.fs.Add(vfstest.Rule{Op: vfstest.Datasync, Path: sessionName, Do: func() { <-release }})
		b.fs.Add(vfstest.Rule{Op: vfstest.Write, Path: sessionName, Skip: 1, Do: func() { b.foreign(`{"id":`) }})
		var wg sync.WaitGroup
		prepared := map[string]int{}
		prepare := func(name string, text [][]byte) {
			wg.Go(func() {
				r, err := b.j.Append(t.Context(), func(stamp.Point) ([][]byte, error) {
					prepared[name]++
					if prepared[name] == 2 {
						return text[:1], nil // the second line is found
					}
					return text, nil
				})
				if err != nil || r.Interleaved != (len(text) > 0 && name != "before") {
					t.Errorf("%s: got %+v, %v", name, r, err)
				}
			})
			synctest.Wait()
		}
		prepare("before", [][]byte{[]byte(object("0"))})
		prepare("empty", nil)
		prepare("first", [][]byte{[]byte(object("1")), []byte(object("2"))})
		prepare("second", [][]byte{[]byte(object("3"))})
		close(release)
		wg.Wait()
		for name, want := range map[string]int{"before": 1, "empty": 1, "first": 2, "second": 1} {
			if got := prepared[name]; got != want {
				t.Errorf("%s: prepared %d times, want %d", name, got, want)
			}
		}
		b.wantContent(base + object("0") + "\n" + `{"id":` + object("1") + "\n" + object("2") + "\n" +
			object("3") + "\n\n" + object("1") + "\n")
	})
}

func TestInterleave_SecondTimeFails(t *testing.T) {
	b := setUp(t, base)
	b.fs.Add(vfstest.Rule{Op: vfstest.Write, Do: func() { b.foreign("x") }})
	b.fs.Add(vfstest.Rule{Op: vfstest.Write, Err: syscall.ENOSPC})
	_, err := b.append(object("1"))
	wantOutcome(t, err, syscall.ENOSPC, journal.OutcomeUnknown)
	b.wantContent(base + "x" + object("1") + "\n")
}

// Only own bytes at the very end are cut.
func TestInterleave_WithFailures(t *testing.T) {
	theirs := object("theirs") + "\n"
	for _, row := range []struct {
		name    string
		rules   []vfstest.Rule
		foreign vfstest.Op
		outcome journal.Outcome
		latched bool
		want    string
	}{
		{
			"a failed write is taken as found with what follows it",
			[]vfstest.Rule{{Op: vfstest.Write, Err: syscall.ENOSPC, WriteBytes: 4}},
			vfstest.Info, journal.OutcomeUnknown, false, base + `{"id` + theirs,
		},
		{
			"a failed write behind theirs",
			nil, vfstest.Write, journal.OutcomeUnknown, false, base + theirs + `{"id`,
		},
		{
			"a failed sync is cut behind theirs",
			[]vfstest.Rule{{Op: vfstest.Datasync, Err: syscall.EIO}},
			vfstest.Write, journal.OutcomeNone, false, base + theirs,
		},
		{
			"a failed sync with theirs behind stays latched",
			[]vfstest.Rule{{Op: vfstest.Datasync, Err: syscall.EIO}},
			vfstest.OpenAppend, journal.OutcomeUnknown, true, base + object("1") + "\n" + theirs,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := setUp(t, base)
			skip := 0
			if row.foreign == vfstest.Info {
				skip = 1 // the look at the size before the cut
			}
			hook := vfstest.Rule{Op: row.foreign, Skip: skip, Do: func() { b.foreign(theirs) }}
			if row.rules == nil {
				hook.Err, hook.WriteBytes = syscall.ENOSPC, 4
			}
			b.fs.Add(hook)
			for _, r := range row.rules {
				b.fs.Add(r)
			}
			_, err := b.append(object("1"))
			if outcome(err) != row.outcome {
				t.Errorf("append: got %v, want outcome %s", err, row.outcome)
			}
			if got := b.content(); got != row.want {
				t.Errorf("content: got %q, want %q", got, row.want)
			}
			_, err = b.append(object("2"))
			if got := errors.Is(err, journal.ErrLatched); got != row.latched || !row.latched && err != nil {
				t.Errorf("next append: got %v, want latched: %v", err, row.latched)
			}
			if row.latched {
				b.wantHead(base)
				return
			}
			want := row.want
			if !strings.HasSuffix(want, "\n") {
				want += "\n"
			}
			b.wantContent(want + object("2") + "\n")
		})
	}
}

func TestInterleave_TheirsCannotBeSynced(t *testing.T) {
	b := setUp(t, base)
	b.foreign(object("theirs") + "\n")
	b.fs.Add(vfstest.Rule{Op: vfstest.Datasync, Err: syscall.EIO})
	_, err := b.append(object("1"))
	wantOutcome(t, err, syscall.EIO, journal.OutcomeNone)
	b.wantHead(base)
	b.mustAppend(object("2"))
	b.wantContent(base + object("theirs") + "\n" + object("2") + "\n")
}
