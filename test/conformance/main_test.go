package conformance

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// The environment carries what TestMain knows to the tests, and the results back: the
// package has no variables.
const (
	// envPairs lists destination/source pairs of versions, such as 4.4/3.9,4.3/4.4.
	envPairs = "MIRROR_CONFORMANCE_PAIRS"
	// envReport names the file of the report; none is written without it.
	envReport = "MIRROR_CONFORMANCE_REPORT"
	// envLogs names a folder for the logs of sidecars of pairs that failed.
	envLogs = "MIRROR_CONFORMANCE_LOGS"

	envResults = "MIRROR_CONFORMANCE_RESULTS"
)

// rowsAtOnce is how many rows of a pair run beside each other: they wait most of the time.
const rowsAtOnce = "10"

func TestMain(m *testing.M) {
	if servedAsPlugin() {
		return
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() {
		return m.Run()
	}
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		return 1
	}
	dir, err := os.MkdirTemp("", "mirror-conformance-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	if err := stack.Build(dir, namingPlugin); err != nil {
		return fail(err)
	}
	results := filepath.Join(dir, "results.jsonl")
	if err := os.Setenv(envResults, results); err != nil {
		return fail(err)
	}
	if !given("test.parallel") {
		if err := flag.Set("test.parallel", rowsAtOnce); err != nil {
			return fail(err)
		}
	}
	begun := time.Now()
	code := m.Run()
	r, err := newReport(results, given("test.run"))
	if err != nil {
		return fail(err)
	}
	r.Duration = time.Since(begun).Round(time.Millisecond).String()
	if file := os.Getenv(envReport); file != "" {
		if err := r.write(file); err != nil {
			return fail(err)
		}
	}
	r.print(os.Stdout)
	if r.Failed > 0 && code == 0 {
		code = 1
	}
	return code
}

func given(name string) bool {
	found := false
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// pair is a destination's and a source's version.
type pair struct{ destination, source string }

func (p pair) String() string { return p.destination + "/" + p.source }

// pairs are those to test: one unless told otherwise.
func pairs() []pair {
	text := os.Getenv(envPairs)
	if text == "" {
		text = "4.4/4.4"
	}
	var out []pair
	for _, s := range strings.Split(text, ",") {
		d, src, _ := strings.Cut(strings.TrimSpace(s), "/")
		out = append(out, pair{d, src})
	}
	return out
}

// result is what became of a row in one pair.
type result struct {
	Pair    string        `json:"pair"`
	IDs     []string      `json:"ids"`
	Row     string        `json:"row"`
	Outcome string        `json:"outcome"` // pass, FAIL
	Took    time.Duration `json:"took"`
}

// note adds a result to the file that TestMain reads. Rows run beside each other; one small
// write in append mode is not mixed with another.
func note(t *testing.T, r result) {
	line, err := json.Marshal(r)
	if err != nil {
		t.Error(err)
		return
	}
	f, err := os.OpenFile(os.Getenv(envResults), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	if _, err := f.Write(append(line, '\n')); err != nil {
		t.Error(err)
	}
}
