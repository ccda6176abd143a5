// Package client speaks the sessiond protocol as a client: calls (Conn), a
// resuming view of one session (Attachment), and a resuming writer (Appender).
//
// # Attachment
//
// An Attachment gives a session's view as items, in order and each once, for
// as long as the caller asks. Breaks - a dropped connection, a killed or
// restarted daemon, a goodbye, an overload - are not the caller's business:
// the Attachment connects again, with capped exponential back-off and full
// jitter, and goes on at its Place. What the caller sees is
//
//	*wire.AttachResult    attached, again after every break
//	*wire.SnapshotBegin   a view from its start: what was received before is void
//	                      (FirstIndex > 0: of a Place given; what it has stands)
//	*wire.SnapshotChunk, *wire.SnapshotAmend, *wire.SnapshotEnd
//	*wire.SnapshotFailed  the snapshot will not come to its end
//	*wire.Event           the change of one record
//	*Records              whole bytes of the file, encoding raw
//	*wire.Provisional     an unfinished last line, to be laid over the view
//	*wire.Live            what follows happens now
//	*wire.Removed         the file is gone; io.EOF follows
//
// A message view over the daemon's limits is refused, unless AttachOptions
// accept a part in its place: a SnapshotBegin that says so in Bounded. Slots
// keep their indexes of the whole view then, and Place.Have counts all. The
// part accepted is not a Place's: who goes on in another process accepts it
// again.
//
// Errors that the same request cannot cure (unknown session, bad argument)
// end it at once.
//
// # What is verified
//
// Chunk digests, the digest over them, the order of chunks, the sequence of
// events (no gap, none twice, in view records), and in encoding raw the
// number of lines and the linear digest, which is known when the Attachment
// saw the file from its start; else offsets and lines only. What does not fit
// is a *CorruptStreamError: the first makes the Attachment start from scratch,
// the second ends it.
//
// # Place
//
// A Place is where to go on, also in another process. Its text is one line:
//
//	<cursor or position> [have=<slots>] [rules=<rules revision>]
//
// Inside a snapshot it is a position, after it a cursor; message views also
// need the number of slots held and the rules they were made by. Store
// Attachment.Place after the item was dealt with. Several events in a row may
// have the same cursor and grow the slots only; each has a Place of its own.
// In encoding raw a record may
// come in several bodies (More is set); the Place stays before it until it is
// whole.
//
// # Concurrency
//
// A Conn may be used by many goroutines and has one of its own. An Attachment
// and an Appender belong to one goroutine at a time and have none: an
// Attachment reads its connection when it is asked for the next item, so a
// slow caller is a slow client and holds no memory.
package client
