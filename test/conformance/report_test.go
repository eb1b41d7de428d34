package conformance

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// notRun stands for a row, or one of an id's rows, that a pair cannot have.
const notRun = "-"

// report sums up a run. Passed and Failed count ids, once for each pair.
type report struct {
	Commit   string                       `json:"commit"`
	Seed     int64                        `json:"seed"` // nothing here is random
	Duration string                       `json:"duration"`
	Pairs    []string                     `json:"pairs"`
	Passed   int                          `json:"passed"`
	Failed   int                          `json:"failed"`
	Rows     map[string]map[string]string `json:"rows"` // id, pair, outcome
	Later    map[string]string            `json:"later"`

	promises []promise
	rows     []row
}

// newReport reads what the rows noted. In a whole run an id without a result has failed;
// with part, only what ran is shown.
func newReport(file string, part bool) (*report, error) {
	promises, err := readContract()
	if err != nil {
		return nil, err
	}
	r := &report{Rows: map[string]map[string]string{}, Later: map[string]string{}, promises: promises, rows: allRows()}
	if out, err := exec.Command("git", "rev-parse", "HEAD").Output(); err == nil {
		r.Commit = strings.TrimSpace(string(out))
	}
	results, err := readResults(file)
	if err != nil {
		return nil, err
	}
	put := func(id, pair, outcome string) {
		if r.Rows[id] == nil {
			r.Rows[id] = map[string]string{}
		}
		if now := r.Rows[id][pair]; now != "FAIL" && (now != notRun || outcome == "FAIL") { // an id may have several rows
			r.Rows[id][pair] = outcome
		}
	}
	for _, x := range results {
		for _, id := range x.IDs {
			put(id, x.Pair, x.Outcome)
		}
	}
	for _, p := range pairs() {
		r.Pairs = append(r.Pairs, p.String())
		for _, row := range r.rows {
			for _, id := range row.ids() {
				// What was shown in part only is not shown.
				if !row.applies(p) && (r.Rows[id] != nil || !part) {
					put(id, p.String(), notRun)
				}
				if _, ran := r.Rows[id][p.String()]; !ran && !part && row.applies(p) {
					put(id, p.String(), "FAIL")
				}
			}
		}
	}
	for _, p := range promises {
		if p.step > 0 {
			r.Later[p.id] = fmt.Sprintf("step %d", p.step)
		}
	}
	for _, byPair := range r.Rows {
		for _, outcome := range byPair {
			switch outcome {
			case "pass":
				r.Passed++
			case notRun:
			default:
				r.Failed++
			}
		}
	}
	return r, nil
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

func (r *report) write(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}

// print shows a line for each id that ran, what is left to later steps, and the sum alone
// on the last line.
func (r *report) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nID\t%s\tPROMISE\n", strings.Join(r.Pairs, "\t"))
	for _, p := range r.promises {
		byPair, ran := r.Rows[p.id]
		if !ran {
			continue
		}
		cells := make([]string, 0, len(r.Pairs))
		for _, pair := range r.Pairs {
			cell := byPair[pair]
			if cell == "" {
				cell = notRun
			}
			cells = append(cells, cell)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", p.id, strings.Join(cells, "\t"), p.short())
	}
	_ = w.Flush()
	var later []string
	for id, step := range r.Later {
		later = append(later, fmt.Sprintf("%s (%s)", id, step))
	}
	slices.Sort(later)
	fmt.Fprintf(out, "\nleft to later steps: %s\n", strings.Join(later, ", "))
	fmt.Fprintf(out, "destination/source %s in %s\n", strings.Join(r.Pairs, ", "), r.Duration)
	fmt.Fprintf(out, "%d passed, %d failed\n", r.Passed, r.Failed)
}
