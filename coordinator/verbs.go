package coordinator

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// This file holds what the verbs of the mirror APIs have in common: which topics they mean
// and what a topic's state answers to them (contract-additions §2).

// verbState is the state of a mirror topic as the verbs see it: the sum of what is wanted
// and of its partitions' states. handedBack says that no virtual replica is assigned and
// that the topic has its own configs back.
func verbState(desired State, partitions []State, handedBack bool) State {
	all := func(want State) bool {
		return !slices.ContainsFunc(partitions, func(s State) bool { return s != want })
	}
	if desired == Stopped {
		// A topic that is gone, or was never created, has nothing left to stop; nor has a
		// partition that was added since, or that was never led before.
		if handedBack && !slices.ContainsFunc(partitions, func(s State) bool { return s != Stopped && s != Unknown }) {
			return Stopped
		}
		return Stopping
	}
	if slices.Contains(partitions, Failed) {
		return Failed
	}
	switch {
	case desired == Paused && len(partitions) > 0 && all(Paused):
		return Paused
	case desired == Paused:
		return Pausing
	case slices.ContainsFunc(partitions, func(s State) bool { return s == Unknown || s == LogTruncation || s == Stopped }), len(partitions) == 0:
		return LogTruncation
	}
	// Also while a partition is on its way back from a pause.
	return Mirroring
}

// verbState is the state of a topic of a mirror as the verbs see it; Unknown if the mirror
// does not have it.
func (c *Coordinator) verbState(mirror, topic string) (Topic, State) {
	t, ok := c.view.Topic(mirror, topic)
	if !ok {
		return Topic{}, Unknown
	}
	if t.lost() && t.Desired != Stopped {
		return t, Failed
	}
	var states []State
	// A stop forgets what the lock hid once that is given back.
	handedBack := len(t.Wanted) == 0
	// What is assigned to a topic that another mirror has started since is that one's.
	elsewhere := false
	if t.Desired == Stopped { // else nobody asks, and the answer takes a look at all topics
		_, elsewhere = c.elsewhere(t)
	}
	if !t.TopicID.IsZero() {
		for _, p := range c.img.TopicPartitions(t.TopicID) {
			s, _ := c.view.State(mirror, ids.TopicPartition{TopicID: t.TopicID, Partition: p.Partition})
			states = append(states, s.State)
			handedBack = handedBack && (elsewhere || !slices.ContainsFunc(p.Replicas, c.cfg.Virtual.Is))
		}
	}
	return t, verbState(t.Desired, states, handedBack)
}

// elsewhere returns the mirror topic that a topic of this cluster belongs to, if it is
// another mirror's than t is.
func (c *Coordinator) elsewhere(t Topic) (Topic, bool) {
	o, ok := c.view.TopicByName(t.Name)
	return o, ok && o.Mirror != t.Mirror
}

// stopped tells whether a mirror topic is an ordinary topic again: wanted so, every
// partition STOPPED, no virtual replica assigned. A topic that is gone is stopped too.
func (c *Coordinator) stopped(t Topic) bool {
	now, state := c.verbState(t.Mirror, t.Name)
	return t.Desired == Stopped && now.TopicID == t.TopicID && state == Stopped
}

// refusal words why a verb does not take effect on a topic of a mirror; nil if it does, or
// if what it asks for is so already.
func refusal(r Refusal, mirror, topic string, s State) *Error {
	switch r {
	case None, Done:
		return nil
	case NotInMirror:
		return refuse(protocol.TopicNotInClusterMirror, "topic %s is not in mirror %s", topic, mirror)
	case AlreadyPaused:
		return refuse(protocol.MirrorTopicAlreadyPaused, "topic %s is %s already in mirror %s", topic, s, mirror)
	case NotPaused:
		return refuse(protocol.MirrorTopicNotPaused, "topic %s is %s in mirror %s, only what is PAUSED can be resumed", topic, s, mirror)
	case BeingStopped:
		return refuse(protocol.MirrorTopicBeingStopped, "topic %s is %s in mirror %s; start it again once it is STOPPED", topic, s, mirror)
	case NotStopped:
		return refuse(protocol.MirrorTopicNotStopped, "topic %s is %s in mirror %s; resume it instead", topic, s, mirror)
	}
	return refuse(protocol.InvalidClusterMirrorStates, "topic %s is %s in mirror %s; that is not possible in this state", topic, s, mirror)
}

// decide asks the state machine what a verb does to a topic of a mirror. A topic that the
// mirror does not have is named with the one that has it.
func (c *Coordinator) decide(mirror, topic string, e Event) (Topic, Refusal, *Error) {
	t, s := c.verbState(mirror, topic)
	if e == VerbStart || e == VerbRecover && s == Failed {
		for _, m := range c.view.Mirrors() {
			if o, ok := c.view.Topic(m.Name, topic); ok && m.Name != mirror && !o.lost() && !c.stopped(o) {
				return t, InvalidState, refuse(protocol.TopicAlreadyInClusterMirror, "topic %s belongs to mirror %s; stop it there first", topic, m.Name)
			}
		}
	}
	if (s == Unknown || s == Stopped) && e != VerbStart {
		// One that was stopped here may be another mirror's by now.
		if o, ok := c.view.TopicByName(topic); ok && o.Mirror != mirror && (s == Unknown || o.Desired != Stopped) {
			return t, NotInMirror, refuse(protocol.TopicNotInClusterMirror, "topic %s is not in mirror %s but in mirror %s", topic, mirror, o.Mirror)
		}
	}
	if s == Unknown && e != VerbStart {
		return t, NotInMirror, refusal(NotInMirror, mirror, topic, s)
	}
	_, r := Next(s, Unknown, e)
	return t, r, refusal(r, mirror, topic, s)
}

// isTopicName tells whether text has only characters of topic names. As a regular
// expression it may match more than itself: a dot is any character there.
func isTopicName(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
	})
}

// selectTopics returns the topics of a mirror that names or whole-name regexes mean, in
// order. What can only be a name is answered for even if the mirror does not have it. A
// regex does not mean topics that are STOPPED: they are the mirror's past.
func (c *Coordinator) selectTopics(mirror string, wanted []string) ([]string, error) {
	all := c.view.Topics(mirror)
	names := map[string]bool{}
	var patterns []string
	for _, w := range wanted {
		has := func(n string) bool { return slices.ContainsFunc(all, func(t Topic) bool { return t.Name == n }) }
		if has(w) || isTopicName(w) && !strings.Contains(w, ".") {
			names[w] = true
			continue
		}
		p, err := config.ParsePattern(w)
		if err != nil {
			return nil, refuse(kerr.InvalidRequest.Code, "mirror %s: %v", mirror, err)
		}
		if isTopicName(w) && !slices.ContainsFunc(all, func(t Topic) bool { return p.Match(t.Name) }) {
			names[w] = true
			continue
		}
		patterns = append(patterns, w)
	}
	p, err := config.ParsePattern(config.JoinList(patterns))
	if err != nil {
		return nil, refuse(kerr.InvalidRequest.Code, "mirror %s: %v", mirror, err)
	}
	for _, t := range all {
		if p.Match(t.Name) && !c.stopped(t) {
			names[t.Name] = true
		}
	}
	if len(names) > maxTopicsPerRequest {
		return nil, refuse(kerr.InvalidRequest.Code, "mirror %s: %d topics in one request, at most %d", mirror, len(names), maxTopicsPerRequest)
	}
	out := make([]string, 0, len(names))
	for n := range names {
		out = append(out, n)
	}
	slices.Sort(out)
	return out, nil
}
