package failback

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	mirroring int8 = 2
	stopped   int8 = 6
	failed    int8 = 7
)

// side is a cluster with sidecars and what tests talk to it with.
type side struct {
	*stack.Stack
	name    string
	brokers int

	client *kgo.Client // around the proxies
	admin  *kadm.Client
	api    *kgo.Client // sends mirror APIs to the proxies
	users  *kgo.Client // a producer that comes through the proxies
}

// startSides starts clusters of the given sizes, named a, b, c, at once.
func startSides(t *testing.T, brokers ...int) []*side {
	t.Helper()
	harness.SkipShort(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	sides := make([]*side, len(brokers))
	t.Cleanup(func() {
		for _, s := range sides {
			s.stop(t)
		}
	})
	var group errgroup.Group
	for i, n := range brokers {
		sides[i] = &side{name: string(rune('a' + i)), brokers: n}
		group.Go(func() (err error) {
			sides[i].Stack, err = stack.Start(ctx, stack.Config{
				Kafka: harness.Config{
					Name: sides[i].name, Brokers: n, Log: log,
					Properties: map[string]string{"default.replication.factor": strconv.Itoa(n)},
				},
				Bin: stack.Binaries(), Log: log,
				Sidecar: map[string]string{"mirror.stop.replica.wait.ms": "5000"},
			})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, s := range sides {
		s.client = client(t, s.Direct())
		s.admin = kadm.NewClient(s.client)
		s.api = client(t, s.Proxies(), kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())))
		s.users = client(t, s.Proxies(), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerBatchCompression(kgo.NoCompression())) // so that values are found in the logs
	}
	return sides
}

// shownLines bounds what is shown of a sidecar's log when a test has failed.
const shownLines = 120

func (s *side) stop(t *testing.T) {
	if s == nil || s.Stack == nil {
		return
	}
	for _, c := range s.Sidecars {
		text, err := os.ReadFile(c.LogFile())
		if err != nil {
			continue
		}
		for _, mark := range []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"} {
			if i := strings.Index(string(text), mark); i >= 0 {
				t.Errorf("the log of sidecar %d of cluster %s:\n%s", c.Broker, s.name, text[i:min(len(text), i+4000)])
			}
		}
		if dir := os.Getenv("MIRROR_FAILBACK_LOG"); dir != "" {
			_ = os.WriteFile(filepath.Join(dir, s.name+"-"+filepath.Base(c.LogFile())), text, 0o600)
		}
		if t.Failed() {
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			t.Logf("the end of the log of sidecar %d of cluster %s:\n%s", c.Broker, s.name, strings.Join(lines[max(0, len(lines)-shownLines):], "\n"))
		}
	}
	if err := s.Stack.Stop(); err != nil {
		t.Error(err)
	}
}

func client(t *testing.T, seeds []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(seeds...),
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
		kgo.UnknownTopicRetries(-1),
	}, opts...)...)
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

// ask sends a mirror API to any proxy. All of them may be sent again, and a sidecar that was
// restarted has closed its connections.
func (s *side) ask(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var errs []error
	for range 3 {
		for _, b := range s.api.SeedBrokers() {
			resp, err := b.Request(ctx, req)
			if err == nil {
				return resp, nil
			}
			errs = append(errs, err)
		}
	}
	return nil, errors.Join(errs...)
}

func failure(code int16, message *string) error {
	if code == 0 {
		return nil
	}
	text := ""
	if message != nil {
		text = *message
	}
	return fmt.Errorf("error %d: %s", code, text)
}

// create makes a mirror of another cluster, which it reaches by that one's proxies.
func (s *side) create(t *testing.T, mirror string, source *side) {
	t.Helper()
	req := protocol.NewCreateClusterMirrorRequest()
	req.MirrorName = mirror
	for k, v := range map[string]string{"bootstrap.servers": strings.Join(source.Proxies(), ","), "request.timeout.ms": "10000"} {
		c := protocol.NewMirrorConfig()
		c.Name, c.Value = k, &v
		req.Configs = append(req.Configs, c)
	}
	resp, err := s.ask(t.Context(), &req)
	if err != nil {
		t.Fatal(err)
	}
	r := resp.(*protocol.CreateClusterMirrorResponse)
	if err := failure(r.ErrorCode, r.ErrorMessage); err != nil {
		t.Fatalf("create mirror %s: %v", mirror, err)
	}
}

// tryStart starts a topic and returns its refusal.
func (s *side) tryStart(t *testing.T, mirror, topic string, allowTruncate bool) error {
	t.Helper()
	req := protocol.NewStartMirrorTopicsRequest()
	req.MirrorName, req.Topics, req.AllowTruncate = mirror, []string{topic}, allowTruncate
	resp, err := s.ask(t.Context(), &req)
	if err != nil {
		t.Fatal(err)
	}
	r := resp.(*protocol.StartMirrorTopicsResponse)
	if err := failure(r.ErrorCode, r.ErrorMessage); err != nil {
		return err
	}
	for _, topic := range r.Topics {
		if err := failure(topic.ErrorCode, topic.ErrorMessage); err != nil {
			return err
		}
	}
	return nil
}

// start starts a topic and returns when it is MIRRORING.
func (s *side) start(t *testing.T, mirror, topic string, allowTruncate bool) {
	t.Helper()
	if err := s.tryStart(t, mirror, topic, allowTruncate); err != nil {
		t.Fatalf("start %s at %s: %v", topic, s.name, err)
	}
	s.waitState(t, mirror, mirroring, topic)
}

// stopMirror stops topics and returns when they are STOPPED.
func (s *side) stopMirror(t *testing.T, mirror string, topics ...string) {
	t.Helper()
	req := protocol.NewStopMirrorTopicsRequest()
	req.MirrorName, req.Topics = mirror, topics
	resp, err := s.ask(t.Context(), &req)
	if err != nil {
		t.Fatal(err)
	}
	r := resp.(*protocol.StopMirrorTopicsResponse)
	if err := failure(r.ErrorCode, r.ErrorMessage); err != nil {
		t.Fatalf("stop %v: %v", topics, err)
	}
	s.waitState(t, mirror, stopped, topics...)
}

func (s *side) delete(t *testing.T, mirror string) {
	t.Helper()
	req := protocol.NewDeleteClusterMirrorRequest()
	req.MirrorName = mirror
	resp, err := s.ask(t.Context(), &req)
	if err != nil {
		t.Fatal(err)
	}
	r := resp.(*protocol.DeleteClusterMirrorResponse)
	if err := failure(r.ErrorCode, r.ErrorMessage); err != nil {
		t.Fatalf("delete mirror %s: %v", mirror, err)
	}
}

// describe gives the partitions of a mirror's topic.
func (s *side) describe(ctx context.Context, mirror, topic string) ([]protocol.DescribedPartition, error) {
	req := protocol.NewDescribeClusterMirrorsRequest()
	req.MirrorNames = []string{mirror}
	resp, err := s.ask(ctx, &req)
	if err != nil {
		return nil, err
	}
	r := resp.(*protocol.DescribeClusterMirrorsResponse)
	if err := failure(r.ErrorCode, r.ErrorMessage); err != nil {
		return nil, err
	}
	for _, m := range r.Mirrors {
		if err := failure(m.ErrorCode, m.ErrorMessage); err != nil {
			return nil, err
		}
		for _, d := range m.Topics {
			if d.TopicName == topic && len(d.Partitions) > 0 {
				return d.Partitions, nil
			}
		}
	}
	return nil, fmt.Errorf("mirror %s: %s is not described", mirror, topic)
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (s *side) waitState(t *testing.T, mirror string, state int8, topics ...string) {
	t.Helper()
	for _, topic := range topics {
		eventually(t, fmt.Sprintf("cluster %s, mirror %s, %s in state %d", s.name, mirror, topic, state), func(ctx context.Context) error {
			parts, err := s.describe(ctx, mirror, topic)
			if err != nil {
				return err
			}
			for _, p := range parts {
				if p.State != state {
					return fmt.Errorf("partition %d is in state %d (%s %s)", p.PartitionIndex, p.State, text(p.Detail), text(p.ErrorMessage))
				}
			}
			return nil
		})
	}
}

// topic creates a topic with a replica on every broker.
func (s *side) topic(t *testing.T, partitions int32, name string) {
	t.Helper()
	forever := "-1"
	r, err := s.admin.CreateTopic(t.Context(), partitions, int16(s.brokers), map[string]*string{"retention.ms": &forever}, name)
	if err == nil {
		err = r.Err
	}
	if err == nil {
		err = harness.AwaitTopic(t.Context(), s.client, name)
	}
	if err != nil {
		t.Fatalf("create topic %s at %s: %v", name, s.name, err)
	}
}

// write produces n records to one partition, in a few batches, as users do.
func (s *side) write(t *testing.T, topic string, partition int32, n int, value string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d records are written to %s at %s", n, topic, s.name), func(context.Context) error {
		err := s.tryWrite(t, topic, partition, n, value)
		// A topic whose start was refused is handed back first, and has its configs back and
		// takes writes a moment later. Nothing was written by a refusal.
		if err != nil && !errors.Is(err, kerr.PolicyViolation) {
			t.Fatalf("write to %s at %s: %v", topic, s.name, err)
		}
		return err
	})
}

func (s *side) tryWrite(t *testing.T, topic string, partition int32, n int, value string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for begin := 0; begin < n; begin += 50 {
		var records []*kgo.Record
		for i := begin; i < min(n, begin+50); i++ {
			records = append(records, &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Appendf(nil, "%s-%d", value, i)})
		}
		if err := s.users.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

// ends gives the log ends of a topic.
func (s *side) ends(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := s.admin.ListEndOffsets(ctx, topic)
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

func (s *side) endsT(t *testing.T, topic string) map[int32]int64 {
	t.Helper()
	out, err := s.ends(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// details describes a topic as the brokers see it.
func (s *side) details(ctx context.Context, topic string) (kadm.TopicDetail, error) {
	d, err := s.admin.ListTopics(ctx, topic)
	if err != nil {
		return kadm.TopicDetail{}, err
	}
	return d[topic], d[topic].Err
}

// waitOrdinary waits until no virtual broker has a part in a topic, and users write to it.
func (s *side) waitOrdinary(t *testing.T, topic string) {
	t.Helper()
	eventually(t, topic+" is an ordinary topic of "+s.name, func(ctx context.Context) error {
		d, err := s.details(ctx, topic)
		if err != nil {
			return err
		}
		for _, p := range d.Partitions.Sorted() {
			if len(p.Replicas) != s.brokers || len(p.ISR) != s.brokers || slices.ContainsFunc(p.Replicas, func(r int32) bool { return r >= stack.VirtualOffset }) {
				return fmt.Errorf("partition %d: replicas %v, in sync %v", p.Partition, p.Replicas, p.ISR)
			}
		}
		return nil
	})
}

// moveLeader lets another replica lead each partition of a topic.
func (s *side) moveLeader(t *testing.T, topic string) {
	t.Helper()
	d, err := s.details(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	var req kadm.AlterPartitionAssignmentsReq
	elect := kadm.TopicsSet{}
	for _, p := range d.Partitions.Sorted() {
		req.Assign(topic, p.Partition, append(slices.Clone(p.Replicas[1:]), p.Replicas[0]))
		elect.Add(topic, p.Partition)
	}
	r, err := s.admin.AlterPartitionAssignments(t.Context(), req)
	if err == nil {
		err = r.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "another leader of "+topic, func(ctx context.Context) error {
		if _, err := s.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, elect); err != nil {
			return err
		}
		now, err := s.details(ctx, topic)
		if err != nil {
			return err
		}
		for _, p := range now.Partitions.Sorted() {
			if p.Leader == d.Partitions[p.Partition].Leader || p.LeaderEpoch <= d.Partitions[p.Partition].LeaderEpoch {
				return fmt.Errorf("partition %d: still broker %d", p.Partition, p.Leader)
			}
		}
		return nil
	})
}

// restartSidecars kills all sidecars and starts them: new leaders under new epochs.
func (s *side) restartSidecars(t *testing.T) {
	t.Helper()
	for _, c := range s.Sidecars {
		if err := c.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.StartSidecars(ctx); err != nil {
		t.Fatal(err)
	}
}

// fetchedBytes sums up what the sidecars have read for a mirror.
func (s *side) fetchedBytes(t *testing.T, mirror string) float64 {
	t.Helper()
	client := http.Client{Timeout: 5 * time.Second}
	sum := 0.0
	for _, c := range s.Sidecars {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.HTTP+"/metrics", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), " ")
			if v, err := strconv.ParseFloat(value, 64); err == nil && name == fmt.Sprintf("kafka_mirror_fetched_bytes_total{mirror=%q}", mirror) {
				sum += v
			}
		}
		err = errors.Join(lines.Err(), resp.Body.Close())
		if err != nil {
			t.Fatal(err)
		}
	}
	return sum
}
