package consumers

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/links"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

const (
	// patience bounds what must come by itself, on a slow machine.
	patience = 90 * time.Second
	// lagTime is after how long without having been at the end a replica falls out of the ISR.
	lagTime = 10 * time.Second

	brokers = 2
	mirror  = "m"
)

// env is a mirror with a network between its processes.
type env struct {
	net      *links.Fabric
	src      *harness.Cluster
	dst      *stack.Stack
	srcAddr  string // of the source's one broker
	srcAdmin *kadm.Client
	dstAdmin *kadm.Client // around the proxies
}

func start(t *testing.T) *env {
	t.Helper()
	harness.SkipShort(t)
	e := &env{net: links.New()}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	var group errgroup.Group
	group.Go(func() (err error) {
		e.src, err = harness.Start(ctx, harness.Config{Name: "source", Brokers: 1, Network: e.net, Log: log})
		return err
	})
	group.Go(func() (err error) {
		e.dst, err = stack.Start(ctx, stack.Config{
			Kafka: harness.Config{
				Name: "dest", Brokers: brokers, ReplicaLagTimeMax: lagTime, Log: log,
				Properties: map[string]string{
					"default.replication.factor": fmt.Sprint(brokers),
					// Of share groups.
					"share.coordinator.state.topic.replication.factor": "1",
					"share.coordinator.state.topic.min.isr":            "1",
					"share.coordinator.state.topic.num.partitions":     "1",
					// Members of killed clients are gone soon.
					"group.consumer.min.session.timeout.ms": "6000",
					"group.initial.rebalance.delay.ms":      "0",
				},
			},
			Network: e.net, Bin: stack.Binaries(), Log: log,
		})
		return err
	})
	err := group.Wait()
	t.Cleanup(func() { e.stop(t) })
	if err != nil {
		t.Fatal(err)
	}
	e.srcAddr = e.src.Bootstrap(harness.ListenerInternal)[0]
	e.srcAdmin = kadm.NewClient(e.src.ClientT(t, quick()...))
	e.dstAdmin = kadm.NewClient(e.dst.Cluster.ClientT(t, quick()...))
	return e
}

func (e *env) stop(t *testing.T) {
	if e.dst != nil {
		for _, c := range e.dst.Sidecars {
			text, err := os.ReadFile(c.LogFile())
			if err != nil {
				continue // it never ran
			}
			if i := strings.Index(string(text), "panic: "); i >= 0 {
				t.Errorf("sidecar %d has crashed:\n%s", c.Broker, text[i:min(len(text), i+4000)])
			}
			if t.Failed() {
				t.Logf("the end of the log of sidecar %d:\n%s", c.Broker, c.LogTail())
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
	if err := e.net.Close(); err != nil {
		t.Error(err)
	}
}

// quick makes clients follow leader changes fast.
func quick(opts ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second), kgo.DisableClientMetrics(),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}, opts...)
}

func client(t *testing.T, seeds []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(quick(kgo.SeedBrokers(seeds...)), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// srcClient makes a client of the source that chooses the partitions of its records.
func (e *env) srcClient(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return client(t, []string{e.srcAddr}, append([]kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
}

func (e *env) createTopic(t *testing.T, adm *kadm.Client, cl *kgo.Client, partitions int32, rf int16, topic string) {
	t.Helper()
	r, err := adm.CreateTopic(t.Context(), partitions, rf, nil, topic)
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

// cli runs kafka-cluster-mirrors and fails the test if that fails.
func (e *env) cli(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := e.dst.CLI(ctx, args...); err != nil {
		t.Fatal(err)
	}
}

func (e *env) createMirror(t *testing.T) {
	t.Helper()
	file := filepath.Join(e.dst.Dir(), "m.properties")
	text := fmt.Sprintf("bootstrap.servers=%s\nrequest.timeout.ms=5000\n", e.srcAddr)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e.cli(t, "--create", "--mirror", mirror, "--mirror-config", file)
}

// mirrorTopics starts topics and returns when both real replicas of all their partitions are in sync.
func (e *env) mirrorTopics(t *testing.T, topics ...string) {
	t.Helper()
	e.cli(t, "--start", "--wait", "--mirror", mirror, "--topics", strings.Join(topics, ","))
	e.whole(t, topics...)
}

// whole returns when virtual brokers lead and all replicas are in sync, as every broker knows.
func (e *env) whole(t *testing.T, topics ...string) {
	t.Helper()
	harness.AwaitT(t, patience, fmt.Sprintf("all replicas of %v are in sync", topics), func(ctx context.Context) error {
		for _, c := range e.dst.Sidecars {
			if err := whole(ctx, e.dst.Cluster.Node(c.Broker).Addr(harness.ListenerInternal), topics); err != nil {
				return fmt.Errorf("broker %d: %w", c.Broker, err)
			}
		}
		return nil
	})
}

func whole(ctx context.Context, addr string, names []string) error {
	cl, err := kgo.NewClient(quick(kgo.SeedBrokers(addr))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	topics, err := kadm.NewClient(cl).ListTopics(ctx, names...)
	if err != nil {
		return err
	}
	for _, d := range topics {
		if d.Err != nil {
			return d.Err
		}
		for _, p := range d.Partitions {
			if p.Leader < stack.VirtualOffset || len(p.ISR) != 2*brokers {
				return fmt.Errorf("%s-%d is led by %d, in sync are %v of %v", d.Topic, p.Partition, p.Leader, p.ISR, p.Replicas)
			}
		}
	}
	return nil
}

// same fails the test if compare tells of a difference, twice: a machine that stops for longer than
// lagTime makes a replica fall behind, of which clients are told.
func (e *env) same(t *testing.T, compare func() (difference string)) {
	t.Helper()
	if difference := compare(); difference != "" {
		e.whole(t, plain)
		e.mirrored(t, plain)
		if again := compare(); again != "" {
			t.Errorf("%s\nbefore:\n%s", again, difference)
		}
	}
}

// mirrored returns when every proxy tells of the same ends as the source, which must be quiet.
func (e *env) mirrored(t *testing.T, topics ...string) {
	t.Helper()
	harness.AwaitT(t, patience, fmt.Sprintf("all of %v is visible", topics), func(ctx context.Context) error {
		for _, topic := range topics {
			for isolation := range int8(2) {
				if err := e.sameEnds(ctx, topic, isolation); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (e *env) sameEnds(ctx context.Context, topic string, isolation int8) error {
	list := e.srcAdmin.ListEndOffsets
	if isolation == 1 {
		list = e.srcAdmin.ListCommittedOffsets
	}
	ends, err := list(ctx, topic)
	if err != nil {
		return err
	}
	for _, o := range ends.Offsets().Sorted() {
		for _, c := range e.dst.Sidecars {
			got, err := listOffset(c.Proxy, topic, o.Partition, isolation)
			if err != nil || got != o.At {
				return fmt.Errorf("%s-%d at sidecar %d ends at %d, at the source at %d (isolation level %d): %w", topic, o.Partition, c.Broker, got, o.At, isolation, err)
			}
		}
	}
	return nil
}

// leads gives the sidecar that leads a partition.
func (e *env) leads(t *testing.T, topic string, partition int32) *stack.Sidecar {
	t.Helper()
	var c *stack.Sidecar
	harness.AwaitT(t, patience, "a sidecar leads "+topic, func(ctx context.Context) error {
		topics, err := e.dstAdmin.ListTopics(ctx, topic)
		if err != nil {
			return err
		}
		leader := topics[topic].Partitions[partition].Leader
		if c = e.dst.Sidecar(leader - stack.VirtualOffset); c == nil {
			return fmt.Errorf("it is led by %d", leader)
		}
		return nil
	})
	return c
}
