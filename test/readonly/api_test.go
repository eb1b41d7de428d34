package readonly

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// apiCase is one API with mirror and ordinary topics in one request.
type apiCase struct {
	key kmsg.Key
	// from is the first version that brokers answer, where they offer older ones for the sake
	// of old clients that look.
	from int16
	run  func(t *testing.T, e *env, version int16)
}

func apiCases() []apiCase {
	return []apiCase{
		{kmsg.Produce, 3, produce},
		{kmsg.AddPartitionsToTxn, 0, addPartitions},
		{kmsg.TxnOffsetCommit, 0, txnOffsets},
		{kmsg.OffsetCommit, 2, offsets},
		{kmsg.OffsetDelete, 0, deleteOffsets},
		{kmsg.WriteTxnMarkers, 1, markers},
		{kmsg.DeleteRecords, 0, deleteRecords},
		{kmsg.CreateTopics, 2, createTopics}, // before DeleteTopics, which deletes what it creates
		{kmsg.DeleteTopics, 1, deleteTopics},
		{kmsg.CreatePartitions, 0, createPartitions},
		{kmsg.AlterConfigs, 0, alterConfigs},
		{kmsg.IncrementalAlterConfigs, 0, incrementalAlterConfigs},
		{kmsg.AlterReplicaLogDirs, 1, alterLogDirs},
		{kmsg.ElectLeaders, 0, electLeaders},
		{kmsg.AlterPartitionAssignments, 0, reassign},
	}
}

// apis runs all cases at all versions.
func apis(t *testing.T, e *env) {
	createTopic(t, e.client, plain, []int32{1}, []int32{1})
	createTopic(t, e.client, "grows", []int32{1})
	createTopic(t, e.client, "moves", []int32{1})
	offered := apiVersions(t, e.first())
	for _, c := range apiCases() {
		t.Run(c.key.Name(), func(t *testing.T) {
			k, ok := offered[int16(c.key)]
			if !ok {
				t.Fatal("not offered")
			}
			for version := max(c.from, k.MinVersion); version <= k.MaxVersion; version++ {
				c.run(t, e, version)
				if t.Failed() {
					t.Fatalf("at version %d", version)
				}
			}
			e.untouched(t)
		})
	}
}

// first is the proxy of the broker that leads the ordinary topic.
func (e *env) first() string { return e.dst.Sidecars[0].Proxy }

// same fails the test unless an answer says what it should, in the order that was asked in.
func same(t *testing.T, what string, version int16, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s v%d: %q, want %q", what, version, got, want)
	}
}

func code(topic string, partition int32, code int16) string {
	return fmt.Sprintf("%s-%d %s", topic, partition, name(code))
}

func name(code int16) string {
	err := kerr.TypedErrorForCode(code)
	if err == nil {
		return "ok"
	}
	return err.Message
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func namesMirror(t *testing.T, version int16, code int16, message *string) {
	t.Helper()
	if code == kerr.PolicyViolation.Code && !strings.Contains(text(message), `"`+mirror+`"`) {
		t.Errorf("v%d: %q does not name the mirror", version, text(message))
	}
}

func (e *env) topicID(t *testing.T, topic string) [16]byte {
	t.Helper()
	topics, err := e.admin.ListTopics(t.Context(), topic)
	if err != nil || topics[topic].Err != nil {
		t.Fatal(err, topics[topic].Err)
	}
	return topics[topic].ID
}

func produce(t *testing.T, e *env, version int16) {
	ids := map[string][16]byte{mirrored: e.topicID(t, mirrored), plain: e.topicID(t, plain)}
	names := map[[16]byte]string{ids[mirrored]: mirrored, ids[plain]: plain}
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.TimeoutMillis = version, 10000
	for _, topic := range []string{mirrored, plain} {
		rt := kmsg.NewProduceRequestTopic()
		if rt.Topic = topic; version >= 13 {
			rt.Topic, rt.TopicID = "", ids[topic]
		}
		for _, p := range []int32{1, 0} {
			rp := kmsg.NewProduceRequestTopicPartition()
			rp.Partition, rp.Records = p, oneRecord("readonly")
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	ends := []int64{e.end(t, plain, 0), e.end(t, plain, 1)}
	for _, acks := range []int16{1, -1} {
		req.Acks = acks
		var got []string
		for _, rt := range ask[*kmsg.ProduceResponse](t, e.first(), req).Topics {
			topic := rt.Topic
			if version >= 13 {
				topic = names[rt.TopicID]
			}
			for _, p := range rt.Partitions {
				got = append(got, code(topic, p.Partition, p.ErrorCode))
				if version >= 8 {
					namesMirror(t, version, p.ErrorCode, p.ErrorMessage)
				}
			}
		}
		same(t, "Produce", version, got, "mirrored-1 POLICY_VIOLATION", "mirrored-0 POLICY_VIOLATION", "plain-1 ok", "plain-0 ok")
	}
	// Without an answer the connection is closed, after what is not refused has been passed on.
	req.Acks = 0
	conn := dial(t, e.first())
	defer conn.Close()
	send(t, conn, req)
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("Produce v%d, acks=0: the connection says %v", version, err)
	}
	harness.AwaitT(t, patience, "what is not refused is written", func(ctx context.Context) error {
		return e.ends(ctx, plain, ends[0]+3, ends[1]+3)
	})
}

// transaction is a transactional id with a producer of its own.
type transaction struct {
	id    string
	at    string // the proxy of its coordinator
	pid   int64
	epoch int16
}

// begin makes a transactional producer; at, if it is not empty, is the coordinator that it must
// have, and of several ids one is taken that has it.
func (e *env) begin(t *testing.T, name, at string) transaction {
	t.Helper()
	x := transaction{}
	harness.AwaitT(t, patience, "coordinator of "+name, func(ctx context.Context) error {
		var ids []string
		for i := range 20 {
			ids = append(ids, fmt.Sprintf("%s.%d", name, i))
		}
		found := e.admin.FindTxnCoordinators(ctx, ids...)
		for _, id := range ids {
			f := found[id]
			if f.Err != nil {
				return f.Err
			}
			if c := e.dst.Sidecar(f.NodeID); c != nil && (at == "" || at == c.Proxy) {
				x.id, x.at = id, c.Proxy
				return nil
			}
		}
		return fmt.Errorf("none of %d has its coordinator at %s", len(ids), at)
	})
	e.init(t, &x)
	return x
}

func (e *env) init(t *testing.T, x *transaction) {
	t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 4, &x.id, 60000
	harness.AwaitT(t, patience, "producer id of "+x.id, func(context.Context) error {
		resp := ask[*kmsg.InitProducerIDResponse](t, x.at, req)
		x.pid, x.epoch = resp.ProducerID, resp.ProducerEpoch
		return kerr.ErrorForCode(resp.ErrorCode)
	})
}

func (e *env) commit(t *testing.T, x transaction, version int16) {
	t.Helper()
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = version, x.id, x.pid, x.epoch, true
	harness.AwaitT(t, patience, "commit of "+x.id, func(context.Context) error {
		return kerr.ErrorForCode(ask[*kmsg.EndTxnResponse](t, x.at, req).ErrorCode)
	})
}

// inTransaction are the partitions that the coordinator has of a transaction.
func (e *env) inTransaction(t *testing.T, x transaction) string {
	t.Helper()
	var text string
	harness.AwaitT(t, patience, "transaction "+x.id, func(ctx context.Context) error {
		d, err := e.admin.DescribeTransactions(ctx, x.id)
		if err != nil {
			return err
		}
		if err := d[x.id].Err; err != nil {
			return err
		}
		var all []string
		d[x.id].Topics.Each(func(topic string, p int32) { all = append(all, fmt.Sprintf("%s-%d", topic, p)) })
		slices.Sort(all)
		text = strings.Join(all, " ")
		return nil
	})
	return text
}

func addPartitions(t *testing.T, e *env, version int16) {
	if version >= 4 {
		addBatched(t, e, version)
		return
	}
	x := e.begin(t, fmt.Sprintf("add-%d", version), "")
	add := func(topics ...string) []string {
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch = version, x.id, x.pid, x.epoch
		for _, topic := range topics {
			at := kmsg.NewAddPartitionsToTxnRequestTopic()
			at.Topic, at.Partitions = topic, []int32{1, 0}
			req.Topics = append(req.Topics, at)
		}
		var got []string
		for _, at := range ask[*kmsg.AddPartitionsToTxnResponse](t, x.at, req).Topics {
			for _, p := range at.Partitions {
				got = append(got, code(at.Topic, p.Partition, p.ErrorCode))
			}
		}
		return got
	}
	same(t, "AddPartitionsToTxn", version, add(plain, mirrored),
		"plain-1 OPERATION_NOT_ATTEMPTED", "plain-0 OPERATION_NOT_ATTEMPTED", "mirrored-1 TOPIC_AUTHORIZATION_FAILED", "mirrored-0 TOPIC_AUTHORIZATION_FAILED")
	if in := e.inTransaction(t, x); in != "" {
		t.Errorf("v%d: the transaction has %q", version, in)
	}
	got := add(plain)
	slices.Sort(got) // the broker's order is its own
	same(t, "AddPartitionsToTxn", version, got, "plain-0 ok", "plain-1 ok")
	if in := e.inTransaction(t, x); in != "plain-0 plain-1" {
		t.Errorf("v%d: the transaction has %q", version, in)
	}
	e.commit(t, x, 4)
}

// addBatched is how brokers add partitions for their producers.
func addBatched(t *testing.T, e *env, version int16) {
	xs := []transaction{e.begin(t, fmt.Sprintf("batched-%d-a", version), "")}
	for _, n := range []string{"b", "c"} {
		xs = append(xs, e.begin(t, fmt.Sprintf("batched-%d-%s", version, n), xs[0].at))
	}
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version = version
	for i, topics := range [][]string{{plain}, {plain, mirrored}, {plain}} {
		tx := kmsg.NewAddPartitionsToTxnRequestTransaction()
		tx.TransactionalID, tx.ProducerID, tx.ProducerEpoch = xs[i].id, xs[i].pid, xs[i].epoch
		for _, topic := range topics {
			at := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
			at.Topic, at.Partitions = topic, []int32{0}
			tx.Topics = append(tx.Topics, at)
		}
		req.Transactions = append(req.Transactions, tx)
	}
	resp := ask[*kmsg.AddPartitionsToTxnResponse](t, xs[0].at, req)
	got := []string{name(resp.ErrorCode)}
	for _, tx := range resp.Transactions {
		i := slices.IndexFunc(xs, func(x transaction) bool { return x.id == tx.TransactionalID })
		for _, at := range tx.Topics {
			for _, p := range at.Partitions {
				got = append(got, fmt.Sprint(i, " ", code(at.Topic, p.Partition, p.ErrorCode)))
			}
		}
	}
	same(t, "AddPartitionsToTxn", version, got,
		"ok", "0 plain-0 ok", "1 plain-0 OPERATION_NOT_ATTEMPTED", "1 mirrored-0 TOPIC_AUTHORIZATION_FAILED", "2 plain-0 ok")
	for i, want := range []string{"plain-0", "", "plain-0"} {
		if in := e.inTransaction(t, xs[i]); in != want {
			t.Errorf("v%d: transaction %d has %q, want %q", version, i, in, want)
		}
	}
	e.commit(t, xs[0], 4)
	e.commit(t, xs[2], 4)
}

// groupAt is the proxy of a group's coordinator.
func (e *env) groupAt(t *testing.T, group string) string {
	t.Helper()
	var at string
	harness.AwaitT(t, patience, "coordinator of group "+group, func(ctx context.Context) error {
		f := e.admin.FindGroupCoordinators(ctx, group)[group]
		if f.Err == nil {
			at = e.dst.Sidecar(f.NodeID).Proxy
		}
		return f.Err
	})
	return at
}

// Readers of a mirror topic keep their positions, those who do so in transactions too.
func offsets(t *testing.T, e *env, version int16) {
	const group = "readers"
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = version, group, -1
	names := map[[16]byte]string{}
	for _, topic := range []string{mirrored, plain} {
		rt := kmsg.NewOffsetCommitRequestTopic()
		if rt.Topic = topic; version >= 10 {
			rt.Topic, rt.TopicID = "", e.topicID(t, topic)
			names[rt.TopicID] = topic
		}
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Offset = int64(version)
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	at := e.groupAt(t, group)
	harness.AwaitT(t, patience, "commit of offsets", func(context.Context) error {
		for _, rt := range ask[*kmsg.OffsetCommitResponse](t, at, req).Topics {
			if err := kerr.ErrorForCode(rt.Partitions[0].ErrorCode); err != nil {
				return fmt.Errorf("v%d: %s%s: %w", version, rt.Topic, names[rt.TopicID], err)
			}
		}
		return nil
	})
	got, err := e.admin.FetchOffsets(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := got.Lookup(mirrored, 0); o.At != int64(version) {
		t.Errorf("v%d: committed %d", version, o.At)
	}
}

func deleteOffsets(t *testing.T, e *env, version int16) {
	const group = "readers"
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Version, req.Group = version, group
	for _, topic := range []string{mirrored, plain} {
		rt := kmsg.NewOffsetDeleteRequestTopic()
		rt.Topic, rt.Partitions = topic, []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}
		req.Topics = append(req.Topics, rt)
	}
	resp := ask[*kmsg.OffsetDeleteResponse](t, e.groupAt(t, group), req)
	got := []string{name(resp.ErrorCode)}
	for _, rt := range resp.Topics {
		got = append(got, code(rt.Topic, rt.Partitions[0].Partition, rt.Partitions[0].ErrorCode))
	}
	slices.Sort(got)
	same(t, "OffsetDelete", version, got, "mirrored-0 ok", "ok", "plain-0 ok")
}

func txnOffsets(t *testing.T, e *env, version int16) {
	group := fmt.Sprintf("transforms-%d", version)
	x := e.begin(t, group, "")
	at := e.groupAt(t, group)
	if version < 5 { // since then the group's coordinator does it
		req := kmsg.NewPtrAddOffsetsToTxnRequest()
		req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = min(version, 3), x.id, x.pid, x.epoch, group
		if code := ask[*kmsg.AddOffsetsToTxnResponse](t, x.at, req).ErrorCode; code != 0 {
			t.Fatalf("AddOffsetsToTxn v%d: %s", req.Version, name(code))
		}
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group, req.Generation = version, x.id, x.pid, x.epoch, group, -1
	for _, topic := range []string{mirrored, plain} {
		rt := kmsg.NewTxnOffsetCommitRequestTopic()
		if rt.Topic = topic; version >= 6 {
			rt.Topic, rt.TopicID = "", e.topicID(t, topic)
		}
		rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		rp.Offset = 3
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	harness.AwaitT(t, patience, "commit of offsets", func(context.Context) error {
		for _, rt := range ask[*kmsg.TxnOffsetCommitResponse](t, at, req).Topics {
			if err := kerr.ErrorForCode(rt.Partitions[0].ErrorCode); err != nil {
				return fmt.Errorf("TxnOffsetCommit v%d: %s: %w", version, rt.Topic, err)
			}
		}
		return nil
	})
	if version < 5 {
		e.commit(t, x, 4)
	} else {
		e.commit(t, x, 5)
	}
	harness.AwaitT(t, patience, "committed offsets", func(ctx context.Context) error {
		got, err := e.admin.FetchOffsets(ctx, group)
		if o, _ := got.Lookup(mirrored, 0); err == nil && o.At != 3 {
			err = fmt.Errorf("v%d: committed %d", version, o.At)
		}
		return err
	})
}

func markers(t *testing.T, e *env, version int16) {
	end := e.end(t, plain, 0)
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Version = version
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID = 1_000_000 + int64(version)
	for _, topic := range []string{mirrored, plain} {
		rt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
		rt.Topic, rt.Partitions = topic, []int32{0}
		m.Topics = append(m.Topics, rt)
	}
	req.Markers = append(req.Markers, m)
	var got []string
	for _, m := range ask[*kmsg.WriteTxnMarkersResponse](t, e.first(), req).Markers {
		for _, rt := range m.Topics {
			for _, p := range rt.Partitions {
				got = append(got, code(rt.Topic, p.Partition, p.ErrorCode))
			}
		}
	}
	same(t, "WriteTxnMarkers", version, got, "mirrored-0 POLICY_VIOLATION", "plain-0 ok")
	if now := e.end(t, plain, 0); now != end+1 {
		t.Errorf("v%d: the ordinary partition ends at %d, want %d", version, now, end+1)
	}
}

func deleteRecords(t *testing.T, e *env, version int16) {
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Version, req.TimeoutMillis = version, 10000
	for _, topic := range []string{mirrored, plain} {
		rt := kmsg.NewDeleteRecordsRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewDeleteRecordsRequestTopicPartition()
		rp.Offset = int64(version) + 1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	var got []string
	for _, rt := range ask[*kmsg.DeleteRecordsResponse](t, e.first(), req).Topics {
		for _, p := range rt.Partitions {
			got = append(got, fmt.Sprint(code(rt.Topic, p.Partition, p.ErrorCode), " ", p.LowWatermark))
		}
	}
	same(t, "DeleteRecords", version, got, "mirrored-0 POLICY_VIOLATION -1", fmt.Sprintf("plain-0 ok %d", version+1))
}

// made names what createTopics creates and deleteTopics deletes.
func made(version int16) string { return fmt.Sprintf("made-%d", version) }

func createTopics(t *testing.T, e *env, version int16) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = version, 10000
	for _, topic := range []string{protocol.StateTopic, made(version), "named", mirrored} {
		ct := kmsg.NewCreateTopicsRequestTopic()
		ct.Topic, ct.NumPartitions, ct.ReplicationFactor = topic, -1, -1
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Replicas = []int32{1}
		ct.ReplicaAssignment = append(ct.ReplicaAssignment, a)
		if topic == "named" {
			ct.Configs = append(ct.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: "mirror.name", Value: kmsg.StringPtr("x")})
		}
		req.Topics = append(req.Topics, ct)
	}
	var got []string
	for _, ct := range ask[*kmsg.CreateTopicsResponse](t, e.first(), req).Topics {
		got = append(got, ct.Topic+" "+name(ct.ErrorCode))
	}
	same(t, "CreateTopics", version, got,
		protocol.StateTopic+" POLICY_VIOLATION", made(version)+" ok", "named INVALID_REQUEST", mirrored+" TOPIC_ALREADY_EXISTS")
	if err := harness.AwaitTopic(t.Context(), e.client, made(version)); err != nil {
		t.Fatal(err)
	}
}

func deleteTopics(t *testing.T, e *env, version int16) {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TimeoutMillis = version, 10000
	gone := made(version + 1)
	ids := map[[16]byte]string{}
	add := func(topic string, byID bool) {
		rt := kmsg.NewDeleteTopicsRequestTopic()
		if rt.Topic = &topic; byID {
			rt.Topic, rt.TopicID = nil, e.topicID(t, topic)
			ids[rt.TopicID] = topic
		}
		req.Topics = append(req.Topics, rt)
		req.TopicNames = append(req.TopicNames, topic)
	}
	if version < 6 {
		add(mirrored, false)
		add(gone, false)
	} else {
		add(mirrored, true)
		add(gone, true)
		add("none", false)
	}
	resp := ask[*kmsg.DeleteTopicsResponse](t, e.first(), req)
	var got []string
	for _, rt := range resp.Topics {
		topic := text(rt.Topic)
		if id, ok := ids[rt.TopicID]; ok {
			topic = id
		}
		got = append(got, topic+" "+name(rt.ErrorCode))
		if version >= 5 {
			namesMirror(t, version, rt.ErrorCode, rt.ErrorMessage)
		}
	}
	want := []string{"mirrored POLICY_VIOLATION", gone + " ok"}
	if version >= 6 {
		want = append(want, "none UNKNOWN_TOPIC_OR_PARTITION")
	}
	same(t, "DeleteTopics", version, got, want...)
	harness.AwaitT(t, patience, gone+" is deleted", func(ctx context.Context) error {
		topics, err := e.admin.ListTopics(ctx)
		if err == nil && topics.Has(gone) {
			err = errors.New("it is still there")
		}
		return err
	})
}

func createPartitions(t *testing.T, e *env, version int16) {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Version, req.TimeoutMillis = version, 10000
	for topic, count := range map[string]int32{mirrored: 9, "grows": int32(version) + 2} {
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = topic, count
		if topic == "grows" {
			rt.Assignment = []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{1}}}
		}
		req.Topics = append(req.Topics, rt)
	}
	want := map[string]string{mirrored: mirrored + " POLICY_VIOLATION", "grows": "grows ok"}
	var got []string
	for _, rt := range ask[*kmsg.CreatePartitionsResponse](t, e.first(), req).Topics {
		got = append(got, rt.Topic+" "+name(rt.ErrorCode))
		namesMirror(t, version, rt.ErrorCode, rt.ErrorMessage)
	}
	same(t, "CreatePartitions", version, got, want[req.Topics[0].Topic], want[req.Topics[1].Topic])
	harness.AwaitT(t, patience, "more partitions", func(ctx context.Context) error {
		topics, err := e.admin.ListTopics(ctx, "grows")
		if n := len(topics["grows"].Partitions); err == nil && n != int(version)+2 {
			err = fmt.Errorf("there are %d", n)
		}
		return err
	})
}

// configured waits until a topic of its own has a config.
func (e *env) configured(t *testing.T, topic, key, want string) {
	t.Helper()
	harness.AwaitT(t, patience, "config of "+topic, func(ctx context.Context) error {
		all, err := e.admin.DescribeTopicConfigs(ctx, topic)
		if err != nil {
			return err
		}
		rc, err := all.On(topic, nil)
		if err != nil {
			return err
		}
		for _, c := range rc.Configs {
			if c.Key == key && c.MaybeValue() == want {
				return nil
			}
		}
		return fmt.Errorf("%s is not %s", key, want)
	})
}

func alterConfigs(t *testing.T, e *env, version int16) {
	req := kmsg.NewPtrAlterConfigsRequest()
	req.Version = version
	value := fmt.Sprint(86400000 + int(version))
	for _, topic := range []string{mirrored, plain} {
		rt := kmsg.NewAlterConfigsRequestResource()
		rt.ResourceType, rt.ResourceName = kmsg.ConfigResourceTypeTopic, topic
		rt.Configs = []kmsg.AlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: &value}}
		req.Resources = append(req.Resources, rt)
	}
	var got []string
	for _, rt := range ask[*kmsg.AlterConfigsResponse](t, e.first(), req).Resources {
		got = append(got, rt.ResourceName+" "+name(rt.ErrorCode))
		namesMirror(t, version, rt.ErrorCode, rt.ErrorMessage)
	}
	same(t, "AlterConfigs", version, got, "mirrored POLICY_VIOLATION", "plain ok")
	e.configured(t, plain, "retention.ms", value)
}

func incrementalAlterConfigs(t *testing.T, e *env, version int16) {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = version
	value := fmt.Sprint(1000000 + int(version))
	for _, topic := range []string{mirrored, plain} {
		rt := kmsg.NewIncrementalAlterConfigsRequestResource()
		rt.ResourceType, rt.ResourceName = kmsg.ConfigResourceTypeTopic, topic
		rt.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "max.message.bytes", Value: &value}}
		req.Resources = append(req.Resources, rt)
	}
	var got []string
	for _, rt := range ask[*kmsg.IncrementalAlterConfigsResponse](t, e.first(), req).Resources {
		got = append(got, rt.ResourceName+" "+name(rt.ErrorCode))
		namesMirror(t, version, rt.ErrorCode, rt.ErrorMessage)
	}
	same(t, "IncrementalAlterConfigs", version, got, "mirrored POLICY_VIOLATION", "plain ok")
	e.configured(t, plain, "max.message.bytes", value)
	// What does not keep writers out is the caller's to say.
	req.Resources[0].Configs[0] = kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: "retention.bytes", Value: &value}
	got = nil
	for _, rt := range ask[*kmsg.IncrementalAlterConfigsResponse](t, e.first(), req).Resources {
		got = append(got, rt.ResourceName+" "+name(rt.ErrorCode))
	}
	slices.Sort(got)
	same(t, "IncrementalAlterConfigs", version, got, "mirrored ok", "plain ok")
}

func alterLogDirs(t *testing.T, e *env, version int16) {
	dir, err := e.dst.Cluster.Brokers()[0].PartitionDir(plain, 0)
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrAlterReplicaLogDirsRequest()
	req.Version = version
	rd := kmsg.NewAlterReplicaLogDirsRequestDir()
	rd.Dir = filepath.Dir(dir)
	for _, topic := range []string{mirrored, plain} {
		rt := kmsg.NewAlterReplicaLogDirsRequestDirTopic()
		rt.Topic, rt.Partitions = topic, []int32{0}
		rd.Topics = append(rd.Topics, rt)
	}
	req.Dirs = append(req.Dirs, rd)
	var got []string
	for _, rt := range ask[*kmsg.AlterReplicaLogDirsResponse](t, e.first(), req).Topics {
		got = append(got, code(rt.Topic, rt.Partitions[0].Partition, rt.Partitions[0].ErrorCode))
	}
	slices.Sort(got) // grouped anew, by the broker too
	same(t, "AlterReplicaLogDirs", version, got, "mirrored-0 POLICY_VIOLATION", "plain-0 ok")
}

func electLeaders(t *testing.T, e *env, version int16) {
	elect := func(kind int8, topics ...string) []string {
		req := kmsg.NewPtrElectLeadersRequest()
		req.Version, req.ElectionType, req.TimeoutMillis = version, kind, 10000
		for _, topic := range topics {
			rt := kmsg.NewElectLeadersRequestTopic()
			rt.Topic, rt.Partitions = topic, []int32{0}
			req.Topics = append(req.Topics, rt)
		}
		resp := ask[*kmsg.ElectLeadersResponse](t, e.first(), req)
		got := []string{name(resp.ErrorCode)}
		for _, rt := range resp.Topics {
			for _, p := range rt.Partitions {
				got = append(got, code(rt.Topic, p.Partition, p.ErrorCode))
				namesMirror(t, version, p.ErrorCode, p.ErrorMessage)
			}
		}
		return got
	}
	if version >= 1 {
		const unclean = 1
		same(t, "ElectLeaders", version, elect(unclean, mirrored, plain), "ok", "mirrored-0 POLICY_VIOLATION", "plain-0 ELECTION_NOT_NEEDED")
		same(t, "ElectLeaders of all", version, elect(unclean), "ok")
	}
	// The controller elects preferred leaders by itself, of mirror partitions as of others.
	harness.AwaitT(t, patience, "preferred leaders", func(context.Context) error {
		got := elect(0, mirrored, plain)
		slices.Sort(got)
		if !slices.Equal(got, []string{"mirrored-0 ELECTION_NOT_NEEDED", "ok", "plain-0 ELECTION_NOT_NEEDED"}) {
			return fmt.Errorf("v%d: %q", version, got)
		}
		return nil
	})
}

// reassign moves an ordinary partition and the real replicas of a mirror partition at once.
func reassign(t *testing.T, e *env, version int16) {
	proxied := kadm.NewClient(newClient(t, e.dst.Proxies()))
	replicas := func(ctx context.Context, topic string) ([]int32, error) {
		topics, err := proxied.ListTopics(ctx, topic)
		if err == nil {
			err = topics[topic].Err
		}
		if err != nil {
			return nil, err
		}
		return topics[topic].Partitions[0].Replicas, nil
	}
	now, err := replicas(t.Context(), mirrored)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]int32{mirrored: slices.Clone(now), "moves": {2 - int32(version)%2}}
	slices.Reverse(want[mirrored])
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.Version, req.TimeoutMillis = version, 10000
	for _, topic := range []string{mirrored, "moves"} {
		rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		rp.Replicas = want[topic]
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	resp := ask[*kmsg.AlterPartitionAssignmentsResponse](t, e.first(), req)
	got := []string{name(resp.ErrorCode)}
	for _, rt := range resp.Topics {
		got = append(got, code(rt.Topic, rt.Partitions[0].Partition, rt.Partitions[0].ErrorCode))
	}
	same(t, "AlterPartitionReassignments", version, got, "ok", "mirrored-0 ok", "moves-0 ok")
	for topic, list := range want {
		harness.AwaitT(t, patience, "replicas of "+topic, func(ctx context.Context) error {
			now, err := replicas(ctx, topic)
			if err == nil && !slices.Equal(now, list) {
				err = fmt.Errorf("v%d: they are %v, want %v", version, now, list)
			}
			return err
		})
	}
}
