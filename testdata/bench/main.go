// Command bench measures sessiond against probes taken in the same run and
// prints a table of ratios. It needs the built binary.
//
//	go run ./testdata/bench -bin bin/sessiond [-only PART,...] [-sizes MB,...] [-markdown] [-check]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"sessiond/testdata/gen"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// Sizes at which there are musts, MB.
const (
	mustMB = 100  // of a replay and an attach
	hugeMB = 1024 // of memory, and of inspect
)

var profiles = []gen.Profile{gen.Brief, gen.Small}

// parts are what can be measured by itself, in the order of the table.
var parts = []struct {
	name, about string
	run         func(*bench) error
}{
	{"profiles", "cold replay at every size, beside L and encoding/json; attach at 100 MB", (*bench).profiles},
	{"growing", "sessions that grow while they are read, and reading again what has not changed", (*bench).growing},
	{"inspect", "inspect of the largest size, its time and its memory", (*bench).inspects},
	{"memory", "a daemon's memory while the largest size is attached to, cold and warm, in each view", (*bench).memory},
	{"appends", "durable appends", (*bench).appends},
}

const usage = `Usage: bench [flags]

bench measures sessiond and prints each figure beside that of a probe, taken in
the same run and in turns with it; the best turn of each counts. Musts are
bounds of the ratio: those of replay and attach hold at 100 MB, those of inspect
and memory at 1024 MB. It makes its sessions once, in a folder that it removes.

Parts:
`

type bench struct {
	ctx      context.Context //nolint:containedctx // of the whole run
	bin      string
	dir      string
	sizes    []int64 // MB, ascending
	rounds   int
	sessions map[string]*session // by profile and size
	results  []result
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	bin := flags.String("bin", "bin/sessiond", "the `binary` to measure")
	sizes := flags.String("sizes", "1,100,1024", "sizes of the sessions, `MB,...`")
	rounds := flags.Int("rounds", 10, "turns of each measurement at 100 MB; the best counts")
	only := flags.String("only", "", "measure nothing but these `parts,...`")
	under := flags.String("dir", os.TempDir(), "`folder` for the sessions and the daemons' files")
	markdown := flags.Bool("markdown", false, "print the table as Markdown")
	check := flags.Bool("check", false, "fail when a must is missed")
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		for _, p := range parts {
			fmt.Fprintf(stderr, "  %-9s %s\n", p.name, p.about)
		}
		fmt.Fprint(stderr, "\nFlags:\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	b := &bench{ctx: ctx, rounds: *rounds, sessions: map[string]*session{}}
	chosen, err := b.choose(*sizes, *only)
	if err != nil {
		return err
	}
	if b.bin, err = filepath.Abs(*bin); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp(*under, "sdb"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if err := b.checkRoom(); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "bench: %s/%s, %d cores, %s%s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), loadText())
	for _, part := range parts {
		if !slices.Contains(chosen, part.name) {
			continue
		}
		start := time.Now()
		if err := part.run(b); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		fmt.Fprintf(stderr, "bench: %s took %.0f s\n", part.name, time.Since(start).Seconds())
	}
	write := table
	if *markdown {
		write = markdownTable
	}
	if err := write(stdout, b.results); err != nil {
		return err
	}
	fmt.Fprintln(stdout, verdict(b.results))
	if *check && len(missed(b.results)) > 0 {
		return errors.New("a must was missed")
	}
	return nil
}

// loadText says how busy the machine is: two workers want two idle cores.
func loadText() string {
	text, err := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(text)); err == nil && len(f) > 0 {
		return ", load " + f[0]
	}
	return ""
}

// choose reads which sizes and parts to measure.
func (b *bench) choose(sizes, only string) (chosen []string, err error) {
	for text := range strings.SplitSeq(sizes, ",") {
		mb, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if err != nil || mb < 1 {
			return nil, fmt.Errorf("-sizes %q: want numbers of MB with commas between them", sizes)
		}
		b.sizes = append(b.sizes, mb)
	}
	slices.Sort(b.sizes)
	b.sizes = slices.Compact(b.sizes)
	var known []string
	for _, p := range parts {
		known = append(known, p.name)
	}
	if only == "" {
		return known, nil
	}
	chosen = strings.Split(only, ",")
	for _, name := range chosen {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("-only %s: no part %q; there are %s", only, name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

// largest is the largest size, MB.
func (b *bench) largest() int64 { return b.sizes[len(b.sizes)-1] }

// roundsAt is how often to measure with a session of a size.
func (b *bench) roundsAt(mb int64) int {
	return int(min(max(int64(b.rounds)*mustMB/mb, 2), 5*int64(b.rounds)))
}

// work does something and returns the time that counts.
type work func() (time.Duration, error)

// timed is work all of whose time counts.
func timed(do func() error) work {
	return func() (time.Duration, error) {
		start := time.Now()
		err := do()
		return time.Since(start), err
	}
}

// repeatMax bounds how often a short work is done beside a long one.
const repeatMax = 20

// fastest does works in turns, round after round, and returns the best time of
// each. A short one is done again until it has taken about as long as the
// longest, and its mean counts: what else the machine does then falls on all
// of them alike, and not on the long ones only. The first round, by which that
// is known, counts for those only that are not repeated.
func (b *bench) fastest(rounds int, works ...work) ([]time.Duration, error) {
	first, best := make([]time.Duration, len(works)), make([]time.Duration, len(works))
	for round := range max(rounds, 2) {
		longest := slices.Max(first)
		for i, do := range works {
			times := 1
			if round > 0 {
				times = int(min(max(longest/max(first[i], 1), 1), repeatMax))
			}
			took, err := b.mean(times, do)
			switch {
			case err != nil:
				return nil, err
			case round == 0:
				first[i], best[i] = took, took
			case round == 1 && times > 1, took < best[i]:
				best[i] = took
			}
		}
	}
	return best, nil
}

// mean does a work so many times.
func (b *bench) mean(times int, do work) (time.Duration, error) {
	var sum time.Duration
	for range times {
		if err := b.ctx.Err(); err != nil {
			return 0, err
		}
		runtime.GC() // what others left is not this one's to pay
		took, err := do()
		if err != nil {
			return 0, err
		}
		sum += took
	}
	return sum / time.Duration(times), nil
}

func (b *bench) add(r result) { b.results = append(b.results, r) }
