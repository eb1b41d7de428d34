package sourcefaults

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// binEnv carries the folder of the binaries from TestMain to the tests: the package has no
// variables. One that is given from outside is used as it is.
const binEnv = "MIRROR_SOURCEFAULTS_BIN"

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() || os.Getenv(binEnv) != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "mirror-sourcefaults-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "sourcefaults:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	if out, err := exec.Command("go", "build", "-o", dir+string(os.PathSeparator), "../../cmd/...").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "sourcefaults: build: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv(binEnv, dir); err != nil {
		fmt.Fprintln(os.Stderr, "sourcefaults:", err)
		return 1
	}
	return m.Run()
}
