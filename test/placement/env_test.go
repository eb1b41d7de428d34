package placement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
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
	mirror   = "m"

	stateMirroring int8 = 2
)

// env is a source of one broker and a destination of three with a sidecar each.
type env struct {
	src *harness.Cluster
	dst *stack.Stack

	srcClient *kgo.Client
	writer    *kgo.Client // of the source
	proxied   *kgo.Client // of the destination, at the proxies
	direct    *kgo.Client // of the destination, around them
	api       *kgo.Client // sends mirror APIs to the proxies
}

// start starts both clusters; configure changes the destination's configuration.
func start(t *testing.T, configure func(*stack.Config)) *env {
	t.Helper()
	harness.SkipShort(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	cfg := stack.Config{
		Kafka:   harness.Config{Name: "destination", Brokers: 3, Log: log, Properties: map[string]string{"default.replication.factor": "2"}},
		Sidecar: map[string]string{},
	}
	configure(&cfg)
	cfg.Bin, cfg.Log = stack.Binaries(), log
	if os.Getenv("MIRROR_PLACEMENT_LOG") != "" {
		cfg.Sidecar["log.level"] = "debug"
	}
	e := &env{}
	var group errgroup.Group
	group.Go(func() (err error) {
		e.src, err = harness.Start(ctx, harness.Config{Name: "source", Brokers: 1, Log: log})
		return err
	})
	group.Go(func() (err error) {
		e.dst, err = stack.Start(ctx, cfg)
		return err
	})
	err := group.Wait()
	t.Cleanup(func() { e.stop(t) })
	if err != nil {
		t.Fatal(err)
	}
	e.srcClient, e.writer = e.src.ClientT(t, quick()...), e.src.ClientT(t, append(quick(), manual())...)
	e.direct, e.proxied = e.dst.Cluster.ClientT(t, quick()...), e.client(t, e.dst.Proxies())
	e.api = e.client(t, e.dst.Proxies(), kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())))
	return e
}

// createMirror makes the mirror, and with it the state topic.
func (e *env) createMirror(t *testing.T) {
	t.Helper()
	bootstrap := strings.Join(e.src.Bootstrap(harness.ListenerInternal), ",")
	create := protocol.NewCreateClusterMirrorRequest()
	create.MirrorName, create.Configs = mirror, []protocol.MirrorConfig{{Name: "bootstrap.servers", Value: &bootstrap}}
	if r := ask[*protocol.CreateClusterMirrorResponse](t, e, &create); r.ErrorCode != 0 {
		t.Fatalf("create: %d %s", r.ErrorCode, text(r.ErrorMessage))
	}
}

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
			if dir := os.Getenv("MIRROR_PLACEMENT_LOG"); dir != "" {
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

func quick() []kgo.Opt {
	return []kgo.Opt{
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second), kgo.DisableClientMetrics(), kgo.DialTimeout(3 * time.Second),
	}
}

func manual() kgo.Opt { return kgo.RecordPartitioner(kgo.ManualPartitioner()) }

func (e *env) client(t *testing.T, seeds []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(append(quick(), kgo.SeedBrokers(seeds...)), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

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

// request sends a mirror API to the first sidecar that answers.
func (e *env) request(ctx context.Context, req kmsg.Request) (resp kmsg.Response, err error) {
	for range 2 {
		for _, b := range e.api.SeedBrokers() {
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

// createTopic makes a topic that every broker asked knows when it returns.
func createTopic(t *testing.T, cl *kgo.Client, partitions int32, rf int16, topic string) {
	t.Helper()
	r, err := kadm.NewClient(cl).CreateTopic(t.Context(), partitions, rf, nil, topic)
	if err == nil {
		err = r.Err
	}
	if err == nil {
		err = harness.AwaitTopic(t.Context(), cl, topic)
	}
	if err != nil {
		t.Fatalf("create topic %s: %v", topic, err)
	}
}

// mirrorTopic makes a topic at the source and mirrors it.
func (e *env) mirrorTopic(t *testing.T, topic string, partitions int32) {
	t.Helper()
	createTopic(t, e.srcClient, partitions, 1, topic)
	e.write(t, topic, partitions, 100)
	req := protocol.NewStartMirrorTopicsRequest()
	req.MirrorName, req.Topics = mirror, []string{topic}
	r := ask[*protocol.StartMirrorTopicsResponse](t, e, &req)
	if r.ErrorCode != 0 || len(r.Topics) != 1 || r.Topics[0].ErrorCode != 0 {
		t.Fatalf("start: %+v", r)
	}
	e.mirroring(t, topic)
	e.copied(t, topic)
}

// write produces n records to each of a topic's partitions at the source.
func (e *env) write(t *testing.T, topic string, partitions int32, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.tryWrite(ctx, topic, partitions, n); err != nil {
		t.Fatal(err)
	}
}

func (e *env) tryWrite(ctx context.Context, topic string, partitions int32, n int) error {
	var records []*kgo.Record
	for i := range n {
		for p := range partitions {
			records = append(records, &kgo.Record{Topic: topic, Partition: p, Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i)})
		}
	}
	return e.writer.ProduceSync(ctx, records...).FirstErr()
}

// writing goes on writing to a topic at the source, and tries to write to it at the
// destination, around the proxies, until the returned function is called. Nothing of the
// latter may be taken.
func (e *env) writing(t *testing.T, topic string, partitions int32) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var both sync.WaitGroup
	var written atomic.Int64
	both.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			switch err := e.tryWrite(ctx, topic, partitions, 5); {
			case err == nil:
				written.Add(5)
			case ctx.Err() == nil:
				t.Errorf("write to the source: %v", err)
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	intruder := e.client(t, e.dst.Direct(), manual(), kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(), kgo.RecordRetries(1), kgo.RecordDeliveryTimeout(2*time.Second))
	both.Go(func() {
		for ctx.Err() == nil {
			err := intruder.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("foreign")}).FirstErr()
			if err == nil {
				t.Errorf("a record was written to mirror topic %s", topic)
				return
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	return func() {
		cancel()
		both.Wait()
		t.Logf("%s: %d records written to each partition meanwhile", topic, written.Load())
	}
}

// mirroring returns when all of a topic is MIRRORING.
func (e *env) mirroring(t *testing.T, topic string) {
	t.Helper()
	eventually(t, topic+" mirrors", func(ctx context.Context) error {
		req := protocol.NewDescribeClusterMirrorsRequest()
		req.MirrorNames = []string{mirror}
		resp, err := e.request(ctx, &req)
		if err != nil {
			return err
		}
		for _, m := range resp.(*protocol.DescribeClusterMirrorsResponse).Mirrors {
			for _, mt := range m.Topics {
				if mt.TopicName != topic {
					continue
				}
				for _, p := range mt.Partitions {
					if p.State != stateMirroring || text(p.Detail) != "" {
						return fmt.Errorf("partition %d is in state %d (%s %s)", p.PartitionIndex, p.State, text(p.Detail), text(p.ErrorMessage))
					}
				}
				return nil
			}
		}
		return errors.New("it is not described")
	})
}

func ends(ctx context.Context, cl *kgo.Client, topic string) (map[int32]int64, error) {
	listed, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, err
	}
	out := map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) { out[o.Partition] = o.Offset })
	return out, nil
}

// copied returns when the destination shows all that the source has. The source is quiet.
func (e *env) copied(t *testing.T, topic string) {
	t.Helper()
	eventually(t, topic+" is copied", func(ctx context.Context) error {
		want, err := ends(ctx, e.srcClient, topic)
		if err != nil {
			return fmt.Errorf("source: %w", err)
		}
		got, err := ends(ctx, e.proxied, topic)
		if err != nil {
			return fmt.Errorf("destination: %w", err)
		}
		for p, end := range want {
			if got[p] != end {
				return fmt.Errorf("partition %d ends at %d, the source at %d", p, got[p], end)
			}
		}
		return nil
	})
}

// arrived returns when the destination shows an offset of partition 0.
func (e *env) arrived(t *testing.T, topic string, offset int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s has offset %d", topic, offset), func(ctx context.Context) error {
		got, err := ends(ctx, e.proxied, topic)
		if err == nil && got[0] <= offset {
			err = fmt.Errorf("it ends at %d", got[0])
		}
		return err
	})
}

// same fails the test unless the mirror is copied, equals its source, and all replicas are
// the same.
func (e *env) same(t *testing.T, topic string) {
	t.Helper()
	e.mirroring(t, topic)
	e.copied(t, topic)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if out, err := e.dst.CLI(ctx, "--verify", "--mirror", mirror, "--topics", topic); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, p := range e.partitions(t, e.direct, topic) {
		if err := e.dst.Cluster.WaitSameLogs(ctx, topic, p.Partition, harness.Compare{}); err != nil {
			t.Error(err)
		}
	}
}

func partitions(ctx context.Context, cl *kgo.Client, topic string) ([]kadm.PartitionDetail, error) {
	topics, err := kadm.NewClient(cl).ListTopics(ctx, topic)
	if err == nil {
		err = topics[topic].Err
	}
	if err != nil {
		return nil, err
	}
	return topics[topic].Partitions.Sorted(), nil
}

func (e *env) partitions(t *testing.T, cl *kgo.Client, topic string) []kadm.PartitionDetail {
	t.Helper()
	var out []kadm.PartitionDetail
	eventually(t, "the partitions of "+topic, func(ctx context.Context) (err error) { // not every broker may know it yet
		out, err = partitions(ctx, cl, topic)
		return err
	})
	return out
}

func isVirtual(b int32) bool { return b >= stack.VirtualOffset }

func real(ids []int32) []int32 {
	return slices.DeleteFunc(slices.Clone(ids), isVirtual)
}

// assigned returns when partition p has these real replicas, in this order, behind two
// virtual ones, is led by one of those, and everybody is in sync; and clients of the proxies
// see the real ones alone.
func (e *env) assigned(t *testing.T, topic string, p int32, want ...int32) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s-%d is on %v", topic, p, want), func(ctx context.Context) error {
		all, err := partitions(ctx, e.direct, topic)
		if err != nil {
			return err
		}
		d := all[p]
		if len(d.Replicas) != len(want)+2 || !isVirtual(d.Replicas[0]) || !isVirtual(d.Replicas[1]) || !slices.Equal(d.Replicas[2:], want) {
			return fmt.Errorf("replicas %v", d.Replicas)
		}
		if !isVirtual(d.Leader) || len(d.ISR) != len(d.Replicas) {
			return fmt.Errorf("led by %d, in sync %v of %v", d.Leader, d.ISR, d.Replicas)
		}
		if all, err = partitions(ctx, e.proxied, topic); err != nil {
			return err
		}
		if d = all[p]; !slices.Equal(d.Replicas, want) || len(d.ISR) != len(want) || !slices.Contains(want, d.Leader) {
			return fmt.Errorf("clients see replicas %v, in sync %v, leader %d", d.Replicas, d.ISR, d.Leader)
		}
		return nil
	})
}

// reassign asks for new replicas, nil to cancel, and returns the partitions' errors.
func reassign(ctx context.Context, to interface {
	Request(context.Context, kmsg.Request) (kmsg.Response, error)
}, topic string, targets map[int32][]int32,
) (map[int32]error, error) {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	rt.Topic = topic
	for p, replicas := range targets {
		rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		rp.Partition, rp.Replicas = p, replicas
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := to.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	r := resp.(*kmsg.AlterPartitionAssignmentsResponse)
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text(r.ErrorMessage))
	}
	out := map[int32]error{}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				out[p.Partition] = fmt.Errorf("%w: %s", err, text(p.ErrorMessage))
			}
		}
	}
	return out, nil
}

func mustReassign(t *testing.T, to interface {
	Request(context.Context, kmsg.Request) (kmsg.Response, error)
}, topic string, targets map[int32][]int32,
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	errs, err := reassign(ctx, to, topic, targets)
	if err != nil || len(errs) > 0 {
		t.Fatalf("reassign %s to %v: %v %v", topic, targets, err, errs)
	}
}

// pending lists what is being reassigned of a topic, as a client sees it.
func pending(ctx context.Context, cl *kgo.Client, topic string) (map[int32]kadm.ListPartitionReassignmentsResponse, error) {
	var s kadm.TopicsSet
	s.Add(topic, 0, 1)
	got, err := kadm.NewClient(cl).ListPartitionReassignments(ctx, s)
	if err != nil {
		return nil, err
	}
	return got[topic], nil
}
