package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/test/chaos/check"
)

// happened is a fault of the report.
type happened struct {
	Round    int      `json:"round"`
	Kind     kind     `json:"kind"`
	At       float64  `json:"atSeconds"`
	Held     float64  `json:"heldSeconds"`
	Recovery float64  `json:"recoverySeconds"` // after its end, until all was well; -1: not in time
	Rate     float64  `json:"recordsPerSecond"`
	Evidence []string `json:"evidence"`
	// Skipped is why the fault does not count: it did not happen, or under too little load.
	Skipped string `json:"skipped,omitempty"`

	ended time.Time
}

func (h happened) counts() bool { return h.Skipped == "" }

// report is the outcome of a run.
type report struct {
	Seed    uint64  `json:"seed"`
	Minutes float64 `json:"minutes"`
	Commit  string  `json:"commit"`
	// Duration is that of everything, in seconds; Rate is of the time of the faults.
	Duration float64      `json:"durationSeconds"`
	Rate     float64      `json:"recordsPerSecond"`
	Share    float64      `json:"transactionalShare"`
	Kinds    map[kind]int `json:"faultsByKind"`
	Faults   []happened   `json:"faults"`
	check.Findings
	Records     int64 `json:"records"`
	Unrecovered int   `json:"unrecovered"`
	// Trouble is what else went wrong: what did not come back, and how it stood.
	Trouble []string `json:"trouble,omitempty"`
}

// count is how many faults count.
func (r *report) count() int {
	n := 0
	for _, h := range r.Faults {
		if h.counts() {
			n++
		}
	}
	return n
}

// lastLine is what the run is judged by.
func (r *report) lastLine() string {
	return fmt.Sprintf("faults=%d lost=%d doubled=%d reordered=%d diverged=%d foreign=%d records=%d unrecovered=%d",
		r.count(), r.Lost, r.Doubled, r.Reordered, r.Diverged, r.Foreign, r.Records, r.Unrecovered)
}

func (r *report) good() bool { return r.Zero() && r.Unrecovered == 0 && len(r.Trouble) == 0 }

// leastShare is how much of what is written must be written in transactions.
const leastShare = 0.1

// sound fails unless what counts may count: each fault was seen to happen while enough was written.
func (r *report) sound() error {
	for _, h := range r.Faults {
		switch {
		case !h.counts():
		case len(h.Evidence) == 0:
			return fmt.Errorf("nothing shows that %s at %.0f s happened", h.Kind, h.At)
		case h.Rate < leastRate:
			return fmt.Errorf("only %.0f records/s were written around %s at %.0f s", h.Rate, h.Kind, h.At)
		}
	}
	return nil
}

// wide fails unless the faults were as many and as different as n full minutes must see:
// a hundred in twenty, twelve kinds five times, none above a quarter, while transactions are written.
func (r *report) wide() error {
	if err := r.sound(); err != nil || r.Minutes < 20 {
		return err
	}
	if r.Records == 0 || r.Share < leastShare {
		return fmt.Errorf("%d records, %.0f %% of them in transactions: fewer than %.0f %%", r.Records, 100*r.Share, 100*leastShare)
	}
	often := 0
	for k, n := range r.Kinds {
		if n >= 5 {
			often++
		}
		if 4*n > r.count() {
			return fmt.Errorf("%d of %d faults are %s", n, r.count(), k)
		}
	}
	if r.count() < 100 || often < 12 {
		return fmt.Errorf("%d faults, %d kinds at least five times: fewer than 100 and 12", r.count(), often)
	}
	return nil
}

func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %.0f minutes, commit %s: %.0f records/s, %.0f %% transactional\n\n", r.Seed, r.Minutes, r.Commit, r.Rate, 100*r.Share)
	for _, h := range r.Faults {
		fmt.Fprintf(&b, "%7.1fs  round %d  %-18s held %5.1fs  recovered %5.1fs  %5.0f records/s", h.At, h.Round, h.Kind, h.Held, h.Recovery, h.Rate)
		if h.Skipped != "" {
			fmt.Fprintf(&b, "  DOES NOT COUNT: %s", h.Skipped)
		}
		for _, e := range h.Evidence {
			fmt.Fprintf(&b, "\n             %s", e)
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	var kinds []kind
	for _, g := range groups {
		kinds = append(kinds, g...)
	}
	for _, k := range kinds {
		var times []float64
		for _, h := range r.Faults {
			if h.Kind == k && h.counts() && h.Recovery >= 0 {
				times = append(times, h.Recovery)
			}
		}
		slices.Sort(times)
		median, most := 0.0, 0.0
		if n := len(times); n > 0 {
			median, most = times[n/2], times[n-1]
		}
		fmt.Fprintf(&b, "%-18s %3d times, recovered after %5.1fs (median), %5.1fs (at most)\n", k, r.Kinds[k], median, most)
	}
	for _, e := range append(slices.Clone(r.Examples), r.Trouble...) {
		fmt.Fprintf(&b, "\n! %s", e)
	}
	fmt.Fprintf(&b, "\n%s\n", r.lastLine())
	return b.String()
}

func (r *report) write(file string) error {
	if file == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(strings.TrimSuffix(file, ".json")+".txt", []byte(r.text()), 0o644)
}
