package coordinator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/placement"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// partitionsAtOnce bounds one CreatePartitions: the controller writes all of its records
// at once.
const partitionsAtOnce = 500

// grow adds the partitions that the source has more. The controller wants as many replicas
// of a new partition as the first one has, virtual ones counted, and so the new ones begin
// with a virtual leader. Their state is recorded first: they are read only from the start.
func (r *Refresher) grow(ctx context.Context, t Topic, want int32) error {
	parts := r.c.img.TopicPartitions(t.TopicID)
	v, fail := r.c.cfg.Virtual, func(err error) error {
		return fmt.Errorf("mirror %s, topic %s: grow to %d partitions: %w", t.Mirror, t.Name, want, err)
	}
	replicas, err := growth(v, r.c.img, t.Name, parts, want, func(more []ids.TopicPartition) [][]int32 { return r.rec.seatMore(t.Mirror, more) })
	if err != nil {
		return fail(err)
	}
	first := int32(len(parts))
	replicas = replicas[:min(len(replicas), partitionsAtOnce)] // the rest at the next look
	windows := map[int32]bool{}
	for i, assigned := range replicas {
		tp := ids.TopicPartition{TopicID: t.TopicID, Partition: first + int32(i)}
		if s, _ := r.c.view.State(t.Mirror, tp); s.State == Unknown {
			if err := r.c.WriteState(ctx, t.Mirror, tp, -1, PartitionState{State: LogTruncation, StateEpoch: -1}); err != nil {
				return fail(err)
			}
		}
		for _, b := range v.Only(assigned) {
			windows[b] = true
		}
	}
	closeWindows, err := r.c.openWindows(ctx, windows)
	if err != nil {
		return fail(err)
	}
	defer closeWindows()
	count := first + int32(len(replicas))
	if err := r.c.deps.Destination.createPartitions(ctx, t.Name, count, replicas); err != nil {
		return fail(err)
	}
	waitCtx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	if err := r.c.img.Wait(waitCtx, func() bool { return int32(len(r.c.img.TopicPartitions(t.TopicID))) >= count }); err != nil {
		return fail(fmt.Errorf("accepted, but the metadata log does not show it: %w", err))
	}
	r.log.Info("mirror topic has grown like its source", "mirror", t.Mirror, "topic", t.Name, "partitions", count, "were", first)
	return nil
}

// growth returns the replicas of the partitions that are missing; seat tells their virtual
// ones.
func growth(v ids.Virtual, img *metadata.Image, topic string, parts []*metadata.Partition, want int32, seat func([]ids.TopicPartition) [][]int32) ([][]int32, error) {
	if len(parts) == 0 || parts[0].Partition != 0 {
		return nil, fmt.Errorf("the metadata log shows no first partition")
	}
	first := parts[0]
	if reassigning(first) {
		return nil, fmt.Errorf("a reassignment of partition 0 is pending")
	}
	virtual, real := len(v.Only(first.Replicas)), len(v.Real(first.Replicas))
	if virtual == 0 {
		return nil, fmt.Errorf("partition 0 has no virtual replica yet")
	}
	live := liveVirtual(img, v)
	if len(live) < virtual {
		return nil, fmt.Errorf("partition 0 has %d virtual replicas and %d virtual brokers are alive", virtual, len(live))
	}
	// Also those that are down, if there are not enough others: the controller lets them join
	// later.
	brokers := placement.Brokers(img.Brokers(), v)
	all := placement.Spread(brokers, int(want), real, hashStart(topic, max(len(brokers), 1)))
	if all == nil {
		return nil, fmt.Errorf("partition 0 has %d real replicas and %d brokers are registered that can be given any", real, len(brokers))
	}
	var more []ids.TopicPartition
	for p := int32(len(parts)); p < want; p++ {
		more = append(more, ids.TopicPartition{TopicID: first.TopicID, Partition: p})
	}
	var out [][]int32
	for i, list := range seat(more) {
		for _, id := range live {
			// One has died that the first partition still has. The controller wants as many.
			if len(list) < virtual && !slices.Contains(list, id) {
				list = append(list, id)
			}
		}
		out = append(out, append(slices.Clone(list[:min(virtual, len(list))]), all[more[i].Partition]...))
	}
	return out, nil
}

// createPartitions adds partitions with these replicas to a topic, count in all.
func (d *Destination) createPartitions(ctx context.Context, topic string, count int32, replicas [][]int32) error {
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = topic, count
	for _, r := range replicas {
		a := kmsg.NewCreatePartitionsRequestTopicAssignment()
		a.Replicas = r
		t.Assignment = append(t.Assignment, a)
	}
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = int32(adminTimeout / time.Millisecond)
	req.Topics = append(req.Topics, t)
	resp, err := d.ctl.Request(ctx, req)
	if err != nil {
		return fmt.Errorf("create partitions of topic %s: %w", topic, err)
	}
	r, ok := resp.(*kmsg.CreatePartitionsResponse)
	if !ok || len(r.Topics) != 1 {
		return fmt.Errorf("create partitions of topic %s: unexpected answer", topic)
	}
	if e := kerr.ErrorForCode(r.Topics[0].ErrorCode); e != nil {
		return fmt.Errorf("create partitions of topic %s as %v: %w%s", topic, replicas, e, detail(r.Topics[0].ErrorMessage))
	}
	return nil
}
