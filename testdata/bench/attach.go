package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"sessiond/wire"
)

// attaches measures attach to a session in each view; cold is the time of its
// replay.
func (b *bench) attaches(s *session, cold time.Duration) error {
	f, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer f.Close()
	d, err := b.start("d-"+string(s.profile), "--root", "bench="+s.root)
	if err != nil {
		return err
	}
	defer func() { _ = d.stop() }()
	attach := func(view wire.View) work {
		return func() (time.Duration, error) { return d.timeAttach(attachTo(view)) }
	}
	views := []wire.View{wire.ViewTranscript, wire.ViewContext}
	best, err := b.fastest(
		b.roundsAt(s.mb),
		timed(func() error { return probeServe(f, s.size) }),
		attach(wire.ViewRecords),
		attach(views[0]),
		attach(views[1]),
	)
	if err != nil {
		return err
	}
	served, raw := best[0], best[1]
	b.add(result{
		workload: s.of("attach, records raw"), figure: rate(s.size, raw),
		ratio: served.Seconds() / raw.Seconds(), probe: "pread+writev " + rate(s.size, served), must: 0.4,
	})
	for i, v := range views {
		b.add(result{
			workload: s.of("attach, " + string(v) + " warm"), figure: rate(s.size, best[2+i]),
			ratio: cold.Seconds() / best[2+i].Seconds(), probe: "cold replay " + rate(s.size, cold), must: 0.6,
		})
	}
	return nil
}

// probeServe sends the file over a unix socket with aligned reads and vectored
// writes, as fast as that goes.
func probeServe(f *os.File, size int64) error {
	l, err := net.Listen("unix", filepath.Join(os.TempDir(), fmt.Sprintf("sdb-probe-%d.sock", os.Getpid())))
	if err != nil {
		return err
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
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		return err
	}
	defer c.Close()
	buf := make([]byte, 4<<20)
	for {
		if _, err := c.Read(buf); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
	}
	return <-sent
}
