package coordinator

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// This file is where the reconciler decides which virtual brokers a topic's partitions shall
// have, of what it has seen of all; placement.go has the decision itself.

// seating is the placement of a mirror's partitions, and what they had when it was made.
type seating struct {
	has, list map[ids.TopicPartition][]int32
}

// look takes note of who came and went.
func (r *Reconciler) look(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[int32]bool{}
	for _, b := range r.c.img.Brokers() {
		if r.c.cfg.Virtual.Is(b.ID) {
			all[b.ID] = true
		}
	}
	for id := range r.seen {
		all[id] = true
	}
	for id := range all {
		b, registered := r.c.img.Broker(id)
		p, known := r.seen[id]
		r.seen[id] = p.see(now, known, b, registered)
	}
}

// present returns what is known of the virtual brokers by now.
func (r *Reconciler) present(now time.Time) map[int32]presence {
	r.look(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.seen)
}

// virtualThere is how many virtual replicas a partition can have: those of sidecars that are
// alive or were a moment ago.
func (r *Reconciler) virtualThere() int {
	now, n := time.Now(), 0
	for _, p := range r.present(now) {
		if p.there(now) {
			n++
		}
	}
	return min(n, r.c.cfg.VirtualReplicas)
}

// countedVirtual is how many virtual replicas min.insync.replicas of a topic counts: as many
// as there can be, and no fewer than any partition has of those.
func (r *Reconciler) countedVirtual(parts []*metadata.Partition, there int) int {
	now := time.Now()
	seen := r.present(now)
	for _, p := range parts {
		has := slices.DeleteFunc(r.c.cfg.Virtual.Only(settled(p)), func(id int32) bool { return !seen[id].there(now) })
		there = max(there, len(has))
	}
	return there
}

// seatingWork is what has to be done with the virtual replicas of a topic.
type seatingWork struct {
	targets map[int32][]int32 // what to reassign to, by partition
	windows map[int32]bool    // who has to be open for it
	elect   []int32           // partitions whose preferred leader shall lead
	again   time.Duration     // when to look again although nothing changes; 0: no need
}

// seatingWork compares a topic's partitions with the placement of its mirror.
func (r *Reconciler) seatingWork(t Topic, parts []*metadata.Partition) seatingWork {
	now := time.Now()
	seen := r.present(now)
	lists := r.seatingFor(t.Mirror, now, seen, parts)
	work := seatingWork{targets: map[int32][]int32{}, windows: map[int32]bool{}}
	sooner := func(d time.Duration) {
		if d > 0 && (work.again == 0 || d < work.again) {
			work.again = d
		}
	}
	for _, p := range seen {
		if !p.live {
			sooner(realGrace - p.gone(now))
			sooner(goneGrace - p.gone(now))
		} else {
			sooner(p.settles(now, electAfter))
			sooner(p.settles(now, moveAfter))
		}
	}
	v := r.c.cfg.Virtual
	live := func(id int32) bool { return seen[id].live }
	for _, p := range parts {
		held := r.seeLeader(now, partitionKey{t.Mirror, ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition}}, p)
		want, ok := lists[ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition}]
		if !ok {
			continue // handed back
		}
		have := v.Only(settled(p))
		if slices.Equal(want, have) && inFront(v, settled(p)) {
			sooner(held)
			if mayElect(v, p, live, func(id int32) bool { return held == 0 && seen[id].settles(now, electAfter) == 0 }) {
				rec, _ := r.c.view.Lineage(t.Mirror, ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition})
				if followed(v, p, rec) {
					work.elect = append(work.elect, p.Partition)
				} else {
					sooner(followPoll)
				}
			}
			continue
		}
		want, ok = assignable(p, want, live, func(id int32) bool { return seen[id].there(now) })
		if !ok {
			continue
		}
		target, ask := putBack(v, p, want)
		if !ask {
			continue
		}
		if s := r.c.sweeper.Load(); s != nil && len(have) == 0 && target != nil && !reassigning(p) {
			target = append(target, s.cutShort(p)...)
		}
		if work.targets[p.Partition] = target; target == nil {
			continue
		}
		// The controller takes no assignment that names a closed virtual broker, be it one that
		// has the partition already.
		for _, b := range want {
			work.windows[b] = true
		}
	}
	return work
}

// assignable leaves out the virtual brokers that are not alive: the controller takes no assignment
// that names one. ok is false as long as one of them is waited for, or nobody is left; a removal
// that is on its way does not wait, and can be cancelled without any.
func assignable(p *metadata.Partition, want []int32, live, there func(int32) bool) (out []int32, ok bool) {
	removing := len(p.Removing) > 0
	out = slices.DeleteFunc(slices.Clone(want), func(id int32) bool { return !live(id) })
	if len(out) == 0 {
		return nil, removing
	}
	if !removing && slices.ContainsFunc(want, func(id int32) bool { return !live(id) && there(id) }) {
		return nil, false
	}
	return out, true
}

// putBack returns what to ask for to give a partition these virtual replicas in front of its
// real ones. While a removal is pending the controller replaces it only by another one: a
// request that removes nothing leaves it, and it would take the virtual replicas away all the
// same. So one of them goes, and comes back with the next look; if it is the only one, or none
// can be named, the removal is cancelled, and with it whatever else was asked for. ask is false while what was
// asked for is on its way.
func putBack(v ids.Virtual, p *metadata.Partition, want []int32) (target []int32, ask bool) {
	if len(want) == 0 {
		return nil, true
	}
	target = append(slices.Clone(want), v.Real(settled(p))...)
	if len(p.Removing) == 0 || slices.ContainsFunc(p.Replicas, func(id int32) bool { return !slices.Contains(target, id) }) {
		return towards(p, target), true
	}
	if len(want) < 2 {
		return nil, true
	}
	target = slices.DeleteFunc(target, func(id int32) bool { return id == goes(want, p) })
	return towards(p, target), !slices.Equal(target, settled(p))
}

// goes is the virtual replica that is given up first: not the leader.
func goes(want []int32, p *metadata.Partition) int32 {
	last := want[len(want)-1]
	if last == p.Leader {
		last = want[len(want)-2]
	}
	return last
}

// inFront tells whether no real replica comes before a virtual one. A client's cancellation
// can leave them so, or a list of his own: the controller would then go on electing the real
// one.
func inFront(v ids.Virtual, replicas []int32) bool {
	return !slices.ContainsFunc(replicas[:len(v.Only(replicas))], func(id int32) bool { return !v.Is(id) })
}

// seatingFor returns the placement of a mirror that has the given partitions as they are.
func (r *Reconciler) seatingFor(mirror string, now time.Time, seen map[int32]presence, parts []*metadata.Partition) map[ids.TopicPartition][]int32 {
	r.mu.Lock()
	made, ok := r.seatings[mirror]
	r.mu.Unlock()
	if ok && !slices.ContainsFunc(parts, func(p *metadata.Partition) bool {
		has, known := made.has[ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition}]
		return !known || !slices.Equal(has, r.seated(p, seen))
	}) {
		return made.list
	}
	made = r.seat(mirror, now, seen, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seatings[mirror] = made
	return made.list
}

// seated are the virtual replicas that a partition has, and as long as those are too few the live ones that
// are being taken away from it: they are put back, not replaced. A client's reassignment around the sidecars
// takes them away while it adds real ones; were another virtual broker named then, the controller would
// remember that one alone as being added. The real ones would not be waited for any more, and a cancellation
// would leave them where they are.
func (r *Reconciler) seated(p *metadata.Partition, seen map[int32]presence) []int32 {
	has := r.c.cfg.Virtual.Only(settled(p))
	for _, id := range r.c.cfg.Virtual.Only(p.Replicas) {
		if len(has) < r.c.cfg.VirtualReplicas && slices.Contains(p.Removing, id) && seen[id].live {
			has = append(has, id)
		}
	}
	return has
}

// seat places the partitions of a mirror, and more that it is about to get.
func (r *Reconciler) seat(mirror string, now time.Time, seen map[int32]presence, more []ids.TopicPartition) seating {
	v := r.c.cfg.Virtual
	others := map[int32]int{}
	var places []place
	made := seating{has: map[ids.TopicPartition][]int32{}, list: map[ids.TopicPartition][]int32{}}
	for _, m := range r.c.view.Mirrors() {
		for _, t := range r.c.view.Topics(m.Name) {
			if t.Desired == Stopped || t.lost() {
				continue
			}
			for _, p := range r.c.img.TopicPartitions(t.TopicID) {
				tp := ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition}
				if m.Name != mirror {
					if has := v.Only(settled(p)); len(has) > 0 {
						others[has[0]]++
					}
					continue
				}
				has := r.seated(p, seen)
				made.has[tp] = has
				if s, _ := r.c.view.State(mirror, tp); refusedStart(s) {
					continue
				}
				places = append(places, placeOf(v, p, r.comingBack(now, seen, has), r.minISRNow(t.Name)))
			}
		}
	}
	for _, tp := range more {
		places = append(places, place{tp: tp})
	}
	var seats []seat
	for id, p := range seen {
		if b, ok := r.c.img.Broker(id); ok && p.live {
			seats = append(seats, seat{id: id, rack: b.Rack, trust: p.trust(now), leads: others[id]})
		}
	}
	lists := placeVirtual(seats, func(id int32) time.Duration { return seen[id].gone(now) }, places, r.c.cfg.VirtualReplicas, hashStart(mirror, max(len(seats), 1)))
	for i, p := range places {
		made.list[p.tp] = lists[i]
	}
	return made
}

// comingBack leaves out the virtual brokers that do not come back: those that were unregistered,
// as an eviction does, and have not registered again.
func (r *Reconciler) comingBack(now time.Time, seen map[int32]presence, has []int32) []int32 {
	return slices.DeleteFunc(slices.Clone(has), func(id int32) bool {
		if _, registered := r.c.img.Broker(id); registered {
			return false
		}
		p, known := seen[id]
		if !known { // it may be registering right now: it is waited for from here on
			r.mu.Lock()
			defer r.mu.Unlock()
			r.seen[id] = presence{epoch: -1, since: now}
			seen[id] = r.seen[id]
			return false
		}
		return !p.there(now)
	})
}

// seatMore returns the virtual replicas of partitions that a mirror is about to get.
func (r *Reconciler) seatMore(mirror string, more []ids.TopicPartition) [][]int32 {
	now := time.Now()
	made := r.seat(mirror, now, r.present(now), more)
	out := make([][]int32, len(more))
	for i, tp := range more {
		out[i] = made.list[tp]
	}
	return out
}

// minISRNow is the min.insync.replicas of a mirror topic as the write lock has set it.
func (r *Reconciler) minISRNow(topic string) int {
	n, err := strconv.Atoi(r.c.img.TopicConfig(topic)[configMinISR])
	if err != nil {
		return 1
	}
	return n
}

// placeOf is what a placement has to know of a partition.
func placeOf(v ids.Virtual, p *metadata.Partition, has []int32, minISR int) place {
	real, patience := p.Leader >= 0 && !v.Is(p.Leader), goneGrace
	switch {
	case real:
		patience = realGrace
	case len(p.ISR) < min(minISR, len(settled(p))):
		patience = 0 // nothing moves
	}
	return place{
		tp: ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition}, has: has,
		real: real, patience: patience,
		fixed: reassigning(p) || p.Leader < 0 ||
			slices.ContainsFunc(p.Replicas, func(id int32) bool { return !slices.Contains(p.ISR, id) }),
	}
}

// followPoll is how soon a partition is looked at again whose leader was not followed yet.
const followPoll = 200 * time.Millisecond

// followed tells whether the history of the leader's log is on record. A virtual broker in
// the ISR may not have followed the leader's present epoch, which moves on also when nobody is
// elected; it would take over logs that end with an epoch that nobody knows, and what is
// visible in them might have to be read again (R11).
func followed(v ids.Virtual, p *metadata.Partition, rec lineage.Record) bool {
	_, known := rec.Chains[p.LeaderEpoch]
	return known || v.Is(p.Leader)
}

// mayElect tells whether the preferred leader of a partition is to be elected: it is a
// virtual broker, alive and in sync, which it is when it is ready to lead. From another
// virtual broker it takes over only after it has been alive for a while, and not where it has lost
// the partition again and again.
func mayElect(v ids.Virtual, p *metadata.Partition, live, settled func(int32) bool) bool {
	if len(p.Replicas) == 0 || p.Leader < 0 {
		return false
	}
	first := p.Replicas[0]
	if first == p.Leader || !v.Is(first) || !slices.Contains(p.ISR, first) || !live(first) {
		return false
	}
	return !v.Is(p.Leader) || settled(first)
}
