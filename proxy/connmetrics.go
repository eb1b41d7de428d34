package proxy

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// ConnMetrics counts connections. The zero value counts nowhere.
type ConnMetrics struct {
	open    *prometheus.GaugeVec
	opened  *prometheus.CounterVec
	closed  *prometheus.CounterVec
	refused *prometheus.CounterVec
}

// NewConnMetrics registers the metrics.
func NewConnMetrics(r prometheus.Registerer) (ConnMetrics, error) {
	m := ConnMetrics{
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "kafka_mirror", Name: "proxy_connections", Help: "Client connections that are open.",
		}, []string{"listener"}),
		opened: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "kafka_mirror", Name: "proxy_connections_opened_total", Help: "Client connections that were accepted.",
		}, []string{"listener"}),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "kafka_mirror", Name: "proxy_connections_closed_total", Help: "Client connections that ended, by reason.",
		}, []string{"listener", "reason"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "kafka_mirror", Name: "proxy_connections_refused_total", Help: "Client connections that were closed at once, by the limit that there is.",
		}, []string{"listener", "limit"}),
	}
	return m, errors.Join(r.Register(m.open), r.Register(m.opened), r.Register(m.closed), r.Register(m.refused))
}

// of returns the counters of one listener.
func (m ConnMetrics) of(listener string) listenerMetrics {
	if m.open == nil {
		return listenerMetrics{}
	}
	l := listenerMetrics{
		open: m.open.WithLabelValues(listener), opened: m.opened.WithLabelValues(listener),
		closed: map[reason]prometheus.Counter{}, refused: map[string]prometheus.Counter{},
	}
	for _, r := range reasons() {
		l.closed[r] = m.closed.WithLabelValues(listener, string(r))
	}
	for _, r := range []string{refusedTotal, refusedPerIP} {
		l.refused[r] = m.refused.WithLabelValues(listener, r)
	}
	return l
}

type listenerMetrics struct {
	open    prometheus.Gauge
	opened  prometheus.Counter
	closed  map[reason]prometheus.Counter
	refused map[string]prometheus.Counter
}

func (l listenerMetrics) begin() {
	if l.open != nil {
		l.open.Inc()
		l.opened.Inc()
	}
}

func (l listenerMetrics) end(r reason) {
	if l.open != nil {
		l.open.Dec()
		l.closed[r].Inc()
	}
}

func (l listenerMetrics) refuse(limit string) {
	if l.open != nil {
		l.refused[limit].Inc()
	}
}
