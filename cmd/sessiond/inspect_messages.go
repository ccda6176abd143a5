package main

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sessiond/replay/canon"
	"sessiond/replay/dialect"
	"sessiond/replay/report"
)

const messagesLong = `

-o jsonl prints a line for each message, -o json one array of the same objects:
  {"index","role","sequence","hash","notes"?,"message"}
sequence is the number of the message's line; hash is a hash of the message's
value, the same however its JSON is spelled; notes name what a reader should
know: provisional (from an unfinished last line), salvaged, branch; in event logs
also aborted, failed, incomplete, duplicate, orphan and ignored.`

func newInspectTranscriptCommand(o *inspectOptions) *cobra.Command {
	return newMessagesCommand(o, dialect.Transcript, "Print all messages of the active branch")
}

func newInspectContextCommand(o *inspectOptions) *cobra.Command {
	return newMessagesCommand(o, dialect.Context, "Print the messages that a resume would give the model")
}

func newMessagesCommand(o *inspectOptions, v dialect.View, short string) *cobra.Command {
	return &cobra.Command{
		Use:   v.String() + " FILE",
		Short: short,
		Long:  short + "." + messagesLong,
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runMessages(cmd, o, v, args[0])
		},
	}
}

func runMessages(cmd *cobra.Command, o *inspectOptions, v dialect.View, path string) error {
	p, opt, err := o.begin(cmd, formatText, formatJSON, formatJSONL)
	if err != nil {
		return err
	}
	f, err := openSession(path)
	if err != nil {
		return err
	}
	defer f.Close()
	show := p.message
	list := p.items()
	if p.format != formatText {
		show = func(m report.Message) error {
			list.next()
			return p.messageJSON(m)
		}
	}
	if err := report.EachMessage(cmd.Context(), f.File, v, opt, show); err != nil {
		return err
	}
	list.end()
	return p.Flush()
}

// message prints a message for a person. Its text is indented and its head is
// not, so that no text can pass for a head.
func (p *printer) message(m report.Message) error {
	head := strconv.Itoa(m.Index) + " " + m.Role
	if m.Role == "" {
		head = strconv.Itoa(m.Index) + " (no role)"
	}
	notes := ""
	if len(m.Notes) > 0 {
		notes = " [" + strings.Join(m.Notes, ", ") + "]"
	}
	p.linef("--- %s, record %d%s", p.paint(bold, head), m.Sequence, notes)
	p.indented(report.AppendProse(nil, m.Text))
	return p.WriteByte('\n')
}

// messageJSON prints a message with its own bytes in it.
func (p *printer) messageJSON(m report.Message) error {
	hash, err := canon.Sum(m.Text)
	if err != nil {
		return err
	}
	head := struct {
		Index    int      `json:"index"`
		Role     *string  `json:"role"`
		Sequence uint64   `json:"sequence"`
		Hash     string   `json:"hash"`
		Notes    []string `json:"notes,omitempty"`
	}{Index: m.Index, Sequence: m.Sequence, Hash: hash.String(), Notes: m.Notes}
	if m.Role != "" {
		head.Role = &m.Role
	}
	b, err := json.Marshal(head)
	if err != nil {
		return err
	}
	p.Write(b[:len(b)-1])
	p.WriteString(`,"message":`)
	p.Write(m.Text)
	return p.WriteByte('}')
}
