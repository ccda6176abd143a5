package replay_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"sessiond/replay"
	"sessiond/replay/stamp"
)

// aheadData is a session that is read ahead in many batches: lines of all
// kinds and lengths, some longer than a buffer, one over the limit of 1 MiB.
func aheadData(bytesMin int) []byte {
	b := bytes.NewBuffer(file(header(3)))
	for i := 0; b.Len() < bytesMin; i++ {
		text := fmt.Sprintf("größe %d \\n", i)
		switch {
		case i%997 == 0:
			text = strings.Repeat("long ", 70<<10)
		case i == 1500:
			text = strings.Repeat("over ", 300<<10)
		}
		b.WriteString(message(id(i), id(i-1), "user", text))
		b.WriteString([]string{"\n", "\r\n", "\n\n", "\nno JSON\n", " \n[1]\n"}[i%5])
	}
	return b.Bytes()
}

// One worker and two see the same.
func TestBuild_Workers(t *testing.T) {
	data := aheadData(12 << 20)
	opt := replay.Options{RecordBytesMax: 1 << 20}
	two := buildWith(t, data, opt)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	one := buildWith(t, data, opt)
	equalReplays(t, one, two, data)
	if got, want := fmt.Sprint(two.Checkpoints()), fmt.Sprint(one.Checkpoints()); got != want {
		t.Errorf("checkpoints: got %s, want %s", got, want)
	}
	if one.Counts().Oversized != 1 || len(one.Checkpoints()) < 8 {
		t.Errorf("got %+v and %d checkpoints, want an oversized record and 8 checkpoints at least", one.Counts(), len(one.Checkpoints()))
	}
}

// After a read error anywhere the replay stands at a record, with the digest
// of what is before it, and goes on from there.
func TestBuild_ReadErrorAhead(t *testing.T) {
	data := aheadData(4 << 20)
	broken := errors.New("broken disk")
	for failAt := int64(100 << 10); failAt < int64(len(data)); failAt += 700 << 10 {
		r := online(t, nil)
		src := readerFunc(func(p []byte, off int64) (int, error) {
			if off+int64(len(p)) > failAt {
				return 0, broken
			}
			return bytes.NewReader(data).ReadAt(p, off)
		})
		if err := r.Extend(t.Context(), src, int64(len(data))); !errors.Is(err, broken) {
			t.Fatalf("fails at %d: got %v", failAt, err)
		}
		head, d := r.HeadDigest()
		want := stamp.NewDigest()
		want.Write(data[:head.Offset])
		if d.Sum64() != want.Sum64() || head.Offset > 0 && data[head.Offset-1] != '\n' {
			t.Fatalf("fails at %d: head at %d with digest %016x, want %016x", failAt, head.Offset, d.Sum64(), want.Sum64())
		}
		extend(t, r, data)
		equalReplays(t, online(t, data), r, data)
	}
}

// What is read ahead is bounded, however short the lines are.
func TestBuild_BuffersAreBounded(t *testing.T) {
	for _, size := range []int{1, 200} {
		line := strings.Repeat(" ", size) + "\n" // blank: nothing is kept of it
		data := []byte(strings.Repeat(line, 32<<20/len(line)))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := online(t, data)
		runtime.ReadMemStats(&after)
		if got := r.Counts().Blank; got != int64(len(data)/len(line)) {
			t.Fatalf("got %d blank lines of %d", got, len(data)/len(line))
		}
		places := uint64(len(data)/(16<<10)) * 512 // of which the digest is noted on the way
		if used := after.TotalAlloc - before.TotalAlloc; used > 6<<20+places {
			t.Errorf("lines of %d bytes: got %d bytes allocated, want at most 6 MiB and %d for places", size, used, places)
		}
	}
}
