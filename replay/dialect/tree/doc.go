// Package tree links the entries of a session that form a tree by id and
// parent id, and answers in O(log n) how two branches relate. It knows
// ordinals, id hashes and weights only; what an entry means is its dialect's.
//
// # Links
//
// An entry's parent is the last entry in the file with the parent's id,
// wherever it stands ("last wins"). Where that makes a ring, the ring is cut
// above its lowest ordinal. Chains are of two kinds: the strict chain ends at
// an entry whose parent is null, unknown or cut from a ring; the bridged
// chain goes on from an entry with an unknown or cut parent to the nearest
// earlier entry of the file, so that nothing becomes unreachable.
//
// # Work
//
// An entry with a known parent and a new id is linked at once. A repeated id,
// or an id that an earlier entry already named as its parent, changes links
// that stand; then all that follows waits for Commit, which links everything
// anew in one pass. So a file costs one linear pass, and a live append costs
// what it adds.
//
// # Concurrency
//
// An Index belongs to its owner: one goroutine at a time may Add and Commit,
// and nobody reads meanwhile.
package tree
