package netfaults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/links"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
	"github.com/cluster-mirroring/mirror-sidecar/verify"
)

const (
	// session is the virtual brokers' with the controllers, Kafka's own value.
	session = 9 * time.Second
	// patience bounds what must come back by itself, on a slow machine.
	patience = 2 * time.Minute

	brokers    = 3
	partitions = 2 // of each topic
)

// env is a mirror with a network between all of its processes.
type env struct {
	net  *links.Fabric
	src  *harness.Cluster
	dst  *stack.Stack
	adm  *kadm.Client // the destination's brokers, around the proxies
	load *workload.Load
}

func start(t *testing.T) *env {
	t.Helper()
	harness.SkipShort(t)
	e := &env{net: links.New()}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var group errgroup.Group
	group.Go(func() (err error) {
		e.src, err = harness.Start(ctx, harness.Config{Name: "source", Brokers: 1, Network: e.net})
		return err
	})
	group.Go(func() (err error) {
		e.dst, err = stack.Start(ctx, stack.Config{
			Kafka: harness.Config{
				Name: "dest", Brokers: brokers, Controllers: 1,
				Properties: map[string]string{"default.replication.factor": "3"},
			},
			Network: e.net, Bin: stack.Binaries(),
		})
		return err
	})
	err := group.Wait()
	t.Cleanup(func() { e.stop(t) })
	if err != nil {
		t.Fatal(err)
	}
	e.adm = kadm.NewClient(e.dst.Cluster.ClientT(t, kgo.MetadataMinAge(100*time.Millisecond)))
	e.load, err = workload.New(workload.Config{
		Bootstrap: e.src.Bootstrap(harness.ListenerInternal), Partitions: partitions, Rate: 100,
		Kinds: []workload.Kind{workload.Idempotent, workload.Transactional},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.load.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.mirror(t)
	return e
}

func (e *env) stop(t *testing.T) {
	if e.dst != nil {
		for _, c := range e.dst.Sidecars {
			text, err := os.ReadFile(c.LogFile())
			if err == nil && (strings.Contains(string(text), "panic: ") || t.Failed()) {
				t.Logf("the end of the log of sidecar %d:\n%s", c.Broker, c.LogTail())
			}
			if strings.Contains(string(text), "panic: ") {
				t.Errorf("sidecar %d has crashed", c.Broker)
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

// mirror starts a mirror of the load's topics.
func (e *env) mirror(t *testing.T) {
	t.Helper()
	file := filepath.Join(e.dst.Dir(), "m.properties")
	text := "bootstrap.servers=" + strings.Join(e.src.Bootstrap(harness.ListenerInternal), ",") + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--create", "--mirror", "m", "--mirror-config", file},
		{"--start", "--wait", "--mirror", "m", "--topics", strings.Join(e.load.TopicNames(), ",")},
	} {
		if _, err := e.dst.CLI(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
}

// whole tells what is missing until every partition is led by a virtual broker and all its replicas,
// the virtual ones too, are in sync.
func (e *env) whole(ctx context.Context) error {
	topics, err := e.adm.ListTopics(ctx, e.load.TopicNames()...)
	if err != nil {
		return err
	}
	for _, d := range topics {
		if d.Err != nil || len(d.Partitions) != partitions {
			return fmt.Errorf("topic %s has %d partitions: %w", d.Topic, len(d.Partitions), d.Err)
		}
		for _, p := range d.Partitions {
			if p.Leader < stack.VirtualOffset {
				return fmt.Errorf("%s-%d is led by %d", d.Topic, p.Partition, p.Leader)
			}
			if len(p.ISR) != brokers+2 {
				return fmt.Errorf("%s-%d has %v in sync of %v", d.Topic, p.Partition, p.ISR, p.Replicas)
			}
		}
	}
	return nil
}

// leader gives the sidecar that leads the first partition of the first topic.
func (e *env) leader(t *testing.T) *stack.Sidecar {
	t.Helper()
	name := e.load.TopicNames()[0]
	var c *stack.Sidecar
	harness.AwaitT(t, patience, "a sidecar leads "+name, func(ctx context.Context) error {
		topics, err := e.adm.ListTopics(ctx, name)
		if err != nil {
			return err
		}
		leader := topics[name].Partitions[0].Leader
		if c = e.dst.Sidecar(leader - stack.VirtualOffset); c == nil {
			return fmt.Errorf("it is led by %d", leader)
		}
		return nil
	})
	return c
}

// copied is the sum of the partitions' ends that all real replicas have.
func (e *env) copied() (int64, error) {
	var sum int64
	for _, topic := range e.load.TopicNames() {
		for p := range int32(partitions) {
			var ends []int64
			for _, n := range e.dst.Cluster.Brokers() {
				log, err := n.ReadLog(topic, p)
				if err != nil {
					return 0, err
				}
				ends = append(ends, log.EndOffset())
			}
			sum += slices.Min(ends)
		}
	}
	return sum, nil
}

// goesOn waits until all real replicas have something that none had at the call, and tells how long
// that took.
func (e *env) goesOn(t *testing.T, what string) time.Duration {
	t.Helper()
	began := time.Now()
	before, err := e.copied()
	if err != nil {
		t.Fatal(err)
	}
	harness.AwaitT(t, patience, what, func(context.Context) error {
		now, err := e.copied()
		if err == nil && now <= before {
			err = fmt.Errorf("still %d records", now)
		}
		return err
	})
	return time.Since(began)
}

// equal ends the load and compares everything with everything.
func (e *env) equal(t *testing.T) {
	t.Helper()
	if err := e.load.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e.load.Total().Acked == 0 {
		t.Fatal("nothing was written")
	}
	src := kadm.NewClient(e.src.ClientT(t))
	harness.AwaitT(t, patience, "everything is copied", func(ctx context.Context) error {
		// Each time anew: the marker that ends a transaction may be written after the load.
		ends, err := src.ListEndOffsets(ctx, e.load.TopicNames()...)
		if err != nil {
			return err
		}
		for _, o := range ends.Offsets().Sorted() {
			for _, n := range e.dst.Cluster.Brokers() {
				log, err := n.ReadLog(o.Topic, o.Partition)
				if err != nil {
					return err
				}
				if end := log.EndOffset(); end != o.At {
					return fmt.Errorf("%s-%d at broker %d ends at %d, at the source at %d", o.Topic, o.Partition, n.ID(), end, o.At)
				}
			}
		}
		return nil
	})
	for _, topic := range e.load.TopicNames() {
		for p := range int32(partitions) {
			if diff, err := e.dst.Cluster.SameLogs(topic, p, harness.Compare{}); err != nil || diff != nil {
				t.Errorf("the replicas of %s-%d differ: %v (%v)", topic, p, diff, err)
			}
		}
	}
	dst, err := kgo.NewClient(kgo.SeedBrokers(e.dst.Proxies()...), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	report, err := verify.Compare(t.Context(), e.src.ClientT(t, kgo.DisableClientMetrics()), dst, e.load.TopicNames(), verify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Partitions {
		t.Logf("%s-%d: [%d, %d) %d batches %d records", p.Topic, p.Partition, p.Start, p.End, p.Batches, p.Records)
		if p.Difference != nil {
			t.Errorf("%s-%d: %v", p.Topic, p.Partition, p.Difference)
		}
	}
}
