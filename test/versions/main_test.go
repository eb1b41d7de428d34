package versions

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// What TestMain and the tests tell each other: the package has no variables.
const (
	resultsEnv = "MIRROR_VERSIONS_RESULTS"
	// reportEnv names the file of the report, docEnv asks for the table in docs/versions.md.
	reportEnv = "MIRROR_VERSIONS_REPORT"
	docEnv    = "MIRROR_VERSIONS_DOC"
	// rowsEnv picks rows of the matrix.
	rowsEnv = "MIRROR_VERSIONS"
	// levelEnv makes a sidecar that was built with fail points know no later metadata.version.
	levelEnv = "MIRROR_MAX_METADATA_VERSION"
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() {
		return m.Run()
	}
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "versions:", err)
		return 1
	}
	dir, err := os.MkdirTemp("", "mirror-versions-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	if err := stack.Build(dir, "-tags", "failpoints"); err != nil {
		return fail(err)
	}
	results := filepath.Join(dir, "results.jsonl")
	if err := os.Setenv(resultsEnv, results); err != nil {
		return fail(err)
	}
	begun := time.Now()
	code := m.Run()
	if err := report(results, time.Since(begun)); err != nil {
		return fail(err)
	}
	return code
}
