package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// envRace asks for sidecars with the race detector.
const envRace = "MIRROR_E2E_RACE"

// binEnv carries the folder of the binaries from TestMain to the tests: the package has
// no variables.
const binEnv = "MIRROR_E2E_BIN"

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "mirror-e2e-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	args := []string{"build"}
	if os.Getenv(envRace) != "" {
		args = append(args, "-race")
		if os.Getenv("GORACE") == "" { // else each command line waits a second at its end
			if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
				fmt.Fprintln(os.Stderr, "e2e:", err)
				return 1
			}
		}
	}
	args = append(args, "-o", dir+string(os.PathSeparator), "../../cmd/...")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "e2e: build: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv(binEnv, dir); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return m.Run()
}

// binaries is the folder of mirror-sidecar and kafka-cluster-mirrors.
func binaries() string { return os.Getenv(binEnv) }
