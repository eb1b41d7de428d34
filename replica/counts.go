package replica

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// Counts tells of mirror partitions what real brokers tell of the partitions that they lead:
// they lead none of these, and so their own metrics go blind (contract-additions §13). Only
// real replicas count: a virtual one holds nothing. Each partition is counted by one sidecar,
// the one that leads it, so that sums over all sidecars are right.
type Counts struct {
	image   *metadata.Image
	self    int32
	virtual ids.Virtual
	minISR  func(ids.TopicPartition, string) int
	cancel  func()

	shrinks, expands prometheus.Counter

	mu  sync.Mutex                     // guards the following
	led map[ids.TopicPartition][]int32 // real members of the ISR of partitions led here, as last seen
}

// NewCounts returns the counts of the sidecar with virtual broker self. minISR is a topic's
// min.insync.replicas without the virtual replicas.
func NewCounts(image *metadata.Image, self int32, v ids.Virtual, minISR func(ids.TopicPartition, string) int) *Counts {
	c := &Counts{
		image: image, self: self, virtual: v, minISR: minISR, led: map[ids.TopicPartition][]int32{},
		shrinks: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "kafka_mirror", Name: "isr_shrinks_total", Help: "Times a real replica left the ISR of a partition that is led here.",
		}),
		expands: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "kafka_mirror", Name: "isr_expands_total", Help: "Times a real replica joined the ISR of a partition that is led here.",
		}),
	}
	// In this order no change falls in between.
	c.cancel = image.Subscribe(func(d metadata.Delta) {
		for _, tp := range d.Partitions {
			c.note(tp)
		}
		c.forget(d.RemovedTopics)
	})
	for _, p := range image.AllPartitions() {
		c.note(ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition})
	}
	return c
}

// Close ends the counting.
func (c *Counts) Close() { c.cancel() }

// note looks whether the ISR of a partition changed while it is led here.
func (c *Counts) note(tp ids.TopicPartition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.image.Partition(tp)
	if p == nil || p.Leader != c.self {
		delete(c.led, tp)
		return
	}
	before, had := c.led[tp]
	now := c.virtual.Real(p.ISR)
	c.led[tp] = now
	if !had {
		return
	}
	if slices.ContainsFunc(before, func(id int32) bool { return !slices.Contains(now, id) }) {
		c.shrinks.Inc()
	}
	if slices.ContainsFunc(now, func(id int32) bool { return !slices.Contains(before, id) }) {
		c.expands.Inc()
	}
}

func (c *Counts) forget(topics []ids.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for tp := range c.led {
		if slices.Contains(topics, tp.TopicID) {
			delete(c.led, tp)
		}
	}
}

// partitionCounts are what is counted of the partitions as they are now.
type partitionCounts struct{ leads, underReplicated, underMinISR, offline int }

func (c *Counts) now() partitionCounts {
	var n partitionCounts
	warden := c.warden()
	for _, p := range c.image.AllPartitions() {
		real, isr := len(c.virtual.Real(p.Replicas)), len(c.virtual.Real(p.ISR))
		switch {
		case real == len(p.Replicas): // no mirror's
		case p.Leader < 0:
			n.offline += warden
		case p.Leader == c.self:
			n.leads++
			if isr == 0 {
				n.offline++
			}
			if isr < real {
				n.underReplicated++
			}
			if isr < min(c.minISR(ids.TopicPartition{TopicID: p.TopicID, Partition: p.Partition}, p.Topic), real) {
				n.underMinISR++
			}
		}
	}
	return n
}

// warden is 1 at the sidecar that counts what nobody leads: the live one with the lowest id.
func (c *Counts) warden() int {
	for _, b := range c.image.Brokers() {
		if c.virtual.Is(b.ID) && !b.Fenced && !b.ShuttingDown {
			if b.ID == c.self {
				return 1
			}
			return 0
		}
	}
	return 0
}

// countMetrics are the gauges that Counts collects.
func countMetrics() []struct {
	desc  *prometheus.Desc
	value func(partitionCounts) int
} {
	type metric = struct {
		desc  *prometheus.Desc
		value func(partitionCounts) int
	}
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("kafka_mirror_"+name, help, nil, nil)
	}
	return []metric{
		{desc("leader_count", "Mirror partitions that are led here."), func(n partitionCounts) int { return n.leads }},
		{desc("under_replicated_partitions", "Partitions led here of which a real replica is not in sync."), func(n partitionCounts) int { return n.underReplicated }},
		{desc("under_min_isr_partitions", "Partitions led here with fewer real replicas in sync than the topic's own min.insync.replicas."), func(n partitionCounts) int { return n.underMinISR }},
		{desc("offline_partitions", "Mirror partitions that nobody leads or of which no real replica is in sync; each is counted by one sidecar."), func(n partitionCounts) int { return n.offline }},
	}
}

// Describe implements prometheus.Collector.
func (c *Counts) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range countMetrics() {
		ch <- m.desc
	}
	c.shrinks.Describe(ch)
	c.expands.Describe(ch)
}

// Collect implements prometheus.Collector.
func (c *Counts) Collect(ch chan<- prometheus.Metric) {
	n := c.now()
	for _, m := range countMetrics() {
		ch <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(m.value(n)))
	}
	c.shrinks.Collect(ch)
	c.expands.Collect(ch)
}
