package replica

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/batch/batchtest"
	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/lineage"
	"github.com/cluster-mirroring/mirror-sidecar/replica/internal/scripted"
	"github.com/cluster-mirroring/mirror-sidecar/replica/leading"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// onRecord is a state that keeps one lineage.
type onRecord struct {
	*wishRig
	rec     lineage.Record
	consent leading.Consent
	writes  int
}

func (k *onRecord) ReadLineage(context.Context, string, ids.TopicPartition, int32) (lineage.Record, leading.Consent, error) {
	return k.rec, k.consent, nil
}

func (k *onRecord) WriteLineage(_ context.Context, _ string, _ ids.TopicPartition, _ int32, rec lineage.Record) error {
	k.rec, k.writes = rec, k.writes+1
	return nil
}

func (k *onRecord) Link(context.Context, string, ids.TopicPartition) (lineage.Link, bool, error) {
	return lineage.Link{}, false, nil
}

// TestR21WrittenIsOnRecord: a virtual replica that gets ready to follow a real leader puts on
// record that clients have written there, also if its chain is on record from when they had not.
func TestR21WrittenIsOnRecord(t *testing.T) {
	r := newWishRig(t)
	k := &onRecord{wishRig: r, rec: lineage.NewRecord().With(0, lineage.Chain{{Epoch: 0, SourceEpoch: 0, Start: 0}})}
	r.m.state = k
	var end atomic.Int64
	broker, err := scripted.Listen("127.0.0.1:0", nil, func(req kmsg.Request) kmsg.Response {
		switch req := req.(type) {
		case *kmsg.FetchRequest:
			resp := req.ResponseKind().(*kmsg.FetchResponse)
			rt, rp := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
			rt.Topic, rt.TopicID, rp.HighWatermark, rp.RecordBatches = req.Topics[0].Topic, req.Topics[0].TopicID, 100, batchtest.Plain(0, 100)
			rt.Partitions = append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
			return resp
		case *kmsg.ListOffsetsRequest:
			resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
			rt, rp := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
			rt.Topic = req.Topics[0].Topic
			if rp.Offset = 0; req.Topics[0].Partitions[0].Timestamp == -1 {
				rp.Offset = 100
			}
			rt.Partitions = append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
			return resp
		case *kmsg.OffsetForLeaderEpochRequest:
			resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
			rt, rp := kmsg.NewOffsetForLeaderEpochResponseTopic(), kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rt.Topic = req.Topics[0].Topic
			rp.LeaderEpoch, rp.EndOffset, _ = cacheAsk([]cached{{0, 0}, {4, 100}}, end.Load())(req.Topics[0].Partitions[0].LeaderEpoch)
			rt.Partitions = append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
			return resp
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	host, port, _ := net.SplitHostPort(broker.Addr())
	n, _ := strconv.Atoi(port)
	img := &metadata.Partition{Topic: "t", TopicID: r.tp.TopicID, Leader: 2, LeaderEpoch: 4, Replicas: []int32{wishSelf, 2}, ISR: []int32{2}}
	r.m.image.Set([]*metadata.Partition{img}, []metadata.Broker{{ID: 2, Epoch: 12, Endpoints: []metadata.Endpoint{{Name: "INTERNAL", Host: host, Port: uint16(n)}}}}, nil)
	r.m.calls = NewBrokers(r.m.image, "INTERNAL", nil)
	t.Cleanup(r.m.calls.Close)
	runs := leading.Consent{Runs: true}
	for i, c := range []struct {
		end     int64
		consent leading.Consent
		written bool
		writes  int
	}{
		{100, runs, false, 1},
		{100, runs, false, 1},
		{110, leading.Consent{}, false, 1}, // the topic is not mirrored yet: a start, a failback
		{110, leading.Consent{AsItIs: true}, true, 2},
		{110, runs, true, 2},
	} {
		end.Store(c.end)
		k.consent = c.consent
		f := &follower{epoch: 4}
		if err := r.m.prepare(t.Context(), r.p, img, f); err != nil {
			t.Fatal(err)
		}
		if f.behind != c.written || k.rec.Written[4] != c.written || k.writes != c.writes || len(k.rec.Chains[4]) != 2 {
			t.Errorf("R21 %d, log end %d: behind %t, %d writes, %+v", i, c.end, f.behind, k.writes, k.rec)
		}
	}
}
