package jsonl_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"sessiond/replay/jsonl"
	"sessiond/testdata/probe"
)

// piKeys are the keys that the pi dialect asks of every line.
var piKeys = jsonl.Keys{
	Top:   []string{"type", "id", "parentId", "timestamp", "message"},
	SubOf: "message",
	Sub:   []string{"role", "stopReason", "model", "provider", "usage"},
}

const benchFileBytes = 100 << 20

// BenchmarkCold_Brief replays lines of about 1.7 KB with long texts.
func BenchmarkCold_Brief(b *testing.B) { benchmarkCold(b, 1_400) }

// BenchmarkCold_Small replays lines of about 200 bytes.
func BenchmarkCold_Small(b *testing.B) { benchmarkCold(b, 30) }

// benchmarkCold measures the cold replay loop against L, the probe that does
// all of it but the scan, in turns on the same file. The ratio is that of the
// best turns, which a busy machine disturbs least.
func benchmarkCold(b *testing.B, textBytes int) {
	f, size := benchFile(b, textBytes)
	limit, cold := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	b.SetBytes(size)
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
		got := benchReplay(b, f, size)
		cold = min(cold, time.Since(start))
		if got != want {
			b.Fatalf("digest: got %016x, want %016x", got, want)
		}
	}
	b.ReportMetric(limit.Seconds()/cold.Seconds(), "ratio/L")
	b.ReportMetric(float64(size)/limit.Seconds()/1e6, "best-L-MB/s")
	b.ReportMetric(float64(size)/cold.Seconds()/1e6, "best-MB/s")
}

type indexEntry struct {
	offset int64
	size   int64
	hash   uint64
}

func benchReplay(b *testing.B, f *os.File, size int64) uint64 {
	digest := xxhash.New()
	r := jsonl.NewReader(f, 0, size, jsonl.ReaderOptions{Digest: digest})
	s := jsonl.NewScanner(piKeys)
	index := make([]indexEntry, 0, 4096)
	for {
		line, err := r.Next()
		if errors.Is(err, io.EOF) {
			return digest.Sum64()
		}
		if err != nil {
			b.Fatal(err)
		}
		scan := s.Scan(line.Text)
		if scan.Kind != jsonl.Object || !scan.Top[0].Present() {
			b.Fatalf("line at %d: kind %v", line.Offset, scan.Kind)
		}
		if len(index) == cap(index) {
			index = index[:0]
		}
		index = append(index, indexEntry{offset: line.Offset, size: line.Size, hash: uint64(scan.Top[1].End)})
	}
}

// BenchmarkScan_Brief is the scan alone, in memory.
func BenchmarkScan_Brief(b *testing.B) { benchmarkScan(b, 1_400) }

// BenchmarkScan_Small is the scan alone, in memory.
func BenchmarkScan_Small(b *testing.B) { benchmarkScan(b, 30) }

func benchmarkScan(b *testing.B, textBytes int) {
	rnd := rand.New(rand.NewPCG(1, 2))
	lines := make([][]byte, 256)
	total := 0
	for i := range lines {
		lines[i] = bytes.TrimSuffix(benchLine(rnd, nil, i, textBytes), []byte("\n"))
		total += len(lines[i])
	}
	s := jsonl.NewScanner(piKeys)
	b.SetBytes(int64(total))
	for b.Loop() {
		for _, line := range lines {
			if s.Scan(line).Kind != jsonl.Object {
				b.Fatal("not an object")
			}
		}
	}
}

func benchFile(b *testing.B, textBytes int) (*os.File, int64) {
	b.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, 0, benchFileBytes+4096)
	for i := 0; len(buf) < benchFileBytes; i++ {
		buf = benchLine(rnd, buf, i, textBytes)
	}
	name := filepath.Join(b.TempDir(), "session.jsonl")
	if err := os.WriteFile(name, buf, 0o600); err != nil {
		b.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return f, int64(len(buf))
}

var benchWords = []string{
	"patch", "index", "queue", "lease", "page", "shard", "frame", "token", "merge", "probe", "the", "of", "in",
	"function", "returns", "`src/main.go`", "a\\\\b", "\\n\\n", "error:", "because", "const", "x = 10;", "which", "and",
}

// benchLine appends a message entry; one in four is an assistant's, with usage.
func benchLine(rnd *rand.Rand, b []byte, i, textBytes int) []byte {
	b = fmt.Appendf(b, `{"type":"message","id":"%08x","parentId":"%08x","timestamp":"2026-05-03T14:54:%02d.%03dZ","message":{`,
		i+1, i, i%60, i%1000)
	assistant := i%4 == 3 && textBytes > 100
	if assistant {
		b = append(b, `"role":"assistant","content":[{"type":"text","text":"`...)
	} else {
		b = append(b, `"role":"user","content":"`...)
	}
	if i%8 == 0 {
		b = append(b, "zürich "...)
	}
	for end := len(b) + textBytes/2 + rnd.IntN(textBytes+1); len(b) < end; {
		b = append(append(b, benchWords[rnd.IntN(len(benchWords))]...), ' ')
	}
	if assistant {
		b = fmt.Appendf(b, `"}],"api":"x","provider":"pv","model":"m1","usage":{"input":%d,"output":5,"cacheRead":8775,"cacheWrite":0,`+
			`"totalTokens":11715,"cost":{"input":0.002925,"output":0.5,"cacheRead":0,"cacheWrite":0,"total":0.502925}},"stopReason":"stop"`, i)
	} else {
		b = append(b, '"')
	}
	return fmt.Appendf(b, ",\"timestamp\":%d}}\n", 1777820046784+int64(i))
}
