package replica

import "github.com/prometheus/client_golang/prometheus"

// bufferMetric is one figure of the memory that records travel in.
type bufferMetric struct {
	desc  *prometheus.Desc
	value func(bufferUsage) int64
}

// bufferUsage is where the memory of mirror.buffer.memory.bytes is at one moment.
type bufferUsage struct {
	budget, held, idle, kept, pinned int64
}

func bufferMetrics() []bufferMetric {
	d := func(name, help string, value func(bufferUsage) int64) bufferMetric {
		return bufferMetric{prometheus.NewDesc("kafka_mirror_buffer_"+name, help, nil, nil), value}
	}
	return []bufferMetric{
		d("limit_bytes", "mirror.buffer.memory.bytes.", func(u bufferUsage) int64 { return u.budget }),
		d("used_bytes", "Memory that records are in, or that was promised to an answer of a source.", func(u bufferUsage) int64 { return u.held }),
		d("idle_bytes", "Memory that is ready for reuse.", func(u bufferUsage) int64 { return u.idle }),
		d("kept_bytes", "Memory that partitions keep for their followers; the rest of what is used is on its way.", func(u bufferUsage) int64 { return u.kept }),
		d("pinned_bytes", "Memory of that which cannot be given up: an in-sync real broker has not taken it, or does not know it to be visible.", func(u bufferUsage) int64 { return u.pinned }),
	}
}

// Describe implements prometheus.Collector.
func (m *Manager) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range bufferMetrics() {
		ch <- d.desc
	}
}

// Collect implements prometheus.Collector.
func (m *Manager) Collect(ch chan<- prometheus.Metric) {
	u := m.bufferUsage()
	for _, d := range bufferMetrics() {
		ch <- prometheus.MustNewConstMetric(d.desc, prometheus.GaugeValue, float64(d.value(u)))
	}
}

func (m *Manager) bufferUsage() bufferUsage {
	pool := m.cfg.Buffers.Usage()
	u := bufferUsage{budget: m.cfg.Buffers.Budget(), held: pool.Held, idle: pool.Idle}
	for _, p := range m.all() {
		p.mu.Lock()
		u.kept += p.buf.bytes
		u.pinned += p.buf.needed(p.machine.EvictBelow())
		p.mu.Unlock()
	}
	return u
}
