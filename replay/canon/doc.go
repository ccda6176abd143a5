// Package canon computes the canonical hash of JSON values: two messages have
// the same hash exactly when a program that parses JSON into doubles and
// Unicode strings sees the same value, however the bytes are spelled. It is
// how views are compared with what other readers of the same file make of it.
//
// # Format
//
// The hash is SHA-256 over this token stream, without separators:
//
//	null     n;
//	true     t;
//	false    f;
//	number   d, 16 hex digits of the big-endian IEEE double, ;
//	string   s, decimal UTF-8 byte length, :, bytes
//	array    [, items in order, ]
//	object   {, string token of key and token of value for each member, }
//
// Members are sorted by the UTF-8 bytes of their keys; of equal keys the last
// one counts. -0 is 0, and a number beyond the doubles (1e400) is null, as it
// is for a program that writes it back. An escaped surrogate pair is one
// character; each lone surrogate and each maximal bad UTF-8 sequence is U+FFFD.
//
// # Concurrency
//
// Sum may be called from any goroutine. An ArrayHasher belongs to one.
//
// # Caveats
//
// The value must be in memory. The work is linear in its size, but for the
// sorting of keys, whatever the nesting (at most 10,000 levels, as jsonl).
package canon
