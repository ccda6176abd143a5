package engine

import (
	"os"
	"testing"

	"sessiond/wire"
)

// Who asks for a session that is gone is told so, also after a restart, also
// when it went while no daemon ran, and until it is there again.
func TestTombstone_SaysThatASessionIsGone(t *testing.T) {
	w := newWorld(t, polling)
	attach := wire.Command{Type: wire.CmdAttach, View: wire.ViewRecords}
	paths := map[string]string{}
	for _, name := range []string{"live", "down"} {
		paths[name] = w.write(name+".jsonl", sessionText(3))
		w.e.changed(paths[name])
		c := attach
		c.Session = "f:" + name + ".jsonl"
		f := w.attach(c)
		f.untilLive()
		f.st.Close()
	}
	gone := func(when string, name string, code wire.Code) {
		t.Helper()
		c := attach
		c.Session = "f:" + name + ".jsonl"
		if err := w.refuse(c, code); err.Code == wire.CodeSessionGone && err.Detail["removed"] == nil {
			t.Errorf("%s: %s: got %+v, want when it was removed", when, name, err)
		}
	}
	must(w, os.Remove(paths["live"]))
	w.eventually("it is removed", func() bool {
		w.e.changed(paths["live"])
		_, there := w.listed("f:live.jsonl")
		return !there
	})
	w.eventually("that is remembered", func() bool {
		_, ok := w.e.buried("f:live.jsonl")
		return ok
	})
	gone("at once", "live", wire.CodeSessionGone)
	for _, name := range []string{"live", "live.jsonl"} {
		c := attach
		c.Session = name
		w.refuse(c, wire.CodeSessionGone)
	}
	w.stop()
	must(w, os.Remove(paths["down"]))
	w.start()
	w.eventually("the index is compared with the root", func() bool {
		_, ok := w.e.index.Tombstone(t.Context(), "f:down.jsonl")
		return ok
	})
	gone("after a restart", "live", wire.CodeSessionGone)
	gone("while no daemon ran", "down", wire.CodeSessionGone)
	gone("never there", "other", wire.CodeUnknownSession)
	w.e.changed(w.write("live.jsonl", sessionText(1)))
	c := attach
	c.Session = "f:live.jsonl"
	f := w.attach(c)
	f.untilLive()
	f.st.Close()
	w.restart()
	if _, ok := w.e.index.Tombstone(t.Context(), "f:live.jsonl"); ok {
		t.Error("the tombstone of a session that is there again is left")
	}
}
