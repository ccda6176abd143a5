package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"sessiond/engine/vfs"
	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/replay/stamp"
	"sessiond/testdata/gen"
)

const (
	growingSamples = 9
	growthBytes    = 8 << 20  // that are appended to a session
	growthStep     = 64 << 10 // at a time, or a little more
	hits           = 20_000
)

// source is a file that is appended to and read again.
type source struct {
	*os.File
	size int64
}

func (b *bench) source(name string) (*source, error) {
	f, err := os.OpenFile(filepath.Join(b.dir, name), os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	return &source{File: f}, err
}

func (s *source) append(text []byte) error {
	n, err := s.WriteAt(text, s.size)
	s.size += int64(n)
	return err
}

// now is the file as somebody finds it who asks for its replay.
func (s *source) now() (replay.Source, error) {
	info, err := (vfs.OS{}).Stat(s.Name())
	return replay.Source{ReaderAt: s.File, Size: info.Stamp.Size, Stamp: info.Stamp}, err
}

// loader gives the replay of a session.
type loader func(ctx context.Context, src replay.Source) (*replay.Replay, error)

func forced(ctx context.Context, src replay.Source) (*replay.Replay, error) {
	return replay.Build(ctx, src, src.Size, replay.Options{})
}

// shared reads the whole file when its stamp is another.
func shared() loader {
	var held *replay.Replay
	var under stamp.Stamp
	return func(ctx context.Context, src replay.Source) (r *replay.Replay, err error) {
		if held == nil || under != src.Stamp {
			held, err = forced(ctx, src)
			under = src.Stamp
		}
		return held, err
	}
}

// cached is what sessiond does with a session that is not open. later is by how much its clock is ahead: with
// an hour every stamp is of a file that rests.
func cached(src *source, later time.Duration) (load loader, done func(), err error) {
	now, err := src.now()
	if err != nil {
		return nil, nil, err
	}
	start := time.Now()
	trust := stamp.NewTrust(func() (time.Time, time.Duration) {
		return time.Now().Add(later), time.Since(start)
	})
	trust.Believe(now.Stamp.Device)
	c, err := replay.NewCache(64<<20, trust, nil)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, src replay.Source) (*replay.Replay, error) {
		h, err := c.Load(ctx, "session", src, func(ctx context.Context) (*replay.Replay, error) { return forced(ctx, src) })
		return h.Replay, err
	}, c.Close, nil
}

// owned is what sessiond does with a file that it alone writes: what it has
// appended is read back at once, and nothing else moves the head.
func owned(ctx context.Context, src *source) (load loader, appended func(context.Context) error, err error) {
	held, err := forced(ctx, replay.Source{ReaderAt: src.File}) // while it is empty
	if err != nil {
		return nil, nil, err
	}
	load = func(context.Context, replay.Source) (*replay.Replay, error) { return held, nil }
	return load, func(ctx context.Context) error { return held.Extend(ctx, src.File, src.size) }, nil
}

// followed is what sessiond does with an open file that another program
// writes.
func followed(ctx context.Context, src *source) (loader, error) {
	now, err := src.now() // while it is empty
	if err != nil {
		return nil, err
	}
	trust := stamp.NewTrust(nil)
	trust.Believe(now.Stamp.Device)
	known := replay.Known{Stamp: now.Stamp}
	held, err := forced(ctx, now)
	return func(ctx context.Context, now replay.Source) (_ *replay.Replay, err error) {
		known, err = held.Renew(ctx, now, known, trust)
		return held, err
	}, err
}

// growing measures a session that grows while it is read.
func (b *bench) growing() error {
	if err := b.prompts(); err != nil {
		return fmt.Errorf("prompts: %w", err)
	}
	if err := b.hits(); err != nil {
		return fmt.Errorf("hits: %w", err)
	}
	return b.growth()
}

// prompts measures 40 prompts that two consumers read after each: by full
// replays, by one that both share, and by sessiond's that grows, of what is
// appended through it and of what another program writes. The last file is
// hot, so that its content is compared where a stamp would prove it.
func (b *bench) prompts() error {
	all := map[string][]time.Duration{}
	names := []string{"forced", "shared", "sessiond", "sessiond, other writer"}
	for sample := range growingSamples + 1 {
		for _, name := range names {
			took, err := b.promptsBy(name)
			if err != nil {
				return err
			}
			if sample > 0 { // the first warms up
				all[name] = append(all[name], took)
			}
		}
	}
	median := func(name string) time.Duration { return all[name][growingSamples/2] }
	for _, name := range names {
		slices.Sort(all[name])
	}
	for _, name := range names {
		p95 := all[name][(growingSamples*95+99)/100-1]
		r := result{
			workload: "growing session, " + name,
			figure:   fmt.Sprintf("%.2f ms, p95 %.2f ms", ms(median(name)), ms(p95)),
			ratio:    median(name).Seconds() / median("forced").Seconds(),
			probe:    "forced", atMost: true,
		}
		switch name {
		case "shared":
			r.must, r.goal = 0.75, 0.4
		case "sessiond", "sessiond, other writer":
			r.must, r.goal = 0.15, 0.05
		}
		b.add(r)
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// promptsBy returns the time of the replays, without that of the writer.
func (b *bench) promptsBy(name string) (took time.Duration, err error) {
	f, err := b.source("growing.jsonl")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	load, appended := loader(forced), func(context.Context) error { return nil }
	switch name {
	case "shared":
		load = shared()
	case "sessiond":
		if load, appended, err = owned(b.ctx, f); err != nil {
			return 0, err
		}
	case "sessiond, other writer":
		if load, err = followed(b.ctx, f); err != nil {
			return 0, err
		}
	}
	runtime.GC() // what others left is not this one's to pay
	for i := range gen.Prompts {
		if err := f.append(gen.PromptLines(i)); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := appended(b.ctx); err != nil {
			return 0, err
		}
		for _, v := range []dialect.View{dialect.Transcript, dialect.Context} {
			r, err := f.read(b.ctx, load)
			if err != nil {
				return 0, err
			}
			view, err := r.View(v)
			if err != nil {
				return 0, err
			}
			if n := int(view.Slots.Len()); n != 2*(i+1) {
				return 0, fmt.Errorf("%s: %d messages after prompt %d", name, n, i)
			}
		}
		took += time.Since(start)
	}
	return took, nil
}

func (s *source) read(ctx context.Context, load loader) (*replay.Replay, error) {
	now, err := s.now()
	if err != nil {
		return nil, err
	}
	return load(ctx, now)
}

// hits measures asking again for what has not changed.
func (b *bench) hits() error {
	f, err := b.source("rested.jsonl")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.append(gen.PromptLines(0)); err != nil {
		return err
	}
	load, done, err := cached(f, time.Hour)
	if err != nil {
		return err
	}
	defer done()
	known := map[string]stamp.Stamp{}
	probe := func() error {
		now, err := f.now()
		if known[f.Name()] != now.Stamp {
			known[f.Name()] = now.Stamp
		}
		return err
	}
	hit := func() error { _, err := f.read(b.ctx, load); return err }
	often := func(do func() error) work {
		return timed(func() error {
			for range hits {
				if err := do(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	best, err := b.fastest(b.rounds, often(probe), often(hit))
	if err != nil {
		return err
	}
	limit, warm := best[0]/hits, best[1]/hits
	b.add(result{
		workload: "warm reuse (hit)", figure: fmt.Sprint(warm), ratio: warm.Seconds() / limit.Seconds(),
		probe: fmt.Sprintf("stat + map lookup %v", limit), must: 4, goal: 2, atMost: true,
	})
	return nil
}

// growth measures a session that grows from nothing, and one that grows from
// nine tenths of the size of the others.
func (b *bench) growth() error {
	base := int64(mustMB) << 20 * 9 / 10
	var text []byte // that of the base and what is appended
	for line := range gen.Lines(gen.Options{Profile: gen.Log, Seed: 1, Bytes: base + growthBytes}) {
		text = append(text, line...)
	}
	best, err := b.fastest(
		b.rounds,
		func() (time.Duration, error) { return b.growFrom(text, 0) },
		func() (time.Duration, error) { return b.growFrom(text, base) },
		func() (time.Duration, error) { return b.parseAlone(text) },
	)
	if err != nil {
		return err
	}
	fromEmpty, fromBase, alone := best[0], best[1], best[2]
	perMB := func(d time.Duration) string { return fmt.Sprintf("%.2f ms/MB", ms(d)/(growthBytes/1e6)) }
	b.add(result{
		workload: "growing session, per appended MB", figure: perMB(fromEmpty), ratio: fromEmpty.Seconds() / alone.Seconds(),
		probe: "tail parse alone " + perMB(alone), must: 2, goal: 1.3, atMost: true,
	})
	b.add(result{
		workload: fmt.Sprintf("the same after a base of %d MB", base>>20), figure: perMB(fromBase),
		ratio: fromBase.Seconds() / fromEmpty.Seconds(), probe: "from empty", must: 1.5, goal: 1.2, atMost: true,
	})
	return nil
}

// steps are the pieces that are appended behind an offset, whole lines.
func steps(text []byte, from int64) (out [][]byte) {
	text = text[from:]
	for left := growthBytes; left > 0 && len(text) > 0; {
		n := min(growthStep, len(text))
		for n < len(text) && text[n-1] != '\n' {
			n++
		}
		out = append(out, text[:n])
		text, left = text[n:], left-n
	}
	return out
}

// growFrom returns the time of the replays of a session that grows.
func (b *bench) growFrom(text []byte, from int64) (took time.Duration, err error) {
	for from > 0 && text[from-1] != '\n' {
		from--
	}
	f, err := b.source("grows.jsonl")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	load, done, err := cached(f, time.Hour)
	if err != nil {
		return 0, err
	}
	defer done()
	if err := f.append(text[:from]); err != nil {
		return 0, err
	}
	if _, err := f.read(b.ctx, load); err != nil {
		return 0, err
	}
	for _, step := range steps(text, from) {
		if err := f.append(step); err != nil {
			return 0, err
		}
		start := time.Now()
		if _, err := f.read(b.ctx, load); err != nil {
			return 0, err
		}
		took += time.Since(start)
	}
	return took, nil
}

// parseAlone returns the time of parsing what is appended, each piece as a
// session of its own.
func (b *bench) parseAlone(text []byte) (took time.Duration, err error) {
	for _, step := range steps(text, 0) {
		f, err := b.source("piece.jsonl")
		if err != nil {
			return 0, err
		}
		if err := f.append(step); err != nil {
			return 0, err
		}
		start := time.Now()
		if _, err := forced(b.ctx, replay.Source{ReaderAt: f.File, Size: f.size}); err != nil {
			return 0, err
		}
		took += time.Since(start)
		if err := f.Close(); err != nil {
			return 0, err
		}
	}
	return took, nil
}
