//go:build !race

package replay_test

const scaleDivisor = 1
