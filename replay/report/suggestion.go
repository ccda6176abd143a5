package report

import "sessiond/replay/jsonl"

// suggestions says what to do about each code. Whoever adds a code adds its
// row; a test sees to it.
var suggestions = map[jsonl.Code]string{
	jsonl.CodeBOM:              "nothing to do; have the writer leave the byte-order mark out",
	jsonl.CodeMalformedLine:    "the line is lost to every reader; look at it with `inspect records --range N -o raw`",
	jsonl.CodeNonObjectLine:    "no reader shows it; look for a program that writes to the file beside the agent",
	jsonl.CodeUnterminatedTail: "wait, if the agent is writing; else end the line before anything is appended, or the next record is lost too",
	jsonl.CodeNulRun:           "bytes that were allocated and never written, as after a power loss; what they replaced is lost",
	jsonl.CodeFusedLine:        "the torn record is lost, the whole one is shown here; other readers may drop both",
	jsonl.CodeJoinedObjects:    "all records of the line are shown here; other readers may drop it",
	jsonl.CodeTrailingGarbage:  "the record is shown here; other readers may drop the line",
	jsonl.CodeInvalidUTF8:      "shown as U+FFFD; the bytes are in `inspect records -o raw`",
	jsonl.CodeLoneSurrogate:    "shown as U+FFFD; the writer cut a text in the middle of a character",
	jsonl.CodeDuplicateKey:     "the last value counts; readers may differ on it",
	jsonl.CodeOversizedRecord:  "raise --record-bytes-max to see its message; `inspect records` shows it whatever its size",

	jsonl.CodeEmptyFile:       "wait for the first record, or see whether the program that made the file still runs",
	jsonl.CodeUnknownFormat:   "no session file, or one of an agent that this build does not know; see `inspect records`",
	jsonl.CodeHeaderMissing:   "the file is read all the same, under its name; its first line was lost or never written",
	jsonl.CodeHeaderLate:      "nothing to do; the file is read in its order",
	jsonl.CodeHeaderBadID:     "the file's name stands for the id; look it up by that",
	jsonl.CodeSecondHeader:    "two sessions may have been written into one file",
	jsonl.CodeNewerVersion:    "use a newer build; what this one does not know is not shown",
	jsonl.CodeEntryWithoutID:  "not in the tree; look at it with `inspect records`",
	jsonl.CodeMessageMissing:  "look at it with `inspect records`; what follows it is shown",
	jsonl.CodeUsageMissing:    "look at it with `inspect records`; the usage of its message stays as it was",
	jsonl.CodeStateMissing:    "the session keeps its state",
	jsonl.CodeNameNotString:   "rename the session in its agent",
	jsonl.CodeDuplicateID:     "two programs may have written to the file, or one wrote a record twice",
	jsonl.CodeDanglingParent:  "the transcript goes on behind a gap; the parent was lost or never written",
	jsonl.CodeCycle:           "the agent itself may hang on the file",
	jsonl.CodeUnanchored:      "nothing that it names is retained, or an event log ignores it; `inspect transcript` shows what was before it",
	jsonl.CodeConcurrentWrite: "two programs went on from one entry; only the branch of the last one is active",
	jsonl.CodeOrphanResult:    "the transcript shows it; its call was lost, or belongs to another turn",
	jsonl.CodeDuplicateResult: "the transcript shows it; the first result of the call counts",
	jsonl.CodeUnansweredCall:  "the tool did not end, or its result was lost; the call stays in both views",
	jsonl.CodeRewindTarget:    "nothing was taken back; the event it names was lost, or taken back before",
}

// Suggestion says what a person can do about a code.
func Suggestion(c jsonl.Code) string { return suggestions[c] }

// KnownCode reports whether there is such a code.
func KnownCode(c jsonl.Code) bool { _, ok := suggestions[c]; return ok }
