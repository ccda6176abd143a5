package pi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"sessiond/replay/dialect"
	"sessiond/replay/dialect/tree"
	"sessiond/replay/jsonl"
)

// labelBytesMax bounds titles and folders in listings.
const labelBytesMax = 1 << 10

// infoBytesMax bounds the records that Info reads again: one over it says
// nothing.
const infoBytesMax = 64 << 20

// Info implements dialect.Session.
func (s *Session) Info(w *dialect.Window) (dialect.Info, error) {
	in := dialect.Info{
		Version: s.version, Newer: s.header.newer,
		Created: s.first.time(), Modified: s.newest.time(),
		Entries: int64(s.entries.Len()) + s.skipped, Branches: s.branches,
	}
	for v := range dialect.Views {
		in.Messages[v] = s.count(v, s.leaf)
	}
	read := func(p place) ([]byte, error) {
		if !p.known() || p.bytes > infoBytesMax {
			return nil, nil
		}
		object, err := w.Bytes(p.offset, int(p.bytes))
		if err != nil {
			return nil, fmt.Errorf("pi: info: %w", err)
		}
		return object, nil
	}
	object, err := read(s.header.place)
	if err != nil {
		return in, err
	}
	if n := writtenVersion(object); s.header.newer && n < math.MaxInt32 {
		in.Version = int(n)
	}
	if s.header.found {
		in.ID, _ = text(object, jsonl.Get(object, "id"))
	}
	in.CWD = label(object, "cwd")
	if object, err = read(s.name); err != nil {
		return in, err
	}
	in.Title = label(object, "name")
	if object, err = read(s.status); err != nil {
		return in, err
	}
	in.Status = statusOf(object)
	for _, c := range s.compacted {
		e := s.entries.At(c)
		d := dialect.Compaction{Sequence: e.sequence, State: s.compactionState(c)}
		if e.flags&flagBig == 0 {
			if object, err = w.Bytes(e.offset, int(e.bytes)); err != nil {
				return in, fmt.Errorf("pi: info: %w", err)
			}
			if v := jsonl.Get(object, "tokensBefore"); v.Kind == jsonl.Number {
				d.TokensBefore = json.RawMessage(slices.Clone(v.Bytes(object)))
			}
		}
		in.Compactions = append(in.Compactions, d)
	}
	return in, nil
}

func label(object []byte, name string) string {
	t, _ := text(object, jsonl.Get(object, name))
	return trim(strings.ToValidUTF8(t[:min(len(t), labelBytesMax)], ""))
}

// trim removes what the reference's language takes for white space.
func trim(t string) string {
	return strings.TrimFunc(t, func(r rune) bool {
		switch {
		case r >= '\t' && r <= '\r', r == ' ', r == 0xA0, r == 0x1680, r >= 0x2000 && r <= 0x200A,
			r == 0x2028, r == 0x2029, r == 0x202F, r == 0x205F, r == 0x3000, r == 0xFEFF:
			return true
		}
		return false
	})
}

// statusOf returns the status of a valid session_state, "" for another.
func statusOf(object []byte) string {
	state := jsonl.Get(object, "state")
	if state.Kind != jsonl.Object {
		return ""
	}
	inner := state.Bytes(object)
	t, _ := text(inner, jsonl.Get(inner, "status"))
	switch t {
	case "active", "archived", "crash":
		return t
	case "hidden", "sleep":
		return "archived"
	}
	return ""
}

// Leaf implements dialect.Session.
func (s *Session) Leaf(w *dialect.Window) (string, error) {
	if s.leaf == tree.None {
		return "", nil
	}
	if s.version == 1 {
		return fmt.Sprintf("v1-%d", s.leaf+1), nil
	}
	e := s.entries.At(s.leaf)
	if e.flags&flagBig != 0 {
		return "", nil
	}
	object, err := w.Bytes(e.offset, int(e.bytes))
	if err != nil {
		return "", fmt.Errorf("pi: leaf: %w", err)
	}
	return idText(object, jsonl.Get(object, "id")), nil
}

func idText(line []byte, v jsonl.Value) string {
	if t, ok := text(line, v); ok {
		return t
	}
	return string(v.Bytes(line))
}

// Held implements dialect.Session.
func (s *Session) Held(entry []byte, most int) (id string, held []dialect.Place, ok bool) {
	if s.version == 1 {
		return "", nil, false
	}
	v := jsonl.Get(entry, "id")
	h := idHash(entry, v)
	if h == 0 {
		return "", nil, true
	}
	for i := range s.tree.All(h) {
		if len(held) >= most {
			break
		}
		e := s.entries.At(i)
		if e.flags&(flagSalvaged|flagProvisional) == 0 {
			size := int64(e.bytes)
			if e.flags&flagBig != 0 {
				size = s.big[i]
			}
			held = append(held, dialect.Place{Sequence: e.sequence, Offset: e.offset, Bytes: size})
		}
	}
	if s.header.found && s.header.id == h && is(entry, jsonl.Get(entry, "type"), "session") {
		held = append(held, dialect.Place{Sequence: s.header.place.sequence, Offset: s.header.place.offset, Bytes: s.header.place.bytes})
	}
	return idText(entry, v), held, true
}

// Diagnostics implements dialect.Session.
func (s *Session) Diagnostics() (list []jsonl.Diagnostic, truncated bool) {
	out := slices.Clone(s.diagnostics)
	truncated = s.dropped
	link := func(i int32, code jsonl.Code, detail string) {
		if len(out) >= diagnosticsMax {
			truncated = true
			return
		}
		e := s.entries.At(i)
		size := int64(e.bytes)
		if e.flags&flagBig != 0 {
			size = s.big[i]
		}
		out = append(out, jsonl.Diagnostic{
			Code: code, Severity: code.Severity(), Line: int64(e.sequence),
			Offset: e.offset, Length: size, Detail: detail,
		})
	}
	for _, i := range s.tree.Dangling() {
		link(i, jsonl.CodeDanglingParent, "no entry has the id that this one names as its parent; the context begins here")
	}
	for _, i := range s.tree.Cycles() {
		link(i, jsonl.CodeCycle, "parents form a ring, which is cut here")
	}
	for _, c := range s.compacted {
		if s.compactionState(c) == "broken" {
			link(c, jsonl.CodeUnanchored, "the first kept entry that this compaction names is not there; it retains nothing")
		}
	}
	if !s.header.found && !s.header.badID {
		out = append(out, jsonl.Diagnostic{
			Code: jsonl.CodeHeaderMissing, Severity: jsonl.CodeHeaderMissing.Severity(),
			Detail: "no session header; the file name stands for the id",
		})
	}
	slices.SortStableFunc(out, func(a, b jsonl.Diagnostic) int { return cmp.Compare(a.Line, b.Line) })
	return out, truncated
}

// Facts implements dialect.Session.
func (s *Session) Facts(o dialect.Object) dialect.Facts {
	top, sub, line := s.values(&o)
	var f dialect.Facts
	f.Type = named(line, top[keyType])
	if len(f.Type) > labelBytesMax {
		f.Type = strings.ToValidUTF8(f.Type[:labelBytesMax], "")
	}
	f.Entry = f.Type != "session"
	f.Known = kindOf(f.Type) != kindUnknown || !f.Entry
	if v := top[keyTime]; v.Kind == jsonl.String && v.End > v.Start {
		if ms, ok := jsTime(line, v); ok {
			f.Time = timeMax{ms, true}.time()
		}
	}
	if f.Type != "message" || o.Oversized != nil || top[keyMessage].Kind != jsonl.Object {
		return f
	}
	switch f.Role = named(line, sub[subRole]); f.Role {
	case "assistant":
		if content := sub[subContent]; content.Kind == jsonl.Array {
			f.Calls = dialect.CallsIn(content.Bytes(line))
		}
		f.Usage = usage(line, sub[subUsage])
	case "toolResult":
		if id := sub[subCall]; id.Kind == jsonl.String {
			f.Results = []string{id.Text(line)}
		}
	}
	return f
}

// named is the text of a type or a role, of those that nearly all records have
// without a copy.
func named(line []byte, v jsonl.Value) string {
	if v.Kind == jsonl.String {
		for _, usual := range []string{"message", "assistant", "toolResult", "user"} {
			if string(v.Plain(line)) == usual {
				return usual
			}
		}
	}
	return v.Text(line)
}

var usageRead = []string{"input", "output", "cacheRead", "cacheWrite", "cost"}

func usage(line []byte, v jsonl.Value) *dialect.Usage {
	if v.Kind != jsonl.Object {
		return nil
	}
	object := v.Bytes(line)
	var values [5]jsonl.Value
	jsonl.Pick(object, usageRead, values[:])
	count := func(c jsonl.Value) int64 {
		if c.Kind == jsonl.Number {
			if n := number(c.Bytes(object)); n >= 0 && n < 1<<53 {
				return int64(n)
			}
		}
		return 0
	}
	u := &dialect.Usage{
		Input: count(values[0]), Output: count(values[1]),
		CacheRead: count(values[2]), CacheWrite: count(values[3]),
	}
	if cost := values[4]; cost.Kind == jsonl.Object {
		inner := cost.Bytes(object)
		if total := jsonl.Get(inner, "total"); total.Kind == jsonl.Number {
			if n := number(total.Bytes(inner)); n >= 0 && n < 1e9 {
				u.CostMicroUSD, u.HasCost = int64(math.Round(n*1e6)), true
			}
		}
	}
	return u
}
