package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sessiond/wire"
)

// daemon is a sessiond process of its own.
type daemon struct {
	cmd    *exec.Cmd
	socket string
}

func (b *bench) start(name string, args ...string) (*daemon, error) {
	state := filepath.Join(b.dir, name)
	d := &daemon{socket: filepath.Join(b.dir, name+".sock")}
	args = append([]string{"serve", "--state-dir", state, "--socket", d.socket, "--log-level", "error"}, args...)
	d.cmd = exec.CommandContext(b.ctx, b.bin, args...)
	d.cmd.Stderr = os.Stderr
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	for range 500 {
		c, err := net.Dial("unix", d.socket)
		if err == nil {
			return d, c.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, errors.Join(errors.New("the daemon does not listen"), d.stop())
}

func (d *daemon) stop() error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return d.cmd.Wait()
}

// peakRSS is the high-water mark of a process's resident memory, bytes. What
// wait tells of a process begins with what its parent took.
func peakRSS(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for _, l := range strings.Split(string(text), "\n") {
		if f := strings.Fields(l); len(f) == 3 && f[0] == "VmHWM:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, errors.New("no VmHWM")
}

// conn is a client that reads as fast as it can and keeps nothing.
type conn struct {
	net.Conn
	r *bufio.Reader
	n int
}

func (d *daemon) dial() (*conn, error) {
	c, err := net.Dial("unix", d.socket)
	if err != nil {
		return nil, err
	}
	out := &conn{Conn: c, r: bufio.NewReaderSize(c, 4<<20)}
	_, err = out.r.ReadSlice('\n') // hello
	return out, err
}

func (c *conn) send(cmd wire.Command) error {
	c.n++
	cmd.ID = strconv.Itoa(c.n)
	b, err := json.Marshal(cmd)
	if err != nil {
		return err
	}
	_, err = c.Write(append(b, '\n'))
	return err
}

// timeAttach reads an attachment up to its seam. A view of nothing is an error.
func (d *daemon) timeAttach(cmd wire.Command) (time.Duration, error) {
	c, err := d.dial()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	start := time.Now()
	n, err := c.attach(cmd)
	if err == nil && n == 0 {
		err = errors.New("an empty view")
	}
	return time.Since(start), err
}

// attach reads an attachment up to its seam and returns the bytes of the view.
func (c *conn) attach(cmd wire.Command) (int64, error) {
	if err := c.send(cmd); err != nil {
		return 0, err
	}
	var total int64
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return total, err
		}
		switch {
		case bytes.HasPrefix(line, []byte(`{"type":"session_live"`)):
			return total, nil
		case bytes.HasPrefix(line, []byte(`{"type":"session_snapshot_chunk"`)):
			total += int64(len(line))
		case bytes.HasPrefix(line, []byte(`{"type":"session_records"`)):
			var h wire.Records
			if err := json.Unmarshal(line, &h); err != nil {
				return total, err
			}
			if _, err := c.r.Discard(h.Bytes); err != nil {
				return total, err
			}
			total += int64(h.Bytes)
		case bytes.HasPrefix(line, []byte(`{"type":"response"`)) && bytes.Contains(line, []byte(`"ok":false`)):
			return total, fmt.Errorf("refused: %s", line)
		}
	}
}
