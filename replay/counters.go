package replay

import "sync/atomic"

// Counters count what replays cost, over all sessions of a process.
type Counters struct {
	FullScans, TailScans, DigestReads  atomic.Uint64
	BytesRead, LinesParsed             atomic.Uint64
	Builds, Extensions                 atomic.Uint64
	CacheHits, CacheMisses, Invalidate atomic.Uint64
}

// Values returns the counters by name.
func (c *Counters) Values() map[string]uint64 {
	return map[string]uint64{
		"full_scans": c.FullScans.Load(), "tail_scans": c.TailScans.Load(), "digest_reads": c.DigestReads.Load(),
		"bytes_read": c.BytesRead.Load(), "lines_parsed": c.LinesParsed.Load(),
		"replay_builds": c.Builds.Load(), "replay_extensions": c.Extensions.Load(),
		"cache_hits": c.CacheHits.Load(), "cache_misses": c.CacheMisses.Load(), "invalidations": c.Invalidate.Load(),
	}
}
