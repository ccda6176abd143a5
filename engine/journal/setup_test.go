package journal_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sessiond/engine/journal"
	"sessiond/engine/vfs"
	"sessiond/engine/vfs/vfstest"
	"sessiond/replay/stamp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is one journal with its file and its faults.
type bench struct {
	t    testing.TB
	dir  string
	path string
	fs   *vfstest.FS
	o    journal.Options
	j    *journal.Journal
	rec  journal.Recovery
}

const sessionName = "s.jsonl"

// lay makes a file with this content; open opens it.
func lay(t testing.TB, content string) *bench {
	t.Helper()
	dir := t.TempDir()
	b := &bench{t: t, dir: dir, path: filepath.Join(dir, sessionName), fs: vfstest.New(vfs.OS{})}
	b.o = journal.Options{
		FS: b.fs, TornDir: filepath.Join(dir, "torn"), Session: "owned:s",
		Now: func() time.Time { return time.Unix(0, 77) },
	}
	if err := os.WriteFile(b.path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) open() *bench {
	b.t.Helper()
	var err error
	if b.j, b.rec, err = journal.Open(b.t.Context(), b.path, stamp.Checkpoint{}, b.o); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = b.j.Close(context.Background()) })
	return b
}

func setUp(t testing.TB, content string) *bench {
	t.Helper()
	return lay(t, content).open()
}

// lines prepares these lines, wherever the head is.
func lines(text ...string) journal.Prepare {
	return func(stamp.Point) ([][]byte, error) {
		var out [][]byte
		for _, s := range text {
			out = append(out, []byte(s))
		}
		return out, nil
	}
}

func (b *bench) append(text ...string) (journal.Result, error) {
	b.t.Helper()
	return b.j.Append(b.t.Context(), lines(text...))
}

func (b *bench) mustAppend(text ...string) journal.Result {
	b.t.Helper()
	r, err := b.append(text...)
	if err != nil {
		b.t.Fatalf("append: %v", err)
	}
	return r
}

// foreign appends as another program does.
func (b *bench) foreign(text string) {
	f, err := os.OpenFile(b.path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		b.t.Error(err)
	}
}

func (b *bench) content() string {
	b.t.Helper()
	c, err := os.ReadFile(b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(c)
}

// wantContent checks the file, and that the head is what its records say.
func (b *bench) wantContent(want string) {
	b.t.Helper()
	if got := b.content(); got != want {
		b.t.Errorf("content: got %q, want %q", got, want)
	}
	b.wantHead(want)
}

// wantHead checks that the head is the end of exactly this text.
func (b *bench) wantHead(text string) {
	b.t.Helper()
	if got, want := b.j.Head().Point, pointOf(text); got != want {
		b.t.Errorf("head: got %+v, want %+v, the end of %q", got, want, text)
	}
	if got, want := b.j.Head().Digest().Sum64(), b.j.Head().Point.Digest; got != want {
		b.t.Errorf("digest to go on with: got %x, want %x", got, want)
	}
}

// pointOf is the reference: the point behind a text of whole lines.
func pointOf(text string) stamp.Point {
	d := stamp.NewDigest()
	_, _ = d.Write([]byte(text))
	return stamp.Point{
		Sequence: uint64(bytes.Count([]byte(text), []byte("\n"))),
		Offset:   int64(len(text)),
		Digest:   d.Sum64(),
	}
}

func object(id string) string { return fmt.Sprintf(`{"id":%q}`, id) }
