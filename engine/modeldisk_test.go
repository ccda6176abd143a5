package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// modelDisk is a folder of session files, and everything that they held since
// the model was settled last. Whatever is done to a file is written down here
// before it is done, so a reader cannot see what the model does not know.
type modelDisk struct {
	t   testing.TB
	dir string

	mu    sync.Mutex
	at    map[string]*modelFile   // by name; guarded by mu
	links map[string]string       // target of a symbolic link; guarded by mu
	was   map[string][]*modelFile // all that were at a name; guarded by mu
	upset map[string]bool         // first names of files to which more happened than growth; guarded by mu
	done  []string                // what was done, in order; guarded by mu
}

// modelFile is what an inode held. Of what only grew the longest stands for
// all: a reader may see any prefix of it.
type modelFile struct {
	contents []modelContent // in order of time
	now      []byte
	cut      bool // shorter than it was
	smudged  bool // bytes were changed in place
}

// modelContent is what a file held. While it was made, from the first byte on,
// of what was there before, a reader may have seen the beginning of it and the
// rest of that.
type modelContent struct{ now, before []byte }

// begins reports whether bytes are the beginning of the content, or of what
// there was while it was made.
func (c modelContent) begins(with []byte) bool {
	n := 0 // those of the new content
	for n < min(len(with), len(c.now)) && with[n] == c.now[n] {
		n++
	}
	return n == len(with) || len(with) <= len(c.before) && bytes.Equal(with[n:], c.before[n:len(with)])
}

func newModelDisk(t testing.TB, dir string) *modelDisk {
	return &modelDisk{t: t, dir: dir, at: map[string]*modelFile{}, links: map[string]string{}, was: map[string][]*modelFile{}, upset: map[string]bool{}}
}

func (d *modelDisk) path(name string) string { return filepath.Join(d.dir, name) }

// do takes one step, alone. What is at the name must be there for it, unless
// it is made.
func (d *modelDisk) do(what, name string, step func(f *modelFile) error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.fileLocked(name)
	if f == nil {
		return false
	}
	d.done = append(d.done, fmt.Sprintf("%s %s (%d bytes)", name, what, len(f.now)))
	d.must(step(f))
	return true
}

func (d *modelDisk) must(err error) {
	if err != nil {
		d.t.Errorf("model: %v", err)
	}
}

// fileLocked is what a name leads to, nil if nothing.
func (d *modelDisk) fileLocked(name string) *modelFile {
	if target, ok := d.links[name]; ok {
		name = target
	}
	return d.at[name]
}

// upsetLocked notes that a file did more than grow, under all its names.
func (d *modelDisk) upsetLocked(f *modelFile) {
	for name, list := range d.was {
		if slices.Contains(list, f) {
			d.upset[firstName(name)] = true
		}
	}
}

// putLocked makes a name lead to a file.
func (d *modelDisk) putLocked(name string, f *modelFile) {
	d.at[name] = f
	names := []string{name}
	for link, target := range d.links {
		if target == name {
			names = append(names, link)
		}
	}
	for _, n := range names {
		d.was[n] = append(d.was[n], f)
	}
}

func newModelFile(content []byte) *modelFile {
	return &modelFile{contents: []modelContent{{now: content}}, now: content}
}

// grew notes a content that goes on from the one before.
func (f *modelFile) grew(text string) {
	last := len(f.contents) - 1
	goesOn := len(f.contents[last].now) == len(f.now) && !f.cut
	if f.cut {
		f.smudged = true
	}
	f.cut = false
	f.now = append(slices.Clip(f.now), text...)
	if goesOn {
		f.contents[last].now = f.now
	} else {
		f.contents = append(f.contents, modelContent{now: f.now})
	}
}

func (d *modelDisk) append(name, text string) bool {
	return d.do(fmt.Sprintf("append %d", len(text)), name, func(f *modelFile) error {
		if f.cut {
			d.upsetLocked(f)
		}
		f.grew(text)
		return onFile(d.path(name), os.O_APPEND, func(file *os.File) error {
			_, err := file.WriteString(text)
			return err
		})
	})
}

func onFile(path string, flag int, do func(*os.File) error) error {
	file, err := os.OpenFile(path, os.O_WRONLY|flag, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	return do(file)
}

// overwrite changes bytes in place. A reader may see any part of them done,
// from the first on.
func (d *modelDisk) overwrite(name string, off int, text []byte, keepTimes bool) bool {
	return d.do(fmt.Sprintf("overwrite %d at %d, times kept %v", len(text), off, keepTimes), name, func(f *modelFile) error {
		text = text[:max(0, min(len(text), len(f.now)-off))]
		if len(text) == 0 || bytes.Equal(f.now[off:off+len(text)], text) {
			return nil
		}
		d.upsetLocked(f)
		f.smudged = true
		before := f.now
		f.now = slices.Concat(before[:off], text, before[off+len(text):])
		f.contents = append(f.contents, modelContent{f.now, before})
		info, err := os.Stat(d.path(name))
		if err != nil {
			return err
		}
		err = onFile(d.path(name), 0, func(file *os.File) error {
			_, err := file.WriteAt(text, int64(off))
			return err
		})
		if err == nil && keepTimes {
			err = os.Chtimes(d.path(name), info.ModTime(), info.ModTime())
		}
		return err
	})
}

func (d *modelDisk) truncate(name string, size int) bool {
	return d.do(fmt.Sprintf("truncate to %d", size), name, func(f *modelFile) error {
		if size >= len(f.now) {
			return nil
		}
		d.upsetLocked(f)
		f.now, f.cut = f.now[:size:size], true
		return os.Truncate(d.path(name), int64(size))
	})
}

// replace puts another file in a name's place, or makes it.
func (d *modelDisk) replace(name string, content []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.links[name]; ok {
		return
	}
	was := 0
	if f := d.at[name]; f != nil {
		was = len(f.now)
	}
	d.done = append(d.done, fmt.Sprintf("%s replace by %d bytes (%d bytes)", name, len(content), was))
	d.putLocked(name, newModelFile(content))
	d.upset[firstName(name)] = true
	temp := d.path(name) + ".tmp"
	d.must(os.WriteFile(temp, content, 0o600))
	d.must(os.Rename(temp, d.path(name)))
}

// create makes a file under its name, without a temporary one.
func (d *modelDisk) create(name string, content []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at[name] != nil || d.links[name] != "" {
		return
	}
	d.done = append(d.done, fmt.Sprintf("%s create %d bytes", name, len(content)))
	d.putLocked(name, newModelFile(content))
	d.upset[firstName(name)] = true
	d.must(os.WriteFile(d.path(name), content, 0o600))
}

// away takes a name from its file, and gives it to the file under which it is
// to come back, nil if it was not there.
func (d *modelDisk) away(name, aside string) (f *modelFile) {
	d.do("rename away", name, func(*modelFile) error {
		if _, ok := d.links[name]; ok {
			return nil
		}
		f = d.at[name]
		d.upset[firstName(name)] = true
		delete(d.at, name)
		return os.Rename(d.path(name), d.path(aside))
	})
	return f
}

func (d *modelDisk) back(name, aside string, f *modelFile) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done = append(d.done, fmt.Sprintf("%s rename back (%d bytes)", name, len(f.now)))
	d.putLocked(name, f)
	d.must(os.Rename(d.path(aside), d.path(name)))
}

func (d *modelDisk) remove(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, link := d.links[name]
	if d.at[name] == nil && !link {
		return
	}
	d.done = append(d.done, name+" remove")
	d.upset[firstName(name)] = true
	delete(d.at, name)
	delete(d.links, name)
	d.must(os.Remove(d.path(name)))
}

// alias gives a file another name.
func (d *modelDisk) alias(name, alias string, symbolic bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.at[name]
	if f == nil || d.at[alias] != nil || d.links[alias] != "" {
		return
	}
	d.done = append(d.done, fmt.Sprintf("%s alias %s, symbolic %v", name, alias, symbolic))
	d.upset[firstName(alias)] = true
	if symbolic {
		d.links[alias] = name
		d.was[alias] = append(d.was[alias], d.was[name]...)
		d.must(os.Symlink(name, d.path(alias)))
		return
	}
	d.putLocked(alias, f)
	d.must(os.Link(d.path(name), d.path(alias)))
}

// content is what a name leads to; ok is false where there is nothing.
func (d *modelDisk) content(name string) (content []byte, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.fileLocked(name)
	if f == nil {
		return nil, false
	}
	return f.now, true
}

// past is everything that was read under a name, if nothing else was than
// what the files there held.
func (d *modelDisk) past(name string) (contents []modelContent, smudged, upset bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.was[name] {
		contents = append(contents, f.contents...)
		smudged = smudged || f.smudged
	}
	return contents, smudged, d.upset[firstName(name)]
}

// history is what was done to a name and its aliases, the last first.
func (d *modelDisk) history() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.done[max(0, len(d.done)-80):], "\n")
}

// settle forgets the past: everybody has what is there now.
func (d *modelDisk) settle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.was)
	clear(d.upset)
	d.done = append(d.done, "-- settled")
	for name, f := range d.at {
		got, err := os.ReadFile(d.path(name))
		d.must(err)
		if !bytes.Equal(got, f.now) {
			d.t.Errorf("model: %s holds %d bytes, the model says %d", name, len(got), len(f.now))
		}
		f.contents, f.cut, f.smudged = []modelContent{{now: f.now}}, false, false
		d.was[name] = []*modelFile{f}
	}
	for link, target := range d.links {
		d.was[link] = slices.Clone(d.was[target])
	}
}

// modelWriter is a program that writes session files.
type modelWriter struct {
	d     *modelDisk
	id    string
	rng   *rand.Rand
	names []string
	ops   []string
	large bool
	n     int
	ids   []string
}

// modelOps are what a writer may do, by how much they disturb.
var modelOps = [3][]string{
	{"append", "append", "append", "partial", "burst"},
	{"replace", "longer", "remove", "again", "away", "alias", "symlink", "truncate", "same-size"},
	{"overwrite", "overwrite-kept", "rewrite-grow", "regrow", "regrow-same", "hole", "edit-alias"},
}

var modelNames = []string{"a.jsonl", "b.jsonl", "c.jsonl"}

// aliasOf is the other name that a file may have.
func aliasOf(name string) string { return "z-" + name }

func firstName(name string) string { return strings.TrimPrefix(name, "z-") }

func (w *modelWriter) run(n int) {
	for range n {
		w.one(w.ops[w.rng.IntN(len(w.ops))], w.names[w.rng.IntN(len(w.names))])
		w.pause()
	}
}

// pause lets the others in, and time pass.
func (w *modelWriter) pause() {
	if w.rng.IntN(3) > 0 {
		time.Sleep(time.Duration(w.rng.IntN(4000)) * time.Microsecond)
	}
}

func (w *modelWriter) entry() string {
	w.n++
	id := fmt.Sprintf("%s-%d", w.id, w.n)
	parent := ""
	if k := len(w.ids); k > 0 {
		parent = w.ids[max(0, k-1-max(0, w.rng.IntN(12)-8))]
	}
	target := parent
	if k := len(w.ids); k > 0 {
		target = w.ids[w.rng.IntN(k)]
	}
	w.ids = append(w.ids, id)
	text := fmt.Sprintf("text %d ", w.n) + strings.Repeat(string(rune('a'+w.rng.IntN(26))), w.rng.IntN(200))
	switch w.rng.IntN(24) {
	case 0:
		return compaction(id, parent, target)
	case 1:
		return contextEdit(id, parent, target, `null`)
	case 2:
		return contextEdit(id, parent, target, `{"content":"new"}`)
	case 3:
		return childUsage(id, parent, target, w.n)
	case 4:
		return toolCalls(id, parent, "c"+id)
	case 5:
		return toolResult(id, parent, "c"+target)
	case 6, 7, 8, 9:
		return assistant(id, parent, text)
	case 10:
		return `{"type":"message"` // malformed
	}
	return user(id, parent, text)
}

func (w *modelWriter) records(n int) string {
	var b strings.Builder
	for range n {
		b.WriteString(w.entry() + "\n")
	}
	return b.String()
}

func (w *modelWriter) fresh() []byte {
	var b strings.Builder
	b.WriteString(header + "\n")
	for range 24 { // up to behind a checkpoint
		if w.large {
			w.n++
			b.WriteString(user(fmt.Sprintf("%s-%d", w.id, w.n), "", strings.Repeat("large ", 10_000)) + "\n")
		}
	}
	b.WriteString(w.records(2 + w.rng.IntN(12)))
	return []byte(b.String())
}

// recordEnd is a record's end at random, not before the header's.
func (w *modelWriter) recordEnd(content []byte) int {
	var ends []int
	for i, c := range content {
		if c == '\n' {
			ends = append(ends, i+1)
		}
	}
	if len(ends) == 0 {
		return len(content)
	}
	return ends[w.rng.IntN(len(ends))]
}

func (w *modelWriter) one(op, name string) {
	d := w.d
	content, ok := d.content(name)
	if !ok {
		if w.rng.IntN(3) == 0 {
			d.create(name, w.fresh())
		}
		return
	}
	switch op {
	case "append":
		d.append(name, w.records(1+w.rng.IntN(3)))
	case "partial":
		whole := w.records(1)
		cut := w.rng.IntN(len(whole))
		if d.append(name, whole[:cut]) {
			w.pause()
			d.append(name, whole[cut:])
		}
	case "burst":
		for range 3 + w.rng.IntN(10) {
			d.append(name, w.records(1))
		}
	case "overwrite", "overwrite-kept":
		w.overwrite(name, op == "overwrite-kept")
	case "rewrite-grow": // old bytes change, and the file grows
		w.overwrite(name, false)
		d.append(name, w.records(1))
	case "replace":
		d.replace(name, w.fresh())
	case "longer":
		longer := slices.Concat(content[:w.recordEnd(content)], []byte(w.records(1+w.rng.IntN(4))))
		d.replace(name, longer)
	case "same-size":
		d.replace(name, otherText(content))
	case "truncate":
		w.truncate(name, content)
	case "regrow":
		w.truncate(name, content)
		w.pause()
		more := w.records(1 + w.rng.IntN(8))
		if now, ok := d.content(name); ok && len(now) < len(header) {
			more = header + "\n" + more
		}
		d.append(name, more)
	case "regrow-same":
		if cut := w.recordEnd(content); d.truncate(name, cut) {
			w.pause()
			d.append(name, string(otherText(content[cut:])))
		}
	case "remove":
		d.remove(name)
	case "again":
		d.remove(name)
		w.pause()
		d.create(name, w.fresh())
	case "away":
		aside := name + ".aside-" + w.id
		if f := d.away(name, aside); f != nil {
			w.pause()
			d.back(name, aside, f)
		}
	case "alias":
		w.alias(name, false)
	case "symlink":
		w.alias(name, true)
	case "edit-alias":
		w.alias(name, false)
		w.overwrite(aliasOf(name), false)
		d.append(aliasOf(name), w.records(1))
	case "hole":
		w.hole(name)
	}
}

// otherText is as long, and says something else.
func otherText(content []byte) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(content, []byte("text"), []byte("toxt")), []byte("aa"), []byte("bb"))
}

func (w *modelWriter) alias(name string, symbolic bool) {
	if _, there := w.d.content(aliasOf(name)); there && w.rng.IntN(2) == 0 {
		w.d.remove(aliasOf(name))
	}
	w.d.alias(name, aliasOf(name), symbolic)
	w.d.append(aliasOf(name), w.records(1))
}

// overwrite changes some bytes in some pieces behind the header.
func (w *modelWriter) overwrite(name string, keepTimes bool) {
	for range 1 + w.rng.IntN(3) {
		content, ok := w.d.content(name)
		if !ok || len(content) <= len(header)+1 {
			return
		}
		off := len(header) + 1 + w.rng.IntN(len(content)-len(header)-1)
		text := slices.Clone(content[off:min(len(content), off+1+w.rng.IntN(12))])
		odd := w.rng.IntN(8) == 0
		for i, c := range text {
			if 'a' <= c && c <= 'y' || odd && c != '\n' {
				text[i] = byte('a' + w.rng.IntN(26))
			}
		}
		w.d.overwrite(name, off, text, keepTimes)
		w.pause()
	}
}

func (w *modelWriter) truncate(name string, content []byte) {
	size := w.recordEnd(content)
	switch w.rng.IntN(4) {
	case 0:
		size = w.rng.IntN(len(content) + 1)
	case 1:
		size = max(0, size-w.rng.IntN(40))
	}
	if size < len(header)+1 {
		size = 0
	}
	w.d.truncate(name, size)
}

// hole makes a file longer before it is filled.
func (w *modelWriter) hole(name string) {
	text := w.records(1 + w.rng.IntN(2))
	content, ok := w.d.content(name)
	if !ok || !w.d.append(name, strings.Repeat("\x00", len(text))) {
		return
	}
	w.pause()
	// Another may have written or cut in between: then it lands where it lands.
	w.d.overwrite(name, len(content), []byte(text), false)
}
