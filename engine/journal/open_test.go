package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sessiond/engine/journal"
	"sessiond/engine/vfs"
	"sessiond/engine/vfs/vfstest"
	"sessiond/replay/stamp"
)

func TestOpen_TailRepair(t *testing.T) {
	const good = `{"id":"a"}` + "\n" + `{"id":"b"}` + "\n"
	nuls := strings.Repeat("\x00", 4096)
	for _, row := range []struct {
		name    string
		content string
		want    string
		repair  journal.Repair
		kept    string
	}{
		{"empty file", "", "", journal.None, ""},
		{"whole records", good, good, journal.None, ""},
		{"whole object without LF", good + `{"id":"c"}`, good + `{"id":"c"}` + "\n", journal.Ended, ""},
		{"whole object, CR, no LF", good + `{"id":"c"}` + "\r", good + `{"id":"c"}` + "\r\n", journal.Ended, ""},
		{"first record without LF", `{"id":"a"}`, `{"id":"a"}` + "\n", journal.Ended, ""},
		{"first record behind a byte-order mark", "\ufeff" + `{"id":"a"}`, "\ufeff" + `{"id":"a"}` + "\n", journal.Ended, ""},
		{"torn first record", `{"id":`, "", journal.Cut, `{"id":`},
		{"no object", good + "17", good, journal.Cut, "17"},
		{"blanks", good + "  ", good, journal.Cut, "  "},
		{"NULs", good + nuls, good, journal.Cut, nuls},
		{"NULs that an LF ended stay", good + nuls + "\n", good + nuls + "\n", journal.None, ""},
		{"NULs behind a torn record", good + `{"id` + nuls, good, journal.Cut, `{"id` + nuls},
		{"two objects on one line", good + `{"id":"c"}{"id":"d"}`, good, journal.Cut, `{"id":"c"}{"id":"d"}`},
		{"long torn line", good + `{"x":"` + strings.Repeat("y", 200_000), good, journal.Cut, `{"x":"` + strings.Repeat("y", 200_000)},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := setUp(t, row.content)
			b.wantContent(row.want)
			if got := b.rec.Tail.Repair; got != row.repair {
				t.Errorf("repair: got %q, want %q", got, row.repair)
			}
			if row.repair == journal.Cut {
				if got, want := filepath.Base(b.rec.Tail.Copy), fmt.Sprintf("owned_s-%d-77-0", len(row.want)); got != want {
					t.Errorf("copy's name: got %q, want %q", got, want)
				}
				if got, err := os.ReadFile(b.rec.Tail.Copy); string(got) != row.kept || err != nil {
					t.Errorf("copy: got %d bytes, %v, want the tail's %d", len(got), err, len(row.kept))
				}
				if got, want := b.rec.Tail.Bytes, int64(len(row.kept)); got != want {
					t.Errorf("bytes cut: got %d, want %d", got, want)
				}
			}
			b.mustAppend(`{"id":"next"}`)
			b.wantContent(row.want + `{"id":"next"}` + "\n")
		})
	}
}

func TestOpen_TornAtEveryByte(t *testing.T) {
	const good, last = `{"id":"a"}` + "\n", `{"id":"b","text":"\u00e9é"}` + "\n"
	for n := range len(last) + 1 {
		b := setUp(t, good+last[:n])
		want := good
		if n >= len(last)-1 {
			want += last
		}
		b.wantContent(want)
		if err := b.j.Close(t.Context()); err != nil {
			t.Errorf("torn at %d: close: %v", n, err)
		}
	}
}

func TestOpen_CopyCannotBeKept(t *testing.T) {
	const content = `{"id":"a"}` + "\n" + `{"id":"b`
	for _, row := range []struct {
		name string
		rule vfstest.Rule
	}{
		{"no folder", vfstest.Rule{Op: vfstest.MkdirAll, Err: syscall.EROFS}},
		{"no file", vfstest.Rule{Op: vfstest.Create, Err: syscall.ENOSPC}},
		{"short write", vfstest.Rule{Op: vfstest.Write, Err: syscall.ENOSPC, WriteBytes: 2}},
		{"copy not synced", vfstest.Rule{Op: vfstest.Datasync, Err: syscall.EIO}},
		{"folder not synced", vfstest.Rule{Op: vfstest.SyncDir, Path: "torn", Err: syscall.EIO}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := lay(t, content)
			b.fs.Add(row.rule)
			b.open()
			if b.rec.Tail.Repair != journal.Ended || !errors.Is(b.rec.Tail.CopyErr, row.rule.Err) {
				t.Errorf("tail: got %+v, want it ended because of %v", b.rec.Tail, row.rule.Err)
			}
			b.mustAppend(`{"id":"c"}`)
			b.wantContent(content + "\n" + `{"id":"c"}` + "\n")
			if left, _ := os.ReadDir(b.o.TornDir); len(left) != 0 {
				t.Errorf("left of the copy: got %v, want nothing", left)
			}
		})
	}
}

func TestOpen_CopiesNeverReplaceEachOther(t *testing.T) {
	b := lay(t, "")
	b.o.Session = "../..:ü/" + strings.Repeat("x", 300)
	var copies []string
	for _, torn := range []string{"{1", "{2", "{3"} {
		b.foreign(torn)
		b.open()
		if got, err := os.ReadFile(b.rec.Tail.Copy); string(got) != torn || err != nil {
			t.Errorf("copy: got %q, %v, want %q", got, err, torn)
		}
		copies = append(copies, b.rec.Tail.Copy)
		if err := b.j.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if filepath.Dir(copies[0]) != b.o.TornDir || copies[0] == copies[1] || copies[1] == copies[2] {
		t.Errorf("copies: got %q", copies)
	}
}

func TestOpen_FailsWithNothingPublished(t *testing.T) {
	const torn = `{"id":"a"}` + "\n" + `{"id":"b`
	whole := torn + `"}`
	for _, row := range []struct {
		name    string
		content string
		rule    vfstest.Rule
	}{
		{"lock", whole, vfstest.Rule{Op: vfstest.TryLock, Err: syscall.ENOLCK}},
		{"read", whole, vfstest.Rule{Op: vfstest.ReadAt, Err: syscall.EIO}},
		{"read of the digest", whole, vfstest.Rule{Op: vfstest.ReadAt, Skip: 2, Err: syscall.EIO}},
		{"LF", whole, vfstest.Rule{Op: vfstest.Write, Path: sessionName, Err: syscall.ENOSPC}},
		{"cut", torn, vfstest.Rule{Op: vfstest.Truncate, Err: syscall.EIO}},
		{"sync", torn, vfstest.Rule{Op: vfstest.Datasync, Path: sessionName, Err: syscall.EIO}},
		{"sync of the folder", whole, vfstest.Rule{Op: vfstest.SyncDir, Err: syscall.EIO}},
		{"stat", whole, vfstest.Rule{Op: vfstest.Stat, Err: syscall.EIO}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := lay(t, row.content)
			b.fs.Add(row.rule)
			j, _, err := journal.Open(t.Context(), b.path, stamp.Checkpoint{}, b.o)
			if j != nil || !errors.Is(err, row.rule.Err) {
				t.Fatalf("Open: got %v, %v, want no journal and %v", j, err, row.rule.Err)
			}
			b.open() // it works again, and the lock was given back
			b.mustAppend(`{"id":"c"}`)
			if got := b.content(); !strings.HasSuffix(got, "\n"+`{"id":"c"}`+"\n") {
				t.Errorf("content: got %q", got)
			}
		})
	}
}

// A record that a killed process wrote and did not sync is not the head's
// before this open synced it.
func TestOpen_SyncsBeforeTheHead(t *testing.T) {
	b := lay(t, `{"id":"a"}`+"\n")
	var order []string
	for op, path := range map[vfstest.Op]string{vfstest.Datasync: sessionName, vfstest.SyncDir: ""} {
		b.fs.Add(vfstest.Rule{Op: op, Path: path, Do: func() { order = append(order, string(op)) }})
	}
	b.open()
	if got, want := fmt.Sprint(order), "[datasync sync_dir]"; got != want {
		t.Errorf("before the head: got %s, want %s", got, want)
	}
	b.wantContent(`{"id":"a"}` + "\n")
}

func TestOpen_FromACheckpoint(t *testing.T) {
	b := setUp(t, "")
	b.mustAppend(object("1"), object("2"))
	mid := b.j.Head().Checkpoint()
	b.mustAppend(object("3"))
	want := b.j.Head().Point
	if err := b.j.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	inside := mid
	inside.Offset--
	beyond := mid
	beyond.Offset += 1 << 20
	broken := mid
	broken.State = broken.State[:10]
	other := mid
	other.Digest++
	for _, row := range []struct {
		name    string
		from    stamp.Checkpoint
		unfit   bool
		scanned int64
	}{
		{"none", stamp.Checkpoint{}, false, want.Offset},
		{"the start", stamp.Checkpoint{Point: stamp.Start, State: stamp.NewDigest().State()}, false, want.Offset},
		{"in the middle", mid, false, want.Offset - mid.Offset},
		{"inside a record", inside, true, want.Offset},
		{"beyond the end", beyond, true, want.Offset},
		{"broken state", broken, true, want.Offset},
		{"another digest", other, true, want.Offset},
	} {
		t.Run(row.name, func(t *testing.T) {
			j, rec, err := journal.Open(t.Context(), b.path, row.from, b.o)
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close(context.Background())
			if rec.CheckpointUnfit != row.unfit || rec.ScannedBytes != row.scanned {
				t.Errorf("recovery: got %+v, want unfit %v, %d bytes scanned", rec, row.unfit, row.scanned)
			}
			if got := j.Head().Point; got != want {
				t.Errorf("head: got %+v, want %+v", got, want)
			}
		})
	}
}

func TestOpen_Refuses(t *testing.T) {
	b := setUp(t, "")
	link := filepath.Join(b.dir, "link.jsonl")
	if err := os.Symlink(b.path, link); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	big := filepath.Join(b.dir, "big.jsonl")
	if err := os.WriteFile(big, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name string
		ctx  context.Context
		path string
		want error
	}{
		{"open already", t.Context(), b.path, vfs.ErrLocked},
		{"link", t.Context(), link, vfs.ErrNotRegular},
		{"folder", t.Context(), b.dir, vfs.ErrNotRegular},
		{"absent", t.Context(), filepath.Join(b.dir, "absent"), fs.ErrNotExist},
		{"context ended", ended, big, context.Canceled},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, _, err := journal.Open(row.ctx, row.path, stamp.Checkpoint{}, b.o); !errors.Is(err, row.want) {
				t.Errorf("got %v, want %v", err, row.want)
			}
		})
	}
}

// A tail too large to be held is ended when it looks like an object: nothing
// of it is moved.
func TestOpen_HugeTail(t *testing.T) {
	b := lay(t, object("a")+"\n{")
	const size = 80 << 20
	if err := os.Truncate(b.path, size-1); err != nil { // a hole
		t.Fatal(err)
	}
	b.foreign("}")
	b.open()
	if got, want := b.rec.Tail.Repair, journal.Ended; got != want {
		t.Errorf("repair: got %q, want %q", got, want)
	}
	if got, want := b.j.Head().Point.Offset, int64(size+1); got != want || b.j.Head().Sequence != 2 {
		t.Errorf("head: got %+v, want record 2 at %d", b.j.Head().Point, want)
	}
}

// Whatever a file holds: its lines stay, its tail becomes a line or goes to a
// copy, and nothing else changes.
func FuzzOpen_KeepsEveryByte(f *testing.F) {
	for _, seed := range []string{"", "\n", "{}", "{}\n{}", "{}\n{", "\x00\x00", "\ufeff{}", "{}\n\x00{}", "\r", "[{}]", "{}{}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		b := setUp(t, string(content))
		whole := string(content[:bytes.LastIndexByte(content, '\n')+1])
		tail := string(content[len(whole):])
		switch b.rec.Tail.Repair {
		case journal.None:
			if tail != "" {
				t.Errorf("tail %q: got no repair", tail)
			}
			b.wantContent(whole)
		case journal.Ended:
			b.wantContent(whole + tail + "\n")
		case journal.Cut:
			b.wantContent(whole)
			if got, err := os.ReadFile(b.rec.Tail.Copy); string(got) != tail || err != nil {
				t.Errorf("copy: got %q, %v, want %q", got, err, tail)
			}
		}
		if err := b.j.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
