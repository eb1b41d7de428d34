package coordinator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// This file holds how an operator gives up waiting for a replica that will not come back: by
// recovering a topic with AllowTruncate, also if nothing of it is FAILED (R15).

// waiting returns the partitions of a topic that no real replica is in sync of, or that nobody leads:
// without ELR the controllers keep the last real replica in the ISR and wait for it.
func (c *Coordinator) waiting(t Topic) []*metadata.Partition {
	v := c.cfg.Virtual
	return slices.DeleteFunc(c.img.TopicPartitions(t.TopicID), func(p *metadata.Partition) bool {
		return !slices.ContainsFunc(p.Replicas, v.Is) || len(v.Real(p.ISR)) > 0 && p.Leader >= 0
	})
}

// giveUp decides whether a topic without a failed partition may be recovered, and returns what
// becomes of it: exactly the partitions that wait now are given up.
func (c *Coordinator) giveUp(t Topic, allowTruncate bool) (Topic, *Error) {
	waiting := c.waiting(t)
	if len(waiting) == 0 || t.Desired == Paused {
		return t, refuse(protocol.InvalidClusterMirrorStates, "topic %s of mirror %s has no failed partition", t.Name, t.Mirror)
	}
	for _, p := range waiting {
		why := fmt.Sprintf("topic %s of mirror %s has no failed partition, but partition %d waits: %s", t.Name, t.Mirror, p.Partition, waitsForReplicas(c.cfg.Virtual, p))
		switch {
		case !allowTruncate:
			return t, refuse(protocol.InvalidClusterMirrorStates, "%s; recover with --allow-truncate to give up what only that broker has", why)
		case !slices.ContainsFunc(c.cfg.Virtual.Real(p.Replicas), func(b int32) bool { return alive(c.img, b) }):
			return t, refuse(protocol.InvalidClusterMirrorStates, "%s; to give up what only that broker has, start another one of %s first", why, list(c.cfg.Virtual.Real(p.Replicas)))
		}
	}
	t.GiveUp = make(map[int32]int64, len(waiting))
	for _, p := range waiting {
		t.GiveUp[p.Partition] = time.Now().UnixMilli()
	}
	return t, nil
}

// notGivenUp says which partitions of a topic with failed ones wait for a replica, to whoever
// recovers it with AllowTruncate: that is for the failed ones, and a broker that only reboots is
// not given up along with it. Empty if none waits.
func (c *Coordinator) notGivenUp(t Topic) string {
	var waits []string
	for _, p := range c.waiting(t) {
		waits = append(waits, fmt.Sprintf("partition %d waits: %s", p.Partition, waitsForReplicas(c.cfg.Virtual, p)))
	}
	if len(waits) == 0 {
		return ""
	}
	return "failed partitions go on; " + strings.Join(waits, "; ") + "; nothing of that is given up: recover again with --allow-truncate once none is FAILED to give it up"
}

// regained takes back what was said of partitions that have a real replica in sync again, with
// the one that was there or with the right one after all: whoever is lost next is waited for.
func (r *Reconciler) regained(ctx context.Context, t Topic) (Topic, error) {
	over := maps.Clone(t.GiveUp)
	if len(over) == 0 {
		return t, nil
	}
	for _, p := range r.c.waiting(t) {
		delete(over, p.Partition)
	}
	if len(over) == 0 {
		return t, nil
	}
	r.log.Info("partitions have a real replica in sync again, no other is given up any more", "mirror", t.Mirror, "topic", t.Name, "partitions", slices.Sorted(maps.Keys(over)))
	return r.put(ctx, t, func(now *Topic) {
		left := maps.Clone(now.GiveUp)
		maps.DeleteFunc(left, func(p int32, since int64) bool { return over[p] == since })
		if now.GiveUp = left; len(left) == 0 {
			now.GiveUp = nil
		}
	})
}

// leadGivenUp has partitions led that were given up and that nobody leads, since the controllers wait
// for the very replica that will not come back: a virtual broker is elected uncleanly. It holds
// nothing, and finds out who of those that live has most.
func (r *Reconciler) leadGivenUp(ctx context.Context, t Topic) error {
	if len(t.GiveUp) == 0 {
		return nil
	}
	var elect []int32
	for _, p := range r.c.waiting(t) {
		if _, given := t.GiveUp[p.Partition]; given && p.Leader < 0 && r.c.firstAliveIsVirtual(p) {
			elect = append(elect, p.Partition)
		}
	}
	if len(elect) == 0 {
		return nil
	}
	r.log.Warn("a virtual broker is elected for partitions that nobody leads, as their last replica was given up", "mirror", t.Mirror, "topic", t.Name, "partitions", elect)
	return r.c.deps.Destination.electUncleanly(ctx, t.Name, elect)
}

// firstAliveIsVirtual tells whom the controllers elect uncleanly: the first of the replicas that is alive.
func (c *Coordinator) firstAliveIsVirtual(p *metadata.Partition) bool {
	i := slices.IndexFunc(p.Replicas, func(b int32) bool { return alive(c.img, b) })
	return i >= 0 && c.cfg.Virtual.Is(p.Replicas[i])
}

// spendAfter is how long an AllowTruncate stands at least: by then every leader has read it.
const spendAfter = time.Minute

// spend takes back an AllowTruncate that was made use of: all partitions are mirrored. It was
// given for what was known then, not for what happens next year.
func (r *Reconciler) spend(ctx context.Context, t Topic) error {
	if !t.AllowTruncate || t.Desired != Mirroring || t.Fault != "" || time.Since(time.UnixMilli(t.Since)) < spendAfter || len(r.c.waiting(t)) > 0 {
		return nil
	}
	parts := r.c.img.TopicPartitions(t.TopicID)
	for _, p := range parts {
		s, _ := r.c.view.State(t.Mirror, ids.TopicPartition{TopicID: t.TopicID, Partition: p.Partition})
		if s.State != Mirroring || !r.c.cfg.Virtual.Is(p.Leader) {
			return nil
		}
	}
	if len(parts) == 0 {
		return nil
	}
	r.log.Info("truncation is not allowed any more, the topic is mirrored", "mirror", t.Mirror, "topic", t.Name)
	_, err := r.put(ctx, t, func(now *Topic) {
		if now.Since == t.Since {
			now.AllowTruncate = false
		}
	})
	return err
}
