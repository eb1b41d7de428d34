package procedures

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

const (
	// patience bounds one script and every wait: CI's machines are slow.
	patience = 2 * time.Minute
	startup  = 4 * time.Minute
)

// world is two clusters with sidecars, and what the pages' hooks need.
type world struct {
	src, dst *stack.Stack
	tools    string // folder of programs named as Kafka's scripts
	writers  map[string]*writer
	maker    *harness.Process // MirrorMaker 2
	dir      string           // where the page that is executed has its files
}

// shape is that of a cluster. Without controllers of their own its brokers are controllers too.
type shape struct{ brokers, controllers int }

// newWorld starts both clusters at once. An old source is one that was never upgraded, and
// has no sidecars. of says how many brokers the destination has.
func newWorld(t *testing.T, old bool, of shape) *world {
	t.Helper()
	harness.SkipShort(t)
	ctx, cancel := context.WithTimeout(t.Context(), startup)
	defer cancel()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	w := &world{writers: map[string]*writer{}}
	t.Cleanup(func() { w.stop(t) })
	var group errgroup.Group
	begin := func(into **stack.Stack, name, version string, is shape) {
		group.Go(func() (err error) {
			*into, err = stack.Start(ctx, stack.Config{
				NoSidecars: version != harness.DefaultVersion,
				Kafka: harness.Config{
					Name: name, Version: version, Brokers: is.brokers, Controllers: is.controllers, Log: log,
					Properties: map[string]string{"default.replication.factor": fmt.Sprint(is.brokers)},
				},
				Bin: stack.Binaries(), Log: log,
				Sidecar: map[string]string{"mirror.stop.replica.wait.ms": "5000"},
			})
			return err
		})
	}
	version := harness.DefaultVersion
	if old {
		version = harness.Version39
	}
	begin(&w.src, "source", version, shape{brokers: 1})
	begin(&w.dst, "destination", harness.DefaultVersion, of)
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	w.writeTools(t)
	return w
}

func (w *world) stop(t *testing.T) {
	for _, wr := range w.writers {
		wr.end()
	}
	if w.maker != nil {
		if err := w.maker.Kill(); err != nil {
			t.Error(err)
		}
	}
	for _, s := range []*stack.Stack{w.src, w.dst} {
		if s == nil {
			continue
		}
		if t.Failed() {
			for _, c := range s.Sidecars {
				t.Logf("the end of the log of sidecar %d:\n%s", c.Broker, c.LogTail())
			}
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// kafkaTools are Kafka's scripts, by the classes that they run.
func kafkaTools() map[string]string {
	return map[string]string{
		"kafka-topics.sh":           "org.apache.kafka.tools.TopicCommand",
		"kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
		"kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
		"kafka-consumer-groups.sh":  "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",

		"kafka-cluster.sh":             "org.apache.kafka.tools.ClusterTool",
		"kafka-configs.sh":             "org.apache.kafka.tools.ConfigCommand",
		"kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
		"kafka-transactions.sh":        "org.apache.kafka.tools.TransactionsCommand",
		"kafka-leader-election.sh":     "org.apache.kafka.tools.LeaderElectionCommand",
	}
}

// writeTools makes programs that are called as those of a Kafka installation are.
func (w *world) writeTools(t *testing.T) {
	t.Helper()
	in, err := harness.Install(t.Context(), harness.DefaultVersion)
	if err != nil {
		t.Fatal(err)
	}
	w.tools = t.TempDir()
	if err := in.WriteTools(w.tools, kafkaTools()); err != nil {
		t.Fatal(err)
	}
}

// execute runs a page from its beginning to its end, or to the first step that fails. env
// adds to and overrides the shell's variables.
func (w *world) execute(t *testing.T, page string, env map[string]string) {
	t.Helper()
	vars := map[string]string{
		"SRC": strings.Join(w.src.Proxies(), ","), "DST": strings.Join(w.dst.Proxies(), ","),
		"CONTROLLERS": strings.Join(w.dst.Cluster.ControllerBootstrap(), ","), "BROKERS": strings.Join(w.dst.Direct(), ","),
		"PATH": stack.Binaries() + ":" + w.tools + ":" + os.Getenv("PATH"), "LC_ALL": "C",
	}
	maps.Copy(vars, env)
	dir := t.TempDir()
	w.dir = dir
	known := w.hooks()
	for _, s := range readPage(t, page) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		var err error
		begun := time.Now()
		if s.hook != nil {
			_, run := findHook(known, s.hook)
			err = run(ctx)
			t.Logf("%s.md, line %d: %s (%s)", page, s.line, strings.Join(s.hook, " "), time.Since(begun).Round(time.Millisecond))
		} else {
			err = runScript(ctx, s, dir, vars)
			t.Logf("%s.md, line %d: %s (%s)", page, s.line, strings.SplitN(s.script, "\n", 2)[0], time.Since(begun).Round(time.Millisecond))
		}
		cancel()
		if err != nil {
			t.Fatalf("docs/procedures/%s.md, line %d: %v", page, s.line, err)
		}
	}
}

// runScript runs a block, and compares.
func runScript(ctx context.Context, s step, dir string, vars map[string]string) error {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", s.script)
	cmd.Dir = dir
	cmd.Env = os.Environ()
	for k, v := range vars {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	// Its children end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	if code := cmd.ProcessState.ExitCode(); code != s.exit {
		return fmt.Errorf("exit status %d, want %d\n%s%s", code, s.exit, stdout.String(), stderr.String())
	}
	if !matches(s.output, stdout.String()) {
		return fmt.Errorf("it prints\n%s\nand the page says\n%s\nstandard error:\n%s", stdout.String(), s.output, stderr.String())
	}
	return nil
}

// admin asks the brokers of a cluster themselves.
func admin(s *stack.Stack) (*kadm.Client, error) {
	cl, err := s.Cluster.Client()
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(cl), nil
}

// produce writes records to all partitions of a topic in turn.
func produce(ctx context.Context, seeds []string, topic string, partitions, n int, value string) error {
	cl, err := kgo.NewClient(append(quick(), kgo.SeedBrokers(seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: fmt.Appendf(nil, "%s-%d", value, i)})
	}
	return cl.ProduceSync(ctx, records...).FirstErr()
}

// quick makes clients follow leader changes fast.
func quick() []kgo.Opt {
	return []kgo.Opt{
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second), kgo.UnknownTopicRetries(-1),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}
}

// readAll returns the values of a topic, in the order of each partition.
func readAll(ctx context.Context, s *stack.Stack, topic string, opts ...kgo.Opt) ([]string, error) {
	adm, err := admin(s)
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	opts = append(append(quick(), kgo.SeedBrokers(s.Proxies()...), kgo.ConsumeTopics(topic), kgo.KeepControlRecords()), opts...)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	var values []string
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
			if !r.Attrs.IsControl() {
				values = append(values, string(r.Value))
			}
		})
	}
	slices.Sort(values)
	return values, nil
}
