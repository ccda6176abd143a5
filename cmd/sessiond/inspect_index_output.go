package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// indexPrinter prints what inspect index tells, as it comes.
type indexPrinter struct {
	*printer
	items items // of the list that is being printed as JSON
}

// typed is a line of -o jsonl.
func (p *indexPrinter) typed(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	fmt.Fprintf(p, `{"type":%q,%s`+"\n", name, b[1:]) // v is an object that is not empty
	return nil
}

func (p *indexPrinter) begin(h indexHeader) error {
	switch p.format {
	case formatJSONL:
		return p.typed("index", h)
	case formatJSON:
		b, err := json.Marshal(h)
		if err != nil {
			return err
		}
		p.Write(b[:len(b)-1])
		p.list("sessions")
		return nil
	}
	p.linef("index        %s, %d bytes, schema %d", h.Path, h.Bytes, h.Schema)
	c := h.Counts
	p.linef("holds        signatures %d, listings %d, checkpoints %d, views %d, tombstones %d", c.Signatures, c.Listings, c.Checkpoints, c.Views, c.Tombstones)
	return nil
}

// list begins a list of the object.
func (p *indexPrinter) list(name string) {
	fmt.Fprintf(p, `,%q:`, name)
	p.items = p.printer.items()
}

func (p *indexPrinter) session(s indexSession) error {
	switch p.format {
	case formatJSONL:
		return p.typed("session", s)
	case formatJSON:
		return p.jsonItem(&p.items, s)
	}
	p.linef("")
	p.linef("%-10s  %10s bytes  %s", p.paint(verdictStyle(s.File.Verdict), string(s.File.Verdict)), numberOr(s.Bytes), s.Session)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(p, "  %-11s ", name)
		p.linef(format, args...)
	}
	row("file", "%s", cmp.Or(s.Path, "-"))
	if s.File.Detail != "" {
		row("", "%s", p.paint(verdictStyle(s.File.Verdict), s.File.Detail))
	}
	if s.Stamp != nil {
		row("head", "%s", s.Head)
		row("dialect", "%s, rules %s", cmp.Or(s.Dialect, "-"), cmp.Or(s.Rules, "-"))
		trust := "trusted"
		if !s.Trusted {
			trust = "not trusted"
		}
		row("stamp", "size %d, device %d, inode %d, mtime %s, ctime %s, %s", s.Stamp.Size, s.Stamp.Device, s.Stamp.Inode,
			s.Stamp.MTime.Format(time.RFC3339Nano), s.Stamp.CTime.Format(time.RFC3339Nano), trust)
	}
	row("holds", "messages %s, diagnostics %s, checkpoints %d", numberOr(s.Messages), numberOr(s.Diagnostics), s.Checkpoints)
	for _, v := range s.Views {
		row("view", "%s: %d chunks of %d bytes, target %d, rules %s", v.View, v.Chunks, v.Bytes, v.Target, cmp.Or(v.Rules, "-"))
		row("", "segments %s", cmp.Or(strings.Join(v.Segments, " "), "-"))
		if len(v.Missing) > 0 {
			row("", "%s", p.paint(yellow, "missing segments "+strings.Join(v.Missing, " ")))
		}
		if v.BadChunks != nil {
			row("", "chunks verified %d, absent %d, bad %d", *v.VerifiedChunks, *v.AbsentChunks, *v.BadChunks)
		}
		if v.WholeAt != "" {
			row("", "whole at %s", v.WholeAt)
		}
		if v.ChunkError != "" {
			row("", "%s", p.paint(red, v.ChunkError))
		}
	}
	for _, b := range s.Bad {
		row("bad value", "%s", p.paint(red, b.Bucket+" "+b.Key+": "+b.Error))
	}
	return nil
}

func (p *indexPrinter) beginTombstones() {
	if p.format == formatJSON {
		p.items.end()
		p.list("tombstones")
	}
}

func (p *indexPrinter) tombstone(t indexTombstone) error {
	switch p.format {
	case formatJSONL:
		return p.typed("tombstone", t)
	case formatJSON:
		return p.jsonItem(&p.items, t)
	}
	if p.items.n++; p.items.n == 1 {
		p.linef("")
	}
	if t.Error != "" {
		p.linef("tombstone    %s: %s", t.Session, p.paint(red, "bad value: "+t.Error))
		return nil
	}
	p.linef("tombstone    %s, id %s, removed %s, %d bytes", t.Session, cmp.Or(t.ID, "-"), t.Removed.Format(time.RFC3339), *t.Bytes)
	return nil
}

func (p *indexPrinter) end(s spillReport, t indexTotals) error {
	switch p.format {
	case formatJSONL:
		if err := p.typed("spill", s); err != nil {
			return err
		}
		return p.typed("totals", t)
	case formatJSON:
		p.items.end()
		rest, err := json.Marshal(struct {
			Spill  spillReport `json:"spill"`
			Totals indexTotals `json:"totals"`
		}{s, t})
		if err != nil {
			return err
		}
		p.WriteByte(',')
		p.Write(rest[1:])
		return p.WriteByte('\n')
	}
	p.linef("")
	p.linef("spill        %s: %d files, %d bytes; named by nothing %d, %d bytes", s.Path, s.Files, s.Bytes, len(s.Unnamed), s.UnnamedBytes)
	for _, u := range s.Unnamed {
		p.linef("  unnamed    %s, %d bytes", u.Name, u.Bytes)
	}
	if s.Error != "" {
		p.linef("  error      %s", p.paint(red, s.Error))
	}
	parts := []string{}
	for _, v := range slices.Sorted(maps.Keys(t.Verdicts)) {
		parts = append(parts, fmt.Sprintf("%s %d", v, t.Verdicts[v]))
	}
	p.linef("sessions     %d: %s", t.Sessions, cmp.Or(strings.Join(parts, ", "), "-"))
	p.linef("views        %d: %d chunks of %d bytes, verified %d, bad %d, missing segments %d",
		t.Views, t.Chunks, t.ChunkBytes, t.VerifiedChunks, t.BadChunks, t.MissingSegments)
	p.linef("bad values   %d", t.BadValues)
	return nil
}

func verdictStyle(v verdict) style {
	switch v {
	case fileDiffers, fileUnreadable:
		return red
	case fileMissing, fileUnverified:
		return yellow
	}
	return ""
}

// numberOr is a number, or a dash where it is not known.
func numberOr[T int | int64](n *T) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(int64(*n), 10)
}
