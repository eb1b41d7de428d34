package plugins

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// envSums names a file with a line for each run of the kit: test packages have no variables.
const envSums = "MIRROR_PLUGINS_SUMS"

// patience bounds everything that is waited for: CI's machines are slow.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "mirror-plugins-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	sums := filepath.Join(dir, "sums")
	if err := os.Setenv(envSums, sums); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := stack.Main(m)
	passed, failed, err := total(sums)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	return code
}

// lastLine is what the kit ends with.
var lastLine = regexp.MustCompile(`^(\d+) passed, (\d+) failed$`)

func total(file string) (passed, failed int, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, 0, fmt.Errorf("no plugin was checked: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var p, n int
		if _, err := fmt.Sscanf(lines.Text(), "%d passed, %d failed", &p, &n); err != nil {
			return 0, 0, fmt.Errorf("sums of the kit: %w", err)
		}
		passed, failed = passed+p, failed+n
	}
	return passed, failed, nil
}

// check runs the conformance kit on a plugin, as its author does, and adds up.
func check(t *testing.T, what string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(stack.Binaries(), "mirror-sidecar"), append([]string{"plugin", "check", "--timeout", "30s"}, args...)...)
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := lines[len(lines)-1]
	if err != nil || !lastLine.MatchString(last) || strings.HasPrefix(last, "0 ") {
		t.Errorf("%s: %v\n%s", what, err, out)
	}
	t.Logf("%s: %s", what, last)
	if !lastLine.MatchString(last) {
		last = "0 passed, 1 failed"
	}
	f, err := os.OpenFile(os.Getenv(envSums), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, last); err != nil {
		t.Fatal(err)
	}
}

// do runs a command, in a folder.
func do(t *testing.T, dir string, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

// root is the folder of this project.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// venv is a virtual environment for plugins in Python. Where there is no Python, or no package index,
// the short form does without.
func venv(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience) // the package index may be slow
	defer cancel()
	dir, err := harness.PolicyPython(ctx, filepath.Join(root(t), "plugins", "python", "requirements.txt"))
	switch {
	case err != nil && harness.Full():
		t.Fatal(err)
	case err != nil:
		t.Skipf("no Python for plugins here: %v", err)
	}
	return dir
}
