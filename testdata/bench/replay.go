package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"sessiond/engine/vfs"
	"sessiond/replay"
	"sessiond/replay/pages"
	"sessiond/testdata/probe"
)

// profiles measures cold replays of each kind of session at each size, and
// attaches to those of one size.
func (b *bench) profiles() error {
	for _, mb := range b.sizes {
		for _, p := range profiles {
			s, err := b.session(p, mb)
			if err != nil {
				return err
			}
			cold, err := b.cold(s)
			if err == nil && mb == mustMB {
				err = b.attaches(s, cold)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", s.of("session"), err)
			}
		}
	}
	return nil
}

// cold measures cold replays by one and two workers; it returns the time of
// two.
func (b *bench) cold(s *session) (time.Duration, error) {
	f, err := os.Open(s.path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	build := b.build(f, s.size)
	best, err := b.fastest(
		b.roundsAt(s.mb),
		timed(func() error { _, err := probe.L(f, s.size); return err }),
		withCores(1, build),
		withCores(2, build),
	)
	if err != nil {
		return 0, err
	}
	limit, one, two := best[0], best[1], best[2]
	must := func(r result) result { // elsewhere it is only reported
		if s.mb != mustMB {
			r.must, r.goal = 0, 0
		}
		return r
	}
	for _, r := range []result{
		{workload: s.of("cold replay, 1 worker"), figure: rate(s.size, one), ratio: limit.Seconds() / one.Seconds(), must: 0.12, goal: 0.16},
		{workload: s.of("cold replay, 2 workers"), figure: rate(s.size, two), ratio: limit.Seconds() / two.Seconds(), must: 0.24, goal: 0.30},
	} {
		r.probe = "L " + rate(s.size, limit)
		b.add(must(r))
	}
	if s.mb > mustMB { // the library takes its time
		return two, nil
	}
	best, err = b.fastest(
		max(2, b.roundsAt(s.mb)/2),
		withCores(1, timed(func() error { return readStructs(f, s.size) })),
		withCores(1, build),
		withCores(2, build),
	)
	if err != nil {
		return 0, err
	}
	library := best[0]
	for i, r := range []result{
		{workload: s.of("cold replay for encoding/json, 1 worker"), must: 5, goal: 7},
		{workload: s.of("cold replay for encoding/json, 2 workers")},
	} {
		r.figure, r.ratio = rate(s.size, best[i+1]), library.Seconds()/best[i+1].Seconds()
		r.probe = "encoding/json, 1 core " + rate(s.size, library)
		b.add(must(r))
	}
	return two, nil
}

// build is a cold replay of a file, its index in as much memory as that of a
// daemon.
func (b *bench) build(f io.ReaderAt, size int64) work {
	return timed(func() error {
		pool := pages.NewPool(pages.Options{Open: func() (pages.Store, error) { return vfs.OS{}.Scratch(b.dir) }})
		_, err := replay.Build(b.ctx, f, size, replay.Options{Pages: pool})
		return err
	})
}

// withCores does work with so many cores for Go code. A replay has as many
// workers.
func withCores(n int, do work) work {
	return func() (time.Duration, error) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
		return do()
	}
}

// readStructs is a reader as it is usually written: each line by encoding/json
// into the struct of an entry, the message left for later.
func readStructs(f io.ReaderAt, size int64) error {
	type entry struct {
		Type       string          `json:"type"`
		ID         string          `json:"id"`
		ParentID   *string         `json:"parentId"`
		Timestamp  time.Time       `json:"timestamp"`
		Message    json.RawMessage `json:"message"`
		CustomType string          `json:"customType"`
		Content    json.RawMessage `json:"content"`
		Data       json.RawMessage `json:"data"`
	}
	r := bufio.NewReaderSize(io.NewSectionReader(f, 0, size), 1<<20)
	for {
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
	}
}

func rate(bytes int64, d time.Duration) string {
	return fmt.Sprintf("%.2f GB/s", float64(bytes)/d.Seconds()/1e9)
}
