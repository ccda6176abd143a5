package replay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sessiond/replay"
	"sessiond/replay/stamp"
)

// edited is a session file under edit, with the replay that is held of it.
type edited struct {
	d      *sessionDraw
	opt    replay.Options
	large  bool // lines are long enough for checkpoints and for a tail that is not looked into
	cache  *replay.Cache
	key    string
	data   []byte
	edits  int64 // each moves the stamp
	held   *replay.Replay
	builds int
}

// stampNow is the stamp of the file as it is: a rested one.
func (e *edited) stampNow() stamp.Stamp {
	return stamp.Stamp{Size: int64(len(e.data)), CTimeNano: now.Add(-time.Hour).UnixNano() + e.edits, Device: 1, Inode: 1}
}

func (e *edited) load() {
	h, err := e.cache.Load(context.Background(), e.key, at(e.stampNow(), e.data), func(ctx context.Context) (*replay.Replay, error) {
		e.builds++
		return replay.Build(ctx, bytes.NewReader(e.data), int64(len(e.data)), e.opt)
	})
	if err != nil {
		e.d.t.Fatalf("Load: %v", err)
	}
	e.held = h.Replay
}

// line draws one, now and then a long one.
func (e *edited) line() string {
	line := e.d.line()
	if e.large && e.d.odd("long", 3) == 0 {
		e.d.n++
		parent := e.d.last
		e.d.last = fmt.Sprintf("e%d", e.d.n)
		line = message(e.d.last, parent, "user", strings.Repeat("x", rapid.SampledFrom([]int{300 << 10, 700 << 10, 1200 << 10}).Draw(e.d.t, "bytes")))
	}
	return line
}

// text draws some lines and the beginning of another.
func (e *edited) text() []byte {
	var b bytes.Buffer
	for range rapid.IntRange(0, 3).Draw(e.d.t, "lines") {
		b.WriteString(e.line() + rapid.SampledFrom([]string{"\n", "\n", "\n", "\r\n"}).Draw(e.d.t, "end"))
	}
	if rapid.Bool().Draw(e.d.t, "tail") {
		tail := e.line()
		if rapid.Bool().Draw(e.d.t, "torn") {
			tail = tail[:rapid.IntRange(0, len(tail)).Draw(e.d.t, "cut")]
		}
		b.WriteString(tail)
	}
	return b.Bytes()
}

// extend brings the replay that is held up to the file, after what may go
// wrong before.
func (e *edited) extend() {
	size := int64(len(e.data))
	switch e.d.odd("fails", 5) {
	case 0:
		n := rapid.IntRange(1, 6).Draw(e.d.t, "reads")
		failure := errors.New("bad sector")
		src := readerFunc(func(p []byte, off int64) (int, error) {
			if n--; n < 0 {
				return 0, failure
			}
			return bytes.NewReader(e.data).ReadAt(p, off)
		})
		if err := e.held.Extend(context.Background(), src, size); err != nil && !errors.Is(err, failure) {
			e.d.t.Fatalf("Extend of what cannot be read: %v", err)
		}
	case 1:
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := e.held.Extend(ctx, bytes.NewReader(e.data), size); err != nil && !errors.Is(err, context.Canceled) {
			e.d.t.Fatalf("Extend that is cancelled: %v", err)
		}
	case 2: // it was shorter at the look than said
		at := rapid.Int64Range(e.held.Head().Offset, size).Draw(e.d.t, "short")
		if err := e.held.Extend(context.Background(), bytes.NewReader(e.data[:at]), size); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			e.d.t.Fatalf("Extend of a shorter file: %v", err)
		}
	}
	extend(e.d.t, e.held, e.data)
}

// step edits the file and uses what is held as far as it still holds.
func (e *edited) step() {
	builds := e.builds
	switch e.d.odd("edit", 9) {
	case 0: // other bytes
		e.edits++
		was := e.data[:e.held.Head().Offset]
		e.data = e.text()
		e.load()
		if !bytes.HasPrefix(e.data, was) {
			builds++
		}
	case 1, 2: // the tail is taken back, and another comes
		e.edits++
		head := e.held.Head().Offset
		keep := rapid.Int64Range(head, int64(len(e.data))).Draw(e.d.t, "keep")
		e.data = slices.Concat(e.data[:keep], e.text())
		if rapid.Bool().Draw(e.d.t, "seen") { // before it is asked for
			e.extend()
		}
		e.load()
	case 3: // nothing
		e.load()
	case 4: // nothing, and it is not held any more
		e.cache.Drop(e.key)
		e.load()
		builds++
	default:
		e.edits++
		e.data = slices.Concat(e.data, e.text())
		if rapid.Bool().Draw(e.d.t, "seen") { // before it is asked for
			e.extend()
		}
		e.load()
	}
	if e.builds != builds {
		e.d.t.Fatalf("built %d times, want %d", e.builds, builds)
	}
}

// However a file is edited, the replay that is used again says what a new one
// says of the file as it is.
func TestReuse_EqualsFreshBuild(t *testing.T) {
	cache, _ := newCache(t, 1<<30)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		e := &edited{
			cache: cache, key: fmt.Sprint(n), large: rapid.IntRange(0, 19).Draw(t, "large") == 19,
			d: &sessionDraw{t: t, version: rapid.SampledFrom([]int{3, 3, 2, 1}).Draw(t, "version"), kinds: 29},
			opt: replay.Options{
				BufferBytes:    rapid.SampledFrom([]int{0, 0, 512}).Draw(t, "buffer"),
				RecordBytesMax: rapid.SampledFrom([]int64{0, 0, 2000}).Draw(t, "record"),
			},
		}
		if rapid.IntRange(0, 2).Draw(t, "headed") < 2 { // else it comes late, if at all
			e.data = file(header(e.d.version))
		}
		e.load()
		for range rapid.IntRange(1, 12).Draw(t, "edits") {
			e.step()
			equalReplays(t, buildWith(t, e.data, replay.Options{RecordBytesMax: e.opt.RecordBytesMax}), e.held, e.data)
		}
		cache.Drop(e.key)
	})
}
