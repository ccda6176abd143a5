package jsonl

// Code names a kind of diagnostic. Codes are stable: they are part of the
// output of inspect and of the protocol's counts.
type Code string

// Every diagnostic code there is.
const (
	// Framing and JSON, found by this package.
	CodeBOM              Code = "bom"               // byte-order mark at byte 0, skipped
	CodeMalformedLine    Code = "malformed_line"    // no JSON, or JSON that salvage does not dare to take
	CodeNonObjectLine    Code = "non_object_line"   // valid JSON, but no object
	CodeUnterminatedTail Code = "unterminated_tail" // bytes after the last LF that are no whole object
	CodeNulRun           Code = "nul_run"           // leading NULs of a line, skipped
	CodeFusedLine        Code = "fused_line"        // a torn prefix, then a whole record
	CodeJoinedObjects    Code = "joined_objects"    // several whole records on one line
	CodeTrailingGarbage  Code = "trailing_garbage"  // a whole record, then something else
	CodeInvalidUTF8      Code = "invalid_utf8"      // shown as U+FFFD in messages
	CodeLoneSurrogate    Code = "lone_surrogate"    // an escape that is half a pair
	CodeDuplicateKey     Code = "duplicate_key"     // the last one wins
	CodeOversizedRecord  Code = "oversized_record"  // over the record limit: a marker in message views

	// Sessions, found by dialects.
	CodeEmptyFile       Code = "empty_file"
	CodeUnknownFormat   Code = "unknown_format"
	CodeHeaderMissing   Code = "header_missing"
	CodeHeaderLate      Code = "header_late"
	CodeHeaderBadID     Code = "header_bad_id"
	CodeSecondHeader    Code = "second_header"
	CodeNewerVersion    Code = "newer_version"
	CodeEntryWithoutID  Code = "entry_without_id"
	CodeMessageMissing  Code = "message_missing"
	CodeUsageMissing    Code = "usage_missing"
	CodeStateMissing    Code = "state_missing"
	CodeNameNotString   Code = "name_not_string"
	CodeDuplicateID     Code = "duplicate_id"
	CodeDanglingParent  Code = "dangling_parent"
	CodeCycle           Code = "cycle"
	CodeUnanchored      Code = "compaction_unanchored" // retains nothing: its first kept entry is not before it on the path
	CodeConcurrentWrite Code = "concurrent_writers"    // interleaved branches from one leaf
	CodeOrphanResult    Code = "orphan_result"         // of no call of its turn: not in the context
	CodeDuplicateResult Code = "duplicate_result"      // of a call that has one: not in the context
	CodeUnansweredCall  Code = "unanswered_call"       // its turn ended without a result
	CodeRewindTarget    Code = "rewind_target"         // not an event before it: no effect
)

// Severity orders diagnostics.
type Severity string

// The severities.
const (
	Info    Severity = "info"
	Warning Severity = "warning"
	Error   Severity = "error"
)

// Severity returns how bad a code is: error means bytes of the file are
// missing from the views, warning that a reader should look, info neither.
func (c Code) Severity() Severity {
	switch c {
	case CodeMalformedLine, CodeFusedLine, CodeTrailingGarbage:
		return Error
	case CodeBOM, CodeUnterminatedTail, CodeEmptyFile, CodeLoneSurrogate, CodeDuplicateKey, CodeUnknownFormat:
		return Info
	}
	return Warning
}

// Diagnostic reports one finding. It never quotes the session's text: Detail
// holds counts, offsets and names of this program only.
type Diagnostic struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Line     int64    `json:"line"`   // from 1; 0: the whole file
	Offset   int64    `json:"offset"` // bytes from the start of the file
	Length   int64    `json:"length"` // bytes
	Detail   string   `json:"detail"`
}
