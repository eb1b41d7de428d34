package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

const (
	mirrorName = "clients"
	// mirrored is the topic that is read at its source and at its mirror.
	mirrored = "mirrored"
	// brokers: two are enough to have leaders elsewhere, and something to reassign.
	brokers = 2

	startLimit  = 5 * time.Minute
	mirrorLimit = 3 * time.Minute
)

// world is the clusters that clients talk to.
type world struct {
	opt options
	src *harness.Cluster
	dst *stack.Stack

	client *kgo.Client // straight at the destination's brokers
	admin  *kadm.Client

	meddlers []*meddler
}

func (w *world) start(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	var group errgroup.Group
	group.Go(func() (err error) {
		w.src, err = harness.Start(ctx, harness.Config{Name: "source", Brokers: 1, Log: w.opt.log})
		return err
	})
	cfg := stack.Config{
		Kafka: harness.Config{
			Name: "destination", Brokers: brokers, Log: w.opt.log,
			Properties: map[string]string{
				"authorizer.class.name":       "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
				"super.users":                 "User:ANONYMOUS",
				"delegation.token.secret.key": "of-no-secrecy",
				// A group is taken over at once, for each script has its own, and a share group has records when it asks.
				"group.consumer.min.heartbeat.interval.ms": "500",
				"group.consumer.heartbeat.interval.ms":     "500",
				"group.share.min.heartbeat.interval.ms":    "500",
				"group.share.heartbeat.interval.ms":        "500",
				"auto.leader.rebalance.enable":             "false",
			},
			NodeProperties: func(id int32) map[string]string {
				return map[string]string{"broker.rack": fmt.Sprintf("rack-%d", id)}
			},
		},
		Bin: w.opt.bin, NoSidecars: true, Log: w.opt.log,
	}
	group.Go(func() (err error) {
		w.dst, err = stack.Start(ctx, cfg)
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if w.client, err = w.dst.Cluster.Client(kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(2*time.Second)); err != nil {
		return err
	}
	w.admin = kadm.NewClient(w.client)
	if err := w.internalTopics(ctx); err != nil {
		return err
	}
	return w.fillSource(ctx)
}

func (w *world) stop() error {
	var errs []error
	if w.client != nil {
		w.client.Close()
	}
	if w.dst != nil {
		errs = append(errs, w.dst.Stop())
	}
	if w.src != nil {
		errs = append(errs, w.src.Stop())
	}
	for _, m := range w.meddlers {
		errs = append(errs, m.stop())
	}
	return errors.Join(errs...)
}

// internalTopics has the brokers make them, so that no script is the first.
func (w *world) internalTopics(ctx context.Context) error {
	for kind, key := range map[int8]string{0: "warm-up", 1: "warm-up", 2: "warm-up:AAAAAAAAAAAAAAAAAAAAAQ:0"} {
		err := harness.Await(ctx, startLimit, func(ctx context.Context) error {
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = kind, key, []string{key}
			resp, err := req.RequestWith(ctx, w.client)
			if err != nil {
				return err
			}
			for _, c := range resp.Coordinators {
				if err := kerr.ErrorForCode(c.ErrorCode); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("find the coordinator of type %d: %w", kind, err)
		}
	}
	return nil
}

// fillSource writes what is mirrored: batches of every codec, transactions that were committed and aborted, headers,
// nulls.
func (w *world) fillSource(ctx context.Context) error {
	seeds := w.src.Bootstrap(harness.ListenerInternal)
	admin, err := w.src.Client()
	if err != nil {
		return err
	}
	defer admin.Close()
	forever := "-1" // records are old
	if _, err := kadm.NewClient(admin).CreateTopic(ctx, brokers, 1, map[string]*string{"retention.ms": &forever}, mirrored); err != nil {
		return err
	}
	if err := harness.AwaitTopic(ctx, admin, mirrored); err != nil {
		return err
	}
	at := time.UnixMilli(1700000000000)
	n := 0
	for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codec),
			kgo.TransactionalID(fmt.Sprintf("fill-%d", n)))
		if err != nil {
			return err
		}
		for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
			if err := cl.BeginTransaction(); err != nil {
				return err
			}
			var records []*kgo.Record
			for range 8 {
				n++
				r := &kgo.Record{
					Topic: mirrored, Partition: int32(n % brokers), Timestamp: at.Add(time.Duration(n) * time.Second), Key: []byte(fmt.Sprint("key-", n)),
					Value: []byte(strings.Repeat(fmt.Sprint("value-", n, " "), n)), Headers: []kgo.RecordHeader{{Key: "n", Value: []byte(fmt.Sprint(n))}},
				}
				if n%5 == 0 {
					r.Value = nil
				}
				records = append(records, r)
			}
			if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
				return err
			}
			if err := cl.EndTransaction(ctx, end); err != nil {
				return err
			}
		}
		cl.Close()
	}
	return nil
}

// join starts the sidecars and mirrors the topic.
func (w *world) join(ctx context.Context) error {
	if w.opt.plant {
		if err := w.meddle(); err != nil {
			return err
		}
	}
	if err := w.dst.StartSidecars(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, mirrorLimit)
	defer cancel()
	file := filepath.Join(w.dst.Dir(), "mirror.properties")
	if err := os.WriteFile(file, []byte("bootstrap.servers="+strings.Join(w.src.Bootstrap(harness.ListenerInternal), ",")+"\n"), 0o600); err != nil {
		return err
	}
	if _, err := w.dst.CLI(ctx, "--create", "--mirror", mirrorName, "--mirror-config", file); err != nil {
		return err
	}
	if _, err := w.dst.CLI(ctx, "--start", "--mirror", mirrorName, "--topics", mirrored, "--wait"); err != nil {
		return err
	}
	return nil
}

// meddle puts a meddler between each sidecar and its broker.
func (w *world) meddle() error {
	const key = "home.broker.bootstrap="
	for _, c := range w.dst.Sidecars {
		text, err := os.ReadFile(c.ConfigFile())
		if err != nil {
			return err
		}
		var out []string
		for line := range strings.Lines(string(text)) {
			if home, ok := strings.CutPrefix(line, key); ok {
				m, err := startMeddler(strings.TrimSpace(home))
				if err != nil {
					return err
				}
				w.meddlers = append(w.meddlers, m)
				line = key + m.addr() + "\n"
			}
			out = append(out, line)
		}
		if err := os.WriteFile(c.ConfigFile(), []byte(strings.Join(out, "")), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// createTopics makes what a script begins with and waits until every broker knows it.
func (w *world) createTopics(ctx context.Context, names []string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 60000
	for _, name := range names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
		for p := range int32(brokers) {
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition = p
			for i := range int32(brokers) {
				a.Replicas = append(a.Replicas, 1+(p+i)%brokers)
			}
			t.ReplicaAssignment = append(t.ReplicaAssignment, a)
		}
		forever := kmsg.NewCreateTopicsRequestTopicConfig() // records are old
		forever.Name, forever.Value = "retention.ms", kmsg.StringPtr("-1")
		t.Configs = append(t.Configs, forever)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, w.client)
	if err != nil {
		return fmt.Errorf("create the topics of a script: %w", err)
	}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return fmt.Errorf("create topic %s: %w", t.Topic, err)
		}
	}
	for _, name := range names {
		if err := harness.AwaitTopic(ctx, w.client, name); err != nil {
			return err
		}
	}
	// A broker tells of a topic before it leads it, and a producer without acknowledgements would not hear of that.
	return harness.Await(ctx, startLimit, func(ctx context.Context) error {
		ends, err := w.admin.ListEndOffsets(ctx, names...)
		if err != nil {
			return err
		}
		return ends.Error()
	})
}

// direct and proxied are the two ways.
func (w *world) direct() leg {
	return leg{Name: legDirect, Token: "rund", seeds: w.dst.Direct(), mirrorSeeds: w.src.Bootstrap(harness.ListenerInternal)}
}

func (w *world) proxied() leg {
	return leg{Name: legProxied, Token: "runp", seeds: w.dst.Proxies(), mirrorSeeds: w.dst.Proxies()}
}

// control is a second way straight at the brokers, to find what differs by chance.
func (w *world) control() leg {
	l := w.direct()
	l.Name, l.Token = legControl, "runp"
	return l
}

// normaliser of a leg. Only the addresses that this leg's clients shall see are taken for the brokers': one of
// a broker itself that is seen through a proxy is a difference.
func (w *world) normaliser(l leg) *normaliser {
	addresses := map[string]string{}
	for _, n := range w.dst.Cluster.Brokers() {
		addr := n.Addr(harness.ListenerInternal)
		if l.Name == legProxied {
			addr = w.dst.Sidecar(n.ID()).Proxy
		}
		addresses[addr] = fmt.Sprintf("<broker-%d>", n.ID())
	}
	return newNormaliser(l, addresses)
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
