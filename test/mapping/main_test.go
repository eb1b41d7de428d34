package mapping

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// binEnv carries the folder of the binaries from TestMain to the tests.
const binEnv = "MIRROR_MAPPING_BIN"

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "mirror-mapping-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "mapping:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	if out, err := exec.Command("go", "build", "-o", dir+string(os.PathSeparator), "../../cmd/...").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "mapping: build: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv(binEnv, dir); err != nil {
		fmt.Fprintln(os.Stderr, "mapping:", err)
		return 1
	}
	return m.Run()
}

// binaries is the folder of mirror-sidecar and kafka-cluster-mirrors.
func binaries() string { return os.Getenv(binEnv) }
