package conformance

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// atVirtualBroker: who comes around the proxies lands at the listener where the virtual broker that
// leads is registered, and reads, or is refused with the same words. Package test/consumers compares
// what it reads with what the source answers, version by version.
func atVirtualBroker(t *testing.T, e *env) {
	const count = 7
	name := e.mirrored(t, "a7-3", 1, count)
	here := e.here(t, name)
	c := e.dst.Sidecar(here.Partitions[0].Leader - stack.VirtualOffset)
	if c == nil {
		t.Fatalf("%s is led by %d", name, here.Partitions[0].Leader)
	}
	fetch := func(version int16) kmsg.FetchResponseTopicPartition {
		versions := kversion.Stable()
		versions.SetMaxKeyVersion(int16(kmsg.Fetch), version)
		cl := newClient(t, []string{c.Virtual}, kgo.MaxVersions(versions))
		req := kmsg.NewPtrFetchRequest()
		req.MaxBytes, req.SessionEpoch = 1<<20, -1
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic, rt.TopicID = name, here.ID
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.PartitionMaxBytes = 1 << 20
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		resp, err := cl.SeedBrokers()[0].Request(ctx, req)
		if err != nil {
			t.Fatalf("Fetch v%d: %v", version, err)
		}
		return resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	}
	for _, version := range []int16{4, 10} {
		if p := fetch(version); p.ErrorCode != 0 || p.HighWatermark != count || len(p.RecordBatches) == 0 {
			t.Errorf("Fetch v%d, which cannot be sent elsewhere: error %d, high watermark %d, %d bytes", version, p.ErrorCode, p.HighWatermark, len(p.RecordBatches))
		}
	}
	for _, version := range []int16{11, 13} {
		if p := fetch(version); p.ErrorCode != 0 || p.PreferredReadReplica < 0 || virtual(p.PreferredReadReplica) {
			t.Errorf("Fetch v%d: error %d, to be read from %d", version, p.ErrorCode, p.PreferredReadReplica)
		}
	}
	lr := kmsg.NewPtrListOffsetsRequest()
	lr.ReplicaID = -1
	lt := kmsg.NewListOffsetsRequestTopic()
	lt.Topic = name
	lp := kmsg.NewListOffsetsRequestTopicPartition()
	lp.Timestamp = -1
	lt.Partitions = append(lt.Partitions, lp)
	lr.Topics = append(lr.Topics, lt)
	if p := askAt[*kmsg.ListOffsetsResponse](t, c.Virtual, lr).Topics[0].Partitions[0]; p.ErrorCode != 0 || p.Offset != count {
		t.Errorf("ListOffsets: error %d, offset %d", p.ErrorCode, p.Offset)
	}
	er := kmsg.NewPtrOffsetForLeaderEpochRequest()
	er.ReplicaID = -1
	et := kmsg.NewOffsetForLeaderEpochRequestTopic()
	et.Topic = name
	ep := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	ep.LeaderEpoch = here.Partitions[0].LeaderEpoch
	et.Partitions = append(et.Partitions, ep)
	er.Topics = append(er.Topics, et)
	if p := askAt[*kmsg.OffsetForLeaderEpochResponse](t, c.Virtual, er).Topics[0].Partitions[0]; p.ErrorCode != 0 || p.EndOffset != count {
		t.Errorf("OffsetForLeaderEpoch: error %d, offset %d", p.ErrorCode, p.EndOffset)
	}
	dr := kmsg.NewPtrDeleteTopicsRequest()
	dr.TimeoutMillis = 5000
	dt := kmsg.NewDeleteTopicsRequestTopic()
	dt.Topic = &name
	dr.Topics, dr.TopicNames = append(dr.Topics, dt), []string{name}
	p := askAt[*kmsg.DeleteTopicsResponse](t, c.Virtual, dr).Topics[0]
	namesMirror(t, "a deletion", protocol.ErrorForCode(p.ErrorCode, p.ErrorMessage), name)
	w := askAt[*kmsg.ProduceResponse](t, c.Virtual, produceRequest(-1, nil, here)).Topics[0].Partitions[0]
	namesMirror(t, "a write", protocol.ErrorForCode(w.ErrorCode, w.ErrorMessage), name)
}

// shareGroups: who subscribes is told, at every sidecar, until the topic is stopped. Package test/consumers
// reads with Kafka's own share consumer.
func shareGroups(t *testing.T, e *env) {
	name := e.mirrored(t, "c2-19", 1, 3)
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.GroupID, req.MemberID, req.SubscribedTopicNames = "c2-19", "AAAAAAAAAAAAAAAAAAAAAQ", []string{name}
	subscribe := func(c *stack.Sidecar) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		resp, err := apiClient(t, c.Proxy).SeedBrokers()[0].Request(ctx, req)
		if err != nil {
			return err
		}
		r := resp.(*kmsg.ShareGroupHeartbeatResponse)
		return protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage)
	}
	for _, c := range e.dst.Sidecars {
		namesMirror(t, "a subscription of a share group", subscribe(c), name)
	}
	e.ended(t, name, name)
	for _, c := range e.dst.Sidecars {
		eventually(t, "the stopped topic is free for share groups", func(context.Context) error {
			// Whatever else a broker says that does not coordinate the group.
			if err := subscribe(c); errors.Is(err, kerr.PolicyViolation) {
				return err
			}
			return nil
		})
	}
}
