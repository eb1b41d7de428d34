package auth

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// listeners are all that a sidecar has for Kafka's protocol: for clients, and its virtual broker's.
func (e *env) listeners() map[string]string {
	return map[string]string{"client": e.dst.Sidecars[0].Proxy, "virtual": e.dst.Sidecars[0].Virtual}
}

// testStrangers attacks every listener. auth-a is mirrored, by virtual brokers that lead it.
func (e *env) testStrangers(t *testing.T) {
	details, err := kadm.NewClient(e.dst.Cluster.ClientT(t)).ListTopics(t.Context(), "auth-a", protocol.StateTopic)
	if err != nil {
		t.Fatal(err)
	}
	for name, addr := range e.listeners() {
		t.Run(name, func(t *testing.T) {
			t.Run("without a login", func(t *testing.T) { withoutLogin(t, addr) })
			t.Run("with a wrong password", func(t *testing.T) {
				cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.SASL(plain.Auth{User: userAll, Pass: "wrong"}.AsMechanism()), kgo.DisableClientMetrics())
				if err != nil {
					t.Fatal(err)
				}
				defer cl.Close()
				if resp, err := cl.SeedBrokers()[0].Request(t.Context(), kmsg.NewPtrMetadataRequest()); !errors.Is(err, kerr.SaslAuthenticationFailed) {
					t.Errorf("%+v, %v", resp, err)
				}
			})
			t.Run("without rights", func(t *testing.T) { e.withoutRights(t, addr, details) })
		})
	}
	t.Run("a broker that is none of the replicas", func(t *testing.T) { e.noReplica(t, details["auth-a"].ID) })
}

// exchange sends one request on a connection of its own, and returns the answer.
func exchange(ctx context.Context, addr string, key, version int16, body []byte) ([]byte, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	var b []byte
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = append(b, 0, 0, 0, 1, 0xff, 0xff) // correlation id, no client id
	b = append(b, body...)
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)); err != nil {
		return nil, err
	}
	return io.ReadAll(c)
}

// withoutLogin sends each API there is. Brokers hang up on all but what a login begins with.
func withoutLogin(t *testing.T, addr string) {
	var group errgroup.Group
	group.SetLimit(16)
	try := func(req kmsg.Request, key int16) {
		for _, version := range []int16{0, req.MaxVersion()} {
			group.Go(func() error {
				req := kmsg.RequestForKey(key)
				if req == nil {
					req = protocol.RequestForKey(key)
				}
				req.SetVersion(version)
				var tags []byte
				if req.IsFlexible() {
					tags = []byte{0}
				}
				got, err := exchange(t.Context(), addr, key, version, append(tags, req.AppendTo(nil)...))
				if _, refused := errors.AsType[*net.OpError](err); err != nil && !refused {
					return err
				}
				if len(got) > 0 {
					t.Errorf("API %d version %d is answered: %q", key, version, got)
				}
				return nil
			})
		}
	}
	for key := range int16(kmsg.MaxKey + 1) {
		if req := kmsg.RequestForKey(key); req != nil && key != int16(kmsg.ApiVersions) && key != int16(kmsg.SASLHandshake) {
			try(req, key)
		}
	}
	for _, key := range []int16{12794, 12795, 12796, 12798, 12799, 12800, 12801, 12802, 12803, 12804, 12806, 12850, 12851, 12852} {
		try(protocol.RequestForKey(key), key)
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// withoutRights has a login and nothing else: nothing that it is answered has a record, or a name that
// it has not given itself, and nothing of it changes anything.
func (e *env) withoutRights(t *testing.T, addr string, details kadm.TopicDetails) {
	ask := func(t *testing.T, req kmsg.Request) (kmsg.Response, error) {
		t.Helper()
		versions := protocol.AllowMirrorAPIs(kversion.Stable())
		if v := req.GetVersion(); v > 0 {
			versions.SetMaxKeyVersion(req.Key(), v)
		}
		cl := e.client(t, userNobody, kgo.SeedBrokers(addr), kgo.MaxVersions(versions))
		return cl.SeedBrokers()[0].Request(t.Context(), req)
	}
	answer := func(t *testing.T, req kmsg.Request) kmsg.Response {
		t.Helper()
		resp, err := ask(t, req)
		if err != nil {
			t.Fatalf("%T of version %d: %v", req, req.GetVersion(), err)
		}
		return resp
	}
	t.Run("metadata", func(t *testing.T) {
		for _, names := range [][]string{nil, {"auth-a", "no-such-topic", protocol.StateTopic}} {
			req := kmsg.NewPtrMetadataRequest()
			req.Version = 12
			for _, n := range names {
				mt := kmsg.NewMetadataRequestTopic()
				mt.Topic = kmsg.StringPtr(n)
				req.Topics = append(req.Topics, mt)
			}
			for _, mt := range answer(t, req).(*kmsg.MetadataResponse).Topics {
				if names == nil || mt.ErrorCode != topicDenied || len(mt.Partitions) > 0 || mt.TopicID != [16]byte{} {
					t.Errorf("%+v", mt)
				}
			}
		}
	})
	t.Run("fetch", func(t *testing.T) {
		for _, topic := range []string{"auth-a", "auth-c", "no-such-topic", protocol.StateTopic} {
			// As a consumer, as the broker beside it, as another, as the virtual broker itself, as nobody that there is.
			for _, replica := range []int32{-1, e.dst.Sidecars[0].Broker, e.dst.Sidecars[1].Broker, e.dst.Sidecars[0].VirtualID(), 999} {
				for _, version := range []int16{4, 10, 11, 12, 13, 15, 17} {
					req := fetchOf(version, replica, topic, details[topic].ID)
					got, err := ask(t, req)
					if err != nil {
						t.Errorf("%s as %d by version %d: %v", topic, replica, version, err)
						continue
					}
					resp := got.(*kmsg.FetchResponse)
					for _, rt := range resp.Topics {
						for _, p := range rt.Partitions {
							none := p.ErrorCode == topicDenied || p.ErrorCode == kerr.ClusterAuthorizationFailed.Code || version >= 13 && details[topic].ID == kadm.TopicID{} && p.ErrorCode == kerr.UnknownTopicID.Code
							if !none || len(p.RecordBatches) > 0 || p.HighWatermark > 0 || p.PreferredReadReplica >= 0 || p.CurrentLeader.LeaderID >= 0 {
								t.Errorf("%s as %d by version %d: %+v", topic, replica, version, p)
							}
						}
					}
				}
			}
		}
	})
	t.Run("offsets and epochs", func(t *testing.T) {
		for _, topic := range []string{"auth-a", "no-such-topic", protocol.StateTopic} {
			for _, replica := range []int32{-2, -1, e.dst.Sidecars[0].Broker, 999} {
				offsets := kmsg.NewPtrListOffsetsRequest()
				offsets.Version, offsets.ReplicaID = 7, replica
				ot, op := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
				ot.Topic, op.Timestamp = topic, -1
				ot.Partitions = append(ot.Partitions, op)
				offsets.Topics = append(offsets.Topics, ot)
				for _, rt := range answer(t, offsets).(*kmsg.ListOffsetsResponse).Topics {
					if p := rt.Partitions[0]; p.ErrorCode != topicDenied || p.Offset >= 0 {
						t.Errorf("offsets of %s as %d: %+v", topic, replica, p)
					}
				}
				epochs := kmsg.NewPtrOffsetForLeaderEpochRequest()
				epochs.Version, epochs.ReplicaID = 4, replica
				et, ep := kmsg.NewOffsetForLeaderEpochRequestTopic(), kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
				et.Topic = topic
				et.Partitions = append(et.Partitions, ep)
				epochs.Topics = append(epochs.Topics, et)
				for _, rt := range answer(t, epochs).(*kmsg.OffsetForLeaderEpochResponse).Topics {
					if p := rt.Partitions[0]; p.ErrorCode != topicDenied || p.EndOffset >= 0 || p.LeaderEpoch >= 0 {
						t.Errorf("epochs of %s as %d: %+v", topic, replica, p)
					}
				}
			}
		}
	})
	t.Run("brokers' own", func(t *testing.T) {
		markers := kmsg.NewPtrWriteTxnMarkersRequest()
		m, mt := kmsg.NewWriteTxnMarkersRequestMarker(), kmsg.NewWriteTxnMarkersRequestMarkerTopic()
		mt.Topic, mt.Partitions = "auth-a", []int32{0}
		m.Topics = append(m.Topics, mt)
		markers.Markers = append(markers.Markers, m)
		if resp, err := ask(t, markers); err == nil {
			for _, m := range resp.(*kmsg.WriteTxnMarkersResponse).Markers {
				if code := m.Topics[0].Partitions[0].ErrorCode; code == 0 {
					t.Error("a transaction was marked")
				}
			}
		}
		for _, req := range []kmsg.Request{
			kmsg.NewPtrAlterPartitionAssignmentsRequest(), kmsg.NewPtrListPartitionReassignmentsRequest(), kmsg.NewPtrUnregisterBrokerRequest(),
			kmsg.NewPtrDescribeACLsRequest(), kmsg.NewPtrDescribeClientQuotasRequest(),
		} {
			resp, err := ask(t, req)
			if err == nil && !bytes.Contains(resp.AppendTo(nil), []byte{0, 31}) { // CLUSTER_AUTHORIZATION_FAILED
				t.Errorf("%T: %+v", req, resp)
			}
		}
	})
	t.Run("sidecars' own", func(t *testing.T) {
		for name, row := range table() {
			req := row.req()
			for _, id := range []string{"", peerClientID} {
				resp, err := e.client(t, userNobody, kgo.SeedBrokers(addr), kgo.ClientID(id)).SeedBrokers()[0].Request(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				if code, message := codeOf(t, resp); code != authFailed || strings.Contains(message, mirror) {
					t.Errorf("%s: code %d %s", name, code, message)
				}
			}
		}
	})
	t.Run("writes", func(t *testing.T) {
		for _, topic := range []string{"auth-a", "auth-c", "no-such-topic"} {
			req := kmsg.NewPtrProduceRequest()
			req.Version, req.Acks, req.TimeoutMillis = 9, -1, 1000
			rt := kmsg.NewProduceRequestTopic()
			rt.Topic = topic
			rt.Partitions = []kmsg.ProduceRequestTopicPartition{{}}
			req.Topics = append(req.Topics, rt)
			if p := answer(t, req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.ErrorCode != topicDenied || strings.Contains(text(p.ErrorMessage), mirror) {
				t.Errorf("produce to %s: %d %s", topic, p.ErrorCode, text(p.ErrorMessage))
			}
			resp, err := kadm.NewClient(e.client(t, userNobody, kgo.SeedBrokers(addr))).DeleteTopics(t.Context(), topic)
			if err != nil {
				t.Fatal(err)
			}
			if r := resp[topic]; !errors.Is(r.Err, kerr.TopicAuthorizationFailed) || strings.Contains(r.ErrMessage, mirror) {
				t.Errorf("delete %s: %v %s", topic, r.Err, r.ErrMessage)
			}
		}
	})
}

func fetchOf(version int16, replica int32, topic string, id [16]byte) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID = version, replica
	if version >= 15 {
		req.ReplicaState.ID = replica
	}
	req.MaxBytes, req.SessionEpoch = 1<<20, -1
	ft, fp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	ft.Topic, ft.TopicID = topic, id
	fp.PartitionMaxBytes, fp.CurrentLeaderEpoch = 1<<20, -1
	ft.Partitions = append(ft.Partitions, fp)
	req.Topics = append(req.Topics, ft)
	return req
}

// noReplica logs in as somebody who may do what brokers do, and is none that has a replica, or one that
// died since: it gets no records, and changes nothing.
func (e *env) noReplica(t *testing.T, id [16]byte) {
	state := func() string {
		d, err := kadm.NewClient(e.dst.Cluster.ClientT(t)).ListTopics(t.Context(), "auth-a")
		if err != nil {
			t.Fatal(err)
		}
		p := d["auth-a"].Partitions[0]
		return fmt.Sprint(p.Leader, p.LeaderEpoch, p.Replicas)
	}
	before := state()
	for _, c := range e.dst.Sidecars {
		for _, replica := range []struct {
			id    int32
			epoch int64
		}{{999, -1}, {999, 1}, {c.VirtualID(), -1}, {20001, 5}, {c.Broker, 1 << 40}} {
			versions := kversion.Stable()
			versions.SetMaxKeyVersion(int16(kmsg.Fetch), 17)
			req := fetchOf(17, replica.id, "", id)
			req.ReplicaState.Epoch = replica.epoch
			cl := e.client(t, userIsBroker, kgo.SeedBrokers(c.Virtual), kgo.MaxVersions(versions))
			resp, err := cl.SeedBrokers()[0].Request(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if p := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]; p.ErrorCode == 0 || len(p.RecordBatches) > 0 {
				t.Errorf("replica %d of epoch %d at %d: %+v", replica.id, replica.epoch, c.VirtualID(), p)
			}
		}
	}
	if after := state(); after != before {
		t.Errorf("%s, before %s", after, before)
	}
}

// testForged writes to the state topic around the proxies, as a super user does with Kafka's own tools.
func (e *env) testForged(t *testing.T) {
	key, err := protocol.EncodeKey(protocol.MirrorKey{MirrorName: mirror})
	if err != nil {
		t.Fatal(err)
	}
	evil := protocol.NewMirrorValue()
	evil.SourceClusterID = "evil"
	c := protocol.NewMirrorConfig()
	c.Name, c.Value = "bootstrap.servers", kmsg.StringPtr("127.0.0.1:1")
	evil.Configs = append(evil.Configs, c)
	value, err := protocol.EncodeValue(&evil)
	if err != nil {
		t.Fatal(err)
	}
	described := func(n int) string {
		req := protocol.NewDescribeClusterMirrorsRequest()
		r := e.ask(t, userAll, n, &req).(*protocol.DescribeClusterMirrorsResponse)
		if len(r.Mirrors) != 1 {
			return fmt.Sprintf("%d mirrors, error %d %s", len(r.Mirrors), r.ErrorCode, text(r.ErrorMessage))
		}
		return fmt.Sprint(r.Mirrors[0].MirrorName, r.Mirrors[0].SourceBootstrap, r.Mirrors[0].SourceClusterID, len(r.Mirrors[0].Topics))
	}
	before := described(0)
	cl := e.dst.Cluster.ClientT(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range int32(4) { // one of them is the mirror's
		for _, r := range []*kgo.Record{
			{Key: key, Value: value}, {Key: key, Value: []byte{0, 99, 1}}, {Key: []byte{0x7f, 0, 1}, Value: []byte("garbage")}, {Value: []byte("no key")}, {Key: key},
		} {
			r.Topic, r.Partition = protocol.StateTopic, p
			if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil && !errors.Is(err, kerr.InvalidRecord) { // a compacted topic takes none without a key
				t.Fatal(err)
			}
		}
	}
	// What compaction would leave of the mirror is the truth again, by whoever coordinates it.
	reader := e.dst.Cluster.ClientT(t, kgo.ConsumeTopics(protocol.StateTopic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	own := map[int32]bool{} // by partition: whether the last record with the key is a sidecar's
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for restored := false; !restored; {
		fetches := reader.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("the last records with the mirror's key are sidecars': %v", own)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if bytes.Equal(r.Key, key) {
				own[r.Partition] = r.Attrs.IsTransactional() && !bytes.Equal(r.Value, value)
			}
		})
		restored = false
		for _, mine := range own {
			restored = restored || mine && len(own) == 4
		}
	}
	for n := range e.dst.Proxies() {
		if after := described(n); after != before {
			t.Errorf("sidecar %d: %s, before %s", n, after, before)
		}
	}
	eventually(t, "the metric", func(ctx context.Context) error {
		for _, s := range e.dst.Sidecars {
			body, err := get(ctx, "http://"+s.HTTP+"/metrics")
			if err != nil {
				return err
			}
			if !strings.Contains(body, "kafka_mirror_state_foreign_records_total 1") { // 16
				return errors.New("no foreign record was told")
			}
		}
		return nil
	})
	if !harness.Full() {
		return
	}
	// A sidecar that starts now reads all of it.
	s := e.dst.Sidecars[1]
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := described(1); after != before {
		t.Errorf("after a start: %s, before %s", after, before)
	}
}
