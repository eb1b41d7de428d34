package syncs

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/syncs/offsets"
)

// groupItem names what a mirror has written to: a group's offsets in one topic. The topic's id is
// in it, for Kafka drops a deleted topic's offsets: those of the next topic of that name were not
// taken away by anybody. With no group it says that all groups of the topic were looked at since
// its start.
func groupItem(t Topic, group string) string { return t.ID.String() + "/" + group }

// groupOfItem is the group of an item, and its topic's id.
func groupOfItem(item string) (id, group string) {
	id, group, _ = strings.Cut(item, "/")
	return id, group
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
	if _, known := r.owned[item]; !known {
		r.owned[item] = now.UnixMilli()
		r.add = append(r.add, item)
	}
}

// looked notes that the groups of topics were looked at: what is committed from now on by others
// was read in the log of the mirror.
func (r *groupRound) looked() {
	for _, t := range r.m.Topics { // as they were when it began
		if _, still := r.topics[t.Name]; still && r.fresh[t.Name] && len(t.Truncating) == 0 {
			r.add = append(r.add, groupItem(t, ""))
		}
	}
}

// release gives up a group: if it is copied again one day, it is copied anew.
func (r *groupRound) release(group string) {
	if !r.acts() {
		return
	}
	r.releaseIf(func(_, g string) bool { return g == group })
}

// releaseGone gives up what does not exist at the source any more. All of the source's groups are
// known.
func (r *groupRound) releaseGone(source map[string]offsets.Group) {
	if !r.acts() {
		return
	}
	r.releaseIf(func(_, g string) bool { _, exists := source[g]; return !exists && g != "" })
}

// releaseStopped gives up topics that are stopped, or gone: what becomes of their groups is for
// their users.
func (r *groupRound) releaseStopped() {
	if !r.acts() {
		return
	}
	ids := map[string]bool{}
	for _, t := range slices.Concat(r.m.Topics, r.m.Held) {
		ids[t.ID.String()] = true
	}
	r.releaseIf(func(id, _ string) bool { return !ids[id] })
}

func (r *groupRound) releaseIf(over func(id, group string) bool) {
	for item := range r.owned {
		if id, group := groupOfItem(item); over(id, group) {
			r.remove = append(r.remove, item)
			delete(r.owned, item)
			r.mem.forget(item)
		}
	}
}

// own writes down what has become this mirror's, and what has ceased to be, also when the round
// was ended.
func (r *groupRound) own(ctx context.Context) {
	gone := map[string]bool{}
	for _, item := range r.remove {
		gone[item] = true
	}
	var add []string
	for _, item := range r.add {
		if !gone[item] {
			add = append(add, item)
		}
	}
	if len(add)+len(r.remove) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ownTimeout)
	defer cancel()
	if err := r.g.cfg.Mirrors.Own(ctx, r.m.Name, policy.Groups, add, r.remove); err != nil {
		r.errs = append(r.errs, err)
	}
}
