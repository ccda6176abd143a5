package gen

import (
	"bufio"
	"fmt"
	"io"
	"os"
)

// HugeOptions choose a huge session. Zero values are the default: about 4 GB,
// of which a third is on disk.
type HugeOptions struct {
	Seed      uint64
	Entries   int64 // short ones, at least, in whole turns; default 5,000,000
	LongBytes int64 // text of the long entry; default 300 MB
	HoleBytes int64 // of the line of NULs, without its LF; default 2.5 GB
}

func (o HugeOptions) withDefaults() HugeOptions {
	or := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	or(&o.Entries, 5_000_000)
	or(&o.LongBytes, 300_000_000)
	or(&o.HoleBytes, 2_500_000_000)
	return o
}

func (o HugeOptions) validate() error {
	if o.Entries < 0 || o.LongBytes < 0 || o.HoleBytes < 0 {
		return fmt.Errorf("gen: %d entries, a text of %d bytes, a hole of %d: want no negative number", o.Entries, o.LongBytes, o.HoleBytes)
	}
	return nil
}

// Huge is what a huge session has.
type Huge struct {
	Bytes    int64
	Records  int64 // lines: the header, the entries and the hole
	Entries  int64 // with the long one, without the header
	Messages int64 // of these: what a transcript shows
}

// hugePiece is how much of a long text is made at a time.
const hugePiece = 64 << 10

// WriteHuge makes a new sparse file: a header, half of the short entries, a
// tool result with a long text, a line of NULs that are never written, and the
// other half. The entries are one chain, those of a Small session in which the
// long one takes the place of a result. It needs no more memory for longer
// files.
func WriteHuge(path string, o HugeOptions) (h Huge, err error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return Huge{}, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Huge{}, err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	w := &hugeWriter{session: newSession(Options{Profile: Small, Seed: o.Seed}), file: f, out: bufio.NewWriterSize(f, 1<<20)}
	w.write(w.header())
	w.Records++
	w.short(func() bool { return w.Entries >= o.Entries/2 && w.step() == 2 }) // a result is next
	w.long(o.LongBytes)
	w.hole(o.HoleBytes)
	w.short(func() bool { return w.Entries > o.Entries && w.step() == 0 })
	w.flush()
	return w.Huge, w.err
}

// hugeWriter writes the parts of a huge session in order, up to the first
// error.
type hugeWriter struct {
	*session
	Huge
	file *os.File
	out  *bufio.Writer
	err  error
}

func (w *hugeWriter) write(text []byte) {
	if w.err == nil {
		_, w.err = w.out.Write(text)
	}
	w.Bytes += int64(len(text))
}

func (w *hugeWriter) flush() {
	if w.err == nil {
		w.err = w.out.Flush()
	}
}

// step is the place in its turn of the entry that is next.
func (w *hugeWriter) step() int { return (w.count - 1) % len(w.turn) }

// short writes entries until it is done.
func (w *hugeWriter) short(done func() bool) {
	for w.err == nil && (w.count == 0 || !done()) {
		w.write(w.next())
		w.counted(w.count > 1 && !customSteps[(w.count-2)%len(w.turn)])
	}
}

// customSteps are the places in a Small turn of what no view shows.
var customSteps = map[int]bool{3: true, 4: true, 6: true}

func (w *hugeWriter) counted(message bool) {
	w.Records++
	w.Entries++
	if message {
		w.Messages++
	}
}

// long writes a tool result in pieces.
func (w *hugeWriter) long(textBytes int64) {
	w.buf = w.buf[:0]
	w.message("toolResult")
	w.buf = append(w.buf, `,"toolCallId":"call_`...)
	w.id(w.count - 1)
	w.buf = append(w.buf, `","toolName":"bash","content":[{"type":"text","text":"`...)
	for end := w.Bytes + textBytes; w.err == nil && w.Bytes < end; w.buf = w.buf[:0] {
		w.text(int(min(hugePiece, end-w.Bytes)))
		w.write(w.buf)
	}
	w.buf = append(w.buf, `"}],"isError":false`...)
	w.endMessage()
	w.count++
	w.write(w.end(""))
	w.counted(true)
}

// hole leaves room that reads as NULs, as one line.
func (w *hugeWriter) hole(size int64) {
	w.flush()
	if w.err == nil {
		_, w.err = w.file.Seek(size, io.SeekCurrent)
	}
	w.Bytes += size
	w.Records++
	w.write([]byte{'\n'})
}
