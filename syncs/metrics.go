package syncs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// stats count the runs of one turn since this sidecar coordinates the mirror.
type stats struct {
	runs, failures, changes int64
	succeeded               time.Time
}

func (s *stats) count(report Report, err error) {
	s.runs++
	s.changes += int64(len(report.Changes))
	if err != nil {
		s.failures++
	} else {
		s.succeeded = time.Now()
	}
}

type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(stats) float64
}

func metrics() []metric {
	d := func(name, help string, kind prometheus.ValueType, value func(stats) float64) metric {
		return metric{prometheus.NewDesc("kafka_mirror_sync_"+name, help, []string{"mirror", "kind"}, nil), kind, value}
	}
	return []metric{
		d("runs_total", "Runs of a sync, failed ones included.", prometheus.CounterValue, func(s stats) float64 { return float64(s.runs) }),
		d("failures_total", "Runs of a sync that did not end well.", prometheus.CounterValue, func(s stats) float64 { return float64(s.failures) }),
		d("changes_total", "What a sync has created, set and deleted in this cluster.", prometheus.CounterValue, func(s stats) float64 { return float64(s.changes) }),
		d("last_success_timestamp_seconds", "When a run of a sync last ended well; 0 if none has.", prometheus.GaugeValue, func(s stats) float64 {
			if s.succeeded.IsZero() {
				return 0
			}
			return float64(s.succeeded.UnixMilli()) / 1000
		}),
	}
}

// Describe implements prometheus.Collector.
func (s *Syncer) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range metrics() {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector. What a mirror is not configured to mirror has no series.
func (s *Syncer) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, mirror := range s.known {
		for kind, t := range mirror.turns {
			if t.stats.runs == 0 {
				continue
			}
			for _, m := range metrics() {
				ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(t.stats), name, string(kind))
			}
		}
	}
}
