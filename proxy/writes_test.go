package proxy

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

func produceRequest(version, acks int16, topic string, partitions ...int32) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version = version
	req.Acks = acks
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	for _, p := range partitions {
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition = p
		rp.Records = []byte("records of " + topic)
		t.Partitions = append(t.Partitions, rp)
	}
	req.Topics = append(req.Topics, t)
	return req
}

// okProduce answers a Produce request with offset 100 everywhere.
func okProduce(req *kmsg.ProduceRequest) kmsg.Response {
	if req.Acks == 0 {
		return nil
	}
	resp := kmsg.NewPtrProduceResponse()
	for _, t := range req.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.BaseOffset = p.Partition, 100
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func brokerForWrites(t *testing.T) *fakeBroker {
	return startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
		switch r := req.(type) {
		case *kmsg.ProduceRequest:
			return okProduce(r)
		case *kmsg.MetadataRequest:
			return kmsg.NewPtrMetadataResponse()
		default:
			return req.ResponseKind()
		}
	}))
}

func produced(b *fakeBroker) []gotRequest {
	var out []gotRequest
	for _, r := range b.requests() {
		if r.key == int16(kmsg.Produce) {
			out = append(out, r)
		}
	}
	return out
}

func TestProduce(t *testing.T) {
	for _, version := range []int16{3, 8, 9, 10, 12, 13} {
		for name, tc := range map[string]struct {
			topics    map[string][]int32
			refused   int
			forwarded int
		}{
			"ordinary":     {map[string][]int32{"o": {0}}, 0, 1},
			"mirror":       {map[string][]int32{"m": {0}}, 1, 0},
			"both":         {map[string][]int32{"m": {0}, "o": {0}}, 1, 1},
			"by partition": {map[string][]int32{"m": {1, 0, 2}}, 1, 1},
			"state topic":  {map[string][]int32{stateTopic: {0}}, 1, 0},
		} {
			t.Run(name, func(t *testing.T) {
				view := newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart("m", topicID(1), 1),
					ordinaryPart("m", topicID(1), 2), ordinaryPart("o", topicID(2), 0), ordinaryPart(stateTopic, topicID(3), 0))
				b := brokerForWrites(t)
				s := setup{view: view}
				_, addr := s.start(t, b)
				req := kmsg.NewPtrProduceRequest()
				req.Version, req.Acks = version, -1
				for topic, parts := range tc.topics {
					req.Topics = append(req.Topics, produceRequest(version, -1, topic, parts...).Topics...)
				}
				for i := range req.Topics {
					req.Topics[i].TopicID, _ = view.Topic(req.Topics[i].Topic)
				}
				resp := dial(t, addr).ask(req).(*kmsg.ProduceResponse)
				refused := 0
				for i, rt := range resp.Topics {
					if rt.Topic != req.Topics[i].Topic && version < 13 || rt.TopicID != req.Topics[i].TopicID && version >= 13 {
						t.Errorf("topic %d is %q", i, rt.Topic)
					}
					for j, rp := range rt.Partitions {
						if rp.Partition != req.Topics[i].Partitions[j].Partition {
							t.Errorf("partition %d is %d", j, rp.Partition)
						}
						switch {
						case rp.ErrorCode == 44:
							refused++
							if version >= 8 && (rp.ErrorMessage == nil || !strings.Contains(*rp.ErrorMessage, "mirror")) {
								t.Errorf("message %v", rp.ErrorMessage)
							}
						case rp.ErrorCode != 0 || rp.BaseOffset != 100:
							t.Errorf("%+v", rp)
						}
					}
				}
				if refused != tc.refused {
					t.Errorf("%d refused, want %d", refused, tc.refused)
				}
				if got := len(produced(b)); got != tc.forwarded {
					t.Errorf("%d forwarded, want %d", got, tc.forwarded)
				}
			})
		}
	}
}

func TestProduceWithoutAcks(t *testing.T) {
	view := newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart("o", topicID(2), 0))
	b := brokerForWrites(t)
	s := setup{view: view}
	_, addr := s.start(t, b)
	c := dial(t, addr)
	c.send(produceRequest(9, 1, "o", 0), 1)
	req := produceRequest(9, 0, "m", 0)
	req.Topics = append(req.Topics, produceRequest(9, 0, "o", 0).Topics...)
	c.send(req, 2)
	c.recv(produceRequest(9, 1, "o", 0), 1)
	c.wantClosed()
	waitFor(t, func() bool { return len(produced(b)) == 2 })
	if last := produced(b)[1]; strings.Contains(string(last.frame), "records of m") {
		t.Error("the broker got a refused partition")
	}
}

func TestProduceWhileMetadataIsUnread(t *testing.T) {
	b := brokerForWrites(t)
	caughtUp := make(chan struct{})
	s := setup{}
	s.deps.CaughtUp = caughtUp
	_, addr := s.start(t, b)
	c := dial(t, addr)
	for range 2 {
		resp := c.ask(produceRequest(9, 1, "o", 0)).(*kmsg.ProduceResponse)
		if code := resp.Topics[0].Partitions[0].ErrorCode; code != errNotLeaderOrFollower {
			t.Fatalf("error %d", code)
		}
	}
	close(caughtUp)
	resp := c.ask(produceRequest(9, 1, "o", 0)).(*kmsg.ProduceResponse)
	if code := resp.Topics[0].Partitions[0].ErrorCode; code != 0 {
		t.Fatalf("error %d", code)
	}
}

func TestProduceByRecordedState(t *testing.T) {
	// No virtual replica is assigned, but a state is recorded: read only all the same.
	view := newFakeView(ordinaryPart("m", topicID(1), 0), ordinaryPart(stateTopic, topicID(3), 0))
	b := brokerForWrites(t)
	s := setup{view: view}
	s.deps.Mirrors = fakeMirrors{
		of:       map[ids.UUID]string{topicID(1): "dr"},
		readOnly: map[ids.TopicPartition]bool{{TopicID: topicID(1), Partition: 0}: true},
	}
	_, addr := s.start(t, b)
	resp := dial(t, addr).ask(produceRequest(9, 1, "m", 0)).(*kmsg.ProduceResponse)
	p := resp.Topics[0].Partitions[0]
	if p.ErrorCode != 44 || !strings.Contains(*p.ErrorMessage, "--stop --mirror dr --topics m") {
		t.Fatalf("error %d %v", p.ErrorCode, p.ErrorMessage)
	}
}

// TestProduceToStrays: a partition of an ordinary topic that is on virtual brokers for a moment
// is the broker's business, who says that he does not lead it; one that may be such is to be
// asked for again.
func TestProduceToStrays(t *testing.T) {
	view := newFakeView(mirrorPart("s", topicID(1), 0), mirrorPart("s", topicID(1), 1))
	b := brokerForWrites(t)
	s := setup{view: view}
	s.deps.Mirrors = fakeMirrors{
		readOnly: map[ids.TopicPartition]bool{{TopicID: topicID(1), Partition: 0}: true}, // it has virtual replicas
		stray:    map[ids.TopicPartition]bool{{TopicID: topicID(1), Partition: 0}: true, {TopicID: topicID(1), Partition: 1}: false},
	}
	_, addr := s.start(t, b)
	resp := dial(t, addr).ask(produceRequest(9, 1, "s", 0, 1)).(*kmsg.ProduceResponse)
	if p := resp.Topics[0].Partitions; p[0].ErrorCode != 0 || p[1].ErrorCode != errNotLeaderOrFollower {
		t.Errorf("codes %d and %d", p[0].ErrorCode, p[1].ErrorCode)
	}
}

func TestStraysAreDeleted(t *testing.T) {
	b := brokerForWrites(t)
	s := setup{view: newFakeView(mirrorPart("s", topicID(1), 0))}
	s.deps.Mirrors = fakeMirrors{stray: map[ids.TopicPartition]bool{{TopicID: topicID(1), Partition: 0}: true}}
	_, addr := s.start(t, b)
	del := kmsg.NewPtrDeleteTopicsRequest()
	del.Version, del.TopicNames = 5, []string{"s"}
	if dial(t, addr).ask(del); !slices.ContainsFunc(b.requests(), func(r gotRequest) bool { return r.key == int16(kmsg.DeleteTopics) }) {
		t.Error("the topic cannot be deleted")
	}
}

func TestProduceHintsAtNoVirtualLeader(t *testing.T) {
	b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
		resp := okProduce(req.(*kmsg.ProduceRequest)).(*kmsg.ProduceResponse)
		p := &resp.Topics[0].Partitions[0]
		p.ErrorCode = errNotLeaderOrFollower
		p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = 10001, 4
		resp.Brokers = []kmsg.ProduceResponseBroker{{NodeID: 10001, Host: "h", Port: 1}, {NodeID: 2, Host: "h", Port: 2}}
		return resp
	}))
	s := setup{}
	s.cfg.Hosts = map[int32]HostPort{2: {"proxy2", 9}}
	_, addr := s.start(t, b)
	resp := dial(t, addr).ask(produceRequest(10, 1, "o", 0)).(*kmsg.ProduceResponse)
	if l := resp.Topics[0].Partitions[0].CurrentLeader; l.LeaderID != -1 || l.LeaderEpoch != -1 {
		t.Errorf("leader %+v", l)
	}
	if len(resp.Brokers) != 1 || resp.Brokers[0].Host != "proxy2" || resp.Brokers[0].Port != 9 {
		t.Errorf("brokers %+v", resp.Brokers)
	}
}

func TestAdminRequestsAreSplit(t *testing.T) {
	view := newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart("o", topicID(2), 0))
	b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
		switch r := req.(type) {
		case *kmsg.CreatePartitionsRequest:
			resp := kmsg.NewPtrCreatePartitionsResponse()
			for _, topic := range r.Topics {
				resp.Topics = append(resp.Topics, kmsg.CreatePartitionsResponseTopic{Topic: topic.Topic})
			}
			return resp
		case *kmsg.DeleteTopicsRequest:
			resp := kmsg.NewPtrDeleteTopicsResponse()
			for _, name := range r.TopicNames {
				resp.Topics = append(resp.Topics, kmsg.DeleteTopicsResponseTopic{Topic: &name})
			}
			return resp
		}
		return req.ResponseKind()
	}))
	s := setup{view: view}
	_, addr := s.start(t, b)
	c := dial(t, addr)

	cp := kmsg.NewPtrCreatePartitionsRequest()
	cp.Version = 3
	cp.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "o", Count: 2}, {Topic: "m", Count: 2}}
	got := c.ask(cp).(*kmsg.CreatePartitionsResponse)
	if len(got.Topics) != 2 || got.Topics[0].ErrorCode != 0 || got.Topics[1].ErrorCode != 44 {
		t.Errorf("%+v", got.Topics)
	}

	dt := kmsg.NewPtrDeleteTopicsRequest()
	dt.Version = 5
	dt.TopicNames = []string{"m"}
	del := c.ask(dt).(*kmsg.DeleteTopicsResponse)
	if len(del.Topics) != 1 || del.Topics[0].ErrorCode != 44 || del.Topics[0].ErrorMessage == nil {
		t.Errorf("%+v", del.Topics)
	}

	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.Version = 3
	add.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "o", Partitions: []int32{0}}, {Topic: "m", Partitions: []int32{0}}}
	txn := c.ask(add).(*kmsg.AddPartitionsToTxnResponse)
	if txn.Topics[0].Partitions[0].ErrorCode != 55 || txn.Topics[1].Partitions[0].ErrorCode != 29 {
		t.Errorf("%+v", txn.Topics)
	}
	for _, r := range b.requests() {
		if r.key == int16(kmsg.AddPartitionsToTxn) || r.key == int16(kmsg.DeleteTopics) {
			t.Errorf("API %d was forwarded", r.key)
		}
	}
}
