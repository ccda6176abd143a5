package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// FrameReader cuts a byte stream into LF-framed lines and raw bodies. Every
// byte is looked at once, whatever the sizes of the reads beneath, and no more
// is held than the current frame; without Admit the memory of a long frame is
// kept for the next. It belongs to one goroutine.
type FrameReader struct {
	// Admit, where set, is asked before a frame that outgrew the read buffer
	// takes more bytes in memory. After a refusal the rest of the frame is
	// skipped and ReadFrame returns ErrNotAdmitted. The owner learns by
	// Admitted what to give back.
	Admit func(bytes int) bool

	r        *bufio.Reader
	most     int
	long     []byte // the current frame, where it does not fit the read buffer
	admitted int
}

// NewFrameReader reads from r through a buffer of bufferBytes; a frame, its
// LF not counted, may have frameBytesMax bytes.
func NewFrameReader(r io.Reader, bufferBytes, frameBytesMax int) *FrameReader {
	return &FrameReader{r: bufio.NewReaderSize(r, bufferBytes), most: frameBytesMax}
}

// ReadFrame returns the next frame without its LF; the bytes are valid until
// the next call of any method.
//
// At the end of the stream the error is io.EOF between frames and
// io.ErrUnexpectedEOF inside one. ErrFrameTooLarge leaves the stream inside
// the frame: nothing further can be read. With ErrNotAdmitted the frame's
// first bytes are returned and the next call returns the next frame.
func (f *FrameReader) ReadFrame() ([]byte, error) {
	f.admitted = 0
	if f.long = f.long[:0]; f.Admit != nil {
		f.long = nil // what was admitted is not kept
	}
	part, err := f.r.ReadSlice('\n')
	if err == nil && len(part) <= f.most+1 {
		return part[:len(part)-1], nil
	}
	for {
		switch {
		case len(f.long)+len(part) > f.most+1, // even a final LF cannot make it fit
			len(f.long)+len(part) > f.most && part[len(part)-1] != '\n':
			return nil, fmt.Errorf("%w: more than %d bytes", ErrFrameTooLarge, f.most)
		case errors.Is(err, io.EOF) && len(f.long)+len(part) > 0:
			return nil, io.ErrUnexpectedEOF
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
		if f.Admit != nil && !f.Admit(len(part)) {
			return f.skip(part, err)
		}
		f.admitted += len(part)
		f.long = append(f.long, part...)
		if err == nil {
			return f.long[:len(f.long)-1], nil
		}
		part, err = f.r.ReadSlice('\n')
	}
}

// skip reads past the end of a frame that may not be held.
func (f *FrameReader) skip(part []byte, err error) ([]byte, error) {
	seen := len(f.long) + len(part)
	start := bytes.Clone(part)
	if len(f.long) > 0 {
		start = f.long
	}
	for errors.Is(err, bufio.ErrBufferFull) {
		part, err = f.r.ReadSlice('\n')
		if seen += len(part); seen > f.most+1 {
			return nil, fmt.Errorf("%w: more than %d bytes", ErrFrameTooLarge, f.most)
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	}
	return bytes.TrimSuffix(start, []byte{'\n'}), fmt.Errorf("%w: %d bytes", ErrNotAdmitted, seen-1)
}

// Admitted returns how many bytes Admit granted to the frame just read, also
// when reading it failed.
func (f *FrameReader) Admitted() int { return f.admitted }

// ReadBody fills p with the raw bytes that follow the frame just read.
func (f *FrameReader) ReadBody(p []byte) error {
	_, err := io.ReadFull(f.r, p)
	if errors.Is(err, io.EOF) && len(p) > 0 {
		err = io.ErrUnexpectedEOF
	}
	return err
}
