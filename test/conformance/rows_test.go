package conformance

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// row is one test.
type row struct {
	// proves lists ids of the contract, and then says in a word what is done.
	proves string
	run    func(t *testing.T, e *env)
	// alone: it kills or restarts something, or looks at the whole cluster.
	alone bool
	// reverse: the source has sidecars too, which versions before 4.3 cannot have.
	reverse bool
}

// ids are what the row proves.
func (r row) ids() []string {
	var out []string
	for _, f := range strings.Fields(r.proves) {
		if !strings.ContainsAny(f[:1], "CA") || !strings.Contains(f, ".") {
			break
		}
		out = append(out, f)
	}
	return out
}

// name is the name of the subtest.
func (r row) name() string { return strings.ReplaceAll(r.proves, " ", "-") }

func (r row) applies(p pair) bool { return !r.reverse || p.source != "3.9" }

func allRows() []row {
	return slices.Concat(section1(), section2(), section3(), section4(), section5(), section6(), section7(), section8(), section9(), section10(), additions())
}

// test runs the row and notes what came of it.
func (r row) test(t *testing.T, e *env) {
	begun := time.Now()
	t.Cleanup(func() {
		outcome := "pass"
		if t.Failed() {
			outcome = "FAIL"
		}
		note(t, result{Pair: e.pair.String(), IDs: r.ids(), Row: r.name(), Outcome: outcome, Took: time.Since(begun)})
	})
	r.run(t, e)
}

func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("needs real Kafka clusters; not with -short")
	}
	for _, p := range pairs() {
		t.Run("destination-"+p.destination+"-source-"+p.source, func(t *testing.T) {
			e := start(t, p)
			t.Run("together", func(t *testing.T) {
				for _, r := range allRows() {
					if !r.alone && r.applies(p) {
						t.Run(r.name(), func(t *testing.T) { t.Parallel(); r.test(t, e) })
					}
				}
			})
			for _, r := range allRows() {
				if r.alone && r.applies(p) {
					t.Run(r.name(), func(t *testing.T) { r.test(t, e) })
				}
			}
		})
	}
}
