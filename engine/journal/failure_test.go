package journal_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"sessiond/engine/journal"
	"sessiond/engine/vfs/vfstest"
	"sessiond/replay/stamp"
)

const base = `{"id":"base"}` + "\n"

// wantOutcome checks how an append failed.
func wantOutcome(t *testing.T, err, cause error, want journal.Outcome) {
	t.Helper()
	if !errors.Is(err, cause) || outcome(err) != want {
		t.Errorf("append: got %v, want %v, outcome %s", err, cause, want)
	}
}

// The disk is full after 70 bytes of a record; then there is room again.
func TestFailure_FullDiskThenRetry(t *testing.T) {
	b := setUp(t, base)
	long := `{"id":"long","text":"` + strings.Repeat("x", 200) + `"}`
	b.fs.Add(vfstest.Rule{Op: vfstest.Write, Path: sessionName, Err: syscall.ENOSPC, WriteBytes: 70})
	_, err := b.append(long)
	wantOutcome(t, err, syscall.ENOSPC, journal.OutcomeNone)
	if err := b.j.Failure(); err != nil {
		t.Errorf("after the cut: got %v, want no failure", err)
	}
	b.wantContent(base)
	b.mustAppend(long)
	b.wantContent(base + long + "\n")
}

// Each step of an append fails once: nothing is left, the same bytes can be
// sent again at once.
func TestFailure_OnceThenRetry(t *testing.T) {
	for _, row := range []struct {
		name string
		rule vfstest.Rule
	}{
		{"look at the size", vfstest.Rule{Op: vfstest.Info, Err: syscall.EIO}},
		{"write of nothing", vfstest.Rule{Op: vfstest.Write, Err: syscall.EIO}},
		{"write of one byte", vfstest.Rule{Op: vfstest.Write, Err: syscall.EDQUOT, WriteBytes: 1}},
		{"write of all", vfstest.Rule{Op: vfstest.Write, Err: syscall.EIO, WriteBytes: 1 << 20}},
		{"position", vfstest.Rule{Op: vfstest.Position, Err: syscall.EIO}},
		{"sync", vfstest.Rule{Op: vfstest.Datasync, Err: syscall.EIO}},
		{"look at the path", vfstest.Rule{Op: vfstest.Stat, Err: syscall.EACCES}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := setUp(t, base)
			b.fs.Add(row.rule)
			_, err := b.append(object("1"), object("2"))
			wantOutcome(t, err, row.rule.Err, journal.OutcomeNone)
			b.wantContent(base)
			b.mustAppend(object("1"), object("2"))
			b.wantContent(base + object("1") + "\n" + object("2") + "\n")
		})
	}
}

// A descriptor whose sync failed is closed and not synced again.
func TestFailure_SyncIsNotRepeated(t *testing.T) {
	b := setUp(t, base)
	b.fs.Add(vfstest.Rule{Op: vfstest.Datasync, Path: sessionName, Err: syscall.EIO})
	opens, syncs := b.fs.Count(vfstest.OpenAppend, ""), b.fs.Count(vfstest.Datasync, "")
	var closedFirst bool
	b.fs.Add(vfstest.Rule{Op: vfstest.OpenAppend, Do: func() { closedFirst = b.fs.Count(vfstest.Close, sessionName) == 1 }})
	_, err := b.append(object("1"))
	wantOutcome(t, err, syscall.EIO, journal.OutcomeNone)
	if got := b.fs.Count(vfstest.OpenAppend, "") - opens; got != 1 || !closedFirst {
		t.Errorf("opened again: got %d times, closed before: %v; want once, after the close", got, closedFirst)
	}
	if got := b.fs.Count(vfstest.Datasync, "") - syncs; got != 2 {
		t.Errorf("syncs: got %d, want the failed one and that of the cut", got)
	}
	b.mustAppend(object("2"))
	b.wantContent(base + object("2") + "\n")
}

// While the cut fails, the journal is read-only at its durable head; it
// recovers by itself.
func TestFailure_LatchAndRecover(t *testing.T) {
	write := vfstest.Rule{Op: vfstest.Write, Path: sessionName, Err: syscall.ENOSPC, WriteBytes: 5}
	sync := vfstest.Rule{Op: vfstest.Datasync, Path: sessionName, Err: syscall.EIO}
	for _, row := range []struct {
		name  string
		first vfstest.Rule
		cut   vfstest.Rule
	}{
		{"write, then truncate", write, vfstest.Rule{Op: vfstest.Truncate, Err: syscall.EIO}},
		{"write, then the cut's sync", write, vfstest.Rule{Op: vfstest.Datasync, Err: syscall.EIO}},
		{"write, then size", write, vfstest.Rule{Op: vfstest.Info, Skip: 1, Err: syscall.EIO}},
		{"sync, then open", sync, vfstest.Rule{Op: vfstest.OpenAppend, Err: syscall.EMFILE}},
		{"sync, then lock", sync, vfstest.Rule{Op: vfstest.TryLock, Err: syscall.ENOLCK}},
		{"sync, then truncate", sync, vfstest.Rule{Op: vfstest.Truncate, Err: syscall.EIO}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := setUp(t, base)
			b.fs.Add(row.first)
			row.cut.Times = vfstest.Always
			b.fs.Add(row.cut)
			_, err := b.append(object("1"))
			wantOutcome(t, err, row.first.Err, journal.OutcomeUnknown)
			for range 2 {
				_, err = b.append(object("2"))
				wantOutcome(t, err, journal.ErrLatched, journal.OutcomeNone)
			}
			if err := b.j.Failure(); !errors.Is(err, journal.ErrLatched) || !errors.Is(err, row.first.Err) {
				t.Errorf("failure: got %v, want %v because of %v", err, journal.ErrLatched, row.first.Err)
			}
			b.wantHead(base)
			b.fs.Heal()
			b.mustAppend(object("3"))
			if err := b.j.Failure(); err != nil {
				t.Errorf("failure after recovery: got %v", err)
			}
			b.wantContent(base + object("3") + "\n")
		})
	}
}

func TestFailure_CloseTriesTheCutAgain(t *testing.T) {
	b := setUp(t, base)
	b.fs.Add(vfstest.Rule{Op: vfstest.Write, Err: syscall.ENOSPC, WriteBytes: 5})
	b.fs.Add(vfstest.Rule{Op: vfstest.Truncate, Err: syscall.EIO})
	_, err := b.append(object("1"))
	wantOutcome(t, err, syscall.ENOSPC, journal.OutcomeUnknown)
	if err := b.j.Close(t.Context()); err != nil {
		t.Errorf("close: got %v", err)
	}
	b.wantContent(base)
}

func TestFailure_CloseSaysWhatIsLeft(t *testing.T) {
	b := setUp(t, base)
	b.fs.Add(vfstest.Rule{Op: vfstest.Write, Err: syscall.ENOSPC, WriteBytes: 5})
	b.fs.Add(vfstest.Rule{Op: vfstest.Truncate, Err: syscall.EIO, Times: vfstest.Always})
	_, _ = b.append(object("1"))
	if err := b.j.Close(t.Context()); !errors.Is(err, journal.ErrLatched) {
		t.Errorf("close: got %v, want %v", err, journal.ErrLatched)
	}
	b.fs.Heal()
	b.open()
	b.wantContent(base) // the torn bytes went to the folder of torn tails
	if b.rec.Tail.Repair != journal.Cut {
		t.Errorf("tail: got %+v, want it cut", b.rec.Tail)
	}
}

// All that wait in a group fail together; what had nothing to write has left
// nothing, whatever the outcome of the others.
func TestFailure_OfAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, base)
		release := make(chan struct{})
		b.fs.Add(vfstest.Rule{Op: vfstest.Datasync, Path: sessionName, Do: func() { <-release }})
		b.fs.Add(vfstest.Rule{Op: vfstest.Datasync, Path: sessionName, Err: syscall.EIO})
		b.fs.Add(vfstest.Rule{Op: vfstest.OpenAppend, Err: syscall.EMFILE})
		var wg sync.WaitGroup
		wg.Go(func() { b.mustAppend(object("1")) })
		synctest.Wait()
		for range 10 {
			wg.Go(func() {
				_, err := b.append(object("2"))
				wantOutcome(t, err, syscall.EIO, journal.OutcomeUnknown)
			})
		}
		wg.Go(func() {
			_, err := b.append()
			wantOutcome(t, err, syscall.EIO, journal.OutcomeNone)
		})
		wg.Go(func() {
			// Its decision may rest on records of the group that failed.
			_, err := b.j.Append(t.Context(), func(stamp.Point) ([][]byte, error) { return nil, errors.New("conflict") })
			wantOutcome(t, err, syscall.EIO, journal.OutcomeNone)
		})
		synctest.Wait()
		close(release)
		wg.Wait()
		b.mustAppend(object("3"))
		b.wantContent(base + object("1") + "\n" + object("3") + "\n")
	})
}

func TestGone(t *testing.T) {
	remove := func(b *bench) error { return os.Remove(b.path) }
	moveAway := func(b *bench) error { return os.Rename(b.path, b.path+".old") }
	replace := func(b *bench) error {
		if err := os.WriteFile(b.path+".new", []byte(b.content()), 0o600); err != nil {
			return err
		}
		return os.Rename(b.path+".new", b.path)
	}
	removeFolder := func(b *bench) error { return os.RemoveAll(b.dir) }
	cutShort := func(b *bench) error { return os.Truncate(b.path, 3) }
	for _, row := range []struct {
		name string
		do   func(b *bench) error
		want error
	}{
		{"removed", remove, journal.ErrGone},
		{"moved away", moveAway, journal.ErrGone},
		{"replaced", replace, journal.ErrGone},
		{"folder removed", removeFolder, journal.ErrGone},
		{"cut short", cutShort, journal.ErrRewritten},
	} {
		for _, when := range []vfstest.Op{vfstest.Info, vfstest.Write, vfstest.Datasync, vfstest.Stat} {
			t.Run(row.name+" at "+string(when), func(t *testing.T) {
				b := lay(t, base)
				b.o.OnCommit = func(h *journal.Head, _ []byte) { t.Errorf("published: got %+v, want nothing", h) }
				b.open()
				b.fs.Add(vfstest.Rule{Op: when, Do: func() {
					if err := row.do(b); err != nil {
						t.Error(err)
					}
				}})
				_, err := b.append(object("1"))
				want := journal.OutcomeUnknown
				if when == vfstest.Info && errors.Is(row.want, journal.ErrRewritten) {
					want = journal.OutcomeNone // seen before anything was written
				}
				wantOutcome(t, err, row.want, want)
				for range 2 {
					_, err = b.append(object("2"))
					wantOutcome(t, err, row.want, journal.OutcomeNone)
				}
				if err := b.j.Failure(); !errors.Is(err, row.want) {
					t.Errorf("failure: got %v, want %v", err, row.want)
				}
				b.wantHead(base)
				if err := b.j.Close(context.Background()); err != nil {
					t.Errorf("close: got %v", err)
				}
			})
		}
	}
}

// A duplicate is acknowledged only of a file that is still there.
func TestGone_NothingToWrite(t *testing.T) {
	b := setUp(t, base)
	if err := os.Remove(b.path); err != nil {
		t.Fatal(err)
	}
	_, err := b.append()
	wantOutcome(t, err, journal.ErrGone, journal.OutcomeNone)
}

func TestGone_WhileLatched(t *testing.T) {
	for _, row := range []struct {
		name string
		do   func(b *bench) error
		want error
	}{
		{"removed", func(b *bench) error { return os.Remove(b.path) }, journal.ErrGone},
		{"replaced", func(b *bench) error {
			return errors.Join(os.Remove(b.path), os.WriteFile(b.path, []byte(base), 0o600))
		}, journal.ErrGone},
		{"cut short", func(b *bench) error { return os.Truncate(b.path, 3) }, journal.ErrRewritten},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := setUp(t, base)
			b.fs.Add(vfstest.Rule{Op: vfstest.Datasync, Err: syscall.EIO})
			b.fs.Add(vfstest.Rule{Op: vfstest.OpenAppend, Err: syscall.EMFILE})
			_, err := b.append(object("1"))
			wantOutcome(t, err, syscall.EIO, journal.OutcomeUnknown)
			// An inode number may be used again at once: keep the old file.
			if err := os.Link(b.path, b.path+".kept"); err != nil {
				t.Fatal(err)
			}
			if err := row.do(b); err != nil {
				t.Fatal(err)
			}
			_, err = b.append(object("2"))
			wantOutcome(t, err, row.want, journal.OutcomeNone)
			if err := b.j.Failure(); !errors.Is(err, row.want) {
				t.Errorf("failure: got %v, want %v", err, row.want)
			}
		})
	}
}
