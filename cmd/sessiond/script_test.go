package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata/script")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"sessiond": main})
}

func TestScript(t *testing.T) {
	commands := map[string]func(*testscript.TestScript, bool, []string){
		"exits":        scriptExits,
		"at-once":      scriptAtOnce,
		"unescape":     scriptUnescape,
		"chop":         scriptChop,
		"mtime":        scriptMTime,
		"mkfifo":       scriptMkfifo,
		"hostile-name": scriptHostileName,
		"remember":     scriptRemember,
		"unchanged":    scriptUnchanged,
		"safe":         scriptSafe,
	}
	maps.Copy(commands, daemonCommands)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                commands,
		Condition: func(condition string) (bool, error) {
			if condition == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", condition)
		},
		Setup: func(env *testscript.Env) error {
			env.Values[rememberedKey] = map[string]string{}
			return setupDaemon(env)
		},
	})
}

// want fails a script command that was used in another way.
func want(ts *testscript.TestScript, ok bool, usage string) {
	if !ok {
		ts.Fatalf("usage: %s", usage)
	}
}

// exits CODE PROGRAM ARG... runs a program, which must exit with the code.
func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) >= 2, "exits code program [arg...]")
	code, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		got, err = exit.ExitCode(), nil
	}
	ts.Check(err)
	if got != code {
		ts.Fatalf("exit code: got %d, want %d", got, code)
	}
}

// at-once CODE PROGRAM ARG... is exits for a program that must not wait.
func scriptAtOnce(ts *testscript.TestScript, neg bool, args []string) {
	began := time.Now()
	scriptExits(ts, neg, args)
	if took := time.Since(began); took > patience {
		ts.Fatalf("took %v, want no wait", took)
	}
}

// unescape FILE... replaces %XX in files by the byte.
func scriptUnescape(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) > 0, "unescape file...")
	for _, name := range args {
		text, err := url.PathUnescape(ts.ReadFile(name))
		ts.Check(err)
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
	}
}

// chop FILE... cuts the last byte off files: the last LF.
func scriptChop(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) > 0, "chop file...")
	for _, name := range args {
		text := ts.ReadFile(name)
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text[:len(text)-1]), 0o600))
	}
}

// mtime FILE TIME sets when a file was changed last.
func scriptMTime(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 2, "mtime file RFC3339")
	at, err := time.Parse(time.RFC3339, args[1])
	ts.Check(err)
	ts.Check(os.Chtimes(ts.MkAbs(args[0]), at, at))
}

func scriptMkfifo(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 1, "mkfifo path")
	ts.Check(syscall.Mkfifo(ts.MkAbs(args[0]), 0o600))
}

// hostile-name FILE copies a file into dir under a name that would drive a
// terminal, and sets HOSTILE to such a name of no file.
func scriptHostileName(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 1, "hostile-name file")
	name := "a\x1b[2J\u202e.jsonl"
	ts.Check(os.WriteFile(ts.MkAbs("dir/"+name), []byte(ts.ReadFile(args[0])), 0o600))
	ts.Setenv("HOSTILE", name)
}

type remembered struct{}

var rememberedKey remembered

// remember FILE... notes content, time and mode of files.
func scriptRemember(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) > 0, "remember file...")
	for _, name := range args {
		ts.Value(rememberedKey).(map[string]string)[name] = fingerprint(ts, name)
	}
}

// unchanged checks that what was remembered is still so.
func scriptUnchanged(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 0, "unchanged")
	for name, was := range ts.Value(rememberedKey).(map[string]string) {
		if is := fingerprint(ts, name); is != was {
			ts.Fatalf("%s: got %s, want %s", name, is, was)
		}
	}
}

func fingerprint(ts *testscript.TestScript, name string) string {
	info, err := os.Stat(ts.MkAbs(name))
	ts.Check(err)
	sum := sha256.Sum256([]byte(ts.ReadFile(name)))
	return fmt.Sprintf("%x %s %s", sum, info.ModTime().Format(time.RFC3339Nano), info.Mode())
}

// safe FILE checks that a file (or stdout, stderr) has nothing that drives
// a terminal.
func scriptSafe(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 1, "safe stdout|stderr|file")
	if bad := unsafeText(ts.ReadFile(args[0])); bad != "" {
		ts.Fatalf("%s has %s", args[0], bad)
	}
}

// unsafeText names the first thing in a text that could drive a terminal.
func unsafeText(text string) string {
	for at, r := range text {
		switch {
		case r == '\n' || r == '\t':
		case r < ' ', 0x7f <= r && r < 0xa0, strings.ContainsRune("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff", r):
			return fmt.Sprintf("%q at byte %d", r, at)
		}
	}
	return ""
}
