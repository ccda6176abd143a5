package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sessiond/engine/vfs"
	"sessiond/kv"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

// madeIndex is a state folder with an index, and session files beside it.
type madeIndex struct {
	t     *testing.T
	dir   string
	state string
	batch kv.Batch
}

func newMadeIndex(t *testing.T) *madeIndex {
	t.Helper()
	dir := t.TempDir()
	m := &madeIndex{t: t, dir: dir, state: filepath.Join(dir, "state")}
	if err := os.MkdirAll(filepath.Join(m.state, "spill", "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *madeIndex) path(name string) string { return filepath.Join(m.dir, name) }

func (m *madeIndex) file(name, content string) string {
	m.t.Helper()
	if err := os.WriteFile(m.path(name), []byte(content), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return m.path(name)
}

// know puts what an index knows of a file with this content into the batch,
// under the file's name.
func (m *madeIndex) know(name, content string, change ...func(*kv.Signature, *kv.Listing, *stamp.Checkpoints)) {
	messages, diagnostics := strings.Count(content, "\n"), 0
	d := stamp.NewDigest()
	var points stamp.Checkpoints
	var head stamp.Point
	for line := range strings.Lines(content) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		_, _ = d.Write([]byte(line))
		head = stamp.Point{Sequence: head.Sequence + 1, Offset: head.Offset + int64(len(line)), Digest: d.Sum64()}
		points = append(points, stamp.Checkpoint{Point: head, State: d.State()})
	}
	sig := kv.Signature{
		Stamp:  stamp.Stamp{Size: int64(len(content)), MTimeNano: 1e18, CTimeNano: 1e18, Device: 1, Inode: 2},
		ReadAt: time.Unix(1e9+5, 0), Head: head, Generation: wire.Generation{7}, Dialect: "pi", Rules: "pi-3", Trusted: true,
	}
	l := kv.Listing{ID: name, Path: m.path(name), MessageCount: &messages, DiagnosticsCount: &diagnostics}
	for _, f := range change {
		f(&sig, &l, &points)
	}
	m.batch.PutSignature("f:"+name, sig)
	m.batch.PutListing("f:"+name, l)
	m.batch.PutCheckpoints("f:"+name, points)
}

// stampOf gives an entry the stamp that its file has now.
func (m *madeIndex) stampOf(sig *kv.Signature, l *kv.Listing, _ *stamp.Checkpoints) {
	info, err := vfs.OS{}.Stat(l.Path)
	if err != nil {
		m.t.Fatal(err)
	}
	sig.Stamp = info.Stamp
}

// save writes the index.
func (m *madeIndex) save() {
	m.t.Helper()
	x, err := kv.Open(m.t.Context(), filepath.Join(m.state, "index.db"), kv.Options{Now: func() time.Time { return time.Unix(1e9, 0) }})
	if err == nil {
		err = errors.Join(x.Put(m.t.Context(), &m.batch), x.Close(m.t.Context()))
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// inspect runs inspect index, which must succeed and change nothing.
func (m *madeIndex) inspect(args ...string) string {
	m.t.Helper()
	before := m.all()
	out, msg, code := inspect(m.t.Context(), append([]string{"index", "--state-dir", m.state}, args...)...)
	if code != 0 || msg != "" {
		m.t.Errorf("%q: exit code %d, %s", args, code, msg)
	}
	if diff := cmp.Diff(before, m.all()); diff != "" {
		m.t.Errorf("%q changed files (-before +after):\n%s", args, diff)
	}
	return out
}

// all returns content and time of every file.
func (m *madeIndex) all() map[string]string {
	m.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(m.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		all[path] = info.ModTime().String() + string(b)
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return all
}

const threeLines = "{\"a\":1}\n{\"b\":2}\n{\"c\":3}\n"

// everyVerdict makes an entry for each verdict and a bit of all else.
func everyVerdict(t *testing.T) *madeIndex {
	m := newMadeIndex(t)
	m.file("unchanged", threeLines+"{tail")
	m.know("unchanged", threeLines+"{tail", m.stampOf)
	m.file("same", threeLines)
	m.know("same", threeLines)
	m.file("grown", threeLines+"{\"d\":4}\n")
	m.know("grown", threeLines)
	m.file("differs", strings.Replace(threeLines, "2", "9", 1))
	m.know("differs", threeLines)
	m.file("differs-unseen", strings.Replace(threeLines, "3", "9", 1))
	m.know("differs-unseen", threeLines, m.stampOf)
	m.file("short", threeLines[:10])
	m.know("short", threeLines)
	m.file("checkpoint", threeLines)
	m.know("checkpoint", threeLines, func(_ *kv.Signature, _ *kv.Listing, c *stamp.Checkpoints) {
		d := stamp.NewDigest()
		_, _ = d.Write([]byte("other\n"))
		(*c)[0] = stamp.Checkpoint{Point: stamp.Point{Sequence: 1, Offset: 8, Digest: d.Sum64()}, State: d.State()}
	})
	m.file("records", threeLines)
	m.know("records", threeLines, func(s *kv.Signature, _ *kv.Listing, c *stamp.Checkpoints) { s.Head.Sequence, *c = 2, nil })
	m.know("missing", threeLines)
	if err := syscall.Mkfifo(m.path("unreadable"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.know("unreadable", threeLines)
	m.know("nowhere", threeLines, func(_ *kv.Signature, l *kv.Listing, _ *stamp.Checkpoints) { l.Path = "" })
	m.know("hostile\x1b[2J\u202e", "", func(s *kv.Signature, l *kv.Listing, _ *stamp.Checkpoints) {
		l.ID, s.Dialect, s.Rules = "\x1b", "\x1b[2J", "\u202e"
	})
	m.batch.PutView("f:same", "transcript", kv.View{
		Rules: "pi-3", Target: 512, At: stamp.Point{Sequence: 2, Offset: 16, Digest: 3}, Segments: []string{"a.seg", "gone\x1b"},
		Chunks: 2, Bytes: 1000, Data: []byte("data"),
	})
	m.batch.PutView("f:same", "context", kv.View{Segments: []string{"../lock"}})
	m.batch.PutTombstone("f:removed\x1b", kv.Tombstone{Removed: time.Unix(1e9, 0), ID: "r", Generation: wire.Generation{8}, Head: stamp.Start, Bytes: 5})
	for name, content := range map[string]string{"a.seg": "named", "b.seg": "unnamed", "sub/c.seg": "x"} {
		m.file(filepath.Join("state", "spill", name), content)
	}
	m.save()
	return m
}

// normal makes what differs from run to run the same.
func (m *madeIndex) normal(text string) string {
	text = strings.ReplaceAll(text, m.dir, "$DIR")
	text = regexp.MustCompile(`"bytes":[0-9]+,"schema"`).ReplaceAllString(text, `"bytes":0,"schema"`) // pages are those of the machine
	text = regexp.MustCompile(`"(device|inode)":[0-9]+`).ReplaceAllString(text, `"$1":0`)
	return regexp.MustCompile(`"([mc]time)":"[^"]*"`).ReplaceAllString(text, `"$1":""`)
}

func TestInspectIndex_GoldenJSON(t *testing.T) {
	m := everyVerdict(t)
	out := m.inspect("-o", "json")
	if !json.Valid([]byte(out)) {
		t.Fatalf("no JSON: %s", out)
	}
	got := m.normal(out)
	golden := filepath.Join("testdata", "inspect_index.json")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// jsonOf reads what -o json printed.
func jsonOf(t *testing.T, out string) (all struct {
	indexHeader
	Sessions   []indexSession
	Tombstones []indexTombstone
	Spill      spillReport
	Totals     indexTotals
},
) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return all
}

func TestInspectIndex_Verdicts(t *testing.T) {
	m := everyVerdict(t)
	all := jsonOf(t, m.inspect("-o", "json"))
	want := map[string][2]string{
		"unchanged":            {"unchanged", ""},
		"same":                 {"same", ""},
		"grown":                {"grown", "8 bytes were added"},
		"differs":              {"differs", "the content differs between bytes 8 and 16"},
		"differs-unseen":       {"differs", "the content differs between bytes 16 and 24, and the stamp does not show it"},
		"short":                {"differs", "the file has 10 bytes, the head is at 24"},
		"checkpoint":           {"differs", "the checkpoint at byte 8 is wrong, the head is right"},
		"records":              {"differs", "the head at byte 24 has 3 records before it, the index says 2"},
		"missing":              {"missing", ""},
		"unreadable":           {"unreadable", "not a regular file"},
		"nowhere":              {"unverified", "the index does not say where the file is"},
		"hostile\x1b[2J\u202e": {"missing", ""},
	}
	got := map[string][2]string{}
	for _, s := range all.Sessions {
		got[strings.TrimPrefix(s.Session, "f:")] = [2]string{string(s.File.Verdict), strings.TrimPrefix(s.File.Detail, "vfs: ")}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	fast := map[string][2]string{}
	for _, s := range jsonOf(t, m.inspect("-o", "json", "--fast")).Sessions {
		fast[strings.TrimPrefix(s.Session, "f:")] = [2]string{string(s.File.Verdict), s.File.Detail}
	}
	for name, want := range map[string][2]string{
		"unchanged":      {"unchanged", ""},
		"differs-unseen": {"unchanged", ""},
		"same":           {"unverified", "the stamp differs in mtime, ctime, device, inode"},
		"short":          {"differs", "the file has 10 bytes, the head is at 24"},
		"missing":        {"missing", ""},
	} {
		if fast[name] != want {
			t.Errorf("fast, %s: got %q, want %q", name, fast[name], want)
		}
	}
}

func TestInspectIndex_TextIsSafe(t *testing.T) {
	m := everyVerdict(t)
	out := m.inspect()
	if bad := unsafeText(out); bad != "" {
		t.Errorf("output has %s", bad)
	}
	for _, want := range []string{
		"schema 2", "differs", "view        transcript: 2 chunks of 1000 bytes", "missing segments ../lock", "tombstone", "3 files, 13 bytes; named by nothing 2, 8 bytes",
		"unnamed    sub/c.seg, 1 bytes", "missing segments 2",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	lines := strings.Split(strings.TrimSuffix(m.inspect("-o", "jsonl"), "\n"), "\n")
	if len(lines) != 1+12+1+2 {
		t.Errorf("got %d lines, want 16", len(lines))
	}
	for _, l := range lines {
		if !json.Valid([]byte(l)) || !strings.HasPrefix(l, `{"type":"`) {
			t.Errorf("got %s", l)
		}
	}
}

// A value that fails its checksum is said, and the others are shown.
func TestInspectIndex_BadValue(t *testing.T) {
	m := newMadeIndex(t)
	m.file("a", threeLines)
	m.know("a", threeLines)
	m.know("b", threeLines)
	m.save()
	path := filepath.Join(m.state, "index.db")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for { // in every copy: a page that was replaced has one too
		at := bytes.Index(b, []byte(`{"id":"b"`))
		if at < 0 {
			break
		}
		b[at+7] = 'c'
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	all := jsonOf(t, m.inspect("-o", "json"))
	if all.Totals.BadValues != 1 || len(all.Sessions) != 2 || len(all.Sessions[0].Bad) != 0 || len(all.Sessions[1].Bad) != 1 ||
		all.Sessions[1].Bad[0].Bucket != "listings" || all.Sessions[1].File.Verdict != fileUnverified {
		t.Errorf("got %+v", all)
	}
	if out := m.inspect(); !strings.Contains(out, "bad value   listings f:b: ") || !strings.Contains(out, "bad values   1") {
		t.Errorf("got:\n%s", out)
	}
}

// Who can check chunks is asked for each view.
func TestInspectIndex_ChunksAreChecked(t *testing.T) {
	m := everyVerdict(t)
	r, err := kv.OpenReadOnly(t.Context(), filepath.Join(m.state, "index.db"), kv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	root := &rootOptions{output: formatJSON, color: "never", env: func(string) string { return "" }}
	cmd := newRootCommand()
	cmd.SetOut(&out)
	p, err := root.printer(cmd, formatJSON)
	if err != nil {
		t.Fatal(err)
	}
	spill := filepath.Join(m.state, "spill")
	x := &indexInspection{
		indexOptions: &indexOptions{checkChunks: func(_ context.Context, dir string, v kv.View) (chunkCheck, error) {
			if dir != spill {
				t.Errorf("spill folder: got %s, want %s", dir, spill)
			}
			return chunkCheck{bad: len(v.Data)}, nil
		}},
		index: r, out: &indexPrinter{printer: p}, spill: listSpill(spill), totals: indexTotals{Verdicts: map[verdict]int{}},
	}
	if err := errors.Join(x.run(t.Context()), p.Flush()); err != nil {
		t.Fatal(err)
	}
	if all := jsonOf(t, out.String()); all.Totals.BadChunks != 4 {
		t.Errorf("bad chunks: got %d, want 4", all.Totals.BadChunks)
	}
}

func TestInspectIndex_Cancelled(t *testing.T) {
	m := everyVerdict(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, code := inspect(ctx, "index", "--state-dir", m.state); code != exitInterrupted {
		t.Errorf("exit code: got %d, want %d", code, exitInterrupted)
	}
}
