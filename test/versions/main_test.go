package versions

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// What TestMain and the tests tell each other: the package has no variables.
const (
	binEnv     = "MIRROR_VERSIONS_BIN"
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
	out, err := exec.Command("go", "build", "-tags", "failpoints", "-o", dir+string(os.PathSeparator), "../../cmd/...").CombinedOutput()
	if err != nil {
		return fail(fmt.Errorf("build: %w\n%s", err, out))
	}
	results := filepath.Join(dir, "results.jsonl")
	for k, v := range map[string]string{binEnv: dir, resultsEnv: results} {
		if err := os.Setenv(k, v); err != nil {
			return fail(err)
		}
	}
	begun := time.Now()
	code := m.Run()
	if err := report(results, time.Since(begun)); err != nil {
		return fail(err)
	}
	return code
}

// binaries is the folder of mirror-sidecar and kafka-cluster-mirrors.
func binaries() string { return os.Getenv(binEnv) }
