package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// section2 tests that nobody writes to a mirror topic.
func section2() []row {
	return []row{
		{proves: "C2.1 C2.11 produce", run: writeProduce},
		{proves: "C2.2 C2.12 transactions", run: writeTransaction},
		{proves: "C2.3 DeleteRecords", run: writeDeleteRecords},
		{proves: "C2.4 CreatePartitions", run: writeCreatePartitions},
		{proves: "C2.5 AlterReplicaLogDirs", run: writeLogDirs},
		{proves: "C2.6 locked configs", run: writeConfigs},
		{proves: "C2.7 DeleteTopics", run: writeDeleteTopics},
		{proves: "C2.8 reassignments", run: writeReassign},
		{proves: "C2.9 state topic", run: writeStateTopic},
		{proves: "C2.14 acks=0", run: writeNoAcks},
		{proves: "C2.15 around the proxy", run: writeAround},
		{proves: "C2.16 before the metadata is read", run: writeTooEarly},
		{proves: "C2.17 unclean elections", run: writeElection},
		{proves: "C2.18 markers", run: writeMarkers},
	}
}

// mirrored makes a mirror and a topic of the same name that is MIRRORING and copied.
func (e *env) mirrored(t *testing.T, name string, partitions int32, n int, configs ...string) string {
	t.Helper()
	e.mirror(t, name)
	e.topic(t, name, partitions, n, configs...)
	e.started(t, name, name)
	e.copied(t, name)
	return name
}

// produceRequest writes one record to each partition named by topic.
func produceRequest(acks int16, records map[string]int32, order ...kadm.TopicDetail) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 5000
	for _, d := range order {
		rt := kmsg.NewProduceRequestTopic()
		rt.Topic, rt.TopicID = d.Topic, d.ID
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = records[d.Topic], oneRecord("conformance")
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	return req
}

func writeProduce(t *testing.T, e *env) {
	name := e.mirrored(t, "c2-1", 2, 4)
	const ordinary = "c2-1.ordinary"
	createTopic(t, e.dstClient, 1, 1, ordinary)
	// Its leader knows that it leads when it has taken a record.
	if err := produce(t.Context(), writer(t, e.dst.Direct()), ordinary, 1, 1, "first"); err != nil {
		t.Fatal(err)
	}
	mine, other := e.here(t, name), e.here(t, ordinary)
	leader := e.dst.Sidecar(other.Partitions[0].Leader)
	for _, partition := range []int32{0, 1} {
		for _, acks := range []int16{1, -1} {
			r := askAt[*kmsg.ProduceResponse](t, leader.Proxy, produceRequest(acks, map[string]int32{name: partition}, mine, other))
			if len(r.Topics) != 2 {
				t.Fatalf("an answer for %d topics", len(r.Topics))
			}
			p := r.Topics[0].Partitions[0]
			if p.ErrorCode != kerr.PolicyViolation.Code || !strings.Contains(text(p.ErrorMessage), `"`+name+`"`) || !strings.Contains(text(p.ErrorMessage), "--stop") {
				t.Errorf("acks %d: code %d, %q; want POLICY_VIOLATION, the mirror and the way out", acks, p.ErrorCode, text(p.ErrorMessage))
			}
			if p := r.Topics[1].Partitions[0]; p.ErrorCode != 0 {
				t.Errorf("acks %d: the other topic of the request: code %d", acks, p.ErrorCode)
			}
		}
	}
	if got := endsT(t, e.dstAdmin, ordinary)[0]; got != 5 {
		t.Errorf("the other topic has %d records, want 5", got)
	}
	if got := endsT(t, e.dstAdmin, name); got[0] != 2 || got[1] != 2 {
		t.Errorf("the mirror topic's ends are %v", got)
	}
}

func writeTransaction(t *testing.T, e *env) {
	name := e.mirrored(t, "c2-2", 1, 3)
	const ordinary, id = "c2-2.ordinary", "c2-2"
	createTopic(t, e.dstClient, 1, 1, ordinary)
	// The request of producers up to Kafka 4.0, which ask before they write.
	v := kversion.Stable()
	v.SetMaxKeyVersion(24, 3)
	v.SetMaxKeyVersion(22, 4)
	cl := newClient(t, e.dst.Proxies(), kgo.MaxVersions(v))
	start := kmsg.NewPtrInitProducerIDRequest()
	start.TransactionalID, start.TransactionTimeoutMillis = kmsg.StringPtr(id), 60000
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	pid, err := start.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(pid.ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = id, pid.ProducerID, pid.ProducerEpoch
	for _, topic := range []string{ordinary, name} {
		at := kmsg.NewAddPartitionsToTxnRequestTopic()
		at.Topic, at.Partitions = topic, []int32{0}
		add.Topics = append(add.Topics, at)
	}
	r, err := add.RequestWith(ctx, cl)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int16{}
	for _, at := range r.Topics {
		for _, p := range at.Partitions {
			got[at.Topic] = p.ErrorCode
		}
	}
	if got[name] != kerr.TopicAuthorizationFailed.Code || got[ordinary] != kerr.OperationNotAttempted.Code {
		t.Errorf("answer %v, want TOPIC_AUTHORIZATION_FAILED and OPERATION_NOT_ATTEMPTED", got)
	}
	d, err := e.dstAdmin.DescribeTransactions(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if x := d[id]; x.Err != nil || len(x.Topics) > 0 {
		t.Errorf("the coordinator knows of the transaction: %+v", x)
	}

	// A Java producer aborts, and commits its next transaction.
	in := e.src.Installation() // an old one where the source is old
	tx := harness.JavaProduce{
		Bootstrap: e.dst.Proxies(), Topic: name, Records: []harness.JavaRecord{{Partition: 0, Value: []byte("no")}}, TransactionalID: "c2-2.java", Abort: true,
	}
	produced, err := in.Produce(ctx, tx)
	if err != nil || len(produced) != 1 || produced[0].Err == nil {
		t.Errorf("a transactional write, then an abort: %+v, %v", produced, err)
	}
	tx.Topic, tx.Abort = ordinary, false
	produced, err = in.Produce(ctx, tx)
	if err != nil || len(produced) != 1 || produced[0].Err != nil {
		t.Errorf("the next transaction: %+v, %v", produced, err)
	}
	if got := endsT(t, e.dstAdmin, name)[0]; got != 3 {
		t.Errorf("the mirror topic ends at %d", got)
	}
}

// names fails the row unless a refusal names the mirror.
func namesMirror(t *testing.T, what string, err error, mirror string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("%s was taken", what)
	case !errors.Is(err, kerr.PolicyViolation):
		t.Errorf("%s: %v, want POLICY_VIOLATION", what, err)
	case !strings.Contains(err.Error(), mirror):
		t.Errorf("%s: %v does not name the mirror", what, err)
	}
}

func writeDeleteRecords(t *testing.T, e *env) {
	name := e.mirrored(t, "c2-3", 1, 5)
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 5000
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = name
	rp := kmsg.NewDeleteRecordsRequestTopicPartition()
	rp.Offset = 2
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	for i := range e.dst.Sidecars {
		r := ask[*kmsg.DeleteRecordsResponse](t, e, i, req)
		if code := r.Topics[0].Partitions[0].ErrorCode; code != kerr.PolicyViolation.Code {
			t.Errorf("DeleteRecords gets %d", code)
		}
	}
	if start, err := e.dstAdmin.ListStartOffsets(t.Context(), name); err != nil || start[name][0].Offset != 0 {
		t.Errorf("the log starts at %+v (%v)", start[name][0], err)
	}
}

func writeCreatePartitions(t *testing.T, e *env) {
	name := e.mirrored(t, "c2-4", 2, 2)
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 5000
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = name, 3
	req.Topics = append(req.Topics, rt)
	for i := range e.dst.Sidecars {
		r := ask[*kmsg.CreatePartitionsResponse](t, e, i, req)
		namesMirror(t, "CreatePartitions", protocol.ErrorForCode(r.Topics[0].ErrorCode, r.Topics[0].ErrorMessage), name)
	}
	if n := len(e.here(t, name).Partitions); n != 2 {
		t.Errorf("the topic has %d partitions", n)
	}
}

func writeLogDirs(t *testing.T, e *env) {
	name := e.mirrored(t, "c2-5", 1, 2)
	dir := filepath.Dir(mustDir(t, e.dst.Cluster.Brokers()[0], name))
	req := kmsg.NewPtrAlterReplicaLogDirsRequest()
	rd := kmsg.NewAlterReplicaLogDirsRequestDir()
	rd.Dir = dir
	rt := kmsg.NewAlterReplicaLogDirsRequestDirTopic()
	rt.Topic, rt.Partitions = name, []int32{0}
	rd.Topics = append(rd.Topics, rt)
	req.Dirs = append(req.Dirs, rd)
	r := ask[*kmsg.AlterReplicaLogDirsResponse](t, e, 0, req)
	if len(r.Topics) != 1 || r.Topics[0].Partitions[0].ErrorCode != kerr.PolicyViolation.Code {
		t.Errorf("answer %+v", r.Topics)
	}
}

func mustDir(t *testing.T, n *harness.Node, topic string) string {
	t.Helper()
	dir, err := n.PartitionDir(topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func writeConfigs(t *testing.T, e *env) {
	name := e.mirrored(t, "c2-6", 1, 2)
	for _, key := range lockKeys() {
		value := map[string]string{"max.message.bytes": "1000000", "min.insync.replicas": "1"}[key]
		if value == "" {
			value = "true"
		}
		namesMirror(t, key, alterConfigs(t, e.dst.Sidecars[0].Proxy, kmsg.ConfigResourceTypeTopic, name, key, value), name)
	}
	locked := e.configs(t, name)
	if locked["max.message.bytes"] != "0" || locked["unclean.leader.election.enable"] != "false" {
		t.Errorf("the lock is %v", locked)
	}
	// What does not keep writers out may be changed, and what is shown is what is wanted.
	if err := alterConfigs(t, e.dst.Sidecars[0].Proxy, kmsg.ConfigResourceTypeTopic, name, "retention.bytes", "123456789"); err != nil {
		t.Errorf("retention.bytes: %v", err)
	}
	if shown := describeConfigs(t, e.dst.Sidecars[0].Proxy, kmsg.ConfigResourceTypeTopic, name)["max.message.bytes"]; text(shown.Value) == "0" {
		t.Error("clients see the lock's max.message.bytes instead of the wanted one")
	}
}

func writeDeleteTopics(t *testing.T, e *env) {
	name := e.mirrored(t, "c2-7", 1, 2)
	drop := func() error {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TimeoutMillis = 10000
		req.TopicNames = []string{name}
		rt := kmsg.NewDeleteTopicsRequestTopic()
		rt.Topic = &name
		req.Topics = append(req.Topics, rt)
		r := ask[*kmsg.DeleteTopicsResponse](t, e, 0, req)
		return protocol.ErrorForCode(r.Topics[0].ErrorCode, r.Topics[0].ErrorMessage)
	}
	namesMirror(t, "DeleteTopics", drop(), name)
	e.ended(t, name, name)
	if err := drop(); err != nil {
		t.Errorf("delete of a stopped topic: %v", err)
	}
}

// writeReassign takes a real replica away and gives it back. Clients of the proxies see real
// replicas only.
func writeReassign(t *testing.T, e *env) {
	name := e.mirrored(t, "c2-8", 1, 5)
	proxied := kadm.NewClient(newClient(t, e.dst.Proxies()))
	seen, err := detail(t.Context(), proxied, name)
	if err != nil {
		t.Fatal(err)
	}
	all := seen.Partitions[0].Replicas
	hidden := len(slices.DeleteFunc(slices.Clone(e.here(t, name).Partitions[0].Replicas), func(b int32) bool { return !virtual(b) }))
	if len(all) < 2 || hidden == 0 || slices.ContainsFunc(all, virtual) {
		t.Fatalf("clients see replicas %v, there are %d virtual ones", all, hidden)
	}
	for _, want := range [][]int32{all[1:], append(slices.Clone(all[1:]), all[0])} {
		var req kadm.AlterPartitionAssignmentsReq
		req.Assign(name, 0, want)
		r, err := proxied.AlterPartitionAssignments(t.Context(), req)
		if err == nil {
			err = r.Error()
		}
		if err != nil {
			t.Fatalf("reassign to %v: %v", want, err)
		}
		eventually(t, fmt.Sprintf("replicas %v", want), func(ctx context.Context) error {
			seen, err := detail(ctx, proxied, name)
			if err != nil {
				return err
			}
			d, err := detail(ctx, e.dstAdmin, name)
			if err != nil {
				return err
			}
			p := d.Partitions[0]
			if now := seen.Partitions[0].Replicas; !slices.Equal(now, want) || len(p.Replicas) != len(want)+hidden || !virtual(p.Leader) || len(p.ISR) != len(p.Replicas) {
				return fmt.Errorf("clients see %v; there are %v, in sync %v, led by %d", now, p.Replicas, p.ISR, p.Leader)
			}
			return nil
		})
		if err := produce(t.Context(), writer(t, e.dst.Proxies()), name, 1, 1, "no"); !errors.Is(err, kerr.PolicyViolation) {
			t.Errorf("a write: %v", err)
		}
	}
	e.write(t, name, 1, 3)
	e.copied(t, name)
}

func writeStateTopic(t *testing.T, e *env) {
	e.mirror(t, "c2-9") // the topic comes with the first mirror
	d := e.here(t, protocol.StateTopic)
	for i := range e.dst.Sidecars {
		r := ask[*kmsg.ProduceResponse](t, e, i, produceRequest(-1, nil, d))
		if p := r.Topics[0].Partitions[0]; p.ErrorCode != kerr.PolicyViolation.Code || !strings.Contains(text(p.ErrorMessage), protocol.StateTopic) {
			t.Errorf("produce: code %d, %q", p.ErrorCode, text(p.ErrorMessage))
		}
	}
	if err := alterConfigs(t, e.dst.Sidecars[0].Proxy, kmsg.ConfigResourceTypeTopic, protocol.StateTopic, "max.message.bytes", "1"); err == nil {
		t.Error("its configs could be changed")
	}
	adm := kadm.NewClient(newClient(t, e.dst.Proxies()))
	if r, err := adm.DeleteTopic(t.Context(), protocol.StateTopic); err == nil && r.Err == nil {
		t.Fatal("it could be deleted")
	}
	offsets := kadm.Offsets{}
	offsets.AddOffset(protocol.StateTopic, 0, 1, -1)
	if r, err := adm.DeleteRecords(t.Context(), offsets); err == nil && r.Error() == nil {
		t.Error("its records could be deleted")
	}
}

func writeNoAcks(t *testing.T, e *env) {
	name := e.mirrored(t, "c2-14", 1, 2)
	const ordinary = "c2-14.ordinary"
	createTopic(t, e.dstClient, 1, 1, ordinary)
	other := e.here(t, ordinary)
	sidecar := e.dst.Sidecar(other.Partitions[0].Leader)
	closes := func(topic string) error {
		conn := dial(t, sidecar.Proxy)
		defer conn.Close()
		req := produceRequest(0, nil, e.here(t, topic))
		req.SetVersion(11)
		if _, err := conn.Write(frame(req)); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(3 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, err := conn.Read(make([]byte, 1))
		return err
	}
	if err := closes(name); !errors.Is(err, io.EOF) {
		t.Errorf("%s: after a write with acks=0 the connection says %v", name, err)
	}
	// A broker that does not know yet that it leads closes the connection too.
	eventually(t, "an ordinary topic takes a write with acks=0", func(context.Context) error {
		if err := closes(ordinary); errors.Is(err, io.EOF) {
			return errors.New("the connection was closed")
		}
		return nil
	})
	if got := endsT(t, e.dstAdmin, name)[0]; got != 2 {
		t.Errorf("the mirror topic ends at %d", got)
	}
}

func writeAround(t *testing.T, e *env) {
	name := e.mirrored(t, "c2-15", 1, 2)
	d := e.here(t, name)
	for _, addr := range e.dst.Direct() {
		for _, acks := range []int16{1, -1} {
			r := askAt[*kmsg.ProduceResponse](t, addr, produceRequest(acks, nil, d))
			if p := r.Topics[0].Partitions[0]; p.ErrorCode != kerr.NotLeaderForPartition.Code {
				t.Errorf("acks %d: code %d, want NOT_LEADER_OR_FOLLOWER", acks, p.ErrorCode)
			}
		}
	}
	if got := endsT(t, e.dstAdmin, name)[0]; got != 2 {
		t.Errorf("the mirror topic ends at %d", got)
	}
}

// writeTooEarly runs a sidecar whose controllers do not answer.
func writeTooEarly(t *testing.T, e *env) {
	name := e.mirrored(t, "c2-16", 1, 2)
	ports, err := harness.FreePorts(4)
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	file := propertiesFile(t, map[string]string{
		"home.broker.bootstrap": e.dst.Cluster.Brokers()[0].Addr(harness.ListenerClient), "controller.quorum.bootstrap.servers": at(0),
		"listeners": "CLIENT://" + at(1), "virtual.listeners": at(2), "http.listen": at(3),
	})
	p := harness.StartProcessT(t, "early sidecar", []string{program("mirror-sidecar"), "run", "--config", file}, nil, filepath.Join(t.TempDir(), "log"))
	deadline := time.Now().Add(8 * time.Second)
	for time.Now().Before(deadline) && p.Running() {
		if resp, err := http.Get("http://" + at(3) + "/readyz"); err == nil { //nolint:noctx // a local question with a short answer
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				t.Fatal("it says that it is ready")
			}
		}
		if err := produce(t.Context(), once(t, []string{at(1)}, kgo.RecordDeliveryTimeout(time.Second)), name, 1, 1, "no"); err == nil {
			t.Fatal("it has taken a write")
		}
	}
	if got := endsT(t, e.dstAdmin, name)[0]; got != 2 {
		t.Errorf("the mirror topic ends at %d", got)
	}
}

func writeElection(t *testing.T, e *env) {
	name := e.mirrored(t, "c2-17", 1, 2)
	req := kmsg.NewPtrElectLeadersRequest()
	req.TimeoutMillis = 5000
	rt := kmsg.NewElectLeadersRequestTopic()
	rt.Topic, rt.Partitions = name, []int32{0}
	req.Topics = append(req.Topics, rt)
	const preferred, unclean = 0, 1
	for i := range e.dst.Sidecars {
		req.ElectionType = unclean
		p := ask[*kmsg.ElectLeadersResponse](t, e, i, req).Topics[0].Partitions[0]
		namesMirror(t, "an unclean election", protocol.ErrorForCode(p.ErrorCode, p.ErrorMessage), name)
		// The controller elects preferred leaders by itself; a client may ask for it.
		req.ElectionType = preferred
		p = ask[*kmsg.ElectLeadersResponse](t, e, i, req).Topics[0].Partitions[0]
		if p.ErrorCode == kerr.PolicyViolation.Code {
			t.Errorf("the election of the preferred leader: %s", text(p.ErrorMessage))
		}
	}
	if leader := e.here(t, name).Partitions[0].Leader; !virtual(leader) {
		t.Errorf("broker %d leads", leader)
	}
}

func writeMarkers(t *testing.T, e *env) {
	name := e.mirrored(t, "c2-18", 1, 3)
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID = 4711
	rt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	rt.Topic, rt.Partitions = name, []int32{0}
	m.Topics = append(m.Topics, rt)
	req.Markers = append(req.Markers, m)
	for i := range e.dst.Sidecars {
		r := ask[*kmsg.WriteTxnMarkersResponse](t, e, i, req)
		if code := r.Markers[0].Topics[0].Partitions[0].ErrorCode; code != kerr.PolicyViolation.Code {
			t.Errorf("a marker gets %d, want POLICY_VIOLATION", code)
		}
	}
	if got := endsT(t, e.dstAdmin, name)[0]; got != 3 {
		t.Errorf("the mirror topic ends at %d", got)
	}
}
