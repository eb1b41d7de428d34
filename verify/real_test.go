package verify

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
)

// TestRealFollowers reads each partition from its leader as the source and from its
// follower as the mirror, and the other way round: the same logs, but for the cleaning of
// compacted topics.
func TestRealFollowers(t *testing.T) {
	c := harness.StartT(t, harness.Config{Name: "source", Brokers: 2, Controllers: 1, Properties: map[string]string{
		"broker.session.timeout.ms": "3000",
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	load, err := workload.New(workload.Config{
		Bootstrap: c.Bootstrap(harness.ListenerClient), Replication: 2,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := load.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := load.WaitAcked(ctx, 500); err != nil {
		t.Error(err)
	}
	if err := load.FreezeCompaction(ctx); err != nil {
		t.Error(err)
	}
	if err := load.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	cl := c.ClientT(t)
	for broker := range int32(2) {
		r, err := Compare(ctx, cl, cl, load.TopicNames(), Options{
			Tagger:       &batch.Tagger{},
			SourceBroker: func(TopicPartition) int32 { return 1 + broker },
			MirrorBroker: func(TopicPartition) int32 { return 2 - broker },
			MaxBytes:     16 << 10,
		})
		if err != nil {
			t.Fatal(err)
		}
		var batches int64
		for _, p := range r.Partitions {
			// Each broker cleans its own log in its own time.
			if p.Difference != nil && !p.Compacted {
				t.Errorf("%s-%d: %v", p.Topic, p.Partition, p.Difference)
			}
			batches += p.Batches
		}
		if batches == 0 || len(r.Partitions) != 2*len(load.TopicNames()) {
			t.Errorf("%d batches in %d partitions", batches, len(r.Partitions))
		}
		t.Logf("%d batches in %d partitions are equal", batches, len(r.Partitions))
	}
}
