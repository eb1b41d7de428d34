package replica

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what a Manager serves. The zero value counts nowhere.
type Metrics struct {
	served *prometheus.CounterVec
}

// NewMetrics registers the counters.
func NewMetrics(r prometheus.Registerer) (Metrics, error) {
	m := Metrics{served: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "kafka_mirror", Name: "served_bytes_total",
		Help: "Record bytes sent to real brokers: from the buffer, or read from an in-sync replica for a follower that lags.",
	}, []string{"from"})}
	for _, from := range []string{servedBuffer, servedReplica} {
		m.served.WithLabelValues(from)
	}
	return m, r.Register(m.served)
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
