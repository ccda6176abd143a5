package dialect

import (
	"math"
	"sort"
)

// Cuts remembers how far records rewound a view, so that a reader at any
// earlier sequence learns how many of its slots stand. A later cut at the
// same or a lower depth hides an earlier one, so depths ascend and memory
// follows the depth of the view, not the length of the file.
type Cuts struct {
	cuts  []cut
	zones []zone
}

type cut struct {
	seq    uint64
	keep   int32
	reason string
}

// zone is a batch that changed links which stood: what a view was in its
// middle is not known.
type zone struct{ after, until uint64 }

const zonesMax = 64

// Add notes that the record seq left keep slots of the view before it.
func (c *Cuts) Add(seq uint64, keep int, reason string) {
	n := len(c.cuts)
	for n > 0 && c.cuts[n-1].keep >= int32(keep) {
		n--
	}
	c.cuts = append(c.cuts[:n], cut{seq, int32(keep), reason})
}

// AddZone notes a batch that links were made anew in: a reader inside it,
// later than after and before until, keeps nothing.
func (c *Cuts) AddZone(after, until uint64) {
	if len(c.zones) == zonesMax { // join the oldest two
		c.zones[1].after = c.zones[0].after
		c.zones = c.zones[1:]
	}
	c.zones = append(c.zones, zone{after, until})
}

// Bytes is the memory held.
func (c *Cuts) Bytes() int64 { return int64(cap(c.cuts))*cutBytes + int64(cap(c.zones))*16 }

const cutBytes = 32

// All is the Keep of a view that was not cut.
const All = math.MaxInt

// Keep returns how many slots that were held after a sequence stand now at
// the most.
func (c *Cuts) Keep(after uint64) Cut {
	for _, z := range c.zones {
		if z.after < after && after < z.until {
			return Cut{0, ReasonBranch}
		}
	}
	i := sort.Search(len(c.cuts), func(i int) bool { return c.cuts[i].seq > after })
	if i == len(c.cuts) {
		return Cut{Keep: All}
	}
	return Cut{int(c.cuts[i].keep), c.cuts[i].reason}
}
