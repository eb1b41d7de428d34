package proxy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// readingBroker answers everything that reads, and keeps what it was asked for.
func readingBroker(t *testing.T, ops int32) *fakeBroker {
	return startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
		resp := req.ResponseKind()
		switch r := req.(type) {
		case *kmsg.DescribeClusterRequest:
			resp.(*kmsg.DescribeClusterResponse).ClusterAuthorizedOperations = ops
		case *kmsg.FetchRequest:
			out := refuseFetch(r, func(ids.UUID, string, *kmsg.FetchResponseTopicPartition) int16 { return 0 })
			if r.SessionEpoch >= 0 {
				out.SessionID = 5
			}
			return out
		case *kmsg.ListOffsetsRequest:
			return listOffsetsErrors(r, 0)
		case *kmsg.OffsetForLeaderEpochRequest:
			return epochErrors(r, 0)
		case *kmsg.ShareFetchRequest:
			out := resp.(*kmsg.ShareFetchResponse)
			for _, t := range r.Topics {
				rt := kmsg.ShareFetchResponseTopic{TopicID: t.TopicID}
				for _, p := range t.Partitions {
					rp := kmsg.NewShareFetchResponseTopicPartition()
					rp.Partition, rp.Records = p.Partition, []byte("records")
					rt.Partitions = append(rt.Partitions, rp)
				}
				out.Topics = append(out.Topics, rt)
			}
		}
		return resp
	}))
}

const (
	mayDescribe int32 = 1 << 8
	mayRead     int32 = 1 << 3
)

func stateView() *fakeView {
	return newFakeView(ordinaryPart(stateTopic, topicID(7), 0), ordinaryPart("o", topicID(2), 0))
}

func fetchOf(version int16, epoch int32, topics ...string) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.SessionEpoch, req.MaxBytes = version, epoch, 1<<20
	for _, name := range topics {
		ft := kmsg.NewFetchRequestTopic()
		ft.Topic = name
		ft.TopicID, _ = stateView().Topic(name)
		p := kmsg.NewFetchRequestTopicPartition()
		p.PartitionMaxBytes = 1 << 20
		ft.Partitions = []kmsg.FetchRequestTopicPartition{p}
		req.Topics = append(req.Topics, ft)
	}
	return req
}

func fetchCodes(resp *kmsg.FetchResponse) string {
	out := []string{fmt.Sprintf("session %d, error %d", resp.SessionID, resp.ErrorCode)}
	for _, rt := range resp.Topics {
		name := rt.Topic
		if name == "" {
			name, _ = stateView().TopicName(rt.TopicID)
		}
		for _, p := range rt.Partitions {
			out = append(out, fmt.Sprintf("%s %d", name, p.ErrorCode))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func TestFetchOfTheStateTopic(t *testing.T) {
	for name, tc := range map[string]struct {
		ops    int32
		epoch  int32
		topics []string
		want   string
		sent   []string // topics, and the session's epoch
	}{
		"allowed":           {mayDescribe, 0, []string{stateTopic, "o"}, stateTopic + " 0, o 0, session 5, error 0", []string{stateTopic, "o", "0"}},
		"alone":             {mayRead, 0, []string{stateTopic}, stateTopic + " 29, session 0, error 0", nil},
		"with others":       {mayRead, 0, []string{"o", stateTopic}, stateTopic + " 29, o 0, session 0, error 0", []string{"o", "-1"}},
		"no session":        {mayRead, -1, []string{stateTopic, "o"}, stateTopic + " 29, o 0, session 0, error 0", []string{"o", "-1"}},
		"within a session":  {mayRead, 3, []string{stateTopic}, "session 0, error 70", nil},
		"others only":       {mayRead, 0, []string{"o"}, "o 0, session 5, error 0", []string{"o", "0"}},
		"nothing new":       {mayRead, 3, nil, "session 5, error 0", []string{"3"}},
		"nobody is allowed": {0, 0, []string{stateTopic}, stateTopic + " 29, session 0, error 0", nil},
	} {
		for version := int16(4); version <= 18; version++ {
			if version < 7 && tc.epoch != -1 {
				continue // without sessions
			}
			for _, mirrors := range []bool{false, true} { // with them, old versions are raised
				t.Run(fmt.Sprintf("%s v%d mirrors %v", name, version, mirrors), func(t *testing.T) {
					b := readingBroker(t, tc.ops)
					s := setup{view: stateView()}
					if mirrors {
						s.view.put(mirrorPart("m", topicID(1), 0))
					}
					_, addr := s.start(t, b)
					c := dial(t, addr)
					for range 2 {
						want := tc.want
						if version < 7 {
							want = strings.Replace(want, "session 5", "session 0", 1)
						}
						if got := fetchCodes(c.ask(fetchOf(version, tc.epoch, tc.topics...)).(*kmsg.FetchResponse)); got != want {
							t.Errorf("got %s, want %s", got, want)
						}
					}
					asked := 0
					for _, r := range b.requests() {
						if r.key == int16(kmsg.DescribeCluster) {
							asked++
						}
						if r.key != int16(kmsg.Fetch) {
							continue
						}
						got := kmsg.NewPtrFetchRequest()
						got.Version = r.version
						if err := got.ReadFrom(r.frame[r.size:]); err != nil {
							t.Fatal(err)
						}
						var sent []string
						for _, ft := range got.Topics {
							n := ft.Topic
							if n == "" {
								n, _ = stateView().TopicName(ft.TopicID)
							}
							sent = append(sent, n)
						}
						if sent = append(sent, fmt.Sprint(got.SessionEpoch)); !slices.Equal(sent, tc.sent) {
							t.Errorf("sent %q, want %q", sent, tc.sent)
						}
					}
					named := slices.Contains(tc.topics, stateTopic)
					if want := map[bool]int{true: 1, false: 0}[named]; asked != want {
						t.Errorf("the cluster was asked %d times, want %d", asked, want)
					}
				})
			}
		}
	}
}

// A session that was opened before there was the topic would go on without naming it.
func TestFetchOfTheStateTopicBeforeItExists(t *testing.T) {
	for _, ops := range []int32{mayDescribe, mayRead} {
		for version := int16(4); version <= 12; version++ {
			t.Run(fmt.Sprintf("v%d operations %b", version, ops), func(t *testing.T) {
				b := readingBroker(t, ops)
				s := setup{view: newFakeView(ordinaryPart("o", topicID(2), 0))}
				_, addr := s.start(t, b)
				c := dial(t, addr)
				epoch := int32(0)
				if version < 7 {
					epoch = -1
				}
				got := fetchCodes(c.ask(fetchOf(version, epoch, "o", stateTopic)).(*kmsg.FetchResponse))
				if want := map[int32]string{mayDescribe: " 0", mayRead: " 29"}[ops]; !strings.Contains(got, stateTopic+want) || !strings.Contains(got, "o 0") {
					t.Errorf("got %s", got)
				}
				if ops == mayRead && !strings.Contains(got, "session 0") {
					t.Errorf("a session: %s", got)
				}
				if ops == mayRead && version >= 7 {
					if got := fetchCodes(c.ask(fetchOf(version, 3, stateTopic)).(*kmsg.FetchResponse)); got != "session 0, error 70" {
						t.Errorf("added to a session: %s", got)
					}
				}
				for _, r := range b.requests() {
					if r.key == int16(kmsg.Fetch) && ops == mayRead && strings.Contains(string(r.frame), stateTopic) {
						t.Error("the broker is asked for it")
					}
				}
			})
		}
	}
}

func TestOffsetsOfTheStateTopic(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		for _, ops := range []int32{mayDescribe, mayRead} {
			t.Run(fmt.Sprintf("virtual %v, operations %b", virtual, ops), func(t *testing.T) {
				s := setup{view: stateView()}
				s.cfg.Virtual = virtual
				_, addr := s.start(t, readingBroker(t, ops))
				c := dial(t, addr)
				want := map[string]int16{stateTopic: 0, "o": 0}
				if ops != mayDescribe {
					want[stateTopic] = errTopicAuthorization
				}
				for version := int16(0); version <= 11; version++ {
					for _, replica := range []int32{consumerReplica, debugReplica} {
						req := kmsg.NewPtrListOffsetsRequest()
						req.Version, req.ReplicaID = version, replica
						for _, name := range []string{stateTopic, "o"} {
							p := kmsg.NewListOffsetsRequestTopicPartition()
							p.Timestamp = latest
							req.Topics = append(req.Topics, kmsg.ListOffsetsRequestTopic{Topic: name, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}})
						}
						for _, rt := range c.ask(req).(*kmsg.ListOffsetsResponse).Topics {
							if got := rt.Partitions[0].ErrorCode; got != want[rt.Topic] {
								t.Errorf("ListOffsets v%d of %s: code %d", version, rt.Topic, got)
							}
						}
					}
				}
				for version := int16(0); version <= 4; version++ {
					req := kmsg.NewPtrOffsetForLeaderEpochRequest()
					req.Version, req.ReplicaID = version, -1
					for _, name := range []string{"o", stateTopic} {
						req.Topics = append(req.Topics, kmsg.OffsetForLeaderEpochRequestTopic{Topic: name, Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{}}})
					}
					for _, rt := range c.ask(req).(*kmsg.OffsetForLeaderEpochResponse).Topics {
						if got := rt.Partitions[0].ErrorCode; got != want[rt.Topic] {
							t.Errorf("OffsetForLeaderEpoch v%d of %s: code %d", version, rt.Topic, got)
						}
					}
				}
				for version := int16(1); version <= 2; version++ {
					req := kmsg.NewPtrShareFetchRequest()
					req.Version = version
					for _, name := range []string{stateTopic, "o"} {
						id, _ := s.view.Topic(name)
						req.Topics = append(req.Topics, kmsg.ShareFetchRequestTopic{TopicID: id, Partitions: []kmsg.ShareFetchRequestTopicPartition{{}}})
					}
					got := c.ask(req).(*kmsg.ShareFetchResponse).Topics
					if len(got) != 2 {
						t.Fatalf("ShareFetch v%d: %+v", version, got)
					}
					for _, rt := range got {
						name, _ := s.view.TopicName(rt.TopicID)
						p := rt.Partitions[0]
						if p.ErrorCode != want[name] || (len(p.Records) > 0) != (p.ErrorCode == 0) {
							t.Errorf("ShareFetch v%d of %s: code %d, records %q", version, name, p.ErrorCode, p.Records)
						}
					}
				}
			})
		}
	}
}

// Consumers of a pattern, and most tools, leave internal topics out.
func TestTheStateTopicIsInternal(t *testing.T) {
	state, other := stateTopic, "o"
	b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
		resp := req.ResponseKind()
		switch r := resp.(type) {
		case *kmsg.MetadataResponse:
			r.Topics = []kmsg.MetadataResponseTopic{{Topic: &state}, {Topic: &other}}
		case *kmsg.DescribeTopicPartitionsResponse:
			r.Topics = []kmsg.DescribeTopicPartitionsResponseTopic{{Topic: &state}, {Topic: &other}}
		}
		return resp
	}))
	s := setup{}
	_, addr := s.start(t, b)
	c := dial(t, addr)
	for version := int16(1); version <= 13; version++ {
		req := kmsg.NewPtrMetadataRequest()
		req.Version = version
		if got := c.ask(req).(*kmsg.MetadataResponse).Topics; !got[0].IsInternal || got[1].IsInternal {
			t.Errorf("v%d: %+v", version, got)
		}
	}
	if got := c.ask(kmsg.NewPtrDescribeTopicPartitionsRequest()).(*kmsg.DescribeTopicPartitionsResponse).Topics; !got[0].IsInternal || got[1].IsInternal {
		t.Errorf("%+v", got)
	}
}
