package metadata

import (
	"cmp"
	"slices"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// state is the content of an Image. It is changed in place under the image's lock; a
// snapshot replaces it as a whole.
type state struct {
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

func newState() *state {
	return &state{
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

func (c *changes) delta() (Delta, bool) {
	d := c.d
	return d, len(d.Partitions)+len(d.RemovedTopics)+len(d.Brokers)+len(d.Configs) > 0 || d.BrokerDefaults || d.Features
}
