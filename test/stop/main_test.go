package stop

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binEnv carries the folder of the binaries, and of the armed fail points, from TestMain
// to the tests: the package has no variables. The sidecars inherit pointsEnv.
const (
	binEnv    = "MIRROR_STOP_BIN"
	pointsEnv = "MIRROR_FAILPOINTS"
	// fullEnv asks for every step with every kind of trouble.
	fullEnv = "MIRROR_STOP_FULL"
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "mirror-stop-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "stop:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	points := filepath.Join(dir, "points")
	for _, err := range []error{os.Mkdir(points, 0o755), os.Setenv(binEnv, dir), os.Setenv(pointsEnv, points)} {
		if err != nil {
			fmt.Fprintln(os.Stderr, "stop:", err)
			return 1
		}
	}
	build := exec.Command("go", "build", "-tags", "failpoints", "-o", dir+string(os.PathSeparator), "../../cmd/...")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "stop: build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}
