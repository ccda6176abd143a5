// Package engine keeps the sessions of a daemon: which there are, what their
// files hold now, who is attached, and what is appended. It answers the
// commands of the protocol (Handle) and knows no socket.
//
// # Ownership
//
// A session is one JSONL file. Files of the sessions folder are owned: they
// are appended to through a journal, which holds their lock. Files below the
// other roots are followed: opened for reading only, never locked or written.
//
// A generation is one incarnation of a file's history: an open descriptor, a
// replay, the chunk logs of its views. A session has at most one current
// generation; streams that began under an older one keep it until they have
// turned to the new one. It is opened by the first command that needs it and
// closed when nobody has used it for a while; the replay goes to the cache.
//
// # Data paths
//
// Append: Handle -> the journal's group -> one write, one sync -> the replay is
// extended by the new bytes -> streams are woken -> reply. Attach: the replay's
// head is the cut; a goroutine packs the chunks up to it, for all streams at
// that cut and until the last of them leaves; a stream pulls chunks, is woken
// when there are more, and then pulls events from replay and file. A stream
// holds a cursor, never a queue. Of a view over the limits a client may accept
// the end (budget.go), whose chunks are packed for themselves. Follow: an event
// or a sweep -> stat -> the ends are compared and the new bytes extend the
// replay -> streams are woken. Anything else is compared; a difference is
// suspected (suspicion.go) and, once the file is quiet, makes a new generation
// and a replacement snapshot. When a file rests, all that was read of it is
// compared (scrub.go). Clients get the bytes of followed files through content
// (proven.go), which gives none but those that were read.
//
// Restart: what the index knows of an unchanged session becomes a replay that
// is asleep (restore.go); its records are read when something needs them.
// Chunk logs are adopted with their ends (kept.go), so that a snapshot may need
// none.
//
// # Concurrency
//
// Lock order: session.opening, Engine.mu, generation.opening, viewLog.mu, the
// replay's own, session.mu, then generation.mu; chunks has its own and holds
// none while it calls out. A replay asks waitsForHole with its lock held, so
// nobody calls a replay with session.mu. Who has one session's token (opening)
// only tries for another's. No file is read and no stream woken under a mutex,
// but for objects.mu, rendering, atHead, generation.opening and a
// block's: they let one thing be read at a time, and once. What a replay reads
// through content while it holds its lock asks the replay for nothing but its
// marks, which need none.
//
// A snapshot retains the generation that it is packed from. viewLog.mu is held
// while a snapshot begins, so that no cut of the view comes in between; chunks
// is then called with it, and calls back only without its own mutexes.
//
// What needs a generation to stay open pins the session (use, done); what only
// reads it for a moment retains it (retain, release). The journal's goroutine
// runs prepare and committed, which take session.mu for short. A stream belongs
// to the write loop of its connection.
//
// # Caveats
//
// A file that another program rewrites in steps for more than Timing.Declare is
// seen between them. Old bytes in the middle of a file that grows are compared
// only when it rests, and by who reads them.
//
// # Durability
//
// What Handle acknowledges as appended is on disk, file and folder. The index
// is written behind, at most a second late; everything in it can be computed
// again.
package engine
