package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// The systems' names in the report.
const (
	sidecarSystem     = "mirror-sidecar"
	mirrorMakerSystem = "mirrormaker2"
	nativeSystem      = "native"
)

func allSystems() []string { return []string{nativeSystem, sidecarSystem, mirrorMakerSystem} }

const topic = "backlog"

type throughputConfig struct {
	bin, out                           string
	gigabytes                          float64
	partitions                         int
	recordBytes, batchBytes            int
	warmups, rounds, mirrorMakerRounds int
	systems                            []string
	log                                *slog.Logger
}

func (c throughputConfig) check() error {
	if c.gigabytes <= 0 || c.gigabytes > 20 || c.partitions < 1 || c.recordBytes < 1 || c.warmups < 0 || c.rounds < 1 || c.mirrorMakerRounds < 1 {
		return errors.New("sizes and rounds must be positive, and the backlog at most 20 GB")
	}
	for _, s := range c.systems {
		if !slices.Contains(allSystems(), s) {
			return fmt.Errorf("unknown system %q, want some of %s", s, strings.Join(allSystems(), ", "))
		}
	}
	return nil
}

// rig is what all systems copy from and into.
type rig struct {
	cfg throughputConfig
	// The source's first broker holds the backlog. Its second one is where native replication
	// copies to; nobody else uses it.
	source *harness.Cluster
	client *kgo.Client // of the source
	admin  *kadm.Client
	dest   *stack.Stack // one broker, one sidecar
	// bytes and records of the backlog, as the source's log holds it.
	bytes, records int64
}

func throughput(ctx context.Context, cfg throughputConfig) (err error) {
	if err := cfg.check(); err != nil {
		return err
	}
	r := &rig{cfg: cfg}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := r.start(ctx); err != nil {
		return err
	}
	fmt.Printf("writing a backlog of %.1f GB, %d partitions\n", cfg.gigabytes, cfg.partitions)
	if err := r.fill(ctx); err != nil {
		return fmt.Errorf("write the backlog: %w", err)
	}

	rounds := make(map[string][]round)
	measure := func(system string, copy func(context.Context) (round, error), counts bool) error {
		if !slices.Contains(cfg.systems, system) {
			return nil
		}
		// What the round before has left to write must not slow down this one.
		syscall.Sync()
		m, err := copy(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", system, err)
		}
		if !counts {
			fmt.Printf("%-15s warm-up: %s\n", system, m)
			return nil
		}
		rounds[system] = append(rounds[system], m)
		fmt.Printf("%-15s round %d: %s\n", system, len(rounds[system]), m)
		return nil
	}
	// In turn, so that a slow minute of the machine hits both. The first turns do not count:
	// in them the brokers' virtual machines compile what the others run, and each system has a
	// broker of its own to write to.
	for i := range cfg.warmups + cfg.rounds {
		if err := measure(nativeSystem, r.native, i >= cfg.warmups); err != nil {
			return err
		}
		if err := measure(sidecarSystem, r.sidecar, i >= cfg.warmups); err != nil {
			return err
		}
	}
	for range cfg.mirrorMakerRounds {
		if err := measure(mirrorMakerSystem, r.mirrorMaker, true); err != nil {
			return err
		}
	}
	return writeReport(cfg, r, rounds)
}

func (r *rig) start(ctx context.Context) error {
	kafka := func(name string, brokers int) harness.Config {
		return harness.Config{
			Name: name, Brokers: brokers, FullJIT: true, HeapMB: 1024, Log: r.cfg.log,
			// Kafka's own defaults where the harness saves threads for small tests.
			Properties: map[string]string{
				"num.network.threads": "3", "num.io.threads": "8",
				// What a round wrote is deleted before the next one, not a minute later in its middle.
				"log.segment.delete.delay.ms": "0",
			},
		}
	}
	var err error
	if r.source, err = harness.Start(ctx, kafka("source", 2)); err != nil {
		return err
	}
	if r.client, err = r.source.Client(); err != nil {
		return err
	}
	r.admin = kadm.NewClient(r.client)
	r.dest, err = stack.Start(ctx, stack.Config{
		Kafka: kafka("destination", 1), Bin: r.cfg.bin, Log: r.cfg.log,
		NoSidecars: !slices.Contains(r.cfg.systems, sidecarSystem),
	})
	return err
}

func (r *rig) stop() error {
	var errs []error
	if r.client != nil {
		r.client.Close()
	}
	if r.dest != nil {
		errs = append(errs, r.dest.Stop())
	}
	if r.source != nil {
		errs = append(errs, r.source.Stop())
	}
	return errors.Join(errs...)
}

func (r *rig) brokers() (holder, copier *harness.Node) {
	b := r.source.Brokers()
	return b[0], b[1]
}

// fill writes the backlog to the source's first broker.
func (r *rig) fill(ctx context.Context) error {
	holder, _ := r.brokers()
	if err := createOn(ctx, r.client, topic, r.cfg.partitions, holder.ID()); err != nil {
		return err
	}
	cl, err := r.source.Client(
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(int32(r.cfg.batchBytes)),
		kgo.MaxBufferedRecords(20000), kgo.ProducerLinger(50*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer cl.Close()
	// Random bytes: a disk or a page cache that compresses must not make a difference.
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 1<<20+r.cfg.recordBytes)
	for i := range noise {
		noise[i] = byte(rng.UintN(256))
	}
	var mu sync.Mutex
	var failed error
	r.records = int64(r.cfg.gigabytes * 1e9 / float64(r.cfg.recordBytes))
	for i := range r.records {
		from := int(i * 7919 % (1 << 20))
		cl.Produce(ctx, &kgo.Record{
			Topic: topic, Partition: int32(i % int64(r.cfg.partitions)), Value: noise[from : from+r.cfg.recordBytes],
		}, func(_ *kgo.Record, err error) {
			if err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	r.bytes, err = logBytes(holder, topic, r.cfg.partitions)
	return err
}

// createOn creates a topic of one replica at exactly this broker.
func createOn(ctx context.Context, cl *kgo.Client, name string, partitions int, broker int32) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
	for p := range partitions {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(p), []int32{broker}
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err == nil && len(resp.Topics) == 1 {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return nil
}
