package main

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"sessiond/testdata/gen"
)

// session is the only file of a folder, which a daemon can follow.
type session struct {
	profile gen.Profile
	mb      int64
	root    string
	path    string
	size    int64
}

const sessionName = "session.jsonl"

// session returns a session of about a size. It is built by appends, as real
// ones are, when it is asked for first.
func (b *bench) session(p gen.Profile, mb int64) (*session, error) {
	name := fmt.Sprintf("%s-%d", p, mb)
	if s := b.sessions[name]; s != nil {
		return s, nil
	}
	s := &session{profile: p, mb: mb, root: filepath.Join(b.dir, name)}
	s.path = filepath.Join(s.root, sessionName)
	if err := os.MkdirAll(s.root, 0o700); err != nil {
		return nil, err
	}
	linesPerSync := 1000
	if mb > mustMB { // or making it takes longer than reading it
		linesPerSync = 20_000
	}
	var err error
	if s.size, err = gen.AppendFile(s.path, gen.Options{Profile: p, Seed: 1, Bytes: mb << 20}, linesPerSync); err != nil {
		return nil, err
	}
	b.sessions[name] = s
	return s, nil
}

// of names a row about the session.
func (s *session) of(workload string) string {
	return fmt.Sprintf("%s, %s, %s", workload, s.profile, sizeText(s.mb))
}

func sizeText(mb int64) string {
	if mb%1024 == 0 {
		return fmt.Sprintf("%d GB", mb/1024)
	}
	return fmt.Sprintf("%d MB", mb)
}

// checkRoom says before anything is made whether it will fit: the sessions of
// all sizes, two views of one that a daemon packs, and what is appended.
func (b *bench) checkRoom() error {
	need := int64(512 << 20)
	for _, mb := range b.sizes {
		need += int64(len(profiles)) * mb << 20
	}
	need += 2 * b.largest() << 20
	var st unix.Statfs_t
	if err := unix.Statfs(b.dir, &st); err != nil {
		return err
	}
	if free := int64(st.Bavail) * int64(st.Bsize); free < need {
		return fmt.Errorf("%s has %d MB free, and %d MB are needed: choose another folder by -dir, or other -sizes", filepath.Dir(b.dir), free>>20, need>>20)
	}
	return nil
}
