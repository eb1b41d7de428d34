package certs

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Expiry is a metric of when certificates end.
type Expiry struct {
	desc *prometheus.Desc

	mu  sync.Mutex // guards the following
	all []*Watched
}

// NewExpiry returns a metric of no certificates.
func NewExpiry() *Expiry {
	return &Expiry{desc: prometheus.NewDesc("kafka_mirror_certificate_expiry_timestamp_seconds",
		"When the certificate in use ends, in seconds since 1970.", []string{"of"}, nil)}
}

// Add adds the certificate of w, if it has one.
func (e *Expiry) Add(w *Watched) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, w)
}

// Describe implements prometheus.Collector.
func (e *Expiry) Describe(ch chan<- *prometheus.Desc) { ch <- e.desc }

// Collect implements prometheus.Collector.
func (e *Expiry) Collect(ch chan<- prometheus.Metric) {
	e.mu.Lock()
	defer e.mu.Unlock()
	told := map[string]bool{}
	for _, w := range e.all {
		// Two listeners of one name have the same one.
		if leaf := w.Leaf(); leaf != nil && !told[w.src.Name] {
			told[w.src.Name] = true
			ch <- prometheus.MustNewConstMetric(e.desc, prometheus.GaugeValue, float64(leaf.NotAfter.Unix()), w.src.Name)
		}
	}
}
