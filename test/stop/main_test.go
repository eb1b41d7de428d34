package stop

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// The environment carries the folder of the armed fail points from TestMain to the tests: the
// package has no variables. The sidecars inherit pointsEnv.
const (
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
	for _, err := range []error{os.Mkdir(points, 0o755), os.Setenv(pointsEnv, points), stack.Build(dir, "-tags", "failpoints")} {
		if err != nil {
			fmt.Fprintln(os.Stderr, "stop:", err)
			return 1
		}
	}
	return m.Run()
}
