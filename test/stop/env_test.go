package stop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

const (
	// patience bounds every wait: CI's machines are slow.
	patience = 90 * time.Second
	// sessionTimeout is the controllers'; the default, 9 s, is only slower.
	sessionTimeout = 5 * time.Second
	mirror         = "m"
	brokers        = 3
)

// States on the wire.
const (
	stateMirroring int8 = 2
	stateStopped   int8 = 6
)

// env is a source and a destination of three brokers with a sidecar each. Clients are
// those of the INTERNAL listeners, around the proxies.
type env struct {
	src *harness.Cluster
	dst *stack.Stack

	srcClient, dstClient *kgo.Client
	srcAdmin, dstAdmin   *kadm.Client
	writer               *kgo.Client // of the source
	api                  *kgo.Client // sends mirror APIs to the proxies
}

func start(t *testing.T) *env {
	t.Helper()
	harness.SkipShort(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	e := &env{}
	var group errgroup.Group
	group.Go(func() (err error) {
		e.src, err = harness.Start(ctx, harness.Config{Name: "source", Brokers: 1, Log: log})
		return err
	})
	group.Go(func() (err error) {
		e.dst, err = stack.Start(ctx, stack.Config{
			Kafka: harness.Config{
				Name: "destination", Brokers: brokers, Controllers: 1, Log: log, ReplicaLagTimeMax: 5 * time.Second,
				Properties: map[string]string{
					"default.replication.factor": strconv.Itoa(brokers),
					"broker.session.timeout.ms":  strconv.FormatInt(sessionTimeout.Milliseconds(), 10),
				},
			},
			Bin: stack.Binaries(), Log: log,
			Sidecar: map[string]string{"mirror.stop.replica.wait.ms": "5000"},
		})
		return err
	})
	err := group.Wait()
	t.Cleanup(func() { e.stop(t) })
	if err != nil {
		t.Fatal(err)
	}
	quick := []kgo.Opt{kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second)}
	e.srcClient, e.dstClient = e.src.ClientT(t, quick...), e.dst.Cluster.ClientT(t, quick...)
	e.srcAdmin, e.dstAdmin = kadm.NewClient(e.srcClient), kadm.NewClient(e.dstClient)
	e.writer = e.src.ClientT(t, append(quick, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	e.api = client(t, e.dst.Proxies(), kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())))
	bootstrap := strings.Join(e.src.Bootstrap(harness.ListenerInternal), ",")
	timeout := "3000"
	create := protocol.NewCreateClusterMirrorRequest()
	create.MirrorName = mirror
	create.Configs = []protocol.MirrorConfig{{Name: "bootstrap.servers", Value: &bootstrap}, {Name: "request.timeout.ms", Value: &timeout}}
	if r := ask[*protocol.CreateClusterMirrorResponse](t, e, &create); r.ErrorCode != 0 {
		t.Fatalf("create: %d %s", r.ErrorCode, text(r.ErrorMessage))
	}
	return e
}

// stop ends everything; a sidecar that has crashed by itself fails the test.
func (e *env) stop(t *testing.T) {
	if e.dst != nil {
		for _, c := range e.dst.Sidecars {
			log, err := os.ReadFile(c.LogFile())
			if err != nil {
				continue
			}
			for _, mark := range []string{"panic: ", "fatal error: "} {
				if i := strings.Index(string(log), mark); i >= 0 {
					t.Errorf("the log of sidecar %d:\n%s", c.Broker, log[i:min(len(log), i+4000)])
				}
			}
			if dir := os.Getenv("MIRROR_STOP_LOG"); dir != "" {
				_ = os.WriteFile(filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-")+"-"+filepath.Base(c.LogFile())), log, 0o600)
			}
			if t.Failed() {
				lines := strings.Split(strings.TrimSpace(string(log)), "\n")
				t.Logf("the end of the log of sidecar %d:\n%s", c.Broker, strings.Join(lines[max(0, len(lines)-120):], "\n"))
			}
		}
		if err := e.dst.Stop(); err != nil {
			t.Error(err)
		}
	}
	if e.src != nil {
		if err := e.src.Stop(); err != nil {
			t.Error(err)
		}
	}
}

func client(t *testing.T, seeds []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second), kgo.DisableClientMetrics(),
		kgo.DialTimeout(3 * time.Second),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func manual() kgo.Opt { return kgo.RecordPartitioner(kgo.ManualPartitioner()) }

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func eventually(t *testing.T, what string, cond func(ctx context.Context) error) {
	t.Helper()
	harness.AwaitT(t, patience, what, cond)
}

// request sends a mirror API to the first sidecar that answers. The connection to one that
// was restarted, or whose broker was, ends with the first request: all are asked twice.
func (e *env) request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	err := errors.New("no sidecar runs")
	for range 2 {
		for i, b := range e.api.SeedBrokers() {
			if !e.dst.Sidecars[i].Running() {
				continue
			}
			var resp kmsg.Response
			if resp, err = b.Request(ctx, req); err == nil {
				return resp, nil
			}
		}
	}
	return nil, err
}

func ask[R kmsg.Response](t *testing.T, e *env, req kmsg.Request) R {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := e.request(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	r, ok := resp.(R)
	if !ok {
		t.Fatalf("an odd answer: %T", resp)
	}
	return r
}

func results(t *testing.T, what string, code int16, message *string, topics []protocol.TopicResult) {
	t.Helper()
	if code != 0 {
		t.Fatalf("%s: %d %s", what, code, text(message))
	}
	for _, r := range topics {
		if r.ErrorCode != 0 {
			t.Fatalf("%s %s: %d %s", what, r.Name, r.ErrorCode, text(r.ErrorMessage))
		}
	}
}

func (e *env) startTopics(t *testing.T, topics ...string) {
	t.Helper()
	req := protocol.NewStartMirrorTopicsRequest()
	req.MirrorName, req.Topics = mirror, topics
	r := ask[*protocol.StartMirrorTopicsResponse](t, e, &req)
	results(t, "start", r.ErrorCode, r.ErrorMessage, r.Topics)
}

func (e *env) stopTopics(t *testing.T, topics ...string) {
	t.Helper()
	req := protocol.NewStopMirrorTopicsRequest()
	req.MirrorName, req.Topics = mirror, topics
	r := ask[*protocol.StopMirrorTopicsResponse](t, e, &req)
	results(t, "stop", r.ErrorCode, r.ErrorMessage, r.Topics)
}

// described gives a topic's only partition as a sidecar says.
func (e *env) described(ctx context.Context, topic string) (protocol.DescribedPartition, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	req := protocol.NewDescribeClusterMirrorsRequest()
	req.MirrorNames = []string{mirror}
	none := protocol.NewDescribedPartition()
	resp, err := e.request(ctx, &req)
	if err != nil {
		return none, err
	}
	r, ok := resp.(*protocol.DescribeClusterMirrorsResponse)
	if !ok || len(r.Mirrors) != 1 {
		return none, fmt.Errorf("an odd answer to describe: %T", resp)
	}
	for _, d := range r.Mirrors[0].Topics {
		if d.TopicName == topic && len(d.Partitions) == 1 {
			return d.Partitions[0], nil
		}
	}
	return none, fmt.Errorf("%s is not described", topic)
}

func (e *env) waitState(t *testing.T, topic string, state int8) protocol.DescribedPartition {
	t.Helper()
	var p protocol.DescribedPartition
	eventually(t, fmt.Sprintf("%s in state %d", topic, state), func(ctx context.Context) (err error) {
		if p, err = e.described(ctx, topic); err == nil && p.State != state {
			err = fmt.Errorf("state %d (%s %s)", p.State, text(p.Detail), text(p.ErrorMessage))
		}
		return err
	})
	return p
}

// partition is what the destination's controller says of a topic's only partition.
func (e *env) partition(ctx context.Context, topic string) (kadm.PartitionDetail, error) {
	topics, err := e.dstAdmin.ListTopics(ctx, topic)
	if err == nil {
		err = topics[topic].Err
	}
	if err != nil {
		return kadm.PartitionDetail{}, err
	}
	p, ok := topics[topic].Partitions[0]
	if !ok {
		return p, fmt.Errorf("%s has no partition", topic)
	}
	return p, nil
}

func isVirtual(id int32) bool { return id >= stack.VirtualOffset }

// ownConfigs are what a prepared topic has before it is mirrored.
func ownConfigs() map[string]string {
	return map[string]string{"max.message.bytes": "2000000", "min.insync.replicas": "2"}
}

const (
	committed = 20 // records of a prepared topic that read committed sees
	open      = 3  // records of its open transaction
)

// prepared is a mirror topic with one partition and an open transaction.
type prepared struct {
	topic    string
	end      int64 // at the source
	epoch    int32 // of the leader here
	replicas int   // real ones
}

// prepare mirrors a new topic whose last records belong to a transaction that nobody ends.
func (e *env) prepare(t *testing.T, topic string) prepared {
	t.Helper()
	return e.prepareOn(t, topic, brokers)
}

func (e *env) prepareOn(t *testing.T, topic string, replicas int) prepared {
	t.Helper()
	if _, err := e.srcAdmin.CreateTopic(t.Context(), 1, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	own := map[string]*string{}
	for k, v := range ownConfigs() {
		own[k] = &v
	}
	if _, err := e.dstAdmin.CreateTopic(t.Context(), 1, int16(replicas), own, topic); err != nil {
		t.Fatal(err)
	}
	for _, cl := range []*kgo.Client{e.srcClient, e.dstClient} {
		if err := harness.AwaitTopic(t.Context(), cl, topic); err != nil {
			t.Fatal(err)
		}
	}
	write(t, e.writer, topic, committed)
	tx := client(t, e.src.Bootstrap(harness.ListenerInternal), kgo.TransactionalID("open-"+topic), kgo.TransactionTimeout(14*time.Minute),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := tx.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	write(t, tx, topic, open)
	e.startTopics(t, topic)
	e.waitState(t, topic, stateMirroring)
	out := prepared{topic: topic, end: committed + open, replicas: replicas}
	eventually(t, topic+" is mirrored", func(ctx context.Context) error {
		p, err := e.partition(ctx, topic)
		if err != nil {
			return err
		}
		if !isVirtual(p.Leader) || len(p.ISR) != replicas+2 {
			return fmt.Errorf("led by %d, in sync %v", p.Leader, p.ISR)
		}
		out.epoch = p.LeaderEpoch
		// Their files, for a virtual leader whose home broker is no replica answers nobody who
		// goes around the proxies.
		for _, b := range p.Replicas {
			if isVirtual(b) {
				continue
			}
			if log, err := e.dst.Cluster.Node(b).ReadLog(topic, 0); err != nil || log.EndOffset() != out.end {
				return fmt.Errorf("broker %d has it to %d of %d (%v)", b, log.EndOffset(), out.end, err) //nolint:errorlint // err may be nil
			}
		}
		return nil
	})
	return out
}

func write(t *testing.T, cl *kgo.Client, topic string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{Topic: topic, Partition: 0, Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "%s %d", topic, i)})
	}
	if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatalf("write to %s: %v", topic, err)
	}
}

// checkStopped fails the test if a stopped topic is not an ordinary one with all that was
// mirrored and one ABORT marker.
func (e *env) checkStopped(t *testing.T, c prepared) {
	t.Helper()
	e.checkStoppedWith(t, c, committed)
}

// checkStoppedWith is checkStopped for a topic with that many records outside its open
// transaction.
func (e *env) checkStoppedWith(t *testing.T, c prepared, visible int) {
	t.Helper()
	d := e.waitState(t, c.topic, stateStopped)
	if d.LastMirrorOffset != c.end || d.LastMirrorEpoch != 0 {
		t.Errorf("%s: last mirror offset %d and epoch %d, want %d and 0", c.topic, d.LastMirrorOffset, d.LastMirrorEpoch, c.end)
	}
	var leader int32
	eventually(t, c.topic+" has all its replicas", func(ctx context.Context) error {
		p, err := e.partition(ctx, c.topic)
		if err != nil {
			return err
		}
		leader = p.Leader
		if slices.ContainsFunc(p.Replicas, isVirtual) || isVirtual(p.Leader) || p.Leader < 0 || p.LeaderEpoch <= c.epoch {
			t.Fatalf("%s is STOPPED: leader %d (epoch %d, %d before), replicas %v", c.topic, p.Leader, p.LeaderEpoch, c.epoch, p.Replicas)
		}
		if len(p.Replicas) != c.replicas || len(p.ISR) != c.replicas {
			return fmt.Errorf("replicas %v, in sync %v", p.Replicas, p.ISR)
		}
		return nil
	})
	e.checkConfigs(t, c.topic)
	write(t, client(t, e.dst.Proxies(), manual()), c.topic, 5)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.dst.Cluster.WaitSameLogs(ctx, c.topic, 0, harness.Compare{}); err != nil {
		t.Error(err)
	}
	log, err := e.dst.Cluster.Node(leader).ReadLog(c.topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	markers := 0
	for _, b := range log.Batches {
		if b.Control {
			markers++
			if b.BaseOffset < c.end || b.LeaderEpoch <= c.epoch {
				t.Errorf("%s: a marker at offset %d with epoch %d; mirrored up to %d under %d", c.topic, b.BaseOffset, b.LeaderEpoch, c.end, c.epoch)
			}
		}
	}
	if markers != 1 {
		t.Errorf("%s: %d markers for one open transaction", c.topic, markers)
	}
	e.checkCommitted(ctx, t, c.topic, visible+5)
}

func (e *env) checkConfigs(t *testing.T, topic string) {
	t.Helper()
	rc, err := e.dstAdmin.DescribeTopicConfigs(t.Context(), topic)
	if err == nil {
		err = rc[0].Err
	}
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	for _, c := range rc[0].Configs {
		if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
			have[c.Key] = text(c.Value)
		}
	}
	for _, k := range []string{"max.message.bytes", "min.insync.replicas", "unclean.leader.election.enable", "remote.storage.enable"} {
		w, wanted := ownConfigs()[k]
		if h, set := have[k]; set != wanted || h != w {
			t.Errorf("%s: %s is %q (set: %t), want %q (set: %t)", topic, k, h, set, w, wanted)
		}
	}
}

// checkCommitted reads a topic to its end as read committed, and finds want records: the
// transaction that was open is aborted, and nothing holds back who reads.
func (e *env) checkCommitted(ctx context.Context, t *testing.T, topic string, want int) {
	t.Helper()
	ends, err := e.dstAdmin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	stable, err := e.dstAdmin.ListCommittedOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, 0)
	if s, _ := stable.Lookup(topic, 0); s.Offset != end.Offset {
		t.Errorf("%s: last stable offset %d, end %d", topic, s.Offset, end.Offset)
	}
	reader := client(t, e.dst.Proxies(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	defer reader.Close()
	got, next := 0, int64(0)
	for next < end.Offset {
		fetches := reader.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%s: read committed got to %d of %d", topic, next, end.Offset)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			switch {
			case !r.Attrs.IsControl():
				got++
			case len(r.Key) != 4 || r.Key[3] != 0: // version, type: 0 is an abort
				t.Errorf("%s: the marker at %d is no ABORT: %x", topic, r.Offset, r.Key)
			}
		})
	}
	if got != want {
		t.Errorf("%s: read committed sees %d records, want %d", topic, got, want)
	}
}
