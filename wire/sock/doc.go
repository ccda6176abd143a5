// Package sock moves the frames of package wire over a unix stream socket: it
// listens, dials, proves who the peer is, and runs the two loops of every
// connection. What a command means is the business of a Handler.
//
// # Socket
//
// The socket has mode 0600 in a folder that is checked, before anything is
// bound, to belong to the daemon's user and to be closed to everyone else; so
// neither the umask nor the moment between bind and chmod matters. A socket
// that is in the way is removed only when connecting to it was refused, which
// proves that no process listens, and only if it is still the same inode. The
// caller holds the lock of the state folder meanwhile. A path that does not
// fit the kernel's address structure is refused with its length; PathFor gives
// daemon and client the same short path instead.
//
// # Connection
//
// One read loop, one write loop. The read loop decodes commands and hands them
// to goroutines; the write loop alone owns the attachments' streams:
//
//		read loop -> handler goroutine -> queue -> write loop -> socket
//		                   Stream (with its reply) ---^   ^--- Stream.Next
//
//	  - Replies may overtake each other. An attach's reply enters the queue
//	    together with its stream, so it precedes the first frame; a detach's
//	    reply is written after its stream was closed, so nothing follows it.
//	  - Replies go first, then the attachments take turns, a frame each. Small
//	    frames that are ready at the same time share one vectored write.
//	  - A connection owes at most repliesOwedFactor * CommandsInFlightMax replies, then its read loop
//	    waits: a client that sends without reading stops itself.
//	  - Attachments have no queue. A stream is pulled when the socket has room;
//	    a client that accepts less than Options.SlowClientBytes within
//	    Options.SlowClientWindow while data waits is closed at once.
//	  - A peer that closes, or half-closes, still gets the replies it is owed;
//	    its attachments end.
//
// # Invariants
//
// Nothing outside a connection's own loops waits for its peer. Every stream
// that a Handler returned is closed exactly once, every frame's Release is
// called exactly once, also when the connection breaks. A panic in a Handler
// or Stream ends the command or the connection, never the daemon.
//
// # Caveats
//
// Linux is the tuned platform; on macOS the peer's user comes from
// LOCAL_PEERCRED. Credentials are those at the time of connect. The socket's
// send buffer stays at the system's default: a larger one was slower, as the
// bytes leave the processor's cache before the peer reads them.
package sock
