package workload_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
)

func TestLoadOnARealBroker(t *testing.T) {
	cluster := harness.StartT(t, harness.Config{Name: "source", Brokers: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	load, err := workload.New(workload.Config{
		Bootstrap: cluster.Bootstrap(harness.ListenerClient), TuneCleaner: true,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := load.Start(ctx); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			if err := load.Stop(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		}
	}
	defer stop()
	if err := load.WaitAcked(ctx, 200); err != nil {
		t.Fatal(err)
	}
	t.Logf("acknowledged: %+v", load.Total())

	begun := time.Now()
	gaps, err := load.WaitForGaps(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("gaps after %s: %+v", time.Since(begun).Round(time.Millisecond), gaps)

	// Reading while producers write must find everything acknowledged so far.
	if _, err := load.Check(ctx, workload.CheckConfig{}); err != nil {
		t.Errorf("live: %v", err)
	}
	if err := load.FreezeCompaction(ctx); err != nil {
		t.Fatal(err)
	}
	before, err := load.Gaps(ctx)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	after, err := load.Gaps(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range before {
		if before[i].Removed != after[i].Removed {
			t.Errorf("cleaned though frozen: %+v, then %+v", before[i], after[i])
		}
	}

	for _, cfg := range []workload.CheckConfig{{}, {Committed: true}, {Committed: true, Prefix: true}} {
		report, err := load.Check(ctx, cfg)
		if err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
		t.Logf("%+v: %+v", cfg, report)
	}
	for topic, counts := range load.Counts() {
		if counts.Acked != counts.Produced {
			t.Errorf("%s: %d of %d acknowledged after an orderly stop", topic, counts.Acked, counts.Produced)
		}
		if counts.Acked != counts.Committed+counts.Aborted+counts.Open {
			t.Errorf("%s: %+v does not add up", topic, counts)
		}
	}

	// The open transaction is still open: the last stable offset stays behind.
	admin := kadm.NewClient(cluster.ClientT(t))
	open := "load-" + workload.OpenTransaction.String()
	stable, err := admin.ListCommittedOffsets(ctx, open)
	if err != nil {
		t.Fatal(err)
	}
	ends, err := admin.ListEndOffsets(ctx, open)
	if err != nil {
		t.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) {
		if lso, _ := stable.Lookup(open, o.Partition); lso.Offset >= o.Offset {
			t.Errorf("%s-%d: last stable offset %d, end %d: the transaction is not open", open, o.Partition, lso.Offset, o.Offset)
		}
	})
}

// TestLoadSurvivesARestart: records in flight are sent again, and nothing is lost or doubled.
func TestLoadSurvivesARestart(t *testing.T) {
	cluster := harness.StartT(t, harness.Config{Name: "source", Brokers: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	load, err := workload.New(workload.Config{
		Bootstrap: cluster.Bootstrap(harness.ListenerClient),
		Kinds:     []workload.Kind{workload.Idempotent, workload.Transactional, workload.CompactedTransactional},
		Log:       slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := load.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := load.WaitAcked(ctx, 100); err != nil {
		t.Error(err)
	}
	node := cluster.Brokers()[0]
	if err := node.Kill(); err != nil {
		t.Error(err)
	}
	if err := node.Start(ctx); err != nil {
		t.Error(err)
	}
	if err := load.WaitAcked(ctx, load.Total().Acked/3+200); err != nil {
		t.Error(err)
	}
	if err := load.Stop(ctx); err != nil {
		t.Error(err)
	}
	for _, cfg := range []workload.CheckConfig{{}, {Committed: true}} {
		if _, err := load.Check(ctx, cfg); err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
