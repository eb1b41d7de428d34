package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// memoryRest is what is needed beside the buffers and what is counted.
	memoryRest = 64 << 20
	// memoryEvery is how often it is looked at what is alive.
	memoryEvery = time.Second
)

// limitMemory lets the collector run less often than Go's default, which costs a tenth of the
// time at full speed, but not far beyond the buffers' budget, or what is alive, see memoryLimit.
// GOGC and GOMEMLIMIT in the environment win. The limit follows until ctx ends.
func limitMemory(ctx context.Context, budget int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit := memoryLimit(0, budget, 0)
	debug.SetMemoryLimit(limit)
	go func() {
		tick := time.NewTicker(memoryEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if next := memoryLimit(limit, budget, memoryAlive()); next != limit {
				limit = next
				debug.SetMemoryLimit(limit)
			}
		}
	}()
}

// memoryLimit is the limit for a process of which so many bytes are alive. Connections, large
// requests and the cluster's metadata are bounded, but not by the buffers' budget, and to reckon
// with the most of each would be no limit for those that have few. A limit that is below what is
// alive has the collector run without a pause, so a quarter is left to it. former is the limit so
// far, which stays if little has changed: to set it stops the process for a moment.
func memoryLimit(former, budget, alive int64) int64 {
	limit := max(budget, alive+alive/4) + memoryRest
	if diff := limit - former; max(diff, -diff) < limit/16 && limit-memoryRest > budget {
		return former
	}
	return limit
}

// memoryAlive returns what no collection frees: what the last one found alive, and stacks.
func memoryAlive() int64 {
	of := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(of)
	var sum uint64
	for _, s := range of {
		if s.Value.Kind() == metrics.KindUint64 {
			sum += s.Value.Uint64()
		}
	}
	return int64(sum)
}
