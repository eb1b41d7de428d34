package availability

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
)

// logsEnv names a folder that keeps the sidecars' logs, also of a test that passes.
const logsEnv = "MIRROR_AVAILABILITY_LOGS"

const (
	// patience bounds every wait for something that takes seconds: CI's machines are slow.
	patience = 90 * time.Second
	// session is broker.session.timeout.ms of the controllers, Kafka's own.
	session = 9 * time.Second
	virtual = ids.Virtual(stack.VirtualOffset)
	mirror  = "availability"
)

// env is a source under load, a destination of three brokers in two racks with their sidecars,
// and one who watches.
type env struct {
	src  *harness.Cluster
	dst  *stack.Stack
	load *workload.Load
	adm  *kadm.Client // of the destination, around the proxies
	w    *watch
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
		e.src, err = harness.Start(ctx, harness.Config{Name: "source", Brokers: 1, FirstID: 7, Log: log})
		return err
	})
	group.Go(func() (err error) {
		e.dst, err = stack.Start(ctx, stack.Config{
			Kafka: harness.Config{
				Name: "destination", Brokers: 3, Log: log,
				Properties: map[string]string{
					"default.replication.factor": "3", "min.insync.replicas": "2",
					"replica.fetch.backoff.ms": "1000", // Kafka's own: it is part of what a fail-over takes
				},
				NodeProperties: func(id int32) map[string]string { return map[string]string{"broker.rack": rackOf(id)} },
			},
			Bin: stack.Binaries(), Log: log,
		})
		return err
	})
	err := group.Wait()
	t.Cleanup(func() { e.stop(t) })
	if err != nil {
		t.Fatal(err)
	}
	e.adm = kadm.NewClient(e.dst.Cluster.ClientT(t, kgo.MetadataMinAge(50*time.Millisecond)))
	return e
}

// rackOf has brokers 1 and 2 in one rack: whatever is in two racks is at the sidecar of broker 3.
func rackOf(broker int32) string {
	if broker == 3 {
		return "rack-b"
	}
	return "rack-a"
}

func (e *env) stop(t *testing.T) {
	if e.dst != nil {
		for _, c := range e.dst.Sidecars {
			text, err := os.ReadFile(c.LogFile())
			if err != nil {
				continue // it never ran
			}
			for _, mark := range []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"} {
				if i := strings.Index(string(text), mark); i >= 0 {
					t.Errorf("the log of sidecar %d:\n%s", c.Broker, text[i:min(len(text), i+4000)])
				}
			}
			if dir := os.Getenv(logsEnv); dir != "" {
				if err := os.WriteFile(filepath.Join(dir, filepath.Base(c.LogFile())), text, 0o600); err != nil {
					t.Error(err)
				}
			}
			if t.Failed() {
				lines := strings.Split(strings.TrimSpace(string(text)), "\n")
				t.Logf("sidecar %d:\n%s", c.Broker, strings.Join(lines[max(0, len(lines)-120):], "\n"))
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

// feed starts the producers and mirrors what they write.
func (e *env) feed(t *testing.T) {
	t.Helper()
	load, err := workload.New(workload.Config{
		Bootstrap: e.src.Bootstrap(harness.ListenerInternal), Prefix: "a", Partitions: 6, Rate: 300,
		Kinds: []workload.Kind{workload.Idempotent, workload.Transactional},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := load.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.load = load
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		_ = load.Stop(ctx) // again, if it was stopped: it says nothing new
	})
	file := filepath.Join(e.dst.Dir(), "source.properties")
	if err := os.WriteFile(file, []byte("bootstrap.servers="+strings.Join(e.src.Bootstrap(harness.ListenerInternal), ",")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e.cli(t, "--create", "--mirror", mirror, "--mirror-config", file)
	e.cli(t, "--start", "--mirror", mirror, "--topics", strings.Join(load.TopicNames(), ","))
	e.awaitMirroring(t)
	e.w = e.watch(t, load.TopicNames())
}

// cli runs the command line at a sidecar that runs, again while sidecars come and go.
func (e *env) cli(t *testing.T, args ...string) string {
	t.Helper()
	var out string
	harness.AwaitT(t, patience, "kafka-cluster-mirrors "+args[0], func(ctx context.Context) (err error) {
		out, err = e.dst.CLI(ctx, args...)
		return err
	})
	return out
}

// described is what the tests look at of a described partition.
type described struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	State     string `json:"state"`
}

// awaitMirroring waits until describe says that every partition is MIRRORING.
func (e *env) awaitMirroring(t *testing.T) {
	t.Helper()
	want := 0
	for _, topic := range e.load.Topics() {
		want += int(topic.Partitions)
	}
	harness.AwaitT(t, patience, "every partition is MIRRORING", func(ctx context.Context) error {
		out, err := e.dst.CLI(ctx, "--describe", "--mirror", mirror, "--json")
		if err != nil {
			return err
		}
		var parts []described
		if err := json.Unmarshal([]byte(out), &parts); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		n := 0
		for _, p := range parts {
			if p.State == "MIRRORING" {
				n++
			}
		}
		if n != want {
			return fmt.Errorf("%d of %d: %s", n, want, out)
		}
		return nil
	})
}

// seats are the virtual replicas of every partition, as the brokers tell.
func (e *env) seats(ctx context.Context) (kadm.TopicDetails, error) {
	d, err := e.adm.ListTopics(ctx, e.load.TopicNames()...)
	if err == nil {
		err = d.Error()
	}
	return d, err
}

// awaitEven waits until every partition has two virtual replicas among those of the given
// brokers, in two racks if those are, all replicas in sync, the first one leading, and as
// many led by each as by the others.
func (e *env) awaitEven(t *testing.T, brokers ...int32) {
	t.Helper()
	began := time.Now()
	harness.AwaitT(t, patience, fmt.Sprintf("virtual replicas evenly at the sidecars of brokers %v", brokers), func(ctx context.Context) error {
		topics, err := e.seats(ctx)
		if err != nil {
			return err
		}
		return even(topics, brokers)
	})
	t.Logf("even over %v after %s", brokers, time.Since(began).Round(time.Millisecond))
}

// even says what is not as awaitEven wants it; dead brokers need not be in sync.
func even(topics kadm.TopicDetails, brokers []int32, dead ...int32) error {
	count, racks := map[int32]int{}, map[string]bool{}
	for _, b := range brokers {
		count[virtual.Of(b)], racks[rackOf(b)] = 0, true
	}
	var errs []error
	topics.EachPartition(func(p kadm.PartitionDetail) {
		v := virtual.Only(p.Replicas)
		switch {
		case len(v) != min(2, len(brokers)), slices.ContainsFunc(v, func(id int32) bool { _, ok := count[id]; return !ok }):
			errs = append(errs, fmt.Errorf("%s-%d has virtual replicas %v", p.Topic, p.Partition, v))
		case len(v) == 2 && len(racks) > 1 && rackOf(virtual.Home(v[0])) == rackOf(virtual.Home(v[1])):
			errs = append(errs, fmt.Errorf("%s-%d has virtual replicas %v in one rack", p.Topic, p.Partition, v))
		case p.Leader != p.Replicas[0]:
			errs = append(errs, fmt.Errorf("%s-%d of %v is led by %d", p.Topic, p.Partition, p.Replicas, p.Leader))
		case slices.ContainsFunc(p.Replicas, func(id int32) bool { return !slices.Contains(p.ISR, id) && !slices.Contains(dead, id) }):
			errs = append(errs, fmt.Errorf("%s-%d of %v: in sync are %v", p.Topic, p.Partition, p.Replicas, p.ISR))
		default:
			count[v[0]]++
		}
	})
	if len(errs) > 0 {
		return errors.Join(errs[:min(len(errs), 3)]...)
	}
	lo, hi := -1, 0
	for _, n := range count {
		if lo < 0 || n < lo {
			lo = n
		}
		hi = max(hi, n)
	}
	if hi-lo > 1 {
		return fmt.Errorf("partitions led: %v", count)
	}
	return nil
}

// coordinator is the sidecar that coordinates the mirror, as one that runs says.
func (e *env) coordinator(t *testing.T) *stack.Sidecar {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(e.dst.Sidecars[0].Proxy), kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var found *stack.Sidecar
	harness.AwaitT(t, patience, "the mirror's coordinator", func(ctx context.Context) error {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = 3, mirror, []string{mirror}
		resp, err := cl.SeedBrokers()[0].Request(ctx, req)
		if err != nil {
			return err
		}
		r := resp.(*kmsg.FindCoordinatorResponse)
		if len(r.Coordinators) != 1 || r.Coordinators[0].ErrorCode != 0 {
			return fmt.Errorf("%+v", r)
		}
		if found = e.dst.Sidecar(r.Coordinators[0].NodeID); found == nil {
			return fmt.Errorf("broker %d has no sidecar", r.Coordinators[0].NodeID)
		}
		return nil
	})
	return found
}

// others are the brokers beside the other sidecars.
func (e *env) others(without ...*stack.Sidecar) []int32 {
	var out []int32
	for _, c := range e.dst.Sidecars {
		if !slices.Contains(without, c) {
			out = append(out, c.Broker)
		}
	}
	return out
}

// sidecar starts one again and waits until it is ready.
func (e *env) sidecar(t *testing.T, c *stack.Sidecar) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
}

// minISR waits until all topics have a min.insync.replicas.
func (e *env) minISR(t *testing.T, want string) {
	t.Helper()
	began := time.Now()
	harness.AwaitT(t, patience, "min.insync.replicas "+want, func(ctx context.Context) error {
		all, err := e.adm.DescribeTopicConfigs(ctx, e.load.TopicNames()...)
		if err != nil {
			return err
		}
		for _, c := range all {
			for _, kv := range c.Configs {
				if kv.Key == "min.insync.replicas" && (kv.Value == nil || *kv.Value != want) {
					return fmt.Errorf("topic %s has %v", c.Name, *kv.Value)
				}
			}
		}
		return nil
	})
	t.Logf("min.insync.replicas is %s after %s", want, time.Since(began).Round(time.Millisecond))
}

// same ends the load and compares: here everything is as at the source, on every replica.
func (e *env) same(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.load.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	total := e.load.Total()
	t.Logf("produced: %+v", total)
	if total.Committed == 0 {
		t.Error("nothing was committed")
	}
	src := kadm.NewClient(e.src.ClientT(t))
	harness.AwaitT(t, patience, "the mirror ends where the source does", func(ctx context.Context) error {
		there, err := src.ListEndOffsets(ctx, e.load.TopicNames()...)
		if err != nil {
			return err
		}
		ends, err := e.w.ends(ctx)
		if err != nil {
			return err
		}
		for _, o := range there.Offsets().Sorted() {
			if got := ends[part{o.Topic, o.Partition}]; got != o.At {
				return fmt.Errorf("%s-%d ends at %d, at the source at %d", o.Topic, o.Partition, got, o.At)
			}
		}
		return nil
	})
	for _, topic := range e.load.Topics() {
		for p := range topic.Partitions {
			if err := e.dst.Cluster.WaitSameLogs(ctx, topic.Name, p, harness.Compare{}); err != nil {
				t.Error(err)
			}
		}
	}
	e.cli(t, "--verify", "--mirror", mirror)
	if _, err := e.load.Check(ctx, workload.CheckConfig{Bootstrap: e.dst.Direct(), Committed: true}); err != nil {
		t.Error(err)
	}
}
