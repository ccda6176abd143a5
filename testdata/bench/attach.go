package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sessiond/testdata/gen"
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

// peakRSS is the daemon's high-water mark of resident memory, bytes.
func (d *daemon) peakRSS() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
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

// attaches measures attach of a 100 MB session in each view, and the memory
// of the daemon that did it all.
func (b *bench) attaches(p gen.Profile, root string, f *os.File, size int64, cold time.Duration) error {
	d, err := b.start("d-"+string(p), "--root", "bench="+root)
	if err != nil {
		return err
	}
	defer func() { _ = d.stop() }()
	probe, raw := time.Hour, time.Hour
	views := map[wire.View]time.Duration{wire.ViewTranscript: time.Hour, wire.ViewContext: time.Hour}
	live := false
	for range b.rounds {
		took, err := probeServe(f, size)
		if err != nil {
			return err
		}
		probe = min(probe, took)
		took, _, err = d.timeAttach(wire.Command{
			Type: wire.CmdAttach, Session: "bench:session.jsonl", View: wire.ViewRecords, Encoding: wire.EncodingRaw, Live: &live,
		})
		if err != nil {
			return err
		}
		raw = min(raw, took)
		for v := range views {
			took, _, err := d.timeAttach(wire.Command{Type: wire.CmdAttach, Session: "bench:session.jsonl", View: v, Live: &live})
			if err != nil {
				return err
			}
			views[v] = min(views[v], took)
		}
	}
	b.add(result{
		workload: "attach records raw, " + string(p), figure: rate(size, raw),
		ratio: probe.Seconds() / raw.Seconds(), unit: "pread+writev " + rate(size, probe), must: 0.4,
	})
	for _, v := range []wire.View{wire.ViewTranscript, wire.ViewContext} {
		b.add(result{
			workload: "attach " + string(v) + " warm, " + string(p), figure: rate(size, views[v]),
			ratio: cold.Seconds() / views[v].Seconds(), unit: "cold replay", must: 0.6,
		})
	}
	rss, err := d.peakRSS()
	if err != nil {
		return err
	}
	b.add(result{
		workload: "daemon peak RSS, " + string(p), figure: fmt.Sprintf("%d MiB", rss>>20),
		ratio: float64(rss) / (128 << 20), unit: "128 MiB", must: 1, atMost: true,
	})
	return nil
}

func (d *daemon) timeAttach(cmd wire.Command) (time.Duration, int64, error) {
	c, err := d.dial()
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	start := time.Now()
	n, err := c.attach(cmd)
	return time.Since(start), n, err
}

// probeServe sends the file over a unix socket with aligned reads and vectored
// writes, as fast as that goes.
func probeServe(f *os.File, size int64) (time.Duration, error) {
	l, err := net.Listen("unix", filepath.Join(os.TempDir(), fmt.Sprintf("sdb-probe-%d.sock", os.Getpid())))
	if err != nil {
		return 0, err
	}
	defer l.Close()
	sent := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			sent <- err
			return
		}
		defer c.Close()
		buf := make([]byte, 1<<20)
		head := []byte(`{"type":"probe"}` + "\n")
		for at := int64(0); at < size; {
			n, err := f.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
			if err != nil && !errors.Is(err, io.EOF) {
				sent <- err
				return
			}
			bufs := net.Buffers{head, buf[:n]}
			if _, err := bufs.WriteTo(c); err != nil {
				sent <- err
				return
			}
			at += int64(n)
		}
		sent <- nil
	}()
	start := time.Now()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	buf := make([]byte, 4<<20)
	for {
		if _, err := c.Read(buf); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return 0, err
		}
	}
	return time.Since(start), <-sent
}
