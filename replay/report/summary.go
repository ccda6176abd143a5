package report

import (
	"encoding/json"
	"time"

	"sessiond/replay/jsonl"
)

// SchemaVersion is that of Summary; it changes only if a field goes or
// changes its meaning.
const SchemaVersion = 1

// Summary is what is worth knowing of a session file at a glance.
type Summary struct {
	SchemaVersion int              `json:"schemaVersion"`
	Path          string           `json:"path"`
	Dialect       string           `json:"dialect"`
	FormatVersion int              `json:"formatVersion"` // 0 in an unknown dialect
	SessionID     string           `json:"sessionId"`     // the file's name where the file does not say
	Title         string           `json:"title"`
	CWD           string           `json:"cwd"`
	Bytes         int64            `json:"bytes"`
	SHA256        string           `json:"sha256"`
	Head          string           `json:"head"` // cursor behind the last record
	Records       Records          `json:"records"`
	Tail          Tail             `json:"tail"`
	Types         map[string]int64 `json:"types"`
	Roles         map[string]int64 `json:"roles"`
	Messages      Messages         `json:"messages"`
	Leaf          string           `json:"leaf"`
	Branches      int              `json:"branches"`
	Compactions   []Compaction     `json:"compactions"`
	Tools         Tools            `json:"tools"`
	Usage         Usage            `json:"usage"`
	Time          Time             `json:"time"`

	// The first DiagnosticsMax by line; Truncated says that there may be more.
	Diagnostics          []jsonl.Diagnostic `json:"diagnostics"`
	DiagnosticsTruncated bool               `json:"diagnosticsTruncated"`

	health Health
}

// Records counts lines. Total = Entries + Blank + Malformed + Salvaged.
type Records struct {
	Total       int64 `json:"total"`
	Entries     int64 `json:"entries"` // one whole object
	Blank       int64 `json:"blank"`
	Malformed   int64 `json:"malformed"`   // nothing could be taken
	Salvaged    int64 `json:"salvaged"`    // malformed, with objects taken from them
	UnknownType int64 `json:"unknownType"` // objects whose type the dialect does not know
	Oversized   int64 `json:"oversized"`   // of all: over the record limit
}

// Tail is what follows the last LF.
type Tail struct {
	State  string `json:"state"` // clean, provisional, unterminated or torn
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
}

// Messages counts the messages of each view.
type Messages struct {
	Transcript int `json:"transcript"`
	Context    int `json:"context"`
}

// Compaction is one compaction of the file.
type Compaction struct {
	Sequence     uint64          `json:"sequence"`
	TokensBefore json.RawMessage `json:"tokensBefore"` // as it is written; null if it is not
	State        string          `json:"state"`
}

// Tools counts tool calls and results on all branches.
type Tools struct {
	Calls         int64 `json:"calls"`
	Results       int64 `json:"results"`
	Unanswered    int64 `json:"unanswered"`
	OrphanResults int64 `json:"orphanResults"`
}

// Usage sums what the responses of the file cost.
type Usage struct {
	Responses    int64  `json:"responses"`
	Input        int64  `json:"input"`
	Output       int64  `json:"output"`
	CacheRead    int64  `json:"cacheRead"`
	CacheWrite   int64  `json:"cacheWrite"`
	Reasoning    int64  `json:"reasoning"`
	CostMicroUSD *int64 `json:"costMicroUSD"` // nil: no response says
}

// Time is the time that the file spans.
type Time struct {
	First  time.Time `json:"first"`
	Last   time.Time `json:"last"`
	Source string    `json:"source"` // records, or mtime where no record has a time
}

// Health is the verdict of inspect on a file.
func (s *Summary) Health() Health { return s.health }
