package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

const (
	// stepLimit bounds what must come soon.
	stepLimit = time.Minute
	// firstTime is the timestamp of the first record of a script.
	firstTime int64 = 1700000000000
)

func franzClients() []*client {
	return []*client{
		{ID: "franz", Name: "franz-go", Version: "1.22", Quick: true, run: runFranz},
		{ID: "wire", Name: "every version (kmsg)", Version: "1.15", Quick: true, run: runWire},
	}
}

// franz is the script of franz-go.
type franz struct {
	recorder
	l      leg
	prefix string
	cl     *kgo.Client
	admin  *kadm.Client
}

func runFranz(ctx context.Context, c *client, _ *world, l leg) (*transcript, error) {
	f := &franz{l: l, prefix: l.prefix(c)}
	var err error
	if f.cl, err = f.client(); err != nil {
		return nil, err
	}
	defer f.cl.Close()
	f.admin = kadm.NewClient(f.cl)
	for _, p := range []struct {
		name   string
		script func(context.Context) error
	}{
		{"metadata", f.metadata},
		{"produce", f.produce},
		{"compression", f.compression},
		{"consume", f.consume},
		{"group", func(ctx context.Context) error { return f.group(ctx, "group") }},
		{"new group", func(ctx context.Context) error {
			//nolint:staticcheck // the client looks for this key
			return f.group(context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true), "newgroup")
		}},
		{"transactions", f.transactions},
		{"share", f.share},
		{"topics", f.topics},
		{"acls", f.acls},
		{"cluster", f.cluster},
		{"mirror", f.mirror},
	} {
		f.do(p.name, func() error { return p.script(ctx) })
	}
	return &f.transcript, nil
}

func (f *franz) topic(name string) string { return f.prefix + "-" + name }

func (f *franz) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(f.l.seeds...), kgo.ClientID("script"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}, opts...)...)
}

// with runs a step with a client of its own.
func (f *franz) with(fn func(cl *kgo.Client) error, opts ...kgo.Opt) error {
	cl, err := f.client(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	return fn(cl)
}

func (f *franz) record(topic string, partition int32, n int) *kgo.Record {
	return &kgo.Record{
		Topic: f.topic(topic), Partition: partition, Timestamp: time.UnixMilli(firstTime + int64(n)*1000), Key: fmt.Append(nil, "key-", n),
		Value: fmt.Append(nil, "value-", n), Headers: []kgo.RecordHeader{{Key: "n", Value: fmt.Append(nil, n)}},
	}
}

func worded(r *kgo.Record) string {
	value := string(r.Value)
	if len(value) > 40 {
		h := fnv.New64()
		_, _ = h.Write(r.Value)
		value = fmt.Sprintf("%d bytes %x", len(r.Value), h.Sum64())
	}
	if r.Value == nil {
		value = "null"
	}
	return fmt.Sprintf("%d@%d %d %s=%s %v attrs %d", r.Partition, r.Offset, r.Timestamp.UnixMilli(), r.Key, value, r.Headers, r.Attrs.CompressionType())
}

// send produces records one after the other and records what became of each.
func (f *franz) send(ctx context.Context, cl *kgo.Client, step string, records ...*kgo.Record) {
	for _, r := range records {
		got, err := cl.ProduceSync(ctx, r).First()
		f.outcome(step, fmt.Sprintf("%d@%d", got.Partition, got.Offset), err)
	}
}

// read polls so many records and words them in the order of partitions and offsets.
func read(ctx context.Context, cl *kgo.Client, count int, each func(r *kgo.Record)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	var records []*kgo.Record
	for len(records) < count {
		fetches := cl.PollFetches(ctx)
		fetches.EachRecord(func(r *kgo.Record) {
			if each != nil {
				each(r)
			}
			records = append(records, r)
		})
		if err := fetches.Err(); err != nil {
			return "", fmt.Errorf("after %d of %d records: %w", len(records), count, err)
		}
	}
	slices.SortFunc(records, func(a, b *kgo.Record) int {
		if a.Partition != b.Partition {
			return int(a.Partition - b.Partition)
		}
		return int(a.Offset - b.Offset)
	})
	var out []string
	for _, r := range records {
		out = append(out, worded(r))
	}
	return strings.Join(out, "\n"), nil
}

func (f *franz) metadata(ctx context.Context) error {
	m, err := f.admin.Metadata(ctx, f.topic("main"), f.topic("unknown"))
	if err != nil {
		return err
	}
	f.see("cluster", m.Cluster)
	for _, b := range m.Brokers {
		f.see("broker", fmt.Sprintf("%d %s:%d rack %s", b.NodeID, b.Host, b.Port, *b.Rack))
	}
	for _, t := range m.Topics.Sorted() {
		for _, p := range t.Partitions.Sorted() {
			f.see("partition", fmt.Sprint(t.Topic, p.Partition, " leader ", p.Leader, " epoch ", p.LeaderEpoch, " replicas ", p.Replicas, " isr ", len(p.ISR), p.OfflineReplicas, p.Err))
		}
		f.see("topic", fmt.Sprint(t.Topic, t.IsInternal, t.Err))
	}
	for _, id := range []int32{1, 2} {
		d := kmsg.NewPtrDescribeClusterRequest()
		r, err := f.cl.Broker(int(id)).Request(ctx, d)
		if err != nil {
			return err
		}
		f.see("describe cluster", jsonOf(r))
	}
	return nil
}

func (f *franz) produce(ctx context.Context) error {
	// Nobody says which of these arrive, and now and then one does not, also without a proxy.
	err := f.with(func(cl *kgo.Client) error {
		return harness.Await(ctx, stepLimit, func(ctx context.Context) error {
			if err := cl.ProduceSync(ctx, f.record("extra", 1, 0)).FirstErr(); err != nil {
				return err
			}
			ends, err := f.admin.ListEndOffsets(ctx, f.topic("extra"))
			if err != nil {
				return err
			}
			if o, _ := ends.Lookup(f.topic("extra"), 1); o.Offset == 0 {
				return errors.New("no record has arrived")
			}
			return nil
		})
	}, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	f.outcome("acks 0", "arrived", err)
	n := 0
	for _, way := range []struct {
		name string
		opts []kgo.Opt
	}{
		{"acks 1", []kgo.Opt{kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()}},
		{"acks all", []kgo.Opt{kgo.DisableIdempotentWrite()}},
		{"idempotent", nil},
	} {
		err := f.with(func(cl *kgo.Client) error {
			for p := range int32(2) {
				for range 3 {
					n++
					f.send(ctx, cl, way.name, f.record("main", p, n))
				}
			}
			return nil
		}, way.opts...)
		if err != nil {
			return err
		}
	}
	return f.with(func(cl *kgo.Client) error {
		large := f.record("main", 0, 100)
		large.Value = make([]byte, 3<<20)
		f.send(ctx, cl, "too large", large)
		f.send(ctx, cl, "null", &kgo.Record{Topic: f.topic("main"), Timestamp: time.UnixMilli(firstTime)})
		f.send(ctx, cl, "unknown topic", f.record("unknown", 0, 1))
		f.send(ctx, cl, "no such partition", f.record("main", 7, 1))
		return nil
	}, kgo.ProducerBatchMaxBytes(10<<20), kgo.UnknownTopicRetries(1), kgo.ProducerBatchCompression(kgo.NoCompression()))
}

func (f *franz) compression(ctx context.Context) error {
	n := 0
	for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		err := f.with(func(cl *kgo.Client) error {
			var records []*kgo.Record
			for i := range 20 {
				n++
				records = append(records, f.record("codec", int32(i%2), n))
			}
			return cl.ProduceSync(ctx, records...).FirstErr()
		}, kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(100*time.Millisecond))
		if err != nil {
			return err
		}
	}
	return f.with(func(cl *kgo.Client) error {
		text, err := read(ctx, cl, 100, nil)
		f.see("read", text)
		return err
	}, kgo.ConsumeTopics(f.topic("codec")), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
}

func (f *franz) consume(ctx context.Context) error {
	topic := f.topic("main")
	err := f.with(func(cl *kgo.Client) error {
		text, err := read(ctx, cl, 14, nil)
		f.see("from 2 and 3", text)
		return err
	}, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(3), 1: kgo.NewOffset().At(2)}}))
	if err != nil {
		return err
	}
	err = f.with(func(cl *kgo.Client) error {
		ctx, cancel := context.WithTimeout(ctx, stepLimit)
		defer cancel()
		_, err := read(ctx, cl, 1, nil)
		f.outcome("out of range", "nothing", err)
		return nil
	}, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(100000)}}), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	if err != nil {
		return err
	}
	for _, l := range []struct {
		name string
		ask  func() (kadm.ListedOffsets, error)
	}{
		{"start", func() (kadm.ListedOffsets, error) { return f.admin.ListStartOffsets(ctx, topic) }},
		{"end", func() (kadm.ListedOffsets, error) { return f.admin.ListEndOffsets(ctx, topic) }},
		{"committed", func() (kadm.ListedOffsets, error) { return f.admin.ListCommittedOffsets(ctx, topic) }},
		{"max timestamp", func() (kadm.ListedOffsets, error) { return f.admin.ListMaxTimestampOffsets(ctx, topic) }},
		{"after", func() (kadm.ListedOffsets, error) { return f.admin.ListOffsetsAfterMilli(ctx, firstTime+5000, topic) }},
		{"unknown topic", func() (kadm.ListedOffsets, error) { return f.admin.ListEndOffsets(ctx, f.topic("unknown")) }},
	} {
		listed, err := l.ask()
		if err != nil {
			return err
		}
		for p := range int32(2) {
			o, _ := listed.Lookup(topic, p)
			f.see(l.name, fmt.Sprint(p, " ", o.Offset, " ", o.Timestamp, " epoch ", o.LeaderEpoch, " ", o.Err))
		}
	}
	return nil
}

func (f *franz) group(ctx context.Context, name string) error {
	group, topic := f.topic(name), f.topic(name)
	for i := range 10 {
		if err := f.cl.ProduceSync(ctx, f.record(name, int32(i%2), i)).FirstErr(); err != nil {
			return err
		}
	}
	opts := []kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(500 * time.Millisecond), kgo.WithContext(ctx),
	}
	err := f.with(func(cl *kgo.Client) error {
		text, err := read(ctx, cl, 10, nil)
		f.see("read", text)
		if err != nil {
			return err
		}
		_, generation := cl.GroupMetadata()
		f.see("generation", generation > 0)
		f.outcome("commit", "done", cl.CommitUncommittedOffsets(ctx))
		described := f.admin.FetchManyOffsets(ctx, group)
		f.see("fetched", jsonOf(described[group].Fetched))
		d := kmsg.NewPtrConsumerGroupDescribeRequest()
		d.Groups = []string{group}
		resp, err := d.RequestWith(ctx, cl)
		f.outcome("described as new", jsonOf(resp), err)
		old := kmsg.NewPtrDescribeGroupsRequest()
		old.Groups = []string{group}
		oldResp, err := old.RequestWith(ctx, cl)
		f.outcome("described as classic", jsonOf(oldResp), err)
		return nil
	}, opts...)
	if err != nil {
		return err
	}
	lags, err := f.admin.Lag(ctx, group)
	if err != nil {
		return err
	}
	lags.Each(func(l kadm.DescribedGroupLag) {
		f.see("lag", fmt.Sprint(l.Group, " ", l.State == "Empty" || l.State == "Stable" || l.State == "PreparingRebalance", " ", l.Lag.Total(), " ", l.Error()))
	})
	err = harness.Await(ctx, stepLimit, func(ctx context.Context) error {
		r, err := f.admin.DeleteGroup(ctx, group)
		if err != nil {
			return err
		}
		return r.Err
	})
	f.outcome("delete", "done", err)
	r, err := f.admin.DeleteGroup(ctx, group)
	f.outcome("delete again", r.Err, err)
	return nil
}

func (f *franz) transactions(ctx context.Context) error {
	topic := f.topic("tx")
	id := kgo.TransactionalID(f.topic("txn"))
	err := f.with(func(cl *kgo.Client) error {
		for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
			if err := cl.BeginTransaction(); err != nil {
				return err
			}
			f.send(ctx, cl, fmt.Sprint("transaction ", i), f.record("tx", 0, 2*i), f.record("tx", 1, 2*i+1))
			f.outcome(fmt.Sprint("end ", i, " ", end), "done", cl.EndTransaction(ctx, end))
		}
		if err := cl.BeginTransaction(); err != nil {
			return err
		}
		f.send(ctx, cl, "to be fenced", f.record("tx", 0, 9))
		err := f.with(func(other *kgo.Client) error {
			if err := other.BeginTransaction(); err != nil {
				return err
			}
			f.send(ctx, other, "fences", f.record("tx", 1, 10))
			return other.EndTransaction(ctx, kgo.TryCommit)
		}, id)
		f.outcome("fenced", "done", cl.EndTransaction(ctx, kgo.TryCommit))
		return err
	}, id)
	if err != nil {
		return err
	}
	for _, level := range []struct {
		name  string
		level kgo.IsolationLevel
		count int
	}{{"uncommitted", kgo.ReadUncommitted(), 8}, {"committed", kgo.ReadCommitted(), 5}} {
		err := f.with(func(cl *kgo.Client) error {
			text, err := read(ctx, cl, level.count, nil)
			f.see(level.name, text)
			return err
		}, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(level.level))
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *franz) share(ctx context.Context) error {
	group, topic := f.topic("share"), f.topic("share")
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	set := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	set.Name, set.Value = "share.auto.offset.reset", kmsg.StringPtr("earliest")
	res.Configs = append(res.Configs, set)
	alter.Resources = append(alter.Resources, res)
	resp, err := alter.RequestWith(ctx, f.cl)
	f.outcome("group config", jsonOf(resp), err)
	// Every broker must have heard of it before the group begins.
	err = harness.Await(ctx, stepLimit, func(ctx context.Context) error {
		for _, b := range []int{1, 2} {
			d := kmsg.NewPtrDescribeConfigsRequest()
			res := kmsg.NewDescribeConfigsRequestResource()
			res.ResourceType, res.ResourceName, res.ConfigNames = kmsg.ConfigResourceTypeGroupConfig, group, []string{"share.auto.offset.reset"}
			d.Resources = append(d.Resources, res)
			r, err := f.cl.Broker(b).Request(ctx, d)
			if err != nil {
				return err
			}
			if !strings.Contains(jsonOf(r), `"earliest"`) {
				return errors.New("the config is not there")
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range 10 {
		if err := f.cl.ProduceSync(ctx, f.record("share", int32(i%2), i)).FirstErr(); err != nil {
			return err
		}
	}
	err = f.with(func(cl *kgo.Client) error {
		text, err := read(ctx, cl, 10, func(r *kgo.Record) { r.Ack(kgo.AckAccept) })
		f.see("read", text)
		return err
	}, kgo.ShareGroup(group), kgo.ConsumeTopics(topic), kgo.WithContext(ctx))
	if err != nil {
		return err
	}
	err = harness.Await(ctx, stepLimit, func(ctx context.Context) error {
		r, err := f.admin.DescribeShareGroupOffsets(ctx, group)
		if err != nil {
			return err
		}
		if text := jsonOf(r); strings.Count(text, `"Lag":0`) != 2 {
			return errors.New(text)
		}
		return nil
	})
	f.outcome("lag", "none", err)
	return nil
}

func (f *franz) topics(ctx context.Context) error {
	made := f.topic("made")
	for _, step := range []string{"create", "create again"} {
		r, err := f.admin.CreateTopic(ctx, 2, 2, nil, made)
		f.outcome(step, fmt.Sprint(r.NumPartitions, r.ReplicationFactor, len(r.Configs), r.Err, r.ErrMessage), err)
	}
	if err := harness.AwaitTopic(ctx, f.cl, made); err != nil {
		return err
	}
	for _, n := range []int{4, 4, 1} {
		r, err := f.admin.UpdatePartitions(ctx, n, made)
		if err != nil {
			return err
		}
		f.see(fmt.Sprint("grow to ", n), fmt.Sprint(r[made].Err, r[made].ErrMessage))
	}
	if err := f.cl.ProduceSync(ctx, f.record("admin", 0, 1), f.record("admin", 0, 2)).FirstErr(); err != nil {
		return err
	}
	for _, at := range []int64{1, 5} {
		offsets := kadm.Offsets{}
		offsets.AddOffset(f.topic("admin"), 0, at, -1)
		r, err := f.admin.DeleteRecords(ctx, offsets)
		if err != nil {
			return err
		}
		d, _ := r.Lookup(f.topic("admin"), 0)
		f.see(fmt.Sprint("delete records before ", at), fmt.Sprint(d.LowWatermark, d.Err))
	}
	configs, err := f.admin.DescribeTopicConfigs(ctx, f.topic("admin"), f.topic("unknown"))
	if err != nil {
		return err
	}
	slices.SortFunc(configs, func(a, b kadm.ResourceConfig) int { return strings.Compare(a.Name, b.Name) })
	for _, c := range configs {
		f.see("configs of "+c.Name[len(f.prefix):], jsonOf(c.Configs)+fmt.Sprint(c.Err))
	}
	for _, value := range []string{"123456", "long"} {
		r, err := f.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &value}}, f.topic("admin"))
		f.outcome("alter to "+value, fmt.Sprint(r[0].Err, r[0].ErrMessage), err)
	}
	for _, step := range []string{"delete", "delete again"} {
		r, err := f.admin.DeleteTopic(ctx, made)
		f.outcome(step, fmt.Sprint(r.Err, r.ErrMessage), err)
	}
	return nil
}

func (f *franz) acls(ctx context.Context) error {
	b := kadm.NewACLs().Topics(f.topic("main")).Groups(f.topic("group")).Allow("User:"+f.prefix).AllowHosts("*").
		Operations(kadm.OpRead, kadm.OpDescribe).ResourcePatternType(kadm.ACLPatternLiteral)
	created, err := f.admin.CreateACLs(ctx, b)
	f.outcome("create", sortedLines(created), err)
	err = harness.Await(ctx, stepLimit, func(ctx context.Context) error {
		d, err := f.admin.DescribeACLs(ctx, b)
		if err != nil {
			return err
		}
		n := 0
		for _, r := range d {
			n += len(r.Described)
		}
		if n != len(created) {
			return fmt.Errorf("%d of %d", n, len(created))
		}
		return nil
	})
	f.outcome("describe", "all", err)
	deleted, err := f.admin.DeleteACLs(ctx, b)
	n := 0
	for _, r := range deleted {
		n += len(r.Deleted)
	}
	f.outcome("delete", n, err)
	return nil
}

func sortedLines[T any](list []T) string {
	var out []string
	for _, e := range list {
		out = append(out, jsonOf(e))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func (f *franz) cluster(ctx context.Context) error {
	topic := f.topic("extra")
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(topic, 0, []int32{2, 1})
	r, err := f.admin.AlterPartitionAssignments(ctx, req)
	f.outcome("reassign", jsonOf(r), err)
	s := kadm.TopicsSet{}
	s.Add(topic, 0)
	err = harness.Await(ctx, stepLimit, func(ctx context.Context) error {
		d, err := f.admin.ListTopics(ctx, topic)
		if err != nil {
			return err
		}
		if p := d[topic].Partitions[0]; !slices.Equal(p.Replicas, []int32{2, 1}) {
			return fmt.Errorf("replicas are %v", p.Replicas)
		}
		return nil
	})
	f.outcome("reassigned", "done", err)
	l, err := f.admin.ListPartitionReassignments(ctx, s)
	f.outcome("reassignments", jsonOf(l), err)
	elected, err := f.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, s)
	f.outcome("elect", elected[topic][0].Err, err)
	dirs, err := f.admin.DescribeAllLogDirs(ctx, s)
	if err != nil {
		return err
	}
	for _, broker := range dirs.Sorted() {
		_ = broker
	}
	f.see("log dirs", len(dirs))
	// The leader of before answers, too, until it has heard of the election.
	var producers kadm.DescribedProducersTopics
	err = harness.Await(ctx, stepLimit, func(ctx context.Context) (err error) {
		if producers, err = f.admin.DescribeProducers(ctx, s); err != nil {
			return err
		}
		if p := producers[topic].Partitions[0]; p.Err == nil && p.Leader != 2 {
			return fmt.Errorf("broker %d leads", p.Leader)
		}
		return nil
	})
	f.outcome("producers", jsonOf(producers), err)
	return nil
}

func (f *franz) mirror(ctx context.Context) error {
	for _, level := range []struct {
		name  string
		level kgo.IsolationLevel
		count int
	}{{"uncommitted", kgo.ReadUncommitted(), 80}, {"committed", kgo.ReadCommitted(), 40}} {
		err := f.with(func(cl *kgo.Client) error {
			text, err := read(ctx, cl, level.count, nil)
			f.see(level.name, text)
			return err
		}, kgo.SeedBrokers(f.l.mirrorSeeds...), kgo.ConsumeTopics(mirrored), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(level.level))
		if err != nil {
			return err
		}
	}
	return f.with(func(cl *kgo.Client) error {
		text, err := read(ctx, cl, 40, nil)
		f.see("group", text)
		if err != nil {
			return err
		}
		f.outcome("commit", "done", cl.CommitUncommittedOffsets(ctx))
		return nil
	}, kgo.SeedBrokers(f.l.mirrorSeeds...), kgo.ConsumeTopics(mirrored), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumerGroup(f.topic("mirror")), kgo.DisableAutoCommit())
}
