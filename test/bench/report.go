package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// commit is set by the linker.
var commit string

// figures are a system's median round, and all of its rounds.
type figures struct {
	round
	Rounds []round `json:"rounds"`
}

// run describes what was measured, so that figures of two runs can be compared or not.
type run struct {
	Commit      string    `json:"commit,omitempty"`
	Finished    time.Time `json:"finished"`
	Cores       int       `json:"cores"`
	Kafka       string    `json:"kafka"`
	MirrorMaker string    `json:"mirrormaker"`
	Bytes       int64     `json:"bytes"`
	Records     int64     `json:"records"`
	Partitions  int       `json:"partitions"`
	RecordBytes int       `json:"record_bytes"`
	BatchBytes  int       `json:"batch_bytes"`
	Destination string    `json:"destination"`
}

// report is the file. MB and GB are 10^6 and 10^9 bytes of the source's log. A ratio is the
// median of the ratios of the rounds that were run next to each other, or that of the
// medians for systems that were not run in turn.
type report struct {
	Sidecar     *figures           `json:"mirror-sidecar,omitempty"`
	MirrorMaker *figures           `json:"mirrormaker2,omitempty"`
	Native      *figures           `json:"native,omitempty"`
	Ratios      map[string]float64 `json:"ratios"`
	Run         run                `json:"run"`
}

func median(rounds []round) *figures {
	if len(rounds) == 0 {
		return nil
	}
	sorted := slices.SortedFunc(slices.Values(rounds), func(a, b round) int {
		switch {
		case a.MBPerS < b.MBPerS:
			return -1
		case a.MBPerS > b.MBPerS:
			return 1
		}
		return 0
	})
	return &figures{round: sorted[(len(sorted)-1)/2], Rounds: rounds} // of two the slower
}

func medianRatio(a, b []round) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i].MBPerS / b[i].MBPerS
	}
	slices.Sort(ratios)
	return ratios[(len(ratios)-1)/2]
}

func makeReport(rounds map[string][]round, about run) report {
	rep := report{
		Sidecar: median(rounds[sidecarSystem]), MirrorMaker: median(rounds[mirrorMakerSystem]), Native: median(rounds[nativeSystem]),
		Ratios: make(map[string]float64), Run: about,
	}
	for _, pair := range []struct {
		name string
		a, b *figures
	}{
		{"mirror-sidecar/native", rep.Sidecar, rep.Native},
		{"mirrormaker2/native", rep.MirrorMaker, rep.Native},
		{"mirror-sidecar/mirrormaker2", rep.Sidecar, rep.MirrorMaker},
	} {
		switch {
		case pair.a == nil || pair.b == nil:
		case pair.a != rep.MirrorMaker && pair.b != rep.MirrorMaker && len(pair.a.Rounds) == len(pair.b.Rounds):
			rep.Ratios[pair.name] = medianRatio(pair.a.Rounds, pair.b.Rounds)
		default:
			rep.Ratios[pair.name] = pair.a.MBPerS / pair.b.MBPerS
		}
	}
	return rep
}

func writeReport(cfg throughputConfig, r *rig, rounds map[string][]round) error {
	rep := makeReport(rounds, run{
		Commit: commit, Finished: time.Now().UTC(), Cores: runtime.NumCPU(),
		Kafka: r.source.Installation().Version, MirrorMaker: harness.MirrorMakerVersion,
		Bytes: r.bytes, Records: r.records, Partitions: cfg.partitions, RecordBytes: cfg.recordBytes, BatchBytes: cfg.batchBytes,
		Destination: "one broker, one replica, for each system; brokers, clients and copier on one machine",
	})
	raw, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(cfg.out), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(cfg.out, append(raw, '\n'), 0o644); err != nil {
		return err
	}
	for _, name := range []string{"mirror-sidecar/native", "mirrormaker2/native", "mirror-sidecar/mirrormaker2"} {
		if ratio, ok := rep.Ratios[name]; ok {
			fmt.Printf("%-28s %.2f\n", name, ratio)
		}
	}
	fmt.Println("written to", cfg.out)
	return nil
}
