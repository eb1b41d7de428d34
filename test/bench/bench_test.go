package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	line := "4242 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 9 0 100 0 0"
	got, err := parseStat([]byte(line))
	if err != nil || got != 3*time.Second {
		t.Errorf("%s %v, want 3s", got, err)
	}
	for _, bad := range []string{"", "1 (a) S 1", "1 (a) S 1 2 3 4 5 6 7 8 9 10 x y 0"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	if _, err := cpuTime(os.Getpid()); err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
}

func TestReport(t *testing.T) {
	rep := makeReport(map[string][]round{
		nativeSystem:  {{MBPerS: 300}, {MBPerS: 100}, {MBPerS: 200}},
		sidecarSystem: {{MBPerS: 190}, {MBPerS: 180}},
	}, run{})
	if rep.Native.MBPerS != 200 || rep.Sidecar.MBPerS != 180 || rep.MirrorMaker != nil {
		t.Errorf("medians %+v", rep)
	}
	if rep.Ratios["mirror-sidecar/native"] != 0.9 || len(rep.Ratios) != 1 {
		t.Errorf("ratios %v", rep.Ratios)
	}
	// Next to each other: 2/4, 9/10 and 3/4.
	rep2 := makeReport(map[string][]round{
		nativeSystem:  {{MBPerS: 4}, {MBPerS: 10}, {MBPerS: 4}},
		sidecarSystem: {{MBPerS: 2}, {MBPerS: 9}, {MBPerS: 3}},
	}, run{})
	if r := rep2.Ratios["mirror-sidecar/native"]; r != 0.75 {
		t.Errorf("ratio of rounds that were run in turn: %v", r)
	}
	raw, err := json.Marshal(rep)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"mirror-sidecar":{"mb_per_s":180,"cpu_s_per_gb":0,`; !strings.HasPrefix(string(raw), want) {
		t.Errorf("%s, want it to begin with %s", raw, want)
	}
}
