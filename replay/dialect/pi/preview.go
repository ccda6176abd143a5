package pi

import (
	"sessiond/replay/dialect"
	"sessiond/replay/dialect/tree"
)

// Preview implements dialect.Session. It answers for entries that hang their
// message, or nothing, below an entry of the path; what changes links, amends,
// or shows more than one message is no plain addition.
func (s *Session) Preview(v dialect.View, o dialect.Object) (dialect.Preview, bool) {
	if s.version == 0 || o.Oversized != nil || is(o.Text, o.Scan.Top[keyType], "session") {
		return dialect.Preview{}, false
	}
	var e entry
	s.classify(&e, &o, o.Scan.Top, o.Scan.Sub, o.Text)
	switch e.kind {
	case kindCompaction, kindContextEdit, kindChildUsage:
		return dialect.Preview{}, false
	}
	link := tree.Entry{ID: idHash(o.Text, o.Scan.Top[keyID]), Linear: true}
	if s.edited[link.ID] { // by an edit that stands before it
		return dialect.Preview{}, false
	}
	parent, bridged := s.leaf, false
	if s.version > 1 {
		link.Parent, link.Linear = s.parentHash(o.Text, o.Scan.Top[keyParent]), false
		link.Found = s.tree.Find(link.Parent)
		if !s.isNew(link) {
			return dialect.Preview{}, false
		}
		if parent = link.Found; link.Parent != 0 && parent == tree.None && s.leaf != tree.None {
			parent, bridged = s.leaf, true
		}
	}
	if bridged && v == dialect.Transcript { // a gap goes before it
		return dialect.Preview{}, false
	}
	cut := s.cutTo(v, s.leaf, parent, bridged)
	if parent != tree.None && !bridged { // is what stands all that the parent's path shows?
		if !s.tree.IsAncestor(parent, s.leaf) || (v == dialect.Context && cut.Keep == 0) {
			return dialect.Preview{}, false
		}
	}
	p := dialect.Preview{Cut: s.shorten(v, s.leaf, cut)}
	if weight(&e)[v] > 0 {
		if branch, _ := s.branchAt(link); branch {
			e.flags |= flagBranch
		}
		b := s.entryBody(v, e, tree.None, partMessage, false)
		p.Body, p.Slot = &b, dialect.Slot{Entry: s.entries.Len(), Part: partMessage}
	}
	return p, true
}

// isNew reports whether an entry has an id that nothing in the file names.
func (s *Session) isNew(link tree.Entry) bool {
	return link.ID != 0 && link.ID != link.Parent && s.tree.Find(link.ID) == tree.None && !s.tree.Named(link.ID)
}
