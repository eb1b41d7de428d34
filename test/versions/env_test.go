package versions

import (
	"context"
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
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
)

const (
	// patience bounds every wait for something that takes seconds, startup that for clusters.
	patience = 2 * time.Minute
	startup  = 5 * time.Minute
	mirror   = "versions"
)

// env is a source of one broker and a destination with sidecars.
type env struct {
	src  *harness.Cluster
	dst  *stack.Stack
	load *workload.Load

	srcAdmin, dstAdmin *kadm.Client
}

// config of the clusters of a row.
func (r row) config(brokers int) (harness.Config, stack.Config) {
	d := harness.Config{
		Name: "destination", Version: r.destination.version, Brokers: brokers,
		Properties: map[string]string{"default.replication.factor": fmt.Sprint(min(brokers, 3)), "min.insync.replicas": "1"},
	}
	if r.destination.level != "" {
		d.Format = append(d.Format, "--release-version", r.destination.level)
	}
	keys := map[string]string{"mirror.stop.replica.wait.ms": "10000"}
	if r.uncordoned {
		keys["allow.uncordoned"] = "true"
	}
	// Each first producer holds a thread of a 3.0 broker with ZooKeeper until the controller, on the
	// same threads, has given it an id.
	return harness.Config{
			Name: "source", Version: r.source.version, ZooKeeper: r.source.zooKeeper, Brokers: 1,
			Properties: map[string]string{"num.io.threads": "24"},
		},
		stack.Config{Kafka: d, Bin: stack.Binaries(), Sidecar: keys}
}

func start(t *testing.T, src harness.Config, dst stack.Config) *env {
	t.Helper()
	harness.SkipShort(t)
	ctx, cancel := context.WithTimeout(t.Context(), startup)
	defer cancel()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	src.Log, dst.Log, dst.Kafka.Log = log, log, log
	e := &env{}
	t.Cleanup(func() { e.stop(t) })
	var group errgroup.Group
	group.Go(func() (err error) { e.src, err = harness.Start(ctx, src); return err })
	group.Go(func() (err error) { e.dst, err = stack.Start(ctx, dst); return err })
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	quick := []kgo.Opt{kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second)}
	e.srcAdmin, e.dstAdmin = kadm.NewClient(e.src.ClientT(t, quick...)), kadm.NewClient(e.dst.Cluster.ClientT(t, quick...))
	return e
}

func (e *env) stop(t *testing.T) {
	if e.load != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
		defer cancel()
		_ = e.load.Stop(ctx) // again, if the test did so
	}
	if e.dst != nil {
		for _, c := range e.dst.Sidecars {
			e.checkLog(t, c)
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
}

// checkLog fails the test if a sidecar has crashed, and shows the log if the test has failed.
func (e *env) checkLog(t *testing.T, c *stack.Sidecar) {
	text, err := os.ReadFile(c.LogFile())
	if err != nil {
		return // it never ran
	}
	for _, mark := range []string{"panic: ", "fatal error: "} {
		if i := strings.Index(string(text), mark); i >= 0 {
			t.Errorf("the log of sidecar %d:\n%s", c.Broker, text[i:min(len(text), i+4000)])
		}
	}
	if t.Failed() {
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		t.Logf("the end of the log of sidecar %d:\n%s", c.Broker, strings.Join(lines[max(0, len(lines)-100):], "\n"))
	}
}

func await(t *testing.T, what string, cond func(ctx context.Context) error) {
	t.Helper()
	harness.AwaitT(t, patience, what, cond)
}

// feed starts the producers.
func (e *env) feed(t *testing.T, kinds []workload.Kind, rate int) {
	t.Helper()
	load, err := workload.New(workload.Config{
		Bootstrap: e.src.Bootstrap(harness.ListenerInternal), Prefix: "v", Kinds: kinds, Partitions: 1, Rate: rate, TuneCleaner: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	e.load = load
	if err := load.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// settle waits for the gaps that the source's cleaner makes and ends cleaning: the two clusters
// clean at their own times, and what is compared must stay.
func (e *env) settle(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := e.load.WaitForGaps(ctx); err != nil {
		t.Fatal(err)
	}
	if err := e.load.FreezeCompaction(ctx); err != nil {
		t.Fatal(err)
	}
}

func (e *env) cli(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := e.dst.CLI(ctx, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// begin creates the mirror and starts all topics.
func (e *env) begin(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mirror.properties")
	text := "bootstrap.servers=" + strings.Join(e.src.Bootstrap(harness.ListenerInternal), ",") + "\nrequest.timeout.ms=5000\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e.cli(t, "--create", "--mirror", mirror, "--mirror-config", file)
	e.cli(t, "--start", "--mirror", mirror, "--topics", "v-.*")
	await(t, "every partition is MIRRORING", func(ctx context.Context) error {
		out, err := e.dst.CLI(ctx, "--describe", "--mirror", mirror)
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")[1:]
		if len(lines) != len(e.load.Topics()) {
			return fmt.Errorf("%d partitions are described, want %d:\n%s", len(lines), len(e.load.Topics()), out)
		}
		for _, l := range lines {
			if !strings.HasSuffix(strings.TrimSpace(l), "MIRRORING") {
				return errors.New(l)
			}
		}
		return nil
	})
}

// more waits until n more records of each topic are acknowledged at the source.
func (e *env) more(t *testing.T, n int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	most := int64(0)
	for _, c := range e.load.Counts() {
		most = max(most, c.Acked)
	}
	if err := e.load.WaitAcked(ctx, most+n); err != nil {
		t.Fatal(err)
	}
}

// progress waits until the mirror has all that the source has acknowledged by now: it goes on.
func (e *env) progress(t *testing.T, what string) {
	t.Helper()
	want := e.ends(t, e.srcAdmin)
	await(t, what+": the mirror goes on", func(ctx context.Context) error {
		got, err := endsOf(ctx, e.dstAdmin, e.load.TopicNames())
		if err != nil {
			return err
		}
		for topic, end := range want {
			if got[topic] < end {
				return fmt.Errorf("%s ends at %d, at the source at %d", topic, got[topic], end)
			}
		}
		return nil
	})
}

func (e *env) ends(t *testing.T, adm *kadm.Client) map[string]int64 {
	t.Helper()
	var out map[string]int64
	await(t, "the ends of the topics", func(ctx context.Context) (err error) {
		out, err = endsOf(ctx, adm, e.load.TopicNames())
		return err
	})
	return out
}

// endsOf are the high watermarks of topics of one partition.
func endsOf(ctx context.Context, adm *kadm.Client, topics []string) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	listed, err := adm.ListEndOffsets(ctx, topics...)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	listed.Each(func(o kadm.ListedOffset) { out[o.Topic] = o.Offset })
	return out, nil
}

// finish ends the producers, waits for the mirror, stops it, and compares everything.
func (e *env) finish(t *testing.T, r *result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.load.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	e.progress(t, "the producers have ended")
	if out, err := e.dst.CLI(ctx, "--verify", "--mirror", mirror); err != nil {
		t.Errorf("verify: %v\n%s", err, out)
	}
	ends := e.ends(t, e.srcAdmin)
	e.cli(t, "--stop", "--mirror", mirror, "--topics", "v-.*", "--wait")

	source := e.src.Brokers()[0]
	for _, topic := range e.load.Topics() {
		want, err := rawLog(source, topic.Name, 0)
		if err != nil {
			t.Error(err)
			continue
		}
		want = slices.DeleteFunc(want, func(b rawBatch) bool { return b.BaseOffset >= ends[topic.Name] })
		r.Partitions++
		replicas := 0
		for _, n := range e.dst.Cluster.Brokers() {
			if _, err := n.PartitionDir(topic.Name, 0); err != nil {
				continue
			}
			replicas++
			got, err := rawLog(n, topic.Name, 0)
			if err == nil {
				err = compareLogs(want, got)
			}
			if err != nil {
				t.Errorf("%s on broker %d: %v", topic.Name, n.ID(), err)
			}
		}
		if replicas != len(e.dst.Cluster.Brokers()) {
			t.Errorf("%s has logs on %d brokers", topic.Name, replicas)
		}
		r.Batches += len(want)
		r.Records += ends[topic.Name]
	}
	// The mirror's consumers, when it is an ordinary cluster again.
	if _, err := e.load.Check(ctx, workload.CheckConfig{Bootstrap: e.dst.Direct(), Committed: true, OpenAborted: true}); err != nil {
		t.Errorf("read committed: %v", err)
	}
	// And writers.
	cl, err := e.dst.Cluster.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	await(t, "writes after the stop", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		return cl.ProduceSync(ctx, &kgo.Record{Topic: e.load.TopicNames()[0], Value: []byte("after the stop")}).FirstErr()
	})
}

// restartSource gives every partition of the source a new leader epoch.
func (e *env) restartSource(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.src.Brokers()[0].Restart(ctx); err != nil {
		t.Fatal(err)
	}
}
