package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// lifeLogStart deletes records at the source, first some that are mirrored, then some that
// are not.
func lifeLogStart(t *testing.T, e *env) {
	m := e.mirrored(t, "c4-41", 1, 100)
	e.deleteAtSource(t, m, 40)
	e.waitStarts(t, m, 40)
	e.write(t, m, 1, 10)
	e.copied(t, m)

	const moves = `kafka_mirror_position_moves_total{detail="RECORDS_LOST"}`
	before := metric(t, e.dst, moves)
	e.do(t, vPause, m, m)
	e.waitState(t, m, paused, m)
	e.write(t, m, 1, 50)
	e.write(t, m, 1, 20)
	e.deleteAtSource(t, m, 160)
	e.do(t, vResume, m, m)
	eventually(t, "the loss is described", func(context.Context) error {
		p := e.partition(t, m, m, 0)
		if said := text(p.ErrorMessage); p.State != mirroring || text(p.Detail) != "RECORDS_LOST" || !strings.Contains(said, "110") || !strings.Contains(said, "160") {
			return fmt.Errorf("state %d, %q, %q", p.State, text(p.Detail), said)
		}
		return nil
	})
	if after := metric(t, e.dst, moves); after != before+1 {
		t.Errorf("%s went from %v to %v", moves, before, after)
	}
	e.write(t, m, 1, 10)
	e.copied(t, m)
	e.waitStarts(t, m, 160)
	e.equal(t, m)
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

// waitStarts returns when the log starts there on each real broker.
func (e *env) waitStarts(t *testing.T, topic string, want int64) {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -2 // a debugging consumer, which followers answer
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.CurrentLeaderEpoch, rp.Timestamp = -1, -2
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	eventually(t, fmt.Sprintf("the replicas of %s start at %d", topic, want), func(ctx context.Context) error {
		for _, n := range e.dst.Cluster.Brokers() {
			resp, err := e.dstClient.Broker(int(n.ID())).Request(ctx, req)
			if err != nil {
				return err
			}
			got := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
			if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
				return fmt.Errorf("broker %d: %w", n.ID(), err)
			}
			if got.Offset != want {
				return fmt.Errorf("broker %d starts at %d", n.ID(), got.Offset)
			}
		}
		return nil
	})
}
