package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"sessiond/wire"
)

const (
	appendsProbe = 500
	appendsOne   = 500
	appendsMany  = 64 // writers
	appendsEach  = 60
)

func entry(writer, i int) string {
	return fmt.Sprintf(`{"type":"message","id":"w%d-%d","parentId":null,"timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"user","content":"a line of the length that agents write","timestamp":1}}`, writer, i)
}

// appends measures durable appends by one and by many writers.
func (b *bench) appends() error {
	probe, err := b.probeAppend()
	if err != nil {
		return err
	}
	d, err := b.start("appends")
	if err != nil {
		return err
	}
	defer func() { _ = d.stop() }()
	one, err := b.writers(d, "one", 1, appendsOne)
	if err != nil {
		return err
	}
	many, err := b.writers(d, "many", appendsMany, appendsEach)
	if err != nil {
		return err
	}
	perSecond := func(r float64) string { return fmt.Sprintf("%.0f/s", r) }
	b.add(result{workload: "append, 1 writer", figure: perSecond(one), ratio: one / probe, probe: "write+fdatasync " + perSecond(probe)})
	b.add(result{workload: "append, 64 writers", figure: perSecond(many), ratio: many / one, probe: "1 writer"})
	return nil
}

// probeAppend writes and syncs one line after another, lines a second.
func (b *bench) probeAppend() (float64, error) {
	f, err := os.OpenFile(filepath.Join(b.dir, "probe"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	start := time.Now()
	for i := range appendsProbe {
		if _, err := f.WriteString(entry(0, i) + "\n"); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
	}
	return appendsProbe / time.Since(start).Seconds(), nil
}

// writers appends with n connections to one new session, entries a second.
func (b *bench) writers(d *daemon, session string, n, each int) (float64, error) {
	c, err := d.dial()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.roundTrip(wire.Command{Type: wire.CmdCreate, SessionID: session}); err != nil {
		return 0, err
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	start := time.Now()
	for w := range n {
		wg.Go(func() {
			c, err := d.dial()
			if err != nil {
				errs[w] = err
				return
			}
			defer c.Close()
			for i := range each {
				if errs[w] = c.roundTrip(wire.Command{Type: wire.CmdAppend, Session: session, Entries: []string{entry(w, i)}}); errs[w] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return float64(n*each) / took.Seconds(), nil
}

func (c *conn) roundTrip(cmd wire.Command) error {
	if err := c.send(cmd); err != nil {
		return err
	}
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(line, []byte(`{"type":"response"`)) {
			continue
		}
		if bytes.Contains(line, []byte(`"ok":false`)) {
			return fmt.Errorf("refused: %s", line)
		}
		return nil
	}
}
