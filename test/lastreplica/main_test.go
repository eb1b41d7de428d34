package lastreplica

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// binEnv carries the folder of the binaries from TestMain to the tests: the package has no
// variables.
const binEnv = "MIRROR_LASTREPLICA_BIN"

// logEnv is a folder that the sidecars' logs are kept in.
const logEnv = "MIRROR_LASTREPLICA_LOG"

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "mirror-lastreplica-bin-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Setenv(binEnv, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lastreplica:", err)
		return 1
	}
	if out, err := exec.Command("go", "build", "-o", dir+string(os.PathSeparator), "../../cmd/...").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "lastreplica: build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}
