package host

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	up       *prometheus.GaugeVec
	restarts *prometheus.CounterVec
	calls    *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		up: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "kafka_mirror", Name: "plugin_up",
			Help: "1 while the plugin runs. It runs from the first question on that a mirror has for it.",
		}, []string{"plugin"}),
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "kafka_mirror", Name: "plugin_restarts_total",
			Help: "Starts of the plugin but the first, those that failed included.",
		}, []string{"plugin"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "kafka_mirror", Name: "plugin_call_seconds",
			Help:    "How long the plugin took for a page of questions, answered or not.",
			Buckets: []float64{.001, .005, .025, .1, .5, 1, 2.5, 5, 10, 30},
		}, []string{"plugin", "kind"}),
	}
	if r == nil {
		return m, nil
	}
	return m, errors.Join(r.Register(m.up), r.Register(m.restarts), r.Register(m.calls))
}
