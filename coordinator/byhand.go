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

// byHand tells whether a topic that is wanted mirrored was handed back by hand.
func (r *Reconciler) byHand(t Topic, parts []*metadata.Partition) bool {
	if len(t.Wanted) == 0 || r.c.locked(t.Name) {
		return false
	}
	led := false
	for _, p := range parts {
		if slices.ContainsFunc(p.Replicas, r.c.cfg.Virtual.Is) {
			return false
		}
		// A start that has not come to the lock yet has no partition that was led.
		switch s, _ := r.c.view.State(t.Mirror, ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition}); s.State {
		case Unknown, Stopping, Stopped:
		default:
			led = true
		}
	}
	return led
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
		return r.c.store.Put(ctx, record{kind: kindTopic, topic: topicKey{t.Mirror, t.Name}, value: now})
	})
}
