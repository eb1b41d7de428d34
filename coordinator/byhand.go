package coordinator

import (
	"context"
	"slices"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// A topic may be handed back by hand, with Kafka's own tools, on a day when no sidecar can start.
// Virtual replicas and write lock are both gone then, and what is in the topic since is its users'.
// A mirror topic that has merely lost its virtual replicas still has the lock: nobody could write
// to it, so it is taken back.

// locked tells whether a topic has the write lock.
func (c *Coordinator) locked(topic string) bool {
	return c.img.TopicConfig(topic)[configMaxMessageBytes] == "0"
}

// noteLock records that a topic has the write lock, or that it has lost it and a policy refuses it
// by now. A topic that never had it is not taken for one that somebody took it off.
func (r *Reconciler) noteLock(ctx context.Context, t Topic) (Topic, error) {
	locked := r.c.locked(t.Name)
	if locked == t.Locked || !locked && !r.banRefused(topicKey{t.Mirror, t.Name}) {
		return t, nil
	}
	return r.put(ctx, t, func(now *Topic) { now.Locked = locked })
}

// byHand tells whether a topic that is wanted mirrored was handed back by hand, or by a stop of
// which only the partitions' states are left: the state topic has lost the rest. A start has the lock
// seen anew before it counts as locked, so that it is not taken for that.
func (r *Reconciler) byHand(t Topic, parts []*metadata.Partition) bool {
	if len(t.Wanted) == 0 || !t.Locked || r.c.locked(t.Name) {
		return false
	}
	led := false
	for _, p := range parts {
		if slices.ContainsFunc(p.Replicas, r.c.cfg.Virtual.Is) {
			return false
		}
		s, _ := r.c.view.State(t.Mirror, ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition})
		led = led || wasLed(s) || s.State == Stopped
	}
	return led
}

// wasLed tells whether a partition's state is one that only its leader brings it into. A start or
// a recovery that has not come to the lock yet has others: LOG_TRUNCATION is where it begins.
func wasLed(s PartitionState) bool {
	led := func(s State) bool { return s == Mirroring || s == Pausing || s == Paused }
	return led(s.State) || s.State == Failed && s.Detail != DetailConsentNeeded && led(s.Previous)
}

// stopByHand takes the hand-back for the stop that it is. Whoever starts the topic again is told
// what has come into it since, and asked.
func (r *Reconciler) stopByHand(ctx context.Context, t Topic) error {
	r.log.Warn("mirror topic was handed back by hand: it has neither virtual replicas nor the write lock, and counts as stopped; start it to mirror it again",
		"mirror", t.Mirror, "topic", t.Name)
	return r.c.act(ctx, t.Mirror, func() error {
		now, ok := r.c.view.Topic(t.Mirror, t.Name)
		if !ok || now.Desired == Stopped || now.TopicID != t.TopicID {
			return nil
		}
		now.Desired, now.Since, now.Fault = Stopped, time.Now().UnixMilli(), ""
		now.AllowTruncate, now.GiveUp = false, nil
		return r.c.store.Put(ctx, record{kind: kindTopic, topic: topicKey{t.Mirror, t.Name}, value: now})
	})
}
