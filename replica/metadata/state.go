package metadata

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// noLeaderChange is the leader of a partition change that leaves the leader, and so
// the leader epoch, as they are.
const noLeaderChange int32 = -2

// state is the content of an Image. It is changed in place under the image's lock; a
// snapshot replaces it as a whole.
type state struct {
	virtual        ids.Virtual
	offset         int64
	topics         map[ids.UUID]*topic
	names          map[string]ids.UUID
	partitions     int // over all topics
	brokers        map[int32]Broker
	topicConfigs   map[string]map[string]string
	brokerDefaults map[string]string
	features       map[string]int16
}

type topic struct {
	name       string
	partitions []*Partition // ascending
}

func newState(v ids.Virtual) *state {
	return &state{
		virtual:        v,
		offset:         -1,
		topics:         make(map[ids.UUID]*topic),
		names:          make(map[string]ids.UUID),
		brokers:        make(map[int32]Broker),
		topicConfigs:   make(map[string]map[string]string),
		brokerDefaults: make(map[string]string),
		features:       make(map[string]int16),
	}
}

func (t *topic) find(p int32) (int, bool) {
	return slices.BinarySearchFunc(t.partitions, p, func(q *Partition, p int32) int { return cmp.Compare(q.Partition, p) })
}

func (t *topic) partition(p int32) *Partition {
	if n, ok := t.find(p); ok {
		return t.partitions[n]
	}
	return nil
}

func (s *state) addTopic(id ids.UUID, name string) {
	if s.topics[id] == nil {
		s.topics[id] = &topic{name: name}
	}
	s.names[name] = id
}

func (s *state) removeTopic(id ids.UUID, c *changes) {
	t := s.topics[id]
	if t == nil {
		return
	}
	c.removed(id)
	s.partitions -= len(t.partitions)
	delete(s.topics, id)
	delete(s.names, t.name)
	// The log says nothing more of the configs: they go with the topic.
	if _, ok := s.topicConfigs[t.name]; ok {
		delete(s.topicConfigs, t.name)
		c.config(t.name)
	}
}

// addPartition takes a partition record, which is a partition's first appearance, or
// what a snapshot says of it.
func (s *state) addPartition(p *Partition, c *changes) error {
	t := s.topics[p.TopicID]
	if t == nil {
		return fmt.Errorf("partition %d of topic id %s, which no record has announced", p.Partition, p.TopicID)
	}
	p.Topic = t.name
	p.LastRealISR = s.realISR(p.ISR, nil)
	if n, ok := t.find(p.Partition); ok {
		t.partitions[n] = p
	} else {
		t.partitions = slices.Insert(t.partitions, n, p)
		s.partitions++
	}
	c.partition(ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition})
	return nil
}

// partitionChange is a partition change record; what is nil, noLeaderChange or -1
// stays as it was. An empty list is a change, and not nil.
type partitionChange struct {
	topicID                                             ids.UUID
	partition                                           int32
	isr, replicas, removing, adding, elr, lastKnownELRs []int32
	directories                                         []ids.UUID
	leader                                              int32
	recovery                                            int8
}

func (s *state) changePartition(ch partitionChange, c *changes) error {
	var old *Partition
	t := s.topics[ch.topicID]
	if t != nil {
		old = t.partition(ch.partition)
	}
	if old == nil {
		return fmt.Errorf("change of partition %d of topic id %s, which no record has announced", ch.partition, ch.topicID)
	}
	p := *old
	set := func(field *[]int32, v []int32) {
		if v != nil {
			*field = v
		}
	}
	set(&p.Replicas, ch.replicas)
	set(&p.Removing, ch.removing)
	set(&p.Adding, ch.adding)
	set(&p.ELR, ch.elr)
	set(&p.LastKnownELR, ch.lastKnownELRs)
	if ch.directories != nil {
		p.Directories = ch.directories
	}
	if ch.isr != nil {
		p.ISR = ch.isr
		p.LastRealISR = s.realISR(p.ISR, p.LastRealISR)
	}
	if ch.leader != noLeaderChange {
		// Also a change to the same leader, and to none, begins an epoch.
		p.Leader = ch.leader
		p.LeaderEpoch++
	}
	if ch.recovery >= 0 {
		p.RecoveryState = ch.recovery
	}
	p.PartitionEpoch++
	n, _ := t.find(ch.partition)
	t.partitions[n] = &p
	c.partition(ids.TopicPartition{TopicID: ch.topicID, Partition: ch.partition})
	return nil
}

// realISR returns the real members of isr, or what was known before if it has none.
func (s *state) realISR(isr, before []int32) []int32 {
	if r := s.virtual.Real(isr); len(r) > 0 {
		return r
	}
	return before
}

// inherit fills in, from the state that a snapshot replaces, what snapshots do not
// hold: a partition that did not change in between has the same last real ISR.
func (s *state) inherit(old *state) {
	for id, t := range s.topics {
		was := old.topics[id]
		if was == nil {
			continue
		}
		for n, p := range t.partitions {
			q := was.partition(p.Partition)
			if p.LastRealISR != nil || q == nil || q.PartitionEpoch != p.PartitionEpoch {
				continue
			}
			np := *p
			np.LastRealISR = q.LastRealISR
			t.partitions[n] = &np
		}
	}
}

func (s *state) registerBroker(b Broker, c *changes) {
	s.brokers[b.ID] = b
	c.broker(b.ID)
}

func (s *state) unregisterBroker(id int32, c *changes) {
	delete(s.brokers, id)
	c.broker(id)
}

// changeBroker changes a registration. A record for a broker that is not registered,
// or by now under another epoch, cannot be in the log; it changes nothing.
func (s *state) changeBroker(id int32, epoch int64, c *changes, change func(*Broker)) {
	b, ok := s.brokers[id]
	if !ok || b.Epoch != epoch {
		return
	}
	change(&b)
	s.brokers[id] = b
	c.broker(id)
}

func (s *state) setTopicConfig(topic, key string, value *string, c *changes) {
	m := s.topicConfigs[topic]
	if value == nil {
		delete(m, key)
		if len(m) == 0 {
			delete(s.topicConfigs, topic)
		}
	} else {
		if m == nil {
			m = make(map[string]string)
			s.topicConfigs[topic] = m
		}
		m[key] = *value
	}
	c.config(topic)
}

func (s *state) setBrokerDefault(key string, value *string, c *changes) {
	if value == nil {
		delete(s.brokerDefaults, key)
	} else {
		s.brokerDefaults[key] = *value
	}
	c.d.BrokerDefaults = true
}

func (s *state) setFeature(name string, level int16, c *changes) {
	if level == 0 {
		delete(s.features, name)
	} else {
		s.features[name] = level
	}
	c.d.Features = true
}

// diff reports what is different between two states.
func diff(old, next *state, c *changes) {
	for id, t := range old.topics {
		now := next.topics[id]
		if now == nil {
			c.removed(id)
			continue
		}
		for _, p := range t.partitions {
			if now.partition(p.Partition) == nil {
				// Partitions are never removed alone; only another history lacks one.
				c.partition(ids.TopicPartition{TopicID: id, Partition: p.Partition})
			}
		}
	}
	for id, t := range next.topics {
		was := old.topics[id]
		for _, p := range t.partitions {
			if was == nil || !p.equal(was.partition(p.Partition)) {
				c.partition(ids.TopicPartition{TopicID: id, Partition: p.Partition})
			}
		}
	}
	for id, b := range old.brokers {
		if now, ok := next.brokers[id]; !ok || !now.equal(b) {
			c.broker(id)
		}
	}
	for id := range next.brokers {
		if _, ok := old.brokers[id]; !ok {
			c.broker(id)
		}
	}
	for name, m := range old.topicConfigs {
		if !maps.Equal(m, next.topicConfigs[name]) {
			c.config(name)
		}
	}
	for name := range next.topicConfigs {
		if _, ok := old.topicConfigs[name]; !ok {
			c.config(name)
		}
	}
	c.d.BrokerDefaults = c.d.BrokerDefaults || !maps.Equal(old.brokerDefaults, next.brokerDefaults)
	c.d.Features = c.d.Features || !maps.Equal(old.features, next.features)
}

func (p *Partition) equal(q *Partition) bool {
	return q != nil && p.Topic == q.Topic && p.TopicID == q.TopicID && p.Partition == q.Partition &&
		p.Leader == q.Leader && p.LeaderEpoch == q.LeaderEpoch && p.PartitionEpoch == q.PartitionEpoch &&
		p.RecoveryState == q.RecoveryState &&
		slices.Equal(p.Replicas, q.Replicas) && slices.Equal(p.ISR, q.ISR) &&
		slices.Equal(p.Adding, q.Adding) && slices.Equal(p.Removing, q.Removing) &&
		slices.Equal(p.ELR, q.ELR) && slices.Equal(p.LastKnownELR, q.LastKnownELR) &&
		slices.Equal(p.LastRealISR, q.LastRealISR)
}

func (b Broker) equal(q Broker) bool {
	return b.ID == q.ID && b.Epoch == q.Epoch && b.Incarnation == q.Incarnation && b.Fenced == q.Fenced &&
		b.ShuttingDown == q.ShuttingDown && b.Rack == q.Rack && slices.Equal(b.Endpoints, q.Endpoints) &&
		slices.Equal(b.LogDirs, q.LogDirs) && slices.Equal(b.CordonedDirs, q.CordonedDirs)
}

// changes collects what a batch changed, each name once and in order of appearance.
type changes struct {
	d    Delta
	seen map[any]struct{}
}

func newChanges() *changes { return &changes{seen: make(map[any]struct{})} }

type (
	brokerKey  int32
	removedKey ids.UUID
)

func (c *changes) first(key any) bool {
	if _, ok := c.seen[key]; ok {
		return false
	}
	c.seen[key] = struct{}{}
	return true
}

func (c *changes) partition(tp ids.TopicPartition) {
	if c.first(tp) {
		c.d.Partitions = append(c.d.Partitions, tp)
	}
}

func (c *changes) removed(id ids.UUID) {
	if c.first(removedKey(id)) {
		c.d.RemovedTopics = append(c.d.RemovedTopics, id)
	}
}

func (c *changes) broker(id int32) {
	if c.first(brokerKey(id)) {
		c.d.Brokers = append(c.d.Brokers, id)
	}
}

func (c *changes) config(topic string) {
	if c.first(topic) {
		c.d.Configs = append(c.d.Configs, topic)
	}
}

// delta returns what was collected, and whether that is anything.
func (c *changes) delta() (Delta, bool) {
	d := c.d
	return d, len(d.Partitions)+len(d.RemovedTopics)+len(d.Brokers)+len(d.Configs) > 0 || d.BrokerDefaults || d.Features
}
