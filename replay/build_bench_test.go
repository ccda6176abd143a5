package replay_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/testdata/gen"
	"sessiond/testdata/probe"
)

const benchFileBytes = 100 << 20

// BenchmarkBuild_Brief replays a session of lines of about 1.7 KB.
func BenchmarkBuild_Brief(b *testing.B) { benchmarkBuild(b, gen.Brief) }

// BenchmarkBuild_Small replays a session of lines of about 200 bytes.
func BenchmarkBuild_Small(b *testing.B) { benchmarkBuild(b, gen.Small) }

// BenchmarkBuild_Log replays an event log, with rewinds.
func BenchmarkBuild_Log(b *testing.B) { benchmarkBuild(b, gen.Log) }

// benchmarkBuild measures a build against the probe L, in turns on one file,
// the best of each.
func benchmarkBuild(b *testing.B, profile gen.Profile) {
	f, size := benchFile(b, profile)
	limit, built := time.Hour, time.Hour
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		start := time.Now()
		want, err := probe.L(f, size)
		if err != nil {
			b.Fatal(err)
		}
		limit = min(limit, time.Since(start))
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
	b.ReportMetric(limit.Seconds()/built.Seconds(), "ratio/L")
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
