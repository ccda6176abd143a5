package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sessiond/engine/vfs"
	"sessiond/replay/pages"
	"sessiond/replay/report"
	"sessiond/replay/stamp"
	"sessiond/wire"
)

// inspectOptions are the options that all forms of inspect share.
type inspectOptions struct {
	*rootOptions
	recordBytesMax byteSize
	indexMemory    byteSize
}

const inspectLong = `inspect explains session files offline. It opens them for reading only: it
never writes, never locks, needs no daemon and works while a file is written.

inspect FILE prints a summary and the file's health. A FILE is a path; names of
sessions are known to a daemon only. inspect index alone is about the daemon's
index, and locks that for moments.

Exit codes of inspect FILE and inspect check, the first that is true of any file:
  1  a file could not be read
  6  a file was not found
  4  damaged: a line is neither one whole object nor blank
  5  a newer format than this build knows
  3  an unfinished last line only
  0  none of these`

func newInspectCommand(root *rootOptions) *cobra.Command {
	o := &inspectOptions{rootOptions: root, recordBytesMax: 64 << 20, indexMemory: pages.DefaultBytes}
	cmd := &cobra.Command{
		Use:     "inspect FILE",
		Short:   "Explain session files offline",
		Long:    inspectLong,
		Example: "  sessiond inspect session.jsonl -o json\n  sessiond inspect check ~/.pi/agent/sessions",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runSummary(cmd, o, args[0])
		},
	}
	cmd.PersistentFlags().Var(&o.recordBytesMax, "record-bytes-max",
		"records over so many bytes are not held in memory; message views show a marker")
	cmd.PersistentFlags().Var(&o.indexMemory, "index-memory-bytes", indexMemoryUsage)
	cmd.AddCommand(
		newInspectCheckCommand(o),
		newInspectTranscriptCommand(o),
		newInspectContextCommand(o),
		newInspectRecordsCommand(o),
		newInspectIndexCommand(o),
	)
	return cmd
}

// report returns the options of a report.
func (o *inspectOptions) report(cmd *cobra.Command) (report.Options, error) {
	if o.recordBytesMax <= 0 {
		return report.Options{}, usageErrorf(cmd, "--record-bytes-max %s, want at least 1", o.recordBytesMax.String())
	}
	return report.Options{
		RecordBytesMax: int64(o.recordBytesMax), Now: time.Now(), Cursor: offlineCursor,
		Pages: newPages(o.indexMemory, cmd.ErrOrStderr()),
	}, nil
}

// begin returns how a form of inspect prints and reads.
func (o *inspectOptions) begin(cmd *cobra.Command, formats ...string) (*printer, report.Options, error) {
	p, err := o.printer(cmd, formats...)
	if err != nil {
		return nil, report.Options{}, err
	}
	tuneMemory(o.env, 0)
	opt, err := o.report(cmd)
	return p, opt, err
}

// offlineCursor is the cursor of a place without the generation, which only a
// daemon knows; the digest proves the place all the same.
func offlineCursor(p stamp.Point) string {
	return wire.Cursor{Sequence: wire.Sequence(p.Sequence), Offset: p.Offset, Digest: wire.Digest(p.Digest)}.String()
}

// sessionFile is an open session file.
type sessionFile struct {
	report.File
	file vfs.File
}

// Close closes the file; it was only read, so nothing can go wrong that
// matters.
func (s *sessionFile) Close() { _ = s.file.Close() }

// openSession opens a file for reading as it is at this moment.
func openSession(path string) (*sessionFile, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	f, err := vfs.OS{}.OpenRead(abs)
	if err != nil {
		return nil, explainOpen(path, err)
	}
	info, err := f.Info()
	if err != nil {
		return nil, errors.Join(explainOpen(path, err), f.Close())
	}
	return &sessionFile{
		File: report.File{Path: path, Source: f, Size: info.Stamp.Size, ModTime: time.Unix(0, info.Stamp.MTimeNano)},
		file: f,
	}, nil
}

// explainOpen says why a path is no session file, under the name it was given.
func explainOpen(path string, err error) error {
	var cause *fs.PathError
	plain := err
	if errors.As(err, &cause) {
		plain = cause.Err
	}
	switch {
	case errors.Is(err, vfs.ErrNotRegular):
		if info, serr := (vfs.OS{}).Stat(path); serr == nil && info.Mode.IsDir() {
			return fmt.Errorf("%s is a folder; `sessiond inspect check` reads the sessions below one: %w", path, vfs.ErrNotRegular)
		}
		return fmt.Errorf("%s: %w", path, vfs.ErrNotRegular)
	case errors.Is(err, fs.ErrNotExist) && !strings.ContainsRune(path, filepath.Separator) && filepath.Ext(path) == "":
		return fmt.Errorf("%s: %w (inspect reads files; names of sessions are known to a daemon only)", path, plain)
	}
	return fmt.Errorf("%s: %w", path, plain)
}

func runSummary(cmd *cobra.Command, o *inspectOptions, path string) error {
	p, opt, err := o.begin(cmd, formatText, formatJSON, formatJSONL)
	if err != nil {
		return err
	}
	s, err := summarize(cmd.Context(), path, opt)
	if err != nil {
		return err
	}
	if p.format == formatText {
		p.summary(s)
	} else if err := p.json(s); err != nil {
		return err
	}
	if err := p.Flush(); err != nil {
		return err
	}
	return healthError(s.Health())
}

func summarize(ctx context.Context, path string, opt report.Options) (*report.Summary, error) {
	f, err := openSession(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return report.Summarize(ctx, f.File, opt)
}

// healthError ends inspect with the code of a verdict.
func healthError(h report.Health) error {
	switch h {
	case report.Damaged:
		return &exitError{code: exitDamaged}
	case report.Newer:
		return &exitError{code: exitNewer}
	case report.Unfinished:
		return &exitError{code: exitUnfinished}
	}
	return nil
}
