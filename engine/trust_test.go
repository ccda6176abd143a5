package engine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sessiond/engine/vfs"
	"sessiond/engine/vfs/vfstest"
	"sessiond/wire"
)

// ticking is a file system whose files change their time every so many writes,
// by so much.
type ticking struct {
	vfs.FS
	every int
	grain time.Duration
}

type tickingFile struct {
	vfs.File
	fs     ticking
	writes int
}

func (k ticking) Create(path string, mode fs.FileMode) (vfs.File, error) {
	f, err := k.FS.Create(path, mode)
	if err != nil {
		return nil, err
	}
	return &tickingFile{f, k, 0}, nil
}

func (f *tickingFile) Write(p []byte) (int, error) {
	f.writes++
	return f.File.Write(p)
}

func (f *tickingFile) Info() (vfs.Info, error) {
	info, err := f.File.Info()
	info.Stamp.CTimeNano = 1_000_000_000
	if f.fs.every > 0 {
		info.Stamp.CTimeNano += int64(f.writes/f.fs.every) * int64(f.fs.grain)
	}
	return info, err
}

func TestProbe(t *testing.T) {
	for _, tc := range []struct {
		name  string
		every int
		grain time.Duration
		fine  bool
	}{
		{"a stamp for each write", 1, time.Nanosecond, true},
		{"ticks of a kernel", 300, 4 * time.Millisecond, true},
		{"as coarse as may be", 100, probeGrain, true},
		{"coarser", 100, probeGrain + 1, false},
		{"whole seconds", 100, time.Second, false},
		{"times that stand still", 0, 0, false},
		{"times that run back", 100, -time.Millisecond, false},
		{"one tick within the tries", probeTries - 1, time.Millisecond, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "probe")
			if err := os.WriteFile(path, []byte("of a process that was killed"), 0o600); err != nil {
				t.Fatal(err)
			}
			device, fine, err := probe(ticking{vfs.OS{}, tc.every, tc.grain}, path)
			if err != nil || fine != tc.fine {
				t.Errorf("got %v, %v; want %v", fine, err, tc.fine)
			}
			if info, err := (vfs.OS{}).Stat(filepath.Dir(path)); err != nil || fine && device != info.Stamp.Device {
				t.Errorf("device %d, want %d; %v", device, info.Stamp.Device, err)
			}
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the probe's file stays: %v", err)
			}
		})
	}
}

// A probe that fails is told of and stops nothing: all is compared instead.
func TestProbe_Fails(t *testing.T) {
	for _, op := range []vfstest.Op{vfstest.Create, vfstest.Write, vfstest.Info, vfstest.Type} {
		t.Run(string(op), func(t *testing.T) {
			disk := vfstest.New(vfs.OS{})
			path := ".probe"
			if op == vfstest.Type {
				path = ""
			}
			disk.Add(vfstest.Rule{Op: op, Path: path, Times: vfstest.Always, Err: os.ErrPermission})
			w := newWorld(t, alone, func(o *Options) { o.FS = disk })
			if n := w.log.count("change times not probed"); n != 1 {
				t.Errorf("warned %d times, want once", n)
			}
			w.e.changed(w.write("a.jsonl", sessionText(3)))
			w.attachTo("a", wire.ViewTranscript)
			w.attachTo("a", wire.ViewTranscript)
			if v := w.e.counters.Values(); v["digest_reads"] != 1 || v["lines_parsed"] != 4 {
				t.Errorf("got %v, want one comparison and no second parse", v)
			}
		})
	}
}

// Where stamps prove nothing, each attach compares and none parses.
func TestTrust_EveryAttachCompares(t *testing.T) {
	w := newWorld(t, alone, isCoarse)
	text := sessionText(20)
	path := w.write("a.jsonl", text)
	must(w, os.Chtimes(path, time.Now(), time.Now().Add(-time.Hour)))
	w.e.changed(path)
	for i := range 5 {
		w.attachTo("a", wire.ViewContext)
		v := w.e.counters.Values()
		if n := uint64(i); v["digest_reads"] != n || v["check_bytes"] < n*uint64(len(text)) || v["cache_hits"] != n ||
			v["lines_parsed"] != 21 || v["bytes_read"] != uint64(len(text)) {
			t.Errorf("attach %d: got %v", i, v)
		}
	}
}

// A file that is written over with as many bytes, and whose stamp does not
// tell, is found out when somebody attaches.
func TestTrust_SameStampIsFoundByTheNextAttach(t *testing.T) {
	f := newFollowed(t, alone, isTimeless)
	text := sessionText(20)
	f.overwrite(strings.ReplaceAll(text, "user", "USER"))
	f.look("a")
	f.transcript.drain()
	if f.replacements() > 0 {
		t.Fatal("a look finds it; the stamp is to be equal")
	}
	fresh := f.attach(wire.Command{Session: "a", View: wire.ViewRecords})
	fresh.untilLive()
	if got, want := joinRecords(t, fresh.slots), string(readFile(t, f.path)); got != want {
		t.Errorf("got %d bytes, want the file's %d", len(got), len(want))
	}
	f.untilFile()
	if begin := f.transcript.begin; f.replacements() != 1 || begin.Reason == nil || *begin.Reason != wire.ReasonRewritten {
		t.Errorf("%d replacements, begin %+v", f.replacements(), begin)
	}
}

// Nor does a client that is attached already get bytes of two histories.
func TestTrust_SameStampIsFoundByAReader(t *testing.T) {
	for _, encoding := range []string{wire.EncodingJSON, wire.EncodingRaw} {
		t.Run(encoding, func(t *testing.T) {
			f := newFollowed(t, alone, isTimeless, smallChunks, onDemand)
			big := strings.Repeat("x", 1<<20)
			f.extendFile(f.path, lines(user("big1", "e19", big), user("big2", "big1", big), user("big3", "big2", big)))
			f.look("a")
			c := f.attach(wire.Command{Session: "a", View: wire.ViewRecords, Encoding: encoding})
			c.until("begin", func() bool { return c.snapshot != nil })
			file, err := os.OpenFile(f.path, os.O_WRONLY, 0)
			f.must(err)
			size := int64(len(readFile(t, f.path)))
			_, err = file.WriteAt([]byte("y"), size-3<<19) // in big2: the last one was read to tell the leaf
			f.must(err)
			f.must(file.Close())
			c.until("a replacement", func() bool { return c.live && c.begin.Purpose == wire.PurposeReplacement })
			if c.count(wire.TypeSnapshotFailed) != 1 {
				t.Errorf("frames %v, want the snapshot failed once", c.frames)
			}
		})
	}
}
