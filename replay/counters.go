package replay

import "sync/atomic"

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
}

// Values returns the counters by name.
func (c *Counters) Values() map[string]uint64 {
	return map[string]uint64{
		"full_scans": c.FullScans.Load(), "tail_scans": c.TailScans.Load(), "digest_reads": c.DigestReads.Load(),
		"bytes_read": c.BytesRead.Load(), "check_bytes": c.CheckBytes.Load(), "lines_parsed": c.LinesParsed.Load(),
		"replay_builds": c.Builds.Load(), "replay_extensions": c.Extensions.Load(),
		"cache_hits": c.CacheHits.Load(), "cache_misses": c.CacheMisses.Load(), "invalidations": c.Invalidate.Load(),
	}
}
