package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// restoreAgain is how soon it is tried again what did not succeed, or what another sidecar was to do.
	restoreAgain = 5 * time.Second
	// restoreTimeout bounds one record.
	restoreTimeout = 2 * writeTimeout
)

// Restorer writes once more what the state says under keys that foreign records have taken, so that it
// is what is left when the topic is compacted, and what older sidecars read. It does so for the keys that
// are coordinated here.
type Restorer struct {
	c   *Coordinator
	log *slog.Logger

	watcher

	foreign, unread *prometheus.Desc
}

// NewRestorer returns the restorer of a coordinator.
func NewRestorer(c *Coordinator, log *slog.Logger) *Restorer {
	return &Restorer{
		c: c, log: log, watcher: newWatcher(),
		foreign: prometheus.NewDesc("kafka_mirror_state_foreign_records_total", "Records of the state topic that no sidecar has written, and that count for nothing.", nil, nil),
		unread:  prometheus.NewDesc("kafka_mirror_state_unread_records", "Records of the state topic that this version of the sidecar does not understand.", nil, nil),
	}
}

// Start begins to write once the state was read.
func (r *Restorer) Start(context.Context) error {
	r.start(r.c.store.Ready(), r.run)
	return nil
}

// Stop ends writing.
func (r *Restorer) Stop(ctx context.Context) error { return r.end(ctx, "restorer") }

// Describe implements prometheus.Collector.
func (r *Restorer) Describe(ch chan<- *prometheus.Desc) {
	ch <- r.foreign
	ch <- r.unread
}

// Collect implements prometheus.Collector.
func (r *Restorer) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(r.foreign, prometheus.CounterValue, float64(r.c.store.foreign.count.Load()))
	ch <- prometheus.MustNewConstMetric(r.unread, prometheus.GaugeValue, float64(r.c.store.misread.count()))
}

func (r *Restorer) run(ctx context.Context) {
	for ctx.Err() == nil {
		var again <-chan time.Time
		if !r.restore(ctx) {
			again = time.After(restoreAgain)
		}
		select {
		case <-r.c.store.foreign.wake:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// restore goes over all keys once, and tells whether none is left.
func (r *Restorer) restore(ctx context.Context) (done bool) {
	done = true
	for _, of := range r.c.store.foreign.records() {
		if ctx.Err() != nil {
			return true
		}
		once, cancel := context.WithTimeout(ctx, restoreTimeout)
		err := r.c.restore(once, of)
		cancel()
		if err != nil {
			done = false
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, ErrNotCoordinator) {
			r.log.Warn("state topic: what a foreign record has taken the place of is not written yet", "key", of.coordinatorKey(), "err", err)
		}
	}
	return done
}

// restore writes what the view has under the key of a record: nothing, if it has none.
func (c *Coordinator) restore(ctx context.Context, of record) error {
	key, _, err := encodeRecord(of)
	if err != nil {
		return fmt.Errorf("state topic: encode: %w", err)
	}
	return c.act(ctx, of.coordinatorKey(), func() error {
		// It may have been written meanwhile, by whatever changed it.
		if !c.store.foreign.has(key) {
			return nil
		}
		// What a newer sidecar has written is not known here: what was known before is not the truth.
		if err := c.store.misread.errOf(key); err != nil {
			return err
		}
		of.value = c.view.valueOf(of)
		return c.store.Put(ctx, of)
	})
}

// valueOf returns what is known under a record's key, nil if nothing is.
func (v *View) valueOf(r record) any {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var value any
	var ok bool
	switch r.kind {
	case kindMirror:
		value, ok = lookup(v.mirrors, r.mirror)
	case kindTopic:
		value, ok = lookup(v.topics, r.topic)
	case kindState:
		value, ok = lookup(v.states, r.partition)
	case kindLineage:
		value, ok = lookup(v.lineages, r.partition)
	case kindOwned:
		value, ok = lookup(v.owned, r.owned)
	}
	if !ok {
		return nil
	}
	return value
}

func lookup[K comparable, V any](m map[K]V, k K) (any, bool) {
	value, ok := m[k]
	return value, ok
}
