package coordinator

import (
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// This file keeps a preferred leader from being elected again and again where it does not manage
// to lead: a follower that cannot reach it may well reach its peer. One that gives up leadership
// is fenced for a moment, like one whose session ends, and loses all it leads; so the first loss
// counts for nothing. Sidecars meet a silence three times at most within resignMemory times
// replica.lag.time.max.ms: with a second loss as long has to pass before the third attempt.

// resignMemory is leading's silenceMemory.
const resignMemory = 20

// defaultReplicaLag is Kafka's replica.lag.time.max.ms.
const defaultReplicaLag = 30 * time.Second

// led is what was seen of the leadership of one partition.
type led struct {
	leader       int32
	registration int64 // of its broker
	// How often the preferred leader who, in its present registration, has lost the partition to
	// another virtual broker of late, and when it last did.
	who       int32
	whoEpoch  int64
	losses    int
	last      time.Time
	forgotten time.Duration // after the last loss
}

// see takes note of a partition's leader. registration is that of its broker, and lag what a
// follower may be silent for.
func (l led) see(now time.Time, known bool, v ids.Virtual, p *metadata.Partition, registration int64, lag time.Duration) led {
	was := l
	l.leader, l.registration = p.Leader, registration
	if !known || was.leader == p.Leader || len(p.Replicas) == 0 || was.leader != p.Replicas[0] || !v.Is(was.leader) || !v.Is(p.Leader) {
		return l
	}
	if l.who != was.leader || l.whoEpoch != was.registration || now.Sub(l.last) > l.forgotten {
		l.losses = 0
	}
	l.who, l.whoEpoch, l.last = was.leader, was.registration, now
	l.losses++
	l.forgotten = l.hold(lag) + resignMemory*lag
	return l
}

// hold is how long after its last loss the preferred leader is not elected.
func (l led) hold(lag time.Duration) time.Duration {
	if l.losses < 2 {
		return 0
	}
	return resignMemory * lag << min(l.losses-2, flapDoublings)
}

// held is how long the preferred leader first, in this registration, is not to be elected yet; 0 if
// it may be. A new process begins anew.
func (l led) held(now time.Time, first int32, registration int64, lag time.Duration) time.Duration {
	if l.who != first || l.whoEpoch != registration {
		return 0
	}
	return max(l.hold(lag)-now.Sub(l.last), 0)
}

// seeLeader takes note of who leads a partition, and tells how long its preferred leader is held.
func (r *Reconciler) seeLeader(now time.Time, key partitionKey, p *metadata.Partition) time.Duration {
	lag := r.c.cfg.ReplicaLag
	if lag <= 0 {
		lag = defaultReplicaLag
	}
	registration := func(id int32) int64 {
		if b, ok := r.c.img.Broker(id); ok {
			return b.Epoch
		}
		return -1
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.leads[key]
	l := was.see(now, known, r.c.cfg.Virtual, p, registration(p.Leader), lag)
	r.leads[key] = l
	if len(p.Replicas) == 0 {
		return 0
	}
	return l.held(now, p.Replicas[0], registration(p.Replicas[0]), lag)
}
