package replay

import (
	"bytes"
	"cmp"
	"io"
	"slices"
	"sync"

	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
	"sessiond/replay/pages"
	"sessiond/replay/stamp"
)

// View is a message view at a cut. It stays as it is while the replay grows.
type View struct {
	Cut         stamp.Point
	Slots       dialect.Slots
	Amendments  []dialect.Amendment // all of them, by index
	Diagnostics int
	Budget      Budget
	Bodies
}

// Bodies makes the messages of slots. It is bound to the reading of the file
// that the slots came from, so that they mean the same when the file was read
// anew with another understanding.
type Bodies struct {
	mu      *sync.RWMutex
	space   *pages.Space
	session dialect.Session
	view    dialect.View
}

// Body describes a slot's message.
func (b Bodies) Body(s dialect.Slot, amended bool) (body dialect.Body, err error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	defer pages.Catch(&err)
	b.space.Check()
	return b.session.Body(b.view, s, amended), nil
}

// BodyAt describes the message of a view's i-th slot.
func (b Bodies) BodyAt(slots *dialect.Slots, i int, amended bool) (s dialect.Slot, body dialect.Body, err error) {
	if s, err = slots.Get(int32(i)); err == nil {
		body, err = b.Body(s, amended)
	}
	return s, body, err
}

// Bodies returns what makes the messages of a view's slots.
func (r *Replay) Bodies(v dialect.View) Bodies {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.bodiesLocked(v)
}

func (r *Replay) bodiesLocked(v dialect.View) Bodies { return Bodies{&r.mu, r.space, r.session, v} }

// Slots returns a view's slots at the head, without what else a View has.
func (r *Replay) Slots(v dialect.View) (slots dialect.Slots, bodies Bodies, err error) {
	defer r.edit()() // Slots may compute
	defer pages.Catch(&err)
	r.space.Check()
	if r.session != nil {
		r.countCutoff(v)
		slots = r.session.Slots(v)
	}
	return slots, r.bodiesLocked(v), nil
}

// View returns a view at the head.
func (r *Replay) View(v dialect.View) (out View, err error) {
	defer r.edit()() // Slots may compute
	defer pages.Catch(&err)
	r.space.Check()
	out = View{Cut: r.head, Budget: r.budgetLocked(v), Bodies: r.bodiesLocked(v)}
	if r.session != nil {
		r.countCutoff(v)
		out.Slots = r.session.Slots(v)
		out.Amendments = r.session.Amendments(v, 0)
	}
	list, _ := r.diagnosticsLocked()
	out.Diagnostics = len(list)
	return out, nil
}

// Delta is the change of a view from an earlier sequence to the head.
type Delta struct {
	Head       stamp.Point
	Digest     *stamp.Digest // at the head
	Cut        dialect.Cut
	Slots      dialect.Slots       // all at the head
	Amendments []dialect.Amendment // those that came after the sequence
	Budget     Budget
	Bodies
}

// Delta tells what changed a view since the record with the sequence.
func (r *Replay) Delta(v dialect.View, after uint64) (d Delta, err error) {
	defer r.edit()()
	defer pages.Catch(&err)
	r.space.Check()
	d = Delta{
		Head: r.head, Digest: r.digest.Clone(), Cut: dialect.Cut{Keep: dialect.All},
		Budget: r.budgetLocked(v), Bodies: r.bodiesLocked(v),
	}
	if r.session == nil {
		return d, nil
	}
	r.countCutoff(v)
	d.Slots = r.session.Slots(v)
	d.Amendments = r.session.Amendments(v, after)
	d.Cut = r.session.Keep(v, after)
	if after < r.floor {
		d.Cut = dialect.Cut{Keep: 0, Reason: dialect.ReasonHeader}
	}
	return d, nil
}

// Preview tells what the provisional tail would do to a view at the head; ok
// is false where there is none or its effect is no plain addition.
func (r *Replay) Preview(v dialect.View, w *dialect.Window) (p dialect.Preview, ok bool, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	defer pages.Catch(&err)
	r.space.Check()
	if r.session == nil || r.tail.State != TailProvisional || r.tail.Bytes > r.previewBytesMax() {
		return p, false, nil
	}
	text, err := w.Bytes(r.tail.Offset, int(r.tail.Bytes))
	if err != nil {
		return p, false, err
	}
	text = slices.Clone(text)
	offset := r.tail.Offset
	if offset == 0 {
		text = trimBOM(text)
		offset = r.tail.Bytes - int64(len(text))
	}
	object := bytes.TrimSpace(text)
	offset += int64(bytes.Index(text, object))
	scan := jsonl.NewScanner(r.family.Keys(false)).Scan(object)
	if scan.Kind != jsonl.Object { // the file changed since
		return p, false, nil
	}
	p, ok = r.session.Preview(v, dialect.Object{
		Sequence: r.head.Sequence + 1, Index: r.parsed, Offset: offset, Bytes: int64(len(object)),
		Text: object, Scan: scan, Provisional: true,
	})
	return p, ok, nil
}

func (r *Replay) previewBytesMax() int64 {
	if most := r.opt.RecordBytesMax; most > 0 {
		return min(most, tailBytesMax)
	}
	return tailBytesMax
}

// Verify reports whether a point is true of the source, and the digest there.
func (r *Replay) Verify(src io.ReaderAt, p stamp.Point) (*stamp.Digest, error) {
	head, digest := r.HeadDigest()
	if p == head {
		return digest, nil
	}
	d, _, err := stamp.Verify(src, r.Checkpoints(), p)
	return d, err
}

// Diagnostics returns the findings at the head by line, and whether there
// were more than are held.
func (r *Replay) Diagnostics() (list []jsonl.Diagnostic, truncated bool, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	defer pages.Catch(&err)
	r.space.Check()
	list, truncated = r.diagnosticsLocked()
	return list, truncated, nil
}

func (r *Replay) diagnosticsLocked() (list []jsonl.Diagnostic, truncated bool) {
	list, truncated = slices.Clone(r.diagnostics), r.truncated
	file := func(code jsonl.Code, detail string) {
		list = append(list, jsonl.Diagnostic{Code: code, Severity: code.Severity(), Detail: detail})
	}
	switch {
	case r.head.Offset == 0 && r.tail.Bytes == 0:
		file(jsonl.CodeEmptyFile, "no bytes yet")
	case r.session == nil:
		file(jsonl.CodeUnknownFormat, "no known format; the records are served as they are")
	default:
		more, cut := r.session.Diagnostics()
		list, truncated = append(list, more...), truncated || cut
	}
	if r.tail.State == TailUnterminated {
		detail := "the last line has no LF and is no whole object"
		if r.tail.NULs {
			detail += "; it holds NUL bytes"
		}
		list = append(list, jsonl.Diagnostic{
			Code: jsonl.CodeUnterminatedTail, Severity: jsonl.CodeUnterminatedTail.Severity(),
			Line: int64(r.head.Sequence) + 1, Offset: r.tail.Offset, Length: r.tail.Bytes, Detail: detail,
		})
	}
	slices.SortStableFunc(list, func(a, b jsonl.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Offset, b.Offset))
	})
	return list, truncated
}
