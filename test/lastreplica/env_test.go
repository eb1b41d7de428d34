package lastreplica

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
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/replica/controller"
	"github.com/cluster-mirroring/mirror-sidecar/replica/metadata"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

const (
	// patience bounds every wait: CI's machines are slow.
	patience = 90 * time.Second
	// sessionTimeout is the controllers': what a broker's death takes to be noticed.
	sessionTimeout = 4 * time.Second
	mirror         = "m"
	brokers        = 3
)

// States on the wire.
const (
	stateMirroring int8 = 2
	stateStopped   int8 = 6
	stateFailed    int8 = 7
)

// waiting is the detail of a partition without a real replica in sync.
const waiting = "WAITING_FOR_REPLICAS"

// env is a source and a destination of three brokers, with a sidecar each and a controller of
// their own. Clients are those of the INTERNAL listeners, around the proxies.
type env struct {
	src *harness.Cluster
	dst *stack.Stack

	srcAdmin, dstAdmin *kadm.Client
	writer             *kgo.Client     // of the source
	api                *kgo.Client     // sends mirror APIs to the proxies
	image              *metadata.Image // what the controller says, whoever is dead
}

// start starts both clusters. change may alter what the destination is started with.
func start(t *testing.T, change func(*stack.Config)) *env {
	t.Helper()
	harness.SkipShort(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	dst := stack.Config{
		Kafka: harness.Config{
			Name: "destination", Brokers: brokers, Controllers: 1, Log: log, ReplicaLagTimeMax: 5 * time.Second,
			Properties: map[string]string{
				"default.replication.factor": strconv.Itoa(brokers),
				"broker.session.timeout.ms":  strconv.FormatInt(sessionTimeout.Milliseconds(), 10),
			},
		},
		Bin: stack.Binaries(), Log: log,
		Sidecar: map[string]string{"mirror.stop.replica.wait.ms": "5000"},
	}
	if change != nil {
		change(&dst)
	}
	e := &env{}
	var group errgroup.Group
	group.Go(func() (err error) {
		e.src, err = harness.Start(ctx, harness.Config{Name: "source", Brokers: 1, Log: log})
		return err
	})
	group.Go(func() (err error) {
		e.dst, err = stack.Start(ctx, dst)
		return err
	})
	err := group.Wait()
	t.Cleanup(func() { e.stop(t) })
	if err != nil {
		t.Fatal(err)
	}
	e.srcAdmin, e.dstAdmin = kadm.NewClient(e.src.ClientT(t, quick()...)), kadm.NewClient(e.dst.Cluster.ClientT(t, quick()...))
	e.writer = e.src.ClientT(t, append(quick(), manual())...)
	e.api = client(t, e.dst.Proxies(), kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())))
	e.watch(t)
	bootstrap := strings.Join(e.src.Bootstrap(harness.ListenerInternal), ",")
	timeout := "3000"
	create := protocol.NewCreateClusterMirrorRequest()
	create.MirrorName = mirror
	create.Configs = []protocol.MirrorConfig{{Name: "bootstrap.servers", Value: &bootstrap}, {Name: "request.timeout.ms", Value: &timeout}}
	// It is asked again when an answer is lost, and may be there by then.
	if r := ask[*protocol.CreateClusterMirrorResponse](t, e, &create); r.ErrorCode != 0 && r.ErrorCode != protocol.ClusterMirrorAlreadyExists {
		t.Fatalf("create: %d %s", r.ErrorCode, text(r.ErrorMessage))
	}
	return e
}

func quick() []kgo.Opt {
	return []kgo.Opt{kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second), kgo.DialTimeout(3 * time.Second)}
}

func manual() kgo.Opt { return kgo.RecordPartitioner(kgo.ManualPartitioner()) }

// watch follows the destination's metadata log: with all brokers dead nobody else says who is
// in sync.
func (e *env) watch(t *testing.T) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	ctl, err := controller.New(e.dst.Cluster.ControllerBootstrap(), nil, log)
	if err != nil {
		t.Fatal(err)
	}
	e.image = metadata.NewImage(stack.VirtualOffset)
	obs := metadata.NewObserver(metadata.ObserverConfig{ReplicaID: -1}, e.image, ctl, log)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { _ = obs.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		ctl.Close()
	})
	select {
	case <-obs.CaughtUp():
	case <-time.After(patience):
		t.Fatal("the metadata log was not read")
	}
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
			if dir := os.Getenv(logEnv); dir != "" {
				_ = os.WriteFile(filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-")+"-"+filepath.Base(c.LogFile())), log, 0o600)
			}
			if t.Failed() {
				lines := strings.Split(strings.TrimSpace(string(log)), "\n")
				t.Logf("the end of the log of sidecar %d:\n%s", c.Broker, strings.Join(lines[max(0, len(lines)-80):], "\n"))
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
	cl, err := kgo.NewClient(append(append(quick(), kgo.SeedBrokers(seeds...), kgo.DisableClientMetrics()), opts...)...)
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

// request sends a mirror API to the first sidecar that answers. The connection to one that was
// restarted, or whose broker was, ends with the first request: all are asked twice.
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
	if ok && r.ErrorCode != 0 {
		return none, fmt.Errorf("describe: %w: %s", kerr.ErrorForCode(r.ErrorCode), text(r.ErrorMessage))
	}
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

func told(p protocol.DescribedPartition) string {
	return fmt.Sprintf("state %d (%s) %s", p.State, text(p.Detail), text(p.ErrorMessage))
}

// partition is what the destination's controller says of a topic's only partition.
func (e *env) partition(topic string) (metadata.Partition, error) {
	id, ok := e.image.Topic(topic)
	if !ok {
		return metadata.Partition{}, fmt.Errorf("there is no topic %s", topic)
	}
	p := e.image.Partition(ids.TopicPartition{TopicID: id, Partition: 0})
	if p == nil {
		return metadata.Partition{}, fmt.Errorf("%s has no partition", topic)
	}
	return *p, nil
}

func isVirtual(id int32) bool { return id >= stack.VirtualOffset }

func real(of []int32) []int32 {
	return slices.DeleteFunc(slices.Clone(of), isVirtual)
}

// source is a topic of the source that records flow to.
type source struct {
	e     *env
	topic string
	end   func() int64 // waits until all that was written is acknowledged
}

// flowing makes a topic at the source, and records flow to it until the test ends or end is
// called, which says how many there are.
func (e *env) flowing(t *testing.T, topic string) *source {
	t.Helper()
	if _, err := e.srcAdmin.CreateTopic(t.Context(), 1, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	if err := harness.AwaitTopic(t.Context(), e.writer, topic); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var written int64
	var failed error
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			r := &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "%s %d", topic, written)}
			if failed = e.writer.ProduceSync(context.WithoutCancel(ctx), r).FirstErr(); failed != nil {
				return
			}
			written++
			<-tick.C
		}
	})
	s := &source{e: e, topic: topic, end: func() int64 {
		cancel()
		wg.Wait()
		if failed != nil {
			t.Errorf("write to %s: %v", topic, failed)
		}
		return written
	}}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return s
}

// mirrored starts a topic and returns when all replicas are in sync.
func (e *env) mirrored(t *testing.T, topic string) {
	t.Helper()
	req := protocol.NewStartMirrorTopicsRequest()
	req.MirrorName, req.Topics = mirror, []string{topic}
	r := ask[*protocol.StartMirrorTopicsResponse](t, e, &req)
	results(t, "start", r.ErrorCode, r.ErrorMessage, r.Topics)
	e.wellAgain(t, topic)
}

// wellAgain returns when a topic is MIRRORING and every replica in sync.
func (e *env) wellAgain(t *testing.T, topic string) {
	t.Helper()
	eventually(t, topic+" is mirrored with all replicas in sync", func(ctx context.Context) error {
		p, err := e.partition(topic)
		if err != nil {
			return err
		}
		if !isVirtual(p.Leader) || len(p.ISR) != brokers+2 {
			return fmt.Errorf("led by %d, in sync %v of %v, ELR %v", p.Leader, p.ISR, p.Replicas, p.ELR)
		}
		d, err := e.described(ctx, topic)
		if err == nil && (d.State != stateMirroring || text(d.Detail) == waiting) {
			err = errors.New(told(d))
		}
		return err
	})
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

// visible is the high watermark of a topic as a live real replica knows it.
func (e *env) visible(ctx context.Context, topic string) (int64, error) {
	ends, err := e.dstAdmin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, err
	}
	o, _ := ends.Lookup(topic, 0)
	return o.Offset, nil
}

// equal fails the test if the replicas' logs do not get equal to each other up to end, and to
// the source's.
func (e *env) equal(t *testing.T, topic string, end int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("every replica has %s up to %d", topic, end), func(context.Context) error {
		for _, n := range e.dst.Cluster.Brokers() {
			if l, err := n.ReadLog(topic, 0); err != nil || l.EndOffset() != end {
				return fmt.Errorf("%s has it to %d (%v)", n, l.EndOffset(), err) //nolint:errorlint // err may be nil
			}
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.dst.Cluster.WaitSameLogs(ctx, topic, 0, harness.Compare{}); err != nil {
		t.Error(err)
	}
	for _, n := range e.dst.Cluster.Brokers() {
		l, err := n.ReadLog(topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		from, err := e.src.Brokers()[0].ReadLog(topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		if d := mirrorDiff(from, l); d != "" {
			t.Errorf("%s of %s differs from the source: %s", topic, n, d)
		}
	}
}

// mirrorDiff compares a mirror's log with its source's: all but the leader epochs and what
// depends on them, and the producers' ids, is the same.
func mirrorDiff(src, dst harness.Log) string {
	for i := range max(len(src.Batches), len(dst.Batches)) {
		if i >= len(src.Batches) || i >= len(dst.Batches) {
			return fmt.Sprintf("%d batches, %d at the source", len(dst.Batches), len(src.Batches))
		}
		a, b := src.Batches[i], dst.Batches[i]
		if a.BaseOffset != b.BaseOffset || a.LastOffset != b.LastOffset || a.Count != b.Count || a.MaxTimestamp != b.MaxTimestamp || a.Size != b.Size || !b.Valid {
			return fmt.Sprintf("batch [%d, %d] of %d records, at the source [%d, %d] of %d", b.BaseOffset, b.LastOffset, b.Count, a.BaseOffset, a.LastOffset, a.Count)
		}
	}
	return ""
}

// kept fails the test if a record below hw of the log before is not there any more as it was.
func kept(t *testing.T, before, after harness.Log, hw int64) {
	t.Helper()
	if d := (harness.Compare{UpTo: hw}).Diff(before, after); d != nil {
		t.Errorf("a visible record (below %d) is not what it was: %s", hw, d)
	}
}
