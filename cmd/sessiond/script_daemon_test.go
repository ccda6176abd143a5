package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"sessiond/wire/client"
)

// daemonCommands are script commands about a running daemon. All that wait are
// bounded by patience.
var daemonCommands = map[string]func(*testscript.TestScript, bool, []string){
	"wait-ready": scriptWaitReady,
	"wait-grep":  scriptWaitGrep,
	"wait-same":  scriptWaitSame,
	"wait-ok":    scriptWaitOK,
	"terminate":  scriptTerminate,
	"grow":       scriptGrow,
	"overwrite":  scriptOverwrite,
	"concat":     scriptConcat,
	"damage":     scriptDamage,
	"flip":       scriptFlip,
	"pretend":    scriptPretend,
}

const (
	patience = 20 * time.Second
	lookEach = 5 * time.Millisecond
)

// setupDaemon gives a script a state folder and a short socket path.
func setupDaemon(env *testscript.Env) error {
	dir, err := os.MkdirTemp("", "sd")
	if err != nil {
		return err
	}
	env.Defer(func() { _ = os.RemoveAll(dir) })
	env.Setenv("SESSIOND_STATE_DIR", filepath.Join(env.WorkDir, "state"))
	env.Setenv("SESSIOND_SOCKET", filepath.Join(dir, "s"))
	env.Setenv("GORACE", "atexit_sleep_ms=0") // with -race, else every command takes a second more
	env.Setenv("OWNED", filepath.Join(env.WorkDir, "state", "sessions"))
	return nil
}

// await looks until ok, or fails the script with what last says.
func await(ts *testscript.TestScript, last func() string, ok func() bool) {
	for end := time.Now().Add(patience); !ok(); time.Sleep(lookEach) {
		if time.Now().After(end) {
			ts.Fatalf("not within %v: %s", patience, last())
		}
	}
}

// wait-ready [SOCKET] waits until a daemon answers.
func scriptWaitReady(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) <= 1, "wait-ready [socket]")
	path := ts.Getenv("SESSIOND_SOCKET")
	if len(args) == 1 {
		path = args[0]
	}
	await(ts, func() string { return "an answer at " + path }, func() bool { return answers(path) == nil })
}

// answers asks a daemon for its status.
func answers(socket string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := client.Dial(ctx, client.Options{Path: socket})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Status(ctx)
	return err
}

// wait-grep FILE REGEXP [COUNT] waits until a file has so many matches.
func scriptWaitGrep(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && (len(args) == 2 || len(args) == 3), "wait-grep file regexp [count]")
	re := regexp.MustCompile(args[1])
	count := 1
	if len(args) == 3 {
		n, err := strconv.Atoi(args[2])
		ts.Check(err)
		count = n
	}
	read := func() []byte { b, _ := os.ReadFile(ts.MkAbs(args[0])); return b } // it may not be there yet
	await(ts, func() string { return args[1] + " in:\n" + string(read()) }, func() bool {
		return len(re.FindAll(read(), -1)) >= count
	})
}

// wait-same FILE FILE waits until two files have the same content.
func scriptWaitSame(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 2, "wait-same file file")
	await(ts, func() string { return strings.Join(args, " is ") }, func() bool {
		a, aerr := os.ReadFile(ts.MkAbs(args[0]))
		b, berr := os.ReadFile(ts.MkAbs(args[1]))
		return aerr == nil && berr == nil && bytes.Equal(a, b)
	})
}

// wait-ok PROGRAM ARG... runs a program again and again until it succeeds.
func scriptWaitOK(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) > 0, "wait-ok program [arg...]")
	await(ts, func() string { return strings.Join(args, " ") }, func() bool { return ts.Exec(args[0], args[1:]...) == nil })
}

// terminate sends SIGTERM to all commands in the background.
func scriptTerminate(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 0, "terminate")
	for _, c := range ts.BackgroundCmds() {
		ts.Check(c.Process.Signal(syscall.SIGTERM))
	}
}

// grow FILE FROM appends to a file as another program would: in place.
func scriptGrow(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 2, "grow file from")
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	ts.Check(err)
	_, err = f.WriteString(ts.ReadFile(args[1]))
	ts.Check(err)
	ts.Check(f.Close())
}

// overwrite FILE FROM replaces a file's content in place: same inode.
func scriptOverwrite(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 2, "overwrite file from")
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(ts.ReadFile(args[1])), 0o600))
}

// concat TO FROM... writes the files one after the other.
func scriptConcat(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) > 1, "concat to from...")
	var all strings.Builder
	for _, name := range args[1:] {
		all.WriteString(ts.ReadFile(name))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(all.String()), 0o600))
}

// damage FILE cuts a file in the middle of a page.
func scriptDamage(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 1, "damage file")
	ts.Check(os.Truncate(ts.MkAbs(args[0]), 5000))
}

// flip PATTERN OFFSET changes a bit of each file that fits.
func scriptFlip(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 2, "flip pattern offset")
	at, err := strconv.Atoi(args[1])
	ts.Check(err)
	list, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	want(ts, len(list) > 0, "flip pattern offset, with files that fit")
	for _, path := range list {
		b, err := os.ReadFile(path)
		ts.Check(err)
		b[at] ^= 1
		ts.Check(os.WriteFile(path, b, 0o600))
	}
}

// pretend FILE N [PARENT] writes N entries, FILE-0 and so on, each the parent
// of the next.
func scriptPretend(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && (len(args) == 2 || len(args) == 3), "pretend file n [parent]")
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	var b strings.Builder
	parent := strings.Join(args[2:], "")
	for i := range n {
		e, id := demoEntry(demoMessage{args[0] + "-" + strconv.Itoa(i), "user", args[0] + " says " + strconv.Itoa(i) + "."}, parent, time.Unix(int64(i), 0))
		b.WriteString(e + "\n")
		parent = id
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(b.String()), 0o600))
}
