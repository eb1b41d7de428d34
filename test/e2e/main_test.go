package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// envRace asks for sidecars with the race detector.
const envRace = "MIRROR_E2E_RACE"

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv(envRace) == "" {
		return stack.Main(m)
	}
	if os.Getenv("GORACE") == "" { // else each command line waits a second at its end
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			return 1
		}
	}
	return stack.Main(m, "-race")
}
