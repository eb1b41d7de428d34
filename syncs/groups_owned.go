package syncs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/syncs/offsets"
)

// What is on record as a mirror's are items. They begin with the id of a topic, for Kafka drops a
// deleted topic's offsets: those of the next topic of that name were not taken away by anybody.
//
//	T/G       the offsets of group G in topic T
//	T/        all groups of T were looked at since its start
//	T:P/      but partition P was not there to be committed for
//	T!/G      the offsets of G in T were deleted here
//	empty/G   group G has had members, and has none any more since the item was written
//	empty?/G  it has none any more either, nobody knows since when
//	round.N/  a round has looked at everything at N, in milliseconds since 1970; not each is noted

// groupItem names what a mirror has written to: a group's offsets in one topic.
func groupItem(t Topic, group string) string { return t.ID.String() + "/" + group }

func goneItem(t Topic, group string) string { return t.ID.String() + "!/" + group }

func lateItem(t Topic, partition int32) string { return fmt.Sprintf("%s:%d/", t.ID, partition) }

const (
	emptyPrefix   = "empty/"
	unsincePrefix = "empty?/"
	roundPrefix   = "round."
)

// groupOfItem is the group of an item, and its topic's id; one of them may be empty.
func groupOfItem(item string) (id, group string) {
	id, group, _ = strings.Cut(item, "/")
	if id == "empty" || id == "empty?" || strings.HasPrefix(id, roundPrefix) {
		return "", group
	}
	id, _, _ = strings.Cut(strings.TrimSuffix(id, "!"), ":")
	return id, group
}

// roundOfItem is when the round of an item was.
func roundOfItem(item string) (at time.Time, ok bool) {
	text, ok := strings.CutPrefix(item, roundPrefix)
	if !ok {
		return at, false
	}
	ms, err := strconv.ParseInt(strings.TrimSuffix(text, "/"), 10, 64)
	return time.UnixMilli(ms), err == nil
}

// take puts an item on record, drop takes it off.
func (r *groupRound) take(item string, now time.Time) {
	if _, known := r.owned[item]; known {
		return
	}
	r.owned[item] = now.UnixMilli()
	if r.remove[item] {
		delete(r.remove, item)
	} else {
		r.add[item] = true
	}
}

func (r *groupRound) drop(item string) {
	if _, known := r.owned[item]; !known {
		return
	}
	delete(r.owned, item)
	if r.add[item] {
		delete(r.add, item)
	} else {
		r.remove[item] = true
	}
}

func (r *groupRound) has(item string) bool { _, ok := r.owned[item]; return ok }

// fresh tells whether a group was not looked at since a partition is mirrored.
func (r *groupRound) fresh(p offsets.Partition, group string) bool {
	t := r.topics[p.Topic]
	if r.mem.knows(group, p) {
		return false
	}
	return !r.has(groupItem(t, "")) && !r.has(groupItem(t, group)) || r.has(lateItem(t, p.Partition))
}

// missed notes a partition that cannot be committed for now, if its topic is new.
func (r *groupRound) missed(p offsets.Partition) {
	if t, ok := r.topics[p.Topic]; ok && !r.has(groupItem(t, "")) {
		r.late[lateItem(t, p.Partition)] = p.Topic
	}
}

// theirs notes that what a group has committed here for a topic was committed by its readers while
// the topic was mirrored.
func (r *groupRound) theirs(topic, group string) {
	if t, ok := r.topics[topic]; ok && !r.has(groupItem(t, "")) {
		r.mine(topic, group, r.now)
	}
}

// emptied notes since when a group that has had members is without. With it Kafka lets all of its
// offsets expire after that time, whenever they were committed: it is of no use to commit them again.
// The first look at a group without members says nothing of that time: they may have left long before
// this mirror, or this process, was there. It is known if they were not gone yet a moment ago.
func (r *groupRound) emptied(here offsets.Group) {
	had := here.ProtocolType != "" && here.Type != offsets.Share
	if had {
		r.joined[here.Name] = true
	}
	if !r.acts() {
		return
	}
	since, unsince := emptyPrefix+here.Name, unsincePrefix+here.Name
	switch {
	case here.State == "" && !had: // it is not listed here
		if r.listed {
			r.mem.unemptied(here.Name, r.now)
		}
	case !had || here.Type != offsets.Classic || here.Active():
		r.mem.unemptied(here.Name, r.now)
		r.drop(since)
		r.drop(unsince)
	case r.has(since) || r.has(unsince):
	case r.mem.emptiedLately(here.Name, r.now, r.keep):
		r.take(since, r.now)
	default:
		r.take(unsince, r.now)
	}
}

// removed tells whether offsets that are not here were deleted on purpose. That is decided once, when
// they are first missed. What may have expired is given up, so that it is copied anew.
func (r *groupRound) removed(topic, group string, active bool) bool {
	t := r.topics[topic]
	item, gone := groupItem(t, group), goneItem(t, group)
	if !r.has(item) {
		return false
	}
	if r.has(gone) {
		return true
	}
	expired := r.mem.expired(item, r.now, r.keep)
	if since, ok := r.owned[emptyPrefix+group]; ok {
		// It was without members for longer than has been seen.
		expired = expired || r.now.Sub(time.UnixMilli(since)) >= r.keep-r.keep/8
	}
	// At any time: members that come and go between two rounds are not seen, and begin it anew.
	expired = expired || r.has(unsincePrefix+group)
	if !r.acts() || active {
		return !expired
	}
	if expired {
		r.drop(item)
		r.mem.forget(item)
		return false
	}
	r.take(gone, r.now)
	return true
}

// mine notes that a group's offsets in a topic are this mirror's. It is written down after they
// were committed: what was written down and is not there counts as deleted, and whoever dies in
// between has left offsets that the next round finds as they should be, and takes for its own.
func (r *groupRound) mine(topic, group string, now time.Time) {
	t, ok := r.topics[topic]
	if !ok {
		return
	}
	item := groupItem(t, group)
	r.mem.saw(item, now)
	r.take(item, now)
}

// looked notes which topics have had all of their groups looked at: what is committed from now on by
// others was read in the log of the mirror.
func (r *groupRound) looked(ended bool) {
	for item, topic := range r.late {
		if _, still := r.topics[topic]; still {
			r.take(item, r.now)
		}
	}
	if r.part || !ended {
		return
	}
	for name, t := range r.topics {
		if !r.left[name] {
			r.take(groupItem(t, ""), r.now)
		}
	}
	topics := map[string]Topic{}
	for _, t := range r.topics {
		topics[t.ID.String()] = t
	}
	last := time.Time{}
	var rounds []string
	for item := range r.owned {
		if at, ok := roundOfItem(item); ok {
			rounds = append(rounds, item)
			if at.After(last) {
				last = at
			}
			continue
		}
		id, _ := groupOfItem(item)
		t, ok := topics[id]
		if _, number, late := strings.Cut(strings.TrimSuffix(item, "/"), ":"); ok && late && r.late[item] == "" && !r.left[t.Name] {
			n, err := strconv.ParseInt(number, 10, 32)
			if err == nil && item == lateItem(t, int32(n)) && r.reached(t.Name, int32(n)) {
				r.drop(item)
			}
		}
	}
	if r.now.Sub(last) >= r.keep/8 {
		for _, item := range rounds {
			r.drop(item)
		}
		r.take(fmt.Sprintf("%s%d/", roundPrefix, r.now.UnixMilli()), r.now)
	}
}

func (r *groupRound) reached(topic string, partition int32) bool {
	_, ok := r.ranges[offsets.Partition{Topic: topic, Partition: partition}]
	return ok
}

// release gives up groups: if they are copied again one day, they are copied anew.
func (r *groupRound) release(groups map[string]bool) {
	if !r.acts() || len(groups) == 0 {
		return
	}
	r.releaseIf(func(_, g string) bool { return groups[g] })
}

// releaseGone gives up what does not exist at the source any more.
func (r *groupRound) releaseGone(source map[string]offsets.Group) {
	if !r.acts() {
		return
	}
	unlisted := map[string]bool{}
	for item := range r.owned {
		if _, g := groupOfItem(item); g != "" {
			if _, exists := source[g]; !exists {
				unlisted[g] = true
			}
		}
	}
	r.release(r.mem.gone(unlisted, r.now))
}

// releaseStopped gives up topics that are stopped, or gone: what becomes of their groups is for
// their users.
func (r *groupRound) releaseStopped() {
	if !r.acts() {
		return
	}
	ids, names := map[string]bool{}, map[string]string{}
	for _, t := range slices.Concat(r.m.Topics, r.m.Held) {
		ids[t.ID.String()], names[t.Name] = true, t.ID.String()
	}
	r.mem.only(names)
	r.releaseIf(func(id, _ string) bool { return !ids[id] && (id != "" || len(ids) == 0) })
}

func (r *groupRound) releaseIf(over func(id, group string) bool) {
	for item := range r.owned {
		if id, group := groupOfItem(item); over(id, group) {
			r.drop(item)
			r.mem.forget(item)
		}
	}
}

// record writes down what has become this mirror's, and what has ceased to be.
func (r *groupRound) record(ctx context.Context) {
	if len(r.add)+len(r.remove) == 0 {
		return
	}
	if err := r.own(ctx, slices.Sorted(maps.Keys(r.add)), slices.Sorted(maps.Keys(r.remove))); err != nil {
		r.errs = append(r.errs, err)
	}
}
