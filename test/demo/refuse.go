package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// refusals tries to write to a mirror topic through the proxy, around it, and when no
// sidecar lives.
func (m *mirroring) refusals(ctx context.Context) error {
	if err := m.throughTheProxy(ctx); err != nil {
		return fmt.Errorf("through the proxy: %w", err)
	}
	if err := m.aroundTheProxy(ctx); err != nil {
		return fmt.Errorf("around the proxy: %w", err)
	}
	if err := m.withoutSidecars(ctx); err != nil {
		m.keepLogs(m.stack)
		return fmt.Errorf("without sidecars: %w", err)
	}
	return nil
}

func (m *mirroring) throughTheProxy(ctx context.Context) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(m.stack.Proxies()...), kgo.ClientID("demo-writer"), kgo.RecordDeliveryTimeout(15*time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	_, err = cl.ProduceSync(ctx, &kgo.Record{Topic: target, Value: []byte("refuse me")}).First()
	if err == nil {
		return errors.New("a stock producer's write was taken")
	}
	m.say("a stock producer behind the proxy: %v", err)

	// The client does not show the message that comes with the code, so ask for it bare.
	topic, err := m.describe(ctx)
	if err != nil {
		return err
	}
	code, message, err := produceRaw(ctx, cl.SeedBrokers()[0], topic, 0)
	if err != nil {
		return err
	}
	if code == nil {
		return errors.New("a bare request was taken")
	}
	if !strings.Contains(message, mirror) {
		return fmt.Errorf("refused (%w) with the message %q: no word of the mirror %q", code, message, mirror)
	}
	m.say("  with the message: %s", message)
	return nil
}

func (m *mirroring) aroundTheProxy(ctx context.Context) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(m.stack.Direct()...), kgo.ClientID("demo-rogue"))
	if err != nil {
		return err
	}
	defer cl.Close()
	topic, err := m.describe(ctx)
	if err != nil {
		return err
	}
	for _, seed := range cl.SeedBrokers() {
		code, message, err := produceRaw(ctx, seed, topic, 0)
		if err != nil {
			return err
		}
		if code == nil {
			return errors.New("a real broker has taken it")
		}
		if !errors.Is(code, kerr.NotLeaderForPartition) {
			return fmt.Errorf("a real broker answered %w, %q, want NOT_LEADER_OR_FOLLOWER", code, message)
		}
	}
	m.say("straight at each real broker: NOT_LEADER_OR_FOLLOWER, since none of them leads the topic")
	return nil
}

// withoutSidecars kills them all, waits until real brokers lead, and writes with every acks.
func (m *mirroring) withoutSidecars(ctx context.Context) error {
	for _, c := range m.stack.Sidecars {
		if err := c.Kill(); err != nil {
			return err
		}
	}
	m.say("killed every sidecar; waiting until the controller lets a real broker lead")
	leaders, err := m.waitRealLeaders(ctx)
	if err != nil {
		return err
	}
	m.say("%s: led by real brokers %v", target, leaders)
	before, err := m.sizes(ctx)
	if err != nil {
		return err
	}
	for _, acks := range []struct {
		name string
		acks kgo.Acks
	}{{"0", kgo.NoAck()}, {"1", kgo.LeaderAck()}, {"all", kgo.AllISRAcks()}} {
		err := m.rogue(ctx, acks.acks)
		if err == nil && acks.name != "0" {
			return fmt.Errorf("a write with acks=%s was taken", acks.name)
		}
		answer := fmt.Sprint(err)
		if err == nil {
			answer = "no answer, as always"
		}
		after, err := m.sizes(ctx)
		if err != nil {
			return err
		}
		if before != after {
			return fmt.Errorf("acks=%s: the log has changed: %s before, %s after", acks.name, before, after)
		}
		m.say("acks=%-3s: %s; the log has not changed (%s)", acks.name, answer, after)
	}

	if err := m.stack.StartSidecars(ctx); err != nil {
		return err
	}
	m.say("the sidecars are back")
	return m.follow(ctx, 2, "catching up")
}

// rogue writes to the target topic at the real brokers and returns what became of it.
func (m *mirroring) rogue(ctx context.Context, acks kgo.Acks) error {
	cl, err := kgo.NewClient(
		kgo.SeedBrokers(m.stack.Direct()...), kgo.ClientID("demo-rogue"), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(acks),
		// NOT_ENOUGH_REPLICAS is retried; twice is enough to see that it stays.
		kgo.RecordRetries(2), kgo.RecordDeliveryTimeout(5*time.Second), kgo.ProduceRequestTimeout(2*time.Second),
	)
	if err != nil {
		return err
	}
	defer cl.Close()
	return cl.ProduceSync(ctx, &kgo.Record{Topic: target, Value: []byte("rogue")}).FirstErr()
}

func (m *mirroring) waitRealLeaders(ctx context.Context) ([]int32, error) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		topic, err := m.describe(ctx)
		var leaders []int32
		if err == nil {
			for _, p := range topic.Partitions.Sorted() {
				if p.Leader >= 0 && p.Leader < stack.VirtualOffset {
					leaders = append(leaders, p.Leader)
				}
			}
			if len(leaders) == len(topic.Partitions) {
				return leaders, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("no real broker leads %s: %w", target, errors.Join(ctx.Err(), err))
		case <-tick.C:
		}
	}
}

func (m *mirroring) describe(ctx context.Context) (kadm.TopicDetail, error) {
	details, err := m.dest.ListTopics(ctx, target)
	if err != nil {
		return kadm.TopicDetail{}, err
	}
	return details[target], details[target].Err
}

// sizes says how many batches and which log end every real replica of the target has, read
// from its files: what is appended but not visible counts too.
func (m *mirroring) sizes(ctx context.Context) (string, error) {
	topic, err := m.describe(ctx)
	if err != nil {
		return "", err
	}
	var out []string
	for _, n := range m.stack.Cluster.Brokers() {
		for _, p := range topic.Partitions.Sorted() {
			if !slices.Contains(p.Replicas, n.ID()) {
				continue
			}
			log, err := n.ReadLog(target, p.Partition)
			if err != nil {
				return "", err
			}
			out = append(out, fmt.Sprintf("broker %d: partition %d has %d batches and ends at %d", n.ID(), p.Partition, len(log.Batches), log.EndOffset()))
		}
	}
	if len(out) == 0 {
		return "", fmt.Errorf("no broker has a log of %s", target)
	}
	return strings.Join(out, ", "), nil
}

// produceRaw sends one record to exactly this broker, whoever leads.
func produceRaw(ctx context.Context, broker *kgo.Broker, topic kadm.TopicDetail, partition int32) (code error, message string, err error) {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = 1, 5000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = topic.Topic, topic.ID
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, oneRecord("refuse me")
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	kresp, err := broker.RetriableRequest(ctx, req)
	if err != nil {
		return nil, "", fmt.Errorf("produce: %w", err)
	}
	resp, ok := kresp.(*kmsg.ProduceResponse)
	if !ok || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, "", fmt.Errorf("produce: an odd answer %T", kresp)
	}
	answer := resp.Topics[0].Partitions[0]
	if answer.ErrorMessage != nil {
		message = *answer.ErrorMessage
	}
	return kerr.ErrorForCode(answer.ErrorCode), message, nil
}

// oneRecord is a batch of one record, as a client of today sends it.
func oneRecord(value string) []byte {
	r := kmsg.Record{Value: []byte(value)}
	r.Length = int32(len(r.AppendTo(nil))) - 1
	b := kmsg.RecordBatch{
		Magic: 2, FirstTimestamp: time.Now().UnixMilli(), MaxTimestamp: time.Now().UnixMilli(), PartitionLeaderEpoch: -1,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: 1, Records: r.AppendTo(nil),
	}
	b.Length = int32(len(b.AppendTo(nil))) - 12
	raw := b.AppendTo(nil)
	// The checksum covers everything behind it.
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}
