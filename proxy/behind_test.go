package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
)

// latePart is a mirror partition that broker 1 has a replica of which is not in sync.
func latePart(topic string, id ids.UUID, partition int32) *metadata.Partition {
	p := mirrorPart(topic, id, partition)
	p.ISR = []int32{10001, 2}
	return p
}

func TestBehind(t *testing.T) {
	view := newFakeView()
	l := NewLeaders(view, testVirtual)
	tp := ids.TopicPartition{TopicID: topicID(1)}
	before := uint64(0)
	for i, tc := range []struct {
		part *metadata.Partition
		late bool
	}{
		{mirrorPart("m", topicID(1), 0), false},
		{latePart("m", topicID(1), 0), true},
		{latePart("m", topicID(1), 0), true},
		{mirrorPart("m", topicID(1), 0), false},
		{latePart("m", topicID(1), 0), true},
		{&metadata.Partition{ // no real replica is any better
			Topic: "m", TopicID: topicID(1), Replicas: []int32{10001, 2, 1}, ISR: []int32{10001}, Leader: 10001,
		}, false},
		{&metadata.Partition{ // a real leader answers for itself
			Topic: "m", TopicID: topicID(1), Replicas: []int32{10001, 2, 1}, ISR: []int32{10001, 2}, Leader: 2,
		}, false},
		{latePart("m", topicID(1), 0), true},
		{nil, false},
		{latePart("m", topicID(1), 0), true},
		{ordinaryPart("m", topicID(1), 0), false},
	} {
		if tc.part == nil {
			view.remove(topicID(1))
		} else {
			view.put(tc.part)
		}
		generation, some := l.Behind(1)
		if some != tc.late || l.IsBehind(1, tp) != tc.late {
			t.Errorf("step %d: broker 1 is behind: %t, %t; want %t", i, some, l.IsBehind(1, tp), tc.late)
		}
		if tc.late && i != 2 && generation == before || generation < before {
			t.Errorf("step %d: generation %d after %d", i, generation, before)
		}
		before = generation
		if _, some := l.Behind(2); some || l.IsBehind(2, tp) {
			t.Errorf("step %d: broker 2 is behind", i)
		}
	}
}

// wholeBroker answers a Fetch for each partition of the request, by name or id, with the
// error that code gives, and records.
func wholeBroker(t testing.TB, records int, code func(topic string, id ids.UUID, partition int32) int16) script {
	return answers(t, func(req kmsg.Request) kmsg.Response {
		r, ok := req.(*kmsg.FetchRequest)
		if !ok {
			return req.ResponseKind()
		}
		resp := refuseFetch(r, func(id ids.UUID, topic string, out *kmsg.FetchResponseTopicPartition) int16 {
			out.RecordBatches = pattern(records)
			return code(topic, id, out.Partition)
		})
		if r.SessionEpoch >= 0 {
			resp.SessionID = 9
		}
		return resp
	})
}

func fetchBoth(version int16, view *fakeView, session, epoch int32, topics ...string) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.SessionID, req.SessionEpoch = version, -1, session, epoch
	for _, topic := range topics {
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic = topic
		rt.TopicID, _ = view.Topic(topic)
		for i := range int32(2) {
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition = i
			rt.Partitions = append(rt.Partitions, p)
		}
		req.Topics = append(req.Topics, rt)
	}
	return req
}

// A consumer that reads from a replica which falls out of the ISR is sent to another one, also
// if it is in a session, where nothing says what it reads.
func TestConsumersLeaveAReplicaThatIsBehind(t *testing.T) {
	for version := int16(4); version <= 18; version++ {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			view := newFakeView(mirrorPart("m", topicID(1), 0), mirrorPart("m", topicID(1), 1),
				ordinaryPart("o", topicID(2), 0), ordinaryPart("o", topicID(2), 1))
			b := startBroker(t, wholeBroker(t, 100, func(string, ids.UUID, int32) int16 { return 0 }))
			s := setup{view: view}
			_, addr := s.start(t, b)
			ask := func(c *client, req *kmsg.FetchRequest) *kmsg.FetchResponse { return c.ask(req).(*kmsg.FetchResponse) }
			codes := func(resp *kmsg.FetchResponse) map[string]int16 {
				out := map[string]int16{}
				for _, rt := range resp.Topics {
					name := rt.Topic
					if version >= fetchTopicIDs {
						name, _ = view.TopicName(rt.TopicID)
					}
					for _, p := range rt.Partitions {
						out[fmt.Sprintf("%s-%d", name, p.Partition)] = p.ErrorCode
						if (p.ErrorCode == 0) != (len(p.RecordBatches) > 0) || p.RecordBatches == nil {
							t.Errorf("partition %+v", p)
						}
					}
				}
				return out
			}
			sessions := version >= 7
			c, other := dial(t, addr), dial(t, addr)
			first := ask(c, fetchBoth(version, view, 0, 0, "m", "o"))
			if len(codes(first)) != 4 || sessions && first.SessionID != 9 {
				t.Fatalf("in sync: %+v", first)
			}
			ask(other, fetchBoth(version, view, 0, 0, "o"))

			view.put(latePart("m", topicID(1), 1))
			if sessions {
				for _, c := range []*client{c, other} {
					if resp := ask(c, fetchBoth(version, view, 9, 1)); resp.ErrorCode != errFetchSessionIDNotFound {
						t.Fatalf("session goes on: %+v", resp)
					}
				}
			}
			resp := ask(c, fetchBoth(version, view, 0, 0, "m", "o"))
			want := map[string]int16{"m-0": 0, "m-1": errNotLeaderOrFollower, "o-0": 0, "o-1": 0}
			if got := codes(resp); len(got) != len(want) || resp.SessionID != 0 {
				t.Errorf("answered %+v", resp)
			} else {
				for k, v := range want {
					if got[k] != v {
						t.Errorf("%s: error %d, want %d", k, got[k], v)
					}
				}
			}
			// Who reads nothing of it goes on with a session, once that is known.
			resp = ask(other, fetchBoth(version, view, 0, 0, "o"))
			if len(codes(resp)) != 2 || sessions && resp.SessionID != 9 {
				t.Errorf("another consumer: %+v", resp)
			}
			if sessions {
				if resp := ask(other, fetchBoth(version, view, 9, 1)); resp.ErrorCode != 0 || resp.SessionID != 9 {
					t.Errorf("another consumer's session: %+v", resp)
				}
				if resp := ask(other, fetchBoth(version, view, 9, 2, "m")); resp.ErrorCode != errFetchSessionIDNotFound {
					t.Errorf("taken into a session: %+v", resp)
				}
			}
			view.put(mirrorPart("m", topicID(1), 1))
			resp = ask(c, fetchBoth(version, view, 0, 0, "m", "o"))
			if got := codes(resp); got["m-1"] != 0 || len(got) != 4 || sessions && resp.SessionID != 9 {
				t.Errorf("in sync again: %+v", resp)
			}
		})
	}
}

// A connection may go on with more than one session. That the client has named what one of them holds says
// nothing of the other, which may be older than the replica's falling behind.
func TestEachSessionNamesWhatItHolds(t *testing.T) {
	for _, version := range []int16{7, 11, 12} {
		for _, olderFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("v%d, the older first: %t", version, olderFirst), func(t *testing.T) {
				eachSessionNames(t, version, olderFirst)
			})
		}
	}
}

func eachSessionNames(t *testing.T, version int16, olderFirst bool) {
	view := newFakeView(mirrorPart("m", topicID(1), 0), mirrorPart("m", topicID(1), 1), ordinaryPart("o", topicID(2), 0))
	session := int32(0)
	b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
		f, ok := req.(*kmsg.FetchRequest)
		if !ok {
			return req.ResponseKind()
		}
		resp := kmsg.NewPtrFetchResponse()
		if resp.SessionID = f.SessionID; f.SessionEpoch == 0 {
			session++
			resp.SessionID = session
		}
		return resp
	}))
	s := setup{view: view}
	_, addr := s.start(t, b)
	c := dial(t, addr)
	fetch := func(session, epoch int32, topics ...string) (int32, int16) {
		resp := c.ask(fetchBoth(version, view, session, epoch, topics...)).(*kmsg.FetchResponse)
		return resp.SessionID, resp.ErrorCode
	}
	older, _ := fetch(0, 0, "m")
	view.put(latePart("m", topicID(1), 1))
	newer, code := fetch(0, 0, "o")
	if older == newer || code != 0 {
		t.Fatalf("sessions %d and %d, error %d", older, newer, code)
	}
	if olderFirst {
		if _, code := fetch(older, 1); code != errFetchSessionIDNotFound {
			t.Errorf("the session that reads what is behind, asked first: error %d", code)
		}
	}
	for epoch := int32(1); epoch < 3; epoch++ {
		if _, code := fetch(newer, epoch); code != 0 {
			t.Errorf("the session whose partitions were named: error %d", code)
		}
		if _, code := fetch(older, epoch); code != errFetchSessionIDNotFound {
			t.Errorf("the session that reads what is behind: error %d", code)
		}
	}
	// To fetch without a session says nothing of any.
	if _, code := fetch(0, -1, "o"); code != 0 {
		t.Errorf("without a session: error %d", code)
	}
	if _, code := fetch(older, 3); code != errFetchSessionIDNotFound {
		t.Errorf("after a fetch without a session: error %d", code)
	}
}

// A session that is made by a Fetch which passes as it is, as one of a replica does, learns its id all
// the same.
func TestSessionsOfWhatPassesAsItIs(t *testing.T) {
	view := newFakeView(mirrorPart("m", topicID(1), 0), mirrorPart("m", topicID(1), 1), ordinaryPart("o", topicID(2), 0))
	view.put(latePart("m", topicID(1), 1))
	b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
		if _, ok := req.(*kmsg.FetchRequest); !ok {
			return req.ResponseKind()
		}
		resp := kmsg.NewPtrFetchResponse()
		resp.SessionID = 7
		return resp
	}))
	s := setup{view: view}
	_, addr := s.start(t, b)
	c := dial(t, addr)
	for version := int16(7); version <= 10; version++ {
		req := fetchBoth(version, view, 0, 0)
		req.ReplicaID = 1
		resp, ok := c.ask(req).(*kmsg.FetchResponse)
		if !ok || resp.ErrorCode != 0 || resp.SessionID != 7 {
			t.Fatalf("v%d: %+v", version, resp)
		}
	}
}

// What a replica says about an offset that it does not have yet is not passed on: consumers
// would begin again at one of the ends.
func TestOutOfRangeOfAReplicaThatIsBehind(t *testing.T) {
	for version := int16(4); version <= 18; version++ {
		for _, records := range []int{0, 20 << 10} { // in place, and on its way
			t.Run(fmt.Sprintf("v%d %d bytes", version, records), func(t *testing.T) {
				view := newFakeView(mirrorPart("m", topicID(1), 0), mirrorPart("m", topicID(1), 1),
					ordinaryPart("o", topicID(2), 0), ordinaryPart("o", topicID(2), 1))
				b := startBroker(t, wholeBroker(t, records, func(string, ids.UUID, int32) int16 {
					// It falls out while the request is under way.
					view.put(latePart("m", topicID(1), 1))
					return errOffsetOutOfRange
				}))
				s := setup{view: view}
				_, addr := s.start(t, b)
				resp := dial(t, addr).ask(fetchBoth(version, view, 0, 0, "o", "m")).(*kmsg.FetchResponse)
				late := errOffsetNotAvailable
				if version < followersAnswer {
					late = errNotLeaderOrFollower
				}
				for i, want := range [][]int16{{errOffsetOutOfRange, errOffsetOutOfRange}, {errOffsetOutOfRange, late}} {
					for j, code := range want {
						if p := resp.Topics[i].Partitions[j]; p.ErrorCode != code || !bytes.Equal(p.RecordBatches, pattern(records)) {
							t.Errorf("partition %d of topic %d: error %d, %d bytes; want %d", j, i, p.ErrorCode, len(p.RecordBatches), code)
						}
					}
				}
			})
		}
	}
}

func TestOffsetsOfAReplicaThatIsBehind(t *testing.T) {
	view := newFakeView(latePart("m", topicID(1), 0), mirrorPart("m", topicID(1), 1))
	b := startBroker(t, followingBroker(t))
	for _, virtual := range []bool{false, true} {
		s := setup{view: view}
		s.cfg.Virtual = virtual
		_, addr := s.start(t, b)
		req := kmsg.NewPtrListOffsetsRequest()
		req.Version, req.ReplicaID = 7, -1
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = "m"
		for i := range int32(2) {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp = i, latest
			rt.Partitions = append(rt.Partitions, p)
		}
		req.Topics = append(req.Topics, rt)
		got := dial(t, addr).ask(req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions
		want := errNotLeaderOrFollower
		if virtual {
			want = errNone // nobody else is there to ask
		}
		if len(got) != 2 || got[0].ErrorCode != want || got[1].ErrorCode != 0 || got[1].Offset != 80 {
			t.Errorf("virtual %t: %+v", virtual, got)
		}
	}
}

// Consumers of old versions that come around the proxy cannot be sent anywhere else.
func TestOldConsumersAroundTheProxy(t *testing.T) {
	view := newFakeView(mirrorPart("m", topicID(1), 0), mirrorPart("m", topicID(1), 1))
	for version := int16(4); version < followersAnswer; version++ {
		b := startBroker(t, wholeBroker(t, 100, func(string, ids.UUID, int32) int16 { return 0 }))
		s := setup{view: view}
		s.cfg.Virtual = true
		_, addr := s.start(t, b)
		resp := dial(t, addr).ask(fetchBoth(version, view, 0, 0, "m")).(*kmsg.FetchResponse)
		if p := resp.Topics[0].Partitions[1]; p.ErrorCode != 0 || !bytes.Equal(p.RecordBatches, pattern(100)) {
			t.Errorf("v%d: %+v", version, p)
		}
		for _, r := range b.requests() {
			if r.key == int16(kmsg.Fetch) && r.version != followersAnswer {
				t.Errorf("v%d: the broker got version %d", version, r.version)
			}
		}
	}
}

// replicaElsewhere is broker 2, which has records of all partitions, or none.
type replicaElsewhere struct{ records []byte }

func (r replicaElsewhere) Request(_ context.Context, broker int32, req kmsg.Request) (kmsg.Response, error) {
	f, ok := req.(*kmsg.FetchRequest)
	if !ok || broker != 2 || f.SessionEpoch != -1 || f.MaxWaitMillis != 0 {
		return nil, errors.New("not for this broker")
	}
	resp := refuseFetch(f, func(id ids.UUID, _ string, out *kmsg.FetchResponseTopicPartition) int16 {
		if id != topicID(1) {
			return errUnknownTopicID
		}
		out.RecordBatches, out.HighWatermark = r.records, 10+int64(out.Partition)
		return errNone
	})
	for i := range resp.Topics {
		resp.Topics[i].Topic = "" // the newest version names topics by their ids
	}
	return resp, nil
}

// Where the home broker has no replica an old consumer that came around the proxy is served with
// what another broker has, if the home broker has found it entitled.
func TestOldConsumersAroundTheProxyAreServedFromElsewhere(t *testing.T) {
	elsewhere := mirrorPart("m", topicID(1), 1)
	elsewhere.Leader = 10002 // not led here
	view := newFakeView(mirrorPart("m", topicID(1), 0), elsewhere, mirrorPart("denied", topicID(3), 0), mirrorPart("denied", topicID(3), 1))
	for version := int16(4); version < followersAnswer; version++ {
		for _, records := range [][]byte{pattern(100), {}} {
			b := startBroker(t, wholeBroker(t, 0, func(topic string, _ ids.UUID, _ int32) int16 {
				if topic == "denied" {
					return errTopicAuthorization
				}
				return errNotLeaderOrFollower
			}))
			s := setup{view: view}
			s.cfg.Virtual = true
			s.deps.Brokers = replicaElsewhere{records}
			_, addr := s.start(t, b)
			req := fetchBoth(version, view, 0, 0, "m", "denied")
			req.MaxWaitMillis = 50
			began := time.Now()
			resp := dial(t, addr).ask(req).(*kmsg.FetchResponse)
			if took := time.Since(began); len(records) == 0 && took < 50*time.Millisecond {
				t.Errorf("v%d: nothing is there, answered after %v", version, took)
			}
			if p := resp.Topics[0].Partitions[0]; p.ErrorCode != 0 || p.HighWatermark != 10 || !bytes.Equal(p.RecordBatches, records) {
				t.Errorf("v%d: %+v", version, p)
			}
			if p := resp.Topics[0].Partitions[1]; p.ErrorCode != errNotLeaderOrFollower {
				t.Errorf("v%d: led elsewhere: %+v", version, p)
			}
			for _, p := range resp.Topics[1].Partitions {
				if p.ErrorCode != errTopicAuthorization {
					t.Errorf("v%d: denied: %+v", version, p)
				}
			}
			if resp.SessionID != 0 {
				t.Errorf("v%d: session %d", version, resp.SessionID)
			}
		}
	}
}

// askedElsewhere is brokers that have records of half as many bytes as they are asked for.
type askedElsewhere struct {
	deadlines []time.Time
	most      []int32
}

func (a *askedElsewhere) Request(ctx context.Context, _ int32, req kmsg.Request) (kmsg.Response, error) {
	f := req.(*kmsg.FetchRequest)
	deadline, _ := ctx.Deadline()
	a.deadlines, a.most = append(a.deadlines, deadline), append(a.most, f.MaxBytes)
	return refuseFetch(f, func(_ ids.UUID, _ string, out *kmsg.FetchResponseTopicPartition) int16 {
		out.RecordBatches = pattern(int(f.MaxBytes / 2))
		return errNone
	}), nil
}

// However many brokers have what one request wants, their answers are together no larger than one may
// be, and come by one time.
func TestFetchesElsewhereAreBoundedTogether(t *testing.T) {
	for _, tc := range []struct {
		most int32 // of the request
		want []int32
	}{
		{1000, []int32{500, 750}}, // 250 have come then
		{1<<31 - 1, []int32{elsewhereBytes / 2, elsewhereBytes * 3 / 4}},
		{0, []int32{1, 1}},
	} {
		other := mirrorPart("m", topicID(1), 1)
		other.ISR = []int32{10001, 3}
		other.Replicas = []int32{10001, 3}
		s := setup{view: newFakeView(mirrorPart("m", topicID(1), 0), other)}
		s.cfg.Virtual = true
		brokers := &askedElsewhere{}
		s.deps.Brokers = brokers
		p, _ := s.start(t, startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response { return req.ResponseKind() })))
		c := &conn{p: p, ctx: t.Context(), log: discardLog()}
		req := fetchBoth(10, s.view, 0, -1, "m")
		req.MaxBytes = tc.most
		resp := refuseFetch(req, func(ids.UUID, string, *kmsg.FetchResponseTopicPartition) int16 { return errNotLeaderOrFollower })
		c.fetchElsewhere(req, resp)
		if !slices.Equal(brokers.most, tc.want) {
			t.Errorf("of %d bytes the brokers were asked for %d, want %d", tc.most, brokers.most, tc.want)
		}
		if len(brokers.deadlines) != 2 || brokers.deadlines[0].IsZero() || !brokers.deadlines[0].Equal(brokers.deadlines[1]) {
			t.Errorf("deadlines %v", brokers.deadlines)
		}
		for _, part := range resp.Topics[0].Partitions {
			if part.ErrorCode != errNone {
				t.Errorf("partition %d: error %d", part.Partition, part.ErrorCode)
			}
		}
	}
}

// Raised, an old Fetch would be answered by followers of ordinary partitions, too, where Kafka sends
// the consumer to the leader: it would read on at a broker that does not lead any more, and believe
// what it says of offsets.
func TestRaisedFetchIsNotAnsweredByOrdinaryFollowers(t *testing.T) {
	led := ordinaryPart("o", topicID(2), 1)
	led.Leader = 2
	view := newFakeView(mirrorPart("m", topicID(1), 0), mirrorPart("m", topicID(1), 1), ordinaryPart("o", topicID(2), 0), led)
	for version := int16(4); version <= 18; version++ {
		for _, code := range []int16{errNone, errOffsetOutOfRange} {
			b := startBroker(t, wholeBroker(t, 100, func(string, ids.UUID, int32) int16 { return code }))
			_, addr := (&setup{view: view}).start(t, b)
			resp := dial(t, addr).ask(fetchBoth(version, view, 0, 0, "m", "o")).(*kmsg.FetchResponse)
			for i, want := range []int16{code, code, code, errNotLeaderOrFollower} {
				if version >= followersAnswer {
					want = code
				}
				p := resp.Topics[i/2].Partitions[i%2]
				if p.ErrorCode != want || (len(p.RecordBatches) > 0) != (want == code) {
					t.Errorf("v%d, the broker answers %d: partition %d: error %d, %d bytes", version, code, i, p.ErrorCode, len(p.RecordBatches))
				}
			}
		}
	}
}

// Who may not read a topic, or is behind a leader's epoch, is told so also by a broker that does not lead:
// NOT_LEADER_OR_FOLLOWER instead would have the client ask for ever.
func TestRaisedFetchKeepsWhatIsRefused(t *testing.T) {
	led := ordinaryPart("o", topicID(2), 1)
	led.Leader = 2
	view := newFakeView(mirrorPart("m", topicID(1), 0), mirrorPart("m", topicID(1), 1), ordinaryPart("o", topicID(2), 0), led)
	const fencedEpoch, unknownEpoch int16 = 74, 75
	for version := int16(4); version < followersAnswer; version++ {
		for _, code := range []int16{errTopicAuthorization, errUnknownTopicOrPartition, fencedEpoch, unknownEpoch} {
			b := startBroker(t, wholeBroker(t, 100, func(string, ids.UUID, int32) int16 { return code }))
			_, addr := (&setup{view: view}).start(t, b)
			resp := dial(t, addr).ask(fetchBoth(version, view, 0, 0, "m", "o")).(*kmsg.FetchResponse)
			for i := range 4 {
				if got := resp.Topics[i/2].Partitions[i%2].ErrorCode; got != code {
					t.Errorf("v%d, the broker answers %d: partition %d: error %d", version, code, i, got)
				}
			}
		}
	}
}

// leaderElsewhere is the virtual broker 10002; it knows where epochs of topic m end.
type leaderElsewhere struct{ down bool }

func (l leaderElsewhere) Request(_ context.Context, broker int32, req kmsg.Request) (kmsg.Response, error) {
	r, ok := req.(*kmsg.OffsetForLeaderEpochRequest)
	if l.down || !ok || broker != 10002 || r.ReplicaID != sidecarReplica {
		return nil, errors.New("nobody is there")
	}
	resp := epochErrors(r, errNone)
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			p.LeaderEpoch, p.EndOffset = r.Topics[i].Partitions[j].LeaderEpoch, 50+int64(p.Partition)
			if p.Partition == 2 {
				p.ErrorCode, p.LeaderEpoch, p.EndOffset = 75, -1, -1 // it has just been elected
			}
		}
	}
	return resp, nil
}

// unknownLineage has not read yet what the leader has written of its newest epoch.
type unknownLineage struct{}

func (unknownLineage) EndOffset(ids.TopicPartition, int32) (int32, int64, bool) { return -1, -1, true }

// Where another sidecar leads it is asked: what this one has read of its lineage may be old, and
// "unknown" makes consumers begin at one of the log's ends.
func TestEpochsAreAskedWhereTheLeaderIs(t *testing.T) {
	view := newFakeView()
	for i := range int32(3) {
		p := mirrorPart("m", topicID(1), i)
		p.Leader = 10002
		view.put(p)
	}
	b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
		return epochErrors(req.(*kmsg.OffsetForLeaderEpochRequest), errNotLeaderOrFollower)
	}))
	for _, tc := range []struct{ bySidecar, down bool }{{false, false}, {false, true}, {true, false}} {
		s := setup{view: view}
		s.deps.Lineage, s.deps.Brokers = unknownLineage{}, leaderElsewhere{tc.down}
		_, addr := s.start(t, b)
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Version, req.ReplicaID = 4, consumerReplica
		if tc.bySidecar {
			req.ReplicaID = sidecarReplica
		}
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = "m"
		for i := range int32(3) {
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.Partition, p.LeaderEpoch = i, 5
			rt.Partitions = append(rt.Partitions, p)
		}
		req.Topics = append(req.Topics, rt)
		type answer struct {
			code  int16
			epoch int32
			end   int64
		}
		var got []answer
		for _, p := range dial(t, addr).ask(req).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions {
			got = append(got, answer{p.ErrorCode, p.LeaderEpoch, p.EndOffset})
		}
		later := answer{errNotLeaderOrFollower, -1, -1}
		want := []answer{{0, 5, 50}, {0, 5, 51}, later}
		if tc.down || tc.bySidecar { // who believes of this one that it leads is not sent back
			want = []answer{later, later, later}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v: got %v, want %v", tc, got, want)
		}
	}
}

func TestShareGroups(t *testing.T) {
	view := newFakeView(mirrorPart("m", topicID(1), 0), ordinaryPart("o", topicID(2), 0))
	script := answers(t, func(req kmsg.Request) kmsg.Response {
		r, ok := req.(*kmsg.ShareFetchRequest)
		if !ok {
			return req.ResponseKind()
		}
		resp := kmsg.NewPtrShareFetchResponse()
		for _, id := range []ids.UUID{topicID(1), topicID(2)} {
			rt := kmsg.NewShareFetchResponseTopic()
			rt.TopicID = id
			rp := kmsg.NewShareFetchResponseTopicPartition()
			rp.ErrorCode, rp.Records = errNotLeaderOrFollower, []byte{}
			rt.Partitions = append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
		}
		resp.Version = r.Version
		return resp
	})
	for _, virtual := range []bool{false, true} {
		b := startBroker(t, func(c net.Conn, h header, frame []byte) []byte { return script(c, h, frame) })
		s := setup{view: view}
		s.cfg.Virtual = virtual
		_, addr := s.start(t, b)
		c := dial(t, addr)
		for version := int16(0); version <= 1; version++ {
			heartbeat := func(epoch int32, topics ...string) *kmsg.ShareGroupHeartbeatResponse {
				req := kmsg.NewPtrShareGroupHeartbeatRequest()
				req.Version, req.GroupID, req.MemberEpoch, req.SubscribedTopicNames = version, "g", epoch, topics
				return c.ask(req).(*kmsg.ShareGroupHeartbeatResponse)
			}
			for _, r := range []*kmsg.ShareGroupHeartbeatResponse{heartbeat(0, "o"), heartbeat(3), heartbeat(-1, "m")} {
				if r.ErrorCode != 0 {
					t.Errorf("v%d: refused: %+v", version, r)
				}
			}
			r := heartbeat(0, "o", "m")
			if r.ErrorCode != errPolicyViolation || r.ErrorMessage == nil || !bytes.Contains([]byte(*r.ErrorMessage), []byte("--stop --mirror dr --topics m")) {
				t.Errorf("v%d: %+v", version, r)
			}
		}
		for version := int16(1); version <= 2; version++ {
			req := kmsg.NewPtrShareFetchRequest()
			req.Version = version
			began := time.Now()
			resp := c.ask(req).(*kmsg.ShareFetchResponse)
			if took := time.Since(began); took < shareWait {
				t.Errorf("v%d: answered after %v, and asked again at once", version, took)
			}
			if p := resp.Topics[0].Partitions[0]; p.ErrorCode != errTopicAuthorization || p.ErrorMessage == nil {
				t.Errorf("v%d: mirror partition %+v", version, p)
			}
			if p := resp.Topics[1].Partitions[0]; p.ErrorCode != errNotLeaderOrFollower {
				t.Errorf("v%d: ordinary partition %+v", version, p)
			}
		}
	}
}

// TestShareGroupsOfWhatIsNotSure: a share consumer of what may be an ordinary topic is not told that
// it cannot read, which would end it.
func TestShareGroupsOfWhatIsNotSure(t *testing.T) {
	view := newFakeView(mirrorPart("stray", topicID(1), 0), mirrorPart("m", topicID(2), 0), ordinaryPart("o", topicID(3), 0))
	tp := ids.TopicPartition{TopicID: topicID(1)}
	unread := make(chan struct{})
	notYet := func(int16, int16, []byte, error) ([]byte, error) { return nil, nil }
	restored := NewLate(nil, notYet)
	restored.Restored = true
	for name, tc := range map[string]struct {
		deps    Deps
		refused []string // of all topics
	}{
		"not read yet":            {Deps{CaughtUp: unread, Mirrors: fakeMirrors{}}, nil},
		"nothing is known":        {NewLate(nil, notYet).Deps(Deps{}), nil},
		"restored":                {restored.Deps(Deps{}), nil},
		"a stray, not sure":       {Deps{Mirrors: fakeMirrors{stray: map[ids.TopicPartition]bool{tp: false}}}, []string{"m"}},
		"its mirror is not known": {Deps{Mirrors: fakeMirrors{}}, []string{"stray", "m"}},
	} {
		b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response { return req.ResponseKind() }))
		s := setup{view: view, deps: tc.deps}
		p, addr := s.start(t, b)
		c := dial(t, addr)
		for i, topic := range []string{"stray", "m", "o", "new"} {
			refused := slices.Contains(tc.refused, topic)
			req := kmsg.NewPtrShareGroupHeartbeatRequest()
			req.Version, req.GroupID, req.SubscribedTopicNames = 1, "g", []string{"o", topic}
			if r := c.ask(req).(*kmsg.ShareGroupHeartbeatResponse); (r.ErrorCode == errPolicyViolation) != refused {
				t.Errorf("%s: %q: error %d, refused %t", name, topic, r.ErrorCode, refused)
			}
			rp := kmsg.NewShareFetchResponseTopicPartition()
			rp.ErrorCode = errNotLeaderOrFollower
			resp := &kmsg.ShareFetchResponse{Topics: []kmsg.ShareFetchResponseTopic{{TopicID: topicID(byte(i + 1)), Partitions: []kmsg.ShareFetchResponseTopicPartition{rp}}}}
			if got, _ := p.refuseShares(resp); got != refused {
				t.Errorf("%s: fetched of %q: %+v", name, topic, resp.Topics[0].Partitions[0])
			}
		}
	}
}
