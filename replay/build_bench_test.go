package replay_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/testdata/gen"
)

const benchFileBytes = 100 << 20

// BenchmarkBuild_Brief replays a session of lines of about 1.7 KB.
func BenchmarkBuild_Brief(b *testing.B) { benchmarkBuild(b, gen.Brief) }

// BenchmarkBuild_Small replays a session of lines of about 200 bytes.
func BenchmarkBuild_Small(b *testing.B) { benchmarkBuild(b, gen.Small) }

// benchmarkBuild measures a build against the probe L, in turns on one file,
// the best of each.
func benchmarkBuild(b *testing.B, profile gen.Profile) {
	f, size := benchFile(b, profile)
	probe, built := time.Hour, time.Hour
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		start := time.Now()
		want := benchProbe(b, f, size)
		probe = min(probe, time.Since(start))
		b.StartTimer()
		start = time.Now()
		r, err := replay.Build(b.Context(), f, size, replay.Options{})
		if err != nil {
			b.Fatal(err)
		}
		built = min(built, time.Since(start))
		if got := r.Head().Digest; got != want {
			b.Fatalf("digest: got %016x, want %016x", got, want)
		}
		b.ReportMetric(float64(r.Counts().Records), "lines")
	}
	b.ReportMetric(probe.Seconds()/built.Seconds(), "ratio/L")
}

// benchProbe is L: pread in 1 MiB, split at LFs, xxhash, an index entry a line.
func benchProbe(b *testing.B, f *os.File, size int64) uint64 {
	type place struct{ offset, size, _ int64 } // 24 bytes
	digest := xxhash.New()
	buf := make([]byte, 1<<20)
	index := make([]place, 0, 4096)
	var start int64
	for at := int64(0); at < size; {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if err != nil && !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
		_, _ = digest.Write(buf[:n])
		for p := 0; ; {
			i := bytes.IndexByte(buf[p:n], '\n')
			if i < 0 {
				break
			}
			p += i + 1
			if len(index) == cap(index) {
				index = index[:0]
			}
			index = append(index, place{offset: start, size: at + int64(p) - start})
			start = at + int64(p)
		}
		at += int64(n)
	}
	return digest.Sum64()
}

func benchFile(b *testing.B, profile gen.Profile) (*os.File, int64) {
	b.Helper()
	path := filepath.Join(b.TempDir(), "session.jsonl")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	size, err := gen.Write(f, gen.Options{Profile: profile, Bytes: benchFileBytes, TurnsPerFork: 50})
	if err != nil {
		b.Fatal(err)
	}
	return f, size
}

// BenchmarkExtend_OneRecord appends to a session of 100 MB, with a view in use.
func BenchmarkExtend_OneRecord(b *testing.B) {
	data := manyLines(500_000, func(i int) string { return user(id(i), id(i-1)) })
	r := online(b, data)
	r.View(dialect.Transcript)
	b.ReportAllocs()
	for i := 500_000; b.Loop(); i++ {
		b.StopTimer()
		line := file(user(id(i), id(i-1)))
		at := int64(len(data))
		data = append(data, line...)
		src := readerFunc(func(p []byte, off int64) (int, error) { return copy(p, line[off-at:]), nil })
		b.StartTimer()
		if err := r.Extend(b.Context(), src, int64(len(data))); err != nil {
			b.Fatal(err)
		}
		r.Delta(dialect.Transcript, r.Head().Sequence-1)
	}
}
