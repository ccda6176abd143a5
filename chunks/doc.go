// Package chunks packs the messages of a view into the chunks of snapshots
// and remembers what it packed.
//
// # Packing
//
// Whole messages follow each other while the bytes of messages, their meta
// entries and commas stay within the target; one larger message is a chunk of
// its own; no messages, no chunks. So every chunk but a snapshot's last
// depends on the messages before its end alone: all full chunks are the same
// bytes in every later snapshot of the view, on every daemon, up to the place
// where the view was cut.
//
//	body    "meta":[...],"messages":[...]
//	digest  xxh64 of the messages array, brackets included
//
// # Log and Snapshot
//
// A Log holds, for one view of one generation, where the full chunks begin
// and their digests, and the bodies of the last few that were asked for. It is
// shared by all clients and cut back where the view is. A Snapshot is one cut
// of it: the Log's full chunks before the cut and its own last one, packed
// when they are asked for. Bodies are bounded per Log and over all Logs of a
// Budget; what is not held is packed again.
//
// # Concurrency
//
// A Log may be used by any number of goroutines. A Snapshot belongs to one.
// A chunk's Body is shared and must not be modified.
package chunks
