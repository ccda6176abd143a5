// Package wire is the vocabulary of the sessiond protocol, version 1: frames,
// cursors, positions, error codes, limits and their codecs. It opens nothing;
// package sock moves frames over a unix socket, package client speaks the
// protocol as a client.
//
// # Format
//
// Every frame is one JSON object on one line, ended by LF. The one exception
// is session_records, whose line is followed by exactly "bytes" bytes of the
// session file. docs/protocol.md is the specification.
//
//	cursor text    s1.<generation>.<sequence>.<offset>.<digest>
//	position text  p1.<snapshot id>.<view>.<target>.<index>.<cut cursor without "s1.">
//
// Incoming frames must be valid UTF-8 and an entry's text must survive its
// JSON string: a frame that the decoder would silently repair is refused.
//
// # Concurrency
//
// Values of this package are plain data; a Frame's Body may be shared between
// connections and must not be modified.
package wire
