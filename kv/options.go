package kv

import (
	"time"

	"sessiond/migrations"
)

// Options of an Index; the zero value is the default.
type Options struct {
	// Now is the clock of the back-off and of the names of damaged files;
	// default time.Now.
	Now func() time.Time
	// LockTimeout bounds the wait for another process's lock; default 1 s.
	LockTimeout time.Duration
	// BytesMax bounds the file. An index that would outgrow it is removed and
	// begun again, which also is the only way a file shrinks; default 1 GiB.
	BytesMax int
	// Listener is told what happens to the index.
	Listener Listener

	files files             // default osFiles
	steps []migrations.Step // default migrations.Steps
}

// Listener is a set of functions, nil ones left out. They are called on the
// goroutine of the Open, Put or read that found something, and must not call
// the Index.
type Listener struct {
	// SetAside: the index at Path was unusable; an empty one takes its place.
	SetAside func(SetAside)
	// Migrated: the index at path was brought from one schema to another.
	Migrated func(path string, from, to int)
	// Degraded: from here on reads find nothing and writes are dropped.
	Degraded func(err error)
	// Recovered ends Degraded.
	Recovered func()
	// BadValue: a stored value is wrong and counts as absent.
	BadValue func(bucket, key string, err error)
}

// SetAside tells of an index that was replaced by an empty one.
type SetAside struct {
	Path  string
	Aside string // where it is now; empty where it was removed
	Cause error  // ErrDamaged, ErrNewerSchema or ErrOutgrown
}

// Times of the back-off after failures; the first retry comes at once.
const (
	retryDelayMin = time.Second
	retryDelayMax = time.Minute
)

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.LockTimeout <= 0 {
		o.LockTimeout = time.Second
	}
	if o.BytesMax <= 0 {
		o.BytesMax = 1 << 30
	}
	l := &o.Listener
	if l.SetAside == nil {
		l.SetAside = func(SetAside) {}
	}
	if l.Migrated == nil {
		l.Migrated = func(string, int, int) {}
	}
	if l.Degraded == nil {
		l.Degraded = func(error) {}
	}
	if l.Recovered == nil {
		l.Recovered = func() {}
	}
	if l.BadValue == nil {
		l.BadValue = func(string, string, error) {}
	}
	if o.files.open == nil {
		o.files = osFiles
	}
	if o.steps == nil {
		o.steps = migrations.Steps
	}
	return o
}
