package stack

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// binEnv carries the folder of the programs from TestMain to the tests, since test packages have
// no variables. A folder that is given from outside is used as it is.
const binEnv = "MIRROR_TEST_BIN"

// Main is what a package's TestMain is: it builds the programs once, with more arguments for `go
// build`, runs the tests and returns the exit status. With -short nothing is built.
func Main(m *testing.M, args ...string) int {
	flag.Parse()
	if testing.Short() || Binaries() != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "mirror-test-bin-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = Build(dir, args...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Build builds the programs into a folder, which Binaries returns from then on. It is for a TestMain
// with more to do than Main does.
func Build(dir string, args ...string) error {
	args = append([]string{"build", "-o", dir + string(os.PathSeparator)}, args...)
	out, err := exec.Command("go", append(args, "github.com/cluster-mirroring/mirror-sidecar/cmd/...")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return os.Setenv(binEnv, dir)
}

// Binaries is the folder of mirror-sidecar and kafka-cluster-mirrors.
func Binaries() string { return os.Getenv(binEnv) }
