package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"sessiond/cmd/sessiond/internal/term"
)

// Output formats.
const (
	formatText  = "text"
	formatJSON  = "json"
	formatJSONL = "jsonl"
	formatRaw   = "raw" // the bytes of the file
)

// printer writes the data of a command. The first error of writing stays and
// is what flush returns, so that the lines between need no look at it.
type printer struct {
	*bufio.Writer
	format string
	color  bool
}

// printer returns a printer to the command's output in the format that was
// asked for, if that is one of those allowed.
func (o *rootOptions) printer(cmd *cobra.Command, allowed ...string) (*printer, error) {
	format, err := o.format(cmd, allowed...)
	if err != nil {
		return nil, err
	}
	out := cmd.OutOrStdout()
	tty := isTerminal(out)
	color, err := o.colors(cmd, tty)
	if err != nil {
		return nil, err
	}
	if tty && (format == formatJSON || format == formatJSONL) {
		out = &escaper{w: out}
	}
	return &printer{bufio.NewWriterSize(out, 64<<10), format, color && format == formatText}, nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// colors says whether text has colours.
func (o *rootOptions) colors(cmd *cobra.Command, tty bool) (bool, error) {
	switch o.color {
	case "always":
		return true, nil
	case "never":
		return false, nil
	case "auto":
		return tty && o.env("NO_COLOR") == "" && o.env("TERM") != "dumb", nil
	}
	return false, usageErrorf(cmd, "--color %q, want auto, always or never", o.color)
}

// linef prints one line; every argument that is a string is made safe first.
func (p *printer) linef(format string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = term.Safe(s)
		}
	}
	fmt.Fprintf(p, format, args...)
	p.WriteByte('\n')
}

// style is a colour or weight of text.
type style string

const (
	bold   style = "1"
	red    style = "31"
	yellow style = "33"
	dim    style = "2"
)

// styled is safe text with a style, for linef.
type styled struct{ text string }

func (s styled) String() string { return s.text }

// paint makes s safe and, with colours on, gives it a style.
func (p *printer) paint(st style, s string) styled {
	s = term.Safe(s)
	if !p.color || st == "" {
		return styled{s}
	}
	return styled{"\x1b[" + string(st) + "m" + s + "\x1b[0m"}
}

// indented prints text of any number of lines, each behind two spaces, so that
// none of them can pass for a line of this program.
func (p *printer) indented(text []byte) {
	if len(text) == 0 {
		return
	}
	safe := strings.TrimRight(term.Lines(string(text)), "\n")
	for l := range strings.Lines(safe) {
		p.WriteString("  ")
		p.WriteString(l)
	}
	p.WriteByte('\n')
}

// json prints a value as one line of JSON.
func (p *printer) json(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	p.Write(b)
	return p.WriteByte('\n')
}

// items prints values one by one, as lines or as one array.
type items struct {
	p     *printer
	array bool
	n     int
}

// items returns the items of the output: an array where the format is JSON.
func (p *printer) items() items { return items{p: p, array: p.format == formatJSON} }

// next goes to where the next item is printed, without a line break in it.
func (l *items) next() {
	switch {
	case l.array && l.n == 0:
		l.p.WriteString("[\n")
	case l.array:
		l.p.WriteString(",\n")
	case l.n > 0:
		l.p.WriteByte('\n')
	}
	l.n++
}

// end follows the last item.
func (l *items) end() {
	switch {
	case l.array && l.n == 0:
		l.p.WriteString("[]\n")
	case l.array:
		l.p.WriteString("\n]\n")
	case l.n > 0:
		l.p.WriteByte('\n')
	}
}

// escaper writes JSON to a terminal: what is not graphic can stand in strings
// only, where an escape means the same. The JSON ends with an LF.
type escaper struct {
	w    io.Writer
	rest []byte // the start of a character
}

func (e *escaper) Write(p []byte) (int, error) {
	text := append(e.rest, p...)
	b := make([]byte, 0, len(text))
	for utf8.FullRune(text) {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == '\n', r == '\t', unicode.IsGraphic(r):
			b = utf8.AppendRune(b, r)
		case r == '\r': // white space between values, as a string holds none
			b = append(b, ' ')
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
		text = text[n:]
	}
	e.rest = append([]byte(nil), text...)
	if _, err := e.w.Write(b); err != nil {
		return 0, err
	}
	return len(p), nil
}
