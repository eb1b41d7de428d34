package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// TestPause pauses a topic, kills the sidecars that lead it, then the source too, and goes on
// where it was.
func TestPause(t *testing.T) {
	e := start(t, destination(harness.Version44, 2))
	const mirror, topic, control = "pause", "paused", "control"
	const partitions = 2
	producer := e.writer(t, e.src.Bootstrap(harness.ListenerInternal))
	for _, name := range []string{topic, control} {
		e.createSource(t, partitions, name, "retention.ms", "-1")
		write(t, producer, name, partitions, 100, "first")
	}
	e.createMirror(t, mirror)
	e.mirrorTopics(t, mirror, topic, control)
	e.waitMirrored(t, topic, control)
	had, err := ends(t.Context(), e.dstAdmin, topic)
	if err != nil {
		t.Fatal(err)
	}

	e.pause(t, mirror, topic)
	// What the other topic gets shows that the paused one would have got its own by then.
	nothingCame := func(when string) {
		t.Helper()
		write(t, producer, topic, partitions, 50, when)
		write(t, producer, control, partitions, 50, when)
		e.waitMirrored(t, control)
		e.stays(t, topic, had, when)
	}
	nothingCame("while paused")
	if err := tryWrite(t.Context(), e.writer(t, e.dst.Proxies()), topic, partitions, 2, "local"); err == nil {
		t.Error("a paused topic takes writes")
	}
	e.inSync(t, topic)

	t.Run("another leader", func(t *testing.T) {
		e.replaceLeader(t, mirror, topic, func() {
			nothingCame("after a takeover")
		})
	})
	t.Run("another leader without a source", func(t *testing.T) {
		if err := e.src.Brokers()[0].Kill(); err != nil {
			t.Fatal(err)
		}
		e.replaceLeader(t, mirror, topic, func() { e.stays(t, topic, had, "without a source") })
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := e.src.Brokers()[0].Start(ctx); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("resume", func(t *testing.T) {
		write(t, producer, topic, partitions, 50, "before resume")
		before := e.counters(t)
		e.resume(t, mirror, topic)
		e.waitMirrored(t, topic, control)
		e.sameReplicas(t, topic, control)
		e.sameAsSource(t, topic)
		after := e.counters(t)
		for _, moved := range []string{`kafka_mirror_position_moves_total{detail="TRUNCATED"}`, `kafka_mirror_position_moves_total{detail="RECORDS_LOST"}`} {
			if after[moved] != before[moved] {
				t.Errorf("%s went from %v to %v", moved, before[moved], after[moved])
			}
		}
	})
	t.Run("stop", func(t *testing.T) {
		e.pause(t, mirror, topic)
		before := epochs(e.topicT(t, topic))
		e.stopTopics(t, mirror, topic)
		e.checkOrdinary(t, topic, before, nil)
		e.sameAsSource(t, topic)
		write(t, e.writer(t, e.dst.Proxies()), topic, partitions, 10, "local")
	})
}

// stays fails the test if a destination topic's ends are not as they were.
func (e *env) stays(t *testing.T, topic string, want map[int32]int64, when string) {
	t.Helper()
	got, err := ends(t.Context(), e.dstAdmin, topic)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s: %s ends at %v, it was paused at %v", when, topic, got, want)
	}
}

// inSync returns when every replica of a topic is in sync, and a virtual broker leads.
func (e *env) inSync(t *testing.T, topic string) {
	t.Helper()
	eventually(t, "all replicas of "+topic+" in sync", func(ctx context.Context) error {
		d, err := e.topic(ctx, topic)
		if err != nil {
			return err
		}
		for _, p := range d.Partitions.Sorted() {
			if len(p.ISR) != len(p.Replicas) || p.Leader < stack.VirtualOffset {
				return fmt.Errorf("%s-%d: replicas %v, in sync %v, leader %d", topic, p.Partition, p.Replicas, p.ISR, p.Leader)
			}
		}
		return nil
	})
}

// replaceLeader kills the sidecar that leads partition 0 and restarts a real follower: only
// a leader that answers lets that one in again. Then it calls check, and lets the sidecar
// come back.
func (e *env) replaceLeader(t *testing.T, mirror, topic string, check func()) {
	t.Helper()
	leader := e.topicT(t, topic).Partitions[0].Leader
	killed := e.dst.Sidecar(leader - stack.VirtualOffset)
	if killed == nil {
		t.Fatalf("%s is led by %d", topic, leader)
	}
	if err := killed.Kill(); err != nil {
		t.Fatal(err)
	}
	var taken int32
	eventually(t, "another virtual broker leads "+topic, func(ctx context.Context) error {
		d, err := e.topic(ctx, topic)
		if err != nil {
			return err
		}
		for _, p := range d.Partitions.Sorted() {
			if p.Leader < stack.VirtualOffset || p.Leader == leader {
				return fmt.Errorf("%s-%d is led by %d", topic, p.Partition, p.Leader)
			}
			taken = p.Leader
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	// Beside the dead sidecar, so that the new leader's own home is not disturbed.
	if err := e.dst.Cluster.Node(killed.Broker).Restart(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the restarted follower is in sync", func(ctx context.Context) error {
		d, err := e.topic(ctx, topic)
		if err != nil {
			return err
		}
		for _, p := range d.Partitions.Sorted() {
			if !slices.Contains(p.ISR, killed.Broker) {
				return fmt.Errorf("%s-%d: in sync %v", topic, p.Partition, p.ISR)
			}
		}
		return nil
	})
	e.waitState(t, mirror, statePaused, topic)
	if d := e.topicT(t, topic); d.Partitions[0].Leader != taken {
		t.Logf("%s is led by %d now, before by %d", topic, d.Partitions[0].Leader, taken)
	}
	check()
	if err := killed.Start(ctx); err != nil {
		t.Fatal(err)
	}
	e.inSync(t, topic)
}
