package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

func TestMetadata(t *testing.T) {
	view := newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart("o", topicID(2), 0))
	b := startBroker(t, answers(t, func(kmsg.Request) kmsg.Response {
		m := kmsg.NewPtrMetadataResponse()
		m.ControllerID = 10002
		for _, id := range []int32{1, 2, 10001, 10002} {
			m.Brokers = append(m.Brokers, kmsg.MetadataResponseBroker{NodeID: id, Host: "broker", Port: id})
		}
		for i, p := range []*metadata.Partition{mirrorPart("m", topicID(1), 0), ordinaryPart("o", topicID(2), 0), mirrorPart("waiting", topicID(9), 0)} {
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic, topic.TopicID = &p.Topic, p.TopicID
			mp := kmsg.NewMetadataResponseTopicPartition()
			mp.Leader, mp.LeaderEpoch, mp.Replicas, mp.ISR = p.Leader, p.LeaderEpoch, p.Replicas, p.ISR
			mp.OfflineReplicas = []int32{10002}
			if i == 2 {
				mp.ISR = []int32{10001}
			}
			topic.Partitions = append(topic.Partitions, mp)
			m.Topics = append(m.Topics, topic)
		}
		return m
	}))
	for _, hosts := range []map[int32]HostPort{nil, {1: {"p1", 9001}, 2: {"p2", 9002}}} {
		for version := int16(0); version <= 13; version++ {
			t.Run(fmt.Sprintf("v%d mapped %v", version, hosts != nil), func(t *testing.T) {
				s := setup{view: view}
				s.cfg.Hosts = hosts
				_, addr := s.start(t, b)
				req := kmsg.NewPtrMetadataRequest()
				req.Version = version
				m := dial(t, addr).ask(req).(*kmsg.MetadataResponse)
				if len(m.Brokers) != 2 {
					t.Fatalf("brokers %+v", m.Brokers)
				}
				for _, br := range m.Brokers {
					want := HostPort{"broker", br.NodeID}
					if hosts != nil {
						want = hosts[br.NodeID]
					}
					if br.Host != want.Host || br.Port != want.Port {
						t.Errorf("broker %+v", br)
					}
				}
				if version >= 1 && m.ControllerID != 1 {
					t.Errorf("controller %d", m.ControllerID)
				}
				mp := m.Topics[0].Partitions[0]
				if mp.Leader != 2 || mp.ErrorCode != 0 || !slices.Equal(mp.Replicas, []int32{2, 1}) || !slices.Equal(mp.ISR, []int32{1, 2}) || len(mp.OfflineReplicas) != 0 {
					t.Errorf("mirror partition %+v", mp)
				}
				if version >= 7 && mp.LeaderEpoch != 5 {
					t.Errorf("leader epoch %d", mp.LeaderEpoch)
				}
				if op := m.Topics[1].Partitions[0]; op.Leader != 1 {
					t.Errorf("ordinary partition %+v", op)
				}
				if wp := m.Topics[2].Partitions[0]; wp.Leader != -1 || wp.ErrorCode != errLeaderNotAvailable {
					t.Errorf("waiting partition %+v", wp)
				}
			})
		}
	}
	t.Run("virtual listener", func(t *testing.T) {
		s := setup{view: view}
		s.cfg.Virtual = true
		_, addr := s.start(t, b)
		req := kmsg.NewPtrMetadataRequest()
		req.Version = 12
		m := dial(t, addr).ask(req).(*kmsg.MetadataResponse)
		if len(m.Brokers) != 4 || m.Topics[0].Partitions[0].Leader != 10001 {
			t.Errorf("%+v", m)
		}
	})
}

func TestRewrites(t *testing.T) {
	view := newFakeView(mirrorPart("m", topicID(1), 0))
	s := setup{view: view}
	s.cfg.Hosts = map[int32]HostPort{2: {"p2", 9002}}
	p, _ := s.start(t, startBroker(t, echo))
	name := "m"
	for title, tc := range map[string]struct {
		in      kmsg.Response
		changed bool
		check   func(kmsg.Response) bool
	}{
		"DescribeCluster": {
			&kmsg.DescribeClusterResponse{EndpointType: 1, ControllerID: 10001, Brokers: []kmsg.DescribeClusterResponseBroker{{NodeID: 2}, {NodeID: 10001}}},
			true,
			func(r kmsg.Response) bool {
				d := r.(*kmsg.DescribeClusterResponse)
				return len(d.Brokers) == 1 && d.Brokers[0].Host == "p2" && d.ControllerID == 1
			},
		},
		"DescribeCluster of controllers": {
			&kmsg.DescribeClusterResponse{EndpointType: 2, Brokers: []kmsg.DescribeClusterResponseBroker{{NodeID: 2, Host: "c"}}},
			false, nil,
		},
		"FindCoordinator": {
			&kmsg.FindCoordinatorResponse{Version: 4, Coordinators: []kmsg.FindCoordinatorResponseCoordinator{{NodeID: 2}, {NodeID: 10001}}},
			true,
			func(r kmsg.Response) bool {
				f := r.(*kmsg.FindCoordinatorResponse).Coordinators
				return f[0].Host == "p2" && f[1].ErrorCode == errCoordinatorNotAvailable && f[1].NodeID == -1
			},
		},
		"FindCoordinator v3": {
			&kmsg.FindCoordinatorResponse{Version: 3, NodeID: 2, Host: "h"}, true,
			func(r kmsg.Response) bool { return r.(*kmsg.FindCoordinatorResponse).Host == "p2" },
		},
		"DescribeTopicPartitions": {
			&kmsg.DescribeTopicPartitionsResponse{Topics: []kmsg.DescribeTopicPartitionsResponseTopic{{
				Topic: &name, TopicID: topicID(1),
				Partitions: []kmsg.DescribeTopicPartitionsResponseTopicPartition{{
					LeaderID: 10001, LeaderEpoch: 5, Replicas: []int32{10001, 2, 1}, ISR: []int32{10001, 2, 1},
					EligibleLeaderReplicas: []int32{10002}, LastKnownELR: []int32{10002, 2}, OfflineReplicas: []int32{10002},
				}},
			}}},
			true,
			func(r kmsg.Response) bool {
				p := r.(*kmsg.DescribeTopicPartitionsResponse).Topics[0].Partitions[0]
				return p.LeaderID == 2 && slices.Equal(p.Replicas, []int32{2, 1}) && slices.Equal(p.ISR, []int32{2, 1}) &&
					len(p.EligibleLeaderReplicas) == 0 && slices.Equal(p.LastKnownELR, []int32{2}) && len(p.OfflineReplicas) == 0
			},
		},
		"ShareFetch": {
			&kmsg.ShareFetchResponse{
				NodeEndpoints: []kmsg.ShareFetchResponseNodeEndpoint{{NodeID: 2}, {NodeID: 10001}},
				Topics: []kmsg.ShareFetchResponseTopic{{Partitions: []kmsg.ShareFetchResponseTopicPartition{
					{CurrentLeader: kmsg.ShareFetchResponseTopicPartitionCurrentLeader{LeaderID: 10001}},
				}}},
			},
			true,
			func(r kmsg.Response) bool {
				f := r.(*kmsg.ShareFetchResponse)
				return len(f.NodeEndpoints) == 1 && f.NodeEndpoints[0].Host == "p2" && f.Topics[0].Partitions[0].CurrentLeader.LeaderID == -1
			},
		},
		"ShareAcknowledge": {
			&kmsg.ShareAcknowledgeResponse{
				NodeEndpoints: []kmsg.ShareAcknowledgeResponseNodeEndpoint{{NodeID: 10001}},
				Topics: []kmsg.ShareAcknowledgeResponseTopic{{Partitions: []kmsg.ShareAcknowledgeResponseTopicPartition{
					{CurrentLeader: kmsg.ShareAcknowledgeResponseTopicPartitionCurrentLeader{LeaderID: 1}},
				}}},
			},
			true,
			func(r kmsg.Response) bool {
				f := r.(*kmsg.ShareAcknowledgeResponse)
				return len(f.NodeEndpoints) == 0 && f.Topics[0].Partitions[0].CurrentLeader.LeaderID == 1
			},
		},
	} {
		t.Run(title, func(t *testing.T) {
			if got := p.rows[tc.in.Key()].rewrite(p, tc.in); got != tc.changed {
				t.Errorf("changed: %v", got)
			}
			if tc.check != nil && !tc.check(tc.in) {
				t.Errorf("got %+v", tc.in)
			}
		})
	}
}

func TestLeaders(t *testing.T) {
	view := newFakeView()
	l := NewLeaders(view, testVirtual)
	tp := ids.TopicPartition{TopicID: topicID(1)}
	shown := func(epoch int32, isr ...int32) int32 {
		leader, ok := l.Shown(tp, epoch, []int32{10001, 10002, 2, 1, 3}, isr)
		if ok != (leader >= 0) {
			t.Errorf("leader %d, ok %v", leader, ok)
		}
		return leader
	}
	put := func(epoch int32, isr ...int32) {
		p := mirrorPart("m", topicID(1), 0)
		p.Replicas, p.ISR, p.LeaderEpoch = []int32{10001, 10002, 2, 1, 3}, isr, epoch
		view.put(p)
	}
	if got := shown(5, 1, 2); got != 2 || !l.none() {
		t.Errorf("before the log shows the partition: %d", got)
	}
	put(5, 10001, 1)
	for i, tc := range []struct {
		epoch int32
		isr   []int32
		want  int32
	}{
		{5, []int32{10001, 1}, 1},
		{5, []int32{10001, 1, 2}, 1}, // kept while it is in sync
		{4, []int32{10001, 1, 2}, 2}, // an answer from the past does not change the choice
		{5, []int32{10001, 1, 2}, 1},
		{5, []int32{10001, 2, 3}, 2}, // it fell out
		{5, []int32{10001, 1, 2}, 2},
		{6, []int32{10001, 1, 2, 3}, 2}, // a new epoch chooses anew
		{7, []int32{10001, 3}, 3},
		{7, []int32{10001}, -1},
	} {
		if got := shown(tc.epoch, tc.isr...); got != tc.want {
			t.Errorf("step %d: leader %d, want %d", i, got, tc.want)
		}
	}
	if l.none() || !l.assigned(tp) {
		t.Error("assigned partition not seen")
	}
	stopped := ordinaryPart("m", topicID(1), 0)
	view.put(stopped)
	if !l.none() {
		t.Error("virtual replicas are gone, partition is still counted")
	}
	put(9, 10001, 1)
	view.remove(topicID(1))
	if !l.none() {
		t.Error("topic is gone, partition is still counted")
	}
}

// fetchResponse is a Fetch response with all fields in use.
func fetchResponse(version int16, records int, leader int32, endpoints ...int32) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = version
	resp.SessionID = 77
	for ti := range 2 {
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = fmt.Sprintf("topic-%d", ti), topicID(byte(ti+1))
		for pi := range 3 {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.HighWatermark, p.LastStableOffset = int32(pi), 10, 9
			p.RecordBatches = pattern(records)
			if pi == 1 {
				a := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
				a.ProducerID, a.FirstOffset = 5, 6
				p.AbortedTransactions = append(p.AbortedTransactions, a, a)
				p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = 3, 4
				p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = leader, 8
			}
			rt.Partitions = append(rt.Partitions, p)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	for _, id := range endpoints {
		resp.Brokers = append(resp.Brokers, kmsg.FetchResponseBroker{NodeID: id, Host: "h", Port: id})
	}
	return resp
}

func TestFetchResponses(t *testing.T) {
	for _, version := range []int16{4, 11, 12, 13, 16, 18} {
		for _, records := range []int{0, 100, 20 << 10, 1 << 20} {
			for _, leader := range []int32{-1, 2, 10001} {
				t.Run(fmt.Sprintf("v%d %d bytes leader %d", version, records, leader), func(t *testing.T) {
					var endpoints []int32
					if leader >= 0 && version >= 16 {
						endpoints = []int32{2, 10001}
					}
					resp := fetchResponse(version, records, leader, endpoints...)
					b := startBroker(t, answers(t, func(kmsg.Request) kmsg.Response { return resp }))
					_, addr := new(setup).start(t, b)
					req := kmsg.NewPtrFetchRequest()
					req.Version = version
					c := dial(t, addr)
					c.send(req, 3)
					got, err := readFrame(c)
					if err != nil {
						t.Fatal(err)
					}
					if c.send(req, 4); true { // the connection is in step afterwards
						if f, err := readFrame(c); err != nil || binary.BigEndian.Uint32(f) != 4 {
							t.Fatalf("second response: %v", err)
						}
					}
					if sent := appendResponse(nil, resp, 3)[4:]; leader != 10001 && len(endpoints) == 0 {
						if !bytes.Equal(got, sent) {
							t.Fatal("response differs")
						}
						return
					}
					if version < fetchFlexible {
						return
					}
					body, err := responseBody(got, req.Key(), true)
					if err != nil {
						t.Fatal(err)
					}
					out := kmsg.NewPtrFetchResponse()
					out.Version = version
					if err := out.ReadFrom(body); err != nil {
						t.Fatal(err)
					}
					p := out.Topics[1].Partitions[1]
					want := leader
					if leader == 10001 {
						want = -1
					}
					if p.CurrentLeader.LeaderID != want {
						t.Errorf("leader %+v", p.CurrentLeader)
					}
					if !bytes.Equal(p.RecordBatches, pattern(records)) || p.DivergingEpoch.Epoch != 3 || len(p.AbortedTransactions) != 2 {
						t.Error("the rest differs")
					}
					for _, br := range out.Brokers {
						if br.NodeID == 10001 && records < 20<<10 {
							t.Error("virtual broker among the endpoints")
						}
					}
				})
			}
		}
	}
}

// counting counts the leaders that a walk meets.
type counting int

func (n *counting) leader([]byte)  { *n++ }
func (*counting) endpoints([]byte) {}

func TestFetchWalkOnRandomResponses(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	b := startBroker(t, func(_ net.Conn, h header, frame []byte) []byte {
		// The request's client id says which response to send.
		return nil
	})
	p, _ := new(setup).start(t, b)
	for i := range 500 {
		version := int16(12 + rnd.IntN(7))
		resp := fetchResponse(version, rnd.IntN(300), int32(rnd.IntN(3)-1))
		raw := appendResponse(nil, resp, int32(i))
		f := &fetchInspector{p: p, version: version}
		var leaders counting
		w := &sliceWalker{cursor{b: raw}}
		w.take(sizeLen + minResponse)
		w.skipTags()
		f.walk(w, &leaders)
		if w.err != nil || w.at != len(raw) {
			t.Fatalf("walk of %d bytes ended at %d: %v", len(raw), w.at, w.err)
		}
		if leaders != 2 {
			t.Fatalf("%d leaders", leaders)
		}
	}
}

func TestOldFetchIsRaised(t *testing.T) {
	for version := int16(4); version < followersAnswer; version++ {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
				f := req.(*kmsg.FetchRequest)
				if f.Version != 11 || len(f.Topics) != 1 || f.Topics[0].Partitions[0].FetchOffset != 12 || f.ReplicaID != -1 {
					t.Errorf("request %+v", f)
				}
				if version < 7 && f.SessionEpoch != -1 {
					t.Errorf("session epoch %d", f.SessionEpoch)
				}
				resp := fetchResponse(11, 1000, -1)
				return resp
			}))
			s := setup{view: newFakeView(mirrorPart("m", topicID(1), 0))}
			_, addr := s.start(t, b)
			req := kmsg.NewPtrFetchRequest()
			req.Version, req.ReplicaID = version, -1
			req.Topics = []kmsg.FetchRequestTopic{{Topic: "m", Partitions: []kmsg.FetchRequestTopicPartition{{FetchOffset: 12, CurrentLeaderEpoch: -1}}}}
			resp := dial(t, addr).ask(req).(*kmsg.FetchResponse)
			p := resp.Topics[1].Partitions[2]
			if !bytes.Equal(p.RecordBatches, pattern(1000)) || p.HighWatermark != 10 {
				t.Errorf("partition %+v", p)
			}
		})
	}
}

// authorize makes a broker that says whether callers have CLUSTER_ACTION.
func authorize(t testing.TB, follower bool, other func(kmsg.Request) kmsg.Response) script {
	return answers(t, func(req kmsg.Request) kmsg.Response {
		f, ok := req.(*kmsg.FetchRequest)
		if !ok || len(f.Topics) != 1 || f.Topics[0].TopicID != noSuchTopic {
			if other != nil {
				return other(req)
			}
			return req.ResponseKind()
		}
		resp := kmsg.NewPtrFetchResponse()
		rt := kmsg.NewFetchResponseTopic()
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.ErrorCode = errUnknownTopicID
		if !follower {
			rp.ErrorCode = errTopicAuthorization
		}
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp
	})
}

func followerFetch(version int16) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = version
	req.ReplicaID = 2
	if version >= 15 {
		req.ReplicaID, req.ReplicaState.ID, req.ReplicaState.Epoch = -1, 2, 40
	}
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = "m", topicID(1)
	t.Partitions = append(t.Partitions, kmsg.NewFetchRequestTopicPartition())
	req.Topics = append(req.Topics, t)
	return req
}

func TestFollowersAreServed(t *testing.T) {
	for _, version := range []int16{12, 13, 16, 17, 18} {
		for _, allowed := range []bool{true, false} {
			t.Run(fmt.Sprintf("v%d allowed %v", version, allowed), func(t *testing.T) {
				b := startBroker(t, authorize(t, allowed, nil))
				s := setup{view: newFakeView(mirrorPart("m", topicID(1), 0))}
				s.cfg.Virtual = true
				var served atomic.Int32
				s.deps.Replica = &fakeReplica{fetch: func(_ context.Context, req *kmsg.FetchRequest) (FetchReply, error) {
					served.Add(1)
					return fakeReply{fetchResponse(version, 5000, -1)}, nil
				}}
				_, addr := s.start(t, b)
				c := dial(t, addr)
				for range 3 {
					resp := c.ask(followerFetch(version)).(*kmsg.FetchResponse)
					if code := resp.Topics[0].Partitions[0].ErrorCode; (code == 0) != allowed {
						t.Fatalf("error %d", code)
					}
				}
				probes := 3
				if allowed {
					probes = 1 // believed for a while
				}
				if got := len(b.requests()); got != probes || (served.Load() == 3) != allowed {
					t.Errorf("%d requests at the broker, %d served", got, served.Load())
				}
				// The other requests of brokers.
				lo := kmsg.NewPtrListOffsetsRequest()
				lo.Version, lo.ReplicaID = 10, 2
				lo.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "m", Partitions: []kmsg.ListOffsetsRequestTopicPartition{{}}}}
				ofle := kmsg.NewPtrOffsetForLeaderEpochRequest()
				ofle.Version, ofle.ReplicaID = 4, 2
				ofle.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "m", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{}}}}
				markers := kmsg.NewPtrWriteTxnMarkersRequest()
				markers.Version = 1
				markers.Markers = []kmsg.WriteTxnMarkersRequestMarker{{Topics: []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: "m", Partitions: []int32{0}}}}}
				codes := []int16{
					c.ask(lo).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode,
					c.ask(ofle).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0].ErrorCode,
					c.ask(markers).(*kmsg.WriteTxnMarkersResponse).Markers[0].Topics[0].Partitions[0].ErrorCode,
				}
				want := []int16{0, 0, 0}
				if !allowed {
					want = []int16{errTopicAuthorization, errTopicAuthorization, errClusterAuthorization}
				}
				if !slices.Equal(codes, want) {
					t.Errorf("errors %v, want %v", codes, want)
				}
			})
		}
	}
}

func TestFollowersAreNotServedAtAClientListener(t *testing.T) {
	b := startBroker(t, answers(t, func(kmsg.Request) kmsg.Response { return fetchResponse(16, 10, -1) }))
	s := setup{view: newFakeView(mirrorPart("m", topicID(1), 0))}
	s.deps.Replica = &fakeReplica{} // fails when asked
	_, addr := s.start(t, b)
	dial(t, addr).ask(followerFetch(16))
	if reqs := b.requests(); len(reqs) != 1 || reqs[0].key != int16(kmsg.Fetch) {
		t.Errorf("requests %v", reqs)
	}
}

func TestFollowersLongPollEndsWithItsConnection(t *testing.T) {
	b := startBroker(t, authorize(t, true, nil))
	s := setup{view: newFakeView(mirrorPart("m", topicID(1), 0))}
	s.cfg.Virtual = true
	waiting, ended := make(chan struct{}), make(chan struct{})
	s.deps.Replica = &fakeReplica{fetch: func(ctx context.Context, _ *kmsg.FetchRequest) (FetchReply, error) {
		close(waiting)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}}
	_, addr := s.start(t, b)
	c, other := dial(t, addr), dial(t, addr)
	c.send(followerFetch(16), 1)
	<-waiting
	// Others are served meanwhile.
	lo := kmsg.NewPtrListOffsetsRequest()
	lo.Version, lo.ReplicaID = 10, 2
	other.ask(lo)
	c.Close()
	<-ended
}

func TestConsumersAreRedirected(t *testing.T) {
	view := newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart("o", topicID(2), 0))
	waiting := mirrorPart("w", topicID(3), 0)
	waiting.ISR = []int32{10001}
	view.put(waiting)
	view.put(mirrorPart("denied", topicID(4), 0))
	b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
		r := req.(*kmsg.FetchRequest)
		return refuseFetch(r, func(id ids.UUID, topic string, out *kmsg.FetchResponseTopicPartition) int16 {
			if out.Partition != 0 || r.ReplicaID >= 0 || r.ReplicaState.ID >= 0 || r.MaxWaitMillis > 0 || r.SessionEpoch != -1 {
				t.Errorf("asked %+v", r)
			}
			if topic == "denied" || id == topicID(4) {
				return errTopicAuthorization
			}
			return errOffsetOutOfRange
		})
	}))
	s := setup{view: view}
	s.cfg.Virtual = true
	_, addr := s.start(t, b)
	for _, version := range []int16{11, 12, 13, 16} {
		req := kmsg.NewPtrFetchRequest()
		req.Version = version
		for _, topic := range []string{"m", "o", "w", "none", "denied"} {
			rt := kmsg.NewFetchRequestTopic()
			rt.Topic = topic
			rt.TopicID, _ = view.Topic(topic)
			rt.Partitions = append(rt.Partitions, kmsg.NewFetchRequestTopicPartition())
			req.Topics = append(req.Topics, rt)
		}
		resp := dial(t, addr).ask(req).(*kmsg.FetchResponse)
		at := func(i int) kmsg.FetchResponseTopicPartition { return resp.Topics[i].Partitions[0] }
		if p := at(0); p.ErrorCode != 0 || p.PreferredReadReplica != 2 || p.RecordBatches == nil {
			t.Errorf("v%d: %+v", version, p)
		}
		missing := errUnknownTopicOrPartition
		if version >= 13 {
			missing = errUnknownTopicID
		}
		if at(1).ErrorCode != errNotLeaderOrFollower || at(2).ErrorCode != errNotLeaderOrFollower || at(3).ErrorCode != missing {
			t.Errorf("v%d: %+v %+v %+v", version, at(1), at(2), at(3))
		}
		// Who may not read a topic is told neither that it exists nor who leads it.
		if p := at(4); p.ErrorCode != errTopicAuthorization || p.PreferredReadReplica != -1 || p.CurrentLeader.LeaderID != -1 {
			t.Errorf("v%d: %+v", version, p)
		}
	}
}

// followingBroker answers as a real replica of a mirror partition does: log end 100,
// high watermark 80, last stable offset 70.
func followingBroker(t testing.TB) script {
	return answers(t, func(req kmsg.Request) kmsg.Response {
		switch r := req.(type) {
		case *kmsg.ListOffsetsRequest:
			resp := listOffsetsErrors(r, 0)
			for i := range resp.Topics {
				for j := range resp.Topics[i].Partitions {
					p := &resp.Topics[i].Partitions[j]
					name := resp.Topics[i].Topic
					switch ts := r.Topics[i].Partitions[j].Timestamp; {
					case name == "o":
						p.Offset = 1000 // the ordinary topic
					case r.ReplicaID != -2, name == "gone":
						p.ErrorCode = errNotLeaderOrFollower
					case ts == latest:
						p.Offset, p.LeaderEpoch = 100, 5
					case ts == -2:
						p.Offset, p.LeaderEpoch = 3, 1
					case ts == maxTimestamp:
						p.Offset, p.Timestamp = 75, 9999
					default:
						p.Offset, p.Timestamp = ts, ts // a record each millisecond
					}
				}
			}
			return resp
		case *kmsg.FetchRequest:
			resp := refuseFetch(r, func(_ ids.UUID, topic string, out *kmsg.FetchResponseTopicPartition) int16 {
				out.HighWatermark, out.LastStableOffset = 80, 70
				if topic == "denied" {
					return errTopicAuthorization
				}
				return 0
			})
			for _, rt := range r.Topics {
				for _, p := range rt.Partitions {
					if p.FetchOffset != 100 || r.ReplicaID != -1 {
						t.Errorf("fetch at %d by %d", p.FetchOffset, r.ReplicaID)
					}
				}
			}
			return resp
		}
		return req.ResponseKind()
	})
}

func TestListOffsets(t *testing.T) {
	view := newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart("o", topicID(2), 0), mirrorPart("m", topicID(1), 1),
		mirrorPart("denied", topicID(3), 0), mirrorPart("gone", topicID(4), 0))
	b := startBroker(t, followingBroker(t))
	type ask struct {
		topic     string
		partition int32
		ts        int64
	}
	type answer struct {
		offset, ts int64
		code       int16
	}
	for name, tc := range map[string]struct {
		isolation int8
		asks      []ask
		want      []answer
		virtual   bool
	}{
		"latest":                {0, []ask{{"m", 0, latest}}, []answer{{80, -1, 0}}, false},
		"latest committed":      {1, []ask{{"m", 0, latest}}, []answer{{70, -1, 0}}, false},
		"earliest":              {0, []ask{{"m", 0, -2}}, []answer{{3, -1, 0}}, false},
		"time":                  {0, []ask{{"m", 0, 50}}, []answer{{50, 50, 0}}, false},
		"time at the end":       {0, []ask{{"m", 0, 80}}, []answer{{-1, -1, 0}}, false},
		"time uncommitted":      {1, []ask{{"m", 0, 75}}, []answer{{-1, -1, 0}}, false},
		"max timestamp":         {0, []ask{{"m", 0, maxTimestamp}}, []answer{{75, 9999, 0}}, false},
		"max, uncommitted":      {1, []ask{{"m", 0, maxTimestamp}}, []answer{{-1, -1, 0}}, false},
		"ordinary":              {0, []ask{{"o", 0, latest}}, []answer{{1000, -1, 0}}, false},
		"mixed, in order":       {0, []ask{{"m", 1, latest}, {"o", 0, latest}, {"m", 0, -2}}, []answer{{80, -1, 0}, {1000, -1, 0}, {3, -1, 0}}, false},
		"no right to read":      {0, []ask{{"denied", 0, latest}, {"m", 0, latest}}, []answer{{60, -1, 0}, {80, -1, 0}}, false},
		"home has no replica":   {0, []ask{{"gone", 0, latest}}, []answer{{-1, -1, errNotLeaderOrFollower}}, false},
		"around the proxy":      {0, []ask{{"m", 0, latest}}, []answer{{80, -1, 0}}, true},
		"elsewhere, by ourself": {0, []ask{{"gone", 0, latest}}, []answer{{60, -1, 0}}, true},
	} {
		for _, version := range []int16{1, 4, 7, 11} {
			t.Run(fmt.Sprintf("%s v%d", name, version), func(t *testing.T) {
				isolation := tc.isolation
				if version < 2 && isolation != 0 {
					t.Skip("no isolation level")
				}
				s := setup{view: view}
				s.cfg.Virtual = tc.virtual
				s.deps.Brokers = otherBroker{}
				_, addr := s.start(t, b)
				req := kmsg.NewPtrListOffsetsRequest()
				req.Version, req.ReplicaID, req.IsolationLevel = version, -1, isolation
				for _, a := range tc.asks {
					p := kmsg.NewListOffsetsRequestTopicPartition()
					p.Partition, p.Timestamp = a.partition, a.ts
					req.Topics = append(req.Topics, kmsg.ListOffsetsRequestTopic{Topic: a.topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}})
				}
				resp := dial(t, addr).ask(req).(*kmsg.ListOffsetsResponse)
				var got []answer
				for i, rt := range resp.Topics {
					if rt.Topic != tc.asks[i].topic {
						t.Errorf("topic %d is %q", i, rt.Topic)
					}
					for _, p := range rt.Partitions {
						got = append(got, answer{p.Offset, p.Timestamp, p.ErrorCode})
					}
				}
				if !slices.Equal(got, tc.want) {
					t.Errorf("got %v, want %v", got, tc.want)
				}
			})
		}
	}
}

// otherBroker has a replica of everything, with log end 100 and high watermark 60, and lets
// who asks read it. It is asked with the newest Fetch, which names topics by their ids only.
type otherBroker struct{}

func (otherBroker) Request(_ context.Context, broker int32, req kmsg.Request) (kmsg.Response, error) {
	switch r := req.(type) {
	case *kmsg.ListOffsetsRequest:
		if broker != 2 {
			return nil, errors.New("wrong broker")
		}
		resp := listOffsetsErrors(r, 0)
		for i := range resp.Topics {
			resp.Topics[i].Partitions[0].Offset = 100
		}
		return resp, nil
	case *kmsg.FetchRequest:
		resp := refuseFetch(r, func(id ids.UUID, _ string, out *kmsg.FetchResponseTopicPartition) int16 {
			if id.IsZero() {
				return kerr.UnknownTopicID.Code
			}
			out.HighWatermark = 60
			return 0
		})
		for i := range resp.Topics {
			resp.Topics[i].Topic = ""
		}
		return resp, nil
	}
	return nil, errors.New("unexpected request")
}

type fakeLineage struct{ ready bool }

func (l fakeLineage) EndOffset(tp ids.TopicPartition, epoch int32) (int32, int64, bool) {
	return epoch - 1, 42, l.ready
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	view := newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart("o", topicID(2), 0), mirrorPart("denied", topicID(3), 0))
	b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
		resp := epochErrors(req.(*kmsg.OffsetForLeaderEpochRequest), errNotLeaderOrFollower)
		for i := range resp.Topics {
			p := &resp.Topics[i].Partitions[0]
			switch resp.Topics[i].Topic {
			case "o":
				p.ErrorCode, p.EndOffset, p.LeaderEpoch = 0, 7, 3
			case "denied":
				p.ErrorCode = errTopicAuthorization
			}
		}
		return resp
	}))
	for _, ready := range []bool{true, false} {
		for version := int16(2); version <= 4; version++ {
			t.Run(fmt.Sprintf("v%d ready %v", version, ready), func(t *testing.T) {
				s := setup{view: view}
				s.deps.Lineage = fakeLineage{ready}
				_, addr := s.start(t, b)
				req := kmsg.NewPtrOffsetForLeaderEpochRequest()
				req.Version, req.ReplicaID = version, -1
				for _, topic := range []string{"o", "m", "denied"} {
					p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
					p.LeaderEpoch = 4
					req.Topics = append(req.Topics, kmsg.OffsetForLeaderEpochRequestTopic{Topic: topic, Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{p}})
				}
				resp := dial(t, addr).ask(req).(*kmsg.OffsetForLeaderEpochResponse)
				if p := resp.Topics[0].Partitions[0]; p.EndOffset != 7 || p.ErrorCode != 0 {
					t.Errorf("ordinary %+v", p)
				}
				p := resp.Topics[1].Partitions[0]
				if ready && (p.ErrorCode != 0 || p.LeaderEpoch != 3 || p.EndOffset != 42) || !ready && p.ErrorCode != errNotLeaderOrFollower {
					t.Errorf("mirror %+v", p)
				}
				if p := resp.Topics[2].Partitions[0]; p.ErrorCode != errTopicAuthorization {
					t.Errorf("denied %+v", p)
				}
			})
		}
	}
}
