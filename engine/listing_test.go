package engine

import (
	"path/filepath"
	"testing"

	"sessiond/kv"
	"sessiond/wire"
)

// What a closed index knows of a session is enough to find its file again and
// to say how far to trust its stamp.
func TestIndex_HoldsWhatAListingNeeds(t *testing.T) {
	w := newWorld(t)
	path := w.write("a.jsonl", lines(header, user("u", "", "x"), assistant("a", "u", "y"))+`{"type":`)
	w.e.changed(path)
	f := w.attach(wire.Command{Session: "a", View: wire.ViewContext})
	f.untilLive()
	f.st.Close()
	w.stop()
	x, err := kv.Open(t.Context(), filepath.Join(w.state, "index.db"), kv.Options{})
	must(w, err)
	defer func() { must(w, x.Close(t.Context())) }()
	l, ok := x.Listing(t.Context(), "f:a.jsonl")
	if !ok || l.Path != path || l.Leaf == nil || *l.Leaf != "a" || l.ContextCount == nil || *l.ContextCount != 2 || !l.Tail {
		t.Errorf("listing: got %+v, %t, want path %s, leaf a, 2 messages of the context, a tail", l, ok, path)
	}
	s, ok := x.Signature(t.Context(), "f:a.jsonl")
	if want := s.Stamp.TrustedAt(s.ReadAt); !ok || s.Trusted != want {
		t.Errorf("signature: got %+v, %t, want trusted %t", s, ok, want)
	}
}
