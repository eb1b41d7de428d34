package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// maxNameLength is Kafka's bound on topic names, which mirror names share.
const maxNameLength = 249

// maxTopicsPerRequest bounds one start or stop.
const maxTopicsPerRequest = 5000

// checkName refuses a name that no mirror may have.
func checkName(name string) *Error {
	switch {
	case name == "":
		return refuse(protocol.InvalidClusterMirrorName, "a mirror needs a name")
	case len(name) > maxNameLength:
		return refuse(protocol.InvalidClusterMirrorName, "mirror name %.20q… is longer than %d characters", name, maxNameLength)
	case name == "." || name == "..":
		return refuse(protocol.InvalidClusterMirrorName, "mirror name %q is not allowed", name)
	}
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-') {
			return refuse(protocol.InvalidClusterMirrorName, "mirror name %q: allowed are letters, digits, '.', '_' and '-'", name)
		}
	}
	for _, suffix := range []string{".removed", ".stopped", ".paused"} {
		if strings.HasSuffix(name, suffix) {
			return refuse(protocol.InvalidClusterMirrorName, "mirror name %q: names may not end in %s", name, suffix)
		}
	}
	return nil
}

// internalTopic tells whether a topic is one that is never mirrored, whatever the
// patterns say (design.md §12).
func internalTopic(name string) bool {
	switch name {
	case "__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__remote_log_metadata", StateTopic, "__mirror_state":
		return true
	}
	return false
}

// TopicResult is the answer for one topic.
type TopicResult struct {
	Name string
	Err  *Error
}

// validateCreate checks everything that can be checked before anything is written, and
// asks the source for its cluster id.
func (c *Coordinator) validateCreate(ctx context.Context, name string, configs config.Properties) (sourceID string, err error) {
	if refused := checkName(name); refused != nil {
		return "", refused
	}
	cfg, err := config.ParseMirror(configs)
	if err != nil {
		return "", refuse(kerr.InvalidConfig.Code, "mirror %s: %v", name, err)
	}
	if _, exists := c.view.Mirror(name); exists {
		return "", refuse(protocol.ClusterMirrorAlreadyExists, "mirror %s exists already", name)
	}
	src, err := c.deps.Source(cfg)
	if err != nil {
		return "", refuse(kerr.InvalidConfig.Code, "mirror %s: %v", name, err)
	}
	defer src.Close()
	sourceID, err = src.ClusterID(ctx)
	if err != nil {
		return "", refuse(kerr.InvalidRequest.Code, "mirror %s: the source at %s does not answer: %v; nothing was changed", name, strings.Join(cfg.Bootstrap, ","), err)
	}
	if sourceID == c.cfg.ClusterID {
		return "", refuse(kerr.InvalidRequest.Code, "mirror %s: %s is this cluster itself (cluster id %s); bootstrap.servers must name the source", name, strings.Join(cfg.Bootstrap, ","), sourceID)
	}
	if batch.NewTagger(sourceID, c.cfg.ClusterID).Collides() {
		return "", refuse(kerr.InvalidRequest.Code, "mirror %s: the producer id tag of source cluster %s is also this cluster's; these two cannot mirror each other", name, sourceID)
	}
	for _, m := range c.view.Mirrors() {
		if m.SourceClusterID != sourceID && batch.Tag(m.SourceClusterID) == batch.Tag(sourceID) {
			return "", refuse(kerr.InvalidRequest.Code, "mirror %s: the producer id tag of source cluster %s is also that of cluster %s (mirror %s); both cannot be mirrored here", name, sourceID, m.SourceClusterID, m.Name)
		}
	}
	return sourceID, nil
}

// createMirror runs on the coordinator of the mirror's name.
func (c *Coordinator) createMirror(ctx context.Context, name string, configs config.Properties, validateOnly bool) error {
	sourceID, err := c.validateCreate(ctx, name, configs)
	if err != nil || validateOnly {
		return err
	}
	err = c.act(ctx, name, func() error {
		if _, exists := c.view.Mirror(name); exists {
			return refuse(protocol.ClusterMirrorAlreadyExists, "mirror %s exists already", name)
		}
		return c.store.Put(ctx, record{kind: kindMirror, mirror: name, value: Mirror{Name: name, SourceClusterID: sourceID, Configs: configs}})
	})
	if err != nil {
		return fmt.Errorf("create mirror %s: %w", name, err)
	}
	c.log.Info("mirror created", "mirror", name, "source", sourceID, "config", configs.Redacted())
	return nil
}

// mirror returns a mirror, or the error that there is none.
func (c *Coordinator) mirror(name string) (Mirror, error) {
	m, ok := c.view.Mirror(name)
	if !ok {
		return Mirror{}, refuse(protocol.UnknownClusterMirror, "there is no mirror %q", name)
	}
	return m, nil
}

// startRequest is StartMirrorTopics in this package's terms.
type startRequest struct {
	mirror           string
	topics           []string
	include, exclude []string
	allowTruncate    bool
	validateOnly     bool
}

// startTopics runs on the coordinator of the mirror's name. Nothing is changed for a
// topic that is refused.
func (c *Coordinator) startTopics(ctx context.Context, r startRequest) ([]TopicResult, error) {
	if err := c.act(ctx, r.mirror, func() error { return nil }); err != nil {
		return nil, err
	}
	m, err := c.mirror(r.mirror)
	if err != nil {
		return nil, err
	}
	src, cfg, err := c.source(m)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	names := slices.Clone(r.topics)
	if len(r.include) > 0 {
		matched, err := c.matchSource(ctx, src, cfg, m, r)
		if err != nil {
			return nil, err
		}
		names = append(names, matched...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > maxTopicsPerRequest {
		return nil, refuse(kerr.InvalidRequest.Code, "mirror %s: %d topics in one request, at most %d", m.Name, len(names), maxTopicsPerRequest)
	}
	ask := slices.DeleteFunc(slices.Clone(names), internalTopic)
	// A wrong cluster behind the address must be found before anything is compared with it.
	id, err := src.ClusterID(ctx)
	if err != nil {
		return nil, refuse(kerr.InvalidRequest.Code, "mirror %s: the source at %s does not answer: %v; nothing was changed", m.Name, strings.Join(cfg.Bootstrap, ","), err)
	}
	if id != m.SourceClusterID {
		return nil, refuse(kerr.InvalidRequest.Code, "mirror %s: %s is cluster %s now, the mirror was created for %s; nothing was changed", m.Name, strings.Join(cfg.Bootstrap, ","), id, m.SourceClusterID)
	}
	found, err := src.Topics(ctx, ask)
	if err != nil {
		return nil, refuse(kerr.InvalidRequest.Code, "mirror %s: the source at %s: %v; nothing was changed", m.Name, strings.Join(cfg.Bootstrap, ","), err)
	}
	results := make([]TopicResult, 0, len(names))
	var start []Topic
	for _, n := range names {
		t, again, err := c.checkStart(ctx, m, n, found, r.allowTruncate)
		results = append(results, TopicResult{Name: n, Err: asError(err, kerr.UnknownServerError.Code)})
		if err == nil && !again {
			start = append(start, t)
		}
	}
	if r.validateOnly || len(start) == 0 {
		return results, nil
	}
	err = c.act(ctx, m.Name, func() error {
		if _, err := c.mirror(m.Name); err != nil {
			return err
		}
		var records []record
		for _, t := range start {
			records = append(records, record{kind: kindTopic, topic: topicKey{t.Mirror, t.Name}, value: t})
		}
		return c.store.Put(ctx, records...)
	})
	if err != nil {
		return nil, fmt.Errorf("mirror %s: start topics: %w", m.Name, err)
	}
	for _, t := range start {
		c.log.Info("mirror topic started", "mirror", m.Name, "topic", t.Name)
		c.retryFailed(ctx, t)
	}
	return results, nil
}

// retryFailed lets the partitions of a topic that failed begin anew.
func (c *Coordinator) retryFailed(ctx context.Context, t Topic) {
	for _, p := range c.img.TopicPartitions(t.TopicID) {
		tp := ids.TopicPartition{TopicID: t.TopicID, Partition: p.Partition}
		s, _ := c.view.State(t.Mirror, tp)
		if s.State != Failed {
			continue
		}
		next, _ := Next(s.State, s.Previous, VerbStart)
		if err := c.WriteState(ctx, t.Mirror, tp, max(s.LeaderEpoch, p.LeaderEpoch), PartitionState{State: next, StateEpoch: -1}); err != nil {
			c.log.Warn("failed partition is not retried", "mirror", t.Mirror, "topic", t.Name, "partition", p.Partition, "err", err)
		}
	}
}

// matchSource returns the source topics that the request's patterns pick.
func (c *Coordinator) matchSource(ctx context.Context, src Source, cfg *config.Mirror, m Mirror, r startRequest) ([]string, error) {
	include, err := config.ParsePattern(strings.Join(r.include, ","))
	if err != nil {
		return nil, refuse(kerr.InvalidRequest.Code, "mirror %s: %v", m.Name, err)
	}
	exclude, err := config.ParsePattern(strings.Join(r.exclude, ","))
	if err != nil {
		return nil, refuse(kerr.InvalidRequest.Code, "mirror %s: %v", m.Name, err)
	}
	all, err := src.Names(ctx)
	if err != nil {
		return nil, refuse(kerr.InvalidRequest.Code, "mirror %s: the source at %s does not answer: %v; nothing was changed", m.Name, strings.Join(cfg.Bootstrap, ","), err)
	}
	return slices.DeleteFunc(all, func(n string) bool {
		return internalTopic(n) || !include.Match(n) || exclude.Match(n) || cfg.TopicsExclude.Match(n)
	}), nil
}

// checkStart decides whether one topic may start. again says that it runs already.
func (c *Coordinator) checkStart(ctx context.Context, m Mirror, name string, found map[string]SourceTopic, allowTruncate bool) (t Topic, again bool, err error) {
	if internalTopic(name) {
		return t, false, refuse(kerr.InvalidTopicException.Code, "topic %s is internal to Kafka and is never mirrored", name)
	}
	source, ok := found[name]
	if !ok {
		return t, false, refuse(kerr.UnknownTopicOrPartition.Code, "topic %s does not exist at the source of mirror %s (%s)", name, m.Name, m.Configs["bootstrap.servers"])
	}
	if o, ok := c.view.TopicByName(name); ok && o.Mirror != m.Name && !c.stopped(o) {
		return t, false, refuse(protocol.TopicAlreadyInClusterMirror, "topic %s belongs to mirror %s; stop it there first", name, o.Mirror)
	}
	known, was := c.view.Topic(m.Name, name)
	if was {
		switch state := c.topicState(known); {
		case known.Desired == Mirroring && state != Failed:
			return known, true, nil
		case known.Desired == Mirroring: // failed: tried again below
		case known.Desired == Paused:
			return t, false, refuse(protocol.MirrorTopicNotStopped, "topic %s is paused in mirror %s; resume it instead", name, m.Name)
		case !c.stopped(known):
			return t, false, refuse(protocol.MirrorTopicBeingStopped, "topic %s is being stopped in mirror %s; start it again once it is STOPPED", name, m.Name)
		}
	}
	t = Topic{
		Mirror: m.Name, Name: name, SourceTopicID: source.ID, Desired: Mirroring,
		Since: time.Now().UnixMilli(), AllowTruncate: allowTruncate,
	}
	id, exists := c.img.Topic(name)
	if !exists {
		return t, false, nil
	}
	if n := len(c.img.TopicPartitions(id)); n != int(source.Partitions) {
		return t, false, refuse(kerr.InvalidPartitions.Code, "topic %s has %d partitions here and %d at the source of mirror %s; delete it here, or make the numbers equal", name, n, source.Partitions, m.Name)
	}
	if v := c.img.TopicConfig(name)["remote.storage.enable"]; v == "true" {
		return t, false, refuse(kerr.InvalidConfig.Code, "topic %s has remote.storage.enable=true here; tiered topics cannot be mirror topics", name)
	}
	mine := was && known.TopicID == id
	if mine {
		t.TopicID, t.Wanted, t.RealReplicas, t.tags = id, known.Wanted, known.RealReplicas, known.tags
		if known.Desired == Stopped {
			t.Wanted = nil // restored at stop; taken anew before the lock is set
		}
	}
	if !mine && !allowTruncate {
		n, err := c.deps.Destination.records(ctx, name)
		if err != nil {
			return t, false, refuse(kerr.InvalidRequest.Code, "topic %s exists here and what it holds is not known: %v", name, err)
		}
		if n > 0 {
			return t, false, refuse(kerr.InvalidRequest.Code, "topic %s exists here with %d records that mirror %s did not write; delete the topic, or allow truncation (--allow-truncate) to give up what differs from the source", name, n, m.Name)
		}
	}
	return t, false, nil
}

// topicState sums up the states of a topic's partitions: FAILED if any is, else the one
// that is furthest from STOPPED.
func (c *Coordinator) topicState(t Topic) State {
	var parts []ids.TopicPartition
	for _, p := range c.img.TopicPartitions(t.TopicID) {
		parts = append(parts, ids.TopicPartition{TopicID: t.TopicID, Partition: p.Partition})
	}
	sum := Stopped
	for _, tp := range parts {
		s, _ := c.view.State(t.Mirror, tp)
		if s.State == Failed {
			return Failed
		}
		if s.State != Stopped {
			sum = s.State
		}
	}
	return sum
}

// stopped tells whether a mirror topic is an ordinary topic again: wanted so, every
// partition STOPPED, no virtual replica assigned. A topic that is gone is stopped too.
func (c *Coordinator) stopped(t Topic) bool {
	if t.Desired != Stopped {
		return false
	}
	if t.TopicID.IsZero() {
		return true
	}
	for _, p := range c.img.TopicPartitions(t.TopicID) {
		if s, _ := c.view.State(t.Mirror, ids.TopicPartition{TopicID: t.TopicID, Partition: p.Partition}); s.State != Stopped {
			return false
		}
		if slices.ContainsFunc(p.Replicas, c.cfg.Virtual.Is) {
			return false
		}
	}
	return true
}

// stopRequest is StopMirrorTopics in this package's terms.
type stopRequest struct {
	mirror       string
	topics       []string
	patterns     []string
	validateOnly bool
}

// stopTopics runs on the coordinator of the mirror's name. The source is not asked: a
// stop works while it is dead.
func (c *Coordinator) stopTopics(ctx context.Context, r stopRequest) ([]TopicResult, error) {
	if err := c.act(ctx, r.mirror, func() error { return nil }); err != nil {
		return nil, err
	}
	m, err := c.mirror(r.mirror)
	if err != nil {
		return nil, err
	}
	names := slices.Clone(r.topics)
	if len(r.patterns) > 0 {
		p, err := config.ParsePattern(strings.Join(r.patterns, ","))
		if err != nil {
			return nil, refuse(kerr.InvalidRequest.Code, "mirror %s: %v", m.Name, err)
		}
		for _, t := range c.view.Topics(m.Name) {
			if p.Match(t.Name) {
				names = append(names, t.Name)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	results := make([]TopicResult, 0, len(names))
	var stop []Topic
	for _, n := range names {
		t, ok := c.view.Topic(m.Name, n)
		if !ok {
			why := refuse(protocol.TopicNotInClusterMirror, "topic %s is not in mirror %s", n, m.Name)
			if o, other := c.view.TopicByName(n); other {
				why = refuse(protocol.TopicNotInClusterMirror, "topic %s is not in mirror %s but in mirror %s", n, m.Name, o.Mirror)
			}
			results = append(results, TopicResult{Name: n, Err: why})
			continue
		}
		results = append(results, TopicResult{Name: n})
		if t.Desired != Stopped {
			t.Desired, t.Since = Stopped, time.Now().UnixMilli()
			stop = append(stop, t)
		}
	}
	if r.validateOnly || len(stop) == 0 {
		return results, nil
	}
	err = c.act(ctx, m.Name, func() error {
		var records []record
		for _, t := range stop {
			// The reconciler may have written the topic's id or configs meanwhile.
			if now, ok := c.view.Topic(m.Name, t.Name); ok {
				now.Desired, now.Since = t.Desired, t.Since
				t = now
			}
			records = append(records, record{kind: kindTopic, topic: topicKey{t.Mirror, t.Name}, value: t})
		}
		return c.store.Put(ctx, records...)
	})
	if err != nil {
		return nil, fmt.Errorf("mirror %s: stop topics: %w", m.Name, err)
	}
	for _, t := range stop {
		c.log.Info("mirror topic stopping", "mirror", m.Name, "topic", t.Name)
	}
	return results, nil
}

// deleteMirror runs on the coordinator of the mirror's name.
func (c *Coordinator) deleteMirror(ctx context.Context, name string, validateOnly bool) error {
	return c.act(ctx, name, func() error {
		if _, err := c.mirror(name); err != nil {
			return err
		}
		var busy []string
		records := []record{{kind: kindMirror, mirror: name}}
		for _, t := range c.view.Topics(name) {
			if !c.stopped(t) {
				busy = append(busy, t.Name)
			}
			records = append(records, record{kind: kindTopic, topic: topicKey{name, t.Name}})
		}
		if len(busy) > 0 {
			more := ""
			if len(busy) > 10 {
				busy, more = busy[:10], ", …"
			}
			return refuse(protocol.ClusterMirrorNotEmpty, "mirror %s has topics that are not STOPPED: %s%s; stop them first", name, strings.Join(busy, ", "), more)
		}
		if validateOnly {
			return nil
		}
		// The mirror's own record goes last: until then a crash leaves a mirror to delete again.
		slices.Reverse(records)
		var states []record
		for _, k := range c.view.partitionKeys(name) {
			states = append(states, record{kind: kindState, partition: k}, record{kind: kindLineage, partition: k})
		}
		for chunk := range slices.Chunk(append(states, records...), maxRecordsPerPut) {
			if err := c.store.Put(ctx, chunk...); err != nil {
				return fmt.Errorf("delete mirror %s: %w", name, err)
			}
		}
		c.log.Info("mirror deleted", "mirror", name)
		return nil
	})
}
