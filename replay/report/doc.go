// Package report explains a session file: its summary (Summarize), its
// findings (Examine), the messages of a view (EachMessage) and its lines
// (EachRecord). It is what the command inspect prints.
//
// It is pure: a File is given, time is passed in, nothing is opened or
// written.
//
// # Format
//
// A Summary is one JSON object; its fields and their order are pinned by
// golden files, and fields are only added.
//
// # Rules
//
//   - Every line is counted once: as an entry, blank, malformed or salvaged,
//     and records.total is their sum. Valid JSON that is no object counts as
//     malformed. A provisional tail is no record; its content is counted.
//   - A file is damaged when a terminated line is not one whole object or
//     blank, whatever was salvaged from it. Broken links between entries, such
//     as a parent that was never written, are findings and no damage.
//   - usage counts the responses that the file records, each once, as their
//     own lines have it; what later lines attribute to them stays out.
//   - A result answers an open call with its id. One that no open call has
//     asked for is an orphan, a second answer too.
//   - time is that of the records; a year before 1970 or after 9999 is none.
//
// # Memory
//
// The index of the replay, about 80 bytes an entry, and bounded tables. No
// text is held but that of the record at hand.
//
// # Concurrency
//
// Functions may run side by side on different Files. A Check belongs to one
// goroutine.
//
// # Caveats
//
// The size is that of the moment a File was made: bytes appended later are
// not looked at. A file that shrinks or changes below that size while it is
// read is an error, or, if nobody noticed, a report of neither state.
package report
