// Command cmd writes a made-up session: see package gen.
//
//	go run ./testdata/gen/cmd -profile small -bytes 104857600 -o FILE
//	go run ./testdata/gen/cmd -profile huge -o FILE
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"sessiond/testdata/gen"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("gen", flag.ContinueOnError)
	flags.SetOutput(stderr)
	profile := flags.String("profile", string(gen.Brief), "what lines are like: brief, small or log; huge makes a sparse file of about 4 GB and needs -o")
	bytes := flags.Int64("bytes", 1<<20, "size of the session")
	seed := flags.Uint64("seed", 1, "which session")
	fork := flags.Int("turns-per-fork", 0, "every so many turns one goes on from an earlier turn; 0: never")
	compaction := flags.Int("turns-per-compaction", 0, "of a log: every so many turns the context is compacted; 0: never")
	out := flags.String("o", "", "file to make; it must not exist (default: standard output)")
	appends := flags.Bool("append", false, "write line by line, as an agent does over time; needs -o")
	sync := flags.Int("lines-per-sync", 0, "with -append: lines between two syncs; 0: never")
	entries := flags.Int64("entries", 0, "of huge: short entries; 0: 5 million")
	long := flags.Int64("long-bytes", 0, "of huge: the text of the long entry; 0: 300 MB")
	hole := flags.Int64("hole-bytes", 0, "of huge: NULs that are never written; 0: 2.5 GB")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("gen: got arguments %q, want none", flags.Args())
	}
	o := gen.Options{Profile: gen.Profile(*profile), Seed: *seed, Bytes: *bytes, TurnsPerFork: *fork, TurnsPerCompaction: *compaction}
	switch {
	case *profile == "huge":
		if *out == "" {
			return fmt.Errorf("gen: -profile huge needs -o")
		}
		_, err := gen.WriteHuge(*out, gen.HugeOptions{Seed: *seed, Entries: *entries, LongBytes: *long, HoleBytes: *hole})
		return err
	case *appends && *out == "":
		return fmt.Errorf("gen: -append needs -o")
	case *appends:
		_, err := gen.AppendFile(*out, o, *sync)
		return err
	case *out == "":
		_, err := gen.Write(stdout, o)
		return err
	}
	f, err := os.OpenFile(*out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	_, err = gen.Write(f, o)
	return err
}
