// Package follow notices that session files below roots came, went or
// changed. It reads no file: it lists folders and takes stamps.
//
// # How
//
// Three sources, each sufficient alone and each feeding the same two
// callbacks: events of the operating system on every folder below a root; a
// look at the stamps of hot paths each second; a walk of all roots every 30
// seconds, which also watches folders that events missed. When the event queue
// overflowed, or held more names than pendingMax, each root is walked and
// reported as a whole. Where events cannot come - the watcher does not start,
// the limit of watches is reached, the file system is a network's, the
// platform is not Linux, an option says so - the root is in mode polling and
// the other two do the work.
//
// # Which files
//
// A session file is a regular file named *.jsonl, not beginning with a dot,
// at most DepthMax folders below its root. A symbolic link to one counts if
// its target lies in the root too, and then has the target's stamp; events
// come under the target's name, so that a change is reported under the link's
// only by a sweep. Links to folders are never followed: what is inside the
// root is found by its own name, and what is outside is not the root's. That
// also makes loops impossible.
//
// # Contract of the callbacks
//
// They run one after the other on one goroutine, which does nothing else
// meanwhile; events are drained and merged by another, so that a slow callback
// costs no event. A report says "look", not what happened: the file may be as
// it was, or gone. A path's stamp is taken before the report, so that no later
// change is lost. Callbacks must not call Close or AddRoot.
//
// # Concurrency
//
// A Watcher may be used by any number of goroutines. No lock is held during
// file-system calls or callbacks.
//
// # Caveats
//
// One folder under two names, by roots that overlap through symbolic links or
// mounts, has its events under the first name only; the sweeps see both. A
// root that does not exist yet is found by the walk of all roots. Paths are
// absolute and cleaned by the caller.
package follow
