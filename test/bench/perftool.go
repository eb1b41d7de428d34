package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// mib is what Kafka's own tools call a MB.
const mib = 1 << 20

// fullJIT takes back what the harness gives to JVMs that live for seconds.
var fullJIT = []string{"-XX:TieredStopAtLevel=4"}

// produced is what kafka-producer-perf-test says of its steady state.
type produced struct {
	MBPerS       float64
	P50Ms, P99Ms float64
}

// perfProduce runs kafka-producer-perf-test with the settings it has by itself. perSecond
// bounds its records, -1 does not.
func perfProduce(ctx context.Context, in *harness.Installation, bootstrap, topic string, records, warmup int64, recordBytes, perSecond int) (produced, error) {
	res, err := in.Tool(ctx, harness.ToolRun{
		Class: "org.apache.kafka.tools.ProducerPerformance", HeapMB: 512, Flags: fullJIT,
		Args: []string{
			"--bootstrap-server", bootstrap, "--topic", topic,
			"--num-records", strconv.FormatInt(records, 10), "--warmup-records", strconv.FormatInt(warmup, 10),
			"--record-size", strconv.Itoa(recordBytes), "--throughput", strconv.Itoa(perSecond),
		},
	})
	if err != nil {
		return produced{}, err
	}
	return parseProduced(res.Stdout)
}

var producedLine = regexp.MustCompile(`records/sec \(([0-9.]+) MB/sec\), .* ([0-9]+) ms 50th, .* ([0-9]+) ms 99th,`)

// parseProduced reads the last summary: with warm-up records there is one of everything and
// one of the steady state.
func parseProduced(text string) (produced, error) {
	all := producedLine.FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return produced{}, fmt.Errorf("kafka-producer-perf-test printed no summary: %q", tail(text))
	}
	f, err := floats(all[len(all)-1][1:])
	if err != nil {
		return produced{}, err
	}
	return produced{MBPerS: f[0] * mib / 1e6, P50Ms: f[1], P99Ms: f[2]}, nil
}

// consumed is what kafka-consumer-perf-test says, without the time that the group's rebalance
// took.
type consumed struct {
	MBPerS float64
	Bytes  float64
}

func perfConsume(ctx context.Context, in *harness.Installation, bootstrap, topic string, records int64, clientID string) (consumed, error) {
	res, err := in.Tool(ctx, harness.ToolRun{
		Class: "org.apache.kafka.tools.ConsumerPerformance", HeapMB: 512, Flags: fullJIT,
		Args: []string{
			"--bootstrap-server", bootstrap, "--topic", topic, "--num-records", strconv.FormatInt(records, 10),
			"--timeout", "60000", "--command-property", "client.id=" + clientID,
		},
	})
	if err != nil {
		return consumed{}, err
	}
	return parseConsumed(res.Stdout, records)
}

func parseConsumed(text string, records int64) (consumed, error) {
	// start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec,
	// rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
	const columns = 10
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), ", ")
		if len(cells) != columns || strings.HasPrefix(line, "start.time") {
			continue
		}
		f, err := floats(cells[2:])
		if err != nil {
			return consumed{}, err
		}
		if f[2] < float64(records) {
			return consumed{}, fmt.Errorf("kafka-consumer-perf-test read %.0f of %d records", f[2], records)
		}
		return consumed{MBPerS: f[6] * mib / 1e6, Bytes: f[0] * mib}, nil
	}
	return consumed{}, fmt.Errorf("kafka-consumer-perf-test printed no summary: %q", tail(text))
}

func floats(cells []string) ([]float64, error) {
	out := make([]float64, len(cells))
	for i, c := range cells {
		var err error
		if out[i], err = strconv.ParseFloat(strings.TrimSpace(c), 64); err != nil {
			return nil, fmt.Errorf("an odd figure in a tool's summary: %w", err)
		}
	}
	return out, nil
}

func tail(text string) string { return text[max(0, len(text)-500):] }
