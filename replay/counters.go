package replay

import (
	"sync/atomic"

	"sessiond/replay/dialect"
)

// Counters count what replays cost, over all sessions of a process.
type Counters struct {
	FullScans   atomic.Uint64 // files read from their start
	TailScans   atomic.Uint64 // files read from a known head on
	DigestReads atomic.Uint64 // comparisons of what was read before, without a parse
	BytesRead   atomic.Uint64 // by scans
	CheckBytes  atomic.Uint64 // by comparisons
	LinesParsed atomic.Uint64

	Builds     atomic.Uint64 // replays made
	Extensions atomic.Uint64 // replays that took new bytes only

	CacheHits   atomic.Uint64 // replays given without reading for them
	CacheMisses atomic.Uint64 // replays that the cache did not hold
	Invalidate  atomic.Uint64 // replays given up because the file differs

	// EventsParsed are the objects handed to a dialect, each time that they
	// are.
	EventsParsed atomic.Uint64
	// EventsBefore and EventsAfter are the entries of the file before the first
	// one that the context needs, and from that one on, as they were when a
	// context that begins at a compaction was first asked for: once for a
	// replay and the compaction that rules.
	EventsBefore, EventsAfter atomic.Uint64
}

// Values returns the counters by name.
func (c *Counters) Values() map[string]uint64 {
	return map[string]uint64{
		"full_scans": c.FullScans.Load(), "tail_scans": c.TailScans.Load(), "digest_reads": c.DigestReads.Load(),
		"bytes_read": c.BytesRead.Load(), "check_bytes": c.CheckBytes.Load(),
		"lines_parsed": c.LinesParsed.Load(), "events_parsed": c.EventsParsed.Load(),
		"replay_builds": c.Builds.Load(), "replay_extensions": c.Extensions.Load(),
		"events_before_cutoff": c.EventsBefore.Load(), "events_after_cutoff": c.EventsAfter.Load(),
		"cache_hits": c.CacheHits.Load(), "cache_misses": c.CacheMisses.Load(), "invalidations": c.Invalidate.Load(),
	}
}

// countCutoff counts what a view that is asked for leaves out and needs, once
// for each compaction. Called under the lock, for writing.
func (r *Replay) countCutoff(v dialect.View) {
	if r.session == nil || v != dialect.Context {
		return
	}
	c, ok := r.session.Cutoff(v)
	if !ok || c.By == r.cutoff {
		return
	}
	r.cutoff = c.By
	r.opt.Counters.EventsBefore.Add(uint64(c.Before))
	r.opt.Counters.EventsAfter.Add(uint64(c.After))
}
