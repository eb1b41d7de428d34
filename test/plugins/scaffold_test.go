package plugins

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/scaffold"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// write has the beginning of a plugin written by the program.
func write(t *testing.T, dir, lang, kind string, args ...string) string {
	t.Helper()
	name := "my-" + kind
	at := filepath.Join(dir, name)
	args = append([]string{"plugin", "new", "--lang", lang, "--kind", kind, "--dir", at}, args...)
	do(t, dir, append([]string{filepath.Join(stack.Binaries(), "mirror-sidecar")}, append(args, name)...)...)
	return at
}

// What is scaffolded in Go compiles, tests too; the long form runs the tests, and the kit on what is built.
func TestScaffoldsInGo(t *testing.T) {
	harness.SkipShort(t)
	dir := t.TempDir()
	for _, kind := range scaffold.KindNames() {
		at := write(t, dir, "go", kind, "--sdk", root(t))
		if harness.Full() {
			do(t, at, "make", "test", "build")
			check(t, "scaffold in Go: "+kind, "--", filepath.Join(at, "my-"+kind))
			continue
		}
		// All at once, as packages of the first one's module.
		if kind != scaffold.KindNames()[0] {
			for _, f := range []string{"go.mod", "go.sum"} {
				if err := os.Remove(filepath.Join(at, f)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Rename(at, filepath.Join(dir, "my-"+scaffold.KindNames()[0], kind)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !harness.Full() {
		do(t, filepath.Join(dir, "my-"+scaffold.KindNames()[0]), "go", "vet", "-mod=mod", "./...")
	}
}

func TestScaffoldsInPython(t *testing.T) {
	harness.SkipShort(t)
	if !harness.Full() {
		t.Skip("the example in Python is built by the same Makefile")
	}
	with := venv(t)
	dir := t.TempDir()
	for _, kind := range scaffold.KindNames() {
		at := write(t, dir, "python", kind)
		do(t, at, "make", "VENV="+with, "test", "build")
		check(t, "scaffold in Python: "+kind, "--", filepath.Join(at, "my-"+kind+".pyz"))
	}
}
