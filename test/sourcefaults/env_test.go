package sourcefaults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/links"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
	"github.com/cluster-mirroring/mirror-sidecar/verify"
)

// patience bounds every wait for what takes seconds, on a machine that has much else to do.
const patience = 90 * time.Second

const (
	brokers = 3
	mirror  = "m"
	// requestTimeout is the mirror's request.timeout.ms: how long a silent source is waited for.
	requestTimeout = 5 * time.Second
)

// The states that tests wait for.
const (
	stateMirroring int8 = 2
	statePaused    int8 = 4
	stateFailed    int8 = 7
)

// env is a source with a live workload and a destination that mirrors it.
type env struct {
	net *links.Fabric
	src *harness.Cluster
	dst *stack.Stack

	toSource links.Links // of every sidecar

	srcClient, dstClient *kgo.Client // INTERNAL listeners
	srcAdmin, dstAdmin   *kadm.Client
	api                  *kgo.Client // sends mirror APIs to the proxies
	load                 *workload.Load
	topics               []string // all that are mirrored and must equal the source
}

// start starts everything, with a source of that version.
func start(t *testing.T, version string) *env {
	t.Helper()
	harness.SkipShort(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	e := &env{net: links.New()}
	var group errgroup.Group
	group.Go(func() (err error) {
		e.src, err = harness.Start(ctx, harness.Config{
			Name: "source", Version: version, Brokers: brokers, Network: e.net, Log: log,
			Properties: map[string]string{
				"default.replication.factor": strconv.Itoa(brokers), "min.insync.replicas": "2",
				// A broker that was killed is given up sooner, and one that is back is taken sooner.
				"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "500",
				"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "1000",
			},
		})
		return err
	})
	group.Go(func() (err error) {
		e.dst, err = stack.Start(ctx, stack.Config{
			Kafka: harness.Config{
				Name: "destination", Brokers: brokers, Log: log,
				Properties: map[string]string{"default.replication.factor": strconv.Itoa(brokers), "min.insync.replicas": "2"},
			},
			Bin: stack.Binaries(), Log: log, Network: e.net,
		})
		return err
	})
	err := group.Wait()
	t.Cleanup(func() { e.stop(t) })
	if err == nil {
		e.toSource, err = e.net.Between("sidecar-*", "source-*")
	}
	if err != nil {
		t.Fatal(err)
	}
	e.srcClient, e.dstClient = e.src.ClientT(t, quick()...), e.dst.Cluster.ClientT(t, quick()...)
	e.srcAdmin, e.dstAdmin = kadm.NewClient(e.srcClient), kadm.NewClient(e.dstClient)
	e.api = newClient(t, kgo.SeedBrokers(e.dst.Proxies()...), kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())))

	var seeds []string
	for _, n := range e.src.Brokers() {
		seeds = append(seeds, n.Advertised(harness.ListenerInternal))
	}
	file := filepath.Join(t.TempDir(), "mirror.properties")
	text := fmt.Sprintf("bootstrap.servers=%s\nrequest.timeout.ms=%d\n", strings.Join(seeds, ","), requestTimeout.Milliseconds())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e.cli(t, "--create", "--mirror", mirror, "--mirror-config", file)
	return e
}

// feed starts the live workload and mirrors it.
func (e *env) feed(t *testing.T) {
	t.Helper()
	var err error
	e.load, err = workload.New(workload.Config{
		Bootstrap: e.src.Bootstrap(harness.ListenerInternal), Replication: brokers, Rate: 100,
		Kinds: []workload.Kind{workload.Idempotent, workload.Transactional},
	})
	if err == nil {
		err = e.load.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	e.mirror(t, e.load.TopicNames()...)
	e.settled(t, "at first", time.Now())
}

func (e *env) stop(t *testing.T) {
	if e.load != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		_ = e.load.Stop(ctx)
		cancel()
	}
	if e.dst != nil {
		for _, c := range e.dst.Sidecars {
			checkLog(t, c)
		}
		if err := e.dst.Stop(); err != nil {
			t.Error(err)
		}
	}
	if e.src != nil {
		if t.Failed() {
			for _, n := range e.src.Nodes() {
				t.Logf("the end of the log of %s:\n%s", n, n.LogTail())
			}
		}
		if err := e.src.Stop(); err != nil {
			t.Error(err)
		}
	}
	if err := e.net.Close(); err != nil {
		t.Error(err)
	}
}

// keepEnv names a folder for the sidecars' logs.
const keepEnv = "MIRROR_SOURCEFAULTS_LOG"

func checkLog(t *testing.T, c *stack.Sidecar) {
	text, err := os.ReadFile(c.LogFile())
	if err != nil {
		return
	}
	if dir := os.Getenv(keepEnv); dir != "" {
		_ = os.WriteFile(filepath.Join(dir, filepath.Base(c.LogFile())), text, 0o600)
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

func (e *env) cli(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if out, err := e.dst.CLI(ctx, args...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// mirror starts topics.
func (e *env) mirror(t *testing.T, topics ...string) {
	t.Helper()
	for _, topic := range topics {
		if err := harness.AwaitTopic(t.Context(), e.srcClient, topic); err != nil {
			t.Fatal(err)
		}
	}
	e.cli(t, "--start", "--mirror", mirror, "--topics", strings.Join(topics, ","))
	e.topics = append(e.topics, topics...)
	e.waitState(t, stateMirroring, topics...)
}

// create makes a topic at the source; configs are key, value, key, value …
func (e *env) create(t *testing.T, partitions int32, rf int16, topic string, configs ...string) {
	t.Helper()
	keep := "-1"
	m := map[string]*string{"retention.ms": &keep}
	for i := 0; i+1 < len(configs); i += 2 {
		m[configs[i]] = &configs[i+1]
	}
	if r, err := e.srcAdmin.CreateTopic(t.Context(), partitions, rf, m, topic); err != nil || r.Err != nil {
		t.Fatalf("create %s: %v", topic, errors.Join(err, r.Err))
	}
	if err := harness.AwaitTopic(t.Context(), e.srcClient, topic); err != nil {
		t.Fatal(err)
	}
}

// write produces n records to each of a source topic's partitions, each a batch of its own.
func (e *env) write(t *testing.T, topic string, partitions int32, n, size int) {
	t.Helper()
	cl := newClient(t, kgo.SeedBrokers(e.src.Bootstrap(harness.ListenerInternal)...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.UnknownTopicRetries(-1), kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range n {
		var records []*kgo.Record
		for p := range partitions {
			records = append(records, &kgo.Record{Topic: topic, Partition: p, Value: fmt.Appendf(nil, "%0*d", size, i)})
		}
		if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
			t.Fatalf("write to %s: %v", topic, err)
		}
	}
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
	resp, err := e.api.SeedBrokers()[0].Request(ctx, &req)
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

func said(topic string, p protocol.DescribedPartition) error {
	return fmt.Errorf("%s-%d is in state %d (%s %s)", topic, p.PartitionIndex, p.State, text(p.Detail), text(p.ErrorMessage))
}

// every gives an error unless all partitions of the topics are as they must be.
func (e *env) every(ctx context.Context, must func(protocol.DescribedPartition) bool, topics ...string) error {
	described, err := e.describe(ctx)
	if err != nil {
		return err
	}
	for _, name := range topics {
		if len(described[name]) == 0 {
			return fmt.Errorf("%s is not described", name)
		}
		for _, p := range described[name] {
			if !must(p) {
				return said(name, p)
			}
		}
	}
	return nil
}

func (e *env) waitState(t *testing.T, state int8, topics ...string) {
	t.Helper()
	harness.AwaitT(t, patience, fmt.Sprintf("%v in state %d", topics, state), func(ctx context.Context) error {
		return e.every(ctx, func(p protocol.DescribedPartition) bool { return p.State == state }, topics...)
	})
}

// waitDetail waits until all partitions of the topics tell a detail.
func (e *env) waitDetail(t *testing.T, detail string, topics ...string) {
	t.Helper()
	harness.AwaitT(t, patience, fmt.Sprintf("%v with detail %s", topics, detail), func(ctx context.Context) error {
		return e.every(ctx, func(p protocol.DescribedPartition) bool { return p.State == stateMirroring && text(p.Detail) == detail }, topics...)
	})
}

// ends gives the ends of topics as consumers see them.
func ends(ctx context.Context, adm *kadm.Client, topics ...string) (map[verify.TopicPartition]int64, error) {
	listed, err := adm.ListEndOffsets(ctx, topics...)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, err
	}
	out := map[verify.TopicPartition]int64{}
	listed.Each(func(o kadm.ListedOffset) {
		out[verify.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = o.Offset
	})
	return out, nil
}

// settled waits until every partition is MIRRORING with nothing to wait for, and has all that the
// source has at this moment; says how long that took since a fault ended; and compares.
func (e *env) settled(t *testing.T, after string, since time.Time) {
	t.Helper()
	var upTo map[verify.TopicPartition]int64
	harness.AwaitT(t, patience, "the source answers", func(ctx context.Context) (err error) {
		upTo, err = ends(ctx, e.srcAdmin, e.topics...)
		return err
	})
	harness.AwaitT(t, patience, after+": all is mirrored again", func(ctx context.Context) error {
		if e.load != nil {
			if err := e.load.Err(); err != nil {
				return err
			}
		}
		if err := e.every(ctx, func(p protocol.DescribedPartition) bool {
			d := text(p.Detail)
			return p.State == stateMirroring && d != "SOURCE_UNAVAILABLE" && d != "THROTTLED"
		}, e.topics...); err != nil {
			return err
		}
		got, err := ends(ctx, e.dstAdmin, e.topics...)
		if err != nil {
			return err
		}
		for tp, end := range upTo {
			if got[tp] < end {
				return fmt.Errorf("%s-%d ends at %d, the source had %d", tp.Topic, tp.Partition, got[tp], end)
			}
		}
		return nil
	})
	t.Logf("%s: mirrored again after %v", after, time.Since(since).Round(100*time.Millisecond))
	e.same(t, upTo)
}

// same compares every replica with the source up to those ends; what is written goes on.
func (e *env) same(t *testing.T, upTo map[verify.TopicPartition]int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	for _, n := range e.dst.Cluster.Brokers() {
		report, err := verify.Compare(ctx, e.srcClient, e.dstClient, e.topics, verify.Options{
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

// moves waits until the load has gone on by so many records.
func (e *env) moves(t *testing.T, records int64) {
	t.Helper()
	before := e.load.Total().Acked
	harness.AwaitT(t, patience, "the load goes on", func(context.Context) error {
		if now := e.load.Total().Acked; now < before+records {
			return fmt.Errorf("%d records acknowledged, %d before", now, before)
		}
		return e.load.Err()
	})
}

// counter is the sum of a metric of the mirror over all sidecars.
func (e *env) counter(t *testing.T, name string) (sum float64) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	for _, c := range e.dst.Sidecars {
		var value float64
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
			value = 0
			for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
				if got, v, ok := strings.Cut(lines.Text(), " "); ok && (got == name || strings.HasPrefix(got, name+"{")) {
					f, err := strconv.ParseFloat(v, 64)
					if err != nil {
						return err
					}
					value += f
				}
			}
			return nil
		})
		sum += value
	}
	return sum
}
