package coordinator

import (
	"context"
	"fmt"
	"slices"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// refusedStart tells whether a partition's start was refused since records would have to
// go that nobody has allowed to drop. Nothing of it was touched.
func refusedStart(s PartitionState) bool { return s.State == Failed && s.Detail == DetailConsentNeeded }

// ordinary tells whether a topic that is not STOPPED is an ordinary one all the same: the
// start of all its partitions was refused, they were handed back, and then its configs.
func (c *Coordinator) ordinary(t Topic) bool {
	parts := c.img.TopicPartitions(t.TopicID)
	for _, p := range parts {
		s, _ := c.view.State(t.Mirror, ids.TopicPartition{TopicID: t.TopicID, Partition: p.Partition})
		if !refusedStart(s) || slices.ContainsFunc(p.Replicas, c.cfg.Virtual.Is) {
			return false
		}
	}
	return len(parts) > 0 && len(t.Wanted) == 0
}

// handRefusedBack takes the virtual replicas away from partitions whose start was refused.
// A topic all of whose partitions were gets its configs back too, and can be written to
// as before. all tells so; nothing else is done for such a topic.
func (r *Reconciler) handRefusedBack(ctx context.Context, t Topic) (all bool, err error) {
	key := topicKey{t.Mirror, t.Name}
	parts := r.c.img.TopicPartitions(t.TopicID)
	refused := slices.DeleteFunc(slices.Clone(parts), func(p *metadata.Partition) bool {
		s, _ := r.c.view.State(t.Mirror, ids.TopicPartition{TopicID: t.TopicID, Partition: p.Partition})
		return !refusedStart(s)
	})
	all = len(refused) == len(parts)
	if len(refused) == 0 {
		return false, nil
	}
	plan := stopPlan{remove: map[int32][]int32{}, lead: map[int32][]int32{}}
	v := r.c.cfg.Virtual
	for _, p := range refused {
		if !slices.ContainsFunc(p.Replicas, v.Is) {
			continue
		}
		// Like a leader whose source is away it has served nothing under this epoch.
		as := PartitionState{State: Stopping, Detail: DetailSourceUnavailable, LeaderEpoch: p.LeaderEpoch}
		h := mayHandBack(v, p, as, func(b int32) bool { return alive(r.c.img, b) }, false, 1)
		if h.wait != "" {
			plan.waits = fmt.Sprintf("partition %d: %s", p.Partition, h.wait)
		}
		r.planTarget(ctx, &plan, t, p, h)
	}
	if len(plan.elect) > 0 {
		if err := r.letRealLead(ctx, t, plan); err != nil {
			return all, err
		}
	}
	if len(plan.remove) > 0 {
		if err := r.remember(ctx, t, parts, plan.remove); err != nil {
			return all, err
		}
		r.log.Info("partitions whose start was refused are handed back", "mirror", t.Mirror, "topic", t.Name, "replicas", plan.remove)
		if err := r.assign(ctx, t.Name, t.TopicID, plan.remove, nil); err != nil {
			return all, err
		}
	}
	r.waiting(key, plan.waits)
	if plan.waits != "" {
		return all, nil
	}
	if t, err = r.readd(ctx, t); err != nil {
		return all, err
	}
	if all && len(t.Wanted) > 0 {
		// Only now: whoever is recovered meanwhile may mirror at once, and needs the lock. That it
		// is gone then is no hand-back by hand.
		if t.Locked {
			if t, err = r.put(ctx, t, func(now *Topic) { now.Locked = false }); err != nil {
				return all, err
			}
		}
		if err := r.alter(ctx, t.Name, restoreConfigs(t, r.c.img.TopicConfig(t.Name))); err != nil {
			return all, err
		}
		// The topic is its owner's again, and the next start takes its configs anew.
		_, err = r.put(ctx, t, func(now *Topic) { now.Wanted = nil })
	}
	return all, err
}
