// Package replay reads a session file once and keeps what it learned: a
// Replay is an index of the file's records, its head (sequence, offset and
// linear digest), checkpoints of that digest, its message views and its
// diagnostics. Cache holds one Replay a session.
//
// It opens no file: a source is given with every call that reads. Time is
// passed in. No goroutine outlives a call, the cache library's own excepted.
//
// # Reuse
//
// Renew is the one rule for using a replay again: nothing is read where a
// stamp.Proof holds, the ends and the new bytes of a file that grew, and else
// all that was read before is compared and not parsed. Cache.Load renews what
// it holds and builds the rest. Restore makes a replay of what was remembered
// of an unchanged file: it knows its head and its listing, and reads its
// records when it is woken.
//
// # Records
//
// A record ends at LF and nothing else. A malformed or blank line is a record
// too. The bytes after the last LF are the tail: a tail that parses as one
// object is provisional; an online replay only describes it (Tail, Preview),
// an offline one takes it as the last entry, marked.
//
// # Invariants
//
//   - A Replay extended by new bytes equals a fresh one of the whole file.
//   - Views are pure functions of the bytes before the head and the rules.
//   - A bad line never hides a good one; every skipped byte has a diagnostic.
//   - No text is held, whatever the size of the file.
//
// # Concurrency
//
// A Replay is safe for concurrent use: one Extend at a time, readers side by
// side with it in pieces. Slices that it returns are never written again. Head,
// Checkpoints and Block take no lock: a source may ask for them while a reader
// that it serves holds one.
package replay
