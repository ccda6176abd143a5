package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"sessiond/engine/vfs"
	"sessiond/wire"
)

// readCounter counts the bytes that are read of all files.
type readCounter struct {
	vfs.FS
	bytes atomic.Int64
}

func (c *readCounter) OpenRead(path string) (vfs.File, error) { return c.file(c.FS.OpenRead(path)) }

func (c *readCounter) OpenAppend(path string) (vfs.File, error) { return c.file(c.FS.OpenAppend(path)) }

func (c *readCounter) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &readCounted{f, c}, nil
}

type readCounted struct {
	vfs.File
	counter *readCounter
}

func (f *readCounted) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.counter.bytes.Add(int64(n))
	return n, err
}

func withReadCounter() (*readCounter, func(*Options)) {
	c := &readCounter{FS: unsynced{vfs.OS{}}}
	return c, func(o *Options) { o.FS = c; o.Timing.Rest = time.Hour }
}

// during returns how many bytes are read while f runs.
func (c *readCounter) during(f func()) int64 {
	before := c.bytes.Load()
	f()
	return c.bytes.Load() - before
}

func atMost(t *testing.T, what string, got, most int64) {
	t.Helper()
	if got > most {
		t.Errorf("%s: got %.1f MiB read, want at most %.1f", what, float64(got)/(1<<20), float64(most)/(1<<20))
	}
}

// heldObjects returns how many objects are remembered, and how many of them
// lie in memory.
func (w *world) heldObjects() (n, inMemory int) {
	w.e.objects.mu.Lock()
	defer w.e.objects.mu.Unlock()
	for _, o := range w.e.objects.held {
		if o.inMemory {
			inMemory++
		}
	}
	return len(w.e.objects.held), inMemory
}

// A large object that is read in pieces is proven once, not for each piece.
func TestRead_InPiecesProvesOnce(t *testing.T) {
	const slack = 1 << 20
	c, count := withReadCounter()
	now := &clock{}
	w := newWorld(t, count, func(o *Options) { o.Now = now.now })
	line := user("big", "e2", strings.Repeat("0123456789ab", 1<<20))
	size := int64(len(line))
	w.e.changed(w.write("a.jsonl", sessionText(3)+line+"\n"))
	for _, view := range []wire.View{wire.ViewTranscript, wire.ViewRecords} {
		t.Run(string(view), func(t *testing.T) {
			f := w.attach(wire.Command{Session: "a", View: view})
			f.untilLive()
			ref := refOf(t, f.slots)
			all := func() { w.readAll("a", view, ref, 1<<40) }
			atMost(t, "one client", c.during(all), 3*size+slack) // the record is found, proven and read
			const clients = 4
			atMost(t, "more clients", c.during(func() {
				var wg sync.WaitGroup
				for range clients {
					wg.Go(all)
				}
				wg.Wait()
			}), clients*size+slack)

			now.advance(objectsExpired + objectsExpired/2)
			w.e.objects.expire(now.now())
			if n, _ := w.heldObjects(); n != 0 {
				t.Errorf("expired: %d objects are held, want none", n)
			}
			if got := c.during(all); got < 2*size-slack {
				t.Errorf("expired: got %d bytes read, want it proven again", got)
			}
		})
	}
}

// An object that is not in the file as it is is made in memory, and one such
// object is held at a time.
func TestRead_OneObjectInMemory(t *testing.T) {
	w := newWorld(t)
	big := strings.Repeat("x", 2<<20)
	text := lines(header, user("a", "", big+"a?"), user("b", "a", big+"b?"))
	w.e.changed(w.write("a.jsonl", strings.ReplaceAll(text, "?", "\xff")))
	f := w.attach(wire.Command{Session: "a", View: wire.ViewTranscript})
	f.untilLive()
	if len(f.slots) != 2 {
		t.Fatalf("got\n%s\nwant two messages", f.text())
	}
	refs := []wire.Ref{refOf(t, f.slots[:1]), refOf(t, f.slots[1:])}
	for i, want := range []string{"a", "b", "a"} {
		object := w.readAll("a", wire.ViewTranscript, refs[i%2], 1<<40)
		if !strings.HasSuffix(object, want+"\ufffd\"}") || !json.Valid([]byte(object)) {
			t.Errorf("read %d: got %d bytes that end in %.20q", i, len(object), object[len(object)-20:])
		}
		if n, inMemory := w.heldObjects(); n != 1 || inMemory != 1 {
			t.Errorf("read %d: %d objects are held, %d in memory; want one", i, n, inMemory)
		}
	}
}

func TestRead_ObjectsHeldAreBounded(t *testing.T) {
	w := newWorld(t)
	text := sessionText(2 * objectsMax)
	w.e.changed(w.write("a.jsonl", text))
	most := 0
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		ref := wire.Ref{Sequence: wire.Sequence(i + 1), Bytes: int64(len(line)), Digest: wire.Digest(xxhash.Sum64String(line))}
		if got := w.readAll("a", wire.ViewRecords, ref, 1<<40); got != line {
			t.Fatalf("record %d: got %q, want %q", i+1, got, line)
		}
		n, _ := w.heldObjects()
		most = max(most, n)
	}
	if most != objectsMax {
		t.Errorf("got %d objects held at the most, want %d", most, objectsMax)
	}
}

// A large message that comes live is not read whole for every client to tell
// its role or the turn state.
func TestRef_RoleAndStateAreNotReadFromTheWhole(t *testing.T) {
	const streams, slack = 8, 1 << 20
	c, count := withReadCounter()
	w := newWorld(t, count, polling)
	path := w.write("a.jsonl", sessionText(3))
	w.e.changed(path)
	var list []*follower
	for range streams {
		f := w.attach(wire.Command{Session: "a", View: wire.ViewTranscript})
		f.untilLive()
		list = append(list, f)
	}
	line := user("big", "e2", strings.Repeat("01234567", 1<<20))
	got := c.during(func() {
		w.extendFile(path, line+"\n")
		w.look("a")
		for _, f := range list {
			f.untilSequence(5)
		}
	})
	// Each client needs the digest of the file and that of the object; the
	// replay, the state and the listing are read once, and so is what proves
	// that the file is what it was, at once and when it rests.
	atMost(t, "live", got, (2*streams+6)*int64(len(line))+slack)
	for i, f := range list {
		if ref := refOf(t, f.slots); ref.Role != "user" {
			t.Errorf("client %d: got role %q, want user", i, ref.Role)
		}
	}
}

// A role is found wherever the writer put it.
func TestRef_Role(t *testing.T) {
	big := strings.Repeat(`{\"role\":\"wrong\"}`, 100<<10)
	for _, row := range []struct{ name, message, want string }{
		{"first", `{"role":"user","content":"` + big + `"}`, "user"},
		{"behind large content", `{"content":"` + big + `","role":"user"}`, "user"},
		{"inside content too", `{"content":[{"role":"wrong","text":"` + big + `"}],"role":"user"}`, "user"},
		{"at the edge of what is looked at", `{"x":"` + strings.Repeat("x", rolePrefixBytes-15) + `","role":"user","content":"` + big + `"}`, "user"},
		{"none", `{"content":"` + big + `"}`, ""},
		{"no string", `{"role":5,"content":"` + big + `"}`, ""},
		{"too long to be told", `{"role":"` + strings.Repeat("r", 100) + `","content":"` + big + `"}`, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, polling)
			w.e.changed(w.write("a.jsonl", lines(header, entry("message", "m", "", `"message":`+row.message))))
			f := w.attach(wire.Command{Session: "a", View: wire.ViewTranscript})
			f.untilLive()
			if got := refOf(t, f.slots).Role; got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

// Entries that are there already are found on one way through the file, not
// on one from the last checkpoint for each.
func TestAppend_DuplicatesAreFoundOnOneWay(t *testing.T) {
	const n = 4000
	c, count := withReadCounter()
	w := newWorld(t, count)
	head := w.create("s1").Head
	entries := make([]string, n)
	parent := ""
	for i := range entries {
		id := fmt.Sprintf("d%d", i)
		entries[i] = user(id, parent, strings.Repeat("x", 500))
		parent = id
	}
	var acks []wire.Ack
	for batch := range slices.Chunk(entries, 1000) {
		acks = append(acks, w.append("s1", batch...).Acks...)
	}
	size := acks[n-1].Cursor.Offset - head.Offset
	backward := slices.Clone(entries[n-100:])
	slices.Reverse(backward)
	for _, row := range []struct {
		name    string
		entries []string
		most    int64
	}{
		// The bytes of each entry, and of each batch the way from a checkpoint.
		{"in the file's order", entries, 2*size + n/1000*2<<20},
		{"far apart", []string{entries[0], entries[n-1]}, 3 << 20},
		{"against the file's order", backward, 100 * 2 << 20},
	} {
		var again []wire.Ack
		got := c.during(func() {
			for batch := range slices.Chunk(row.entries, 1000) {
				again = append(again, w.append("s1", batch...).Acks...)
			}
		})
		atMost(t, row.name, got, row.most)
		for i, ack := range again {
			at := slices.Index(entries, row.entries[i])
			if !ack.Duplicate || ack.Cursor != acks[at].Cursor {
				t.Fatalf("%s, entry %d: got %+v, want a duplicate at %v", row.name, i, ack, acks[at].Cursor)
			}
		}
	}
	if got := bytes.Count(readFile(t, w.session("s1").path), []byte("\n")); got != n+1 {
		t.Errorf("the file has %d records, want %d", got, n+1)
	}
}
