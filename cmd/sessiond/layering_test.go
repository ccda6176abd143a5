package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is the import path of the repository; packages are named below it.
const module = "sessiond"

// mayImport is the layering: each package, or each package of a folder
// ("x/..."), with the packages of this module that its code may import. Tests
// may import more. docs/architecture.md draws the same picture.
var mayImport = map[string][]string{
	"wire":        {},
	"wire/sock":   {"wire"},
	"wire/client": {"wire", "wire/sock"},

	"replay/jsonl":           {},
	"replay/stamp":           {},
	"replay/canon":           {"replay/jsonl"},
	"replay/pages":           {},
	"replay/dialect":         {"replay/jsonl", "replay/pages", "replay/stamp"},
	"replay/dialect/...":     {"replay/dialect", "replay/dialect/tree", "replay/jsonl", "replay/pages", "replay/stamp"},
	"replay":                 {"replay/dialect", "replay/dialect/...", "replay/jsonl", "replay/pages", "replay/stamp"},
	"replay/report":          {"replay", "replay/canon", "replay/dialect", "replay/dialect/...", "replay/jsonl", "replay/pages", "replay/stamp"},
	"replay/report/...":      {"replay", "replay/canon", "replay/dialect", "replay/dialect/...", "replay/jsonl", "replay/pages", "replay/stamp", "replay/report"},
	"replay/internal/oracle": {},

	"engine/vfs":     {"replay/stamp"},
	"engine/vfs/...": {"engine/vfs", "replay/stamp"},
	"engine/follow":  {"engine/vfs", "replay/stamp"},
	"engine/journal": {"engine/vfs", "replay/jsonl", "replay/stamp"},
	"migrations":     {},
	"kv":             {"migrations", "engine/vfs", "replay/stamp", "wire"},
	"chunks":         {"engine/vfs", "wire"},
	"engine": {
		"wire", "replay", "replay/dialect", "replay/dialect/...", "replay/jsonl", "replay/pages", "replay/stamp",
		"chunks", "kv", "engine/vfs", "engine/journal", "engine/follow",
	},

	"cmd/...": {"..."},
}

// never gives the reason of a forbidden edge, the first that fits; an edge
// that is just not in mayImport has the last one.
var never = []struct{ from, to, why string }{
	{"...", "cmd/...", "commands compose the program; nothing may depend on how it is composed"},
	{"...", "replay/internal/oracle", "reference results are for tests only"},
	{"...", "testdata/...", "generated sessions are for tests and measurements only"},
	{"wire/...", "...", "the protocol is a vocabulary that clients share; it knows no server"},
	{"engine/...", "wire/sock", "the engine answers requests; how they arrive is not its business"},
	{"engine/...", "wire/client", "the engine answers requests; it makes none"},
	{"replay/...", "kv", "a replay is a function of the file's bytes; what is remembered must not change it"},
	{"replay/...", "chunks", "a replay makes messages; how they are packed for clients comes after it"},
	{"replay/...", "engine/...", "a replay is given a source; it opens no file and knows no daemon"},
	{"replay/...", "wire/...", "files are read offline too, without the protocol"},
	{"replay/pages", "...", "lists know nothing of what they are lists of"},
	{"replay/jsonl", "...", "lines and JSON are the ground that every format stands on"},
	{"kv", "engine/...", "the index only remembers; sessions are not its business"},
	{"migrations", "...", "a step is frozen: nothing that changes later may take part in it"},
	{"...", "...", "it is against the layering of docs/architecture.md"},
}

// outside says which packages may import a package from outside the module.
// A third-party package that is not listed is forbidden to all.
var outside = []struct {
	path string // "path/...": the package and all below it
	only []string
	why  string
}{
	{"go.etcd.io/bbolt/...", []string{"kv", "migrations"}, "the index can be replaced or dropped only while one package knows its library"},
	{"github.com/dgraph-io/ristretto/...", []string{"replay"}, "the replay cache is the only cache of this library"},
	{"github.com/spf13/...", []string{"cmd/..."}, "flags and commands end at the composition root"},
	{"github.com/mattn/go-isatty", []string{"cmd/..."}, "only commands print for a person"},
	{"github.com/fsnotify/fsnotify", []string{"engine/follow"}, "watching needs its sweep beside it, and both live in one place"},
	{"github.com/cespare/xxhash/...", []string{"..."}, ""},
	{"golang.org/x/sys/...", []string{"engine/vfs", "engine/follow", "wire/sock", "cmd/..."}, "system calls stay behind the file-system and socket seams"},
	{"net/...", []string{"wire/sock", "cmd/..."}, "the one socket is a unix socket with checked peers; a second way in or out must not appear"},
	{"testing/...", []string{"replay/internal/oracle", "engine/vfs/..."}, "test code is no part of the program"},
}

// replayForbids lists what keeps a replay from being a function of its input.
var replayForbids = []string{"os", "os/...", "syscall", "io/ioutil"}

const replayOpensNothing = "a replay opens no file: it is given a source"

func TestLayering(t *testing.T) {
	for _, v := range violations(importGraph(t)) {
		t.Error(v)
	}
}

func TestLayering_OnePackageDoc(t *testing.T) {
	walkGo(t, parser.PackageClauseOnly|parser.ParseComments, func(pkg string, f file) {
		if len(f.docs) != 1 {
			t.Errorf("%s: got %d package comments %v, want one, in doc.go", pkg, len(f.docs), f.docs)
		}
	})
}

// TestLayering_Reports tests the check itself: each kind of forbidden edge in
// a made-up graph is found and gets its own reason.
func TestLayering_Reports(t *testing.T) {
	for _, tt := range []struct{ name, from, to, why string }{
		{"allowed", "sessiond/engine", "sessiond/wire", ""},
		{"standard library", "sessiond/engine", "fmt", ""},
		{"root sees all", "sessiond/cmd/sessiond", "sessiond/wire/client", ""},
		{"family uses tree", "sessiond/replay/dialect/pi", "sessiond/replay/dialect/tree", ""},
		{"cobra at the root", "sessiond/cmd/sessiond", "github.com/spf13/cobra", ""},
		{"oracle opens files", "sessiond/replay/internal/oracle", "os", ""},
		{"sockets in the engine", "sessiond/engine", "sessiond/wire/sock", "how they arrive"},
		{"client in the engine", "sessiond/engine/follow", "sessiond/wire/client", "it makes none"},
		{"cobra in the engine", "sessiond/engine", "github.com/spf13/cobra", "end at the composition root"},
		{"net in the engine", "sessiond/engine", "net/http", "checked peers"},
		{"index in a replay", "sessiond/replay", "sessiond/kv", "what is remembered"},
		{"chunks in a report", "sessiond/replay/report/usage", "sessiond/chunks", "how they are packed"},
		{"engine in a dialect", "sessiond/replay/dialect/pi", "sessiond/engine/vfs", "given a source"},
		{"open in a replay", "sessiond/replay", "os", "opens no file"},
		{"cycle of families", "sessiond/replay/dialect/pi", "sessiond/replay/dialect/claude", "layering"},
		{"bbolt in the engine", "sessiond/engine", "go.etcd.io/bbolt", "knows its library"},
		{"ristretto in chunks", "sessiond/chunks", "github.com/dgraph-io/ristretto/v2", "only cache"},
		{"fsnotify in the engine", "sessiond/engine", "github.com/fsnotify/fsnotify", "sweep beside it"},
		{"command below the root", "sessiond/wire", "sessiond/cmd/sessiond/internal/term", "how it is composed"},
		{"oracle in the program", "sessiond/replay", "sessiond/replay/internal/oracle", "tests only"},
		{"moving code in a step", "sessiond/migrations", "sessiond/kv", "frozen"},
		{"testing in the program", "sessiond/engine", "testing", "no part of the program"},
		{"unlisted library", "sessiond/engine", "example.org/x", "no rule"},
		{"unlisted package", "sessiond/util", "sessiond/wire", "not in the layering"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := violations(map[string][]string{tt.from: {tt.to}})
			if tt.why == "" {
				if len(got) != 0 {
					t.Errorf("violations: got %q, want none", got)
				}
				return
			}
			if len(got) != 1 || !strings.Contains(got[0], tt.why) || !strings.Contains(got[0], tt.from) {
				t.Errorf("violations: got %q, want one with %q", got, tt.why)
			}
		})
	}
}

// violations checks the imports of each package, by import path.
func violations(graph map[string][]string) []string {
	var out []string
	for _, from := range slices.Sorted(maps.Keys(graph)) {
		pkg := strings.TrimPrefix(from, module+"/")
		allowed, ok := lookUp(pkg)
		if !ok {
			out = append(out, fmt.Sprintf("%s: the package is not in the layering; add it with what it may import", from))
			continue
		}
		for _, to := range graph[from] {
			if why := forbidden(pkg, to, allowed); why != "" {
				out = append(out, fmt.Sprintf("%s imports %s: %s", from, to, why))
			}
		}
	}
	return out
}

// forbidden returns why pkg must not import to, or nothing.
func forbidden(pkg, to string, allowed []string) string {
	if dep, ok := strings.CutPrefix(to, module+"/"); ok {
		if fitsAny(allowed, dep) {
			return ""
		}
		i := slices.IndexFunc(never, func(n struct{ from, to, why string }) bool { return fits(n.from, pkg) && fits(n.to, dep) })
		return never[i].why
	}
	if fits("replay/...", pkg) && pkg != "replay/internal/oracle" && fitsAny(replayForbids, to) {
		return replayOpensNothing
	}
	for _, rule := range outside {
		if fits(rule.path, to) {
			if fitsAny(rule.only, pkg) {
				return ""
			}
			return rule.why
		}
	}
	if host, _, _ := strings.Cut(to, "/"); strings.Contains(host, ".") {
		return "no rule allows this library; add one that says where it may be used and why"
	}
	return ""
}

// lookUp returns what a package may import: its own entry, else that of the
// nearest folder.
func lookUp(pkg string) ([]string, bool) {
	if allowed, ok := mayImport[pkg]; ok {
		return allowed, true
	}
	for dir := filepath.Dir(pkg); dir != "."; dir = filepath.Dir(dir) {
		if allowed, ok := mayImport[dir+"/..."]; ok {
			return allowed, true
		}
	}
	return nil, false
}

func fitsAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return fits(p, path) })
}

// fits reports whether path is pattern, or below it where it ends in "/...".
func fits(pattern, path string) bool {
	dir, tree := strings.CutSuffix(pattern, "...")
	if !tree {
		return pattern == path
	}
	return dir == "" || path+"/" == dir || strings.HasPrefix(path, dir)
}

// file is what walkGo finds in the Go files of one folder.
type file struct{ imports, docs []string }

// importGraph returns the imports of each package, tests excluded. It reads
// the sources rather than asking the go command: so one look covers the files
// of every platform, and the test cache sees what was read.
func importGraph(t *testing.T) map[string][]string {
	t.Helper()
	graph := map[string][]string{}
	walkGo(t, parser.ImportsOnly, func(pkg string, f file) { graph[pkg] = f.imports })
	return graph
}

// walkGo parses the files, without tests, of every package and gives them out
// package by package.
func walkGo(t *testing.T, mode parser.Mode, visit func(pkg string, f file)) {
	t.Helper()
	root := filepath.Join("..", "..")
	packages := map[string]file{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (d.Name() == "testdata" || d.Name() == "bin" || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, mode)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		pkg := module + "/" + filepath.ToSlash(dir)
		f := packages[pkg]
		for _, imp := range parsed.Imports {
			to, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				return err
			}
			f.imports = append(f.imports, to)
		}
		if parsed.Doc != nil {
			f.docs = append(f.docs, d.Name())
		}
		packages[pkg] = f
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) == 0 {
		t.Fatal("found no package")
	}
	for _, pkg := range slices.Sorted(maps.Keys(packages)) {
		f := packages[pkg]
		slices.Sort(f.imports)
		f.imports = slices.Compact(f.imports)
		visit(pkg, f)
	}
}
