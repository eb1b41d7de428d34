package conformance

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// contractFile is where the promises are.
const contractFile = "../../docs/contract.md"

// promise is one sentence of the contract.
type promise struct {
	id   string
	text string
	step int // what it is left to, 0 for now
}

// short is its beginning, for a table.
func (p promise) short() string {
	const most = 100
	if r := []rune(p.text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return p.text
}

// readContract reads the ids, each with its text up to the next id or empty line.
func readContract() ([]promise, error) {
	data, err := os.ReadFile(filepath.FromSlash(contractFile))
	if err != nil {
		return nil, err
	}
	return parseContract(string(data)), nil
}

func parseContract(text string) []promise {
	id := regexp.MustCompile(`\*\*([CA]\d+\.\d+)\*\*`)
	step := regexp.MustCompile(`\(step (\d+)\)`)
	enough := regexp.MustCompile(`\n(\n|#|\d+\. )`)
	space := regexp.MustCompile(`[\s|]+`)
	var out []promise
	at := id.FindAllStringSubmatchIndex(text, -1)
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		body := text[m[1]:end]
		if stop := enough.FindStringIndex(body); stop != nil {
			body = body[:stop[0]]
		}
		p := promise{id: text[m[2]:m[3]]}
		if s := step.FindStringSubmatch(body); s != nil {
			p.step, _ = strconv.Atoi(s[1])
		}
		body = strings.TrimRight(body, "-0123456789. \n|")
		p.text = strings.TrimSpace(space.ReplaceAllString(body, " "))
		out = append(out, p)
	}
	return out
}

// TestIDs: every promise that is not left to a later step has a row, every row has a
// promise, and no id is there twice.
func TestIDs(t *testing.T) {
	promises, err := readContract()
	if err != nil {
		t.Fatal(err)
	}
	if len(promises) < 150 {
		t.Fatalf("only %d ids in %s", len(promises), contractFile)
	}
	tested := map[string]bool{}
	names := map[string]bool{}
	for _, r := range allRows() {
		if names[r.name()] {
			t.Errorf("two rows are named %s", r.name())
		}
		names[r.name()] = true
		if len(r.ids()) == 0 || r.run == nil {
			t.Errorf("row %q names no id, or tests nothing", r.name())
		}
		for _, id := range r.ids() {
			tested[id] = true
		}
	}
	known := map[string]promise{}
	for _, p := range promises {
		if _, twice := known[p.id]; twice {
			t.Errorf("%s is there twice", p.id)
		}
		known[p.id] = p
		if p.text == "" {
			t.Errorf("%s says nothing", p.id)
		}
		switch {
		case p.step == 0 && !tested[p.id]:
			t.Errorf("%s has no test: %s", p.id, p.short())
		case p.step > 0 && tested[p.id]:
			t.Errorf("%s is left to step %d and has a test", p.id, p.step)
		case p.step != 0 && (p.step < 3 || p.step > 9):
			t.Errorf("%s is left to step %d", p.id, p.step)
		}
	}
	for id := range tested {
		if _, ok := known[id]; !ok {
			t.Errorf("a row tests %s, which %s does not promise", id, contractFile)
		}
	}
}

func TestParseContract(t *testing.T) {
	got := parseContract("# x\n\n- **C1.1** One\n  two. *(step 5)*\n- **C1.2** Three.\n\nA sentence.\n\n| **A1.3** | cell | 7 |\n## 2\n")
	want := []promise{{"C1.1", "One two. *(step 5)*", 5}, {"C1.2", "Three", 0}, {"A1.3", "cell", 0}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// TestReportOfPart: a promise of which a pair cannot show all is not shown there.
func TestReportOfPart(t *testing.T) {
	t.Setenv(envPairs, "4.4/3.9,4.4/4.4")
	file := filepath.Join(t.TempDir(), "results")
	t.Setenv(envResults, file)
	for _, pair := range []string{"4.4/3.9", "4.4/4.4"} {
		note(t, result{Pair: pair, IDs: []string{"C4.40"}, Outcome: "pass"})
	}
	note(t, result{Pair: "4.4/3.9", IDs: []string{"C1.1"}, Outcome: "pass"})
	for _, part := range []bool{true, false} {
		r, err := newReport(file, part)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Rows["C4.40"]; got["4.4/3.9"] != notRun || got["4.4/4.4"] != "pass" {
			t.Errorf("C4.40: %v", got)
		}
		if got := r.Rows["C1.1"]["4.4/3.9"]; got != "pass" {
			t.Errorf("C1.1: %q", got)
		}
		if part && (r.Passed != 2 || r.Failed != 0) {
			t.Errorf("%d passed, %d failed", r.Passed, r.Failed)
		}
	}
	note(t, result{Pair: "4.4/3.9", IDs: []string{"C4.40"}, Outcome: "FAIL"})
	if r, err := newReport(file, true); err != nil || r.Rows["C4.40"]["4.4/3.9"] != "FAIL" || r.Failed != 1 {
		t.Errorf("%v: %+v", err, r)
	}
}
