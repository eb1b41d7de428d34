package versions

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// result is what became of a row, or of another test that goes into the table.
type result struct {
	Name        string  `json:"name"`
	Destination string  `json:"destination"`
	Source      string  `json:"source"`
	Outcome     string  `json:"outcome"` // pass or FAIL
	Records     int64   `json:"records"` // mirrored
	Partitions  int     `json:"partitions"`
	Batches     int     `json:"batches"` // compared, on each replica
	Seconds     float64 `json:"seconds"`
	Note        string  `json:"note,omitempty"`
}

// put adds a result to the file that TestMain reads.
func (r *result) put(t *testing.T, begun time.Time) {
	if t.Skipped() {
		return
	}
	r.Seconds = time.Since(begun).Round(100 * time.Millisecond).Seconds()
	r.Outcome = "pass"
	if t.Failed() {
		r.Outcome = "FAIL"
	}
	line, err := json.Marshal(r)
	if err != nil {
		t.Error(err)
		return
	}
	f, err := os.OpenFile(os.Getenv(resultsEnv), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	if _, err := f.Write(append(line, '\n')); err != nil {
		t.Error(err)
	}
}

func readResults(file string) ([]result, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []result
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out = append(out, r)
	}
	return out, lines.Err()
}

// report prints the table, and writes it where the environment says.
func report(file string, took time.Duration) error {
	results, err := readResults(file)
	if err != nil || len(results) == 0 {
		return err
	}
	fmt.Printf("\n%s\n", table(results))
	failed := 0
	for _, r := range results {
		if r.Outcome != "pass" {
			failed++
		}
	}
	fmt.Printf("%d passed, %d failed in %s\n", len(results)-failed, failed, took.Round(time.Second))
	commit, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	if to := os.Getenv(reportEnv); to != "" {
		data, err := json.MarshalIndent(map[string]any{
			"commit": strings.TrimSpace(string(commit)), "seed": 0, "duration": took.Round(time.Millisecond).String(),
			"passed": len(results) - failed, "failed": failed, "rows": results,
		}, "", "  ")
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, append(data, '\n'), 0o644); err != nil {
			return err
		}
	}
	if os.Getenv(docEnv) != "" {
		return writeDoc(results)
	}
	return nil
}

// table words results as a table of a page.
func table(results []result) string {
	var b strings.Builder
	b.WriteString("| destination | source | result | partitions | records | batches compared | note |\n|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %d | %s |\n", r.Destination, r.Source, r.Outcome, r.Partitions, r.Records, r.Batches, r.Note)
	}
	return b.String()
}

// The page that holds the table, and where in it.
const (
	docFile  = "../../docs/versions.md"
	docBegin = "<!-- begin: written by make versions -->\n"
	docEnd   = "<!-- end -->\n"
)

func writeDoc(results []result) error {
	text, err := os.ReadFile(docFile)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), docBegin)
	_, after, ok2 := strings.Cut(rest, docEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the table", docFile)
	}
	return os.WriteFile(docFile, []byte(before+docBegin+table(results)+docEnd+after), 0o644)
}
