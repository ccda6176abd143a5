package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sessiond/cmd/sessiond/internal/term"
	"sessiond/replay/jsonl"
	"sessiond/replay/report"
)

const recordsLong = `Print the lines of a file as they stand in it.

-o text prints the number of the line, its offset and the line, with tabs
between them; what could drive a terminal is escaped. -o raw prints the bytes.
-o jsonl prints a line for each record, -o json one array of the same objects:
  {"sequence","offset","bytes","type","record"}
record is the line itself; a line that is no valid JSON in valid UTF-8 stands
as "base64" instead. What follows the last line break is no record: its
sequence is null ("tail" in text), and it is printed where the range has no end.`

func newInspectRecordsCommand(o *inspectOptions) *cobra.Command {
	var rng, typ string
	cmd := &cobra.Command{
		Use:   "records FILE",
		Short: "Print the lines of a file, with number and offset",
		Long:  recordsLong,
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			sel, err := parseRange(rng)
			if err != nil {
				return usageErrorf(cmd, "--range %q: %w", rng, err)
			}
			sel.Type = typ
			return runRecords(cmd, o, sel, args[0])
		},
	}
	cmd.Flags().StringVar(&rng, "range", "", "line numbers A:B, both included; A: and :B leave an end open, A is one line")
	cmd.Flags().StringVar(&typ, "type", "", "only records whose object has this type")
	return cmd
}

// parseRange parses A:B, A:, :B, A, and "" for all.
func parseRange(s string) (report.Selection, error) {
	if s == "" {
		return report.Selection{}, nil
	}
	from, to, open := strings.Cut(s, ":")
	if !open {
		to = from
	}
	number := func(s string) (uint64, error) {
		if s == "" && open {
			return 0, nil
		}
		n, err := strconv.ParseUint(s, 10, 63)
		if err != nil || n == 0 {
			return 0, fmt.Errorf("%q is no line number", s)
		}
		return n, nil
	}
	a, err := number(from)
	if err != nil {
		return report.Selection{}, err
	}
	b, err := number(to)
	if err != nil {
		return report.Selection{}, err
	}
	if b != 0 && b < a {
		return report.Selection{}, fmt.Errorf("it ends before it begins")
	}
	return report.Selection{From: a, To: b}, nil
}

func runRecords(cmd *cobra.Command, o *inspectOptions, sel report.Selection, path string) error {
	p, opt, err := o.begin(cmd, formatText, formatJSON, formatJSONL, formatRaw)
	if err != nil {
		return err
	}
	f, err := openSession(path)
	if err != nil {
		return err
	}
	defer f.Close()
	records := recordPrinter{p: p, src: f.Source, list: p.items()}
	yield := map[string]func(report.Record) error{
		formatText: records.text, formatJSON: records.json, formatJSONL: records.json, formatRaw: records.raw,
	}[p.format]
	if err := report.EachRecord(cmd.Context(), f.File, sel, opt, yield); err != nil {
		return err
	}
	if err := records.copyRaw(); err != nil {
		return err
	}
	records.list.end()
	return p.Flush()
}

// recordPrinter prints records; those that are not held it reads in pieces.
type recordPrinter struct {
	p    *printer
	src  io.ReaderAt
	list items

	rawFrom, rawTo int64 // of adjacent records, still to be copied
}

// rawBytesMax is how much of adjacent records is copied at once.
const rawBytesMax = 1 << 20

// content writes the text of a record to w.
func (r *recordPrinter) content(w io.Writer, rec report.Record) error {
	if rec.Text != nil {
		_, err := w.Write(rec.Text)
		return err
	}
	_, err := io.Copy(w, io.NewSectionReader(r.src, rec.Offset, rec.Content))
	return err
}

func (r *recordPrinter) text(rec report.Record) error {
	sequence := "tail"
	if rec.Sequence > 0 {
		sequence = strconv.FormatUint(rec.Sequence, 10)
	}
	fmt.Fprintf(r.p, "%s\t%d\t", sequence, rec.Offset)
	w := term.NewWriter(r.p)
	if err := r.content(w, rec); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return r.p.WriteByte('\n')
}

func (r *recordPrinter) json(rec report.Record) error {
	head := struct {
		Sequence *uint64 `json:"sequence"`
		Offset   int64   `json:"offset"`
		Bytes    int64   `json:"bytes"`
		Type     *string `json:"type"`
	}{Offset: rec.Offset, Bytes: rec.Size}
	if rec.Sequence > 0 {
		head.Sequence = &rec.Sequence
	}
	if rec.Type != "" {
		head.Type = &rec.Type
	}
	b, err := json.Marshal(head)
	if err != nil {
		return err
	}
	r.list.next()
	r.p.Write(b[:len(b)-1])
	if rec.JSON {
		if rec.Offset == 0 {
			rec.Text = bytes.TrimPrefix(rec.Text, []byte(jsonl.BOM))
		}
		r.p.WriteString(`,"record":`)
		if err := r.content(r.p, rec); err != nil {
			return err
		}
		return r.p.WriteByte('}')
	}
	r.p.WriteString(`,"base64":"`)
	w := base64.NewEncoder(base64.StdEncoding, r.p)
	if err := r.content(w, rec); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	_, err = r.p.WriteString(`"}`)
	return err
}

func (r *recordPrinter) raw(rec report.Record) error {
	if rec.Offset != r.rawTo || r.rawTo-r.rawFrom >= rawBytesMax {
		if err := r.copyRaw(); err != nil {
			return err
		}
		r.rawFrom = rec.Offset
	}
	r.rawTo = rec.Offset + rec.Size
	return nil
}

// copyRaw copies the records that wait for it.
func (r *recordPrinter) copyRaw() error {
	_, err := io.Copy(r.p, io.NewSectionReader(r.src, r.rawFrom, r.rawTo-r.rawFrom))
	r.rawFrom = r.rawTo
	return err
}
