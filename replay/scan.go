package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
	"sessiond/replay/pages"
	"sessiond/replay/stamp"
)

// pieceBytes is how much Extend reads before it lets readers in.
const pieceBytes = 4 << 20

// Extend reads the bytes between the head and size, which must be what it
// read before plus more. After an error the replay stands at a complete
// record and Extend may be called again.
func (r *Replay) Extend(ctx context.Context, src io.ReaderAt, size int64) error {
	r.grow.Lock()
	defer r.grow.Unlock()
	if err := r.check(); err != nil {
		return err
	}
	switch {
	case size < r.head.Offset:
		return fmt.Errorf("replay: file of %d bytes ends before the head at %d: %w", size, r.head.Offset, io.ErrUnexpectedEOF)
	case size == r.head.Offset:
		r.mu.Lock()
		r.empty = r.empty || size == 0
		r.tail = Tail{State: TailClean, Offset: size}
		r.mu.Unlock()
		return nil
	}
	if err := r.wake(ctx, src); err != nil {
		return err
	}
	if !r.final {
		f, final, err := detect(src, size, r.opt)
		switch {
		case err != nil:
			return err
		case f != nil:
			return r.again(ctx, src, size, r.opt.newReading(f, 0))
		}
		r.mu.Lock()
		r.final = final
		r.mu.Unlock()
	}
	if long, err := r.tailGoesOn(src, size); long || err != nil {
		return err
	}
	err := r.scan(ctx, src, size)
	if next, ok := r.restarted(err); ok {
		return r.again(ctx, src, size, next)
	}
	return err
}

// restarted returns the reading to begin where a dialect asked for it.
func (r *Replay) restarted(err error) (next reading, ok bool) {
	var restart *dialect.Restart
	if !errors.As(err, &restart) {
		return reading{}, false
	}
	next = r.opt.newReading(r.family, restart.Hint)
	next.floor = r.head.Sequence + 1
	return next, true
}

// again reads the file from its start with another understanding. Readers
// keep the old one until the new one is whole, so the head never goes back.
func (r *Replay) again(ctx context.Context, src io.ReaderAt, size int64, next reading) error {
	fresh := &Replay{opt: r.opt, observed: r.observed, private: true}
	next.empty = r.empty && r.head.Offset == 0
	for ok := true; ok; {
		fresh.reading = next
		err := fresh.scan(ctx, src, size)
		if next, ok = fresh.restarted(err); !ok && err != nil {
			return err
		}
	}
	r.become(fresh)
	return nil
}

// become takes over what another replay of the file has read. Called with grow.
func (r *Replay) become(fresh *Replay) {
	r.observed = fresh.observed
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading = fresh.reading
	r.markLocked()
}

// tailGoesOn handles a long last line that is still growing without reading
// it from its start again.
func (r *Replay) tailGoesOn(src io.ReaderAt, size int64) (bool, error) {
	end := r.tail.Offset + r.tail.Bytes
	if r.opt.Tail || r.tail.Bytes <= tailBytesMax || size <= end {
		return false, nil
	}
	if same, err := r.sameTail(src); !same || err != nil {
		return false, err
	}
	lfs, _, err := stamp.Advance(src, stamp.NewDigest(), end, size)
	if err != nil || lfs > 0 {
		return false, err
	}
	sum, err := tailSum(src, r.tail.Offset, size)
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	r.tail.Bytes, r.tailSum = size-r.tail.Offset, sum
	r.mu.Unlock()
	return true, nil
}

// sameTail reports whether the end of a long tail is as it was: one that was
// taken back and written anew must be looked at from its start.
func (r *Replay) sameTail(src io.ReaderAt) (bool, error) {
	sum, err := tailSum(src, r.tail.Offset, r.tail.Offset+r.tail.Bytes)
	return sum == r.tailSum, err
}

// tailSum is the digest of the last stretch of a long tail.
func tailSum(src io.ReaderAt, from, to int64) (uint64, error) {
	d := stamp.NewDigest()
	_, _, err := stamp.Advance(src, d, max(from, to-frontBytes), to)
	return d.Sum64(), err
}

// scan reads records from the head on.
func (r *Replay) scan(ctx context.Context, src io.ReaderAt, size int64) error {
	var keys jsonl.Keys
	if r.family != nil {
		keys = r.family.Keys(r.opt.Observe != nil)
	}
	from := r.head
	r.countScan()
	p := &producer{digest: r.digest.Clone(), last: r.lastCheckpoint()}
	p.lines = jsonl.NewReader(src, from.Offset, size, jsonl.ReaderOptions{
		BufferBytes: r.bufferBytes(size - from.Offset), RecordBytesMax: r.opt.RecordBytesMax, Keys: keys, Digest: p.digest,
	})
	s := &scanner{r: r, ctx: ctx, src: src, wanted: keys}
	next, stop := p.batches(size-from.Offset, s.keys)
	defer stop()
	for {
		more, err := s.piece(src, next)
		if err != nil || !more {
			r.opt.Counters.BytesRead.Add(uint64(r.head.Offset - from.Offset))
			r.opt.Counters.EventsParsed.Add(s.events)
			r.opt.Counters.LinesParsed.Add(r.head.Sequence - from.Sequence)
			if errors.Is(err, errHole) {
				r.mu.Lock()
				r.tail = Tail{State: TailUnterminated, Offset: r.head.Offset, Bytes: size - r.head.Offset, NULs: true, Hole: true}
				r.mu.Unlock()
				err = nil
			}
			return err
		}
	}
}

// errHole ends a scan before a record that Hole makes wait.
var errHole = errors.New("replay: NUL bytes that may be filled yet")

// countScan counts a scan from the head on, and what it makes: a file that was
// empty when it was first looked at is known up to its start, so that what
// came since is a tail.
func (r *Replay) countScan() {
	c := r.opt.Counters
	if r.head.Offset == 0 && !r.empty {
		c.FullScans.Add(1)
	} else {
		c.TailScans.Add(1)
	}
	if r.built {
		c.Extensions.Add(1)
	} else {
		c.Builds.Add(1)
	}
	r.mu.Lock()
	r.built = true
	r.mu.Unlock()
}

// bufferBytes is how much is read at once: of a short way all, so that not even
// a long line is read twice.
func (r *Replay) bufferBytes(left int64) int {
	switch {
	case r.opt.BufferBytes > 0:
		return r.opt.BufferBytes
	case left <= aheadBytes:
		return int(max(left, 4<<10))
	}
	return batchBytes
}

// scanner is one pass over new bytes.
type scanner struct {
	r   *Replay
	ctx context.Context
	src io.ReaderAt

	wanted jsonl.Keys
	line   *jsonl.Scanner
	inside *jsonl.Scanner // for objects inside a line that line is looking at

	taken  []scanned // of the batch at hand: the records that the replay has
	events uint64    // that the dialect was given

	object dialect.Object // the one at hand, of a line that is nothing else

	// Of the record at hand; they count once the dialect has taken it.
	objects  []dialect.Object // for Observe
	findings []jsonl.Diagnostic
}

func (s *scanner) keys() *jsonl.Scanner {
	if s.line == nil {
		s.line = jsonl.NewScanner(s.wanted)
	}
	return s.line
}

func (s *scanner) probe() *jsonl.Scanner {
	if s.inside == nil {
		s.inside = jsonl.NewScanner(s.wanted)
	}
	return s.inside
}

// piece takes some batches of records under the lock and commits them.
func (s *scanner) piece(src io.ReaderAt, next func() *batch) (more bool, err error) {
	r := s.r
	defer r.edit()()
	was, digest := r.head, r.digest
	defer func() {
		if r.space.Lost() { // what was taken of the piece is not to be told of
			r.head, r.digest = was, digest
		}
	}()
	defer pages.Catch(&err)
	r.space.Check()
	start := r.head.Offset
	for more = true; more && err == nil && r.head.Offset-start < pieceBytes; {
		more, err = s.batch(next())
	}
	if err != nil { // a restart too: reading anew may fail
		s.digestTaken()
		r.noteNear()
	}
	r.head.Digest = r.digest.Sum64()
	if more || err != nil {
		r.tail = Tail{State: TailClean, Offset: r.head.Offset} // not looked at
	}
	switch {
	case r.session == nil:
	case r.private && more && err == nil: // links that stand are made anew once, not for each piece
		r.space.Relax()
	default:
		r.session.Commit()
	}
	r.markLocked()
	if cerr := s.ctx.Err(); cerr != nil && err == nil {
		err = cerr
	}
	return more, err
}

// batch takes the lines of a batch; more is false after the last.
func (s *scanner) batch(b *batch) (more bool, err error) {
	r := s.r
	s.taken = b.lines[:0]
	for i := range b.lines {
		line := &b.lines[i]
		if !line.Terminated {
			if err := s.tail(line.Line); err != nil {
				return false, err
			}
			break
		}
		if r.opt.Hole != nil && bytes.IndexByte(line.Text, 0) >= 0 && r.opt.Hole(line.Offset) {
			return false, errHole
		}
		if err := s.record(line, false); err != nil {
			return false, err
		}
		r.head.Sequence++
		r.head.Offset = line.Offset + line.Size
		s.taken = b.lines[:i+1]
	}
	switch {
	case errors.Is(b.err, io.EOF) && (len(b.lines) == 0 || b.lines[len(b.lines)-1].Terminated):
		r.tail = Tail{State: TailClean, Offset: r.head.Offset}
	case b.err != nil && !errors.Is(b.err, io.EOF):
		return false, fmt.Errorf("replay: record %d: %w", r.head.Sequence+1, b.err)
	}
	r.digest = b.digest
	if b.check {
		r.head.Digest = r.digest.Sum64()
		r.checkpoints = append(r.checkpoints, stamp.Checkpoint{Point: r.head, State: r.digest.State()})
	}
	r.noteNear()
	return b.err == nil, nil
}

// Distances of the places that a comparison of a file's ends uses.
const (
	frontBytes = 4 << 10  // from the start, at least
	nearBytes  = 64 << 10 // before the head, at least
	nearStep   = 16 << 10 // between two places
)

// noteNear remembers the place at the head.
func (r *Replay) noteNear() {
	if r.front.Offset < frontBytes && r.head.Offset > r.front.Offset {
		r.front = r.head
		r.front.Digest = r.digest.Sum64()
	}
	n := len(r.near)
	if n > 0 && r.head.Offset-r.near[n-1].Offset < nearStep {
		return
	}
	for len(r.near) > 1 && r.head.Offset-r.near[1].Offset >= nearBytes {
		r.near = r.near[1:]
	}
	r.near = append(r.near[:len(r.near):len(r.near)], near{r.head, r.digest.Clone()})
}

// digestTaken brings the digest, which is at the end of the batch before, to
// the head after an error in the middle of a batch. It is made of what was
// read: the file may be another by now. An oversized line is alone in its batch
// and so not among those taken before an error.
func (s *scanner) digestTaken() {
	r := s.r
	d := r.digest.Clone()
	for i := range s.taken {
		line := &s.taken[i]
		_, _ = d.Write(line.Text) // never fails
		if int64(len(line.Text))+1 < line.Size {
			_, _ = d.Write([]byte{'\r'})
		}
		_, _ = d.Write([]byte{'\n'})
	}
	r.digest = d
}

func (r *Replay) lastCheckpoint() int64 {
	n := len(r.checkpoints)
	if n == 0 {
		return 0
	}
	return r.checkpoints[n-1].Offset
}

func trimBOM(text []byte) []byte { return bytes.TrimPrefix(text, []byte(jsonl.BOM)) }

// record takes one line, or offline the provisional tail.
func (s *scanner) record(line *scanned, provisional bool) error {
	r := s.r
	seq := r.head.Sequence + 1
	text, at := line.Text, line.Offset
	s.objects, s.findings = s.objects[:0], s.findings[:0]
	if at == 0 && bytes.HasPrefix(text, []byte(jsonl.BOM)) {
		text, at, line.plain = trimBOM(text), int64(len(jsonl.BOM)), false
		s.diagnose(jsonl.CodeBOM, seq, 0, at, "a byte-order mark, skipped")
	}
	class, err := s.classify(line, text, at, seq, provisional)
	if err != nil {
		return err
	}
	if !provisional {
		r.counts.add(class)
		if line.Oversized != nil {
			r.counts.Oversized++
		}
	}
	first := seq > r.observed
	r.observed = max(r.observed, seq)
	for _, d := range s.findings {
		r.note(d, first)
	}
	if first && r.opt.Observe != nil {
		r.opt.Observe(Record{Sequence: seq, Line: line.Line, Class: class, Objects: s.objects, Family: r.session})
	}
	return nil
}

// note keeps a finding, within the bound.
func (r *Replay) note(d jsonl.Diagnostic, first bool) {
	if first && r.opt.Diagnostics != nil {
		r.opt.Diagnostics(d)
	}
	if len(r.diagnostics) < DiagnosticsMax {
		r.diagnostics = append(r.diagnostics, d)
	} else {
		r.truncated = true
	}
}

func (c *Counts) add(class Class) {
	c.Records++
	switch class {
	case ClassEntry:
		c.Entries++
	case ClassBlank:
		c.Blank++
	case ClassMalformed:
		c.Malformed++
	case ClassSalvaged:
		c.Salvaged++
	case ClassNonObject:
		c.NonObject++
	}
}

func (s *scanner) classify(line *scanned, text []byte, at int64, seq uint64, provisional bool) (Class, error) {
	r := s.r
	if line.Oversized != nil {
		return s.oversized(line.Line, seq, provisional)
	}
	if line.plain {
		r.parsed++
		s.object = dialect.Object{ // one for all lines: what the dialect gets is on the heap
			Sequence: seq, Index: r.parsed - 1, Offset: at, Bytes: int64(len(text)),
			Text: text, Scan: s.keys().Plain(text, line.members),
		}
		return ClassEntry, s.add(&s.object)
	}
	scan := s.keys().Scan(text)
	switch scan.Kind {
	case jsonl.Object:
		s.noteText(scan, seq, at)
		r.parsed++
		v := scan.Value
		o := dialect.Object{
			Sequence: seq, Index: r.parsed - 1, Offset: at + int64(v.Start), Bytes: int64(v.End - v.Start),
			Text: text, Scan: scan, Provisional: provisional,
		}
		if v.Start > 0 || v.End < len(text) {
			o.Text = text[v.Start:v.End]
			o.Scan = s.keys().Scan(o.Text)
		}
		return ClassEntry, s.add(&o)
	case jsonl.Invalid:
		if len(bytes.TrimSpace(text)) == 0 {
			return ClassBlank, nil
		}
		if scan.AtEnd {
			s.diagnose(jsonl.CodeMalformedLine, seq, line.Offset, line.Size, "the JSON ends before it is complete")
			return ClassMalformed, nil
		}
		return s.salvage(text, at, seq, line.Line, scan.ErrOffset)
	}
	r.parsed++
	s.diagnose(jsonl.CodeNonObjectLine, seq, line.Offset, line.Size, "valid JSON, but "+scan.Kind.String()+" instead of an object")
	return ClassNonObject, nil
}

func (s *scanner) oversized(line jsonl.Line, seq uint64, provisional bool) (Class, error) {
	r, big := s.r, line.Oversized
	switch {
	case !big.Valid:
		s.diagnose(jsonl.CodeMalformedLine, seq, line.Offset, line.Size, "no JSON, in a record over the record limit")
		return ClassMalformed, nil
	case big.Kind != jsonl.Object:
		r.parsed++
		s.diagnose(jsonl.CodeNonObjectLine, seq, line.Offset, line.Size, "valid JSON, but "+big.Kind.String()+" instead of an object")
		return ClassNonObject, nil
	}
	r.parsed++
	s.diagnose(jsonl.CodeOversizedRecord, seq, line.Offset, line.Size, "over the record limit; message views show a marker")
	o := dialect.Object{
		Sequence: seq, Index: r.parsed - 1, Offset: line.Offset, Bytes: line.Size,
		Oversized: big, Provisional: provisional,
	}
	if line.Terminated {
		o.Bytes--
	}
	return ClassEntry, s.add(&o)
}

func (s *scanner) salvage(text []byte, at int64, seq uint64, line jsonl.Line, errOffset int) (Class, error) {
	r := s.r
	envelope := func(object []byte) bool {
		if r.family == nil {
			return true
		}
		return r.family.Envelope(s.probe().Scan(object), object)
	}
	code, values := jsonl.Salvage(text, s.keys(), envelope)
	detail := fmt.Sprintf("no JSON at byte %d of the line", errOffset)
	if code != jsonl.CodeMalformedLine {
		detail = fmt.Sprintf("%d records taken from the line", len(values))
	}
	s.diagnose(code, seq, line.Offset, line.Size, detail)
	for _, v := range values {
		object := v.Bytes(text)
		scan := s.keys().Scan(object)
		s.noteText(scan, seq, at+int64(v.Start))
		if err := s.add(&dialect.Object{
			Sequence: seq, Index: -1, Offset: at + int64(v.Start), Bytes: int64(len(object)),
			Text: object, Scan: scan, Salvaged: true,
		}); err != nil {
			return ClassSalvaged, err
		}
	}
	if len(values) == 0 {
		return ClassMalformed, nil
	}
	return ClassSalvaged, nil
}

// add hands an object to the dialect.
func (s *scanner) add(o *dialect.Object) error {
	if s.r.opt.Observe != nil {
		seen := *o
		if o.Salvaged {
			scan := *o.Scan // the scanner's own is overwritten by the next object of the line
			scan.Top, scan.Sub = slices.Clone(scan.Top), slices.Clone(scan.Sub)
			seen.Scan = &scan
		}
		s.objects = append(s.objects, seen)
	}
	if s.r.session == nil {
		return nil
	}
	s.events++
	again, err := s.r.session.Add(o)
	if again && s.r.opt.Observe != nil {
		s.objects[len(s.objects)-1].Again = true
	}
	return err
}

// noteText reports what JSON accepts and a reader should know.
func (s *scanner) noteText(scan *jsonl.Scan, seq uint64, at int64) {
	if scan.InvalidUTF8 >= 0 {
		s.diagnose(jsonl.CodeInvalidUTF8, seq, at+int64(scan.InvalidUTF8), 1, "bytes that are no UTF-8; messages show U+FFFD")
	}
	if scan.LoneSurrogate >= 0 {
		s.diagnose(jsonl.CodeLoneSurrogate, seq, at+int64(scan.LoneSurrogate), 6, "an escape that is half of a surrogate pair")
	}
	if scan.DuplicateKey >= 0 {
		s.diagnose(jsonl.CodeDuplicateKey, seq, at+int64(scan.DuplicateKey), 1, "a key stands twice in one object; the last wins")
	}
}

func (s *scanner) diagnose(code jsonl.Code, seq uint64, offset, length int64, detail string) {
	s.findings = append(s.findings, jsonl.Diagnostic{
		Code: code, Severity: code.Severity(), Line: int64(seq),
		Offset: offset, Length: length, Detail: detail,
	})
}

// tail looks at what follows the last LF.
func (s *scanner) tail(line jsonl.Line) error {
	r := s.r
	t := Tail{State: TailUnterminated, Offset: line.Offset, Bytes: line.Size}
	text := line.Text
	if line.Offset == 0 {
		text = trimBOM(text)
	}
	whole := false
	switch {
	case !r.opt.Tail && line.Size > tailBytesMax:
	case line.Oversized != nil:
		whole = line.Oversized.Valid && line.Oversized.Kind == jsonl.Object
	default:
		whole = s.keys().Scan(text).Kind == jsonl.Object
		t.NULs = bytes.IndexByte(text, 0) >= 0
	}
	if whole {
		t.State = TailProvisional
	}
	r.tail = t
	if t.Bytes > tailBytesMax && !r.opt.Tail {
		var err error
		if r.tailSum, err = tailSum(s.src, t.Offset, t.Offset+t.Bytes); err != nil {
			return err
		}
	}
	if whole && r.opt.Tail {
		return s.record(&scanned{Line: line}, true)
	}
	return nil
}
