package dialect

import (
	"encoding/json"
	"time"

	"sessiond/replay/jsonl"
	"sessiond/replay/pages"
)

// View is a message view.
type View uint8

// The message views.
const (
	Transcript View = iota // all messages of the active branch
	Context                // the messages that a resume would give the model
	Views                  // how many there are
)

// String returns the view's name on the wire.
func (v View) String() string {
	if v == Context {
		return "context"
	}
	return "transcript"
}

// Object is one JSON object of the file, a line's own or salvaged from one.
type Object struct {
	Sequence    uint64 // of its line
	Index       int64  // among the lines that parse as JSON, from 0; -1 for salvaged objects
	Offset      int64  // of its first byte in the file
	Bytes       int64  // its length
	Text        []byte // valid during Add only; nil when Oversized
	Scan        *jsonl.Scan
	Oversized   *jsonl.Oversized // values relative to Offset
	Salvaged    bool
	Again       bool // an entry before it has its id; known once it was added
	Provisional bool // the unterminated last line, of an offline replay only
}

// HasInvalidUTF8 reports whether the object holds bytes that are no UTF-8.
func (o Object) HasInvalidUTF8() bool {
	if o.Oversized != nil {
		return o.Oversized.InvalidUTF8
	}
	return o.Scan.InvalidUTF8 >= 0
}

// Slot is a place in a message view: a part of an entry.
type Slot struct {
	Entry int32
	Part  uint8
}

// Slots are the slots of a view, in order.
type Slots = pages.List[Slot]

// Body says how to make a slot's message.
type Body struct {
	Sequence uint64
	Object   int64    // offset of the entry's object in the file
	Role     string   // of generated messages and markers; "" for the writer's own
	Notes    []string // codes for the message's meta
	Offset   int64    // of the message in the file
	Bytes    int64    // its length there; with Render, about what that reads, 0 where it is little
	Fix      bool     // the range holds bad UTF-8, which Render's absence does not mend
	// Render appends the message to dst; nil: the message is the file's bytes
	// [Offset, Offset+Bytes), made valid UTF-8 where Fix says so.
	Render func(dst []byte, w *Window) ([]byte, error)
}

// Amendment says that a slot's message changed after its own record.
type Amendment struct {
	Index    int    // of the slot in its view
	Sequence uint64 // of the record that changed it last
}

// Cut says how much of a view stands, and why no more.
type Cut struct {
	Keep   int    // slots
	Reason string // one of the Reason constants; "" when nothing was cut
}

// Reasons of a cut.
const (
	ReasonBranch     = "branch"
	ReasonCompaction = "compaction"
	ReasonHeader     = "header"
)

// Cutoff is where a view begins that leaves out what was compacted.
type Cutoff struct {
	By            uint64 // sequence of the compaction that rules
	Sequence      uint64 // of the first record that the view needs
	Offset        int64  // of its object in the file
	Before, After int64  // entries of the file before it, and from it on
}

// Place is where an object stands in the file.
type Place struct {
	Sequence uint64
	Offset   int64
	Bytes    int64
}

// State is the turn state at the head, derived from records alone.
type State struct {
	Turn            string
	OpenCalls       []string
	PendingRequests []string
	Queued          []string
	Settings        json.RawMessage
}

// Info is what a listing shows of a session.
type Info struct {
	ID       string // "" when the file does not say
	CWD      string
	Title    string
	Status   string // the newest valid state of the session itself, "" if none
	Version  int    // as the family counts its formats
	Newer    bool   // than this build knows
	Created  time.Time
	Modified time.Time // the newest plausible time of a user or assistant record
	Entries  int64
	Messages [Views]int // slots

	Branches    int // entries where an older entry was continued
	Compactions []Compaction
}

// Compaction describes one compaction of the file.
type Compaction struct {
	Sequence     uint64
	TokensBefore json.RawMessage
	State        string // anchored: retains messages; unanchored: retains none by its own fields; broken: names what is not there
}

// Facts are what a report counts of one object.
type Facts struct {
	Type    string
	Known   bool // the dialect knows the type
	Entry   bool // it is an entry, not a header
	Role    string
	Calls   []Call
	Results []string // call ids answered
	Usage   *Usage
	Time    time.Time
}

// Call is one tool call.
type Call struct{ ID, Name string }

// Usage is what one model response cost. Cost is in millionths of a US
// dollar; HasCost is false where the file does not say.
type Usage struct {
	Input, Output, CacheRead, CacheWrite, Reasoning int64
	CostMicroUSD                                    int64
	HasCost                                         bool
}

// Preview is what an object would do to a view if its line ended now.
type Preview struct {
	Cut  Cut // of the view at the head
	Body *Body
	Slot Slot
}

// Session is a dialect's understanding of one file.
type Session interface {
	// Add takes the next object in file order and reports whether an entry
	// before it has its id. A *Restart asks for the file to be read again from
	// its start with another understanding.
	Add(o *Object) (again bool, err error)
	// Commit ends a batch of Adds; until then the views are those of the
	// last Commit or undefined.
	Commit()

	// Slots returns the view's slots at the head. It may compute them, and
	// excludes everything else like Add; once called, Add and Commit keep
	// them up to date. What it returned before stays as it is.
	Slots(v View) Slots
	// Keep returns how many of the slots that the view had after a sequence
	// stand at the head at the most; All when nothing was cut since.
	Keep(v View, after uint64) Cut
	// Cutoff returns where the view at the head begins; ok is false where that
	// is the start of the file.
	Cutoff(v View) (c Cutoff, ok bool)
	// Amendments returns the slots at the head whose message was changed by
	// a record after the sequence, by index.
	Amendments(v View, after uint64) []Amendment
	// Body describes a slot's message as of its own record or, amended, as
	// of the head.
	Body(v View, s Slot, amended bool) Body
	// Preview tells what an object would do to a view; ok is false where the
	// effect is not a plain addition.
	Preview(v View, o Object) (p Preview, ok bool)

	// State derives the turn state at the head.
	State(w *Window) (State, error)
	// Leaf returns the id of the entry at the head, "" if there is none.
	Leaf(w *Window) (string, error)
	// Info returns the listing fields.
	Info(w *Window) (Info, error)
	// Facts looks at one object for a report; it changes nothing.
	Facts(o Object) Facts
	// Held returns where objects with this entry's id stand, the first most of
	// them, for append by id; id is "" where the entry has none. ok is false in
	// dialects without ids. Entries inside salvaged lines are not held.
	Held(entry []byte, most int) (id string, held []Place, ok bool)
	// Diagnostics returns the findings at the head, by line, and whether there
	// were more than are held.
	Diagnostics() (list []jsonl.Diagnostic, truncated bool)
	// Bytes is the memory held.
	Bytes() int64
}

// Restart asks for another understanding of a file, of which Hint tells New.
type Restart struct{ Hint int }

// Error implements error.
func (r *Restart) Error() string { return "dialect: the file must be read again from its start" }

// Family is a family of formats.
type Family interface {
	// Name is the dialect's name in listings.
	Name() string
	// Rules is the rules revision: it changes with the rendering code.
	Rules() string
	// Keys are the members that a scan reports to Add, and those more that
	// Facts looks at.
	Keys(facts bool) jsonl.Keys
	// Envelope reports whether an object carries all members of an entry or
	// header, so that salvage may believe in it. Keys apply.
	Envelope(s *jsonl.Scan, text []byte) bool
	// New starts the understanding of a file; hint is 0 or a Restart's. What it
	// holds a record is in the space, which is locked during Add, Commit and
	// Slots; a page that is lost panics as package pages has it.
	New(hint int, space *pages.Space) Session
	// Detect looks at the n-th object, from 0, of a file of which no family
	// was sure yet. Keys do not apply; jsonl.Get does.
	Detect(n int, object []byte) bool
	// Header makes the first bytes of a new session file, LF included.
	Header(id, cwd string, now time.Time) ([]byte, error)
}
