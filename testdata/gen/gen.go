package gen

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"strconv"
	"time"
)

// Profile says what the lines of a session are like.
type Profile string

// The profiles.
const (
	Brief Profile = "brief" // lines of about 1.7 KB
	Small Profile = "small" // lines of about 200 bytes
	Log   Profile = "log"   // an event log, lines of about 900 bytes
)

// Options choose a session. The zero value is 1 MiB of Brief.
type Options struct {
	Profile      Profile // default Brief
	Seed         uint64
	Bytes        int64 // the session ends with the first line that reaches it; default 1 MiB
	TurnsPerFork int   // every so many turns one goes on from an earlier turn; 0: never

	TurnsPerCompaction int // of a Log: every so many turns the context is compacted; 0: never
}

func (o Options) withDefaults() Options {
	if o.Profile == "" {
		o.Profile = Brief
	}
	if o.Bytes == 0 {
		o.Bytes = 1 << 20
	}
	return o
}

func (o Options) validate() error {
	switch {
	case o.Profile != Brief && o.Profile != Small && o.Profile != Log:
		return fmt.Errorf("gen: profile %q, want %q, %q or %q", o.Profile, Brief, Small, Log)
	case o.Bytes < 0 || o.TurnsPerFork < 0 || o.TurnsPerCompaction < 0:
		return fmt.Errorf("gen: %d bytes, a fork every %d turns, a compaction every %d: want no negative number", o.Bytes, o.TurnsPerFork, o.TurnsPerCompaction)
	case o.TurnsPerCompaction > 0 && o.Profile != Log:
		return fmt.Errorf("gen: compactions are of profile %q", Log)
	}
	return nil
}

// Lines yields the lines of a session, LF included. It panics where the
// options are invalid; Write and AppendFile check them.
func Lines(o Options) iter.Seq[[]byte] {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		panic(err)
	}
	return func(yield func([]byte) bool) {
		s := newSession(o)
		var total int64
		for line := s.first(); ; line = s.next() {
			if !yield(line) {
				return
			}
			if total += int64(len(line)); total >= o.Bytes {
				return
			}
		}
	}
}

// Write writes a session and returns its size.
func Write(w io.Writer, o Options) (int64, error) {
	if err := o.withDefaults().validate(); err != nil {
		return 0, err
	}
	b := bufio.NewWriterSize(w, 1<<20)
	var total int64
	for line := range Lines(o) {
		n, err := b.Write(line)
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
	return total, b.Flush()
}

// AppendFile makes a new file by one small write for each line, synced after
// every linesPerSync lines (0: never), as an agent does over time: on some file
// systems such a file lies in more pieces than one that was written at once.
func AppendFile(path string, o Options, linesPerSync int) (total int64, err error) {
	if err := o.withDefaults().validate(); err != nil {
		return 0, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	lines := 0
	for line := range Lines(o) {
		n, err := f.Write(line)
		total += int64(n)
		if err != nil {
			return total, err
		}
		if lines++; linesPerSync > 0 && lines%linesPerSync == 0 {
			if err := f.Sync(); err != nil {
				return total, err
			}
		}
	}
	return total, nil
}

// session makes the lines of one session in order.
type session struct {
	o     Options
	rng   *rand.Rand
	turn  []func(*session) // the entries of one turn
	count int              // entries made; the next one has this ordinal
	buf   []byte

	// Of a Log.
	step, turns, lastInput int  // the next event of the turn, turns ended, the last input's ordinal
	rewound, compacted     bool // since the last turn
}

func newSession(o Options) *session {
	s := &session{o: o, rng: rand.New(rand.NewPCG(o.Seed, 0x7365_7373_696f_6e64))}
	s.turn = []func(*session){(*session).user, (*session).call, (*session).result, (*session).answer}
	if o.Profile == Small {
		s.turn = []func(*session){
			(*session).user, (*session).call, (*session).result, (*session).custom,
			(*session).custom, (*session).note, (*session).custom, (*session).note,
		}
	}
	return s
}

// first makes the first line; an event log has no header.
func (s *session) first() []byte {
	if s.o.Profile == Log {
		return s.nextEvent()
	}
	return s.header()
}

func (s *session) header() []byte {
	s.buf = append(s.buf[:0], `{"type":"session","version":3,"id":"`...)
	s.buf = fmt.Appendf(s.buf, "%016x-%s", s.o.Seed, s.o.Profile)
	s.buf = append(s.buf, `","timestamp":"`...)
	s.time()
	return s.end(`","cwd":"/home/user/project"}`)
}

// next makes the next entry: a model_change first, then turn after turn.
func (s *session) next() []byte {
	if s.o.Profile == Log {
		return s.nextEvent()
	}
	s.buf = s.buf[:0]
	if s.count == 0 {
		s.entry("model_change")
		s.buf = append(s.buf, `,"provider":"example","modelId":"example-1"}`...)
	} else {
		s.turn[(s.count-1)%len(s.turn)](s)
	}
	s.count++
	return s.end("")
}

func (s *session) end(text string) []byte {
	s.buf = append(s.buf, text...)
	s.buf = append(s.buf, '\n')
	return s.buf
}

// entry opens an entry with the members that all entries have.
func (s *session) entry(kind string) {
	s.buf = append(s.buf, `{"type":"`...)
	s.buf = append(s.buf, kind...)
	s.buf = append(s.buf, `","id":"`...)
	s.id(s.count)
	if parent := s.parent(); parent < 0 {
		s.buf = append(s.buf, `","parentId":null`...)
	} else {
		s.buf = append(s.buf, `","parentId":"`...)
		s.id(parent)
		s.buf = append(s.buf, '"')
	}
	s.buf = append(s.buf, `,"timestamp":"`...)
	s.time()
	s.buf = append(s.buf, '"')
}

// parent is the entry before, or at a fork the end of an earlier turn.
func (s *session) parent() int {
	turn, at := (s.count-1)/len(s.turn), (s.count-1)%len(s.turn)
	if k := s.o.TurnsPerFork; k > 0 && s.count > 1 && at == 0 && turn > 0 && turn%k == 0 {
		return (turn - 1 - s.rng.IntN(min(turn, 8))) * len(s.turn)
	}
	return s.count - 1
}

// id appends the id of an entry: 8 hex digits, as pi makes them. The factor
// is odd, so no two entries of a session have the same.
func (s *session) id(ordinal int) {
	s.hex8(uint32(ordinal)*0x9e37_79b1 + uint32(s.o.Seed))
}

func (s *session) hex8(v uint32) {
	for shift := 28; shift >= 0; shift -= 4 {
		s.buf = append(s.buf, "0123456789abcdef"[v>>shift&15])
	}
}

// firstMilli is the time of the header; entries follow one a second.
const firstMilli = 1767323045678 // 2026-01-02T03:04:05.678Z

func (s *session) milli() int64 { return firstMilli + int64(s.count)*1000 }

func (s *session) time() {
	s.buf = time.UnixMilli(s.milli()).UTC().AppendFormat(s.buf, "2006-01-02T15:04:05.000Z")
}

func (s *session) int(v int64) { s.buf = strconv.AppendInt(s.buf, v, 10) }
