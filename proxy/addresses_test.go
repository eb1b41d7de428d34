package proxy

import (
	"bytes"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTheMostParticularAddressIsTold(t *testing.T) {
	cfg := Config{
		Hosts:      map[int32]HostPort{1: {"node", 1}},
		Advertised: map[HostPort]HostPort{{"a", 9092}: {"advertised", 2}},
		Compute: func(node int32, was HostPort) (HostPort, bool) {
			return HostPort{"computed-" + was.Host, node}, node < 10
		},
	}
	for _, tc := range []struct {
		node int32
		was  HostPort
		want HostPort
		ok   bool
	}{
		{1, HostPort{"a", 9092}, HostPort{"node", 1}, true},
		{2, HostPort{"a", 9092}, HostPort{"advertised", 2}, true},
		{2, HostPort{"a", 9093}, HostPort{"computed-a", 2}, true},
		{10, HostPort{"a", 9092}, HostPort{"advertised", 2}, true},
		{10, HostPort{"b", 9092}, HostPort{}, false},
	} {
		if got, ok := cfg.Told(tc.node, tc.was); ok != tc.ok || ok && got != tc.want {
			t.Errorf("%d at %v: %v %t", tc.node, tc.was, got, ok)
		}
	}
	if (&Config{}).mapped() {
		t.Error("nothing is mapped where nothing is configured")
	}
}

// A broker without an address for clients is to them one that is down; nobody is sent to it, and
// the log says so once.
func TestABrokerWithoutAnAddressIsDown(t *testing.T) {
	b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
		switch r := req.(type) {
		case *kmsg.MetadataRequest:
			topic, part := "t", kmsg.NewMetadataResponseTopicPartition()
			part.Leader, part.LeaderEpoch = 3, 7
			part.Replicas, part.ISR = []int32{3, 2}, []int32{3, 2}
			other := part
			other.Partition, other.Leader, other.Replicas = 1, 2, []int32{2}
			return &kmsg.MetadataResponse{
				ControllerID: 3,
				Brokers:      []kmsg.MetadataResponseBroker{{NodeID: 2, Host: "b2", Port: 9092}, {NodeID: 3, Host: "b3", Port: 9092}},
				Topics:       []kmsg.MetadataResponseTopic{{Topic: &topic, Partitions: []kmsg.MetadataResponseTopicPartition{part, other}}},
			}
		case *kmsg.FindCoordinatorRequest:
			resp := kmsg.NewPtrFindCoordinatorResponse()
			resp.NodeID, resp.Host, resp.Port = 3, "b3", 9092
			for _, key := range r.CoordinatorKeys {
				resp.Coordinators = append(resp.Coordinators, kmsg.FindCoordinatorResponseCoordinator{Key: key, NodeID: 3, Host: "b3", Port: 9092})
			}
			return resp
		case *kmsg.ProduceRequest:
			resp := kmsg.NewPtrProduceResponse()
			part := kmsg.NewProduceResponseTopicPartition()
			part.ErrorCode = errNotLeaderOrFollower
			part.CurrentLeader.LeaderID, part.CurrentLeader.LeaderEpoch = 3, 7
			resp.Topics = []kmsg.ProduceResponseTopic{{Topic: "t", Partitions: []kmsg.ProduceResponseTopicPartition{part}}}
			resp.Brokers = []kmsg.ProduceResponseBroker{{NodeID: 3, Host: "b3", Port: 9092}}
			return resp
		}
		return nil
	}))
	var log logBuffer
	s := setup{}
	s.cfg.Hosts = map[int32]HostPort{1: {"p1", 1}, 2: {"p2", 2}}
	s.deps.Log = slog.New(slog.NewTextHandler(&log, nil))
	_, addr := s.start(t, b)
	c := dial(t, addr)
	for _, version := range []int16{4, 8, 13} {
		req := kmsg.NewPtrMetadataRequest()
		req.Version = version
		m := c.ask(req).(*kmsg.MetadataResponse)
		if len(m.Brokers) != 1 || m.Brokers[0].NodeID != 2 || m.Brokers[0].Host != "p2" || m.ControllerID != 1 {
			t.Errorf("v%d: %+v", version, m)
		}
		p := m.Topics[0].Partitions
		if p[0].Leader != -1 || p[0].ErrorCode != errLeaderNotAvailable || version >= 5 && !slices.Equal(p[0].OfflineReplicas, []int32{3}) {
			t.Errorf("v%d: %+v", version, p[0])
		}
		if p[1].Leader != 2 || p[1].ErrorCode != errNone || len(p[1].OfflineReplicas) > 0 {
			t.Errorf("v%d: %+v", version, p[1])
		}
	}
	for _, version := range []int16{3, 4} {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorKey, req.CoordinatorKeys = version, "g", []string{"g"}
		f := c.ask(req).(*kmsg.FindCoordinatorResponse)
		if version < 4 {
			f.Coordinators = []kmsg.FindCoordinatorResponseCoordinator{{NodeID: f.NodeID, Host: f.Host, Port: f.Port, ErrorCode: f.ErrorCode}}
		}
		if co := f.Coordinators[0]; co.ErrorCode != errCoordinatorNotAvailable || co.NodeID != -1 || co.Host != "" {
			t.Errorf("v%d: %+v", version, co)
		}
	}
	r := c.ask(produceRequest(10, -1, "t", 0)).(*kmsg.ProduceResponse)
	if l := r.Topics[0].Partitions[0].CurrentLeader; l.LeaderID != -1 || l.LeaderEpoch != -1 || len(r.Brokers) != 0 {
		t.Errorf("%+v", r)
	}
	if all, whole := log.count("clients are not told of a broker"), log.count("broker=3 advertises=b3:9092"); all != 1 || whole != 1 {
		t.Errorf("logged %d times, %d times as it should be", all, whole)
	}
}

// A real leader that chooses by rack may send a consumer to a virtual replica in its ISR.
func TestNobodyIsSentToReadFromAVirtualReplica(t *testing.T) {
	led := ordinaryPart("o", topicID(2), 0)
	led.Replicas, led.ISR = []int32{10002, 10003, 1, 2, 3}, []int32{10002, 10003, 1, 2, 3}
	alone := ordinaryPart("a", topicID(3), 0)
	alone.Replicas, alone.ISR = []int32{10002, 1}, []int32{10002, 1}
	view := newFakeView(led, alone)
	for name, tc := range map[string]struct {
		topic           string
		preferred, want int32
	}{
		"its home broker":          {"o", 10002, 2},
		"another home broker":      {"o", 10003, 3},
		"its home broker leads":    {"o", 10001, 2},
		"nobody else is in sync":   {"a", 10002, -1},
		"a topic that is not read": {"none", 10002, -1},
		"a real one":               {"o", 3, 3},
		"none":                     {"o", -1, -1},
	} {
		for _, version := range []int16{11, 12, 13, 18} {
			for _, size := range []int{0, 2 * readBuffer} {
				b := startBroker(t, answers(t, func(kmsg.Request) kmsg.Response {
					part := kmsg.NewFetchResponseTopicPartition()
					part.PreferredReadReplica, part.RecordBatches = tc.preferred, pattern(size)
					id, _ := view.Topic(tc.topic)
					return &kmsg.FetchResponse{Topics: []kmsg.FetchResponseTopic{{Topic: tc.topic, TopicID: id, Partitions: []kmsg.FetchResponseTopicPartition{part}}}}
				}))
				s := setup{view: view}
				s.deps.Log = discardLog()
				_, addr := s.start(t, b)
				got := dial(t, addr).ask(fetchOf(version, -1, tc.topic)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
				if got.PreferredReadReplica != tc.want || !bytes.Equal(got.RecordBatches, pattern(size)) {
					t.Errorf("%s, v%d, %d bytes: sent to %d, want %d", name, version, size, got.PreferredReadReplica, tc.want)
				}
				b.stop()
			}
		}
		// Answers that are decoded for other reasons go another way.
		p := &Proxy{cfg: Config{IDs: testVirtual}, deps: Deps{View: view}}
		resp := &kmsg.FetchResponse{Topics: []kmsg.FetchResponseTopic{{Topic: tc.topic, Partitions: []kmsg.FetchResponseTopicPartition{{PreferredReadReplica: tc.preferred}}}}}
		changed := rewriteFetch(p, resp)
		if got := resp.Topics[0].Partitions[0].PreferredReadReplica; got != tc.want || changed != (got != tc.preferred) {
			t.Errorf("%s, decoded: sent to %d, want %d; changed: %t", name, got, tc.want, changed)
		}
	}
}

// A consumer whose leader sends it to a virtual replica, in its rack, is served by the leader if there is
// no other replica: it would ask in vain otherwise, each time anew.
func TestTheLeaderServesWhereThereIsNoOther(t *testing.T) {
	alone := ordinaryPart("a", topicID(3), 0)
	alone.Replicas, alone.ISR = []int32{10002, 1}, []int32{10002, 1}
	view := newFakeView(alone)
	for _, version := range []int16{11, 12, 13, 18} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
				f := req.(*kmsg.FetchRequest)
				part := kmsg.NewFetchResponseTopicPartition()
				part.PreferredReadReplica, part.RecordBatches = 10002, []byte{}
				if f.Rack == "" {
					part.PreferredReadReplica, part.RecordBatches = -1, pattern(10)
				}
				return &kmsg.FetchResponse{SessionID: 9, Topics: []kmsg.FetchResponseTopic{{Topic: "a", TopicID: topicID(3), Partitions: []kmsg.FetchResponseTopicPartition{part}}}}
			}))
			s := setup{view: view}
			_, addr := s.start(t, b)
			c := dial(t, addr)
			for epoch := range int32(3) {
				req := fetchBoth(version, view, 9, epoch)
				if epoch == 0 {
					req = fetchBoth(version, view, 0, 0, "a")
				}
				req.Rack = "here"
				p := c.ask(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
				if p.PreferredReadReplica != -1 || epoch > 0 != (len(p.RecordBatches) > 0) {
					t.Errorf("fetch %d: sent to %d, %d bytes", epoch, p.PreferredReadReplica, len(p.RecordBatches))
				}
			}
			for i, r := range b.requests() {
				got := kmsg.NewPtrFetchRequest()
				got.Version = version
				if err := got.ReadFrom(r.frame[r.size:]); err != nil || got.SessionEpoch != int32(i) {
					t.Errorf("request %d: %+v, %v", i, got, err)
				}
			}
			// Another one, which has not been sent away, is nobody's business.
			req := fetchBoth(version, view, 0, 0, "a")
			req.Rack = "here"
			if p := dial(t, addr).ask(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]; len(p.RecordBatches) > 0 {
				t.Error("the rack of a consumer is not passed on")
			}
		})
	}
}

// A response that is too large to be looked at in place keeps its length, so that a hidden node
// becomes one that clients take for none, whatever its size is.
func TestHiddenNodesOfALargeFetchAreNone(t *testing.T) {
	const padded = 2 * readBuffer
	text := func(n int) *string { s := strings.Repeat("h", n); return &s }
	sizes := []struct {
		host int
		rack *string
	}{{0, nil}, {1, nil}, {2, nil}, {3, nil}, {0, text(0)}, {1, text(1)}, {10, text(4)}, {126, nil}, {127, nil}, {128, nil}, {129, nil}, {130, nil}, {131, nil}, {132, nil}, {255, text(255)}, {20000, nil}}
	var nodes []kmsg.FetchResponseBroker
	for i, size := range sizes {
		nodes = append(nodes,
			kmsg.FetchResponseBroker{NodeID: 10001 + int32(i), Host: *text(size.host), Port: 9092, Rack: size.rack},
			kmsg.FetchResponseBroker{NodeID: 1 + int32(i), Host: "real", Port: 9092, Rack: text(1)})
	}
	b := startBroker(t, answers(t, func(kmsg.Request) kmsg.Response {
		part := kmsg.NewFetchResponseTopicPartition()
		part.RecordBatches = pattern(padded)
		return &kmsg.FetchResponse{Topics: []kmsg.FetchResponseTopic{{TopicID: topicID(2), Partitions: []kmsg.FetchResponseTopicPartition{part}}}, Brokers: nodes}
	}))
	s := setup{view: newFakeView(ordinaryPart("o", topicID(2), 0))}
	_, addr := s.start(t, b)
	req := fetchOf(16, -1, "o")
	got := dial(t, addr).ask(req).(*kmsg.FetchResponse).Brokers
	if len(got) != len(nodes) {
		t.Fatalf("%d nodes of %d", len(got), len(nodes))
	}
	for i, node := range got {
		if i%2 == 1 {
			if !reflect.DeepEqual(node, nodes[i]) {
				t.Errorf("a real one is now %+v", node)
			}
			continue
		}
		// What the Java client calls Node.noNode, which it leaves out.
		if node.NodeID != -1 || node.Host != "" || node.Port != -1 || node.Rack != nil {
			t.Errorf("a host of %d bytes: %d at %.9s:%d in %v", sizes[i/2].host, node.NodeID, node.Host, node.Port, node.Rack)
		}
	}
}
