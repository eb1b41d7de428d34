package proxy

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/readonly"
)

// FuzzHandlers gives every handler of the table whatever a client may send, and its
// transform whatever a broker may answer: neither may panic, and what is answered here
// can be written.
func FuzzHandlers(f *testing.F) {
	view := newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart(stateTopic, topicID(7), 0), ordinaryPart("o", topicID(2), 0))
	leaders := NewLeaders(view, testVirtual)
	defer leaders.Close()
	fences := NewFences(time.Now)
	_, _ = fences.Fence([]string{"o"}, time.Hour)
	var proxies [2]*Proxy
	for i := range proxies {
		p, err := New(
			Config{IDs: testVirtual, Home: 1, Virtual: i == 1, Dial: Dialer(func() []string { return nil }, nil)},
			Deps{
				View: view, Leaders: leaders, Fences: fences, Replica: &fakeReplica{}, Configs: &fakeConfigs{}, Coordinators: fakeCoordinators{},
				Mirrors: fakeMirrors{of: map[ids.UUID]string{topicID(1): "dr"}}, Log: slog.New(slog.DiscardHandler),
			})
		if err != nil {
			f.Fatal(err)
		}
		proxies[i] = p
	}
	ended, end := context.WithCancelCause(context.Background())
	end(errors.New("nobody to ask"))

	seed := func(virtual bool, req kmsg.Request, resp kmsg.Response) {
		resp.SetVersion(req.GetVersion())
		f.Add(req.Key(), req.GetVersion(), virtual, req.AppendTo(nil), resp.AppendTo(nil))
	}
	describe := &kmsg.DescribeConfigsRequest{Version: 1, Resources: []kmsg.DescribeConfigsRequestResource{
		{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "m"}, {ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "10001"},
	}}
	seed(true, describe, &kmsg.DescribeConfigsResponse{Resources: []kmsg.DescribeConfigsResponseResource{describedByBroker(describe.Resources[0], true)}})
	seed(false, &kmsg.IncrementalAlterConfigsRequest{Resources: []kmsg.IncrementalAlterConfigsRequestResource{
		{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "m", Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "mirror.name"}}},
		{ResourceType: readonly.MirrorResource, ResourceName: "dr"},
		{ResourceName: "x"},
	}}, kmsg.NewPtrIncrementalAlterConfigsResponse())
	for _, version := range []int16{4, 12, 18} {
		fetch := fetchOf(version, -1, stateTopic, "o")
		seed(false, fetch, refuseFetch(fetch, func(ids.UUID, string, *kmsg.FetchResponseTopicPartition) int16 { return 0 }))
	}
	seed(false, &kmsg.ShareFetchRequest{Version: 1, Topics: []kmsg.ShareFetchRequestTopic{{TopicID: topicID(7)}}}, kmsg.NewPtrShareFetchResponse())
	seed(false, &kmsg.FindCoordinatorRequest{Version: 4, CoordinatorType: 3, CoordinatorKeys: []string{"known"}}, kmsg.NewPtrFindCoordinatorResponse())
	seed(false, produceRequest(9, -1, "o", 0), kmsg.NewPtrProduceResponse())
	for _, id := range []string{"mirror-state-1", "x"} {
		seed(false, &kmsg.AddPartitionsToTxnRequest{Version: 3, TransactionalID: id, Topics: []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "o", Partitions: []int32{0}}}}, kmsg.NewPtrAddPartitionsToTxnResponse())
		seed(false, &kmsg.InitProducerIDRequest{Version: 5, TransactionalID: &id}, kmsg.NewPtrInitProducerIDResponse())
		seed(true, &kmsg.TxnOffsetCommitRequest{Version: 3, TransactionalID: id, Topics: []kmsg.TxnOffsetCommitRequestTopic{{Topic: "o"}}}, kmsg.NewPtrTxnOffsetCommitResponse())
	}
	seed(false, &kmsg.ListOffsetsRequest{Version: 1, ReplicaID: -2, Topics: []kmsg.ListOffsetsRequestTopic{{Topic: stateTopic}}}, kmsg.NewPtrListOffsetsResponse())
	seed(false, &kmsg.OffsetForLeaderEpochRequest{Version: 3, ReplicaID: -1, Topics: []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: stateTopic}}}, kmsg.NewPtrOffsetForLeaderEpochResponse())

	f.Fuzz(func(t *testing.T, key, version int16, virtual bool, body, response []byte) {
		p := proxies[0]
		if virtual {
			p = proxies[1]
		}
		row := p.rows[key]
		if row == nil || row.handle == nil || version < 0 || version > row.max {
			return
		}
		// Nobody answers questions here: a caller is known not to be allowed, or the handler
		// gives up.
		c := &conn{
			p: p, ctx: ended, log: p.log, queue: make(chan exchange, 4), out: newUpstreamReader(nil),
			stateRights: stateRights{until: time.Now().Add(time.Hour)},
		}
		c.authority.authenticated.Store(true)
		h := header{key: key, version: version, correlation: 1}
		ex, err := row.handle(c, &request{header: h, raw: append([]byte{0, 0, 0, 0}, body...), body: body})
		if err != nil {
			return
		}
		if ex.transform != nil {
			if resp, err := ex.transform(response); err == nil && resp != nil {
				appendResponse(nil, resp, 1)
			}
		}
		if ex.answer != nil && ex.converse == nil {
			if _, err := ex.answer(ended); err != nil && !virtual { // the fake replica has no script
				t.Errorf("answer: %v", err)
			}
		}
	})
}
