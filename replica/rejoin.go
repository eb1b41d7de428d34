package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A virtual broker may be unregistered by somebody else: by hand, or by an operator that removes
// every broker id that is not its own, as Strimzi does from 0.48 on. The controllers have then
// elected others, and by the broker's own log nothing is led here any more, so it just registers
// again, as a fresh incarnation. Only another process that has registered the id ends it.

const (
	// contestedWithin and contestedAfter: as often within that time, somebody does it on purpose.
	contestedWithin = 10 * time.Minute
	contestedAfter  = 2
)

// lose notes that the registration is gone.
func (b *Broker) lose(how string) {
	now := time.Now()
	b.mu.Lock()
	if b.away || b.life.Err() != nil {
		b.mu.Unlock()
		return
	}
	b.away, b.former, b.epoch = true, b.epoch, -1
	b.seen, b.ackFenced, b.ackShutdown = false, true, false
	b.ack = heartbeat{n: b.ack.n}
	clear(b.windows) // a registration resets the cordon
	b.lost++
	b.losses = append(b.losses, now)
	if len(b.losses) > contestedAfter {
		b.losses = b.losses[len(b.losses)-contestedAfter:]
	}
	b.notifyLocked()
	b.mu.Unlock()
	b.log.Warn("somebody has unregistered the virtual broker, it registers again", "how", how, "again_in", b.cfg.RejoinDelay)
	if err := b.Contested(); err != nil {
		b.log.Error("the virtual broker is not left alone", "error", err)
	}
	b.beatNow()
}

// Contested tells that the broker was unregistered twice within ten minutes: somebody does not want it.
func (b *Broker) Contested() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.losses) < contestedAfter || time.Since(b.losses[0]) > contestedWithin {
		return nil
	}
	return fmt.Errorf("virtual broker %d was unregistered %d times within %v by somebody else, last at %s: whatever removes broker ids that it does not know (Strimzi does from 0.48 on) must be told to leave this id alone",
		b.id, contestedAfter, contestedWithin, b.losses[len(b.losses)-1].UTC().Format(time.RFC3339))
}

// rejoin registers anew if the registration is gone, and returns when it is back, or nothing is
// to be done. An error is final.
func (b *Broker) rejoin(ctx context.Context) error {
	b.mu.Lock()
	away := b.away
	b.mu.Unlock()
	if !away {
		return nil
	}
	for {
		// Whoever has unregistered this id to register it himself goes first.
		if !pauseFor(ctx, b.cfg.RejoinDelay) {
			return nil
		}
		err := b.registerAgain(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			return nil //nolint:nilerr // whoever ended ctx knows why
		case errors.Is(err, ErrUnregistered), errors.Is(err, ErrIDTaken), errors.Is(err, ErrClusterTooOld), errors.Is(err, ErrSidecarTooOld), errors.Is(err, ErrWrongCluster):
			return err
		}
		b.complain(fmt.Errorf("registration: %w", err))
	}
}

// pauseFor waits, and tells whether ctx lived on.
func pauseFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (b *Broker) registerAgain(ctx context.Context) error {
	b.mu.Lock()
	former, sent := b.former, b.sent
	b.mu.Unlock()
	// The log says what became of the registration. Should it lag, the controllers refuse the id
	// if it is taken.
	look, cancel := context.WithTimeout(ctx, b.cfg.SessionTimeout)
	_ = b.img.Wait(look, func() bool {
		reg, ok := b.img.Broker(b.id)
		return !ok || reg.Epoch != former
	})
	cancel()
	if reg, ok := b.img.Broker(b.id); ok && reg.Epoch > former && reg.Incarnation != sent {
		return fmt.Errorf("%w: the metadata log shows broker %d registered by another process", ErrUnregistered, b.id)
	}
	cluster, err := b.ctl.Describe(ctx)
	if err != nil {
		return err
	}
	if b.cfg.ClusterID != "" && cluster.ID != b.cfg.ClusterID {
		return fmt.Errorf("%w: the controllers belong to cluster %q, expected %q", ErrWrongCluster, cluster.ID, b.cfg.ClusterID)
	}
	features, err := b.features(cluster)
	if err != nil {
		return err
	}
	if err := b.register(ctx, cluster, features, false); err != nil {
		return err
	}
	b.mu.Lock()
	b.away, b.fresh = false, true
	b.notifyLocked()
	b.mu.Unlock()
	b.registrationMoved()
	return nil
}

// Describe implements prometheus.Collector.
func (b *Broker) Describe(ch chan<- *prometheus.Desc) {
	ch <- unregisteredMetric()
	ch <- contestedMetric()
}

// Collect implements prometheus.Collector.
func (b *Broker) Collect(ch chan<- prometheus.Metric) {
	b.mu.Lock()
	lost := b.lost
	b.mu.Unlock()
	contested := 0.0
	if b.Contested() != nil {
		contested = 1
	}
	ch <- prometheus.MustNewConstMetric(unregisteredMetric(), prometheus.CounterValue, float64(lost))
	ch <- prometheus.MustNewConstMetric(contestedMetric(), prometheus.GaugeValue, contested)
}

func unregisteredMetric() *prometheus.Desc {
	return prometheus.NewDesc("kafka_mirror_virtual_broker_unregistered_total",
		"Times somebody else has unregistered this sidecar's virtual broker.", nil, nil)
}

func contestedMetric() *prometheus.Desc {
	return prometheus.NewDesc("kafka_mirror_virtual_broker_contested",
		"1 if the virtual broker was unregistered by somebody else twice within ten minutes.", nil, nil)
}
