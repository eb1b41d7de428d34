package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// latencies of one way, in ms.
type latencies struct {
	Samples int     `json:"samples"`
	P50     float64 `json:"p50_ms"`
	P90     float64 `json:"p90_ms"`
	P99     float64 `json:"p99_ms"`
	P999    float64 `json:"p99.9_ms"`
	Max     float64 `json:"max_ms"`
}

func latenciesOf(took []time.Duration) latencies {
	if len(took) == 0 {
		return latencies{}
	}
	slices.Sort(took)
	at := func(q float64) float64 {
		return float64(took[min(len(took)-1, int(q*float64(len(took))))].Microseconds()) / 1000
	}
	return latencies{Samples: len(took), P50: at(0.5), P90: at(0.9), P99: at(0.99), P999: at(0.999), Max: at(1)}
}

// probe writes single records, to and fro between the two ways so that whatever happens on the
// machine happens to both, and measures until each is acknowledged. Kafka's own tool tells
// latencies in whole milliseconds, which is more than there is to be seen here.
func probe(ctx context.Context, ways [2]*kgo.Client, topic string, recordBytes int, every, length time.Duration) (_ [2]latencies, err error) {
	value := make([]byte, recordBytes)
	var took [2][]time.Duration
	tick := time.NewTicker(every)
	defer tick.Stop()
	// The first second is for connections and caches.
	begin := time.Now().Add(time.Second)
	end := begin.Add(length)
	for i := 0; time.Now().Before(end); i++ {
		select {
		case <-ctx.Done():
			return [2]latencies{}, context.Cause(ctx)
		case <-tick.C:
		}
		way := i % 2
		sent := time.Now()
		if err := ways[way].ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: 0, Value: value}).FirstErr(); err != nil {
			return [2]latencies{}, fmt.Errorf("%s: %w", wayNames[way], err)
		}
		if sent.After(begin) {
			took[way] = append(took[way], time.Since(sent))
		}
	}
	return [2]latencies{latenciesOf(took[0]), latenciesOf(took[1])}, nil
}
