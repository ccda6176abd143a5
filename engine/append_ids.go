package engine

import (
	"sessiond/replay"
	"sessiond/replay/dialect"
	"sessiond/replay/pages"
)

// heldByID tells where an entry's id stands in the file. A file that is still
// empty is of no dialect: then what is to be its first lines says what their
// ids are, and none is held.
func (a *appending) heldByID(entry []byte) (id string, places []dialect.Place, ok bool, err error) {
	r := a.g.replay
	if r.Head().Offset > 0 {
		return r.Held(entry)
	}
	if a.family == nil {
		first := make([][]byte, 0, len(a.pending)+len(a.lines))
		for _, l := range a.pending {
			first = append(first, l.text)
		}
		f, ok := replay.FamilyOfEntries(append(first, a.lines...))
		if !ok {
			return "", nil, false, nil
		}
		a.family = f
	}
	id, places, ok = a.family.New(0, new(pages.Space)).Held(entry, 0)
	return id, places, ok, nil
}
