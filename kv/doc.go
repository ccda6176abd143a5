// Package kv is the index: it remembers, across restarts, what was found out
// about sessions. It is never an authority. Everything in it can be computed
// again, so every failure means an absent value, and none stops the daemon.
//
// # Schema
//
// The file is a bbolt database of schema 2 (see package migrations):
//
//	meta
//	  schema            number of the schema; its format is that of migrations
//	signatures
//	  <session key>     signature, read for all sessions at start
//	listings
//	  <session key>     listing, JSON of Listing
//	checkpoints
//	  <session key>     checkpoints of the linear digest, as stamp.Checkpoint.AppendBinary writes them, in order
//	views
//	  <session key> 0 <view name>
//	                    chunk list of a view; a session may have several
//	tombstones
//	  <session key>     what is left of a session whose file was removed
//
// # Format of a value
//
//	offset  bytes  content
//	0       1      version of the value
//	1       n      content
//	1+n     8      xxh64 of bucket name, 0, key, 0 and the bytes before
//
// Numbers are big-endian. A value with another checksum or version is absent
// and counted: bbolt has no page checksums and returns a flipped bit silently.
//
// A signature, version 2; version 1 has no flags and is not trusted:
//
//	offset  bytes  content
//	0       1      1
//	1       40     stamp: size, mtime, ctime (ns), device, inode
//	41      8      time of reading (ns since 1970)
//	49      24     head: sequence, offset, digest
//	73      16     boot id
//	89      16     generation
//	105     1      flags: bit 0 an equal stamp proves equal content, others 0
//	106     1+d    dialect, after its length
//	107+d   1+r    rules revision, after its length
//
// A view, version 1:
//
//	offset  bytes  content
//	0       1      1
//	1       8      chunk target in bytes
//	9       24     head: sequence, offset, digest
//	33      8      number of chunks
//	41      8      bytes of all chunks
//	49      1+r    rules revision, after its length
//	50+r    2      number of segments
//	52+r           names of the segments, each after its length (1 byte)
//	...            data, in the form of package chunks, up to the end
//
// A tombstone, version 1:
//
//	offset  bytes  content
//	0       1      1
//	1       8      time of removal (ns since 1970)
//	9       16     generation
//	25      24     head: sequence, offset, digest
//	49      8      bytes of the file
//	57      1+i    id, after its length
//
// # Tombstones
//
// Each Put that puts one drops those over TombstoneAgeMax, and the oldest
// beyond TombstonesMax.
//
// # Damage
//
//  1. A file is checked before bbolt maps it: as long as its meta page says,
//     and a tree and a freelist without a cycle (see check).
//  2. bbolt runs on guarded goroutines (see handle): a fault of the mapped
//     file or a panic drops the handle, and every caller finds nothing.
//  3. A damaged file is renamed to index.db.bad-<time> and one of a newer
//     schema to index.db.schema-<n>; the newest three of each are kept. A file
//     at BytesMax is removed. An empty index takes the place, and the Listener
//     is told. Put repairs, reads do not: no reader waits for a sync.
//  4. Where there can be no index - a full disk, a read-only folder - reads
//     find nothing and Put drops its batch. The first Put after a back-off
//     tries again.
//  5. A new file is made under a temporary name, closed, renamed, and the
//     folder synced. A temporary file of a killed process is removed at Open.
//
// Caveats: a file that another program overwrites while it is open is noticed
// only where that faults or a value's checksum fails. The mapping of a dropped
// handle stays until the process ends.
//
// # Offline
//
// An Offline reads an index that no process holds, under a shared lock that it
// keeps only while it copies a page. It writes nothing: what it finds wrong it
// returns. The guards are those of an Index.
//
// # Concurrency
//
// An Index is safe for concurrent use. Reads run beside each other and beside
// the one writer. No transaction is open while a caller's function runs; what
// is returned belongs to the caller. One process uses a folder at a time: the
// caller holds the lock of the state folder.
package kv
