package main

import (
	"fmt"
	"os"
	"os/exec"
	"time"
)

// The bound of resident memory and what is wished for, bytes.
const (
	rssMust = 64 << 20
	rssGoal = 40 << 20
	rssLook = 2 * time.Millisecond // between two looks at a process that ends by itself
)

// inspects measures the inspect command, a process each time, beside a cold
// replay of the same file in this process.
func (b *bench) inspects() error {
	for _, p := range profiles {
		s, err := b.session(p, b.largest())
		if err != nil {
			return err
		}
		if err := b.inspect(s); err != nil {
			return fmt.Errorf("%s: %w", s.of("inspect"), err)
		}
	}
	return nil
}

func (b *bench) inspect(s *session) error {
	f, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer f.Close()
	var peak int64
	best, err := b.fastest(
		b.roundsAt(s.mb),
		b.build(f, s.size),
		timed(func() error {
			rss, err := runWatched(exec.CommandContext(b.ctx, b.bin, "inspect", s.path))
			peak = max(peak, rss)
			return err
		}),
	)
	if err != nil {
		return err
	}
	cold, took := best[0], best[1]
	r := result{
		workload: s.of("inspect"), figure: rate(s.size, took), ratio: took.Seconds() / cold.Seconds(),
		probe: "cold replay " + rate(s.size, cold), must: 1.5, goal: 1.2, atMost: true,
	}
	if s.mb < hugeMB {
		r.must, r.goal = 0, 0
	}
	b.add(r)
	b.addPeak(s.of("inspect, peak RSS"), s, fmt.Sprintf("%d MiB", peak>>20), peak)
	return nil
}

// addPeak adds a row about resident memory. There is a must for large sessions
// only: small ones prove nothing.
func (b *bench) addPeak(workload string, s *session, figure string, peak int64) {
	r := result{workload: workload, figure: figure, ratio: float64(peak) / rssMust, probe: fmt.Sprintf("%d MiB", rssMust>>20), atMost: true}
	if s.mb >= hugeMB {
		r.must, r.goal = 1, float64(rssGoal)/rssMust
	}
	b.add(r)
}

// runWatched runs a command and returns its peak of resident memory, as it was
// shortly before its end.
func runWatched(cmd *exec.Cmd) (peak int64, err error) {
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	watched := make(chan int64, 1)
	go func() {
		var last int64
		for {
			rss, err := peakRSS(cmd.Process.Pid)
			if err != nil { // it has ended
				watched <- last
				return
			}
			last = rss
			time.Sleep(rssLook)
		}
	}()
	err = cmd.Wait()
	return <-watched, err
}
