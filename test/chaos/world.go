package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/links"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
)

// world is two clusters of three brokers, three sidecars, the network between all of them, and
// what is written to the source.
type world struct {
	opt    options
	fabric *links.Fabric
	source *harness.Cluster
	dest   *stack.Stack
	load   *workload.Load
	// readers read the mirror all the time.
	readers *readers
	// Clients that ask the clusters themselves, around the sidecars.
	sourceClient, destClient *kgo.Client
	sourceAdmin, destAdmin   *kadm.Client
	undo                     []func() error
}

func (w *world) later(undo func() error) { w.undo = append(w.undo, undo) }

// close ends everything, in the reverse order of its start.
func (w *world) close() error {
	var errs []error
	for i := len(w.undo) - 1; i >= 0; i-- {
		errs = append(errs, w.undo[i]())
	}
	w.undo = nil
	return errors.Join(errs...)
}

func newWorld(ctx context.Context, opt options) (*world, error) {
	w := &world{opt: opt, fabric: links.New()}
	w.later(w.fabric.Close)
	if err := w.clusters(ctx); err != nil {
		return w, err
	}
	var err error
	if w.sourceClient, err = w.source.Client(kgo.DisableClientMetrics(), kgo.MetadataMinAge(250*time.Millisecond)); err != nil {
		return w, err
	}
	w.later(func() error { w.sourceClient.Close(); return nil })
	if w.destClient, err = w.dest.Cluster.Client(kgo.DisableClientMetrics(), kgo.MetadataMinAge(250*time.Millisecond)); err != nil {
		return w, err
	}
	w.later(func() error { w.destClient.Close(); return nil })
	w.sourceAdmin, w.destAdmin = kadm.NewClient(w.sourceClient), kadm.NewClient(w.destClient)
	if err := w.feed(ctx); err != nil {
		return w, err
	}
	return w, w.mirror(ctx)
}

func (w *world) clusters(ctx context.Context) error {
	// Never two copies less than what is acknowledged, also of what transactions and groups need.
	safe := map[string]string{
		"broker.session.timeout.ms":         strconv.FormatInt(session.Milliseconds(), 10),
		"transaction.state.log.min.isr":     "2",
		"default.replication.factor":        "3",
		"min.insync.replicas":               "2",
		"unclean.leader.election.enable":    "false",
		"replica.lag.time.max.ms":           "10000",
		"log.cleaner.backoff.ms":            "2000",
		"controlled.shutdown.max.retries":   "3",
		"log.segment.delete.delay.ms":       "5000",
		"num.recovery.threads.per.data.dir": "2",
	}
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		w.source, err = harness.Start(gctx, harness.Config{
			Name: "source", Version: w.opt.version, Brokers: 3, HeapMB: 320, Properties: safe, Network: w.fabric, Log: w.opt.log,
		})
		return err
	})
	group.Go(func() (err error) {
		w.dest, err = stack.Start(gctx, stack.Config{
			Kafka: harness.Config{
				Name: "destination", Version: w.opt.version, Brokers: 3, Controllers: 1, HeapMB: 320, Properties: safe, Log: w.opt.log,
			},
			Bin: w.opt.bin, Network: w.fabric, Log: w.opt.log,
		})
		return err
	})
	err := group.Wait()
	if w.source != nil {
		w.later(w.source.Stop)
	}
	if w.dest != nil {
		w.later(w.dest.Stop)
	}
	return err
}

// feed starts the producers: 4,000 records per second, a third of them transactional.
func (w *world) feed(ctx context.Context) error {
	var err error
	w.load, err = workload.New(workload.Config{
		Bootstrap: w.source.Bootstrap(harness.ListenerClient), Prefix: "chaos", Partitions: partitions, Replication: 3, ValueBytes: 64,
		Kinds: []workload.Kind{workload.Plain, workload.Idempotent, workload.Transactional, workload.Compacted, workload.CompactedTransactional},
		Rates: map[workload.Kind]int{
			workload.Plain:      160, // five topics, one for each codec
			workload.Idempotent: 1100, workload.Transactional: 1200, workload.Compacted: 300, workload.CompactedTransactional: 400,
		},
		TopicConfigs: func(k workload.Kind) map[string]string {
			c := map[string]string{"min.insync.replicas": "2", "segment.bytes": "8388608"}
			if k.Compacted() {
				// Segments close every few seconds, not twice a second: six brokers share few cores. Tombstones
				// outlive every outage of the run.
				c["segment.ms"], c["delete.retention.ms"] = "15000", "600000"
			}
			return c
		},
		TuneCleaner: true, Log: w.opt.log,
	})
	if err != nil {
		return err
	}
	if err := w.load.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	w.later(func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = w.load.Stop(ctx) // a run that ended in time has stopped it before and looked at the error
		return nil
	})
	return w.load.WaitAcked(ctx, 50)
}

func (w *world) mirror(ctx context.Context) error {
	file := filepath.Join(w.dest.Dir(), "source.properties")
	var at []string
	for _, n := range w.source.Brokers() {
		at = append(at, n.Advertised(harness.ListenerClient))
	}
	if err := os.WriteFile(file, []byte("bootstrap.servers="+strings.Join(at, ",")+"\nrequest.timeout.ms=8000\n"), 0o600); err != nil {
		return err
	}
	if _, err := w.dest.CLI(ctx, "--create", "--mirror", mirror, "--mirror-config", file); err != nil {
		return err
	}
	_, err := w.dest.CLI(ctx, "--start", "--mirror", mirror, "--topics", strings.Join(w.load.TopicNames(), ","))
	return err
}

// sidecar gives the n-th sidecar that can be hit, of those that want accepts.
func (w *world) pick(n uint32, want func(*stack.Sidecar) bool) (*stack.Sidecar, error) {
	var can []*stack.Sidecar
	for _, c := range w.dest.Sidecars {
		if want(c) {
			can = append(can, c)
		}
	}
	if len(can) == 0 {
		return nil, errors.New("no sidecar can be hit")
	}
	return can[int(n%uint32(len(can)))], nil
}

func anyOf(nodes []*harness.Node, n uint32) *harness.Node { return nodes[int(n%uint32(len(nodes)))] }

// keepLogs copies what the processes wrote into a folder.
func (w *world) keepLogs() error {
	if w.opt.keep == "" {
		return nil
	}
	if err := os.MkdirAll(w.opt.keep, 0o755); err != nil {
		return err
	}
	files := map[string]string{}
	if w.dest != nil {
		for _, c := range w.dest.Sidecars {
			files[fmt.Sprintf("sidecar-%d.log", c.Broker)] = c.LogFile()
		}
		if w.dest.Cluster != nil {
			for _, n := range w.dest.Cluster.Nodes() {
				files[n.Party()+".log"] = n.LogFile()
			}
		}
	}
	if w.source != nil {
		for _, n := range w.source.Nodes() {
			files[n.Party()+".log"] = n.LogFile()
		}
	}
	for name, from := range files {
		data, err := os.ReadFile(from)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(w.opt.keep, name), data, 0o600)
		}
		if err != nil {
			return fmt.Errorf("keep %s: %w", name, err)
		}
	}
	return nil
}
