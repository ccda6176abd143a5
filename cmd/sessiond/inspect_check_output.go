package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sessiond/replay/jsonl"
	"sessiond/replay/report"
)

// checking prints the findings of inspect check and counts them.
type checking struct {
	*printer
	failOn   map[jsonl.Code]bool // nil or empty: the health of the files decides
	complain func(error)

	total   checkTotal
	worst   report.Health
	matched bool  // a finding has a code of failOn
	failure error // the first: a file that could not be examined
	files   items // -o json
}

// checkTotal counts what inspect check saw.
type checkTotal struct {
	Files      int   `json:"files"` // examined
	OK         int   `json:"ok"`
	Unfinished int   `json:"unfinished"`
	Newer      int   `json:"newer"`
	Damaged    int   `json:"damaged"`
	Unreadable int   `json:"unreadable"`
	Skipped    int   `json:"skipped"` // no sessions, below a folder
	Bytes      int64 `json:"bytes"`
	Findings   int64 `json:"findings"`
	Errors     int64 `json:"errors"`
	Warnings   int64 `json:"warnings"`
}

func (t *checkTotal) add(h report.Health) {
	t.Files++
	switch h {
	case report.OK:
		t.OK++
	case report.Unfinished:
		t.Unfinished++
	case report.Newer:
		t.Newer++
	case report.Damaged:
		t.Damaged++
	}
}

// checkedFile is what is printed of a file beside its findings.
type checkedFile struct {
	Path    string        `json:"path"`
	Dialect string        `json:"dialect"`
	Bytes   int64         `json:"bytes"`
	Health  report.Health `json:"health"`
	Tail    report.Tail   `json:"tail"`

	// More findings about entries than are held and printed.
	FindingsTruncated bool `json:"findingsTruncated"`
}

func (c *checking) begin() {
	c.files = items{p: c.printer, array: true}
	if c.format == formatJSON {
		fmt.Fprintf(c, `{"schemaVersion":%d,"files":`, report.SchemaVersion)
	}
}

// fail notes a file that could not be examined.
func (c *checking) fail(err error) {
	c.total.Unreadable++
	c.failure = cmp.Or(c.failure, err)
	c.complain(err)
}

// skip notes a file below a folder that is no session.
func (c *checking) skip(err error) {
	c.total.Skipped++
	c.complain(err)
}

// file prints the findings of one file.
func (c *checking) file(ctx context.Context, check *report.Check) error {
	c.total.add(check.Health)
	c.total.Bytes += check.Bytes
	c.worst = max(c.worst, check.Health)
	about := checkedFile{check.Path, check.Dialect, check.Bytes, check.Health, check.Tail, check.Truncated}
	if err := c.beginFile(about); err != nil {
		return err
	}
	list, count := items{p: c.printer, array: true}, 0
	err := check.Each(ctx, func(f report.Finding) error {
		count++
		c.count(f)
		return c.printFinding(check.Path, f, &list)
	})
	if errors.Is(err, report.ErrChanged) { // what was printed stays true; the next file follows
		c.fail(err)
		err = nil
	}
	if err != nil {
		return err
	}
	return c.endFile(about, &list, count)
}

func (c *checking) count(f report.Finding) {
	c.total.Findings++
	switch f.Severity {
	case jsonl.Error:
		c.total.Errors++
	case jsonl.Warning:
		c.total.Warnings++
	}
	c.matched = c.matched || c.failOn[f.Code]
}

// beginFile opens the object of a file, up to its findings.
func (c *checking) beginFile(about checkedFile) error {
	if c.format != formatJSON {
		return nil
	}
	b, err := json.Marshal(about)
	if err != nil {
		return err
	}
	c.files.next()
	c.Write(b[:len(b)-1])
	_, err = c.WriteString(`,"findings":`)
	return err
}

func (c *checking) printFinding(path string, f report.Finding, list *items) error {
	switch c.format {
	case formatJSON:
		b, err := json.Marshal(f)
		if err != nil {
			return err
		}
		list.next()
		_, err = c.Write(b)
		return err
	case formatJSONL:
		return c.json(struct {
			Path string `json:"path"`
			report.Finding
		}{path, f})
	}
	c.finding(path, f)
	return nil
}

// endFile follows the findings of a file.
func (c *checking) endFile(about checkedFile, list *items, count int) error {
	switch c.format {
	case formatJSON:
		list.end()
		return c.WriteByte('}')
	case formatJSONL:
		return c.json(struct {
			checkedFile
			Findings int `json:"findings"`
		}{about, count})
	}
	if about.FindingsTruncated {
		c.linef("%s: more findings about entries than are held; the rest is not listed", about.Path)
	}
	return nil
}

// end prints the total.
func (c *checking) end() {
	switch c.format {
	case formatJSON:
		c.files.end()
		c.WriteString(`,"total":`)
		b, _ := json.Marshal(c.total) // numbers only
		c.Write(b)
		c.WriteString("}\n")
	case formatJSONL:
		_ = c.json(struct { // as above; Flush has the error of writing
			Total checkTotal `json:"total"`
		}{c.total})
	default:
		c.linef("%s", c.total.String())
	}
}

// String is the last line of the text.
func (t checkTotal) String() string {
	parts := []string{}
	for _, p := range []struct {
		n    int
		name string
	}{
		{t.OK, "ok"},
		{t.Unfinished, "unfinished"},
		{t.Newer, "newer"},
		{t.Damaged, "damaged"},
		{t.Unreadable, "unreadable"},
		{t.Skipped, "skipped"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", p.name, p.n))
		}
	}
	if len(parts) == 0 {
		parts = append(parts, "none")
	}
	return fmt.Sprintf("total: files %d (%s), bytes %d, findings %d (errors %d, warnings %d)",
		t.Files, strings.Join(parts, ", "), t.Bytes, t.Findings, t.Errors, t.Warnings)
}

// exit is how the command ends: what could not be read first, then the codes
// to fail on or the worst health.
func (c *checking) exit() error {
	switch {
	case c.failure != nil:
		return &exitError{code: exitCode(c.failure)} // said already
	case len(c.failOn) > 0 && c.matched:
		return &exitError{code: exitDamaged}
	case len(c.failOn) > 0:
		return nil
	}
	return healthError(c.worst)
}
