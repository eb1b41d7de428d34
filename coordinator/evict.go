package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// This file is what an uninstall asks for. It is an ordinary stop of everything, told to
// whoever coordinates: sidecars where they run, else this very process (Config.Alone).

// Unstopped is a mirror topic that is not an ordinary topic yet.
type Unstopped struct {
	Mirror, Topic string
	// Partitions that still have virtual replicas.
	Partitions []int32
	// Waits says what is waited for, as far as it is known here.
	Waits string
}

// StopAll asks for the stop of every topic of every mirror, and takes the mirrors' patterns
// away, so that nothing new is found. Mirrors stay, with all that a later failback needs.
func (c *Coordinator) StopAll(ctx context.Context) error {
	var errs []error
	for _, m := range c.view.Mirrors() {
		// Patterns first: what they find must not begin while the rest stops.
		if patterns := config.SplitList(m.Configs[config.TopicsIncludeKey]); len(patterns) > 0 {
			errs = append(errs, c.stopSome(ctx, m.Name, nil, patterns))
		}
		var names []string
		for _, t := range c.view.Topics(m.Name) {
			if t.Desired != Stopped {
				names = append(names, t.Name)
			}
		}
		for some := range slices.Chunk(names, maxTopicsPerRequest) {
			errs = append(errs, c.stopSome(ctx, m.Name, some, nil))
		}
	}
	return errors.Join(errs...)
}

// stopSome asks as any client of a sidecar would, without a caller whose rights were to be asked.
func (c *Coordinator) stopSome(ctx context.Context, mirror string, topics, patterns []string) error {
	req := protocol.NewStopMirrorTopicsRequest()
	req.MirrorName, req.Topics, req.Patterns = mirror, topics, patterns
	r, ok := c.answer(ctx, "", &req).(*protocol.StopMirrorTopicsResponse)
	if !ok {
		return fmt.Errorf("mirror %s: stop: unexpected answer", mirror)
	}
	if err := errorOf(r.ErrorCode, r.ErrorMessage); err != nil {
		return fmt.Errorf("mirror %s: stop: %w", mirror, err)
	}
	var errs []error
	for _, t := range r.Topics {
		if err := errorOf(t.ErrorCode, t.ErrorMessage); err != nil {
			errs = append(errs, fmt.Errorf("mirror %s, topic %s: stop: %w", mirror, t.Name, err))
		}
	}
	return errors.Join(errs...)
}

// Unstopped returns the mirror topics that are not ordinary topics yet, by mirror and name.
// rec knows what it waits for itself, where it is this process that hands back; nil where not.
func (c *Coordinator) Unstopped(rec *Reconciler) []Unstopped {
	var out []Unstopped
	for _, m := range c.view.Mirrors() {
		for _, t := range c.view.Topics(m.Name) {
			if c.stopped(t) || t.Desired != Stopped && c.ordinary(t) {
				continue
			}
			if _, elsewhere := c.elsewhere(t); elsewhere || t.lost() {
				continue // the other mirror's
			}
			out = append(out, c.unstopped(t, rec))
		}
	}
	return out
}

func (c *Coordinator) unstopped(t Topic, rec *Reconciler) Unstopped {
	u := Unstopped{Mirror: t.Mirror, Topic: t.Name}
	var waits []string
	unwritable := sync.OnceValue(c.store.unwritable)
	for _, p := range c.img.TopicPartitions(t.TopicID) {
		if !slices.ContainsFunc(p.Replicas, c.cfg.Virtual.Is) {
			continue
		}
		u.Partitions = append(u.Partitions, p.Partition)
		s, _ := c.view.State(t.Mirror, ids.TopicPartition{TopicID: t.TopicID, Partition: p.Partition})
		if w := c.waitsFor(t, p, s, unwritable); w != "" {
			waits = append(waits, fmt.Sprintf("partition %d: %s", p.Partition, strings.TrimPrefix(w, "the stop waits: ")))
		}
	}
	if rec != nil {
		if h := rec.hindrance(topicKey{t.Mirror, t.Name}); h != "" && len(waits) == 0 {
			waits = append(waits, h)
		}
	}
	u.Waits = strings.Join(waits, "; ")
	return u
}

// Understood tells, by an error, that the state has a record that this build does not
// understand: there may be mirrors that are not known here.
func (c *Coordinator) Understood() error { return c.store.misread.err() }

// Orphan is a partition with virtual replicas whose topic no mirror has.
type Orphan struct {
	Topic     string
	Partition int32
	Replicas  []int32
	// Locked: the topic has the write lock, so it was a mirror topic whose record is lost.
	Locked bool
}

// Orphans returns those partitions, by topic and number.
func (c *Coordinator) Orphans() []Orphan {
	var out []Orphan
	for _, p := range c.img.AllPartitions() {
		if !slices.ContainsFunc(p.Replicas, c.cfg.Virtual.Is) {
			continue
		}
		if _, ours := c.view.TopicByID(p.TopicID); ours {
			continue
		}
		out = append(out, Orphan{
			Topic: p.Topic, Partition: p.Partition, Replicas: p.Replicas,
			Locked: c.img.TopicConfig(p.Topic)[configMaxMessageBytes] == "0",
		})
	}
	return out
}

// Unlock takes the write lock off a topic that no mirror has: its own values of these configs
// are not known, so it gets the cluster's. Whatever the sweeper then finds is an ordinary
// topic's, so it stays locked until no live replica would be left out as a stop would not;
// waited tells that those were waited for as long as a stop does. The error says who is.
func (c *Coordinator) Unlock(ctx context.Context, topic string, waited bool) error {
	id, _ := c.img.Topic(topic)
	live := func(b int32) bool { return alive(c.img, b) }
	for _, p := range c.img.TopicPartitions(id) {
		if len(lagging(c.cfg.Virtual, p, live)) == 0 {
			continue
		}
		minISR, err := c.deps.Destination.intDefault(ctx, configMinISR)
		if err != nil {
			return fmt.Errorf("topic %s: min.insync.replicas of the cluster: %w", topic, err)
		}
		if wait := sweepWaits(c.cfg.Virtual, p, live, careful{minISR: minISR, waited: waited}); wait != "" {
			return fmt.Errorf("partition %s-%d waits for %s", topic, p.Partition, wait)
		}
	}
	have := c.img.TopicConfig(topic)
	change := map[string]*string{}
	for _, k := range lockKeys() {
		if _, set := have[k]; set {
			change[k] = nil
		}
	}
	if len(change) == 0 {
		return nil
	}
	return c.deps.Destination.alterConfigs(ctx, topic, change)
}
