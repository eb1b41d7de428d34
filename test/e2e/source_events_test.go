package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// TestSourceEvents is what a source does that a mirror has to follow, or must not.
func TestSourceEvents(t *testing.T) {
	e := start(t, destination(harness.Version44, 2))
	const mirror = "events"
	e.createMirror(t, mirror)
	t.Run("log start", func(t *testing.T) { e.testLogStart(t, mirror) })
	t.Run("deleted while paused", func(t *testing.T) { e.testDeletedWhilePaused(t, mirror) })
	t.Run("deleted while the sidecars are down", func(t *testing.T) { e.testDeletedWhileDown(t, mirror) })
	t.Run("created anew", func(t *testing.T) { e.testCreatedAnew(t, mirror) })
}

// deleteAtSource moves the source's log start.
func (e *env) deleteAtSource(t *testing.T, topic string, to int64) {
	t.Helper()
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, to, -1)
	r, err := e.srcAdmin.DeleteRecords(t.Context(), offsets)
	if err == nil {
		err = r.Error()
	}
	if err != nil {
		t.Fatalf("delete records of %s: %v", topic, err)
	}
}

// starts gives the log starts of partition 0 of a topic on each real broker.
func (e *env) starts(ctx context.Context, topic string) (map[int32]int64, error) {
	out := map[int32]int64{}
	for _, n := range e.dst.Cluster.Brokers() {
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -2 // a debugging consumer, which followers answer
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.CurrentLeaderEpoch, rp.Timestamp = -1, -2
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := e.dstClient.Broker(int(n.ID())).Request(ctx, req)
		if err != nil {
			return nil, err
		}
		got := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
			return nil, err
		}
		out[n.ID()] = got.Offset
	}
	return out, nil
}

func (e *env) waitStarts(t *testing.T, topic string, want int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("the replicas of %s start at %d", topic, want), func(ctx context.Context) error {
		got, err := e.starts(ctx, topic)
		if err != nil {
			return err
		}
		for broker, start := range got {
			if start != want {
				return fmt.Errorf("broker %d starts at %d", broker, start)
			}
		}
		return nil
	})
}

// sameFrom compares the logs of partition 0 of a topic with the source's from start on.
func (e *env) sameFrom(t *testing.T, topic string, start int64) {
	t.Helper()
	e.sameReplicas(t, topic)
	want, err := rawLog(e.src.Brokers()[0], topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range e.dst.Cluster.Brokers() {
		got, err := rawLog(n, topic, 0)
		if err != nil {
			t.Error(err)
			continue
		}
		var tag int64
		if err := compareLogs(from(want, start), from(got, start), true, &tag); err != nil {
			t.Errorf("%s on broker %d: %v", topic, n.ID(), err)
		}
	}
}

// from drops the batches that end below start.
func from(log []rawBatch, start int64) []rawBatch {
	for len(log) > 0 && log[0].LastOffset < start {
		log = log[1:]
	}
	return log
}

func (e *env) testLogStart(t *testing.T, mirror string) {
	const topic = "log-start"
	producer := e.writer(t, e.src.Bootstrap(harness.ListenerInternal))
	e.createSource(t, 1, topic, "retention.ms", "-1")
	write(t, producer, topic, 1, 100, "first")
	e.mirrorTopics(t, mirror, topic)
	e.waitMirrored(t, topic)
	e.deleteAtSource(t, topic, 40)
	e.waitStarts(t, topic, 40)
	write(t, producer, topic, 1, 10, "more")
	e.waitMirrored(t, topic)
	e.waitState(t, mirror, stateMirroring, topic)
}

// testDeletedWhilePaused: what was not mirrored is deleted, in the middle of a batch.
func (e *env) testDeletedWhilePaused(t *testing.T, mirror string) {
	const topic = "hole"
	producer := e.writer(t, e.src.Bootstrap(harness.ListenerInternal))
	e.createSource(t, 1, topic, "retention.ms", "-1")
	write(t, producer, topic, 1, 100, "first")
	e.mirrorTopics(t, mirror, topic)
	e.waitMirrored(t, topic)
	e.pause(t, mirror, topic)
	write(t, producer, topic, 1, 100, "lost in part")
	e.deleteAtSource(t, topic, 150)
	before := e.counters(t)
	e.resume(t, mirror, topic)
	e.waitHole(t, mirror, topic, 150)
	const moved = `kafka_mirror_position_moves_total{detail="RECORDS_LOST"}`
	if after := e.counters(t); after[moved] != before[moved]+1 {
		t.Errorf("%s went from %v to %v", moved, before[moved], after[moved])
	}
	write(t, producer, topic, 1, 10, "more")
	e.waitMirrored(t, topic)
	e.waitStarts(t, topic, 150)
	e.sameFrom(t, topic, 150)
}

// testDeletedWhileDown: the same, found by a takeover, at a batch's start.
func (e *env) testDeletedWhileDown(t *testing.T, mirror string) {
	const topic = "hole-takeover"
	producer := e.writer(t, e.src.Bootstrap(harness.ListenerInternal))
	e.createSource(t, 1, topic, "retention.ms", "-1")
	write(t, producer, topic, 1, 100, "first")
	e.mirrorTopics(t, mirror, topic)
	e.waitMirrored(t, topic)
	for _, c := range e.dst.Sidecars {
		if err := c.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	write(t, producer, topic, 1, 50, "lost")
	write(t, producer, topic, 1, 50, "kept")
	e.deleteAtSource(t, topic, 150)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.dst.StartSidecars(ctx); err != nil {
		t.Fatal(err)
	}
	e.waitHole(t, mirror, topic, 150)
	e.waitMirrored(t, topic)
	e.waitStarts(t, topic, 150)
	e.sameFrom(t, topic, 150)
}

// waitHole returns when describe says which records were lost.
func (e *env) waitHole(t *testing.T, mirror, topic string, to int64) {
	t.Helper()
	eventually(t, "the hole is described", func(ctx context.Context) error {
		d, err := e.describe(ctx, mirror)
		if err != nil {
			return err
		}
		if len(d[topic]) == 0 {
			return errors.New("not described")
		}
		if p := d[topic][0]; p.State != stateMirroring || text(p.Detail) != "RECORDS_LOST" || !strings.Contains(text(p.ErrorMessage), fmt.Sprint(to)) {
			return fmt.Errorf("state %d, %q, %q", p.State, text(p.Detail), text(p.ErrorMessage))
		}
		return nil
	})
}

// testCreatedAnew: a topic of the same name is another one. Nothing of the mirror may go for
// it, by whom it is led and whatever the new one holds.
func (e *env) testCreatedAnew(t *testing.T, mirror string) {
	const topic = "anew"
	producer := e.writer(t, e.src.Bootstrap(harness.ListenerInternal))
	e.createSource(t, 1, topic, "retention.ms", "-1")
	write(t, producer, topic, 1, 100, "first")
	e.mirrorTopics(t, mirror, topic)
	e.waitMirrored(t, topic)
	had := e.logs(t, topic)
	if r, err := e.srcAdmin.DeleteTopic(t.Context(), topic); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	eventually(t, "created anew", func(ctx context.Context) error {
		r, err := e.srcAdmin.CreateTopic(ctx, 1, 1, nil, topic)
		if err == nil && !errors.Is(r.Err, kerr.TopicAlreadyExists) {
			err = r.Err
		}
		return err
	})
	write(t, e.writer(t, e.src.Bootstrap(harness.ListenerInternal)), topic, 1, 10, "another topic")
	failed := func(when string) {
		t.Helper()
		eventually(t, "FAILED "+when, func(ctx context.Context) error {
			d, err := e.describe(ctx, mirror)
			if err != nil {
				return err
			}
			if len(d[topic]) == 0 {
				return errors.New("not described")
			}
			if p := d[topic][0]; p.State != stateFailed || !strings.Contains(text(p.ErrorMessage), "created anew") {
				return fmt.Errorf("state %d, %q", p.State, text(p.ErrorMessage))
			}
			return nil
		})
		e.unchanged(t, had, topic)
	}
	failed("while led")
	before := e.topicT(t, topic).Partitions[0]
	if err := e.dst.Sidecar(before.Leader - stack.VirtualOffset).Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another leader", func(ctx context.Context) error {
		d, err := e.topic(ctx, topic)
		if p := d.Partitions[0]; err == nil && (p.LeaderEpoch <= before.LeaderEpoch || p.Leader < stack.VirtualOffset) {
			err = fmt.Errorf("epoch %d, leader %d", p.LeaderEpoch, p.Leader)
		}
		return err
	})
	failed("after a takeover")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.dst.StartSidecars(ctx); err != nil {
		t.Fatal(err)
	}
	// Trying again changes nothing.
	req := protocol.NewRecoverMirrorTopicsRequest()
	req.MirrorName, req.Topics = mirror, []string{topic}
	e.verb(t, &req)
	failed("after recover")
}

// TestSourceUncleanElection: a stale source broker is elected, and the mirror follows it
// back to where the two logs part.
func TestSourceUncleanElection(t *testing.T) {
	e := startFrom(t, harness.Config{
		Brokers: 2, Controllers: 1,
		Properties: map[string]string{"default.replication.factor": "2", "offsets.topic.replication.factor": "2"},
	}, destination(harness.Version44, 2))
	const mirror, topic = "unclean", "unclean"
	createTopic(t, e.srcClient, 1, 2, topic, "unclean.leader.election.enable", "true", "min.insync.replicas", "1", "retention.ms", "-1")
	producer := e.writer(t, e.src.Bootstrap(harness.ListenerInternal))
	write(t, producer, topic, 1, 100, "both have")
	e.createMirror(t, mirror)
	e.mirrorTopics(t, mirror, topic)
	e.waitMirrored(t, topic)

	leader := e.sourceLeader(t, topic)
	var stale *harness.Node
	for _, n := range e.src.Brokers() {
		if n.ID() != leader {
			stale = n
		}
	}
	ahead := e.src.Node(leader)
	if err := stale.Kill(); err != nil {
		t.Fatal(err)
	}
	write(t, producer, topic, 1, 50, "one has")
	e.waitMirrored(t, topic)
	if err := ahead.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if err := stale.Launch(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stale broker leads", func(ctx context.Context) error {
		d, err := e.srcAdmin.ListTopics(ctx, topic)
		if err != nil {
			return err
		}
		if d[topic].Partitions[0].Leader == stale.ID() {
			return nil
		}
		set := kadm.TopicsSet{}
		set.Add(topic, 0)
		_, err = e.srcAdmin.ElectLeaders(ctx, kadm.ElectLiveReplica, set)
		return errors.Join(errors.New("not yet"), err)
	})
	write(t, producer, topic, 1, 70, "written instead")
	if err := ahead.Start(ctx); err != nil {
		t.Fatal(err)
	}
	e.waitMirrored(t, topic)
	for _, p := range e.src.Brokers() {
		if err := waitLogEnd(t.Context(), p, topic, 170); err != nil {
			t.Error(err)
		}
	}
	e.sameReplicas(t, topic)
	e.sameAsSource(t, topic)
	eventually(t, "the truncation is described", func(ctx context.Context) error {
		d, err := e.describe(ctx, mirror)
		if err != nil {
			return err
		}
		for _, p := range d[topic] {
			if p.State != stateMirroring || text(p.Detail) != "TRUNCATED" || !strings.Contains(text(p.ErrorMessage), "100 to 149") {
				return fmt.Errorf("state %d, %q, %q", p.State, text(p.Detail), text(p.ErrorMessage))
			}
		}
		return nil
	})
	write(t, producer, topic, 1, 10, "and on")
	e.waitMirrored(t, topic)
	e.sameReplicas(t, topic)
}

// sourceLeader returns the leader of partition 0.
func (e *env) sourceLeader(t *testing.T, topic string) int32 {
	t.Helper()
	leader := int32(-1)
	eventually(t, "a leader of "+topic, func(ctx context.Context) error {
		d, err := e.srcAdmin.ListTopics(ctx, topic)
		if err != nil {
			return err
		}
		if leader = d[topic].Partitions[0].Leader; leader < 0 {
			return fmt.Errorf("led by %d", leader)
		}
		return nil
	})
	return leader
}

func waitLogEnd(ctx context.Context, n *harness.Node, topic string, want int64) error {
	return harness.Await(ctx, 30*time.Second, func(context.Context) error {
		log, err := n.ReadLog(topic, 0)
		if err == nil && log.EndOffset() != want {
			err = fmt.Errorf("%s on %s ends at %d, want %d", topic, n, log.EndOffset(), want)
		}
		return err
	})
}
