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

func TestParseProduced(t *testing.T) {
	const text = `100 records sent, 49.6 records/sec (10.00 MB/sec), 5.36 ms avg latency, 274.00 ms max latency, 3 ms 50th, 11 ms 95th, 20 ms 99th, 25 ms 99.9th.
80 records sent, 60.1 records/sec (20.50 MB/sec), 4.10 ms avg latency, 74.00 ms max latency, 2 ms 50th, 10 ms 95th, 19 ms 99th, 24 ms 99.9th.
`
	got, err := parseProduced(text)
	want := produced{MBPerS: 20.5 * mib / 1e6, P50Ms: 2, P99Ms: 19}
	if err != nil || got != want {
		t.Errorf("%+v %v, want %+v", got, err, want)
	}
	if _, err := parseProduced("Exception in thread main"); err == nil {
		t.Error("no summary, and no error")
	}
}

func TestParseConsumed(t *testing.T) {
	const text = `start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2026-11-30 17:00:00:000, 2026-11-30 17:00:01:000, 95.3674, 95.3674, 100000, 100000.0000, 400, 600, 158.9457, 166666.6667
`
	got, err := parseConsumed(text, 100000)
	if err != nil || int(got.MBPerS*100) != 16666 || int(got.Bytes/1e3) != 99999 {
		t.Errorf("%+v %v, want 166.66 MB/s and 100 MB", got, err)
	}
	if _, err := parseConsumed(text, 100001); err == nil {
		t.Error("a record is missing, and no error")
	}
	if _, err := parseConsumed("nothing", 1); err == nil {
		t.Error("no summary, and no error")
	}
}

func TestParseMachine(t *testing.T) {
	busy, all, err := parseMachine("cpu  100 0 200 300 400 50 50 0 7 0\ncpu0 1 1 1\n")
	if err != nil || busy != 4*time.Second || all != 11*time.Second {
		t.Errorf("%s of %s, %v, want 4s of 11s", busy, all, err)
	}
	for _, bad := range []string{"", "cpu 1 2", "cpu a b c d e f g h"} {
		if _, _, err := parseMachine(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestProxyFigures(t *testing.T) {
	d := proxyDetails{
		Produce: both{{{MBPerS: 100}, {MBPerS: 50}, {MBPerS: 100}}, {{MBPerS: 90, Proxy: 1}, {MBPerS: 49, Proxy: 3}, {MBPerS: 80, Proxy: 2}}},
		Consume: both{{{MBPerS: 200}, {MBPerS: 100}}, {{MBPerS: 200, Proxy: 0.5}, {MBPerS: 90, Proxy: 0.1}}},
		Latency: [2]latencies{{P50: 1, P99: 2}, {P50: 1.25, P99: 2.5}},
	}
	d.figures()
	raw, err := json.Marshal(d.Figures)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"produce_ratio":0.9,"consume_ratio":0.95,"added_p50_ms":0.25,"added_p99_ms":0.5,"cpu_s_per_gb":1.15}`
	if string(raw) != want {
		t.Errorf("%s, want %s", raw, want)
	}
	if l := latenciesOf([]time.Duration{3e6, 1e6, 2e6}); l.P50 != 2 || l.Max != 3 || l.Samples != 3 {
		t.Errorf("latencies %+v", l)
	}
}
