package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// TestClients is the short form of `make clients`: one client for each language, and the tools that are used most.
func TestClients(t *testing.T) {
	harness.SkipShort(t)
	bin := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin+string(filepath.Separator), "../../cmd/...").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	r, err := run(t.Context(), options{bin: bin, quick: true, log: discard(), say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", r.text())
	for _, row := range r.Rows {
		for _, c := range row.Cells {
			if !c.good() {
				t.Errorf("%s %s, %s: %s", row.Client, row.Version, c.Part, c.Outcome)
			}
		}
	}
	for _, trouble := range r.Trouble {
		t.Error(trouble)
	}
}
