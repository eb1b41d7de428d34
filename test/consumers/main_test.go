package consumers

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// bin is the folder of the program's binaries, built once.
var bin string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "consumers-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	return m.Run()
}

func build(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/", "github.com/cluster-mirroring/mirror-sidecar/cmd/...")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
}
