package policies

import (
	"context"
	"errors"
	flags "flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

const (
	// patience bounds what must come by itself, on a slow machine.
	patience = 90 * time.Second
	// refresh is mirror.metadata.refresh.interval.ms of the sidecars.
	refresh = time.Second
	// brokers of the destination.
	brokers = 3
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == strictArg {
		plugins.Serve(strict())
		return
	}
	if servedAsPlugin() {
		return
	}
	// Before what is given is parsed. The tests that run beside each other wait most of the time.
	_ = flags.Set("test.parallel", "5")
	code := stack.Main(m)
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// shared are the clusters of all tests of the package.
//
//nolint:gochecknoglobals // tests in many files share clusters, which take longer to start than to test
var shared clusters

type clusters struct {
	once sync.Once
	env  *env
	err  error
}

// env is a source and a destination with sidecars. Everybody is a super user: the authorizers are
// there for the ACLs that they keep.
type env struct {
	src *harness.Cluster
	dst *stack.Stack
	// Clients that by-pass the proxies, and clients of the proxies.
	srcCl, dstCl, proxyCl        *kgo.Client
	srcAdmin, dstAdmin, dstProxy *kadm.Client
	mode                         string // file that tells the plugin strict to misbehave
}

// start returns the clusters.
func start(t *testing.T) *env {
	t.Helper()
	harness.SkipShort(t)
	shared.once.Do(func() { shared.env, shared.err = launch() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	e := shared.env
	t.Cleanup(func() {
		if t.Failed() {
			for _, c := range e.dst.Sidecars {
				t.Logf("the end of the log of sidecar %d:\n%s", c.Broker, c.LogTail())
			}
		}
	})
	return e
}

func launch() (*env, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	secured := map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":           "User:ANONYMOUS",
		// Members of clients that are gone are gone soon.
		"group.consumer.min.session.timeout.ms": "6000",
	}
	e := &env{}
	keys, mode, err := strictKeys()
	if err != nil {
		return nil, err
	}
	e.mode = mode
	if err := houseKeys(keys); err != nil {
		return nil, err
	}
	keys["plugin."+house+".config."+notes] = filepath.Dir(mode)
	keys["mirror.metadata.refresh.interval.ms"] = fmt.Sprint(refresh.Milliseconds())
	var group errgroup.Group
	group.Go(func() (err error) {
		e.src, err = harness.Start(ctx, harness.Config{Name: "source", Brokers: 1, Properties: secured})
		return err
	})
	group.Go(func() (err error) {
		here := maps.Clone(secured)
		here["default.replication.factor"] = fmt.Sprint(brokers)
		e.dst, err = stack.Start(ctx, stack.Config{
			Kafka:   harness.Config{Name: "dest", Brokers: brokers, Properties: here},
			Bin:     stack.Binaries(),
			Sidecar: keys,
			Log:     slog.New(slog.DiscardHandler),
		})
		return err
	})
	err = group.Wait()
	if err == nil {
		e.srcCl, err = e.src.Client(quick()...)
	}
	if err == nil {
		e.dstCl, err = e.dst.Cluster.Client(quick()...)
	}
	if err == nil {
		e.proxyCl, err = kgo.NewClient(quick(kgo.SeedBrokers(e.dst.Proxies()...))...)
	}
	if err != nil {
		return e, err
	}
	e.srcAdmin, e.dstAdmin, e.dstProxy = kadm.NewClient(e.srcCl), kadm.NewClient(e.dstCl), kadm.NewClient(e.proxyCl)
	return e, nil
}

func (c *clusters) stop() error {
	e := c.env
	if e == nil {
		return nil
	}
	for _, cl := range []*kgo.Client{e.srcCl, e.dstCl, e.proxyCl} {
		if cl != nil {
			cl.Close()
		}
	}
	errs := []error{os.RemoveAll(filepath.Dir(e.mode))}
	if e.dst != nil {
		for _, c := range e.dst.Sidecars {
			if text, err := os.ReadFile(c.LogFile()); err == nil {
				if i := strings.Index(string(text), "panic: "); i >= 0 {
					errs = append(errs, fmt.Errorf("sidecar %d has crashed:\n%s", c.Broker, text[i:min(len(text), i+4000)]))
				}
			}
		}
		errs = append(errs, e.dst.Stop())
	}
	if e.src != nil {
		errs = append(errs, e.src.Stop())
	}
	return errors.Join(errs...)
}

// quick makes clients follow leader changes fast, and choose the partitions of their records.
func quick(opts ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second), kgo.DisableClientMetrics(),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, opts...)
}

// cli runs kafka-cluster-mirrors and fails the test if that fails.
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

// mirror creates a mirror with more configuration.
func (e *env) mirror(t *testing.T, name string, more map[string]string) {
	t.Helper()
	text := "bootstrap.servers=" + e.src.Bootstrap(harness.ListenerInternal)[0] + "\nrequest.timeout.ms=5000\n"
	for _, k := range slices.Sorted(maps.Keys(more)) {
		text += k + "=" + strings.ReplaceAll(more[k], `\`, `\\`) + "\n"
	}
	file := filepath.Join(t.TempDir(), name+".properties")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e.cli(t, "--create", "--mirror", name, "--mirror-config", file)
}

// sourceTopic creates a topic at the source and writes so many records to each of its partitions.
func (e *env) sourceTopic(t *testing.T, topic string, partitions int32, records int) {
	t.Helper()
	r, err := e.srcAdmin.CreateTopic(t.Context(), partitions, 1, nil, topic)
	if err == nil {
		err = r.Err
	}
	if err == nil {
		err = harness.AwaitTopic(t.Context(), e.srcCl, topic)
	}
	if err != nil {
		t.Fatalf("create topic %s: %v", topic, err)
	}
	for p := range partitions {
		e.write(t, topic, p, records)
	}
}

// write writes records to a partition at the source.
func (e *env) write(t *testing.T, topic string, partition int32, records int) {
	t.Helper()
	var all []*kgo.Record
	for i := range records {
		all = append(all, &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Appendf(nil, "%d", i)})
	}
	if err := e.srcCl.ProduceSync(t.Context(), all...).FirstErr(); err != nil {
		t.Fatalf("write to %s-%d: %v", topic, partition, err)
	}
}

// begin starts topics, and returns when they are mirrored up to the source's ends.
func (e *env) begin(t *testing.T, mirror string, topics ...string) {
	t.Helper()
	e.cli(t, "--start", "--wait", "--mirror", mirror, "--topics", strings.Join(topics, ","))
	e.mirrored(t, topics...)
}

// mirrored returns when topics end here where they end at the source, which must be quiet.
func (e *env) mirrored(t *testing.T, topics ...string) {
	t.Helper()
	harness.AwaitT(t, patience, fmt.Sprintf("all of %v is here", topics), func(ctx context.Context) error {
		want, err := e.srcAdmin.ListEndOffsets(ctx, topics...)
		if err != nil {
			return err
		}
		got, err := e.dstProxy.ListEndOffsets(ctx, topics...)
		if err != nil {
			return err
		}
		for _, o := range want.Offsets().Sorted() {
			if here, ok := got.Lookup(o.Topic, o.Partition); !ok || here.Err != nil || here.Offset != o.At {
				return fmt.Errorf("%s-%d ends at %d (%w), at the source at %d", o.Topic, o.Partition, here.Offset, here.Err, o.At)
			}
		}
		return nil
	})
}
