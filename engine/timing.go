package engine

import "time"

// Timing are the waits of following. Zero values are the defaults; tests make
// them short.
type Timing struct {
	// Quiet is how long a file that shrank, differs or is missing must stay
	// as it is before its session gets another history or ends; 0: 1 s.
	Quiet time.Duration
	// Declare is after how long that happens though the file goes on
	// changing; 0: 5 s.
	Declare time.Duration
	// Hole is how long a record with NUL bytes waits for them to be filled;
	// 0: 5 s.
	Hole time.Duration
	// Rest is how long a file must not have changed before what was read of
	// it is compared in the background; 0: 2 s.
	Rest time.Duration
}

func (t Timing) withDefaults() Timing {
	or := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	or(&t.Quiet, time.Second)
	or(&t.Declare, 5*time.Second)
	or(&t.Hole, 5*time.Second)
	or(&t.Rest, 2*time.Second)
	return t
}
