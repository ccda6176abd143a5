package report

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"

	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
)

// DiagnosticsMax is how many findings a Summary lists.
const DiagnosticsMax = replay.DiagnosticsMax

// Summarize reads a file once, from start to end, and sums it up.
func Summarize(ctx context.Context, f File, opt Options) (*Summary, error) {
	t, src := newTally(), newHashing(f.Source)
	r, w, err := opt.read(ctx, src, f, replay.Options{Observe: t.add})
	if err != nil {
		return nil, err
	}
	s := &Summary{SchemaVersion: SchemaVersion, Path: f.Path, Bytes: f.Size}
	if s.SHA256, err = src.sum(f.Size); err != nil {
		return nil, changed(f, err)
	}
	if err := s.session(r, w, f); err != nil {
		return nil, changed(f, err)
	}
	if opt.Cursor != nil {
		s.Head = opt.Cursor(r.Head())
	}
	tail := r.Tail()
	s.Tail = Tail{State: tailState(tail, f, opt.Now), Offset: tail.Offset, Bytes: tail.Bytes}
	s.counted(r.Counts(), t)
	s.Time = t.span(f)
	s.Diagnostics, s.DiagnosticsTruncated, err = firstFindings(r)
	return s, changed(f, err)
}

// session fills in what the dialect says.
func (s *Summary) session(r *replay.Replay, w *dialect.Window, f File) error {
	s.Dialect, _ = r.Dialect()
	in, known, err := r.Info(w)
	if err != nil {
		return err
	}
	if s.Leaf, err = r.Leaf(w); err != nil {
		return err
	}
	s.health = healthOf(r.Counts(), r.Tail(), in.Newer)
	s.SessionID = cmp.Or(in.ID, strings.TrimSuffix(filepath.Base(f.Path), ".jsonl"))
	s.Compactions = make([]Compaction, 0, len(in.Compactions))
	if !known {
		return nil
	}
	s.FormatVersion, s.Title, s.CWD = in.Version, in.Title, in.CWD
	s.Messages = Messages{Transcript: in.Messages[dialect.Transcript], Context: in.Messages[dialect.Context]}
	s.Branches = in.Branches
	for _, c := range in.Compactions {
		s.Compactions = append(s.Compactions, Compaction{c.Sequence, orNull(c.TokensBefore), c.State})
	}
	return nil
}

func orNull(v json.RawMessage) json.RawMessage {
	if v == nil {
		return json.RawMessage("null")
	}
	return v
}

// counted fills in what was counted on the way.
func (s *Summary) counted(c replay.Counts, t *tally) {
	s.Records = Records{
		Total: c.Records, Entries: c.Entries, Blank: c.Blank,
		Malformed: c.Malformed + c.NonObject, Salvaged: c.Salvaged,
		UnknownType: t.unknown, Oversized: c.Oversized,
	}
	s.Types, s.Roles, s.Usage, s.Tools = t.types.table(), t.roles.table(), t.usage, t.tools
	s.Tools.Unanswered = t.calls.unanswered()
}

// firstFindings returns the findings that are listed.
func firstFindings(r *replay.Replay) (list []jsonl.Diagnostic, truncated bool, err error) {
	list, truncated, err = r.Diagnostics()
	if len(list) > DiagnosticsMax {
		list, truncated = list[:DiagnosticsMax], true
	}
	return append([]jsonl.Diagnostic{}, list...), truncated, err
}
