// Package migrations holds the schema of the index as ordered, frozen steps:
// step n turns a database of schema n-1 into one of schema n. Schema 0 is an
// empty database.
//
// # Rules
//
//  1. A step that was released is never edited; a change is a new step at the
//     end of Steps, in the same commit as the schema tree of package kv and a
//     database file of the new schema in testdata.
//  2. A step names its buckets and keys literally and uses nothing of kv: what
//     kv calls a thing tomorrow must not change what a step did yesterday.
//  3. A step runs in one transaction together with the new schema number, so a
//     process killed at any moment leaves the old schema or the new one.
//  4. A step that cannot keep something leaves it out: whatever the index
//     holds can be computed again.
//
// # Format
//
// Key "schema" of bucket "meta" is 16 bytes: the schema as a big-endian 64-bit
// number, then the complement of the same. It checks itself because it is read
// before it is known how anything else is written.
//
// # Concurrency
//
// Run belongs to the one goroutine that opens the database.
package migrations
