package report

import (
	"time"

	"sessiond/replay"
)

// Health is the verdict on a file. Of several the greatest counts.
type Health uint8

// The verdicts.
const (
	OK         Health = iota
	Unfinished        // the tail is no whole object; all records are
	Newer             // a newer format version than this build knows
	Damaged           // a record is neither one whole object nor blank
)

var healthNames = [...]string{"ok", "unfinished", "newer", "damaged"}

// String returns the verdict's name.
func (h Health) String() string { return healthNames[h] }

// MarshalText implements encoding.TextMarshaler.
func (h Health) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

func healthOf(c replay.Counts, t replay.Tail, newer bool) Health {
	switch {
	case c.Malformed+c.Salvaged+c.NonObject > 0:
		return Damaged
	case newer:
		return Newer
	case t.State == replay.TailUnterminated:
		return Unfinished
	}
	return OK
}

// tornAfter is how long a file must have rested before its unfinished tail is
// one that nobody will finish.
const tornAfter = 5 * time.Second

// tailState is the state of the tail with its age taken into account.
func tailState(t replay.Tail, f File, now time.Time) string {
	if t.State == replay.TailUnterminated && now.Sub(f.ModTime) > tornAfter {
		return "torn"
	}
	return string(t.State)
}
