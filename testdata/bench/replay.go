package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/cespare/xxhash/v2"

	"sessiond/replay"
	"sessiond/testdata/gen"
)

// profile measures everything that reads one kind of session.
func (b *bench) profile(p gen.Profile) error {
	root := filepath.Join(b.dir, "root-"+string(p))
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	path := filepath.Join(root, "session.jsonl")
	// Built by appends, as real sessions are.
	if _, err := gen.AppendFile(path, gen.Options{Profile: p, Seed: 1, Bytes: b.bytes}, 1000); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	limit, cold := time.Hour, time.Hour
	for range b.rounds {
		start := time.Now()
		if err := probeL(f, size); err != nil {
			return err
		}
		limit = min(limit, time.Since(start))
		start = time.Now()
		if _, err := replay.Build(b.ctx, f, size, replay.Options{}); err != nil {
			return err
		}
		cold = min(cold, time.Since(start))
	}
	b.add(result{
		workload: "cold replay, " + string(p), figure: rate(size, cold),
		ratio: limit.Seconds() / cold.Seconds(), unit: "L " + rate(size, limit), must: 0.10,
	})
	return b.attaches(p, root, f, size, cold)
}

// probeL does all of a cold replay but understanding the lines: pread in
// 1 MiB, split, xxhash, an index entry a line.
func probeL(f io.ReaderAt, size int64) error {
	type entry struct{ offset, size, _ int64 }
	digest := xxhash.New()
	buf := make([]byte, 1<<20)
	index := make([]entry, 0, 4096)
	start := int64(0)
	for at := int64(0); at < size; {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
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
			index = append(index, entry{offset: start, size: at + int64(p) - start})
			start = at + int64(p)
		}
		at += int64(n)
	}
	if digest.Sum64() == 0 {
		return errors.New("no digest")
	}
	return nil
}

func rate(bytes int64, d time.Duration) string {
	return fmt.Sprintf("%.2f GB/s", float64(bytes)/d.Seconds()/1e9)
}
