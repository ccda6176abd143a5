// Package journal appends durably to one owned session file.
//
// It owns the open file for appending: its lock, its end, the repair of its
// tail, and the published head - the last record that is known to be on disk,
// with the linear digest there. It knows lines, not entries: what is written,
// what is a duplicate and what conflicts is decided by the caller's Prepare,
// which runs in the writer goroutine with the head as it will be.
//
// # Guarantees
//
//   - Append returns nil only after one successful fdatasync of this open of
//     the file covered everything up to the returned point, and the path still
//     named this file afterwards - also when Prepare had nothing to write,
//     which is how a duplicate is acknowledged (I1).
//   - Open syncs the file and its folder before the head is published: what a
//     killed process left in the page cache counts only then.
//   - One goroutine writes (I3): sequences are dense and in the order in which
//     requests were taken. What waits is written together: one write, one
//     sync.
//   - Head never blocks and never shows a byte that was not synced.
//   - A tail without LF is repaired at Open and nowhere else: a whole JSON
//     object gets its LF; anything else is copied to TornDir, the copy synced,
//     and cut; where no copy can be kept it is ended by an LF and stays. NULs
//     that an LF ended are a record like any other and stay.
//
// # Failure
//
// A write, sync or check that fails makes the bytes of its group suspect. All
// its callers fail together with an *AppendError, after the group was cut off
// again and the cut synced (outcome none), or after that failed too (outcome
// unknown). Then the journal is latched: it refuses appends at its durable
// head, and each Append first tries the cut again, so that it recovers without
// being reopened. After a failed sync the descriptor is closed, never synced a
// second time, and the cut is done through a new one. Only bytes that are the
// end of the file are cut: where another program has written behind them, they
// are taken as found after a failed write, and the journal stays latched after
// a failed sync, for then nothing would prove them.
//
// A path that names another file or none is ErrGone, a file that became
// shorter than its head ErrRewritten. Both are final: the descriptor is
// closed, and the owner opens again or gives up.
//
// # Another writer
//
// The lock binds only those who ask for it. What another program appended is
// found before each group, by the size, and behind each write, by where it
// landed. Its whole lines are synced and become records before a request sees
// the head; a line that it did not finish is ended by an LF, so that ours
// never continues it. A line that it began in the instant between the two
// checks takes our first line with it: the request that wrote it is prepared
// and written again, behind an LF. Interleaved in a Result and the count of
// Interleavings report all this; nothing is reordered.
//
// # Concurrency
//
// A Journal may be used by any number of goroutines. Prepare and OnCommit run
// in the writer goroutine: they must not call Append or Close, and every
// caller waits while they run.
//
// # Caveats
//
// Open trusts the checkpoint it is given as far as it can see without reading
// the file before it. If the sync that covers another program's bytes fails, a
// later sync cannot prove those; only own bytes are written again. A program
// that cuts or rewrites the file in place is noticed only where it becomes
// shorter than the head.
package journal
