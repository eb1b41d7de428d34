package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// stopTopic makes a mirror topic an ordinary one, one step further than it is. Every step
// looks at what is there, so that whoever comes next, after a crash or with another
// coordinator, goes on where it ended; the fail points are where tests make that happen.
func (r *Reconciler) stopTopic(ctx context.Context, t Topic) (time.Duration, error) {
	failpoint("stop.desired")
	if _, elsewhere, err := r.elsewhere(ctx, t); elsewhere || err != nil {
		if err != nil {
			return 0, err
		}
		// The lock, the replicas and the transactions are that mirror's.
		return 0, r.stopGone(ctx, t)
	}
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
	left, again, err := r.handBack(ctx, t)
	if !left || err != nil {
		return again, err
	}
	// What follows needs no virtual replica: the topic is led by real brokers.
	if err := r.abortOpen(ctx, t); err != nil {
		return 0, err
	}
	failpoint("stop.markers-written")
	if t, err = r.readd(ctx, t); err != nil {
		return 0, err
	}
	failpoint("stop.replicas-readded")
	if err := r.finish(ctx, t); err != nil {
		return 0, err
	}
	failpoint("stop.stopped")
	return 0, nil
}

// handBack takes the virtual replicas away from a topic's partitions, all at once: the
// configs that come back before are the topic's. left says that none is there any more.
func (r *Reconciler) handBack(ctx context.Context, t Topic) (left bool, again time.Duration, err error) {
	key := topicKey{t.Mirror, t.Name}
	v := r.c.cfg.Virtual
	parts := r.c.img.TopicPartitions(t.TopicID)

	// 1. Which partitions still have virtual replicas, and may all of them lose them?
	plan, err := r.planHandBack(ctx, t, parts)
	if err != nil {
		return false, 0, err
	}
	if len(plan.elect) > 0 {
		if err := r.letRealLead(ctx, t, plan); err != nil {
			return false, 0, err
		}
	}
	if plan.waits != "" {
		r.waiting(key, plan.waits)
		return false, plan.again, r.tellWaits(ctx, t, plan)
	}
	restore := restoreConfigs(t, r.c.img.TopicConfig(t.Name))
	// Where a real broker leads, no leading sidecar says how far the mirror came. It must be
	// known before anybody can write behind it.
	for _, p := range parts {
		// Without the lock and without virtual replicas somebody may have written behind it already.
		mirrored := slices.ContainsFunc(p.Replicas, v.Is) || r.c.locked(t.Name)
		if len(restore) > 0 && !v.Is(p.Leader) && mirrored {
			if err := r.recordEnd(ctx, t, p); err != nil {
				return false, 0, err
			}
		}
	}
	failpoint("stop.quiesced")

	// 2. Its own configs back, before the first write and the first marker.
	if err := r.alter(ctx, t.Name, restore); err != nil {
		return false, 0, err
	}
	failpoint("stop.configs-restored")
	// 3. Hand back: one request, to the real members of the ISR.
	if err := r.remember(ctx, t, parts, plan.remove); err != nil {
		return false, 0, err
	}
	failpoint("stop.replicas-remembered")
	if len(plan.remove) > 0 {
		r.log.Info("partitions are handed back to real brokers", "mirror", t.Mirror, "topic", t.Name, "replicas", plan.remove)
		if err := r.assign(ctx, t.Name, t.TopicID, plan.remove, nil); err != nil {
			return false, 0, err
		}
	}
	for _, p := range r.c.img.TopicPartitions(t.TopicID) {
		if slices.ContainsFunc(p.Replicas, v.Is) {
			// Only cancelled so far, or a target has left the ISR under the request.
			r.waiting(key, fmt.Sprintf("partition %d: the reassignment away from virtual brokers", p.Partition))
			return false, 100 * time.Millisecond, nil
		}
	}
	failpoint("stop.hand-back-seen")
	return true, 0, nil
}

// stopPlan is what a stop has to do next with the partitions of a topic.
type stopPlan struct {
	remove map[int32][]int32 // what to reassign to, where virtual replicas may go
	lead   map[int32][]int32 // what to reassign to, where a real broker has to lead first
	elect  []int32           // where one has to be elected
	waits  string            // what is waited for, in short
	each   map[int32]string  // the same by partition
	waited bool              // for as long as mirror.stop.replica.wait.ms by now
	again  time.Duration     // when to look again if something is waited for
}

func (r *Reconciler) planHandBack(ctx context.Context, t Topic, parts []*metadata.Partition) (stopPlan, error) {
	v := r.c.cfg.Virtual
	live := func(b int32) bool { return alive(r.c.img, b) }
	plan := stopPlan{remove: map[int32][]int32{}, lead: map[int32][]int32{}, each: map[int32]string{}}
	parts = slices.DeleteFunc(slices.Clone(parts), func(p *metadata.Partition) bool { return !slices.ContainsFunc(p.Replicas, v.Is) })
	if len(parts) == 0 {
		return plan, nil
	}
	now := time.Now()
	left := r.c.cfg.StopReplicaWait - now.Sub(r.stoppingSince(t, now))
	plan.again, plan.waited = max(left, 500*time.Millisecond), left <= 0
	if v, set := r.c.img.TopicConfig(t.Name)[configMinISR]; set && len(t.Wanted) == 0 {
		t.Wanted = map[string]*string{configMinISR: &v} // not locked: this is the topic's own
	}
	minISR := configuredMinISR(t, 1)
	if t.Wanted[configMinISR] == nil && slices.ContainsFunc(parts, func(p *metadata.Partition) bool { return len(lagging(v, p, live)) > 0 }) {
		var err error
		if minISR, err = r.defaultMinISR(ctx); err != nil {
			return plan, err
		}
	}
	for _, p := range parts {
		s, _ := r.c.view.State(t.Mirror, ids.TopicPartition{TopicID: t.TopicID, Partition: p.Partition})
		h := mayHandBack(v, p, s, live, plan.waited, minISR)
		if h.wait != "" {
			plan.waits = fmt.Sprintf("partition %d: %s", p.Partition, h.wait)
			plan.each[p.Partition] = h.wait
		}
		r.planTarget(ctx, &plan, t, p, h)
	}
	return plan, nil
}

// planTarget adds to a plan what one partition's hand-back needs to be asked for now.
func (r *Reconciler) planTarget(ctx context.Context, plan *stopPlan, t Topic, p *metadata.Partition, h handBack) {
	into := plan.remove
	switch {
	case len(h.target) == 0:
		return
	case h.realFirst:
		into = plan.lead
		plan.elect = append(plan.elect, p.Partition)
	}
	if askedFor(p, h) {
		return
	}
	if v := r.c.cfg.Virtual; v.Is(p.Leader) && len(h.target) > 1 {
		// The controller takes the first of the list that is in sync.
		h.target = longestFirst(h.target, r.c.deps.Destination.logEnds(ctx, t.Name, p.Partition, v.Real(p.ISR)))
	}
	into[p.Partition] = towards(p, h.target)
}

// askedFor tells whether what is pending leads to where a partition shall go. Where a real
// broker has to be elected, that is the first of the replicas: it must be in sync, which it
// may have been only when this was asked for.
func askedFor(p *metadata.Partition, h handBack) bool {
	return len(p.Adding) == 0 && sameSet(h.target, settled(p)) && (!h.realFirst || slices.Contains(p.ISR, p.Replicas[0]))
}

// tellWaits records with the partitions' states what a stop has been waiting for too long,
// for whoever asks: it names the broker to bring back.
func (r *Reconciler) tellWaits(ctx context.Context, t Topic, plan stopPlan) error {
	if !plan.waited {
		return nil
	}
	var errs []error
	for p, what := range plan.each {
		tp := ids.TopicPartition{TopicID: t.TopicID, Partition: p}
		s, _ := r.c.view.State(t.Mirror, tp)
		if s.State == Stopped || s.ErrorMessage == what {
			continue
		}
		next := PartitionState{State: Stopping, StateEpoch: s.StateEpoch, RetryAttempt: s.RetryAttempt, ErrorMessage: what}
		if s.State == Stopping {
			next.Detail = s.Detail // the hand-back goes by it
		}
		err := r.c.WriteState(ctx, t.Mirror, tp, s.LeaderEpoch, next)
		if err != nil && !errors.Is(err, ErrFencedStateEpoch) && !errors.Is(err, ErrFencedLeaderEpoch) { // else it has moved on
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// letRealLead has real brokers elected although virtual replicas are still assigned: their
// removal waits for replicas that only a real leader can bring into sync (R17). Nothing is
// left out by it, and the write lock stays on.
func (r *Reconciler) letRealLead(ctx context.Context, t Topic, plan stopPlan) error {
	if len(plan.lead) > 0 {
		r.log.Info("real brokers lead before they are handed the partitions: other live ones are not in sync",
			"mirror", t.Mirror, "topic", t.Name, "replicas", plan.lead)
		if err := r.remember(ctx, t, r.c.img.TopicPartitions(t.TopicID), plan.lead); err != nil {
			return err
		}
		if err := r.assign(ctx, t.Name, t.TopicID, plan.lead, nil); err != nil {
			return err
		}
	}
	return r.c.deps.Destination.electPreferred(ctx, t.Name, plan.elect)
}

// remember records the real replicas of partitions that are about to lose some.
func (r *Reconciler) remember(ctx context.Context, t Topic, parts []*metadata.Partition, targets map[int32][]int32) error {
	remembered, changed := rememberReplicas(t.RealReplicas, r.c.cfg.Virtual, parts, targets)
	if !changed {
		return nil
	}
	_, err := r.put(ctx, t, func(now *Topic) { now.RealReplicas = remembered })
	return err
}

// readd gives partitions back the replicas that were left out; a dead one comes when it
// can. By then the markers are written: a partition that counts a dead replica may have
// too few in sync for them.
func (r *Reconciler) readd(ctx context.Context, t Topic) (Topic, error) {
	if now, ok := r.c.view.Topic(t.Mirror, t.Name); ok {
		t.RealReplicas = now.RealReplicas
	}
	registered := func(b int32) bool { _, ok := r.c.img.Broker(b); return ok }
	if missing := missingReplicas(t, r.c.cfg.Virtual, r.c.img.TopicPartitions(t.TopicID), registered); len(missing) > 0 {
		if err := r.assign(ctx, t.Name, t.TopicID, missing, nil); err != nil {
			return t, err
		}
	}
	if len(t.RealReplicas) == 0 {
		return t, nil
	}
	return r.put(ctx, t, func(now *Topic) { now.RealReplicas = nil })
}

// abortOpen ends the transactions that the source's producers have left open here.
func (r *Reconciler) abortOpen(ctx context.Context, t Topic) error {
	var errs []error
	var marked []*metadata.Partition
	failed := func(p *metadata.Partition, err error) {
		if errors.Is(err, kerr.NotEnoughReplicas) || errors.Is(err, kerr.NotEnoughReplicasAfterAppend) {
			out := slices.DeleteFunc(slices.Clone(p.Replicas), func(b int32) bool { return slices.Contains(p.ISR, b) })
			err = fmt.Errorf("%w; bring back broker %s", err, list(out))
		}
		errs = append(errs, fmt.Errorf("mirror %s: %w", t.Mirror, err))
	}
	for _, p := range r.c.img.TopicPartitions(t.TopicID) {
		s, _ := r.c.view.State(t.Mirror, ids.TopicPartition{TopicID: t.TopicID, Partition: p.Partition})
		if s.State == Stopped {
			continue
		}
		if p.Leader < 0 {
			errs = append(errs, fmt.Errorf("mirror %s, %s-%d: no broker leads the partition, bring back broker %s", t.Mirror, t.Name, p.Partition, list(p.Replicas)))
			continue
		}
		n, has, err := r.c.deps.Destination.abortOpenTransactions(ctx, t.Name, p.Partition, p.Leader)
		switch {
		case err != nil:
			failed(p, err)
		case n > 0:
			r.log.Info("open mirrored transactions aborted", "mirror", t.Mirror, "topic", t.Name, "partition", p.Partition, "transactions", n)
		case has:
			marked = append(marked, p)
		}
	}
	// Only now: a partition whose followers stay behind keeps no other one from its markers.
	until := time.Now().Add(replicatedWait)
	for _, p := range marked {
		if err := r.c.deps.Destination.replicated(ctx, until, t.Name, p.Partition, p.Leader); err != nil {
			failed(p, err)
		}
	}
	return errors.Join(errs...)
}

// recordEnd records the last mirror epoch and offset of a partition that a real broker leads:
// the end of that one's log, for the write lock is still on.
func (r *Reconciler) recordEnd(ctx context.Context, t Topic, p *metadata.Partition) error {
	tp := ids.TopicPartition{TopicID: t.TopicID, Partition: p.Partition}
	s, _ := r.c.view.State(t.Mirror, tp)
	rec, known := r.c.view.Lineage(t.Mirror, tp)
	if s.State == Stopped || !known {
		return nil // done, or nothing was ever mirrored
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
	if rec.LastMirrorOffset >= 0 && rec.LastMirrorOffset <= end {
		return nil // by a leading sidecar; a real leader without all of that has cut it off
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

// stoppingSince is when the stop of a topic was first seen to wait.
func (r *Reconciler) stoppingSince(t Topic, now time.Time) time.Time {
	key := topicKey{t.Mirror, t.Name}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, ok := r.stopping[key]; !ok || s.stop != t.Since {
		r.stopping[key] = stopWait{stop: t.Since, since: now}
	}
	return r.stopping[key].since
}

// finish records STOPPED for every partition.
func (r *Reconciler) finish(ctx context.Context, t Topic) error {
	// A partition that was never led has no state. It is STOPPING before what the stop had to give back
	// is forgotten, or the topic would be taken for STOPPED, and then for STOPPING again.
	err := r.enterAll(ctx, t, Stopping, func(s State) bool { return s == Stopping || s == Stopped })
	if err != nil {
		return err
	}
	// Whoever sees STOPPED may change the topic's configs, and they stay changed.
	if err := r.forget(ctx, t); err != nil {
		return err
	}
	if err := r.enterAll(ctx, t, Stopped, func(s State) bool { return s == Stopped }); err != nil {
		return err
	}
	r.doneWaiting(topicKey{t.Mirror, t.Name})
	r.log.Info("mirror topic stopped, it is an ordinary topic now", "mirror", t.Mirror, "topic", t.Name)
	return nil
}

// enterAll records a state for all partitions of a topic that are not beyond it.
func (r *Reconciler) enterAll(ctx context.Context, t Topic, state State, beyond func(State) bool) error {
	var errs []error
	for _, p := range r.c.img.TopicPartitions(t.TopicID) {
		tp := ids.TopicPartition{TopicID: t.TopicID, Partition: p.Partition}
		s, _ := r.c.view.State(t.Mirror, tp)
		if beyond(s.State) {
			continue
		}
		errs = append(errs, r.c.WriteState(ctx, t.Mirror, tp, max(p.LeaderEpoch, s.LeaderEpoch), PartitionState{State: state, StateEpoch: -1}))
	}
	return errors.Join(errs...)
}

// forget drops what a stop had to give back.
func (r *Reconciler) forget(ctx context.Context, t Topic) error {
	if now, ok := r.c.view.Topic(t.Mirror, t.Name); !ok || len(now.Wanted)+len(now.RealReplicas) == 0 {
		return nil
	}
	_, err := r.put(ctx, t, func(now *Topic) {
		if now.Desired == Stopped {
			now.Wanted, now.RealReplicas, now.Locked = nil, nil, false
		}
	})
	return err
}

// doneWaiting forgets since when a stop waits, and for what.
func (r *Reconciler) doneWaiting(key topicKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.stopping, key)
	delete(r.told, key)
}

// elsewhere returns the mirror topic of another mirror that a topic belongs to. What that
// mirror's coordinator has written before is read by then.
func (r *Reconciler) elsewhere(ctx context.Context, t Topic) (Topic, bool, error) {
	o, ok := r.c.elsewhere(t)
	for ok {
		if err := r.c.barrier(ctx, o.Mirror); err != nil {
			return o, false, fmt.Errorf("mirror %s, topic %s: ask whether it belongs to mirror %s: %w", t.Mirror, t.Name, o.Mirror, err)
		}
		now, still := r.c.elsewhere(t)
		if !still || now.Mirror == o.Mirror {
			return now, still, nil
		}
		o = now
	}
	return o, false, nil
}

// stopGone ends the states of a topic that does not exist any more, or that is another
// mirror's.
func (r *Reconciler) stopGone(ctx context.Context, t Topic) error {
	r.doneWaiting(topicKey{t.Mirror, t.Name})
	errs := []error{r.forget(ctx, t)}
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
