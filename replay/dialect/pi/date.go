package pi

import (
	"math"
	"strconv"
	"time"

	"sessiond/replay/jsonl"
)

// jsTime reads a timestamp as the reference's language makes a date of it, in
// milliseconds since 1970: null is 0, a number stands for itself, a string is
// an ISO 8601 date or date and time (without a zone: UTC), microseconds are
// cut. ok is false for what is no date there.
func jsTime(line []byte, v jsonl.Value) (ms int64, ok bool) {
	switch v.Kind {
	case jsonl.Null, jsonl.False:
		return 0, true
	case jsonl.True:
		return 1, true
	case jsonl.Number:
		n := math.Trunc(number(v.Bytes(line)))
		return int64(n), math.Abs(n) <= timeMilliMax
	case jsonl.String:
		return isoTime(v.Plain(line))
	}
	return 0, false
}

// isoTime parses YYYY[-MM[-DD]], or a signed year of six digits, with an
// optional Thh:mm[:ss[.f...]] and zone. A 30th of February is a day of March.
func isoTime(b []byte) (ms int64, ok bool) {
	if ms, ok = usualTime(b); ok {
		return ms, true
	}
	p := isoParser{b: b, ok: true}
	year := p.year()
	month, day := 1, 1
	if p.skip('-') {
		month = p.digits(2)
		if p.skip('-') {
			day = p.digits(2)
		}
	}
	var hour, minute, second, milli, zone int
	if p.skip('T') || p.skip('t') || p.skip(' ') {
		hour = p.digits(2)
		p.need(':')
		minute = p.digits(2)
		if p.skip(':') {
			second = p.digits(2)
			if p.skip('.') {
				milli = p.fraction()
			}
		}
		zone = p.zone()
	}
	if !p.ok || len(p.b) > 0 || month < 1 || month > 12 || day < 1 || day > 31 ||
		hour > 24 || minute > 59 || second > 59 || (hour == 24 && minute+second+milli > 0) {
		return 0, false
	}
	ms = milliOf(year, month, day, hour, minute-zone, second, milli)
	return ms, -timeMilliMax <= ms && ms <= timeMilliMax
}

// usualTime is isoTime for the form that agents write, 2006-01-02T15:04:05.000Z,
// and the plain cases of it only: every entry has one.
func usualTime(b []byte) (ms int64, ok bool) {
	if len(b) != len("2006-01-02T15:04:05.000Z") {
		return 0, false
	}
	bad := b[4] ^ '-' | b[7] ^ '-' | b[10] ^ 'T' | b[13] ^ ':' | b[16] ^ ':' | b[19] ^ '.' | b[23] ^ 'Z'
	digit := func(i int) int {
		d := b[i] - '0'
		if d > 9 {
			bad = 1
		}
		return int(d)
	}
	two := func(i int) int { return digit(i)*10 + digit(i+1) }
	year, milli := two(0)*100+two(2), two(20)*10+digit(22)
	month, day, hour, minute, second := two(5), two(8), two(11), two(14), two(17)
	if bad != 0 || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 59 {
		return 0, false
	}
	return milliOf(year, month, day, hour, minute, second, milli), true
}

func milliOf(year, month, day, hour, minute, second, milli int) int64 {
	return (((daysSince1970(year, month, day)*24+int64(hour))*60+int64(minute))*60+int64(second))*1000 + int64(milli)
}

// timeMilliMax is the last moment that the reference's language knows.
const timeMilliMax = 8_640_000_000_000_000

type isoParser struct {
	b  []byte
	ok bool
}

func (p *isoParser) digits(n int) int {
	if len(p.b) < n {
		p.ok = false
		return 0
	}
	v := 0
	for _, c := range p.b[:n] {
		if c < '0' || c > '9' {
			p.ok = false
			return 0
		}
		v = v*10 + int(c-'0')
	}
	p.b = p.b[n:]
	return v
}

func (p *isoParser) year() int {
	switch {
	case p.skip('+'):
		return p.digits(6)
	case p.skip('-'):
		y := p.digits(6)
		p.ok = p.ok && y > 0
		return -y
	}
	return p.digits(4)
}

func (p *isoParser) skip(c byte) bool {
	if len(p.b) == 0 || p.b[0] != c {
		return false
	}
	p.b = p.b[1:]
	return true
}

func (p *isoParser) need(c byte) { p.ok = p.skip(c) && p.ok }

// fraction reads any number of digits and keeps three.
func (p *isoParser) fraction() int {
	n := 0
	for n < len(p.b) && p.b[n] >= '0' && p.b[n] <= '9' {
		n++
	}
	if n == 0 {
		p.ok = false
		return 0
	}
	v, _ := strconv.Atoi((string(p.b[:min(n, 3)]) + "00")[:3])
	p.b = p.b[n:]
	return v
}

// zone reads Z, an offset or nothing, in minutes.
func (p *isoParser) zone() int {
	sign := 1
	switch {
	case p.skip('Z'), p.skip('z'), len(p.b) == 0:
		return 0
	case p.skip('-'):
		sign = -1
	default:
		p.need('+')
	}
	h := p.digits(2)
	p.skip(':')
	m := p.digits(2)
	if h > 23 || m > 59 {
		p.ok = false
	}
	return sign * (h*60 + m)
}

// daysSince1970 counts days in the proleptic Gregorian calendar, with years
// that begin in March so that leap days come last.
func daysSince1970(year, month, day int) int64 {
	if month <= 2 {
		year--
		month += 12
	}
	of := int64(year%400+400) % 400
	era := (int64(year) - of) / 400
	doy := int64(153*(month-3)+2)/5 + int64(day) - 1
	return era*146097 + of*365 + of/4 - of/100 + doy - 719468
}

// timeMax and timeMin keep the newest and oldest of times seen, in ms.
type (
	timeMax struct {
		ms  int64
		set bool
	}
	timeMin = timeMax
)

// noteTime keeps the time of the first record and of the newest user or
// assistant message.
func (s *Session) noteTime(r role, line []byte, v jsonl.Value) {
	told := r == roleUser || r == roleAssistant
	if s.first.set && !told {
		return
	}
	if v.Kind != jsonl.String {
		return
	}
	ms, ok := jsTime(line, v)
	if !ok {
		return
	}
	if !s.first.set {
		s.first = timeMin{ms, true}
	}
	if told && (!s.newest.set || ms > s.newest.ms) {
		s.newest = timeMax{ms, true}
	}
}

func (t timeMax) time() time.Time {
	if !t.set {
		return time.Time{}
	}
	return time.UnixMilli(t.ms).UTC()
}
