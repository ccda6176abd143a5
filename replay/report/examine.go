package report

import (
	"context"
	"fmt"

	"sessiond/replay"
	"sessiond/replay/jsonl"
	"sessiond/replay/stamp"
)

// Finding is a diagnostic with what to do about it.
type Finding struct {
	jsonl.Diagnostic
	Suggestion string `json:"suggestion"`
}

// Check is the examination of one file.
type Check struct {
	Path    string
	Dialect string
	Bytes   int64
	Health  Health
	Tail    Tail

	// Truncated says that the dialect found more than it holds.
	Truncated bool

	file  File
	opt   Options
	head  stamp.Point
	held  []jsonl.Diagnostic
	lines int // findings of lines; only the first DiagnosticsMax are held
}

// Examine reads a file and looks at every line.
func Examine(ctx context.Context, f File, opt Options) (*Check, error) {
	c := &Check{Path: f.Path, Bytes: f.Size, file: f, opt: opt}
	r, w, err := opt.read(ctx, f.Source, f, replay.Options{
		Diagnostics: func(jsonl.Diagnostic) { c.lines++ },
	})
	if err != nil {
		return nil, err
	}
	in, _, err := r.Info(w)
	if err != nil {
		return nil, changed(f, err)
	}
	tail := r.Tail()
	c.head = r.Head()
	c.Dialect, _ = r.Dialect()
	c.Tail = Tail{State: tailState(tail, f, opt.Now), Offset: tail.Offset, Bytes: tail.Bytes}
	c.Health = healthOf(r.Counts(), tail, in.Newer)
	if c.held, _, err = r.Diagnostics(); err != nil {
		return nil, changed(f, err)
	}
	c.Truncated = len(c.held)-min(c.lines, DiagnosticsMax) >= DiagnosticsMax
	return c, nil
}

// Each calls yield with every finding in the order of lines, without a bound
// for those of lines: where there are more than a replay holds it reads the
// file again. An error of yield ends it.
func (c *Check) Each(ctx context.Context, yield func(Finding) error) error {
	held := c.held
	give := func(d jsonl.Diagnostic) error { return yield(Finding{d, Suggestion(d.Code)}) }
	if c.lines > DiagnosticsMax {
		var err error
		if held, err = c.again(ctx, held, give); err != nil {
			return err
		}
	}
	for _, d := range held {
		if err := give(d); err != nil {
			return err
		}
	}
	return nil
}

// again reads the file for the findings of lines that are not held, and
// merges those that are; it returns the held ones that follow the last.
func (c *Check) again(ctx context.Context, held []jsonl.Diagnostic, give func(jsonl.Diagnostic) error) ([]jsonl.Diagnostic, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		seen int
		stop error
	)
	merge := func(d jsonl.Diagnostic) {
		if seen++; seen <= DiagnosticsMax {
			return
		}
		for len(held) > 0 && stop == nil && !after(held[0], d) {
			stop = give(held[0])
			held = held[1:]
		}
		if stop == nil {
			stop = give(d)
		}
		if stop != nil {
			cancel()
		}
	}
	r, _, err := c.opt.read(ctx, c.file.Source, c.file, replay.Options{Diagnostics: merge})
	switch {
	case stop != nil:
		return nil, stop
	case err != nil:
		return nil, err
	case r.Head() != c.head:
		return nil, fmt.Errorf("%s: %w", c.Path, ErrChanged)
	}
	return held, nil
}

func after(a, b jsonl.Diagnostic) bool {
	return a.Line > b.Line || a.Line == b.Line && a.Offset > b.Offset
}
