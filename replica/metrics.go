package replica

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts what a Manager serves. The zero value counts nowhere.
type Metrics struct {
	served   *prometheus.CounterVec
	moves    *prometheus.CounterVec
	failures prometheus.Counter
	silences prometheus.Counter
	foreign  prometheus.Counter
}

// NewMetrics registers the counters.
func NewMetrics(r prometheus.Registerer) (Metrics, error) {
	m := Metrics{
		served: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "kafka_mirror", Name: "served_bytes_total",
			Help: "Record bytes sent to real brokers: from the buffer, or read from an in-sync replica for a follower that lags.",
		}, []string{"from"}),
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "kafka_mirror", Name: "position_moves_total",
			Help: "Times a mirror partition did not simply go on: records that the source lost left the mirror too, or the source deleted records before they were mirrored.",
		}, []string{"detail"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "kafka_mirror", Name: "partition_failures_total",
			Help: "Times a mirror partition failed, further tries included.",
		}),
		silences: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "kafka_mirror", Name: "failed_followers_total",
			Help: "Times a live real broker had stopped fetching a mirror partition, which a new leader epoch cures.",
		}),
		foreign: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "kafka_mirror", Name: "foreign_records_total",
			Help: "Records that clients wrote to mirror partitions around the mirror, and that were removed.",
		}),
	}
	for _, from := range []string{servedBuffer, servedReplica} {
		m.served.WithLabelValues(from)
	}
	for _, d := range []string{DetailTruncated, DetailHole} {
		m.moves.WithLabelValues(d)
	}
	return m, errors.Join(r.Register(m.served), r.Register(m.moves), r.Register(m.failures), r.Register(m.silences), r.Register(m.foreign))
}

const (
	servedBuffer  = "buffer"
	servedReplica = "replica"
)

func (m Metrics) count(from string, bytes int) {
	if m.served != nil && bytes > 0 {
		m.served.WithLabelValues(from).Add(float64(bytes))
	}
}

func (m Metrics) moved(detail string) {
	if m.moves != nil {
		m.moves.WithLabelValues(detail).Inc()
	}
}

func (m Metrics) failed() {
	if m.failures != nil {
		m.failures.Inc()
	}
}

func (m Metrics) silent() {
	if m.silences != nil {
		m.silences.Inc()
	}
}

func (m Metrics) foreignRecords(n int64) {
	if m.foreign != nil {
		m.foreign.Add(float64(n))
	}
}
