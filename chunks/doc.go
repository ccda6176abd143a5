// Package chunks is the snapshot transcript cache: it packs the messages of a
// view into the chunks of snapshots, and keeps what it packed.
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
//	sum     xxh64 of the body, for what is read from spill
//
// # Store, Log and Snapshot
//
// A Store is what all logs share: the memory budget, the spill folder and its
// budget, and the snapshots, found by session and id.
//
// A Log is, for one view of one generation, the sealed full chunks: where
// they end, their digests, and where their bodies are. It is shared by all
// clients, grows, and is cut back where the view is.
//
// A Snapshot is one cut of a Log: the Log's full chunks before the cut, and a
// last one of its own. It is begun open, grows while it is packed, and becomes
// complete or failed, whichever comes first. It is shared by those who attach
// at the same cut, and disposed of when the last of them has left.
//
// # Where bodies are
//
// In memory until a Log has more than its bound or the Store more than its
// own; then all of the Log goes to spill, and new bodies with it. A body that
// is nowhere - the spill budget went to others, the disk is full, a byte of
// the file is damaged - is packed again from where its chunk begins, and must
// be the same as before. Where nothing can hold bodies, nothing is packed
// ahead: who asks for a chunk packs it. So a full disk costs time and fails no
// snapshot.
//
// # Spill
//
// Segment files <log id, 16 hex>-<number>.spill, 0600, in a folder 0700:
//
//	0   8 bytes  "sdspill\n"
//	8   4 bytes  version 1
//	12  4 bytes  0
//	16  8 bytes  log id
//	24  8 bytes  number
//	32  bodies, one after the other
//
// Numbers are big-endian. Files are appended to and never written twice: what
// a cut back leaves is garbage, and a log that is mostly garbage is packed
// anew. Nothing here needs to be durable: each read verifies the body's sum.
// Files are synced on the way all the same, a helper at a time, so that a
// session's appends do not wait behind a burst of spill; packers wait when too
// much is unsynced, readers do not. After a failure there is no spilling for
// 10 s.
//
// Save gives what Adopt needs to go on with a Log's files in another process;
// SetEnd and EndAt do that for a whole snapshot. What nobody adopts or names
// is swept; what is of no use any more is given to Discard.
//
// # Concurrency
//
// Everything may be used by any number of goroutines. A chunk's Body is shared
// and must not be modified.
//
// Lock order: Log.spilling, Log.mu or Snapshot.mu, but never both, and
// Store.mu before Snapshot.mu; nobody holds Store.mu and takes Log.mu.
// Log.spilling and segment.mu are held while files are written and opened, the
// token of a Snapshot while its source packs; listeners and watchers are
// called without mutexes.
package chunks
