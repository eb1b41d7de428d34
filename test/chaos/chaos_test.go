package main

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testOptions(t *testing.T) options {
	t.Helper()
	harness.SkipShort(t)
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/", "github.com/cluster-mirroring/mirror-sidecar/cmd/...")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return options{bin: bin, keep: os.Getenv("MIRROR_CHAOS_KEEP"), say: t.Logf, log: discard()}
}

// TestChaos is the short form of `make chaos`, with a fixed seed.
func TestChaos(t *testing.T) {
	opt := testOptions(t)
	opt.seed, opt.length = 1, 2*time.Minute
	if n, err := strconv.ParseUint(os.Getenv("MIRROR_CHAOS_SEED"), 10, 64); err == nil {
		opt.seed = n
	}
	ctx, cancel := context.WithTimeout(t.Context(), 14*time.Minute)
	defer cancel()
	r, err := run(ctx, opt)
	t.Logf("\n%s", r.text())
	if err != nil {
		t.Fatal(err)
	}
	if !r.good() {
		t.Fatal(r.lastLine())
	}
	happened := 0
	for _, f := range r.Faults {
		if f.Held > 0 {
			happened++
		}
	}
	if happened < 4 {
		t.Errorf("only %d faults happened", happened)
	}
}

// TestPlantedInRealLogs: what is planted into the log of a real broker is found.
func TestPlantedInRealLogs(t *testing.T) {
	opt := testOptions(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := plantAll(ctx, opt); err != nil {
		t.Fatal(err)
	}
}
