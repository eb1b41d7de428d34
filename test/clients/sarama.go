package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

func saramaClients() []*client {
	return []*client{{ID: "sarama", Name: "sarama", Version: "1.61", Quick: true, run: runSarama}}
}

// saramaScript is the script of sarama.
type saramaScript struct {
	recorder
	l      leg
	prefix string
	admin  sarama.ClusterAdmin
}

func runSarama(ctx context.Context, c *client, _ *world, l leg) (*transcript, error) {
	s := &saramaScript{l: l, prefix: l.prefix(c)}
	admin, err := sarama.NewClusterAdmin(l.seeds, s.config(nil))
	if err != nil {
		return nil, err
	}
	defer func() { _ = admin.Close() }()
	s.admin = admin
	for _, p := range []struct {
		name   string
		script func(context.Context) error
	}{
		{"metadata", s.metadata},
		{"produce", s.produce},
		{"compression", s.compression},
		{"consume", s.consume},
		{"group", s.group},
		{"transactions", s.transactions},
		{"topics", s.topics},
		{"configs", s.configs},
		{"acls", s.acls},
		{"cluster", s.cluster},
		{"mirror", s.mirror},
	} {
		s.do(p.name, func() error { return p.script(ctx) })
	}
	return &s.transcript, nil
}

func (s *saramaScript) topic(name string) string { return s.prefix + "-" + name }

func (s *saramaScript) config(edit func(c *sarama.Config)) *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V4_0_0_0
	c.ClientID = "script"
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Consumer.Return.Errors = true
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Metadata.Retry.Backoff = 100 * time.Millisecond
	if edit != nil {
		edit(c)
	}
	return c
}

func (s *saramaScript) message(topic string, partition int32, n int) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{
		Topic: s.topic(topic), Partition: partition, Timestamp: time.UnixMilli(firstTime + int64(n)*1000),
		Key: sarama.StringEncoder(fmt.Sprint("key-", n)), Value: sarama.StringEncoder(fmt.Sprint("value-", n)),
		Headers: []sarama.RecordHeader{{Key: []byte("n"), Value: fmt.Append(nil, n)}},
	}
}

func (s *saramaScript) with(edit func(c *sarama.Config), fn func(p sarama.SyncProducer) error) error {
	p, err := sarama.NewSyncProducer(s.l.seeds, s.config(edit))
	if err != nil {
		return err
	}
	return errors.Join(fn(p), p.Close())
}

func (s *saramaScript) send(p sarama.SyncProducer, step string, m *sarama.ProducerMessage) {
	partition, offset, err := p.SendMessage(m)
	s.outcome(step, fmt.Sprintf("%d@%d", partition, offset), err)
}

func (s *saramaScript) metadata(context.Context) error {
	brokers, _, err := s.admin.DescribeCluster()
	if err != nil {
		return err
	}
	slices.SortFunc(brokers, func(a, b *sarama.Broker) int { return int(a.ID() - b.ID()) })
	for _, b := range brokers {
		s.see("broker", fmt.Sprint(b.ID(), " ", b.Addr(), " ", b.Rack()))
	}
	topics, err := s.admin.DescribeTopics([]string{s.topic("main"), s.topic("unknown")})
	if err != nil {
		return err
	}
	for _, t := range topics {
		s.see("topic", fmt.Sprint(t.Name, t.IsInternal, t.Err))
		slices.SortFunc(t.Partitions, func(a, b *sarama.PartitionMetadata) int { return int(a.ID - b.ID) })
		for _, p := range t.Partitions {
			s.see("partition", fmt.Sprint(p.ID, " leader ", p.Leader, " epoch ", p.LeaderEpoch, " replicas ", p.Replicas, " isr ", len(p.Isr), " offline ", p.OfflineReplicas, p.Err))
		}
	}
	return nil
}

func (s *saramaScript) produce(ctx context.Context) error {
	n := 0
	for _, way := range []struct {
		name string
		edit func(c *sarama.Config)
	}{
		{"acks 0", func(c *sarama.Config) { c.Producer.RequiredAcks = sarama.NoResponse }},
		{"acks 1", func(c *sarama.Config) { c.Producer.RequiredAcks = sarama.WaitForLocal }},
		{"acks all", func(c *sarama.Config) { c.Producer.RequiredAcks = sarama.WaitForAll }},
		{"idempotent", func(c *sarama.Config) {
			c.Producer.RequiredAcks, c.Producer.Idempotent, c.Net.MaxOpenRequests = sarama.WaitForAll, true, 1
		}},
	} {
		err := s.with(way.edit, func(p sarama.SyncProducer) error {
			for partition := range int32(2) {
				for range 3 {
					n++
					s.send(p, way.name, s.message("main", partition, n))
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if way.name != "acks 0" {
			continue
		}
		cl, err := sarama.NewClient(s.l.seeds, s.config(nil))
		if err != nil {
			return err
		}
		err = harness.Await(ctx, stepLimit, func(context.Context) error {
			for partition := range int32(2) {
				end, err := cl.GetOffset(s.topic("main"), partition, sarama.OffsetNewest)
				if err != nil {
					return err
				}
				if end != 3 {
					return fmt.Errorf("partition %d ends at %d", partition, end)
				}
			}
			return nil
		})
		if err := errors.Join(err, cl.Close()); err != nil {
			return err
		}
	}
	large := func(c *sarama.Config) { c.Producer.MaxMessageBytes, c.Producer.Retry.Max = 10<<20, 1 }
	return s.with(large, func(p sarama.SyncProducer) error {
		m := s.message("main", 0, 100)
		m.Value = sarama.ByteEncoder(make([]byte, 3<<20))
		s.send(p, "too large", m)
		s.send(p, "unknown topic", s.message("unknown", 0, 1))
		s.send(p, "no such partition", s.message("main", 7, 1))
		return nil
	})
}

func (s *saramaScript) compression(ctx context.Context) error {
	n := 0
	for _, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD} {
		err := s.with(func(c *sarama.Config) { c.Producer.Compression = codec }, func(p sarama.SyncProducer) error {
			var all []*sarama.ProducerMessage
			for i := range 20 {
				n++
				all = append(all, s.message("codec", int32(i%2), n))
			}
			return p.SendMessages(all)
		})
		if err != nil {
			return err
		}
	}
	return s.read(ctx, "read", s.l.seeds, s.topic("codec"), sarama.ReadUncommitted, 0, 50)
}

// read reads so many records of each partition.
func (s *saramaScript) read(ctx context.Context, step string, seeds []string, topic string, level sarama.IsolationLevel, from int64, counts ...int) error {
	c, err := sarama.NewConsumer(seeds, s.config(func(c *sarama.Config) { c.Consumer.IsolationLevel = level }))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	for partition := range int32(2) {
		p, err := c.ConsumePartition(topic, partition, from)
		if err != nil {
			return err
		}
		var out []string
		for len(out) < counts[int(partition)%len(counts)] {
			select {
			case m := <-p.Messages():
				out = append(out, wordedSarama(m))
			case err := <-p.Errors():
				return err
			case <-ctx.Done():
				return fmt.Errorf("after %d records: %w", len(out), ctx.Err())
			}
		}
		s.see(step, fmt.Sprint(strings.Join(out, "\n"), "\nhigh watermark ", p.HighWaterMarkOffset()))
		if err := p.Close(); err != nil {
			return err
		}
	}
	return nil
}

func wordedSarama(m *sarama.ConsumerMessage) string {
	value := string(m.Value)
	if len(value) > 40 {
		value = fmt.Sprint(len(value), " bytes")
	}
	var headers []string
	for _, h := range m.Headers {
		headers = append(headers, fmt.Sprintf("%s:%s", h.Key, h.Value))
	}
	return fmt.Sprintf("%d@%d %d %s=%s (null %t) %v", m.Partition, m.Offset, m.Timestamp.UnixMilli(), m.Key, value, m.Value == nil, headers)
}

func (s *saramaScript) consume(ctx context.Context) error {
	if err := s.read(ctx, "from 2", s.l.seeds, s.topic("main"), sarama.ReadUncommitted, 2, 10); err != nil {
		return err
	}
	c, err := sarama.NewConsumer(s.l.seeds, s.config(nil))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_, err = c.ConsumePartition(s.topic("main"), 0, 100000)
	s.outcome("out of range", "fine", err)
	_, err = c.ConsumePartition(s.topic("main"), 7, 0)
	s.outcome("no such partition", "fine", err)
	topics, err := c.Topics()
	if err != nil {
		return err
	}
	slices.Sort(topics)
	s.see("topics", slices.DeleteFunc(topics, func(t string) bool { return !strings.HasPrefix(t, s.prefix) }))
	listed, err := s.admin.ListOffsets(map[string]map[int32]int64{s.topic("main"): {0: sarama.OffsetNewest, 1: sarama.OffsetOldest}}, nil)
	if err != nil {
		return err
	}
	for partition := range int32(2) {
		o := listed[s.topic("main")][partition]
		s.see("list offsets", fmt.Sprint(partition, o.Offset, o.Err))
	}
	return nil
}

// member is a consumer group's handler that ends its session when it has read enough.
type member struct {
	want int
	stop context.CancelFunc

	mu   sync.Mutex
	seen []string
	took []string
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took = append(m.took, fmt.Sprint(session.Claims()))
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case msg, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			session.MarkMessage(msg, "by sarama")
			m.mu.Lock()
			m.seen = append(m.seen, fmt.Sprintf("%03d ", msg.Partition)+wordedSarama(msg))
			enough := len(m.seen) == m.want
			m.mu.Unlock()
			if enough {
				session.Commit()
				m.stop()
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (s *saramaScript) group(ctx context.Context) error {
	group := s.topic("group")
	err := s.with(nil, func(p sarama.SyncProducer) error {
		for i := range 10 {
			if _, _, err := p.SendMessage(s.message("group", int32(i%2), i)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.consumeGroup(ctx, "read", s.l.seeds, group, s.topic("group"), 10, sarama.ReadUncommitted); err != nil {
		return err
	}
	offsets, err := s.admin.ListConsumerGroupOffsets(group, map[string][]int32{s.topic("group"): {0, 1}})
	if err != nil {
		return err
	}
	for partition := range int32(2) {
		b := offsets.GetBlock(s.topic("group"), partition)
		s.see("offset", fmt.Sprint(b.Offset, b.LeaderEpoch, b.Metadata, b.Err))
	}
	var state string
	err = harness.Await(ctx, stepLimit, func(context.Context) error {
		d, err := s.admin.DescribeConsumerGroups([]string{group})
		if err != nil {
			return err
		}
		state = fmt.Sprint(d[0].GroupId, d[0].State, d[0].ProtocolType, d[0].Protocol, len(d[0].Members), d[0].Err)
		if d[0].State != "Empty" {
			return errors.New(state)
		}
		return nil
	})
	s.outcome("described", state, err)
	co, err := s.admin.Coordinator(group)
	if err != nil {
		return err
	}
	s.see("coordinator", fmt.Sprint(co.ID(), " ", co.Addr()))
	s.outcome("delete offset", "done", s.admin.DeleteConsumerGroupOffset(group, s.topic("group"), 0))
	s.outcome("delete", "done", s.admin.DeleteConsumerGroup(group))
	s.outcome("delete again", "done", s.admin.DeleteConsumerGroup(group))
	return nil
}

func (s *saramaScript) consumeGroup(ctx context.Context, step string, seeds []string, group, topic string, count int, level sarama.IsolationLevel) error {
	g, err := sarama.NewConsumerGroup(seeds, group, s.config(func(c *sarama.Config) { c.Consumer.IsolationLevel = level }))
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	m := &member{want: count, stop: cancel}
	err = g.Consume(limited, []string{topic}, m)
	m.mu.Lock()
	slices.Sort(m.seen)
	s.see(step, strings.Join(m.seen, "\n"))
	s.see(step+" claims", m.took)
	m.mu.Unlock()
	return errors.Join(err, g.Close())
}

func (s *saramaScript) transactions(ctx context.Context) error {
	transactional := func(c *sarama.Config) {
		c.Producer.RequiredAcks, c.Producer.Idempotent, c.Net.MaxOpenRequests = sarama.WaitForAll, true, 1
		c.Producer.Transaction.ID = s.topic("txn")
	}
	err := s.with(transactional, func(p sarama.SyncProducer) error {
		for i, end := range []func() error{p.CommitTxn, p.AbortTxn, p.CommitTxn} {
			if err := p.BeginTxn(); err != nil {
				return err
			}
			s.send(p, fmt.Sprint("transaction ", i), s.message("tx", 0, 2*i))
			s.send(p, fmt.Sprint("transaction ", i), s.message("tx", 1, 2*i+1))
			s.outcome("end", "done", end())
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.read(ctx, "uncommitted", s.l.seeds, s.topic("tx"), sarama.ReadUncommitted, 0, 3); err != nil {
		return err
	}
	return s.read(ctx, "committed", s.l.seeds, s.topic("tx"), sarama.ReadCommitted, 0, 2)
}

func (s *saramaScript) topics(ctx context.Context) error {
	made := s.topic("made")
	for _, step := range []string{"create", "create again"} {
		s.outcome(step, "done", s.admin.CreateTopic(made, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 2}, false))
	}
	s.outcome("bad name", "done", s.admin.CreateTopic("bad/name", &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 2}, false))
	err := harness.Await(ctx, stepLimit, func(context.Context) error {
		d, err := s.admin.DescribeTopics([]string{made})
		if err == nil && !errors.Is(d[0].Err, sarama.ErrNoError) {
			err = d[0].Err
		}
		return err
	})
	if err != nil {
		return err
	}
	s.outcome("grow", "done", s.admin.CreatePartitions(made, 4, nil, false))
	s.outcome("shrink", "done", s.admin.CreatePartitions(made, 1, nil, false))
	err = s.with(nil, func(p sarama.SyncProducer) error {
		_, _, err := p.SendMessage(s.message("admin", 0, 1))
		return err
	})
	if err != nil {
		return err
	}
	s.outcome("delete records", "done", s.admin.DeleteRecords(s.topic("admin"), map[int32]int64{0: 1}))
	s.outcome("delete too many records", "done", s.admin.DeleteRecords(s.topic("admin"), map[int32]int64{0: 100}))
	for _, step := range []string{"delete", "delete again"} {
		s.outcome(step, "done", s.admin.DeleteTopic(made))
	}
	topics, err := s.admin.ListTopics()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		if strings.HasPrefix(name, s.prefix) && name != made {
			d := topics[name]
			s.see("listed", fmt.Sprint(name, d.NumPartitions, d.ReplicationFactor, d.ReplicaAssignment))
		}
	}
	return nil
}

func (s *saramaScript) configs(context.Context) error {
	topic := sarama.ConfigResource{Type: sarama.TopicResource, Name: s.topic("admin")}
	see := func(step string) {
		found, err := s.admin.DescribeConfigs([]*sarama.ConfigResource{&topic}, sarama.DescribeConfigsOptions{IncludeSynonyms: true})
		var out []string
		for _, r := range found {
			for _, e := range r.Configs {
				out = append(out, fmt.Sprint(e.Name, "=", e.Value, " ", e.Source, e.ReadOnly, e.Sensitive, len(e.Synonyms)))
			}
		}
		slices.Sort(out)
		s.outcome(step, strings.Join(out, "\n"), err)
	}
	see("described")
	for _, value := range []string{"123456789", "long"} {
		s.outcome("set to "+value, "done", s.admin.IncrementalAlterConfig(sarama.TopicResource, s.topic("admin"),
			map[string]sarama.IncrementalAlterConfigsEntry{"segment.bytes": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}}, false))
	}
	s.outcome("validated", "done", s.admin.AlterConfig(sarama.TopicResource, s.topic("admin"), map[string]*string{"no.such": nil}, true))
	return nil
}

func (s *saramaScript) acls(ctx context.Context) error {
	resource := sarama.Resource{ResourceType: sarama.AclResourceTopic, ResourceName: s.topic("main"), ResourcePatternType: sarama.AclPatternLiteral}
	acl := sarama.Acl{Principal: "User:" + s.prefix, Host: "*", Operation: sarama.AclOperationRead, PermissionType: sarama.AclPermissionAllow}
	s.outcome("create", "done", s.admin.CreateACLs([]*sarama.ResourceAcls{{Resource: resource, Acls: []*sarama.Acl{&acl}}}))
	principal := acl.Principal
	filter := sarama.AclFilter{
		ResourceType: sarama.AclResourceAny, ResourcePatternTypeFilter: sarama.AclPatternAny, Principal: &principal,
		Operation: sarama.AclOperationAny, PermissionType: sarama.AclPermissionAny,
	}
	var text string
	err := harness.Await(ctx, stepLimit, func(context.Context) error {
		found, err := s.admin.ListAcls(filter)
		if err == nil && len(found) == 0 {
			err = errors.New("no ACL yet")
		}
		if err == nil {
			text = fmt.Sprint(found[0].Resource, *found[0].Acls[0])
		}
		return err
	})
	s.outcome("listed", text, err)
	deleted, err := s.admin.DeleteACL(filter, false)
	s.outcome("delete", len(deleted), err)
	quota := []sarama.QuotaEntityComponent{{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchExact, Name: s.prefix}}
	s.outcome("quota", "done", s.admin.AlterClientQuotas(quota, sarama.ClientQuotasOp{Key: "producer_byte_rate", Value: 1e9}, false))
	s.outcome("quota taken away", "done", s.admin.AlterClientQuotas(quota, sarama.ClientQuotasOp{Key: "producer_byte_rate", Remove: true}, false))
	return nil
}

func (s *saramaScript) cluster(ctx context.Context) error {
	topic := s.topic("extra")
	s.outcome("reassign", "done", s.admin.AlterPartitionReassignments(topic, [][]int32{{2, 1}, {2, 1}}))
	err := harness.Await(ctx, stepLimit, func(context.Context) error {
		d, err := s.admin.DescribeTopics([]string{topic})
		if err != nil {
			return err
		}
		for _, p := range d[0].Partitions {
			if !slices.Equal(p.Replicas, []int32{2, 1}) {
				return fmt.Errorf("replicas of %d are %v", p.ID, p.Replicas)
			}
		}
		return nil
	})
	s.outcome("reassigned", "done", err)
	status, err := s.admin.ListPartitionReassignments(topic, []int32{0})
	s.outcome("reassignments", len(status), err)
	elected, err := s.admin.ElectLeaders(sarama.PreferredElection, map[string][]int32{topic: {0}})
	if err == nil {
		s.see("elect", elected[topic][0].ErrorCode)
	} else {
		s.outcome("elect", nil, err)
	}
	dirs, err := s.admin.DescribeLogDirs([]int32{1, 2})
	s.outcome("log dirs", len(dirs), err)
	return nil
}

func (s *saramaScript) mirror(ctx context.Context) error {
	if err := s.read(ctx, "uncommitted", s.l.mirrorSeeds, mirrored, sarama.ReadUncommitted, sarama.OffsetOldest, 40); err != nil {
		return err
	}
	if err := s.read(ctx, "committed", s.l.mirrorSeeds, mirrored, sarama.ReadCommitted, sarama.OffsetOldest, 20); err != nil {
		return err
	}
	return s.consumeGroup(ctx, "group", s.l.mirrorSeeds, s.topic("mirror"), mirrored, 40, sarama.ReadCommitted)
}
