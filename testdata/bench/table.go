package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// result is one row of the table.
type result struct {
	workload string
	figure   string
	ratio    float64
	probe    string
	must     float64 // bound of the ratio; 0: none
	goal     float64 // 0: none
	atMost   bool    // must and goal are upper bounds
}

func (r result) verdict() string {
	switch {
	case r.must == 0:
		return ""
	case r.atMost && r.ratio <= r.must, !r.atMost && r.ratio >= r.must:
		return "met"
	}
	return "MISSED"
}

func (r result) bound(v float64) string {
	switch {
	case v == 0:
		return ""
	case r.atMost:
		return fmt.Sprintf("<= %.3g", v)
	}
	return fmt.Sprintf(">= %.3g", v)
}

var columns = []string{"workload", "measured", "ratio", "to", "must", "goal", "verdict"}

func (r result) cells() []string {
	return []string{r.workload, r.figure, ratioText(r.ratio), r.probe, r.bound(r.must), r.bound(r.goal), r.verdict()}
}

// ratioText has three digits, as far as they mean anything.
func ratioText(v float64) string {
	switch {
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

func table(w io.Writer, results []result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(columns, "\t"))
	for _, r := range results {
		fmt.Fprintln(t, strings.Join(r.cells(), "\t"))
	}
	return t.Flush()
}

func markdownTable(w io.Writer, results []result) error {
	var b strings.Builder
	row := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	row(columns)
	b.WriteString("|---|---:|---:|---|---:|---:|---|\n")
	for _, r := range results {
		row(r.cells())
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// missed names the workloads whose must is missed.
func missed(results []result) (names []string) {
	for _, r := range results {
		if r.verdict() == "MISSED" {
			names = append(names, r.workload)
		}
	}
	return names
}

// verdict is the last line.
func verdict(results []result) string {
	musts := 0
	for _, r := range results {
		if r.must != 0 {
			musts++
		}
	}
	names := missed(results)
	if len(names) == 0 {
		return fmt.Sprintf("all %d musts are met", musts)
	}
	return fmt.Sprintf("%d of %d musts MISSED: %s", len(names), musts, strings.Join(names, "; "))
}
