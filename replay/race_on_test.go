//go:build race

package replay_test

// scaleDivisor makes large files small where the race detector, under which
// all is ten times slower, is on: it looks for other faults than slowness.
const scaleDivisor = 10
