package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sessiond/replay/jsonl"
	"sessiond/replay/report"
)

// findingsShown is how many findings the text of a summary lists.
const findingsShown = 20

// summary prints a Summary for a person.
func (p *printer) summary(s *report.Summary) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(p, "%-12s ", name)
		p.linef(format, args...)
	}
	row("file", "%s, %d bytes", s.Path, s.Bytes)
	row("sha256", "%s", s.SHA256)
	row("format", "%s, version %d", s.Dialect, s.FormatVersion)
	row("session", "%s", s.SessionID)
	row("title", "%s", cmp.Or(s.Title, "-"))
	row("folder", "%s", cmp.Or(s.CWD, "-"))
	row("head", "%s", s.Head)
	r := s.Records
	row("records", "%d: entries %d, blank %d, malformed %d, salvaged %d", r.Total, r.Entries, r.Blank, r.Malformed, r.Salvaged)
	row("", "of unknown type %d, oversized %d", r.UnknownType, r.Oversized)
	row("tail", "%s, %d bytes", s.Tail.State, s.Tail.Bytes)
	row("types", "%s", counts(s.Types))
	row("roles", "%s", counts(s.Roles))
	row("messages", "transcript %d, context %d", s.Messages.Transcript, s.Messages.Context)
	row("leaf", "%s", cmp.Or(s.Leaf, "-"))
	row("branches", "%d", s.Branches)
	p.compactions(s.Compactions, row)
	t := s.Tools
	row("tools", "calls %d, results %d, unanswered %d, orphan results %d", t.Calls, t.Results, t.Unanswered, t.OrphanResults)
	u := s.Usage
	row("usage", "responses %d: input %d, output %d, cache read %d, cache write %d, reasoning %d, cost %s",
		u.Responses, u.Input, u.Output, u.CacheRead, u.CacheWrite, u.Reasoning, dollars(u.CostMicroUSD))
	row("time", "%s to %s, from %s", s.Time.First.Format(time.RFC3339), s.Time.Last.Format(time.RFC3339), s.Time.Source)
	row("health", "%s", p.health(s.Health()))
	p.findings(s, row)
}

func (p *printer) compactions(list []report.Compaction, row func(string, string, ...any)) {
	row("compactions", "%d", len(list))
	for _, c := range list[max(len(list)-findingsShown, 0):] {
		row("", "record %d: %s, tokens before %s", c.Sequence, c.State, string(c.TokensBefore))
	}
}

func (p *printer) findings(s *report.Summary, row func(string, string, ...any)) {
	more := ""
	if s.DiagnosticsTruncated {
		more = " or more"
	}
	row("findings", "%d%s", len(s.Diagnostics), more)
	for _, d := range s.Diagnostics[:min(len(s.Diagnostics), findingsShown)] {
		p.WriteString("  ")
		p.finding(s.Path, report.Finding{Diagnostic: d, Suggestion: report.Suggestion(d.Code)})
	}
	if len(s.Diagnostics) > findingsShown {
		p.linef("  ... all of them: sessiond inspect check %s", s.Path)
	}
}

// finding prints one finding in one line.
func (p *printer) finding(path string, f report.Finding) {
	where := path
	if f.Line > 0 {
		where = fmt.Sprintf("%s:%d", path, f.Line)
	}
	bytes := ""
	if f.Length > 0 {
		bytes = fmt.Sprintf(" [bytes %d-%d]", f.Offset, f.Offset+f.Length-1)
	}
	p.linef("%s: %s %s: %s%s; %s", where, p.paint(severityStyle(f.Severity), string(f.Severity)),
		string(f.Code), f.Detail, bytes, f.Suggestion)
}

func severityStyle(s jsonl.Severity) style {
	switch s {
	case jsonl.Error:
		return red
	case jsonl.Warning:
		return yellow
	}
	return dim
}

func (p *printer) health(h report.Health) styled {
	switch h {
	case report.Damaged:
		return p.paint(red, h.String())
	case report.OK:
		return p.paint("", h.String())
	}
	return p.paint(yellow, h.String())
}

// counts lists the names of a table, the most frequent first.
func counts(table map[string]int64) string {
	names := slices.SortedFunc(maps.Keys(table), func(a, b string) int {
		return cmp.Or(cmp.Compare(table[b], table[a]), cmp.Compare(a, b))
	})
	parts := make([]string, 0, len(names))
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s %d", cmp.Or(name, "(none)"), table[name]))
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

func dollars(micro *int64) string {
	if micro == nil {
		return "unknown"
	}
	return fmt.Sprintf("$%d.%06d", *micro/1e6, *micro%1e6)
}
