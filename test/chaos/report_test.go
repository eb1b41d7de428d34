package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/test/chaos/check"
)

func TestReport(t *testing.T) {
	r := &report{Seed: 3, Minutes: 20, Share: 0.2, Kinds: map[kind]int{}, Records: 70}
	r.Findings = check.Findings{Counts: check.Counts{Lost: 1, Doubled: 2, Reordered: 3, Diverged: 4, Foreign: 5}}
	for i := range 100 {
		k := groups[i%len(groups)][i/len(groups)%3]
		r.Faults = append(r.Faults, happened{Kind: k, Rate: leastRate, Evidence: []string{"seen"}})
		r.Kinds[k]++
	}
	r.Faults = append(r.Faults, happened{Kind: brokerWipe, Skipped: "not at this moment"})
	want := "faults=100 lost=1 doubled=2 reordered=3 diverged=4 foreign=5 records=70 unrecovered=0"
	if got := r.lastLine(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	text := strings.Split(strings.TrimSpace(r.text()), "\n")
	if text[len(text)-1] != want {
		t.Errorf("the text ends with %q", text[len(text)-1])
	}
	if r.good() {
		t.Error("five counts are wrong, and it is good")
	}
	if err := r.wide(); err != nil {
		t.Error(err)
	}
	r.Faults = r.Faults[:99]
	if r.wide() == nil {
		t.Error("99 faults are enough")
	}
	file := filepath.Join(t.TempDir(), "reports", "chaos.json")
	if err := r.write(file); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{file, strings.TrimSuffix(file, ".json") + ".txt"} {
		if data, err := os.ReadFile(f); err != nil || !strings.Contains(string(data), "sidecar-kill") {
			t.Errorf("%s: %v", f, err)
		}
	}
}
