package wire

import "time"

// Protocol names and versions.
const (
	ProtocolName    = "sessiond"
	ProtocolVersion = 1
	SchemaRevision  = 2
)

// Capabilities of this build's server.
var Capabilities = []string{"raw_records", "positions", "amendments", "provisional", "refs", "bounded_views"}

// Sizes in bytes, counts in units.
const (
	FrameBytesMax   = 16 << 20  // one incoming line, one outgoing raw body
	ChunkBytes      = 512 << 10 // packing target of a snapshot chunk
	InlineBytes     = 1 << 20   // a larger message or record travels as a ref
	FrameOverhead   = 64 << 10  // no outgoing line exceeds InlineBytes+FrameOverhead
	FrameBytesMin   = InlineBytes + FrameOverhead
	ListLimitMax    = 1000
	BatchEntriesMax = 10000
	SessionIDMax    = 128
	IDBytesMax      = 256 // a command's id

	// IncomingBytesMax is the one budget of a daemon for large frames on
	// their way in, until their commands are done.
	IncomingBytesMax = 256 << 20

	CommandsInFlightMax = 32   // per connection
	AttachmentsMax      = 64   // per connection
	ConnectionsMax      = 1024 // per daemon
	ConnectionsReserve  = 8    // of these kept for status
)

// Times of a connection.
const (
	PingInterval     = 10 * time.Second // of silence, then the server pings
	SlowClientWindow = 30 * time.Second // in which a reader must accept SlowClientBytes
	SlowClientBytes  = 256 << 10
)
