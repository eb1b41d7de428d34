package placement

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/controller"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// watch follows the metadata log and measures how long partitions of ordinary topics are on
// virtual brokers.
type watch struct {
	img    *metadata.Image
	mirror func(topic string) bool

	mu    sync.Mutex // guards the following
	since map[ids.TopicPartition]time.Time
	alone map[string]int // partitions without a real replica, by topic
	ended map[string][]time.Duration
}

// watchPlacement follows until the test ends. mirror tells which topics are mirrors'.
func (e *env) watchPlacement(t *testing.T, mirror func(topic string) bool) *watch {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	ctl, err := controller.New(e.dst.Cluster.ControllerBootstrap(), nil, log)
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{
		img: metadata.NewImage(stack.VirtualOffset), mirror: mirror,
		since: map[ids.TopicPartition]time.Time{}, alone: map[string]int{}, ended: map[string][]time.Duration{},
	}
	cancelSub := w.img.Subscribe(w.changed)
	o := metadata.NewObserver(metadata.ObserverConfig{ClusterID: e.dst.Cluster.ID(), ReplicaID: -1}, w.img, ctl, log)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- o.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		cancelSub()
		ctl.Close()
	})
	select {
	case <-o.CaughtUp():
	case err := <-done:
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("the metadata log was not read")
	}
	return w
}

func (w *watch) changed(d metadata.Delta) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, tp := range d.Partitions {
		p := w.img.Partition(tp)
		if p == nil || w.mirror(p.Topic) {
			continue
		}
		since, on := w.since[tp]
		switch now := slices.ContainsFunc(p.Replicas, isVirtual); {
		case now && !on:
			w.since[tp] = time.Now()
			if len(real(p.Replicas)) == 0 {
				w.alone[p.Topic]++
			}
		case !now && on:
			delete(w.since, tp)
			w.ended[p.Topic] = append(w.ended[p.Topic], time.Since(since))
		}
	}
}

// report tells how long it took, and how many partitions were there, without a real replica, and
// are still.
func (w *watch) report(t *testing.T) (landed, alone int, longest time.Duration) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []time.Duration
	for topic, took := range w.ended {
		all = append(all, took...)
		t.Logf("%s: %d partitions were on virtual brokers, %d without a real replica, for at most %v", topic, len(took), w.alone[topic], slices.Max(took).Round(time.Millisecond))
		alone += w.alone[topic]
	}
	if len(all) == 0 {
		return 0, 0, 0
	}
	slices.Sort(all)
	t.Logf("%d partitions in all: half of them for less than %v, the longest for %v", len(all), all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
	return len(all), alone, all[len(all)-1]
}
