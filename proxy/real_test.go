package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// realSetup is two stock brokers behind two proxies each: one pair whose addresses the
// brokers advertise, one that maps addresses itself (node.host.mapping).
type realSetup struct {
	cluster    *harness.Cluster
	view       *fakeView
	advertised []string // the proxies of brokers 1 and 2
	mapped     []string
}

func startReal(t *testing.T) *realSetup {
	harness.SkipShort(t)
	s := &realSetup{view: newFakeView()}
	log := slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelInfo}))
	var listeners [2][2]net.Listener // by mode and broker
	for mode := range listeners {
		for i := range listeners[mode] {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			listeners[mode][i] = ln
		}
	}
	for i := range 2 {
		s.advertised = append(s.advertised, listeners[0][i].Addr().String())
		s.mapped = append(s.mapped, listeners[1][i].Addr().String())
	}
	hosts := make(map[int32]HostPort)
	for i, addr := range s.mapped {
		hosts[int32(i+1)] = hostPort(t, addr)
	}
	leaders := NewLeaders(s.view, testVirtual)
	s.cluster = harness.StartT(t, harness.Config{
		Brokers:   2,
		Advertise: func(id int32) string { return s.advertised[id-1] },
		Log:       log,
	})
	for mode := range listeners {
		for i, ln := range listeners[mode] {
			node := s.cluster.Node(int32(i + 1))
			cfg := Config{
				Name: fmt.Sprintf("mode %d", mode), IDs: testVirtual, Home: node.ID(),
				Dial: func(ctx context.Context) (net.Conn, error) {
					var d net.Dialer
					return d.DialContext(ctx, "tcp", node.Addr(harness.ListenerClient))
				},
			}
			if mode == 1 {
				cfg.Hosts = hosts
			}
			p, err := New(cfg, Deps{View: s.view, Mirrors: fakeMirrors{of: map[ids.UUID]string{}}, Leaders: leaders, Log: log})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Start(ln); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
				defer cancel()
				if err := p.Stop(ctx); err != nil {
					t.Errorf("stop: %v", err)
				}
			})
		}
	}
	return s
}

func hostPort(t *testing.T, addr string) HostPort {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return HostPort{host, int32(n)}
}

func (s *realSetup) createTopic(t *testing.T, name string, partitions int32) {
	t.Helper()
	cl := s.cluster.ClientT(t)
	resp, err := kadm.NewClient(cl).CreateTopic(t.Context(), partitions, 2, nil, name)
	if err != nil || resp.Err != nil {
		t.Fatalf("create topic %s: %v, %v", name, err, resp.Err)
	}
	if err := harness.AwaitTopic(t.Context(), cl, name); err != nil {
		t.Fatal(err)
	}
}

// client is a franz-go client that may go to the given addresses only.
func (s *realSetup) client(t *testing.T, seeds []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	var d net.Dialer
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(seeds...),
		kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			if !slices.Contains(seeds, addr) {
				t.Errorf("client was sent to %s, want one of %v", addr, seeds)
				return nil, errors.New("not a proxy")
			}
			return d.DialContext(ctx, network, addr)
		}),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func TestRealBrokers(t *testing.T) {
	s := startReal(t)
	for mode, seeds := range map[string][]string{"advertised": s.advertised, "mapped": s.mapped} {
		t.Run(mode, func(t *testing.T) {
			t.Run("franz-go", func(t *testing.T) { s.testFranz(t, seeds, "franz-"+mode) })
			t.Run("pipelined", func(t *testing.T) { s.testPipelined(t, seeds, "pipelined-"+mode) })
			t.Run("sarama", func(t *testing.T) { s.testSarama(t, seeds, "sarama-"+mode) })
			t.Run("java", func(t *testing.T) { s.testJava(t, seeds, "java-"+mode) })
		})
	}
	t.Run("raw frames", func(t *testing.T) { s.testRaw(t) })
	t.Run("virtual listener", func(t *testing.T) { s.testVirtual(t) })
	t.Run("console", func(t *testing.T) { s.testConsole(t) })
	// From here on there is a mirror topic in the view, so that requests are looked at.
	t.Run("refused", func(t *testing.T) { s.testRefused(t) })
	t.Run("beside a mirror", func(t *testing.T) {
		t.Run("franz-go", func(t *testing.T) { s.testFranz(t, s.advertised, "franz-beside") })
		t.Run("sarama", func(t *testing.T) { s.testSarama(t, s.advertised, "sarama-beside") })
	})
	t.Run("offsets", func(t *testing.T) { s.testOffsets(t) })
}

// testFranz produces with each kind of acknowledgement and reads as a group.
func (s *realSetup) testFranz(t *testing.T, seeds []string, topic string) {
	s.createTopic(t, topic, 4)
	want := 0
	for _, acks := range []kgo.Acks{kgo.AllISRAcks(), kgo.LeaderAck(), kgo.NoAck()} {
		opts := []kgo.Opt{kgo.RequiredAcks(acks), kgo.DefaultProduceTopic(topic)}
		if acks != kgo.AllISRAcks() {
			opts = append(opts, kgo.DisableIdempotentWrite())
		}
		cl := s.client(t, seeds, opts...)
		for i := range 100 {
			r := kgo.StringRecord(fmt.Sprint(want + i))
			r.Key = r.Value
			cl.Produce(t.Context(), r, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("produce: %v", err)
				}
			})
		}
		if err := cl.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		want += 100
		if acks == kgo.NoAck() {
			// Nothing says when these have arrived, but an answer on the same connections.
			if _, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), topic); err != nil {
				t.Fatal(err)
			}
		}
	}
	group := s.client(t, seeds, kgo.ConsumerGroup("g-"+topic), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	got := make(map[string]bool)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(got) < want {
		fetches := group.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%d of %d records: %v", len(got), want, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { got[string(r.Value)] = true })
	}
	if err := group.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	offsets, err := kadm.NewClient(group).FetchOffsets(ctx, "g-"+topic)
	if err != nil {
		t.Fatal(err)
	}
	var committed int64
	offsets.Each(func(o kadm.OffsetResponse) { committed += o.At })
	if committed != int64(want) {
		t.Errorf("committed %d, want %d", committed, want)
	}
}

// testPipelined keeps many produce requests of one connection under way.
func (s *realSetup) testPipelined(t *testing.T, seeds []string, topic string) {
	s.createTopic(t, topic, 1)
	cl := s.client(t, seeds, kgo.DefaultProduceTopic(topic), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()),
		kgo.MaxProduceRequestsInflightPerBroker(100), kgo.ProducerBatchMaxBytes(1024), kgo.ProducerLinger(0))
	const n = 3000
	var wg sync.WaitGroup
	var mu sync.Mutex
	offsets := make(map[int64]bool)
	for i := range n {
		wg.Add(1)
		r := &kgo.Record{Value: fmt.Appendf(make([]byte, 0, 512), "%0512d", i)}
		cl.Produce(t.Context(), r, func(r *kgo.Record, err error) {
			defer wg.Done()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("produce: %v", err)
			}
			offsets[r.Offset] = true
		})
	}
	wg.Wait()
	if len(offsets) != n {
		t.Errorf("%d offsets, want %d", len(offsets), n)
	}
}

func (s *realSetup) testSarama(t *testing.T, seeds []string, topic string) {
	s.createTopic(t, topic, 2)
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_1_0_0 // Fetch version 10: older than KIP-392
	cfg.Producer.Return.Successes = true
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	producer, err := sarama.NewSyncProducer(seeds, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	const n = 50
	for i := range n {
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Partition: 0, Value: sarama.StringEncoder(fmt.Sprint(i))}); err != nil {
			t.Fatal(err)
		}
	}
	consumer, err := sarama.NewConsumer(seeds, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	parts, err := consumer.Partitions(topic)
	if err != nil || len(parts) != 2 {
		t.Fatalf("partitions %v, %v", parts, err)
	}
	got := make(chan string, n)
	for _, p := range parts {
		pc, err := consumer.ConsumePartition(topic, p, sarama.OffsetOldest)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		defer func() {
			pc.AsyncClose()
			wg.Wait()
		}()
		wg.Go(func() {
			for m := range pc.Messages() {
				got <- string(m.Value)
			}
		})
	}
	seen := make(map[string]bool)
	timeout := time.After(time.Minute)
	for len(seen) < n {
		select {
		case v := <-got:
			seen[v] = true
		case <-timeout:
			t.Fatalf("%d of %d records", len(seen), n)
		}
	}
}

// testJava runs Kafka's own producer, and its consumer as a group.
func (s *realSetup) testJava(t *testing.T, seeds []string, topic string) {
	s.createTopic(t, topic, 2)
	in := s.cluster.Installation()
	want := 0
	for _, acks := range []string{"all", "0"} {
		p := harness.JavaProduce{Bootstrap: seeds, Topic: topic, Properties: map[string]string{"acks": acks}}
		if acks != "all" {
			p.Properties["enable.idempotence"] = "false"
		} else {
			p.TransactionalID = "tx-" + topic
		}
		for i := range 50 {
			p.Records = append(p.Records, harness.JavaRecord{Partition: -1, Value: []byte(fmt.Sprint(want + i))})
		}
		produced, err := in.Produce(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range produced {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		want += 50
	}
	records, err := in.Consume(t.Context(), harness.JavaConsume{Bootstrap: seeds, Group: "g-" + topic, Topic: topic, ReadCommitted: true, Count: want})
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != want {
		t.Errorf("%d records, want %d", len(records), want)
	}
}

// testConsole runs the tools that everybody has.
func (s *realSetup) testConsole(t *testing.T) {
	const topic = "console"
	s.createTopic(t, topic, 1)
	in := s.cluster.Installation()
	find := func(names ...string) string {
		class, err := in.FindClass(names...)
		if err != nil {
			t.Fatal(err)
		}
		return class
	}
	bootstrap := strings.Join(s.advertised, ",")
	in.ToolT(t, strings.NewReader("one\ntwo\nthree\n"), find("org.apache.kafka.tools.ConsoleProducer", "kafka.tools.ConsoleProducer"),
		"--bootstrap-server", bootstrap, "--topic", topic)
	res := in.ToolT(t, nil, find("org.apache.kafka.tools.consumer.ConsoleConsumer", "kafka.tools.ConsoleConsumer"),
		"--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--max-messages", "3", "--timeout-ms", "30000", "--group", "console")
	if res.Stdout != "one\ntwo\nthree\n" {
		t.Errorf("consumed %q", res.Stdout)
	}
	res = in.ToolT(t, nil, find("org.apache.kafka.tools.TopicCommand", "kafka.admin.TopicCommand"), "--bootstrap-server", bootstrap, "--describe", "--topic", topic)
	if !strings.Contains(res.Stdout, "Leader:") {
		t.Errorf("described %q", res.Stdout)
	}
}

// testRefused produces to a topic that the view calls a mirror topic.
func (s *realSetup) testRefused(t *testing.T) {
	const topic = "mirrored"
	s.createTopic(t, topic, 1)
	s.putMirror(t, topic)
	in := s.cluster.Installation()
	produced, err := in.Produce(t.Context(), harness.JavaProduce{
		Bootstrap: s.advertised, Topic: topic,
		Records: []harness.JavaRecord{{Partition: -1, Value: []byte("no")}, {Partition: -1, Value: []byte("no")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range produced {
		je, ok := errors.AsType[*harness.JavaException](r.Err)
		if !ok || !strings.HasSuffix(je.Class, "PolicyViolationException") || !strings.Contains(je.Message, "mirror topic") {
			t.Errorf("result %+v", r)
		}
	}
	_, err = in.Produce(t.Context(), harness.JavaProduce{
		Bootstrap: s.advertised, Topic: topic, TransactionalID: "refused", Records: []harness.JavaRecord{{Partition: -1, Value: []byte("no")}},
	})
	if err == nil {
		t.Error("a transaction with a mirror topic committed")
	} else {
		t.Logf("transaction: %v", err)
	}
	cl := s.client(t, s.advertised)
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("no")}).FirstErr(); err == nil || !strings.Contains(err.Error(), "POLICY_VIOLATION") {
		t.Errorf("franz-go: %v", err)
	}
	deleted, err := kadm.NewClient(cl).DeleteTopic(t.Context(), topic)
	if err == nil {
		err = deleted.Err
	}
	if err == nil || !strings.Contains(err.Error(), "POLICY_VIOLATION") {
		t.Errorf("delete: %v", err)
	}
	ends, err := kadm.NewClient(s.cluster.ClientT(t)).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset != 0 {
			t.Errorf("log end %d", o.Offset)
		}
	})
}

// putMirror tells the view that a topic, which real brokers lead, is led by a virtual one.
func (s *realSetup) putMirror(t *testing.T, topic string) *metadata.Partition {
	t.Helper()
	topics, err := kadm.NewClient(s.cluster.ClientT(t)).ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	d := topics[topic]
	part := &metadata.Partition{
		Topic: topic, TopicID: ids.UUID(d.ID),
		Replicas: []int32{10001, 1, 2}, ISR: []int32{10001, 1, 2},
		Leader: 10001, LeaderEpoch: d.Partitions[0].LeaderEpoch,
	}
	s.view.put(part)
	return part
}

// testOffsets asks the proxy of the broker that follows a partition, as a consumer of a
// mirror partition does.
func (s *realSetup) testOffsets(t *testing.T) {
	const topic = "offsets"
	s.createTopic(t, topic, 1)
	direct := s.cluster.ClientT(t, kgo.DefaultProduceTopic(topic), kgo.TransactionalID("offsets"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	at := func(ms int64) *kgo.Record { return &kgo.Record{Value: []byte("v"), Timestamp: time.UnixMilli(ms)} }
	base := time.Now().UnixMilli()
	transaction := func(end func(), records ...*kgo.Record) {
		t.Helper()
		if err := direct.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := direct.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		end()
	}
	commit := func() {
		if err := direct.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
	}
	transaction(commit, at(base), at(base+1)) // offsets 0, 1, marker 2
	// Later than the marker, whose time is the broker's; brokers refuse times that are an
	// hour ahead.
	open := base + 30*time.Minute.Milliseconds()
	transaction(func() {}, at(open)) // offset 3, not ended
	defer commit()
	part := s.putMirror(t, topic)
	topics, err := kadm.NewClient(s.cluster.ClientT(t)).ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	follower := 3 - topics[topic].Partitions[0].Leader
	addr := s.advertised[follower-1]

	list := func(isolation int8, ts int64) (int64, int64, int16) {
		req := kmsg.NewPtrListOffsetsRequest()
		req.Version, req.ReplicaID, req.IsolationLevel = 10, -1, isolation
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Timestamp, rp.CurrentLeaderEpoch = ts, part.LeaderEpoch
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		c := dial(t, addr)
		defer c.Close()
		p := c.ask(req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		return p.Offset, p.Timestamp, p.ErrorCode
	}
	// The follower learns of the high watermark with its next fetch.
	waitFor(t, func() bool { off, _, code := list(0, latest); return off == 4 && code == 0 })
	for _, tc := range []struct {
		name      string
		isolation int8
		ts        int64
		offset    int64
		time      int64
	}{
		{"latest", 0, latest, 4, -1},
		{"latest committed", 1, latest, 3, -1},
		{"earliest", 0, -2, 0, -1}, // Kafka tells no time of it
		{"time", 0, base + 1, 1, base + 1},
		{"time of the open transaction", 0, open - 5, 3, open},
		{"time of the open transaction, committed", 1, open - 5, -1, -1},
		{"max timestamp", 0, maxTimestamp, 3, open},
		{"max timestamp, committed", 1, maxTimestamp, -1, -1},
	} {
		if off, ts, code := list(tc.isolation, tc.ts); off != tc.offset || ts != tc.time || code != 0 {
			t.Errorf("%s: offset %d, time %d, error %d; want %d, %d", tc.name, off, ts, code, tc.offset, tc.time)
		}
	}

	// An old consumer's Fetch is answered by the follower.
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.MaxBytes = 8, -1, 1<<20
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.PartitionMaxBytes = 1 << 20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	c := dial(t, addr)
	p := c.ask(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if p.ErrorCode != 0 || len(p.RecordBatches) == 0 || p.HighWatermark != 4 {
		t.Errorf("fetch: error %d, %d bytes, high watermark %d", p.ErrorCode, len(p.RecordBatches), p.HighWatermark)
	}
}

// testVirtual asks a real broker whether callers are brokers, and what they may do.
func (s *realSetup) testVirtual(t *testing.T) {
	node := s.cluster.Node(1)
	view := newFakeView(mirrorPart("m", topicID(1), 0))
	leaders := NewLeaders(view, testVirtual)
	handler := &fakeHandler{handle: func(ctx context.Context, _ int16, _ string, _ []byte) ([]byte, error) {
		who, ok := CallerOf(ctx)
		if !ok {
			return nil, errors.New("no caller")
		}
		req := kmsg.NewPtrDescribeClusterRequest()
		req.IncludeClusterAuthorizedOperations = true
		resp, err := who.Request(ctx, req)
		if err != nil {
			return nil, err
		}
		return fmt.Append(nil, resp.(*kmsg.DescribeClusterResponse).ClusterAuthorizedOperations > 0), nil
	}}
	p, err := New(Config{
		Name: "virtual", Virtual: true, IDs: testVirtual, Home: 1, ClusterID: s.cluster.ID(),
		Dial: func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", node.Addr(harness.ListenerInternal))
		},
	}, Deps{
		View: view, Mirrors: fakeMirrors{}, Leaders: leaders, Mirror: handler,
		Replica: &fakeReplica{fetch: func(context.Context, *kmsg.FetchRequest) (FetchReply, error) {
			return fakeReply{fetchResponse(17, 10, -1)}, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(ln); err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Error(err)
		}
	}()
	c := dial(t, ln.Addr().String())
	defer c.Close()
	for range 2 {
		if resp := c.ask(followerFetch(17)).(*kmsg.FetchResponse); len(resp.Topics) != 2 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Errorf("follower got %+v", resp)
		}
	}
	if _, err := c.Write(mirrorFrame(12799, 0, "")); err != nil {
		t.Fatal(err)
	}
	if frame, err := readFrame(c); err != nil || string(frame[5:]) != "true" {
		t.Errorf("mirror API: %q, %v", frame, err)
	}
	av := kmsg.NewPtrApiVersionsRequest()
	av.Version = 4
	av.ClientSoftwareName, av.ClientSoftwareVersion = "test", "1"
	if resp := c.ask(av).(*kmsg.ApiVersionsResponse); resp.ErrorCode != 0 || len(resp.ApiKeys) < 30 {
		t.Errorf("ApiVersions %+v", resp)
	}
	// KIP-1242: who looks for the virtual broker has found it, but not in another cluster.
	const rebootstrapRequired = 129
	ours, theirs := s.cluster.ID(), "another"
	for _, asked := range []struct {
		cluster *string
		node    int32
		want    int16
	}{{&ours, 10001, 0}, {nil, 10001, 0}, {&theirs, 10001, rebootstrapRequired}, {&ours, 10002, rebootstrapRequired}, {&ours, 1, 0}} {
		av.Version, av.ClusterID, av.NodeID = 5, asked.cluster, asked.node
		if resp := c.ask(av).(*kmsg.ApiVersionsResponse); resp.ErrorCode != asked.want {
			t.Errorf("%+v: error %d", asked, resp.ErrorCode)
		}
	}
	dirs := kmsg.NewPtrDescribeLogDirsRequest()
	dirs.Version = 4
	if resp := c.ask(dirs).(*kmsg.DescribeLogDirsResponse); len(resp.Dirs) != 0 {
		t.Errorf("log dirs %+v", resp)
	}
}
