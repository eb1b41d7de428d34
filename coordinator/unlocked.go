package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// This file holds what becomes of a write lock that this cluster's policies do not let be set
// (alter.config.policy.class.name): what can be set is, and the mirror goes on with its other
// guards. While a sidecar is alive nobody can write, for no real broker leads. What gets in while
// none is, is removed and counted by who leads next (R5).

// lockRetry is how long a refused part of a write lock is not asked for again.
const lockRetry = 30 * time.Second

// unlocked is the part of a topic's write lock that a policy refuses.
type unlocked struct {
	keys  []string
	why   string
	again time.Time
}

func (u unlocked) String() string {
	return fmt.Sprintf("the write lock is not complete, a policy of this cluster refuses %s (%s): while no sidecar is alive, clients that go around the proxies can write; such records are removed afterwards",
		strings.Join(u.keys, ", "), u.why)
}

// setLock sets what may be set of a topic's write lock.
func (r *Reconciler) setLock(ctx context.Context, t Topic, change map[string]*string) error {
	key := topicKey{t.Mirror, t.Name}
	if change = r.settable(key, change); len(change) == 0 {
		return nil
	}
	err := r.alter(ctx, t.Name, change)
	if err == nil {
		return nil
	}
	if !errors.Is(err, kerr.PolicyViolation) {
		return err
	}
	var refused unlocked
	for _, k := range slices.Sorted(maps.Keys(change)) {
		switch err := r.alter(ctx, t.Name, map[string]*string{k: change[k]}); {
		case errors.Is(err, kerr.PolicyViolation):
			refused.keys, refused.why = append(refused.keys, k), err.Error()
		case err != nil:
			return err
		}
	}
	if len(refused.keys) == 0 {
		refused.keys, refused.why = []string{"them together"}, err.Error()
	}
	r.lockRefused(key, refused)
	return nil
}

// settable leaves out what was refused a moment ago.
func (r *Reconciler) settable(key topicKey, change map[string]*string) map[string]*string {
	r.mu.Lock()
	defer r.mu.Unlock()
	u, ok := r.unlocked[key]
	if !ok || time.Now().After(u.again) {
		return change
	}
	change = maps.Clone(change)
	for _, k := range u.keys {
		delete(change, k)
	}
	return change
}

func (r *Reconciler) lockRefused(key topicKey, u unlocked) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.unlocked[key].keys, u.keys) {
		r.log.Warn("the write lock of a mirror topic is refused, it is mirrored without", "mirror", key.mirror, "topic", key.topic, "keys", u.keys, "err", u.why)
	}
	u.again = time.Now().Add(lockRetry)
	r.unlocked[key] = u
}

// locked notes that the write lock of a topic is complete.
func (r *Reconciler) locked(key topicKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, was := r.unlocked[key]; was {
		r.log.Info("the write lock of a mirror topic is complete", "mirror", key.mirror, "topic", key.topic)
		delete(r.unlocked, key)
	}
}

// banRefused tells whether a policy refuses the part of a topic's write lock that keeps clients out.
func (r *Reconciler) banRefused(key topicKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.unlocked[key].keys, configMaxMessageBytes)
}

// noteRaise records whether a policy refuses to change a topic's min.insync.replicas, for the
// virtual replicas that wait for it to be raised: they are everywhere, and the answer is here.
func (r *Reconciler) noteRaise(ctx context.Context, t Topic) (Topic, error) {
	r.mu.Lock()
	refused := slices.Contains(r.unlocked[topicKey{t.Mirror, t.Name}].keys, configMinISR)
	r.mu.Unlock()
	if refused == t.RaiseRefused {
		return t, nil
	}
	return r.put(ctx, t, func(now *Topic) { now.RaiseRefused = refused })
}

// unlockedWhy says what a topic's write lock lacks, "" if nothing is known to.
func (r *Reconciler) unlockedWhy(key topicKey) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u, ok := r.unlocked[key]; ok {
		return u.String()
	}
	return ""
}

// behindForeign returns the number of replicas of the largest partition that a real broker leads
// and where clients have written behind what was mirrored; 0 if there is none. With that many
// wanted in sync, a virtual replica that joins makes nothing of it visible (R21).
func (r *Reconciler) behindForeign(t Topic, parts []*metadata.Partition) (n int) {
	for _, p := range parts {
		if p.Leader < 0 || r.c.cfg.Virtual.Is(p.Leader) {
			continue
		}
		rec, _ := r.c.view.Lineage(t.Mirror, ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition})
		if rec.Written[p.LeaderEpoch] {
			n = max(n, len(p.Replicas))
		}
	}
	return n
}

// createLocked creates a topic with its write lock, or with what a policy allows of it.
func (r *Reconciler) createLocked(ctx context.Context, t Topic, assignment [][]int32, configs, lock map[string]string) error {
	d := r.c.deps.Destination
	with := func(lock map[string]string) map[string]string {
		out := maps.Clone(configs)
		maps.Copy(out, lock)
		return out
	}
	err := d.createTopic(ctx, t.Name, assignment, with(lock), false)
	if !errors.Is(err, kerr.PolicyViolation) {
		return err
	}
	allowed, refused := map[string]string{}, unlocked{why: err.Error()}
	for _, k := range slices.Sorted(maps.Keys(lock)) {
		switch err := d.createTopic(ctx, t.Name, assignment, with(map[string]string{k: lock[k]}), true); {
		case errors.Is(err, kerr.PolicyViolation):
			refused.keys, refused.why = append(refused.keys, k), err.Error()
		case err != nil:
			return err
		default:
			allowed[k] = lock[k]
		}
	}
	if err := d.createTopic(ctx, t.Name, assignment, with(allowed), false); err != nil {
		return err
	}
	if len(refused.keys) > 0 {
		r.lockRefused(topicKey{t.Mirror, t.Name}, refused)
	}
	return nil
}
