package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// proxyFigures is the file that the goals are compared with.
type proxyFigures struct {
	ProduceRatio float64 `json:"produce_ratio"`
	ConsumeRatio float64 `json:"consume_ratio"`
	AddedP50     float64 `json:"added_p50_ms"`
	AddedP99     float64 `json:"added_p99_ms"`
	CPUPerGB     float64 `json:"cpu_s_per_gb"`
}

// proxyDetails is the other file: what the figures were made of. The ratios of the first are
// those at full speed, where broker, client and proxy share the cores; the paced rounds show
// what is left of the difference while the cores are not the limit.
type proxyDetails struct {
	Figures proxyFigures `json:"figures"`

	PacedProduceRatio float64 `json:"paced_produce_ratio,omitempty"`
	PacedConsumeRatio float64 `json:"paced_consume_ratio,omitempty"`
	PaceProduce       float64 `json:"paced_produce_mb_per_s,omitempty"`
	PaceConsume       float64 `json:"paced_consume_mb_per_s,omitempty"`

	ProduceCPU float64 `json:"produce_proxy_cpu_s_per_gb"`
	ConsumeCPU float64 `json:"consume_proxy_cpu_s_per_gb"`
	IdleCores  float64 `json:"idle_proxy_cores"`

	Latency      [2]latencies `json:"latency_direct_and_proxy"`
	Produce      both         `json:"produce_direct_and_proxy"`
	Consume      both         `json:"consume_direct_and_proxy"`
	PacedProduce both         `json:"paced_produce_direct_and_proxy"`
	PacedConsume both         `json:"paced_consume_direct_and_proxy"`

	Run proxyRun `json:"run"`
}

// proxyRun describes what was measured, so that figures of two runs can be compared or not.
type proxyRun struct {
	Commit      string    `json:"commit,omitempty"`
	Finished    time.Time `json:"finished"`
	Cores       int       `json:"cores"`
	Kafka       string    `json:"kafka"`
	Gigabytes   float64   `json:"gb_of_a_round"`
	Partitions  int       `json:"partitions"`
	RecordBytes int       `json:"record_bytes"`
	Clients     string    `json:"clients"`
}

// figures reduces the rounds. A ratio is the median of those of rounds run next to each
// other, so that a slow minute of the machine hits both.
func (d *proxyDetails) figures() {
	d.Figures = proxyFigures{
		ProduceRatio: ratio(d.Produce), ConsumeRatio: ratio(d.Consume),
		AddedP50: d.Latency[proxied].P50 - d.Latency[direct].P50,
		AddedP99: d.Latency[proxied].P99 - d.Latency[direct].P99,
	}
	d.PacedProduceRatio, d.PacedConsumeRatio = ratio(d.PacedProduce), ratio(d.PacedConsume)
	d.ProduceCPU, d.ConsumeCPU = medianOf(d.Produce[proxied], cpuOf), medianOf(d.Consume[proxied], cpuOf)
	// As much is written as read.
	d.Figures.CPUPerGB = (d.ProduceCPU + d.ConsumeCPU) / 2
	for _, f := range []*float64{
		&d.Figures.ProduceRatio, &d.Figures.ConsumeRatio, &d.Figures.AddedP50, &d.Figures.AddedP99, &d.Figures.CPUPerGB,
	} {
		*f = math.Round(*f*1000) / 1000
	}
}

func cpuOf(p passed) float64   { return p.Proxy }
func speedOf(p passed) float64 { return p.MBPerS }

func median1(rounds []passed) float64 { return medianOf(rounds, speedOf) }

// medianOf is the median of what of gives; of an even number the mean of the middle two.
func medianOf(rounds []passed, of func(passed) float64) float64 {
	all := make([]float64, len(rounds))
	for i, p := range rounds {
		all[i] = of(p)
	}
	return middle(all)
}

func middle(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	n := len(all) / 2
	if len(all)%2 == 1 {
		return all[n]
	}
	return (all[n-1] + all[n]) / 2
}

func ratio(b both) float64 {
	all := make([]float64, min(len(b[direct]), len(b[proxied])))
	for i := range all {
		all[i] = b[proxied][i].MBPerS / b[direct][i].MBPerS
	}
	return middle(all)
}

func (d *proxyDetails) write(r *proxyRig) error {
	d.figures()
	d.Run = proxyRun{
		Commit: commit, Finished: time.Now().UTC(), Cores: runtime.NumCPU(), Kafka: r.broker().Installation().Version,
		Gigabytes: r.cfg.gigabytes, Partitions: r.cfg.partitions, RecordBytes: r.cfg.recordBytes,
		Clients: "kafka-producer-perf-test and kafka-consumer-perf-test with the settings they have by themselves; broker, client and proxy on one machine",
	}
	for file, v := range map[string]any{r.cfg.out: d.Figures, r.cfg.details: d} {
		raw, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, append(raw, '\n'), 0o644); err != nil {
			return err
		}
	}
	f := d.Figures
	fmt.Printf("\n%-34s %.3f of direct (%.3f at %.0f MB/s)\n", "produce at full speed", f.ProduceRatio, d.PacedProduceRatio, d.PaceProduce)
	fmt.Printf("%-34s %.3f of direct (%.3f at %.0f MB/s)\n", "consume at full speed", f.ConsumeRatio, d.PacedConsumeRatio, d.PaceConsume)
	fmt.Printf("%-34s p50 %+.3f ms, p99 %+.3f ms\n", "added latency", f.AddedP50, f.AddedP99)
	fmt.Printf("%-34s %.2f s/GB (produce %.2f, consume %.2f)\n", "CPU of the proxy", f.CPUPerGB, d.ProduceCPU, d.ConsumeCPU)
	fmt.Println("written to", r.cfg.out, "and", r.cfg.details)
	return nil
}
