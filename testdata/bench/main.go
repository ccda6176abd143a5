// Command bench measures sessiond against probes taken in the same run and
// prints a table of ratios. It needs the built binary.
//
//	go run ./testdata/bench -bin bin/sessiond [-mb 100] [-check]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"text/tabwriter"

	"sessiond/testdata/gen"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// result is one line of the table.
type result struct {
	workload string
	figure   string
	ratio    float64
	unit     string
	must     float64 // 0: none
	atMost   bool    // must is an upper bound
}

func (r result) met() bool {
	if r.atMost {
		return r.ratio <= r.must
	}
	return r.ratio >= r.must
}

type bench struct {
	ctx     context.Context //nolint:containedctx // of the whole run
	bin     string
	dir     string
	bytes   int64
	rounds  int
	results []result
}

func run(ctx context.Context) error {
	bin := flag.String("bin", "bin/sessiond", "the daemon to measure")
	mb := flag.Int64("mb", 100, "size of the sessions, MB")
	rounds := flag.Int("rounds", 5, "turns of each measurement; the best counts")
	only := flag.String("only", "", "measure nothing but profiles, growing or appends")
	check := flag.Bool("check", false, "fail when a must is missed")
	flag.Parse()
	dir, err := os.MkdirTemp("", "sdb")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, err := filepath.Abs(*bin)
	if err != nil {
		return err
	}
	b := &bench{ctx: ctx, bin: path, dir: dir, bytes: *mb << 20, rounds: *rounds}
	for _, part := range []struct {
		name string
		run  func() error
	}{{"profiles", b.profiles}, {"growing", b.growing}, {"appends", b.appends}} {
		if *only != "" && *only != part.name {
			continue
		}
		if err := part.run(); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return b.print(*check)
}

// profiles measures each kind of session.
func (b *bench) profiles() error {
	for _, p := range []gen.Profile{gen.Brief, gen.Small} {
		if err := b.profile(p); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return nil
}

func (b *bench) add(r result) { b.results = append(b.results, r) }

func (b *bench) print(check bool) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "workload\tmeasured\tratio\tto\tmust\t")
	missed := 0
	for _, r := range b.results {
		sign, mark := ">=", ""
		if r.atMost {
			sign = "<="
		}
		if r.must != 0 && !r.met() {
			mark = "MISSED"
			missed++
		}
		must := fmt.Sprintf("%s %g", sign, r.must)
		if r.must == 0 {
			must = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%.3f\t%s\t%s\t%s\n", r.workload, r.figure, r.ratio, r.unit, must, mark)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if check && missed > 0 {
		return errors.New("a must was missed")
	}
	return nil
}
