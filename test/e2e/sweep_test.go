package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// sweepLimit is how long a partition may be on virtual brokers.
const sweepLimit = 30 * time.Second

// TestSweep: what the controller places on virtual brokers while they are open goes to real
// ones, with as many replicas as before, also what has no real replica at all; a mirror
// topic beside it keeps its virtual ones.
func TestSweep(t *testing.T) {
	e := start(t, destination("", 3))
	e.createMirror(t, "sweep")
	e.createSource(t, 1, "kept")
	write(t, e.writer(t, e.src.Bootstrap(harness.ListenerInternal)), "kept", 1, 10, "v")
	e.mirrorTopics(t, "sweep", "kept")
	before := e.topicT(t, "kept").Partitions[0]

	e.uncordon(t, 30*time.Second)
	factors := map[string]int{}
	landed := map[int16]int{} // partitions with a virtual replica, by replication factor
	alone := 0
	for i := 0; i < 12 && (landed[2] == 0 || alone == 0); i++ {
		for _, rf := range []int16{1, 2} {
			name := fmt.Sprintf("ordinary-%d-%d", rf, i)
			createTopic(t, e.dstClient, 4, rf, name)
			factors[name] = int(rf)
			eventually(t, name+" is there", func(ctx context.Context) error {
				d, err := e.topic(ctx, name)
				if err == nil && len(d.Partitions) != 4 {
					err = fmt.Errorf("%d partitions", len(d.Partitions))
				}
				if err != nil {
					return err
				}
				for _, p := range d.Partitions {
					if slices.ContainsFunc(p.Replicas, isVirtual) {
						landed[rf]++
						if !slices.ContainsFunc(p.Replicas, func(b int32) bool { return !isVirtual(b) }) {
							alone++
						}
					}
				}
				return nil
			})
		}
	}
	e.uncordon(t, 0)
	began := time.Now()
	t.Logf("%d topics; partitions with a virtual replica by replication factor: %v, without a real one: %d", len(factors), landed, alone)
	if landed[2] == 0 || alone == 0 {
		t.Fatal("nothing landed on virtual brokers")
	}
	for name, rf := range factors {
		eventually(t, name+" is on real brokers", func(ctx context.Context) error {
			d, err := e.topic(ctx, name)
			if err != nil {
				return err
			}
			for _, p := range d.Partitions.Sorted() {
				if len(p.Replicas) != rf || slices.ContainsFunc(p.Replicas, isVirtual) || isVirtual(p.Leader) || p.Leader < 0 {
					return fmt.Errorf("partition %d: replicas %v, led by %d", p.Partition, p.Replicas, p.Leader)
				}
			}
			return nil
		})
	}
	took := time.Since(began)
	t.Logf("all on real brokers %v after the window", took.Round(100*time.Millisecond))
	if took > sweepLimit {
		t.Errorf("on real brokers after %v, want %v", took, sweepLimit)
	}
	at := e.writer(t, e.dst.Proxies())
	for name := range factors {
		write(t, at, name, 4, 8, "own")
		e.consumes(t, name, 8)
	}
	after := e.topicT(t, "kept").Partitions[0]
	if !slices.Equal(after.Replicas, before.Replicas) {
		t.Errorf("the mirror topic has replicas %v, had %v", after.Replicas, before.Replicas)
	}
	e.waitState(t, "sweep", stateMirroring, "kept")
}

func isVirtual(b int32) bool { return b >= stack.VirtualOffset }

// uncordon opens all virtual brokers for assignments, for a while or until it is called
// with 0.
func (e *env) uncordon(t *testing.T, lease time.Duration) {
	t.Helper()
	for _, b := range e.api.SeedBrokers() {
		req := protocol.NewUncordonVirtualBrokerRequest()
		req.LeaseMs = int32(lease.Milliseconds())
		resp, err := b.Request(t.Context(), &req)
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := resp.(*protocol.UncordonVirtualBrokerResponse); !ok || r.ErrorCode != 0 {
			t.Fatalf("un-cordon: %+v", resp)
		}
	}
}

// consumes reads n records of a topic from its start.
func (e *env) consumes(t *testing.T, topic string, n int) {
	t.Helper()
	cl := e.client(t, e.dst.Proxies(), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for got := 0; got < n; {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("consume %s: %v, after %d of %d records", topic, err, got, n)
		}
		got += f.NumRecords()
	}
}
