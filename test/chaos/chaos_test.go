package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
	"github.com/cluster-mirroring/mirror-sidecar/verify"
)

// Set by `make chaos`; the defaults are the short form that CI runs.
const (
	envKills  = "MIRROR_CHAOS_KILLS"
	envPauses = "MIRROR_CHAOS_PAUSES"
	envSeed   = "MIRROR_CHAOS_SEED"
)

const partitions = 2 // of each topic

func setting(name string, def int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return def
}

// TestSidecarsDieAndPause kills the sidecar that leads at random moments of a live
// stream, and pauses it for longer than the controllers' session timeout.
func TestSidecarsDieAndPause(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Java")
	}
	kills, pauses, seed := setting(envKills, 4), setting(envPauses, 1), setting(envSeed, 1)
	limit := 3*time.Minute + time.Duration(kills)*30*time.Second + time.Duration(pauses)*75*time.Second
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	t.Logf("kills=%d pauses=%d seed=%d", kills, pauses, seed)
	random := rand.New(rand.NewPCG(uint64(seed), 1))

	bin := t.TempDir()
	build := exec.CommandContext(ctx, "go", "build", "-o", bin+"/", "github.com/cluster-mirroring/mirror-sidecar/cmd/...")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	source := harness.StartT(t, harness.Config{Name: "source", Brokers: 1})
	dest, err := stack.Start(ctx, stack.Config{
		Kafka: harness.Config{Name: "destination", Brokers: 2, Properties: map[string]string{"default.replication.factor": "2"}},
		Bin:   bin,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		keepLogs(t, dest)
		if err := dest.Stop(); err != nil {
			t.Error(err)
		}
	})

	load, err := workload.New(workload.Config{
		Bootstrap: source.Bootstrap(harness.ListenerInternal), Partitions: partitions, Rate: 300,
		Kinds: []workload.Kind{workload.Idempotent, workload.Transactional, workload.OpenTransaction, workload.Shapes},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := load.Start(ctx); err != nil {
		t.Fatal(err)
	}
	start(ctx, t, source, dest, load.TopicNames())
	mirroring(ctx, t, dest, load.TopicNames())

	// Kills and pauses in a random order.
	faults := make([]bool, kills+pauses)
	for i := range pauses {
		faults[i] = true
	}
	random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	for i, pause := range faults {
		sleep(ctx, t, time.Duration(500+random.IntN(4000))*time.Millisecond)
		victim := leader(ctx, t, dest, load.TopicNames(), random)
		before := load.Total().Acked
		if pause {
			t.Logf("fault %d: pause sidecar %d for 30 s", i+1, victim.Broker)
			if err := victim.Process().Pause(); err != nil {
				t.Fatal(err)
			}
			sleep(ctx, t, 30*time.Second)
			if err := victim.Process().Resume(); err != nil {
				t.Fatal(err)
			}
			// It finds out that it was fenced and ends; a supervisor starts it anew.
			select {
			case <-victim.Process().Done():
			case <-time.After(20 * time.Second):
				t.Logf("sidecar %d lived on after the pause", victim.Broker)
			}
		} else {
			down := time.Duration(random.IntN(3000)) * time.Millisecond
			t.Logf("fault %d: kill -9 sidecar %d, down for %v", i+1, victim.Broker, down)
			if err := victim.Kill(); err != nil {
				t.Fatal(err)
			}
			sleep(ctx, t, down)
		}
		if !victim.Running() {
			if err := victim.Start(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if load.Total().Acked == before {
			t.Fatalf("fault %d: nothing was written meanwhile", i+1)
		}
		mirroring(ctx, t, dest, load.TopicNames())
	}
	if err := load.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("written: %+v", load.Total())
	caughtUp(ctx, t, source, dest, load.TopicNames())
	compare(ctx, t, source, dest, load.TopicNames())
}

// start creates the mirror and starts the topics.
func start(ctx context.Context, t *testing.T, source *harness.Cluster, dest *stack.Stack, topics []string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(dest.Proxies()...), kgo.MaxVersions(protocol.AllowMirrorAPIs(kversion.Stable())))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	bootstrap := strings.Join(source.Bootstrap(harness.ListenerInternal), ",")
	create := protocol.NewCreateClusterMirrorRequest()
	create.MirrorName = "m"
	create.Configs = []protocol.MirrorConfig{{Name: "bootstrap.servers", Value: &bootstrap}}
	resp, err := cl.SeedBrokers()[0].Request(ctx, &create)
	if err != nil {
		t.Fatal(err)
	}
	if r := resp.(*protocol.CreateClusterMirrorResponse); r.ErrorCode != 0 {
		t.Fatalf("create: %+v", r)
	}
	begin := protocol.NewStartMirrorTopicsRequest()
	begin.MirrorName, begin.Topics = "m", topics
	resp, err = cl.SeedBrokers()[0].Request(ctx, &begin)
	if err != nil {
		t.Fatal(err)
	}
	r := resp.(*protocol.StartMirrorTopicsResponse)
	for _, topic := range r.Topics {
		if topic.ErrorCode != 0 {
			t.Fatalf("start: %+v", r)
		}
	}
	if r.ErrorCode != 0 {
		t.Fatalf("start: %+v", r)
	}
}

func sleep(ctx context.Context, t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-ctx.Done():
		t.Fatal("out of time")
	}
}

// until polls cond, which says what is missing.
func until(ctx context.Context, t *testing.T, d time.Duration, cond func() string) {
	t.Helper()
	deadline := time.Now().Add(d)
	for {
		missing := cond()
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %s", d, missing)
		}
		sleep(ctx, t, 200*time.Millisecond)
	}
}

func describe(ctx context.Context, t *testing.T, s *stack.Stack, topics []string) kadm.TopicDetails {
	t.Helper()
	cl, err := s.Cluster.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	d, err := kadm.NewClient(cl).ListTopics(ctx, topics...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// leader picks a sidecar that leads something.
func leader(ctx context.Context, t *testing.T, s *stack.Stack, topics []string, random *rand.Rand) *stack.Sidecar {
	t.Helper()
	var leaders []int32
	for _, d := range describe(ctx, t, s, topics) {
		for _, p := range d.Partitions {
			if p.Leader >= stack.VirtualOffset {
				leaders = append(leaders, p.Leader-stack.VirtualOffset)
			}
		}
	}
	if len(leaders) == 0 {
		t.Fatal("no sidecar leads anything")
	}
	return s.Sidecar(leaders[random.IntN(len(leaders))])
}

// mirroring waits until virtual brokers lead every partition again.
func mirroring(ctx context.Context, t *testing.T, s *stack.Stack, topics []string) {
	t.Helper()
	until(ctx, t, 60*time.Second, func() string {
		for _, d := range describe(ctx, t, s, topics) {
			if len(d.Partitions) != partitions {
				return fmt.Sprintf("%s has %d partitions (%v)", d.Topic, len(d.Partitions), d.Err)
			}
			for _, p := range d.Partitions {
				if p.Leader < stack.VirtualOffset {
					return fmt.Sprintf("%s-%d is led by %d (isr %v)", d.Topic, p.Partition, p.Leader, p.ISR)
				}
			}
		}
		return ""
	})
}

// caughtUp waits until every replica's log ends where the source's does.
func caughtUp(ctx context.Context, t *testing.T, source *harness.Cluster, dest *stack.Stack, topics []string) {
	t.Helper()
	cl, err := source.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	until(ctx, t, 90*time.Second, func() string {
		// Each time anew: the marker that ends a transaction may be written after the load.
		ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topics...)
		if err != nil {
			return err.Error()
		}
		missing := ""
		ends.Each(func(o kadm.ListedOffset) {
			for _, n := range dest.Cluster.Brokers() {
				log, err := n.ReadLog(o.Topic, o.Partition)
				if err != nil {
					missing = err.Error()
					continue
				}
				if end := log.EndOffset(); end != o.Offset {
					missing = fmt.Sprintf("%s-%d at broker %d ends at %d, at the source at %d", o.Topic, o.Partition, n.ID(), end, o.Offset)
				}
			}
		})
		return missing
	})
}

func compare(ctx context.Context, t *testing.T, source *harness.Cluster, dest *stack.Stack, topics []string) {
	t.Helper()
	for _, topic := range topics {
		for p := range int32(partitions) {
			diff, err := dest.Cluster.SameLogs(topic, p, harness.Compare{})
			if err != nil {
				t.Fatal(err)
			}
			if diff != nil {
				t.Errorf("the replicas of %s-%d differ: %v", topic, p, diff)
			}
		}
	}
	src, err := source.Client(kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := kgo.NewClient(kgo.SeedBrokers(dest.Proxies()...), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	report, err := verify.Compare(ctx, src, dst, topics, verify.Options{})
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

// keepLogs leaves the sidecars' logs behind when the test failed.
func keepLogs(t *testing.T, s *stack.Stack) {
	dir := os.Getenv("MIRROR_CHAOS_KEEP")
	if dir == "" {
		if t.Failed() {
			for _, c := range s.Sidecars {
				t.Logf("the end of sidecar %d's log:\n%s", c.Broker, c.LogTail())
			}
		}
		return
	}
	for _, c := range s.Sidecars {
		if b, err := os.ReadFile(c.LogFile()); err == nil {
			_ = os.WriteFile(filepath.Join(dir, filepath.Base(c.LogFile())), b, 0o600)
		}
	}
}
