package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
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
	all := fuzzedProxies(f)
	proxies := [2]*Proxy{all[0], all[2]}
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
	seed(false, handshakeOf("SCRAM-SHA-256"), kmsg.NewPtrSASLHandshakeResponse())
	seed(true, tokenOf([]byte("n,,n=alice")), &kmsg.SASLAuthenticateResponse{SASLAuthBytes: []byte("r=")})
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
		raw := append([]byte{0, 0, 0, 0}, body...)
		var ex exchange
		var err error
		took := allocated(func() { ex, err = row.handle(c, &request{header: h, raw: raw, body: raw[sizeLen:]}) })
		if most := allocatedFor(len(body)); took > most {
			t.Errorf("%d bytes of a request had %d allocated, at most %d", len(body), took, most)
		}
		if err != nil {
			return
		}
		if len(ex.send) > 0 && &ex.send[0] != &raw[0] {
			sentIsReadable(t, p, key, ex.send)
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

// sentIsReadable checks a request that was made here: a broker can read it, and as what was meant.
func sentIsReadable(t *testing.T, p *Proxy, key int16, frame []byte) {
	t.Helper()
	h, err := parseHeader(frame[sizeLen:], p.flex.flexible)
	if err != nil || h.key != key || int(binary.BigEndian.Uint32(frame)) != len(frame)-sizeLen {
		t.Fatalf("a request of %d bytes with a header %+v, %v", len(frame), h, err)
	}
	req := kmsg.RequestForKey(key)
	req.SetVersion(h.version)
	body := frame[sizeLen+h.size:]
	if err := req.ReadFrom(slices.Clone(body)); err != nil {
		t.Fatalf("a request that nobody can read: %v", err)
	}
	if !bytes.Equal(req.AppendTo(nil), body) {
		t.Error("a request that is read as something else")
	}
}
