package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// This file holds what the reconciler decides, as pure functions.

// Configs of the write lock (design.md §7).
const (
	configMaxMessageBytes = "max.message.bytes"
	configMinISR          = "min.insync.replicas"
	configUnclean         = "unclean.leader.election.enable"
	configRemoteStorage   = "remote.storage.enable"
)

// lockKeys are the configs of a topic that the write lock takes.
func lockKeys() []string {
	return []string{configMaxMessageBytes, configMinISR, configUnclean, configRemoteStorage}
}

// lockConfigs is the write lock of a topic: no client write fits, ISR must be wider than
// the real replicas alone, nothing is elected uncleanly or moved to remote storage.
func lockConfigs(minISR, virtual int) map[string]string {
	return map[string]string{
		configMaxMessageBytes: "0",
		configMinISR:          strconv.Itoa(minISR + virtual),
		configUnclean:         "false",
		configRemoteStorage:   "false",
	}
}

// wantedConfigs is what the locked configs shall be after a stop: the topic's own values,
// but for what is copied from the source.
func wantedConfigs(own, copied map[string]string) map[string]*string {
	out := map[string]*string{}
	for _, k := range lockKeys() {
		out[k] = nil
		if v, ok := own[k]; ok {
			out[k] = &v
		}
		if v, ok := copied[k]; ok {
			out[k] = &v
		}
	}
	return out
}

// wantedNow follows what is copied of what the lock holds. It reports whether anything is new.
func wantedNow(wanted map[string]*string, copied map[string]string) (map[string]*string, bool) {
	if len(wanted) == 0 {
		return wanted, false // not locked yet
	}
	out, changed := maps.Clone(wanted), false
	for _, k := range lockKeys() {
		v, ok := copied[k]
		if !ok {
			continue
		}
		if now := out[k]; now == nil || *now != v {
			out[k], changed = &v, true
		}
	}
	return out, changed
}

// syncedConfigs is what a mirror topic shall have at once of what is copied: all but what the lock
// holds.
func syncedConfigs(copied map[string]string) map[string]string {
	out := maps.Clone(copied)
	for _, k := range lockKeys() {
		delete(out, k)
	}
	return out
}

// differing returns the entries of want that have is not.
func differing(have map[string]string, want map[string]string) map[string]*string {
	out := map[string]*string{}
	for k, v := range want {
		if h, ok := have[k]; !ok || h != v {
			out[k] = &v
		}
	}
	return out
}

// configuredMinISR is the topic's own min.insync.replicas: its wanted value, or the
// cluster's default.
func configuredMinISR(t Topic, def int) int {
	if v := t.Wanted[configMinISR]; v != nil {
		if n, err := strconv.Atoi(*v); err == nil && n > 0 {
			return n
		}
	}
	return max(def, 1)
}

// restoreConfigs returns the changes that give a topic its own configs back; none if it
// has them.
func restoreConfigs(t Topic, have map[string]string) map[string]*string {
	out := map[string]*string{}
	for _, k := range lockKeys() {
		want, recorded := t.Wanted[k]
		now, set := have[k]
		switch {
		case !recorded: // never locked by us
		case want == nil && set:
			out[k] = nil
		case want != nil && (!set || now != *want):
			out[k] = want
		}
	}
	return out
}

// reassigning tells whether a reassignment of the partition is pending.
func reassigning(p *metadata.Partition) bool { return len(p.Adding) > 0 || len(p.Removing) > 0 }

// towards returns what to ask the controller for to get a partition to target. A replica
// that is still being added cannot be removed: the controller then waits for ever for what
// it removes. Such a reassignment is cancelled first (nil), and looked at again.
func towards(p *metadata.Partition, target []int32) []int32 {
	for _, id := range p.Adding {
		if !slices.Contains(target, id) {
			return nil
		}
	}
	return target
}

// settled returns the replicas a partition has once what is pending is done.
func settled(p *metadata.Partition) []int32 {
	return slices.DeleteFunc(slices.Clone(p.Replicas), func(id int32) bool { return slices.Contains(p.Removing, id) })
}

// handBack is the decision about one partition that must lose its virtual replicas.
type handBack struct {
	ready bool
	// realFirst: a real broker has to lead before that, by a removal that stays pending.
	realFirst bool
	// target are the real members of the ISR, and with realFirst the live ones that are to
	// join it; order matters. Empty if nothing may be asked for yet.
	target []int32
	wait   string // what is waited for, if not ready
}

// mayHandBack decides whether a partition's virtual replicas may be removed now (R17,
// R18). live tells whether a broker is alive; waited whether mirror.stop.replica.wait.ms
// has passed; minISR is the topic's own min.insync.replicas.
func mayHandBack(v ids.Virtual, p *metadata.Partition, s PartitionState, live func(int32) bool, waited bool, minISR int) handBack {
	realISR := v.Real(p.ISR)
	if len(realISR) == 0 {
		return handBack{wait: waitsForReplicas(v, p)}
	}
	if p.Leader < 0 {
		return handBack{wait: "no replica leads the partition"}
	}
	behind := lagging(v, p, live)
	wait := ""
	switch {
	case len(behind) == 0:
	case !waited:
		wait = fmt.Sprintf("broker %s is alive but not in sync", list(behind))
	case len(realISR) < minISR:
		wait = fmt.Sprintf("only broker %s is in sync, min.insync.replicas is %d; waiting for broker %s, which is alive but not in sync", list(realISR), minISR, list(behind))
	}
	if !v.Is(p.Leader) {
		// R18: what the real leader has is the truth now. It is the one that brings others
		// into sync.
		if wait != "" {
			return handBack{wait: wait}
		}
		return handBack{ready: true, target: leaderFirst(realISR, p.Leader)}
	}
	reported := s.State == Stopping && s.LeaderEpoch == p.LeaderEpoch
	quiesced := reported && s.Detail == DetailQuiesced
	unable := reported && s.Detail == DetailSourceUnavailable
	again := s.State == Stopped // STOPPED and assigned again: never wanted (R19)
	if len(behind) > 0 && (unable || again || waited && (!quiesced || len(realISR) < minISR)) {
		// This leader brings nobody into sync: without its source it serves nothing, or it
		// has not managed for long. The removal deletes the log of a live replica that is left
		// out, maybe the last copy after the next power loss (C9c).
		return handBack{realFirst: true, target: append(slices.Clone(realISR), behind...), wait: fmt.Sprintf("a real broker leads first, so that broker %s gets in sync", list(behind))}
	}
	if !quiesced && !unable && !again {
		if !live(p.Leader) {
			return handBack{wait: fmt.Sprintf("virtual broker %d leads but does not answer; another replica takes over when its session ends", p.Leader)}
		}
		if wait != "" {
			return handBack{wait: wait}
		}
		return handBack{wait: fmt.Sprintf("virtual broker %d still moves the last records to the replicas", p.Leader)}
	}
	if wait != "" {
		return handBack{wait: wait}
	}
	return handBack{ready: true, target: realISR}
}

// lagging returns the real replicas that are alive and not in sync.
func lagging(v ids.Virtual, p *metadata.Partition, live func(int32) bool) []int32 {
	return slices.DeleteFunc(v.Real(p.Replicas), func(id int32) bool { return !live(id) || slices.Contains(p.ISR, id) })
}

func waitsForReplicas(v ids.Virtual, p *metadata.Partition) string {
	return "no real replica is in sync; " + p.BringBack(v)
}

func list(brokers []int32) string {
	s := make([]string, len(brokers))
	for i, b := range brokers {
		s[i] = itoa(b)
	}
	return strings.Join(s, ", ")
}

func leaderFirst(replicas []int32, leader int32) []int32 {
	out := slices.Clone(replicas)
	slices.SortStableFunc(out, func(a, b int32) int { return cmp.Compare(rank(a == leader), rank(b == leader)) })
	return out
}

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

// longestFirst orders replicas by log end, longest first; those that did not answer last.
func longestFirst(replicas []int32, ends map[int32]int64) []int32 {
	out := slices.Clone(replicas)
	slices.SortStableFunc(out, func(a, b int32) int {
		ea, oka := ends[a]
		eb, okb := ends[b]
		if oka != okb {
			return cmp.Compare(rank(oka), rank(okb))
		}
		return cmp.Compare(eb, ea)
	})
	return out
}

// rememberReplicas adds to known the real replicas of those partitions whose target
// leaves some out. It reports whether anything is new.
func rememberReplicas(known map[int32][]int32, v ids.Virtual, parts []*metadata.Partition, targets map[int32][]int32) (map[int32][]int32, bool) {
	out, changed := maps.Clone(known), false
	for _, p := range parts {
		target, ok := targets[p.Partition]
		real := v.Real(p.Replicas)
		if !ok || target == nil || len(target) >= len(real) {
			continue
		}
		if _, has := out[p.Partition]; !has {
			if out == nil {
				out = map[int32][]int32{}
			}
			out[p.Partition] = real
			changed = true
		}
	}
	return out, changed
}

// missingReplicas returns, for the partitions that lost real replicas at hand-back, what
// their replicas shall be: those they have, then those left out.
func missingReplicas(t Topic, v ids.Virtual, parts []*metadata.Partition, registered func(int32) bool) map[int32][]int32 {
	out := map[int32][]int32{}
	for _, p := range parts {
		target := v.Real(settled(p))
		have := len(target)
		for _, id := range t.RealReplicas[p.Partition] {
			// A broker that was unregistered meanwhile cannot be assigned, and will not come back.
			if !slices.Contains(target, id) && registered(id) {
				target = append(target, id)
			}
		}
		if len(target) > have {
			out[p.Partition] = target
		}
	}
	return out
}
