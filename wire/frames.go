package wire

import "encoding/json"

// View is a way to look at a session.
type View string

// The views.
const (
	ViewRecords    View = "records"
	ViewTranscript View = "transcript"
	ViewContext    View = "context"
)

// Valid reports whether v is a view of protocol version 1.
func (v View) Valid() bool { return v == ViewRecords || v == ViewTranscript || v == ViewContext }

// Encodings of the records view.
const (
	EncodingJSON = "json"
	EncodingRaw  = "raw"
)

// What a client accepts in place of a message view over the daemon's limits.
const (
	BoundedWindow  = "window"  // its last messages
	BoundedSummary = "summary" // no messages, only what is told beside them
)

// BoundedModes are all that a client may accept.
var BoundedModes = []string{BoundedWindow, BoundedSummary}

// Attach modes.
const (
	ModeTail     = "tail"
	ModeSnapshot = "snapshot"
)

// Reasons for which an attach with a cursor is answered by a snapshot.
const (
	ReasonNoCursor  = "no_cursor"
	ReasonRewritten = "rewritten"
	ReasonTruncated = "truncated"
	ReasonAhead     = "ahead"
	ReasonExpired   = "expired"
	ReasonFarBehind = "far_behind"
)

// Purposes of a snapshot.
const (
	PurposeAttach      = "attach"
	PurposeResync      = "resync"
	PurposeReplacement = "replacement"
)

// Reasons of a cut inside a message view.
const (
	CutBranch     = "branch"
	CutCompaction = "compaction"
	CutCheckpoint = "checkpoint"
	CutHeader     = "header"
)

// Frame types that a server sends.
const (
	TypeHello          = "hello"
	TypeResponse       = "response"
	TypeSnapshotBegin  = "session_snapshot_begin"
	TypeSnapshotChunk  = "session_snapshot_chunk"
	TypeSnapshotAmend  = "session_snapshot_amend"
	TypeSnapshotEnd    = "session_snapshot_end"
	TypeSnapshotFailed = "session_snapshot_failed"
	TypeRecords        = "session_records"
	TypeEvent          = "session_event"
	TypeProvisional    = "session_provisional"
	TypeLive           = "session_live"
	TypeRemoved        = "session_removed"
	TypePing           = "ping"
	TypeGoodbye        = "goodbye"
)

// Command types that a client sends.
const (
	CmdHello  = "hello"
	CmdList   = "list"
	CmdCreate = "create"
	CmdAppend = "append"
	CmdAttach = "attach"
	CmdDetach = "detach"
	CmdRead   = "read"
	CmdStatus = "status"
	CmdPing   = "ping"
)

// Frame is one outgoing unit, written with one vectored write: Head, Body and
// Tail in this order. Head and Tail belong to the frame; Body may be shared
// and is read only until Release is called (nil: nothing to release).
type Frame struct {
	Head, Body, Tail []byte
	Release          func()
}

// Stream is an attachment's source of frames, pulled by the one write loop of
// its connection. Implementations need not be safe for concurrent use, apart
// from the wake function that they call and from Close.
type Stream interface {
	// Next returns the next frame. ok=false: nothing is ready; the stream
	// calls wake when that may have changed. io.EOF: the attachment is over,
	// its last frame was given out. Any other error ends the connection.
	// Next may read files but never waits for another party.
	Next() (f Frame, ok bool, err error)
	// Start is called once, before the first Next, with the function that
	// wakes the connection; wake never blocks.
	Start(wake func())
	// Close frees what the attachment retains. Safe to call twice.
	Close()
}

// Hello is the server's first frame.
type Hello struct {
	Type           string   `json:"type"`
	Protocol       Protocol `json:"protocol"`
	SchemaRevision int      `json:"schemaRevision"`
	Server         Server   `json:"server"`
	Capabilities   []string `json:"capabilities"`
	Limits         Limits   `json:"limits"`
}

// Protocol names the protocol and its breaking version.
type Protocol struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
}

// Server tells two daemon processes apart.
type Server struct {
	Version  string `json:"version"`
	Instance string `json:"instance"`
}

// Limits are sizes in bytes; 0 in a client's hello means the server's own.
type Limits struct {
	FrameBytes  int `json:"frameBytes,omitempty"`
	ChunkBytes  int `json:"chunkBytes,omitempty"`
	InlineBytes int `json:"inlineBytes,omitempty"`
}

// Command is a client's frame: the union of all commands' arguments.
type Command struct {
	ID   string `json:"id,omitempty"`
	Type string `json:"type"`

	// hello
	ClientID     string   `json:"clientId,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
	Limits       *Limits  `json:"limits,omitempty"`

	// list
	Root  string `json:"root,omitempty"`
	Limit int    `json:"limit,omitempty"`
	After string `json:"after,omitempty"`
	Order string `json:"order,omitempty"` // also attach

	// create
	SessionID string          `json:"sessionId,omitempty"`
	Dialect   string          `json:"dialect,omitempty"`
	CWD       string          `json:"cwd,omitempty"`
	Header    json.RawMessage `json:"header,omitempty"`

	// append
	Session string   `json:"session,omitempty"` // also attach, read
	Entries []string `json:"entries,omitempty"`
	Expect  *Cursor  `json:"expect,omitempty"`

	// attach
	View          View      `json:"view,omitempty"` // also read
	Encoding      string    `json:"encoding,omitempty"`
	Resume        *Cursor   `json:"resume,omitempty"`
	Have          *int      `json:"have,omitempty"` // slots, message views
	RulesRevision string    `json:"rulesRevision,omitempty"`
	Position      *Position `json:"position,omitempty"`
	Live          *bool     `json:"live,omitempty"`    // default true
	Bounded       string    `json:"bounded,omitempty"` // accepted, message views; "": nothing but the whole

	// detach
	Attachment string `json:"attachment,omitempty"`

	// read
	Ref    *Ref  `json:"ref,omitempty"`
	From   int64 `json:"from,omitempty"`
	Length int64 `json:"length,omitempty"`
}

// Request is a command on its way from a connection to the engine.
type Request struct {
	Command
	Attachment string // the id that an attach of this command gets
	FrameBytes int    // the largest raw body the client takes
}

// Response is what the engine makes of a request: Result is marshalled into
// the reply; Stream, of an attach only, starts after the reply was sent.
type Response struct {
	Result any
	Stream Stream
}

// Ref stands in a view for an object over InlineBytes; read fetches its
// bytes. It names the object by its place and proves it by its digest, not by
// a generation: chunks must be the same bytes on every daemon.
type Ref struct {
	Sequence Sequence `json:"sequence"`
	Part     int      `json:"part"`  // slot part within the record
	Bytes    int64    `json:"bytes"` // of the object
	Digest   Digest   `json:"digest"`
	Role     string   `json:"role,omitempty"`
}

// State is the turn state of a session, derived from its records alone.
type State struct {
	Turn            string          `json:"turn"`
	OpenCalls       []string        `json:"openCalls"`
	PendingRequests []string        `json:"pendingRequests"`
	Queued          []string        `json:"queued"`
	Settings        json.RawMessage `json:"settings"`
}

// Turn states.
const (
	TurnIdle          = "idle"
	TurnRunning       = "running"
	TurnAwaitingTool  = "awaiting_tool"
	TurnAwaitingInput = "awaiting_input"
	TurnInterrupted   = "interrupted"
	TurnUnknown       = "unknown"
)

// Session is one line of a listing. Null means not known without a scan.
type Session struct {
	Session          string   `json:"session"` // key: root:path
	ID               string   `json:"id"`
	Root             string   `json:"root"`
	Dialect          *string  `json:"dialect"`
	Path             string   `json:"path"`
	Aliases          []string `json:"aliases,omitempty"`
	Title            *string  `json:"title"`
	CWD              *string  `json:"cwd"`
	MessageCount     *int     `json:"messageCount"`
	RecordCount      *int64   `json:"recordCount"`
	Bytes            int64    `json:"bytes"`
	Created          *string  `json:"created"`
	Modified         *string  `json:"modified"`
	State            *State   `json:"state"`
	Head             *Cursor  `json:"head"`
	DiagnosticsCount *int     `json:"diagnosticsCount"`
	Owned            bool     `json:"owned"`
	Error            string   `json:"error,omitempty"`
}

// ListResult answers list; Next is the value of after for the next page.
type ListResult struct {
	Sessions []Session `json:"sessions"`
	More     bool      `json:"more"`
	Next     string    `json:"next,omitempty"`
}

// CreateResult answers create.
type CreateResult struct {
	Session  string `json:"session"`
	ID       string `json:"id"`
	Path     string `json:"path"`
	Existing bool   `json:"existing"`
	Head     Cursor `json:"head"`
}

// Ack acknowledges one entry: it is on disk, and was there already where
// Duplicate is set.
type Ack struct {
	Cursor    Cursor `json:"cursor"`
	Duplicate bool   `json:"duplicate"`
}

// AppendResult answers append, one Ack for each entry in order.
type AppendResult struct {
	Acks []Ack   `json:"acks"`
	Head Cursor  `json:"head"`
	Leaf *string `json:"leaf"`
}

// AttachResult answers attach and precedes the attachment's first frame.
type AttachResult struct {
	Attachment    string     `json:"attachment"`
	Session       string     `json:"session"`
	ID            string     `json:"id"`
	Generation    Generation `json:"generation"`
	RulesRevision string     `json:"rulesRevision"`
	Mode          string     `json:"mode"`
	Reason        *string    `json:"reason"`
	Head          Cursor     `json:"head"`
	Leaf          *string    `json:"leaf"`
	Bounded       *Bounded   `json:"bounded,omitempty"` // of the snapshot that follows
}

// Bounded says that a snapshot is not the whole of a view, which is over a
// limit of the daemon: it holds the slots from First on. Indexes and counts
// of slots are those of the whole view all the same.
type Bounded struct {
	Mode  string `json:"mode"`
	First int    `json:"first"`
	Unit  string `json:"unit"` // of Limit and Seen: records or bytes
	Limit int64  `json:"limit"`
	Seen  int64  `json:"seen"` // that the whole view is made of
}

// FirstSlot is the first slot that is held; nil means all.
func (b *Bounded) FirstSlot() int {
	if b == nil {
		return 0
	}
	return b.First
}

// ReadResult answers read.
type ReadResult struct {
	Data []byte `json:"data"` // base64 on the wire
	More bool   `json:"more"`
}

// SnapshotBegin opens a snapshot.
type SnapshotBegin struct {
	Type             string     `json:"type"`
	Attachment       string     `json:"attachment"`
	ActiveSessionID  string     `json:"activeSessionId"`
	SnapshotID       SnapshotID `json:"snapshotId"`
	View             View       `json:"view"`
	Generation       Generation `json:"generation"`
	RulesRevision    string     `json:"rulesRevision"`
	Cut              Cursor     `json:"cut"`
	MessageCount     *int       `json:"messageCount"`
	TargetChunkBytes int        `json:"targetChunkBytes"`
	FirstIndex       int        `json:"firstIndex,omitempty"` // of a continued snapshot
	Purpose          string     `json:"purpose"`
	Reason           *string    `json:"reason"`
	OldBytes         *int64     `json:"oldBytes,omitempty"`
	NewBytes         *int64     `json:"newBytes,omitempty"`
	DiagnosticsCount int        `json:"diagnosticsCount"`
	Bounded          *Bounded   `json:"bounded,omitempty"`
	State            *State     `json:"state"`
}

// SnapshotChunk is the head of a chunk frame; messages follow it verbatim.
type SnapshotChunk struct {
	Type            string          `json:"type"`
	Attachment      string          `json:"attachment"`
	ActiveSessionID string          `json:"activeSessionId"`
	SnapshotID      SnapshotID      `json:"snapshotId"`
	Index           int             `json:"index"`
	Digest          Digest          `json:"digest"`
	Meta            json.RawMessage `json:"meta,omitempty"`
	Messages        json.RawMessage `json:"messages,omitempty"`
}

// Meta describes the message at the same place of "messages".
type Meta struct {
	Sequences []Sequence `json:"sequences"`
	Group     string     `json:"group,omitempty"`
	Notes     []Note     `json:"notes,omitempty"`
}

// Note marks a message.
type Note struct {
	Code string `json:"code"`
}

// Amendment replaces the message of a slot; null leaves the slot out.
type Amendment struct {
	Index   int             `json:"index"`
	Message json.RawMessage `json:"message"`
}

// SnapshotAmend carries amendments of a snapshot's messages.
type SnapshotAmend struct {
	Type       string      `json:"type"`
	Attachment string      `json:"attachment"`
	SnapshotID SnapshotID  `json:"snapshotId"`
	Amendments []Amendment `json:"amendments"`
}

// Unanswered names a tool call without a result.
type Unanswered struct {
	Sequence Sequence `json:"sequence"`
	CallID   string   `json:"callId"`
}

// SnapshotEnd closes a snapshot.
type SnapshotEnd struct {
	Type             string       `json:"type"`
	Attachment       string       `json:"attachment"`
	ActiveSessionID  string       `json:"activeSessionId"`
	SnapshotID       SnapshotID   `json:"snapshotId"`
	ChunkCount       int          `json:"chunkCount"`
	MessageCount     int          `json:"messageCount"`
	Digest           Digest       `json:"digest"`
	Cut              Cursor       `json:"cut"`
	AmendmentCount   int          `json:"amendmentCount"`
	AmendmentsDigest Digest       `json:"amendmentsDigest"`
	Unanswered       []Unanswered `json:"unanswered"`
	State            *State       `json:"state"`
}

// SnapshotFailed ends a snapshot that cannot be completed.
type SnapshotFailed struct {
	Type            string     `json:"type"`
	Attachment      string     `json:"attachment"`
	ActiveSessionID string     `json:"activeSessionId"`
	SnapshotID      SnapshotID `json:"snapshotId"`
	Error           *Error     `json:"error"`
	ErrorMessage    string     `json:"errorMessage"`
}

// Records is the line before a raw body of Bytes bytes.
type Records struct {
	Type       string   `json:"type"`
	Attachment string   `json:"attachment"`
	First      Sequence `json:"first"` // sequence of the first record (or part) in the body
	Count      int64    `json:"count"` // records that end in the body
	Bytes      int      `json:"bytes"`
	More       bool     `json:"more"`   // the last record goes on in the next body
	Cursor     Cursor   `json:"cursor"` // after the last whole record
	Replayed   bool     `json:"replayed"`
}

// Event is the change that one record makes; Record for the records view, the
// delta (Keep, Amended, Meta, Messages) for message views.
type Event struct {
	Type            string          `json:"type"`
	Attachment      string          `json:"attachment"`
	ActiveSessionID string          `json:"activeSessionId"`
	Cursor          Cursor          `json:"cursor"`
	Replayed        bool            `json:"replayed"`
	Keep            *int            `json:"keep,omitempty"`
	Reason          string          `json:"reason,omitempty"`
	Amended         []Amendment     `json:"amended,omitempty"`
	Have            *int            `json:"have,omitempty"`
	State           *State          `json:"state,omitempty"`
	Meta            json.RawMessage `json:"meta,omitempty"`
	Messages        json.RawMessage `json:"messages,omitempty"`
	Record          json.RawMessage `json:"record,omitempty"`
}

// Provisional lays an unterminated last line over the view: a delta against
// the slots held, or only Bytes where it is too large or has other effects.
type Provisional struct {
	Type            string          `json:"type"`
	Attachment      string          `json:"attachment"`
	ActiveSessionID string          `json:"activeSessionId"`
	Bytes           int64           `json:"bytes"`
	Keep            *int            `json:"keep,omitempty"`
	Meta            json.RawMessage `json:"meta,omitempty"`
	Messages        json.RawMessage `json:"messages,omitempty"`
	Record          json.RawMessage `json:"record,omitempty"`
}

// Live marks the seam between what was there and what happens now.
type Live struct {
	Type       string `json:"type"`
	Attachment string `json:"attachment"`
	Cursor     Cursor `json:"cursor"`
	State      *State `json:"state"`
}

// Removed ends an attachment whose session file is gone.
type Removed struct {
	Type            string `json:"type"`
	Attachment      string `json:"attachment"`
	ActiveSessionID string `json:"activeSessionId"`
	Bytes           int64  `json:"bytes"` // last known length
}

// Goodbye precedes the end of a connection, best effort.
type Goodbye struct {
	Type    string `json:"type"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Reply is a server's answer to a command.
type Reply struct {
	Type   string          `json:"type"`
	ID     string          `json:"id"`
	OK     bool            `json:"ok"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
}
