package proxy

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Brokers create topics that a client asks for. The state topic is not created so: it would have
// any topic's partitions and retention, and mirrors would lose their state with time.
func TestStateTopicIsNotCreatedByAsking(t *testing.T) {
	view := newFakeView()
	b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
		resp := kmsg.NewPtrMetadataResponse()
		for _, mt := range req.(*kmsg.MetadataRequest).Topics {
			rt := kmsg.NewMetadataResponseTopic()
			rt.Topic = mt.Topic
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	}))
	asked := func() (topics []string, all bool) {
		got := b.requests()
		last := got[len(got)-1]
		req := kmsg.NewPtrMetadataRequest()
		req.Version = last.version
		if err := req.ReadFrom(last.frame[last.size:]); err != nil {
			t.Fatal(err)
		}
		for _, mt := range req.Topics {
			topics = append(topics, *mt.Topic)
		}
		return topics, len(topics) == 0 && (req.Topics == nil || req.Version == 0)
	}
	request := func(version int16, topics ...string) *kmsg.MetadataRequest {
		req := kmsg.NewPtrMetadataRequest()
		req.Version, req.AllowAutoTopicCreation = version, true
		for _, name := range topics {
			req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &name})
		}
		return req
	}
	for _, virtual := range []bool{false, true} {
		s := setup{view: view}
		s.cfg.Virtual = virtual
		_, addr := s.start(t, b)
		c := dial(t, addr)
		many := make([]string, 3000) // more than is looked at without reading a request whole
		for i := range many {
			many[i] = strings.Repeat("x", 20) + string(rune('a'+i%26))
		}
		for version := int16(0); version <= 13; version++ {
			asks := [][]string{nil, {"o", "p"}}
			if version%9 == 0 {
				asks = append(asks, many)
			}
			for _, others := range asks {
				resp := c.ask(request(version, append(slices.Clone(others), stateTopic)...)).(*kmsg.MetadataResponse)
				got, all := asked()
				if all || !slices.Equal(got, others) {
					t.Errorf("v%d: the broker was asked for %d topics, want %d; for all: %t", version, len(got), len(others), all)
				}
				if n := len(resp.Topics); n != len(others)+1 || *resp.Topics[n-1].Topic != stateTopic || resp.Topics[n-1].ErrorCode != errUnknownTopicOrPartition {
					t.Errorf("v%d: an answer for %d topics", version, n)
				}
			}
		}
	}
	// What is there is asked for as it is.
	view.put(ordinaryPart(stateTopic, topicID(3), 0))
	s := setup{view: view}
	_, addr := s.start(t, b)
	dial(t, addr).ask(request(9, stateTopic))
	if got, _ := asked(); !slices.Equal(got, []string{stateTopic}) {
		t.Errorf("asked for %v", got)
	}
}

func TestUncleanElections(t *testing.T) {
	none := mirrorPart("m", topicID(1), 0)
	none.Leader = -1
	other := ordinaryPart("o", topicID(2), 0)
	other.Leader = -1
	view := newFakeView(none, other, ordinaryPart("o", topicID(2), 1))
	b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
		switch r := req.(type) {
		case *kmsg.ElectLeadersRequest:
			resp := kmsg.NewPtrElectLeadersResponse()
			if r.Topics == nil {
				resp.ErrorCode = 99
			}
			for _, et := range r.Topics {
				rt := kmsg.NewElectLeadersResponseTopic()
				rt.Topic = et.Topic
				for _, p := range et.Partitions {
					rt.Partitions = append(rt.Partitions, kmsg.ElectLeadersResponseTopicPartition{Partition: p})
				}
				resp.Topics = append(resp.Topics, rt)
			}
			return resp
		default:
			return req.ResponseKind()
		}
	}))
	s := setup{view: view}
	_, addr := s.start(t, b)
	c := dial(t, addr)
	for version := int16(1); version <= 2; version++ {
		req := kmsg.NewPtrElectLeadersRequest()
		req.Version, req.ElectionType = version, 1
		resp := c.ask(req).(*kmsg.ElectLeadersResponse)
		if resp.ErrorCode != 0 || len(resp.Topics) != 1 || resp.Topics[0].Topic != "o" || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].Partition != 0 {
			t.Errorf("v%d: of all: %+v", version, resp)
		}
		req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "m", Partitions: []int32{0}}}
		resp = c.ask(req).(*kmsg.ElectLeadersResponse)
		if len(resp.Topics) != 1 || resp.Topics[0].Partitions[0].ErrorCode != 44 {
			t.Errorf("v%d: of a mirror topic: %+v", version, resp)
		}
		req.ElectionType = 0
		if resp = c.ask(req).(*kmsg.ElectLeadersResponse); resp.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Errorf("v%d: the preferred leader: %+v", version, resp)
		}
	}
}

// TestUncleanElectionsOfAll: the controller is never asked for all, which may be more than the view
// shows, and for nothing while the view has not been read.
func TestUncleanElectionsOfAll(t *testing.T) {
	lost := ordinaryPart("o", topicID(2), 0)
	lost.Leader = -1
	b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
		resp := req.ResponseKind()
		if r, ok := req.(*kmsg.ElectLeadersRequest); ok && r.Topics == nil {
			resp.(*kmsg.ElectLeadersResponse).ErrorCode = 99
		}
		return resp
	}))
	caughtUp := make(chan struct{})
	s := setup{view: newFakeView(lost)}
	s.deps.CaughtUp = caughtUp
	_, addr := s.start(t, b)
	c := dial(t, addr)
	elect := func(want int16) {
		t.Helper()
		for version := int16(1); version <= 2; version++ {
			req := kmsg.NewPtrElectLeadersRequest()
			req.Version, req.ElectionType = version, 1
			if resp := c.ask(req).(*kmsg.ElectLeadersResponse); resp.ErrorCode != want {
				t.Errorf("v%d: %+v, want error %d", version, resp, want)
			}
		}
	}
	elect(41)
	close(caughtUp)
	elect(0)
}

func TestClientsWriteNoMarkers(t *testing.T) {
	view := newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart("o", topicID(2), 0))
	b := brokerForWrites(t)
	s := setup{view: view}
	_, addr := s.start(t, b)
	c := dial(t, addr)
	for version := int16(1); version <= 2; version++ {
		req := kmsg.NewPtrWriteTxnMarkersRequest()
		req.Version = version
		req.Markers = []kmsg.WriteTxnMarkersRequestMarker{{ProducerID: 4, Topics: []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: "m", Partitions: []int32{0}}}}}
		resp := c.ask(req).(*kmsg.WriteTxnMarkersResponse)
		if len(resp.Markers) != 1 || resp.Markers[0].ProducerID != 4 || resp.Markers[0].Topics[0].Partitions[0].ErrorCode != 44 {
			t.Errorf("v%d: %+v", version, resp)
		}
	}
	for _, r := range b.requests() {
		if r.key == int16(kmsg.WriteTxnMarkers) {
			t.Error("the broker got one")
		}
	}
}
