// Package stamp holds what a session file is known by: its identity and
// change metadata (Stamp), and the linear digest of its content (Digest,
// Point, Checkpoints).
//
// # Format
//
// The digest is xxh64, seed 0, over all bytes from 0; it is the digest of the
// protocol's cursors. 64 bits exclude accidents, not a hostile writer.
//
// # Concurrency
//
// Stamps and Points are values. A Digest belongs to one goroutine.
package stamp
