package brokerfaults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
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
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
	"github.com/cluster-mirroring/mirror-sidecar/verify"
)

// patience bounds every wait for what takes seconds, on a machine that has much else to do.
const patience = 90 * time.Second

const (
	brokers = 3
	mirror  = "m"
	// bulk is the topic that is larger than what a sidecar keeps.
	bulk = "bulk"
	// bufferBytes is mirror.buffer.memory.bytes: much less than bulk.
	bufferBytes = 16 << 20
	// lagMax is replica.lag.time.max.ms, and with it how long a silent follower is waited for.
	lagMax = 10 * time.Second
)

// The states that tests wait for.
const (
	stateMirroring int8 = 2
	stateFailed    int8 = 7
)

// env is a source with a live workload and a destination that mirrors it.
type env struct {
	src    *harness.Cluster
	dst    *stack.Stack
	load   *workload.Load
	damage *damage
	topics []string

	srcClient, dstClient *kgo.Client // INTERNAL listeners
	srcAdmin, dstAdmin   *kadm.Client
	api                  *kgo.Client // sends mirror APIs to the proxies
}

// start starts everything; bytes is the size of bulk.
func start(t *testing.T, bytes int) *env {
	t.Helper()
	harness.SkipShort(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	e := &env{damage: &damage{}}
	var group errgroup.Group
	group.Go(func() (err error) {
		e.src, err = harness.Start(ctx, harness.Config{Name: "source", Brokers: 1, Log: log})
		return err
	})
	group.Go(func() (err error) {
		e.dst, err = stack.Start(ctx, stack.Config{
			Kafka: harness.Config{
				Name: "destination", Brokers: brokers, Controllers: 1, LogDirs: 2, ReplicaLagTimeMax: lagMax, Log: log,
				Properties: map[string]string{"default.replication.factor": strconv.Itoa(brokers), "min.insync.replicas": "2"},
			},
			Bin: stack.Binaries(), Log: log,
			Sidecar:     map[string]string{"mirror.buffer.memory.bytes": strconv.Itoa(bufferBytes)},
			EachSidecar: func(c *stack.Sidecar) map[string]string { return behindRelay(t, c, e.damage) },
		})
		return err
	})
	err := group.Wait()
	t.Cleanup(func() { e.stop(t) })
	if err != nil {
		t.Fatal(err)
	}
	e.srcClient, e.dstClient = e.src.ClientT(t, quick()...), e.dst.Cluster.ClientT(t, quick()...)
	e.srcAdmin, e.dstAdmin = kadm.NewClient(e.srcClient), kadm.NewClient(e.dstClient)
	e.api = newClient(t, kgo.SeedBrokers(e.dst.Proxies()...), kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())))

	e.load, err = workload.New(workload.Config{
		Bootstrap: e.src.Bootstrap(harness.ListenerInternal), Partitions: 2, Rate: 100,
		Kinds: []workload.Kind{workload.Idempotent, workload.Transactional, workload.Shapes},
	})
	if err == nil {
		err = e.load.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	e.topics = append(e.load.TopicNames(), bulk)
	keep := "-1"
	if r, err := e.srcAdmin.CreateTopic(ctx, 1, 1, map[string]*string{"retention.ms": &keep}, bulk); err != nil || r.Err != nil {
		t.Fatalf("create %s: %v", bulk, errors.Join(err, r.Err))
	}
	e.mirrorAll(t)
	e.fill(t, bytes)
	e.mirrored(t)
	e.healthy(t, "at first", time.Now())
	return e
}

// mirrored waits until the destination has all of bulk.
func (e *env) mirrored(t *testing.T) {
	t.Helper()
	harness.AwaitT(t, 10*time.Minute, bulk+" mirrored", func(ctx context.Context) error {
		want, err := e.srcAdmin.ListEndOffsets(ctx, bulk)
		if err != nil {
			return err
		}
		got, err := e.dstAdmin.ListEndOffsets(ctx, bulk)
		if err != nil {
			return err
		}
		w, _ := want.Lookup(bulk, 0)
		g, _ := got.Lookup(bulk, 0)
		if err := errors.Join(w.Err, g.Err); err != nil || g.Offset < w.Offset {
			return fmt.Errorf("end %d at the source, %d here: %w", w.Offset, g.Offset, errors.Join(err, errNotYet))
		}
		return nil
	})
}

// behindRelay registers a virtual broker at a relay.
func behindRelay(t *testing.T, c *stack.Sidecar, d *damage) map[string]string {
	ports, err := harness.FreePorts(1)
	if err != nil {
		t.Error(err)
		return nil
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
	newRelay(t, addr, c.Virtual, d)
	return map[string]string{"virtual.advertised.listeners": addr}
}

func (e *env) stop(t *testing.T) {
	if e.dst != nil {
		for _, c := range e.dst.Sidecars {
			e.checkLog(t, c)
		}
		if t.Failed() {
			for _, n := range e.dst.Cluster.Nodes() {
				t.Logf("the end of the log of %s:\n%s", n, n.LogTail())
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

// keepEnv names a folder for the sidecars' and the brokers' logs.
const keepEnv = "MIRROR_BROKERFAULTS_LOG"

func (e *env) checkLog(t *testing.T, c *stack.Sidecar) {
	text, err := os.ReadFile(c.LogFile())
	if err != nil {
		return
	}
	if dir := os.Getenv(keepEnv); dir != "" {
		_ = os.WriteFile(filepath.Join(dir, filepath.Base(c.LogFile())), text, 0o600)
		if n := e.dst.Cluster.Node(c.Broker); n != nil {
			if kafka, err := os.ReadFile(n.LogFile()); err == nil {
				_ = os.WriteFile(filepath.Join(dir, fmt.Sprintf("broker-%d.log", c.Broker)), kafka, 0o600)
			}
		}
	}
	for _, mark := range []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"} {
		if i := strings.Index(string(text), mark); i >= 0 {
			t.Errorf("the log of sidecar %d:\n%s", c.Broker, text[i:min(len(text), i+4000)])
		}
	}
	if t.Failed() {
		t.Logf("the end of the log of sidecar %d:\n%s", c.Broker, c.LogTail())
	}
}

// quick makes clients follow leader changes fast.
func quick() []kgo.Opt {
	return []kgo.Opt{
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}
}

func newClient(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(quick(), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// mirrorAll creates the mirror and starts every topic.
func (e *env) mirrorAll(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mirror.properties")
	text := "bootstrap.servers=" + strings.Join(e.src.Bootstrap(harness.ListenerInternal), ",") + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// Nothing is there yet, not even the topic of transactional ids: the first request may find
	// that out too slowly, and may have been carried out all the same.
	harness.AwaitT(t, patience, "create the mirror", func(ctx context.Context) error {
		_, err := e.dst.CLI(ctx, "--create", "--mirror", mirror, "--mirror-config", file)
		if err != nil && strings.Contains(err.Error(), "ALREADY_EXISTS") {
			return nil
		}
		return err
	})
	e.cli(t, "--start", "--mirror", mirror, "--topics", strings.Join(e.topics, ","))
}

func (e *env) cli(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if out, err := e.dst.CLI(ctx, args...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// fill writes bytes to bulk.
func (e *env) fill(t *testing.T, bytes int) {
	t.Helper()
	cl := newClient(t, kgo.SeedBrokers(e.src.Bootstrap(harness.ListenerInternal)...),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.UnknownTopicRetries(-1), kgo.ProducerBatchMaxBytes(1<<20-4096))
	defer cl.Close()
	value := []byte(strings.Repeat("bulk", 4096))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	failed := make(chan error, 1)
	for n := 0; n < bytes; n += len(value) {
		cl.Produce(ctx, &kgo.Record{Topic: bulk, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		t.Fatalf("write to %s: %v", bulk, err)
	default:
	}
}

// healthy waits until every partition is MIRRORING and led by a virtual broker, with all its
// replicas in sync, and says how long that took since a fault began.
func (e *env) healthy(t *testing.T, after string, since time.Time) {
	t.Helper()
	harness.AwaitT(t, 2*patience, after+": every partition MIRRORING and in sync", func(ctx context.Context) error {
		if err := e.load.Err(); err != nil {
			return err
		}
		topics, err := e.dstAdmin.ListTopics(ctx, e.topics...)
		if err != nil {
			return err
		}
		for _, name := range e.topics {
			d := topics[name]
			if d.Err != nil || len(d.Partitions) == 0 {
				return fmt.Errorf("%s: %w", name, errors.Join(d.Err, errNotYet))
			}
			for _, p := range d.Partitions {
				switch {
				case p.Leader < stack.VirtualOffset:
					return fmt.Errorf("%s-%d is led by %d (ISR %v)", name, p.Partition, p.Leader, p.ISR)
				case len(p.ISR) < len(p.Replicas) || len(p.Replicas) < brokers+2:
					return fmt.Errorf("%s-%d: ISR %v of %v", name, p.Partition, p.ISR, p.Replicas)
				}
			}
		}
		return e.inState(ctx, stateMirroring, e.topics...)
	})
	t.Logf("%s: healthy after %v", after, time.Since(since).Round(100*time.Millisecond))
}

// errNotYet says that what is waited for is not there yet.
var errNotYet = errors.New("not yet")

// inState gives an error unless every partition of the topics is in a state.
func (e *env) inState(ctx context.Context, state int8, topics ...string) error {
	described, err := e.describe(ctx)
	if err != nil {
		return err
	}
	for _, name := range topics {
		if len(described[name]) == 0 {
			return fmt.Errorf("%s is not described", name)
		}
		for _, p := range described[name] {
			if p.State != state {
				return fmt.Errorf("%s-%d is in state %d (%s %s)", name, p.PartitionIndex, p.State, text(p.Detail), text(p.ErrorMessage))
			}
		}
	}
	return nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (e *env) describe(ctx context.Context) (map[string][]protocol.DescribedPartition, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	req := protocol.NewDescribeClusterMirrorsRequest()
	req.MirrorNames = []string{mirror}
	var resp kmsg.Response
	err := errors.New("no sidecar to ask")
	for _, b := range e.api.SeedBrokers() {
		if resp, err = b.Request(ctx, &req); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	r, ok := resp.(*protocol.DescribeClusterMirrorsResponse)
	if !ok || len(r.Mirrors) != 1 {
		return nil, fmt.Errorf("an odd answer to describe: %T", resp)
	}
	if err := protocol.ErrorForCode(r.Mirrors[0].ErrorCode, r.Mirrors[0].ErrorMessage); err != nil {
		return nil, err
	}
	out := map[string][]protocol.DescribedPartition{}
	for _, topic := range r.Mirrors[0].Topics {
		out[topic.TopicName] = topic.Partitions
	}
	return out, nil
}

// partition gives a partition as the destination's brokers see it.
func (e *env) partition(ctx context.Context, topic string, partition int32) (kadm.PartitionDetail, [16]byte, error) {
	topics, err := e.dstAdmin.ListTopics(ctx, topic)
	if err != nil {
		return kadm.PartitionDetail{}, [16]byte{}, err
	}
	return topics[topic].Partitions[partition], topics[topic].ID, topics[topic].Err
}

// same compares the replicas' logs of the topics with each other and with the source's, up to
// what the source has now; the load goes on.
func (e *env) same(t *testing.T, topics []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ends, err := e.srcAdmin.ListEndOffsets(ctx, topics...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	upTo := map[verify.TopicPartition]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		upTo[verify.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = o.Offset
	})
	for tp, end := range upTo {
		var logs []harness.Log
		for _, n := range e.dst.Cluster.Brokers() {
			var log harness.Log
			harness.AwaitT(t, patience, fmt.Sprintf("%s-%d on broker %d up to %d", tp.Topic, tp.Partition, n.ID(), end), func(context.Context) (err error) {
				log, err = n.ReadLog(tp.Topic, tp.Partition)
				if err == nil && log.EndOffset() < end {
					err = fmt.Errorf("it ends at %d", log.EndOffset())
				}
				return err
			})
			logs = append(logs, log)
		}
		for _, log := range logs[1:] {
			if d := (harness.Compare{UpTo: end}).Diff(logs[0], log); d != nil {
				t.Errorf("the replicas differ: %v", d)
			}
		}
	}
	for _, n := range e.dst.Cluster.Brokers() {
		report, err := verify.Compare(ctx, e.srcClient, e.dstClient, topics, verify.Options{
			UpTo: upTo, MirrorBroker: func(verify.TopicPartition) int32 { return n.ID() },
		})
		if err != nil {
			t.Fatalf("compare with the source, broker %d: %v", n.ID(), err)
		}
		for _, p := range report.Partitions {
			if p.Difference != nil || p.Error != "" {
				t.Errorf("%s-%d on broker %d: %v %s", p.Topic, p.Partition, n.ID(), p.Difference, p.Error)
			}
		}
	}
}

// moves fails the test unless the load goes on and its records arrive.
func (e *env) moves(t *testing.T) {
	t.Helper()
	before := e.load.Total().Acked
	harness.AwaitT(t, patience, "the load goes on", func(context.Context) error {
		if now := e.load.Total().Acked; now < before+100 {
			return fmt.Errorf("%d records acknowledged, %d before", now, before)
		}
		return e.load.Err()
	})
}

// counters sums up the sidecars' metrics, by name with labels but for the mirror's.
func (e *env) counters(t *testing.T) map[string]float64 {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	out := map[string]float64{}
	for _, c := range e.dst.Sidecars {
		harness.AwaitT(t, patience, fmt.Sprintf("metrics of sidecar %d", c.Broker), func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.HTTP+"/metrics", http.NoBody)
			if err != nil {
				return err
			}
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			got := map[string]float64{}
			lines := bufio.NewScanner(resp.Body)
			for lines.Scan() {
				name, value, ok := strings.Cut(lines.Text(), " ")
				if v, err := strconv.ParseFloat(value, 64); ok && err == nil && strings.HasPrefix(name, "kafka_mirror_") {
					got[strings.TrimSuffix(name, `{mirror="`+mirror+`"}`)] = v
				}
			}
			if err := lines.Err(); err != nil {
				return err
			}
			for name, v := range got {
				out[name] += v
			}
			return nil
		})
	}
	return out
}

// broker picks a real broker that holds what is said of it.
func (e *env) broker(id int32) *harness.Node { return e.dst.Cluster.Node(id) }

// inISR waits until a broker is, or is not, in sync for a partition.
func (e *env) inISR(t *testing.T, id int32, topic string, partition int32, want bool) {
	t.Helper()
	harness.AwaitT(t, patience, fmt.Sprintf("broker %d in the ISR of %s-%d: %t", id, topic, partition, want), func(ctx context.Context) error {
		p, _, err := e.partition(ctx, topic, partition)
		if err == nil && slices.Contains(p.ISR, id) != want {
			err = fmt.Errorf("ISR %v", p.ISR)
		}
		return err
	})
}
