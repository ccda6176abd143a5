package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"sessiond/cmd/sessiond/internal/term"
	"sessiond/engine/vfs"
	"sessiond/replay/jsonl"
	"sessiond/replay/report"
)

const checkLong = `Examine session files and print every finding: where it is, what it is, and
what to do about it. A folder stands for all files below it whose names end in
.jsonl.

--fail-on CODE,... exits with 4 if a finding has one of the codes, else with 0,
whatever the health of the files.`

func newInspectCheckCommand(o *inspectOptions) *cobra.Command {
	var failOn []string
	cmd := &cobra.Command{
		Use:   "check FILE|DIR...",
		Short: "Examine session files and print every finding",
		Long:  checkLong,
		Args:  usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			codes := map[jsonl.Code]bool{}
			for _, name := range failOn {
				code := jsonl.Code(strings.TrimSpace(name))
				if !report.KnownCode(code) {
					return usageErrorf(cmd, "--fail-on %q: there is no such code", name)
				}
				codes[code] = true
			}
			return runCheck(cmd, o, codes, args)
		},
	}
	cmd.Flags().StringSliceVar(&failOn, "fail-on", nil, "codes of findings to fail on, with commas between them")
	return cmd
}

func runCheck(cmd *cobra.Command, o *inspectOptions, failOn map[jsonl.Code]bool, args []string) error {
	p, opt, err := o.begin(cmd, formatText, formatJSON, formatJSONL)
	if err != nil {
		return err
	}
	c := &checking{printer: p, failOn: failOn, complain: func(err error) {
		cmd.PrintErrln(term.Lines("sessiond: " + err.Error()))
	}}
	c.begin()
	paths := c.list(args)
	if err := c.examineAll(cmd.Context(), paths, opt); err != nil {
		return err
	}
	c.end()
	if err := p.Flush(); err != nil {
		return err
	}
	return c.exit()
}

// checkTarget is a file to examine.
type checkTarget struct {
	path   string
	listed bool // found in a folder, not named by the user
}

// list finds the files that arguments stand for, those of a folder by name.
func (c *checking) list(args []string) []checkTarget {
	var out []checkTarget
	for _, arg := range args {
		if info, err := (vfs.OS{}).Stat(arg); err != nil || !info.Mode.IsDir() {
			out = append(out, checkTarget{path: arg}) // opening it says what is wrong
			continue
		}
		_ = filepath.WalkDir(arg, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				c.fail(explainOpen(path, err))
				if d != nil && d.IsDir() {
					return fs.SkipDir
				}
			case d.IsDir():
			case strings.HasSuffix(path, ".jsonl"):
				out = append(out, checkTarget{path: path, listed: true})
			case strings.Contains(d.Name(), ".jsonl"):
				c.skip(fmt.Errorf("%s: not read, a copy or temporary file beside a session", path))
			}
			return nil // and go on
		})
	}
	return out
}

// checkResult is what became of a target.
type checkResult struct {
	checkTarget
	session *sessionFile
	check   *report.Check
	err     error
}

func (e checkResult) close() {
	if e.session != nil {
		e.session.Close()
	}
}

// examineAll examines files side by side and prints them in order. Only a few
// are ever ahead of the one being printed.
func (c *checking) examineAll(ctx context.Context, targets []checkTarget, opt report.Options) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	queue := make(chan chan checkResult, min(max(runtime.GOMAXPROCS(0), 2), 8)-1)
	go func() {
		defer close(queue)
		for _, t := range targets {
			one := make(chan checkResult, 1)
			select {
			case queue <- one:
				go func() { one <- examine(ctx, t, opt) }()
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() { // also waits for every goroutine
		cancel()
		for one := range queue {
			(<-one).close()
		}
	}()
	for one := range queue {
		e := <-one
		if err := c.show(ctx, e); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func examine(ctx context.Context, t checkTarget, opt report.Options) (e checkResult) {
	e.checkTarget = t
	if e.session, e.err = openSession(t.path); e.err != nil {
		return e
	}
	e.check, e.err = report.Examine(ctx, e.session.File, opt)
	return e
}

// show prints one file. Only what ends the whole command is returned: a bad
// file never hides another.
func (c *checking) show(ctx context.Context, e checkResult) error {
	defer e.close()
	switch {
	case errors.Is(e.err, context.Canceled):
		return e.err
	case e.listed && (errors.Is(e.err, vfs.ErrNotRegular) || errors.Is(e.err, fs.ErrNotExist)):
		c.skip(e.err) // gone since, or never a session
		return nil
	case e.err != nil:
		c.fail(e.err)
		return nil
	}
	return c.file(ctx, e.check)
}
