package client

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"sessiond/wire"
)

// rulesBytesMax bounds the name of a rules revision.
const rulesBytesMax = 64

// Place is where an Attachment goes on. The zero Place is the start.
type Place struct {
	Position      *wire.Position // inside a snapshot; nil: Cursor counts
	Cursor        wire.Cursor
	Have          *int   // slots held at Cursor, in message views
	RulesRevision string // by which they were made
}

// IsStart reports whether there is nothing to go on from.
func (p Place) IsStart() bool { return p.Position == nil && p.Cursor.Offset == 0 }

// String returns the line of a cursor file, without LF.
func (p Place) String() string {
	s := p.Cursor.String()
	if p.Position != nil {
		s = p.Position.String()
	}
	if p.Have != nil {
		s += " have=" + strconv.Itoa(*p.Have)
	}
	if p.RulesRevision != "" {
		s += " rules=" + p.RulesRevision
	}
	return s
}

// ParsePlace reads what String wrote; a final LF is fine.
func ParsePlace(s string) (Place, error) {
	s = strings.TrimSuffix(s, "\n")
	first, rest, more := strings.Cut(s, " ")
	var p Place
	var err error
	if strings.HasPrefix(first, "p1.") {
		p.Position = new(wire.Position)
		*p.Position, err = wire.ParsePosition(first)
	} else {
		p.Cursor, err = wire.ParseCursor(first)
	}
	if err != nil {
		return Place{}, err
	}
	if !more {
		return p, nil
	}
	words := strings.Split(rest, " ")
	if have, ok := strings.CutPrefix(words[0], "have="); ok {
		n, err := strconv.ParseUint(have, 10, 31)
		if err != nil || have != strconv.FormatUint(n, 10) {
			return Place{}, fmt.Errorf("client: place: have %.40q: want a number up to %d", have, math.MaxInt32)
		}
		count := int(n)
		p.Have = &count
		words = words[1:]
	}
	if len(words) > 0 {
		if rules, ok := strings.CutPrefix(words[0], "rules="); ok && validRules(rules) {
			p.RulesRevision = rules
			words = words[1:]
		}
	}
	if len(words) > 0 {
		return Place{}, fmt.Errorf("client: place: %.80q: want [have=<n>] [rules=<revision>]", rest)
	}
	return p, nil
}

// validRules accepts what one word of the line can hold.
func validRules(s string) bool {
	if s == "" || len(s) > rulesBytesMax {
		return false
	}
	for _, r := range s {
		if r <= ' ' || r > '~' {
			return false
		}
	}
	return true
}
