package pi

import (
	"encoding/json"
	"fmt"

	"sessiond/replay/dialect"
	"sessiond/replay/dialect/tree"
	"sessiond/replay/jsonl"
)

// heads are the newest entries on the path of each kind that settings and
// state come from.
type heads struct {
	leaf int32 // the head that they are of
	last [headKinds]int32
}

const (
	headModel = iota
	headThinking
	headTier
	headVisual
	headKinds
)

func noHeads() heads {
	none := tree.None
	return heads{leaf: none, last: [headKinds]int32{none, none, none, none}}
}

// advanceHeads keeps up while the path grows; where it branches, Commit looks
// again.
func (s *Session) advanceHeads(old, i int32) {
	if n := s.tree.Node(i); s.heads.leaf != old || n.Parent != old || n.Bridged() {
		return
	}
	s.heads.leaf = i
	for is, k := s.headsOf(i), 0; is != 0; is, k = is>>1, k+1 {
		if is&1 != 0 {
			s.heads.last[k] = i
		}
	}
}

// headsOf tells for which kinds an entry counts, one bit for each.
func (s *Session) headsOf(i int32) uint8 {
	switch e := s.entries.At(i); e.kind {
	case kindModel:
		return 1 << headModel
	case kindThinking:
		return 1 << headThinking
	case kindTier:
		return 1 << headTier
	case kindMessage:
		if e.role == roleAssistant {
			return 1<<headModel | 1<<headVisual
		}
		return 1 << headVisual
	case kindCustomMessage, kindBranchSummary:
		return 1 << headVisual
	}
	return 0
}

// findHeads brings the heads to the leaf, by what both paths share: above the
// place where they part, what was the newest still is, if it stands there.
func (s *Session) findHeads() {
	was := s.heads
	s.heads = noHeads()
	s.heads.leaf = s.leaf
	if s.leaf == tree.None {
		return
	}
	root, common := s.tree.Node(s.leaf).Strict, tree.None
	if was.leaf != tree.None && s.tree.Node(was.leaf).Strict == root && !s.tree.Node(root).Ring() {
		common = s.tree.Common(was.leaf, s.leaf)
	}
	looked := s.lookUp(s.leaf, common, [headKinds]bool{true, true, true, true})
	if common == tree.None {
		prefix := s.tree.RingPrefix(s.leaf)
		for _, i := range prefix.All() {
			looked = s.noteHeads(i, looked)
		}
		return
	}
	for k, want := range looked {
		switch i := was.last[k]; {
		case !want:
		case i == tree.None:
			looked[k] = false
		case s.tree.IsAncestor(i, common):
			s.heads.last[k], looked[k] = i, false
		}
	}
	s.lookUp(common, tree.None, looked)
}

// lookUp goes up the strict chain from i to before top and notes the first
// entry of each kind that is wanted. It returns those still wanted.
func (s *Session) lookUp(i, top int32, wanted [headKinds]bool) [headKinds]bool {
	root := s.tree.Node(i).Strict
	for step := int32(1); i != top && wanted != [headKinds]bool{}; step++ {
		s.space.RelaxEvery(step)
		wanted = s.noteHeads(i, wanted)
		if i == root {
			break
		}
		i = s.tree.Node(i).Parent
	}
	return wanted
}

func (s *Session) noteHeads(i int32, wanted [headKinds]bool) [headKinds]bool {
	for is, k := s.headsOf(i), 0; is != 0; is, k = is>>1, k+1 {
		if is&1 != 0 && wanted[k] {
			s.heads.last[k], wanted[k] = i, false
		}
	}
	return wanted
}

// settingBytesMax bounds a setting's value; a longer one is shown as null.
const settingBytesMax = 4 << 10

// State implements dialect.Session.
func (s *Session) State(w *dialect.Window) (dialect.State, error) {
	st := dialect.State{Turn: "idle"}
	var err error
	if st.Settings, err = s.settings(w); err != nil {
		return st, err
	}
	i := s.heads.last[headVisual]
	if i == tree.None {
		return st, nil
	}
	st.OpenCalls, err = s.openCalls(w, i)
	if err != nil {
		return st, err
	}
	e := s.entries.At(i)
	switch {
	case e.kind != kindMessage:
		st.Turn = "unknown"
	case e.role == roleUser, e.role == roleToolResult:
		st.Turn = "running"
	case e.role != roleAssistant:
		st.Turn = "unknown"
	case len(st.OpenCalls) > 0:
		st.Turn = "awaiting_tool"
	default:
		m, err := s.message(w, e)
		if err != nil {
			return st, err
		}
		if stop := jsonl.Get(m, "stopReason"); is(m, stop, "aborted") || is(m, stop, "error") {
			st.Turn = "interrupted"
		}
	}
	return st, nil
}

// message reads the writer's own message of an entry; nil over the limit.
func (s *Session) message(w *dialect.Window, e *entry) ([]byte, error) {
	if e.flags&flagBig != 0 || e.kind != kindMessage {
		return nil, nil
	}
	return w.Bytes(e.offset+int64(e.bodyAt), int(e.bodyLen))
}

func (s *Session) settings(w *dialect.Window) (json.RawMessage, error) {
	var out struct {
		Provider      json.RawMessage `json:"provider"`
		Model         json.RawMessage `json:"model"`
		ThinkingLevel json.RawMessage `json:"thinkingLevel"`
		ServiceTier   json.RawMessage `json:"serviceTier"`
	}
	read := func(i int32, names ...string) ([]json.RawMessage, error) {
		values := make([]json.RawMessage, len(names))
		if i == tree.None || s.entries.At(i).flags&flagBig != 0 {
			return values, nil
		}
		e := s.entries.At(i)
		object, err := w.Bytes(e.offset, int(e.bytes))
		if err != nil {
			return nil, fmt.Errorf("pi: settings: %w", err)
		}
		if e.kind == kindMessage {
			object = object[e.bodyAt : e.bodyAt+e.bodyLen]
		}
		for k, name := range names {
			if v := jsonl.Get(object, name); v.Present() && v.End-v.Start <= settingBytesMax {
				values[k] = jsonl.AppendValidUTF8(nil, v.Bytes(object))
			}
		}
		return values, nil
	}
	model := "modelId"
	if i := s.heads.last[headModel]; i != tree.None && s.entries.At(i).kind == kindMessage {
		model = "model"
	}
	m, err := read(s.heads.last[headModel], "provider", model)
	if err != nil {
		return nil, err
	}
	t, err := read(s.heads.last[headThinking], "thinkingLevel")
	if err != nil {
		return nil, err
	}
	r, err := read(s.heads.last[headTier], "serviceTier")
	if err != nil {
		return nil, err
	}
	out.Provider, out.Model, out.ThinkingLevel, out.ServiceTier = m[0], m[1], t[0], r[0]
	if s.heads.last[headThinking] == tree.None {
		out.ThinkingLevel = json.RawMessage(`"off"`)
	}
	if s.heads.last[headTier] == tree.None {
		out.ServiceTier = json.RawMessage(`"default"`)
	}
	return json.Marshal(out)
}

// turnMax bounds how many results of one turn are looked at.
const turnMax = 1000

// openCalls lists the calls of the last turn that no result answers: those of
// the last assistant message at or above i, with only results between.
func (s *Session) openCalls(w *dialect.Window, i int32) ([]string, error) {
	answered := map[string]bool{}
	root := s.tree.Node(i).Strict
	for range turnMax {
		e := s.entries.At(i)
		if e.kind == kindMessage {
			m, err := s.message(w, e)
			if err != nil {
				return nil, err
			}
			switch e.role {
			case roleToolResult:
				if id, ok := dialect.Answers(m); ok {
					answered[id] = true
				}
			case roleAssistant:
				var open []string
				for _, c := range dialect.Calls(m) {
					if !answered[c.ID] {
						open = append(open, c.ID)
					}
				}
				return open, nil
			default:
				return nil, nil
			}
		}
		if i == root {
			break
		}
		i = s.tree.Node(i).Parent
	}
	return nil, nil
}
