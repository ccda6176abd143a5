package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"sessiond/replay"
	"sessiond/testdata/gen"
	"sessiond/testdata/probe"
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
		if _, err := probe.L(f, size); err != nil {
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

func rate(bytes int64, d time.Duration) string {
	return fmt.Sprintf("%.2f GB/s", float64(bytes)/d.Seconds()/1e9)
}
