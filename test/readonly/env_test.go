package readonly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// patience bounds every wait for something that takes seconds: CI's machines are slow.
const patience = 60 * time.Second

const (
	mirror     = "east"
	mirrored   = "mirrored" // two partitions, of the mirror
	plain      = "plain"    // two partitions, both led by the first broker
	records    = 10         // in each partition of the mirror topic
	partitions = 2
)

// env is a source, a destination of two brokers with sidecars, and a client of the destination
// that goes around the proxies.
type env struct {
	src *harness.Cluster
	dst *stack.Stack

	client *kgo.Client
	admin  *kadm.Client
}

// start starts all; sidecar adds keys to the sidecars' properties.
func start(t *testing.T, sidecar map[string]string) *env {
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
			Kafka: harness.Config{Name: "destination", Brokers: 2, Log: log, Properties: map[string]string{
				"default.replication.factor": "2", "auto.create.topics.enable": "true",
			}},
			Bin: stack.Binaries(), Sidecar: sidecar, Log: log,
		})
		return err
	})
	err := group.Wait()
	t.Cleanup(func() { e.stop(t) })
	if err != nil {
		t.Fatal(err)
	}
	e.client = e.dst.Cluster.ClientT(t, kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(2*time.Second))
	e.admin = kadm.NewClient(e.client)
	return e
}

func (e *env) stop(t *testing.T) {
	if e.dst != nil {
		if t.Failed() {
			for _, c := range e.dst.Sidecars {
				t.Logf("sidecar %d:\n%s", c.Broker, c.LogTail())
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

// mirror makes the mirror topic at the source and mirrors it.
func (e *env) mirror(t *testing.T) {
	t.Helper()
	src := e.src.ClientT(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	createTopic(t, src, mirrored, []int32{1}, []int32{1})
	var batch []*kgo.Record
	for i := range records * partitions {
		batch = append(batch, &kgo.Record{Topic: mirrored, Partition: int32(i % partitions), Value: fmt.Appendf(nil, "source-%d", i)})
	}
	if err := src.ProduceSync(t.Context(), batch...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "mirror.properties")
	if err := os.WriteFile(file, []byte("bootstrap.servers="+strings.Join(e.src.Bootstrap(harness.ListenerInternal), ",")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e.cli(t, "--create", "--mirror", mirror, "--mirror-config", file)
	e.cli(t, "--start", "--mirror", mirror, "--topics", mirrored, "--wait")
	harness.AwaitT(t, patience, "the mirror topic is copied", func(ctx context.Context) error {
		return e.ends(ctx, mirrored, records, records)
	})
}

func (e *env) cli(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := e.dst.CLI(ctx, args...); err != nil {
		t.Fatal(err)
	}
}

// createTopic creates a topic with the given replicas of each partition: while a mirror is
// started, the controller may place what names none on a virtual broker.
func createTopic(t *testing.T, cl *kgo.Client, topic string, replicas ...[]int32) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	ct := kmsg.NewCreateTopicsRequestTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = topic, -1, -1
	for p, list := range replicas {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(p), list
		ct.ReplicaAssignment = append(ct.ReplicaAssignment, a)
	}
	req.Topics = append(req.Topics, ct)
	harness.AwaitT(t, patience, "create topic "+topic, func(ctx context.Context) error {
		resp, err := req.RequestWith(ctx, cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		}
		if errors.Is(err, kerr.TopicAlreadyExists) {
			return nil
		}
		return err
	})
	if err := harness.AwaitTopic(t.Context(), cl, topic); err != nil {
		t.Fatal(err)
	}
}

// ends compares the ends of a topic's partitions.
func (e *env) ends(ctx context.Context, topic string, want ...int64) error {
	listed, err := e.admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return err
	}
	for p, end := range want {
		if o, _ := listed.Lookup(topic, int32(p)); o.Offset != end {
			return fmt.Errorf("%s-%d ends at %d, want %d", topic, p, o.Offset, end)
		}
	}
	return nil
}

// end is where a partition ends.
func (e *env) end(t *testing.T, topic string, partition int32) int64 {
	t.Helper()
	var end int64
	harness.AwaitT(t, patience, "the end of "+topic, func(ctx context.Context) error {
		listed, err := e.admin.ListEndOffsets(ctx, topic)
		if err == nil {
			err = listed.Error()
		}
		o, _ := listed.Lookup(topic, partition)
		end = o.Offset
		return err
	})
	return end
}

// untouched fails the test unless the mirror topic is what the mirror made it.
func (e *env) untouched(t *testing.T) {
	t.Helper()
	if err := e.ends(t.Context(), mirrored, records, records); err != nil {
		t.Errorf("the mirror topic was written to: %v", err)
	}
	starts, err := e.admin.ListStartOffsets(t.Context(), mirrored)
	if err != nil {
		t.Fatal(err)
	}
	starts.Each(func(o kadm.ListedOffset) {
		if o.Offset != 0 || o.Err != nil {
			t.Errorf("the mirror topic's partition %d begins at %d (%v)", o.Partition, o.Offset, o.Err)
		}
	})
	topics, err := e.admin.ListTopics(t.Context(), mirrored)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(topics[mirrored].Partitions); n != partitions {
		t.Errorf("the mirror topic has %d partitions", n)
	}
}
