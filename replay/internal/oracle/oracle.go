package oracle

import (
	"os"
	"path/filepath"
	"testing"
)

// RequireEnv makes an absent folder a failure where it is "1".
const RequireEnv = "SESSIOND_REQUIRE_SHARED"

// Dir returns the path of a file or folder of the reference results, such as
// "pi/dev".
func Dir(t testing.TB, name string) string {
	t.Helper()
	return find(t, "oracle", name)
}

// Samples returns the path of a file or folder of the sample sessions, such
// as "pi".
func Samples(t testing.TB, name string) string {
	t.Helper()
	return find(t, "samples", name)
}

func find(t testing.TB, kind, name string) string {
	t.Helper()
	path := filepath.Join(moduleRoot(t), "..", "shared", kind, filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		if os.Getenv(RequireEnv) == "1" {
			t.Fatalf("%s is 1, but: %v", RequireEnv, err)
		}
		t.Skipf("no %s of %q here", kind, name)
	}
	return path
}

// moduleRoot is the nearest folder upwards that holds go.mod: tests run in
// the folder of their package.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the working folder")
		}
		dir = parent
	}
}
