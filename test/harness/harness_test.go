package harness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(envOrphanTest) != "" {
		orphanParent()
	}
	goleak.VerifyTestMain(m)
}

func testLog(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

func TestCluster(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  Config
		long bool // the tests of other packages start one like it, too
	}{
		{name: "combined 4.4", cfg: Config{Version: Version44, Brokers: 2}, long: true},
		{name: "separate 4.4", cfg: Config{Version: Version44, Brokers: 2, Controllers: 1, FirstID: 5}},
		{name: "combined 4.3", cfg: Config{Version: Version43, Brokers: 2, Format: []string{"--release-version", "4.3"}}, long: true},
		{name: "combined 3.9", cfg: Config{Version: Version39, Brokers: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.long && !Full() {
				t.Skip("in the long form")
			}
			tt.cfg.Log = testLog(t)
			// A restart waits for this; see Node.Start.
			tt.cfg.Properties = map[string]string{"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "1000"}
			begun := time.Now()
			c := StartT(t, tt.cfg)
			t.Logf("a cluster of %d nodes took %s", len(c.Nodes()), time.Since(begun).Round(time.Millisecond))

			createTopic(t, c, "t", 1, 2, nil)
			cl := c.ClientT(t)
			produce(t, cl, "t", 20)
			transactions(t, c, "t")
			sameSoon(t, c, "t", 0)
			dumpsAgree(t, c, "t", 0)

			victim := c.Brokers()[1]
			for _, step := range []struct {
				name string
				down func() error
				up   func(context.Context) error
			}{
				{"kill", victim.Kill, victim.Start},
				{"stop", func() error { return victim.Stop(t.Context()) }, victim.Start},
				{"pause", victim.Pause, func(ctx context.Context) error {
					return errors.Join(victim.Resume(), victim.WaitReady(ctx))
				}},
			} {
				if err := step.down(); err != nil {
					t.Fatalf("%s: %v", step.name, err)
				}
				if got, want := victim.Running(), step.name == "pause"; got != want {
					t.Errorf("after %s: running is %v", step.name, got)
				}
				if got, want := victim.Paused(), step.name == "pause"; got != want {
					t.Errorf("after %s: paused is %v", step.name, got)
				}
				begun := time.Now()
				if err := step.up(t.Context()); err != nil {
					t.Fatalf("up after %s: %v", step.name, err)
				}
				t.Logf("ready again after %s: %s", step.name, time.Since(begun).Round(time.Millisecond))
				produce(t, cl, "t", 20)
				sameSoon(t, c, "t", 0)
			}
			dumpsAgree(t, c, "t", 0)
		})
	}
}

func createTopic(t *testing.T, c *Cluster, topic string, partitions int32, rf int16, configs map[string]*string) {
	t.Helper()
	adm := kadm.NewClient(c.ClientT(t))
	if _, err := adm.CreateTopic(t.Context(), partitions, rf, configs, topic); err != nil {
		t.Fatal(err)
	}
}

func produce(t *testing.T, cl *kgo.Client, topic string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range n {
		r := &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "value %d", i)}
		if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// transactions writes a committed and an aborted one, compressed.
func transactions(t *testing.T, c *Cluster, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cl := c.ClientT(t, kgo.TransactionalID("x"), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		value := []byte(strings.Repeat("transactional ", 20))
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: value}, &kgo.Record{Topic: topic, Value: value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := cl.EndTransaction(ctx, end); err != nil {
			t.Fatal(err)
		}
	}
}

func sameSoon(t *testing.T, c *Cluster, topic string, partition int32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := c.WaitSameLogs(ctx, topic, partition, Compare{}); err != nil {
		t.Fatal(err)
	}
}

// dumpsAgree checks DumpLogSegments' view of each replica against the raw one,
// and the replicas against each other.
func dumpsAgree(t *testing.T, c *Cluster, topic string, partition int32) {
	t.Helper()
	var dumps []Log
	for _, n := range c.Brokers() {
		dump, err := n.DumpLog(t.Context(), topic, partition)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := n.ReadLog(topic, partition)
		if err != nil {
			t.Fatal(err)
		}
		for i := range raw.Batches {
			raw.Batches[i].Sum = [32]byte{}
		}
		if len(dump.Batches) == 0 || !reflect.DeepEqual(dump, raw) {
			t.Errorf("%s: dumped and read logs differ:\n%+v\n%+v", n, dump, raw)
		}
		dumps = append(dumps, dump)
	}
	if d := (Compare{}).Diff(dumps[0], dumps[1]); d != nil {
		t.Error(d)
	}
	control := slices.IndexFunc(dumps[0].Batches, func(b Batch) bool { return b.Control && b.Transactional })
	zstd := slices.IndexFunc(dumps[0].Batches, func(b Batch) bool { return b.Codec == "zstd" })
	if control < 0 || zstd < 0 {
		t.Errorf("no control batch (%d) or no zstd batch (%d) among %d", control, zstd, len(dumps[0].Batches))
	}
}

func TestJavaClients(t *testing.T) {
	c := StartT(t, Config{
		Brokers: 2, Log: testLog(t),
		Advertise: func(id int32) string {
			if id == 1 {
				return "127.0.0.1:9" // somebody else's
			}
			return ""
		},
	})
	in := c.Installation()
	bootstrap := c.Bootstrap(ListenerInternal)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()

	t.Run("advertised", func(t *testing.T) {
		for listener, want := range map[string]string{
			ListenerClient:   "127.0.0.1:9",
			ListenerInternal: c.Node(1).Addr(ListenerInternal),
		} {
			resp, err := c.ask(ctx, c.Node(2).Addr(listener), kmsg.NewPtrMetadataRequest())
			if err != nil {
				t.Fatal(err)
			}
			got := map[int32]string{}
			for _, b := range resp.(*kmsg.MetadataResponse).Brokers {
				got[b.NodeID] = fmt.Sprintf("%s:%d", b.Host, b.Port)
			}
			if wanted := map[int32]string{1: want, 2: c.Node(2).Addr(listener)}; !maps.Equal(got, wanted) {
				t.Errorf("%s advertises %v, want %v", listener, got, wanted)
			}
		}
	})

	createTopic(t, c, "j", 2, 2, nil)
	first := []JavaRecord{
		{Partition: 0, Timestamp: 1000, Key: []byte("k"), Value: []byte("line\nline"), Headers: []JavaHeader{{"ä=b", []byte{0, 255}}, {"n", nil}}},
		{Partition: 1, Timestamp: 2000, Key: nil, Value: nil},
		{Partition: 0, Timestamp: 3000, Key: []byte{}, Value: []byte("ü")},
	}
	t.Run("produce and consume", func(t *testing.T) {
		results, err := in.Produce(ctx, JavaProduce{Bootstrap: bootstrap, Topic: "j", Records: first, Properties: map[string]string{"acks": "all"}})
		if err != nil {
			t.Fatal(err)
		}
		want := []JavaProduced{{0, 0, 1000, nil}, {1, 0, 2000, nil}, {0, 1, 3000, nil}}
		if !reflect.DeepEqual(results, want) {
			t.Errorf("produced %+v, want %+v", results, want)
		}
		got, err := in.Consume(ctx, JavaConsume{Bootstrap: bootstrap, Group: "g", Topic: "j"})
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(got, byPlace)
		wanted := []JavaRecord{first[0], first[2], first[1]}
		wanted[1].Offset = 1
		for i := range wanted {
			wanted[i].TimestampType = "CreateTime"
		}
		if !reflect.DeepEqual(got, wanted) {
			t.Errorf("consumed %+v, want %+v", got, wanted)
		}
	})
	t.Run("transactions and the group's position", func(t *testing.T) {
		for _, abort := range []bool{true, false} {
			p := JavaProduce{Bootstrap: bootstrap, Topic: "j", TransactionalID: "x", Abort: abort, Records: []JavaRecord{
				{Partition: 0, Value: fmt.Appendf(nil, "abort %v", abort)},
			}}
			if _, err := in.Produce(ctx, p); err != nil {
				t.Fatal(err)
			}
		}
		got, err := in.Consume(ctx, JavaConsume{Bootstrap: bootstrap, Group: "g", Topic: "j", ReadCommitted: true, Count: 1})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || string(got[0].Value) != "abort false" {
			t.Errorf("the group went on with %+v", got)
		}
		got, err = in.Consume(ctx, JavaConsume{Bootstrap: bootstrap, Group: "g2", Topic: "j"})
		if err != nil || len(got) != 5 {
			t.Errorf("read uncommitted gave %d records, %v", len(got), err)
		}
	})
	t.Run("a refused record", func(t *testing.T) {
		for _, acks := range []string{"1", "all"} {
			got, err := in.Produce(ctx, JavaProduce{
				Bootstrap: bootstrap, Topic: "j",
				Records:    []JavaRecord{{Partition: 0, Value: make([]byte, 2<<20)}},
				Properties: map[string]string{"acks": acks, "max.request.size": "4000000", "buffer.memory": "8000000"},
			})
			if err != nil {
				t.Fatal(err)
			}
			var e *JavaException
			if !errors.As(got[0].Err, &e) || e.Class != "org.apache.kafka.common.errors.RecordTooLargeException" {
				t.Errorf("acks=%s: %+v", acks, got)
			}
		}
	})
	t.Run("stock tools", func(t *testing.T) {
		res := in.ToolT(t, strings.NewReader("from the console\n"), "org.apache.kafka.tools.ConsoleProducer",
			"--bootstrap-server", bootstrap[0], "--topic", "j")
		if res.ExitCode != 0 {
			t.Errorf("%+v", res)
		}
		res = in.ToolT(t, nil, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
			"--bootstrap-server", bootstrap[0], "--describe", "--group", "g")
		if !strings.Contains(res.Stdout, "CURRENT-OFFSET") {
			t.Errorf("%+v", res)
		}
		res, err := in.Tool(ctx, ToolRun{Class: "org.apache.kafka.tools.TopicCommand", Args: []string{
			"--bootstrap-server", bootstrap[0], "--describe", "--topic", "missing",
		}})
		var failed *ToolError
		if !errors.As(err, &failed) || res.ExitCode == 0 {
			t.Errorf("a tool that fails gave %+v, %v", res, err)
		}
		log := filepath.Join(t.TempDir(), "console.log")
		p, err := in.StartTool(ctx, "console consumer", ToolRun{Class: "org.apache.kafka.tools.consumer.ConsoleConsumer", Args: []string{
			"--bootstrap-server", bootstrap[0], "--topic", "j", "--from-beginning", "--max-messages", "6",
		}}, log)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Kill() //nolint:errcheck // only if the test fails
		if code, err := p.Wait(ctx); code != 0 || err != nil || !strings.Contains(p.LogTail(), "from the console") {
			t.Errorf("code %d, %v:\n%s", code, err, p.LogTail())
		}
	})
}

func byPlace(a, b JavaRecord) int {
	if a.Partition != b.Partition {
		return int(a.Partition - b.Partition)
	}
	return int(a.Offset - b.Offset)
}

// Another process's port must be told apart from every other failure.
func TestTakenPort(t *testing.T) {
	SkipShort(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	in, err := Install(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ports, err := FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Brokers: 1, Properties: map[string]string{
		"listeners":                fmt.Sprintf("INTERNAL://%s,CONTROLLER://127.0.0.1:%d", l.Addr(), ports[0]),
		"advertised.listeners":     fmt.Sprintf("INTERNAL://%s", l.Addr()),
		"controller.quorum.voters": fmt.Sprintf("1@127.0.0.1:%d", ports[0]),
	}}
	if cfg, err = cfg.withDefaults(); err != nil {
		t.Fatal(err)
	}
	c, err := startOnce(ctx, cfg, in)
	if err == nil {
		t.Fatal(errors.Join(errors.New("it started"), c.Stop()))
	}
	if !errors.Is(err, errBind) {
		t.Errorf("got %v", err)
	}
}

func TestInstallMirrorMaker(t *testing.T) {
	SkipShort(t)
	in, err := InstallMirrorMaker(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.FindClass(MirrorMakerClass); err != nil {
		t.Error(err)
	}
	if _, err := in.FindClass("no.such.Class"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// Two clusters that start at the same time, in two processes maybe, get different ports.
func TestPortsArePromisedOnce(t *testing.T) {
	ports, err := FreePorts(20)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ports {
		if reserve(p) {
			t.Errorf("port %d is promised twice", p)
		}
	}
}
