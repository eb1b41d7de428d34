package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/cluster-mirroring/mirror-sidecar/coordinator"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// tp names a partition.
type tp struct {
	topic     string
	partition int32
}

func (p tp) String() string { return fmt.Sprintf("%s-%d", p.topic, p.partition) }

func (w *world) partitions() []tp {
	var out []tp
	for _, t := range w.load.TopicNames() {
		for p := range int32(partitions) {
			out = append(out, tp{t, p})
		}
	}
	return out
}

// askLimit bounds one question to a cluster that may be in any state.
const askLimit = 8 * time.Second

// assignments asks a real broker of the destination.
func (w *world) assignments(ctx context.Context) (map[tp]kadm.PartitionDetail, []int32, error) {
	return w.metadata(ctx, w.destAdmin)
}

func (w *world) metadata(ctx context.Context, admin *kadm.Client) (map[tp]kadm.PartitionDetail, []int32, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	md, err := admin.Metadata(ctx, w.load.TopicNames()...)
	if err != nil {
		return nil, nil, err
	}
	out := map[tp]kadm.PartitionDetail{}
	for _, t := range md.Topics {
		if t.Err != nil {
			return nil, nil, fmt.Errorf("topic %s: %w", t.Topic, t.Err)
		}
		for _, p := range t.Partitions {
			out[tp{t.Topic, p.Partition}] = p
		}
	}
	return out, md.Brokers.NodeIDs(), nil
}

// well fails unless virtual brokers lead every partition, every real replica is in sync and every
// partition is MIRRORING.
func (w *world) well(ctx context.Context) error {
	parts, live, err := w.assignments(ctx)
	if err != nil {
		return err
	}
	for _, c := range w.dest.Sidecars {
		if !slices.Contains(live, c.VirtualID()) {
			return fmt.Errorf("virtual broker %d is not live", c.VirtualID())
		}
	}
	for _, p := range w.partitions() {
		d, ok := parts[p]
		if !ok || d.Leader < stack.VirtualOffset {
			return fmt.Errorf("%s is led by %d (isr %v, replicas %v)", p, d.Leader, d.ISR, d.Replicas)
		}
		for _, n := range w.dest.Cluster.Brokers() {
			if !slices.Contains(d.ISR, n.ID()) {
				return fmt.Errorf("%s: broker %d is not in sync (isr %v, replicas %v)", p, n.ID(), d.ISR, d.Replicas)
			}
		}
	}
	states, err := w.states(ctx)
	if err != nil {
		return err
	}
	for _, p := range w.partitions() {
		if s := states[p]; s.State != int8(coordinator.Mirroring) {
			return fmt.Errorf("%s is %s", p, stateText(s))
		}
	}
	return nil
}

func stateText(s protocol.DescribedPartition) string {
	text := coordinator.State(s.State).String()
	if s.Detail != nil {
		text += " " + *s.Detail
	}
	if s.ErrorMessage != nil {
		text += ": " + *s.ErrorMessage
	}
	return text
}

// states asks the first sidecar that answers.
func (w *world) states(ctx context.Context) (map[tp]protocol.DescribedPartition, error) {
	var errs []error
	for _, c := range w.dest.Sidecars {
		s, err := describe(ctx, c.Proxy)
		if err == nil {
			return s, nil
		}
		errs = append(errs, fmt.Errorf("describe at sidecar %d: %w", c.Broker, err))
	}
	return nil, errors.Join(errs...)
}

func describe(ctx context.Context, at string) (map[tp]protocol.DescribedPartition, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(at), kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())),
		kgo.DisableClientMetrics(), kgo.RequestRetries(0), kgo.DialTimeout(2*time.Second))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	req := protocol.NewDescribeClusterMirrorsRequest()
	req.MirrorNames = []string{mirror}
	r, err := cl.SeedBrokers()[0].Request(ctx, &req)
	if err != nil {
		return nil, err
	}
	resp := r.(*protocol.DescribeClusterMirrorsResponse)
	if err := protocol.ErrorForCode(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, err
	}
	out := map[tp]protocol.DescribedPartition{}
	for _, m := range resp.Mirrors {
		if err := protocol.ErrorForCode(m.ErrorCode, m.ErrorMessage); err != nil {
			return nil, err
		}
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				out[tp{t.TopicName, p.PartitionIndex}] = p
			}
		}
	}
	return out, nil
}

// sourceEnds gives the end of each partition at the source, as consumers see it.
func (w *world) sourceEnds(ctx context.Context) (map[tp]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	ends, err := w.sourceAdmin.ListEndOffsets(ctx, w.load.TopicNames()...)
	if err != nil {
		return nil, err
	}
	out := map[tp]int64{}
	var failed error
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err != nil {
			failed = fmt.Errorf("end of %s-%d: %w", o.Topic, o.Partition, o.Err)
		}
		out[tp{o.Topic, o.Partition}] = o.Offset
	})
	return out, failed
}

func summary(ids []int32) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ids)), ","), "[]")
}
