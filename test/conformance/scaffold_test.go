package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/scaffold"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// scaffolds has the beginning of every kind of plugin written. That each builds, and does what sidecars ask
// for, test/plugins shows.
func scaffolds(t *testing.T, _ *env) {
	dir := t.TempDir()
	for _, lang := range scaffold.Langs {
		for _, kind := range scaffold.KindNames() {
			name := lang + "-" + kind
			cmd := exec.CommandContext(t.Context(), filepath.Join(stack.Binaries(), "mirror-sidecar"), "plugin", "new", "--lang", lang, "--kind", kind, name)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", cmd, err, out)
			}
			for _, file := range []string{"README.md", "Makefile"} {
				if _, err := os.Stat(filepath.Join(dir, name, file)); err != nil {
					t.Error(err)
				}
			}
		}
	}
}
