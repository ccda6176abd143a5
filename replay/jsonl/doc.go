// Package jsonl reads JSON-lines files: it splits a byte range into lines,
// checks each line as JSON in one pass and takes the envelope out of it, and
// looks for what can be saved of a damaged line. Every reader of session files
// in this module goes through it. It opens nothing and writes nothing.
//
// # Format
//
// A record ends at LF and at nothing else; one CR before the LF belongs to the
// ending. U+2028, U+2029, NEL, VT and FF are ordinary bytes. Bytes behind the
// last LF are an unterminated line. There is no limit on the length of a line,
// only on what is held of it; offsets and sizes have 64 bits. A byte-order mark
// is left to the caller (BOM).
//
// A text is JSON exactly when encoding/json.Valid says so: containers nest at
// most 10,000 deep, control characters in strings are raw nowhere, and three
// things are accepted and reported by offset: bad UTF-8 (which can only stand
// in strings), half a surrogate pair as an escape, and repeated keys. Repeated
// keys are looked for in the outermost object and in the member Keys.SubOf,
// where the reported values come from, not in objects deeper than that. They
// are compared as decoded text, and the report is exact: a suspicion by hash is
// verified before it is one. The last of them wins.
//
// # Parts
//
//	Reader    lines of a range of an io.ReaderAt; feeds a digest on the way
//	Scanner   strict scan of a line held in memory; the hot path
//	Oversized what the scan in passing found in a record over the limit
//	Salvage   whole objects in a malformed line
//	Members, Elements, Get, AppendText: slower looks into a valid value
//	Code, Diagnostic: the closed list of findings, those of dialects included
//
// There are two scanners with one verdict. The machine inside Scanner runs over
// a text in memory eight bytes at a time and knows nothing but yes or no. The
// stream takes bytes one by one in pieces of any size; it serves records that
// are never held and finds the place where a bad line fails. What is whole in a
// piece and was not asked for, it leaves to a machine. Tests hold both against
// encoding/json and against each other.
//
// A Scanner learns from its texts which keys there are and in what order, so
// that the next text like them is compared and not looked up. What it reports
// does not depend on that.
//
// # Invariants
//
//  1. Every byte of a range is in exactly one line, in order.
//  2. The digest gets the bytes of terminated lines only, each once, in order;
//     after Sync it stands at the end of the last line returned.
//  3. A Reader holds one buffer (1 MiB), and of a longer line at most
//     RecordBytesMax; the room of a long line is given back a buffer later.
//     Buffers that Swap hands out are the caller's.
//  4. Reading, scanning and the digest allocate nothing per line, but for lines
//     longer than the buffer, and lines whose keys repeat or seem to. A scanner
//     learns at most 63 keys of an object.
//  5. No input makes anything here panic; a bad line costs a constant number of
//     looks at it, plus at most 256 MiB of them in Salvage.
//
// # Concurrency
//
// A Reader and a Scanner are for one goroutine at a time. What they return is
// good until their next call, or for as long as their documentation says. Everything else is a function of its arguments.
package jsonl
