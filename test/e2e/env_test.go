package e2e

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
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// patience bounds every wait for something that takes seconds: CI's machines are slow.
const patience = 90 * time.Second

// The states that tests wait for.
const (
	stateMirroring int8 = 2
	statePaused    int8 = 4
	stateStopped   int8 = 6
	stateFailed    int8 = 7
)

// env is a source, a destination with sidecars, and clients of both that go around the
// proxies.
type env struct {
	src *harness.Cluster
	dst *stack.Stack

	srcClient, dstClient *kgo.Client // INTERNAL listeners
	srcAdmin, dstAdmin   *kadm.Client
	api                  *kgo.Client // sends mirror APIs to the proxies
}

// destination is the cluster that the tests mirror to.
func destination(version string, brokers int) stack.Config {
	return stack.Config{
		Kafka: harness.Config{
			Name: "destination", Version: version, Brokers: brokers,
			Properties: map[string]string{
				"default.replication.factor": fmt.Sprint(brokers),
				// Retention must have run before a test says that it deletes nothing.
				"log.retention.check.interval.ms": "1000",
				"log.initial.task.delay.ms":       "1000",
			},
		},
		Bin: stack.Binaries(),
		// Stops with a dead broker wait this long for it.
		Sidecar: map[string]string{"mirror.stop.replica.wait.ms": "5000"},
	}
}

// start starts both clusters at once. What is shown when a test fails: the ends of all logs.
func start(t *testing.T, dst stack.Config) *env {
	t.Helper()
	return startFrom(t, harness.Config{Brokers: 1}, dst)
}

// startFrom is start with a source of one's own.
func startFrom(t *testing.T, src harness.Config, dst stack.Config) *env {
	t.Helper()
	harness.SkipShort(t)
	if os.Getenv("MIRROR_E2E_LOG") != "" {
		dst.Sidecar["log.level"] = "debug"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	e := &env{}
	var group errgroup.Group
	group.Go(func() (err error) {
		src.Name, src.Log = "source", log
		e.src, err = harness.Start(ctx, src)
		return err
	})
	group.Go(func() (err error) {
		dst.Log, dst.Kafka.Log = log, log
		e.dst, err = stack.Start(ctx, dst)
		return err
	})
	err := group.Wait()
	t.Cleanup(func() { e.stop(t) })
	if err != nil {
		t.Fatal(err)
	}
	e.srcClient, e.dstClient = e.src.ClientT(t, quick()...), e.dst.Cluster.ClientT(t, quick()...)
	e.srcAdmin, e.dstAdmin = kadm.NewClient(e.srcClient), kadm.NewClient(e.dstClient)
	e.api = e.client(t, e.dst.Proxies(), kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())))
	return e
}

func (e *env) stop(t *testing.T) {
	if e.dst != nil {
		checkSidecarLogs(t, e.dst)
		if t.Failed() {
			showSidecars(t, e.dst)
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

// checkSidecarLogs fails the test if a sidecar has crashed, or its race detector has found
// something: a restart hides that from everybody else.
func checkSidecarLogs(t *testing.T, s *stack.Stack) {
	for _, c := range s.Sidecars {
		text, err := os.ReadFile(c.LogFile())
		if err != nil {
			continue // it never ran
		}
		for _, mark := range []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"} {
			if i := strings.Index(string(text), mark); i >= 0 {
				t.Errorf("the log of sidecar %d:\n%s", c.Broker, text[i:min(len(text), i+4000)])
			}
		}
	}
}

// shownLines bounds what is shown of a sidecar's log.
const shownLines = 150

func showSidecars(t *testing.T, s *stack.Stack) {
	for _, c := range s.Sidecars {
		text, err := os.ReadFile(c.LogFile())
		if err != nil {
			continue
		}
		if dir := os.Getenv("MIRROR_E2E_LOG"); dir != "" {
			name := strings.ReplaceAll(t.Name(), "/", "-") + "-" + filepath.Base(c.LogFile())
			_ = os.WriteFile(filepath.Join(dir, name), text, 0o644)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		lines = lines[max(0, len(lines)-shownLines):]
		t.Logf("the end of the log of sidecar %d:\n%s", c.Broker, strings.Join(lines, "\n"))
	}
}

// quick makes clients follow leader changes fast.
func quick() []kgo.Opt {
	return []kgo.Opt{
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}
}

// client makes a client that starts at the given addresses.
func (e *env) client(t *testing.T, seeds []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(append(quick(), kgo.SeedBrokers(seeds...)), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func eventually(t *testing.T, what string, cond func(ctx context.Context) error) {
	t.Helper()
	harness.AwaitT(t, patience, what, cond)
}

// cli runs kafka-cluster-mirrors and fails the test if that fails.
func (e *env) cli(t *testing.T, args ...string) string {
	t.Helper()
	out, err := e.tryCLI(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (e *env) tryCLI(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return e.dst.CLI(ctx, args...)
}

// cliAt is cli at the given sidecar.
func (e *env) cliAt(t *testing.T, bootstrap string, args ...string) string {
	t.Helper()
	out, err := e.tryCLIAt(t, bootstrap, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (e *env) tryCLIAt(t *testing.T, bootstrap string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return e.dst.CLIAt(ctx, bootstrap, args...)
}

// mirrorConfig writes a mirror's properties and returns the file's name.
func mirrorConfig(t *testing.T, props map[string]string) string {
	t.Helper()
	var text strings.Builder
	for k, v := range props {
		fmt.Fprintf(&text, "%s=%s\n", k, v)
	}
	file := filepath.Join(t.TempDir(), "mirror.properties")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (e *env) createMirror(t *testing.T, name string) {
	t.Helper()
	e.cli(t, "--create", "--mirror", name, "--mirror-config", mirrorConfig(t, map[string]string{
		"bootstrap.servers": strings.Join(e.src.Bootstrap(harness.ListenerInternal), ","),
		// A dead source is noticed sooner.
		"request.timeout.ms": "5000",
	}))
}

// mirrorTopics starts topics and returns when all their partitions are MIRRORING.
func (e *env) mirrorTopics(t *testing.T, mirror string, topics ...string) {
	t.Helper()
	e.cli(t, "--start", "--mirror", mirror, "--topics", strings.Join(topics, ","))
	e.waitState(t, mirror, stateMirroring, topics...)
}

// stopTopics stops topics and returns when all their partitions are STOPPED.
func (e *env) stopTopics(t *testing.T, mirror string, topics ...string) {
	t.Helper()
	e.cli(t, "--stop", "--mirror", mirror, "--topics", strings.Join(topics, ","))
	e.waitState(t, mirror, stateStopped, topics...)
}

func (e *env) waitState(t *testing.T, mirror string, state int8, topics ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("mirror %s, %v in state %d", mirror, topics, state), func(ctx context.Context) error {
		d, err := e.describe(ctx, mirror)
		if err != nil {
			return err
		}
		for _, name := range topics {
			parts := d[name]
			if len(parts) == 0 {
				return fmt.Errorf("%s is not described", name)
			}
			for _, p := range parts {
				if p.State != state {
					return fmt.Errorf("%s-%d is in state %d (%s %s)", name, p.PartitionIndex, p.State, text(p.Detail), text(p.ErrorMessage))
				}
			}
		}
		return nil
	})
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// describe gives the partitions of a mirror by topic, as any sidecar says.
func (e *env) describe(ctx context.Context, mirror string) (map[string][]protocol.DescribedPartition, error) {
	return e.describeAt(ctx, e.api, mirror)
}

func (e *env) describeAt(ctx context.Context, cl *kgo.Client, mirror string) (map[string][]protocol.DescribedPartition, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	req := protocol.NewDescribeClusterMirrorsRequest()
	req.MirrorNames = []string{mirror}
	var resp kmsg.Response
	err := errors.New("no broker to ask")
	for _, b := range cl.SeedBrokers() { // some sidecars may not run
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
	if err := protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage); err != nil {
		return nil, err
	}
	m := r.Mirrors[0]
	if err := protocol.ErrorForCode(m.ErrorCode, m.ErrorMessage); err != nil {
		return nil, err
	}
	out := map[string][]protocol.DescribedPartition{}
	for _, topic := range m.Topics {
		out[topic.TopicName] = topic.Partitions
	}
	return out, nil
}

// createSource creates topics at the source; configs are key, value, key, value …
func (e *env) createSource(t *testing.T, partitions int32, topic string, configs ...string) {
	t.Helper()
	createTopic(t, e.srcClient, partitions, 1, topic, configs...)
}

func createTopic(t *testing.T, cl *kgo.Client, partitions int32, rf int16, topic string, configs ...string) {
	t.Helper()
	m := map[string]*string{}
	for i := 0; i+1 < len(configs); i += 2 {
		m[configs[i]] = &configs[i+1]
	}
	r, err := kadm.NewClient(cl).CreateTopic(t.Context(), partitions, rf, m, topic)
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

// write produces n records to a topic's partitions in turn and fails the test if one is refused.
func write(t *testing.T, cl *kgo.Client, topic string, partitions int32, n int, value string) {
	t.Helper()
	if err := tryWrite(t.Context(), cl, topic, partitions, n, value); err != nil {
		t.Fatalf("write to %s: %v", topic, err)
	}
}

func tryWrite(ctx context.Context, cl *kgo.Client, topic string, partitions int32, n int, value string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{
			Topic: topic, Partition: int32(i) % partitions, Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "%s-%d", value, i),
		})
	}
	return cl.ProduceSync(ctx, records...).FirstErr()
}

// writer makes a producer for [write] at the given addresses.
func (e *env) writer(t *testing.T, seeds []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return e.client(t, seeds, append([]kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(-1)}, opts...)...)
}

// ends gives the high watermarks of a topic.
func ends(ctx context.Context, adm *kadm.Client, topic string) (map[int32]int64, error) {
	listed, err := adm.ListEndOffsets(ctx, topic)
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

// waitMirrored returns when the destination has all that the source has now. The source
// must be quiet.
func (e *env) waitMirrored(t *testing.T, topics ...string) {
	t.Helper()
	for _, topic := range topics {
		eventually(t, "mirrored "+topic, func(ctx context.Context) error {
			want, err := ends(ctx, e.srcAdmin, topic)
			if err != nil {
				return fmt.Errorf("source: %w", err)
			}
			got, err := ends(ctx, e.dstAdmin, topic)
			if err != nil {
				return fmt.Errorf("destination: %w", err)
			}
			for p, end := range want {
				if got[p] != end {
					return fmt.Errorf("partition %d: end %d at the source, %d at the destination", p, end, got[p])
				}
			}
			return nil
		})
	}
}

// topic asks the destination's brokers themselves.
func (e *env) topic(ctx context.Context, name string) (kadm.TopicDetail, error) {
	topics, err := e.dstAdmin.ListTopics(ctx, name)
	if err != nil {
		return kadm.TopicDetail{}, err
	}
	return topics[name], topics[name].Err
}

func (e *env) topicT(t *testing.T, name string) kadm.TopicDetail {
	t.Helper()
	d, err := e.topic(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (e *env) exists(t *testing.T, name string) bool {
	t.Helper()
	_, err := e.topic(t.Context(), name)
	if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Fatal(err)
	}
	return err == nil
}

// epochs gives the leader epochs of a destination topic.
func epochs(d kadm.TopicDetail) map[int32]int32 {
	out := map[int32]int32{}
	for _, p := range d.Partitions {
		out[p.Partition] = p.LeaderEpoch
	}
	return out
}

// topicConfigs gives the configs that were set for a topic, as a real broker says: a virtual one
// hides the write lock from clients.
func topicConfigs(t *testing.T, cl *kgo.Client, topic string) map[string]string {
	t.Helper()
	brokers, err := kadm.NewClient(cl).ListBrokers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := slices.Min(brokers.NodeIDs())
	if id >= stack.VirtualOffset {
		t.Fatalf("no real broker among %v", brokers.NodeIDs())
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	req.Resources = append(req.Resources, r)
	resp, err := cl.Broker(int(id)).RetriableRequest(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	res := resp.(*kmsg.DescribeConfigsResponse).Resources[0]
	if err := kerr.ErrorForCode(res.ErrorCode); err != nil {
		t.Fatalf("configs of topic %s: %v", topic, err)
	}
	out := map[string]string{}
	for _, c := range res.Configs {
		if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
			out[c.Name] = text(c.Value)
		}
	}
	return out
}

// lockKeys are the configs that the write lock takes.
func lockKeys() []string {
	return []string{"max.message.bytes", "min.insync.replicas", "unclean.leader.election.enable", "remote.storage.enable"}
}

// checkOrdinary fails the test if a destination topic is not what it is after a stop: led
// by real brokers at a higher epoch than before, without virtual replicas, without the lock.
func (e *env) checkOrdinary(t *testing.T, topic string, before map[int32]int32, want map[string]string) {
	t.Helper()
	for _, p := range e.topicT(t, topic).Partitions.Sorted() {
		for _, r := range p.Replicas {
			if r >= stack.VirtualOffset {
				t.Errorf("%s-%d has the virtual replica %d", topic, p.Partition, r)
			}
		}
		if p.Leader < 0 || p.Leader >= stack.VirtualOffset {
			t.Errorf("%s-%d is led by %d", topic, p.Partition, p.Leader)
		}
		if p.LeaderEpoch <= before[p.Partition] {
			t.Errorf("%s-%d has leader epoch %d, before the stop %d", topic, p.Partition, p.LeaderEpoch, before[p.Partition])
		}
	}
	have := topicConfigs(t, e.dstClient, topic)
	for _, k := range lockKeys() {
		w, wanted := want[k]
		if h, set := have[k]; set != wanted || h != w {
			t.Errorf("%s: %s is %q (set: %t), want %q (set: %t)", topic, k, h, set, w, wanted)
		}
	}
}

// sameReplicas fails the test if the replicas' logs of a topic do not become equal.
func (e *env) sameReplicas(t *testing.T, topics ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, topic := range topics {
		for _, p := range e.topicT(t, topic).Partitions.Sorted() {
			if err := e.dst.Cluster.WaitSameLogs(ctx, topic, p.Partition, harness.Compare{}); err != nil {
				t.Error(err)
			}
		}
	}
}

// registered lists every broker that the controller knows, also fenced ones.
func registered(ctx context.Context, c *harness.Cluster) ([]int32, error) {
	cl, err := c.Client()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType = 1
	req.IncludeFencedBrokers = true
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, err
	}
	var out []int32
	for _, b := range resp.Brokers {
		out = append(out, b.NodeID)
	}
	slices.Sort(out)
	return out, nil
}
