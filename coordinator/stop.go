package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// stopTopic makes a mirror topic an ordinary one, one step further than it is.
func (r *Reconciler) stopTopic(ctx context.Context, t Topic) (time.Duration, error) {
	key := topicKey{t.Mirror, t.Name}
	v := r.c.cfg.Virtual
	id, exists := r.c.img.Topic(t.Name)
	if t.TopicID.IsZero() && exists && len(t.Wanted) > 0 {
		// Stopped between taking the lock and recording the id: this is the topic.
		var err error
		if t, err = r.put(ctx, t, func(now *Topic) { now.TopicID = id }); err != nil {
			return 0, err
		}
	}
	if t.TopicID.IsZero() || !exists || id != t.TopicID {
		return 0, r.stopGone(ctx, t)
	}
	parts := r.c.img.TopicPartitions(id)
	isLive := func(b int32) bool { return alive(r.c.img, b) }
	minISR := configuredMinISR(t, 1)

	// 1. Which partitions still have virtual replicas, and may all of them lose them?
	targets := map[int32][]int32{}
	waits := ""
	now := time.Now()
	since := r.stoppingSince(key, now)
	waited := now.Sub(since) >= r.c.cfg.StopReplicaWait
	for _, p := range parts {
		if len(v.Only(settled(p))) == 0 {
			continue
		}
		s, _ := r.c.view.State(t.Mirror, ids.TopicPartition{TopicID: id, Partition: p.Partition})
		h := mayHandBack(v, p, s, isLive, waited, minISR)
		if !h.ready {
			waits = fmt.Sprintf("partition %d: %s", p.Partition, h.wait)
			continue
		}
		if v.Is(p.Leader) && len(h.target) > 1 {
			// The controller takes the first of the list that is in sync.
			h.target = longestFirst(h.target, r.c.deps.Destination.logEnds(ctx, t.Name, p.Partition, h.target))
		}
		targets[p.Partition] = towards(p, h.target)
	}
	if waits != "" {
		r.waiting(key, waits)
		return max(r.c.cfg.StopReplicaWait-now.Sub(since), 500*time.Millisecond), nil
	}

	// Where a real broker leads, no leading sidecar says how far the mirror came. It must be
	// known before anybody can write behind it.
	for _, p := range parts {
		if _, leaving := targets[p.Partition]; leaving && !v.Is(p.Leader) {
			if err := r.recordEnd(ctx, t, p); err != nil {
				return 0, err
			}
		}
	}

	// 2. Its own configs back, before the first write and the first marker.
	if err := r.alter(ctx, t.Name, restoreConfigs(t, r.c.img.TopicConfig(t.Name))); err != nil {
		return 0, err
	}
	// 3. Hand back: one request, to the real members of the ISR.
	if len(targets) > 0 {
		remembered, changed := rememberReplicas(t.RealReplicas, v, parts, targets)
		if changed {
			var err error
			if t, err = r.put(ctx, t, func(now *Topic) { now.RealReplicas = remembered }); err != nil {
				return 0, err
			}
		}
		r.log.Info("partitions are handed back to real brokers", "mirror", t.Mirror, "topic", t.Name, "replicas", targets)
		if err := r.assign(ctx, t.Name, id, targets, nil); err != nil {
			return 0, err
		}
		parts = r.c.img.TopicPartitions(id)
	}
	for _, p := range parts {
		if len(v.Only(settled(p))) > 0 {
			return 50 * time.Millisecond, nil // a pending one was cancelled; now the rest
		}
		if slices.ContainsFunc(p.Replicas, v.Is) {
			r.waiting(key, fmt.Sprintf("partition %d: the reassignment away from virtual brokers", p.Partition))
			return 0, nil
		}
	}
	// 4. Replicas that were left out come back; a dead one when it can.
	registered := func(b int32) bool { _, ok := r.c.img.Broker(b); return ok }
	if missing := missingReplicas(t, v, parts, registered); len(missing) > 0 {
		if err := r.assign(ctx, t.Name, id, missing, nil); err != nil {
			return 0, err
		}
	}
	if len(t.RealReplicas) > 0 {
		var err error
		if t, err = r.put(ctx, t, func(now *Topic) { now.RealReplicas = nil }); err != nil {
			return 0, err
		}
	}
	// 5. Open transactions of the source's producers end here; then STOPPED.
	return 0, r.finish(ctx, t, parts)
}

// recordEnd records the last mirror epoch and offset of a partition that a real broker leads:
// the end of that one's log, for the write lock is still on.
func (r *Reconciler) recordEnd(ctx context.Context, t Topic, p *metadata.Partition) error {
	tp := ids.TopicPartition{TopicID: t.TopicID, Partition: p.Partition}
	s, _ := r.c.view.State(t.Mirror, tp)
	rec, known := r.c.view.Lineage(t.Mirror, tp)
	if s.State == Stopped || !known || rec.LastMirrorOffset >= 0 {
		return nil // recorded before, or nothing was ever mirrored
	}
	_, chain := rec.Newest()
	if c, ok := rec.Chains[p.LeaderEpoch]; ok {
		chain = c
	}
	if len(chain) == 0 {
		return nil
	}
	end, ok := r.c.deps.Destination.logEnds(ctx, t.Name, p.Partition, []int32{p.Leader})[p.Leader]
	if !ok {
		return fmt.Errorf("mirror %s, %s-%d: broker %d leads and does not tell its log end", t.Mirror, t.Name, p.Partition, p.Leader)
	}
	if local, has := chain.FirstLocal(); has {
		end = min(end, local) // not mirrored
	}
	epoch := max(p.LeaderEpoch, s.LeaderEpoch)
	if s.State != Stopping {
		if err := r.c.WriteState(ctx, t.Mirror, tp, epoch, PartitionState{State: Stopping, StateEpoch: -1}); err != nil {
			return err
		}
	}
	rec.LastMirrorEpoch, rec.LastMirrorOffset = chain.SourceEpochBefore(end), end
	return r.c.WriteLineage(ctx, t.Mirror, tp, epoch, rec)
}

func (r *Reconciler) stoppingSince(key topicKey, now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.stopping[key]; !ok {
		r.stopping[key] = now
	}
	return r.stopping[key]
}

func (r *Reconciler) finish(ctx context.Context, t Topic, parts []*metadata.Partition) error {
	var errs []error
	for _, p := range parts {
		tp := ids.TopicPartition{TopicID: t.TopicID, Partition: p.Partition}
		s, _ := r.c.view.State(t.Mirror, tp)
		if s.State == Stopped {
			continue
		}
		if p.Leader < 0 {
			errs = append(errs, fmt.Errorf("mirror %s, %s-%d: no broker leads the partition, bring back broker %s", t.Mirror, t.Name, p.Partition, list(p.Replicas)))
			continue
		}
		n, err := r.c.deps.Destination.abortOpenTransactions(ctx, t.Name, p.Partition, p.Leader)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if n > 0 {
			r.log.Info("open mirrored transactions aborted", "mirror", t.Mirror, "topic", t.Name, "partition", p.Partition, "transactions", n)
		}
		epoch := max(p.LeaderEpoch, s.LeaderEpoch)
		if s.State != Stopping {
			if err := r.c.WriteState(ctx, t.Mirror, tp, epoch, PartitionState{State: Stopping, StateEpoch: -1}); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		if err := r.c.WriteState(ctx, t.Mirror, tp, epoch, PartitionState{State: Stopped, StateEpoch: -1}); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	key := topicKey{t.Mirror, t.Name}
	r.mu.Lock()
	delete(r.stopping, key)
	delete(r.told, key)
	r.mu.Unlock()
	r.log.Info("mirror topic stopped, it is an ordinary topic now", "mirror", t.Mirror, "topic", t.Name)
	return nil
}

// stopGone ends the states of a topic that does not exist any more.
func (r *Reconciler) stopGone(ctx context.Context, t Topic) error {
	var errs []error
	for _, k := range r.c.view.partitionKeys(t.Mirror) {
		if k.tp.TopicID != t.TopicID || t.TopicID.IsZero() {
			continue
		}
		s, ok := r.c.view.State(t.Mirror, k.tp)
		if !ok || s.State == Stopped {
			continue
		}
		if s.State != Stopping {
			errs = append(errs, r.c.WriteState(ctx, t.Mirror, k.tp, s.LeaderEpoch, PartitionState{State: Stopping, StateEpoch: -1}))
		}
		errs = append(errs, r.c.WriteState(ctx, t.Mirror, k.tp, s.LeaderEpoch, PartitionState{State: Stopped, StateEpoch: -1}))
	}
	return errors.Join(errs...)
}
