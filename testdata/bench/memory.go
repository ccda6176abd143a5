package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sessiond/wire"
)

// memory measures what a daemon takes while a large session is attached to,
// first cold and then warm, a daemon for each view.
func (b *bench) memory() error {
	for _, p := range profiles {
		s, err := b.session(p, b.largest())
		if err != nil {
			return err
		}
		for _, view := range []wire.View{wire.ViewRecords, wire.ViewTranscript, wire.ViewContext} {
			if err := b.peaks(s, view); err != nil {
				return fmt.Errorf("%s: %w", s.of(string(view)), err)
			}
		}
	}
	return nil
}

func (b *bench) peaks(s *session, view wire.View) (err error) {
	name := fmt.Sprintf("m-%s-%s", s.profile, view)
	d, err := b.start(name, "--root", "bench="+s.root)
	if err != nil {
		return err
	}
	defer func() { // what it packed is large
		err = errors.Join(err, d.stop(), os.RemoveAll(filepath.Join(b.dir, name)))
	}()
	attach := attachTo(view)
	var peaks [2]int64 // after a cold one and a warm one
	for i := range peaks {
		if _, err := d.timeAttach(attach); err != nil {
			return err
		}
		if peaks[i], err = peakRSS(d.cmd.Process.Pid); err != nil {
			return err
		}
	}
	figure := fmt.Sprintf("%d MiB, then %d", peaks[0]>>20, peaks[1]>>20)
	b.addPeak(s.of("daemon, peak RSS, "+string(view)+" cold, then warm"), s, figure, peaks[1])
	return nil
}

// attachTo attaches to the session of a root and ends where live begins, view
// records in its fastest encoding.
func attachTo(view wire.View) wire.Command {
	cmd := wire.Command{Type: wire.CmdAttach, Session: "bench:" + sessionName, View: view, Live: new(bool)}
	if view == wire.ViewRecords {
		cmd.Encoding = wire.EncodingRaw
	}
	return cmd
}
