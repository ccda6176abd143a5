package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"sessiond/wire"
)

// inputBytesMax is how much input is read ahead while lines are sent.
const inputBytesMax = 1 << 20

// inputLine is a line of the input that is not blank.
type inputLine struct {
	number int
	text   string
}

// inputLines reads lines ahead, so that those that come while others are on
// their way go together. Its goroutine ends with the input; a read that waits
// cannot be called back, so it may outlive the command by as long.
type inputLines struct {
	filled chan inputBatch // capacity 1: what was read and not yet taken
	end    error           // of the input; read after filled is closed
}

type inputBatch struct {
	lines []inputLine
	bytes int
}

// readLines begins to read.
func readLines(r io.Reader) *inputLines {
	in := &inputLines{filled: make(chan inputBatch, 1)}
	go func() {
		in.end = in.read(bufio.NewReaderSize(r, 64<<10))
		close(in.filled)
	}()
	return in
}

// take returns the lines that are there, at least one; none at the end of the
// input.
func (in *inputLines) take(ctx context.Context) ([]inputLine, error) {
	select {
	case b, ok := <-in.filled:
		if !ok {
			return nil, in.end
		}
		return b.lines, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// read puts line after line behind those that wait to be taken.
func (in *inputLines) read(r *bufio.Reader) error {
	for number := 1; ; number++ {
		text, err := readLine(r)
		if len(bytes.TrimSpace(text)) > 0 && (err == nil || errors.Is(err, io.EOF)) {
			in.put(inputLine{number, string(text)})
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
}

// put adds a line to those that wait, unless they are many: then it waits for
// them to be taken.
func (in *inputLines) put(l inputLine) {
	next := inputBatch{[]inputLine{l}, len(l.text)}
	select {
	case waiting := <-in.filled:
		if waiting.bytes < inputBytesMax && len(waiting.lines) < wire.BatchEntriesMax {
			next = inputBatch{append(waiting.lines, l), waiting.bytes + len(l.text)}
			break
		}
		in.filled <- waiting // there is room: nobody else sends
	default:
	}
	in.filled <- next
}

// errLineTooLong: no frame could carry it.
var errLineTooLong = fmt.Errorf("longer than %d bytes, which no request can carry", wire.FrameBytesMax)

// readLine returns a line without its LF, and io.EOF with what follows the
// last one.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > wire.FrameBytesMax {
			return nil, errLineTooLong
		}
		line = append(line, part...)
		if err == nil {
			return line[:len(line)-1], nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}
