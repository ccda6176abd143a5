package engine

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sessiond/chunks"
	"sessiond/engine/vfs"
	"sessiond/kv"
	"sessiond/replay/pages"
	"sessiond/wire"
)

// resolve finds a session by key, id, file name or a unique prefix of one of
// them. Names are looked up in the listing, never joined to a path.
func (e *Engine) resolve(name string) (*session, error) {
	if name == "" {
		return nil, wire.Errorf(wire.CodeBadArgument, "no session named")
	}
	e.checkAlias(name)
	e.mu.Lock()
	s := e.sessions[name]
	exact := slices.Clone(e.names[name])
	e.mu.Unlock()
	if s != nil {
		return s, nil
	}
	if len(exact) == 0 {
		exact = e.byIndexedID(name)
	}
	hits := exact
	if len(hits) == 0 {
		hits = e.byFileName(name)
	}
	if len(hits) == 0 {
		hits = e.byPrefix(name)
	}
	switch len(hits) {
	case 1:
		return hits[0], nil
	case 0:
		if t, ok := e.buried(name); ok {
			return nil, wire.Errorf(wire.CodeSessionGone, "session %s has no file any more; it had %d records in %d bytes",
				clip(name), t.Head.Sequence, t.Bytes).With("removed", t.Removed.UTC().Format(time.RFC3339))
		}
		return nil, wire.Errorf(wire.CodeUnknownSession, "no session %q; list (sessiond ls) tells which there are", clip(name))
	}
	candidates := make([]string, 0, len(hits))
	for _, h := range hits {
		candidates = append(candidates, h.key)
	}
	slices.Sort(candidates)
	const most = 20
	return nil, wire.Errorf(wire.CodeAmbiguousSession, "%d sessions match %q", len(hits), clip(name)).
		With("candidates", candidates[:min(most, len(candidates))])
}

// checkAlias looks whether a name that is the key of another path of a session
// still is: the file may have been replaced under one of them.
func (e *Engine) checkAlias(name string) {
	root, rel, ok := strings.Cut(name, ":")
	if !ok {
		return
	}
	for _, r := range e.roots {
		if r.Name != root {
			continue
		}
		path := filepath.Join(r.Path, filepath.FromSlash(rel))
		e.mu.Lock()
		s := e.paths[path]
		e.mu.Unlock()
		if s != nil && s.path != path && !e.isAlias(s, path) {
			e.changed(path)
		}
	}
}

// byIndexedID looks for an id that only the index knows. Each session is asked
// for its own once; then it has a name by which to be found.
func (e *Engine) byIndexedID(name string) []*session {
	e.mu.Lock()
	list := slices.Collect(maps.Values(e.sessions))
	e.mu.Unlock()
	for _, s := range list {
		s.mu.Lock()
		asked := s.labelled
		s.labelled = true
		s.mu.Unlock()
		if asked {
			continue
		}
		if l, ok := s.listing(); ok {
			s.setLabel(l.ID)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.names[name])
}

// byFileName returns the sessions whose file has a name, ending included.
func (e *Engine) byFileName(name string) []*session {
	stem, ok := strings.CutSuffix(name, fileEnding)
	if !ok {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.names[stem])
}

// byPrefix returns the sessions of which a name begins with prefix.
func (e *Engine) byPrefix(prefix string) []*session {
	e.mu.Lock()
	defer e.mu.Unlock()
	found := map[*session]bool{}
	var hits []*session
	note := func(s *session) {
		if !found[s] {
			found[s] = true
			hits = append(hits, s)
		}
	}
	for name, list := range e.names {
		if strings.HasPrefix(name, prefix) {
			for _, s := range list {
				note(s)
			}
		}
	}
	for key, s := range e.sessions {
		if strings.HasPrefix(key, prefix) {
			note(s)
		}
	}
	return hits
}

// call gives a session a name to find it by, once.
func (e *Engine) call(s *session, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if name == "" || e.sessions[s.key] != s || slices.Contains(e.names[name], s) {
		return
	}
	e.names[name] = append(e.names[name], s)
}

// stemID is the id that agents put behind the time in a file name.
func stemID(stem string) string {
	if i := strings.LastIndexByte(stem, '_'); i >= 0 {
		return stem[i+1:]
	}
	return stem
}

// id is the label of a session: its header's id when that is known, else the
// file name.
func (s *session) id() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.label != "" {
		return s.label
	}
	return s.stem
}

// denied is the error that opening a file would give, as far as its mode
// tells; nothing is opened for a listing.
func denied(info vfs.Info) error {
	mode, uid := info.Mode.Perm(), os.Geteuid()
	switch {
	case uid == 0, info.Stamp.IsMissing():
		return nil
	case int(info.UID) == uid && mode&0o400 != 0, int(info.UID) != uid && mode&0o044 != 0:
		return nil
	}
	return fs.ErrPermission
}

// list answers list.
func (e *Engine) list(ctx context.Context, c wire.Command) (wire.ListResult, error) {
	limit := c.Limit
	switch {
	case limit < 0 || limit > wire.ListLimitMax:
		return wire.ListResult{}, wire.Errorf(wire.CodeBadArgument, "limit %d: want 1 to %d", limit, wire.ListLimitMax)
	case limit == 0:
		limit = wire.ListLimitMax
	}
	if c.Order != "" && c.Order != "activity" && c.Order != "key" {
		return wire.ListResult{}, wire.Errorf(wire.CodeBadArgument, "order %q: want activity or key", clip(c.Order))
	}
	rows, err := e.rows(ctx, c)
	if err != nil {
		return wire.ListResult{}, err
	}
	out := wire.ListResult{Sessions: []wire.Session{}, More: len(rows) > limit}
	size := 0
	for i, r := range rows[:min(limit, len(rows))] {
		line := r.session.describe(ctx)
		text, err := json.Marshal(line)
		if err != nil {
			return wire.ListResult{}, err
		}
		if size += len(text) + 1; size > wire.InlineBytes && i > 0 {
			out.More = true
			break
		}
		out.Sessions, out.Next = append(out.Sessions, line), r.token()
	}
	if !out.More {
		out.Next = ""
	}
	return out, nil
}

// row is a session's place in a listing. In order key it stays where it is
// whatever happens; in order activity it moves ahead with the session.
type row struct {
	session *session
	active  int64 // unix ns of the last activity; 0 in order key, the default
}

func (r row) compare(s row) int {
	return cmp.Or(cmp.Compare(s.active, r.active), cmp.Compare(r.session.key, s.session.key))
}

func (r row) token() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(r.active, 10) + " " + r.session.key))
}

func parseToken(token string) (row, error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	active, key, ok := strings.Cut(string(text), " ")
	n, perr := strconv.ParseInt(active, 10, 64)
	if err != nil || perr != nil || !ok {
		return row{}, wire.Errorf(wire.CodeBadArgument, "after %q is no value that list gave", clip(token))
	}
	return row{&session{key: key}, n}, nil
}

func (e *Engine) rows(ctx context.Context, c wire.Command) ([]row, error) {
	var from *row
	if c.After != "" {
		r, err := parseToken(c.After)
		if err != nil {
			return nil, err
		}
		from = &r
	}
	known := map[string]time.Time{}
	if c.Order == "activity" {
		known = e.activity(ctx)
	}
	e.mu.Lock()
	list := make([]*session, 0, len(e.sessions))
	for _, s := range e.sessions {
		if c.Root == "" || c.Root == s.root {
			list = append(list, s)
		}
	}
	_, rootKnown := e.rootErr[c.Root]
	e.mu.Unlock()
	if c.Root != "" && !rootKnown {
		return nil, wire.Errorf(wire.CodeBadArgument, "no root %q", clip(c.Root))
	}
	rows := make([]row, 0, len(list))
	for _, s := range list {
		r := row{session: s}
		if c.Order == "activity" {
			r.active = known[s.key].UnixNano()
			if known[s.key].IsZero() {
				s.mu.Lock()
				r.active = s.info.Stamp.MTimeNano
				s.mu.Unlock()
			}
		}
		if from == nil || from.compare(r) < 0 {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, row.compare)
	return rows, nil
}

// describe makes a session's line of a listing without opening its file. What
// the index knows counts only for the file as it is now.
func (s *session) describe(context.Context) wire.Session {
	s.mu.Lock()
	out := wire.Session{
		Session: s.key, ID: s.stem, Root: s.root, Path: s.path, Owned: s.owned,
		Aliases: slices.Clone(s.aliases), Bytes: s.info.Stamp.Size,
	}
	err := s.infoErr
	if err == nil {
		err = denied(s.info)
	}
	if err != nil {
		out.Error = err.Error()
	}
	if s.degraded != nil {
		out.Error = s.degraded.Error()
	}
	g := s.gen
	s.mu.Unlock()
	l, ok := s.listing()
	if !ok {
		return out
	}
	if l.ID != "" {
		out.ID = l.ID
	}
	out.Title, out.CWD, out.MessageCount, out.RecordCount = l.Title, l.CWD, l.MessageCount, l.RecordCount
	out.Created, out.Modified, out.State, out.DiagnosticsCount = l.Created, l.Modified, l.State, l.DiagnosticsCount
	if g != nil {
		head := g.cursor(g.replay.Head())
		out.Bytes = g.known().Stamp.Size // s.info may be older
		out.Head, out.Dialect = &head, dialectOf(g.replay)
		return out
	}
	if sig, ok := s.e.index.Signature(s.e.ctx, s.key); ok {
		head := wire.Cursor{
			Generation: sig.Generation, Sequence: wire.Sequence(sig.Head.Sequence),
			Offset: sig.Head.Offset, Digest: wire.Digest(sig.Head.Digest),
		}
		out.Head, out.Dialect = &head, &sig.Dialect
	}
	return out
}

// status answers status.
func (e *Engine) status(ctx context.Context) Status {
	st := Status{
		Version: e.o.Version, UptimeSeconds: e.o.Now().Sub(e.started).Seconds(),
		StateDir: e.o.StateDir, Replay: e.counters.Values(), Index: e.index.Stats(ctx), Degraded: []string{},
	}
	st.ReplayCache.HeldBytes, st.ReplayCache.BoundBytes = e.cache.Bytes()
	st.Chunks, st.RecordIndex = e.chunks.Stats(), e.pages.Stats()
	st.ChunkBytes = st.Chunks.MemoryHeldBytes
	e.mu.Lock()
	st.Sessions, st.Open = len(e.sessions), len(e.open)
	list := make([]*session, 0, len(e.sessions))
	for _, s := range e.sessions {
		list = append(list, s)
	}
	rootErr := maps.Clone(e.rootErr)
	e.mu.Unlock()
	for _, r := range e.roots {
		mode, why := e.watcher.Mode(r.Path)
		root := RootStatus{Name: r.Name, Path: r.Path, Watch: string(mode), Why: errText(why)}
		if _, err := e.o.FS.Stat(r.Path); err != nil {
			root.Error = err.Error()
		} else if err := rootErr[r.Name]; !errors.Is(err, fs.ErrNotExist) { // it is there by now
			root.Error = errText(err)
		}
		if root.Error != "" {
			st.Degraded = append(st.Degraded, fmt.Sprintf("root %s: %s", r.Name, root.Error))
		}
		st.Roots = append(st.Roots, root)
	}
	for _, s := range list {
		s.mu.Lock()
		st.Attachments += len(s.streams)
		if s.degraded != nil {
			st.Degraded = append(st.Degraded, fmt.Sprintf("session %s is read-only: %v", s.key, s.degraded))
		}
		s.mu.Unlock()
	}
	if st.Index.Degraded != "" {
		st.Degraded = append(st.Degraded, "index: "+st.Index.Degraded)
	}
	if st.Chunks.Degraded != "" {
		st.Degraded = append(st.Degraded, st.Chunks.Degraded)
	}
	if err := st.RecordIndex.Failed; err != "" {
		st.Degraded = append(st.Degraded, "record indexes stay in memory: "+err)
	}
	slices.Sort(st.Degraded)
	return st
}

// Status answers status.
type Status struct {
	Version       string            `json:"version"`
	UptimeSeconds float64           `json:"uptimeSeconds"`
	StateDir      string            `json:"stateDir"`
	Sessions      int               `json:"sessions"`
	Open          int               `json:"open"`
	Attachments   int               `json:"attachments"`
	Roots         []RootStatus      `json:"roots"`
	Replay        map[string]uint64 `json:"replay"`
	ReplayCache   struct {
		HeldBytes  int64 `json:"heldBytes"`
		BoundBytes int64 `json:"boundBytes"`
	} `json:"replayCache"`
	ChunkBytes  int64        `json:"chunkBytes"` // of chunks in memory
	Chunks      chunks.Stats `json:"chunks"`
	RecordIndex pages.Stats  `json:"recordIndex"`
	Index       kv.Stats     `json:"index"`
	Degraded    []string     `json:"degraded"`
}

// RootStatus tells of one root.
type RootStatus struct {
	Name  string `json:"name"`
	Path  string `json:"path"`
	Watch string `json:"watch"`
	Why   string `json:"why,omitempty"`
	Error string `json:"error,omitempty"`
}
