package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// logs reads the logs of all replicas of a topic; equal ones are equal in every byte.
func (e *env) logs(t *testing.T, topic string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, n := range e.dst.Cluster.Brokers() {
		for _, p := range e.topicT(t, topic).Partitions.Sorted() {
			l, err := n.ReadLog(topic, p.Partition)
			if err != nil {
				t.Fatal(err)
			}
			sums := ""
			for _, b := range l.Batches {
				sums += fmt.Sprintf("%d:%x ", b.BaseOffset, b.Sum[:4])
			}
			out[fmt.Sprintf("%s-%d on broker %d", topic, p.Partition, n.ID())] = fmt.Sprintf("%d batches, end %d, %d trailing bytes: %s", len(l.Batches), l.EndOffset(), l.Trailing, sums)
		}
	}
	return out
}

// unchanged fails the test if the replicas' logs are not what they were. The mirror must be quiet.
func (e *env) unchanged(t *testing.T, before map[string]string, topic string) {
	t.Helper()
	after := e.logs(t, topic)
	for k, was := range before {
		if after[k] != was {
			t.Errorf("the log of %s has changed:\nbefore %s\nafter  %s", k, was, after[k])
		}
	}
}

// testRefusedAtProxy writes with stock producers behind the proxies.
func (e *env) testRefusedAtProxy(t *testing.T, mirror, topic string) {
	before := e.logs(t, topic)
	seeds := e.dst.Proxies()
	in := e.dst.Cluster.Installation()
	one := []harness.JavaRecord{{Partition: 0, Value: []byte("no")}}

	t.Run("writers", func(t *testing.T) {
		t.Run("java", func(t *testing.T) {
			t.Parallel()
			for _, props := range []map[string]string{
				{}, // idempotent, as all producers of today
				{"enable.idempotence": "false", "acks": "1"},
			} {
				produced, err := in.Produce(t.Context(), harness.JavaProduce{Bootstrap: seeds, Topic: topic, Records: one, Properties: props})
				if err != nil {
					t.Fatal(err)
				}
				je, ok := errors.AsType[*harness.JavaException](produced[0].Err)
				if !ok || !strings.HasSuffix(je.Class, "PolicyViolationException") || !strings.Contains(je.Message, mirror) {
					t.Errorf("%v: result %v, want a policy violation that names the mirror %s", props, produced[0].Err, mirror)
				}
				t.Logf("Java, %v: %v", props, produced[0].Err)
			}
		})
		t.Run("java-transaction", func(t *testing.T) {
			t.Parallel()
			_, err := in.Produce(t.Context(), harness.JavaProduce{Bootstrap: seeds, Topic: topic, Records: one, TransactionalID: "e2e-java"})
			if err == nil {
				t.Error("a transaction on a mirror topic was committed")
			}
			t.Logf("Java, transaction: %v", err)
		})
		t.Run("franz-go", func(t *testing.T) {
			for name, opts := range map[string][]kgo.Opt{
				"idempotent": nil,
				"plain":      {kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck())},
			} {
				if err := tryWrite(t.Context(), e.writer(t, seeds, opts...), topic, 1, 1, "no"); !errors.Is(err, kerr.PolicyViolation) {
					t.Errorf("%s: %v, want POLICY_VIOLATION", name, err)
				}
			}
			// acks=0 has no answer; that nothing is written shows below.
			_ = tryWrite(t.Context(), e.writer(t, seeds, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.NoAck())), topic, 1, 1, "no")

			tx := e.writer(t, seeds, kgo.TransactionalID("e2e-franz"))
			if err := tx.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			err := tryWrite(t.Context(), tx, topic, 1, 1, "no")
			if err == nil {
				t.Error("a transactional write was taken")
			}
			t.Logf("franz-go, transaction: %v", err)
			_ = tx.EndTransaction(t.Context(), kgo.TryAbort)
		})
		t.Run("sarama", func(t *testing.T) {
			for _, idempotent := range []bool{false, true} {
				cfg := sarama.NewConfig()
				cfg.Version = sarama.V2_1_0_0
				cfg.Producer.Return.Successes = true
				cfg.Producer.RequiredAcks = sarama.WaitForAll
				cfg.Producer.Idempotent = idempotent
				if idempotent {
					cfg.Net.MaxOpenRequests = 1
				}
				p, err := sarama.NewSyncProducer(seeds, cfg)
				if err != nil {
					t.Fatal(err)
				}
				_, _, err = p.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("no")})
				if !errors.Is(err, sarama.ErrPolicyViolation) {
					t.Errorf("idempotent %t: %v, want a policy violation", idempotent, err)
				}
				if err := p.Close(); err != nil && !idempotent {
					t.Errorf("close: %v", err)
				}
			}
			// An old transactional client asks before it produces (AddPartitionsToTxn).
			if err := saramaTransaction(seeds, topic); err == nil {
				t.Error("a transaction was committed")
			} else {
				t.Logf("sarama, transaction: %v", err)
			}
		})
		t.Run("mixed", func(t *testing.T) { e.testMixed(t, mirror, topic) })
		t.Run("admin", func(t *testing.T) { e.testAdminRefused(t, topic) })
	})
	e.unchanged(t, before, topic)
}

// saramaTransaction writes one record in a transaction, as clients before Kafka 4.0 do.
func saramaTransaction(seeds []string, topic string) error {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_1_0_0
	cfg.Producer.Return.Successes = true
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Idempotent = true
	cfg.Producer.Retry.Max = 2
	cfg.Producer.Transaction.ID = "e2e-sarama"
	cfg.Producer.Transaction.Retry.Max = 2
	cfg.Net.MaxOpenRequests = 1
	p, err := sarama.NewSyncProducer(seeds, cfg)
	if err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	defer p.Close()
	if err := p.BeginTxn(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if _, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("no")}); err != nil {
		return fmt.Errorf("send: %w", errors.Join(err, p.AbortTxn()))
	}
	return p.CommitTxn()
}

// testMixed sends one request with an ordinary topic and a mirror topic.
func (e *env) testMixed(t *testing.T, mirror, topic string) {
	const ordinary = "ordinary"
	createTopic(t, e.dstClient, 1, 1, ordinary)
	leader := e.topicT(t, ordinary).Partitions[0].Leader
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 5000
	for _, name := range []string{topic, ordinary} {
		rt := kmsg.NewProduceRequestTopic()
		d := e.topicT(t, name)
		rt.Topic, rt.TopicID = name, d.ID
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Records = oneRecord("mixed")
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	cl := e.client(t, []string{e.dst.Sidecar(leader).Proxy})
	var r *kmsg.ProduceResponse
	eventually(t, "the ordinary topic takes writes", func(ctx context.Context) error {
		resp, err := cl.SeedBrokers()[0].Request(ctx, req)
		if err != nil {
			return err
		}
		r = resp.(*kmsg.ProduceResponse)
		if len(r.Topics) != 2 {
			t.Fatalf("an answer for %d topics", len(r.Topics))
		}
		// A broker shows itself as the leader a moment before it is.
		if err := kerr.ErrorForCode(r.Topics[1].Partitions[0].ErrorCode); kerr.IsRetriable(err) {
			return err
		}
		return nil
	})
	for i, name := range []string{topic, ordinary} {
		p := r.Topics[i].Partitions[0]
		err := kerr.ErrorForCode(p.ErrorCode)
		switch {
		case name == topic && (!errors.Is(err, kerr.PolicyViolation) || !strings.Contains(text(p.ErrorMessage), mirror)):
			t.Errorf("mirror topic: %v, %q; want a policy violation that names %s", err, text(p.ErrorMessage), mirror)
		case name == ordinary && (err != nil || p.BaseOffset != 0):
			t.Errorf("ordinary topic: %v at offset %d", err, p.BaseOffset)
		}
	}
}

// testAdminRefused tries what would change a mirror topic otherwise.
func (e *env) testAdminRefused(t *testing.T, topic string) {
	adm := kadm.NewClient(e.client(t, e.dst.Proxies()))
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, 1, -1)
	if r, err := adm.DeleteRecords(t.Context(), offsets); err == nil && r.Error() == nil {
		t.Error("DeleteRecords was taken")
	}
	if r, err := adm.CreatePartitions(t.Context(), 1, topic); err == nil && r.Error() == nil {
		t.Error("CreatePartitions was taken")
	}
	if r, err := adm.DeleteTopic(t.Context(), topic); err == nil && r.Err == nil {
		t.Fatal("DeleteTopics was taken")
	}
	for _, key := range lockKeys() {
		value := map[string]string{"max.message.bytes": "1000000", "min.insync.replicas": "1"}[key]
		if value == "" {
			value = "true"
		}
		r, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topic)
		if err == nil && r[0].Err == nil {
			t.Errorf("%s could be set", key)
		}
	}
}

// testRefusedAroundProxy writes to the real brokers themselves.
func (e *env) testRefusedAroundProxy(t *testing.T, topic string) {
	before := e.logs(t, topic)
	d := e.topicT(t, topic)
	for _, p := range d.Partitions.Sorted() {
		if p.Leader < stack.VirtualOffset {
			t.Errorf("%s-%d is led by %d", topic, p.Partition, p.Leader)
		}
		for _, b := range e.client(t, e.dst.Direct()).SeedBrokers() {
			for _, acks := range []int16{1, -1} {
				if err := produceRaw(t.Context(), b, d, p.Partition, acks); !errors.Is(err, kerr.NotLeaderForPartition) {
					t.Errorf("%s-%d at a real broker, acks %d: %v, want NOT_LEADER_OR_FOLLOWER", topic, p.Partition, acks, err)
				}
			}
		}
	}
	produced, err := e.dst.Cluster.Installation().Produce(t.Context(), harness.JavaProduce{
		Bootstrap: e.dst.Direct(), Topic: topic, Records: []harness.JavaRecord{{Partition: 0, Value: []byte("no")}},
		Properties: map[string]string{"delivery.timeout.ms": "8000", "request.timeout.ms": "4000", "linger.ms": "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if produced[0].Err == nil {
		t.Error("a stock Java producer around the proxies could write")
	}
	t.Logf("Java around the proxies: %v", produced[0].Err)
	e.unchanged(t, before, topic)
}

// testRefusedWithoutSidecars kills every sidecar, lets real brokers lead, writes with
// every acks, and lets the sidecars go on.
func (e *env) testRefusedWithoutSidecars(t *testing.T, mirror string, others ...string) {
	const topic = "no-sidecars"
	e.createSource(t, 2, topic, "retention.ms", "-1")
	write(t, e.writer(t, e.src.Bootstrap(harness.ListenerInternal)), topic, 2, 100, "before")
	e.mirrorTopics(t, mirror, topic)
	e.waitMirrored(t, topic)
	e.sameReplicas(t, topic)
	before := e.logs(t, topic)
	quiet := map[string]map[string]string{}
	for _, o := range others {
		quiet[o] = e.logs(t, o)
	}
	for _, c := range e.dst.Sidecars {
		if err := c.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "real brokers lead", func(ctx context.Context) error {
		d, err := e.topic(ctx, topic)
		if err != nil {
			return err
		}
		for _, p := range d.Partitions.Sorted() {
			if p.Leader < 0 || p.Leader >= stack.VirtualOffset {
				return fmt.Errorf("%s-%d is led by %d", topic, p.Partition, p.Leader)
			}
		}
		return nil
	})
	for _, acks := range []kgo.Acks{kgo.NoAck(), kgo.LeaderAck(), kgo.AllISRAcks()} {
		cl := e.writer(t, e.dst.Direct(), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(acks),
			// NOT_ENOUGH_REPLICAS is retried; that it stays shows soon.
			kgo.RecordRetries(2), kgo.RecordDeliveryTimeout(5*time.Second), kgo.ProduceRequestTimeout(2*time.Second))
		for p := range int32(2) {
			err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: p, Value: []byte("rogue")}).FirstErr()
			if err == nil && acks != kgo.NoAck() {
				t.Errorf("a write with acks=%v was taken by real brokers alone", acks)
			}
			t.Logf("no sidecar, acks=%v: %v", acks, err)
		}
	}
	e.unchanged(t, before, topic)

	// Records that come to the source meanwhile are mirrored when the sidecars are back.
	write(t, e.writer(t, e.src.Bootstrap(harness.ListenerInternal)), topic, 2, 100, "meanwhile")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.dst.StartSidecars(ctx); err != nil {
		t.Fatal(err)
	}
	e.waitState(t, mirror, stateMirroring, topic)
	e.waitMirrored(t, topic)
	e.sameReplicas(t, topic)
	e.sameAsSource(t, topic)
	for o, logs := range quiet {
		e.unchanged(t, logs, o)
	}
}

// produceRaw sends one record to exactly this broker, whoever leads.
func produceRaw(ctx context.Context, broker *kgo.Broker, topic kadm.TopicDetail, partition int32, acks int16) error {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 5000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = topic.Topic, topic.ID
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, oneRecord("no")
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := broker.Request(ctx, req)
	if err != nil {
		return err
	}
	r, ok := resp.(*kmsg.ProduceResponse)
	if !ok || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return fmt.Errorf("an odd answer: %T", resp)
	}
	return kerr.ErrorForCode(r.Topics[0].Partitions[0].ErrorCode)
}

// oneRecord is a batch of one record, as a client of today sends it.
func oneRecord(value string) []byte {
	r := kmsg.Record{Value: []byte(value)}
	r.Length = int32(len(r.AppendTo(nil))) - 1
	now := time.Now().UnixMilli()
	b := kmsg.RecordBatch{
		Magic: 2, FirstTimestamp: now, MaxTimestamp: now, PartitionLeaderEpoch: -1,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: 1, Records: r.AppendTo(nil),
	}
	b.Length = int32(len(b.AppendTo(nil))) - 12
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}
