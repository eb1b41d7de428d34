package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/test/chaos/check"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
)

// plantAll mirrors a topic for real, damages the log of one replica in each way, and looks whether the
// checker says so. The log that it damages is that of a broker which was stopped for it.
func plantAll(ctx context.Context, opt options) (err error) {
	source, err := harness.Start(ctx, harness.Config{Name: "source", Version: opt.version, Brokers: 1, Log: opt.log})
	if err != nil {
		return err
	}
	defer source.Stop() //nolint:errcheck // what it says comes too late
	dest, err := stack.Start(ctx, stack.Config{Kafka: harness.Config{Name: "destination", Version: opt.version, Brokers: 2, Properties: map[string]string{"default.replication.factor": "2"}, Log: opt.log}, Bin: opt.bin, Log: opt.log})
	if err != nil {
		return err
	}
	defer dest.Stop() //nolint:errcheck // as above
	load, err := workload.New(workload.Config{
		Bootstrap: source.Bootstrap(harness.ListenerClient), Prefix: "chaos", Partitions: 1, Rate: 400, ValueBytes: 64,
		Kinds: []workload.Kind{workload.Idempotent, workload.Transactional}, Log: opt.log,
	})
	if err != nil {
		return err
	}
	if err := load.Start(ctx); err != nil {
		return err
	}
	w := &world{opt: opt, source: source, dest: dest, load: load}
	if err := w.mirror(ctx); err != nil {
		return err
	}
	if err := load.WaitAcked(ctx, 1000); err != nil {
		return err
	}
	if err := load.Stop(ctx); err != nil {
		return err
	}
	for _, topic := range load.TopicNames() {
		p := tp{topic, 0}
		replica := dest.Cluster.Brokers()[1]
		var origin, copied rawLog
		err := harness.Await(ctx, time.Minute, func(context.Context) error {
			var err error
			if origin, err = w.readLog(source.Brokers()[0], p, 0); err != nil {
				return err
			}
			if copied, err = w.readLog(replica, p, 0); err != nil {
				return err
			}
			if origin.End != copied.End || origin.End == 0 {
				return fmt.Errorf("%s: the mirror ends at %d, the source at %d", p, copied.End, origin.End)
			}
			return nil
		})
		if err != nil {
			return err
		}
		all := check.Range{To: math.MaxInt64}
		if f := check.Compare(p.String(), origin.Records, copied.Records, all); !f.Zero() {
			return fmt.Errorf("nothing was planted in %s: %+v", p, f)
		}
		if err := replica.Kill(); err != nil {
			return err
		}
		if err := w.record(p, replica); err != nil {
			return err
		}
		for _, fault := range check.Faults() {
			if err := w.plant(p, replica, fault, origin); err != nil {
				return err
			}
			opt.say("%s in the log of %s at broker %d: found", fault, p, replica.ID())
		}
		start, cancel := context.WithTimeout(ctx, startLimit)
		err = replica.Start(start)
		cancel()
		if err != nil {
			return err
		}
	}
	fmt.Printf("selftest: %d of %d planted faults found\n", len(check.Faults())*len(load.TopicNames()), len(check.Faults())*len(load.TopicNames()))
	return nil
}

// record keeps the beginning of a log on both sides, for the tests that need no broker.
func (w *world) record(p tp, replica *harness.Node) error {
	if w.opt.keep == "" {
		return nil
	}
	if err := os.MkdirAll(w.opt.keep, 0o755); err != nil {
		return err
	}
	for side, n := range map[string]*harness.Node{"source": w.source.Brokers()[0], "mirror": replica} {
		dir, err := n.PartitionDir(p.topic, p.partition)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, "00000000000000000000.log"))
		if err != nil {
			return err
		}
		keep := 0 // whole batches
		for b, err := range batch.Iterate(data) {
			if err != nil {
				return err
			}
			if keep += len(b); b.NextOffset() >= recordedEnd {
				break
			}
		}
		if err := os.WriteFile(filepath.Join(w.opt.keep, p.topic+"."+side+".log"), data[:keep], 0o600); err != nil {
			return err
		}
	}
	return nil
}

// recordedEnd is about where a recorded log ends: behind a commit and an abort.
const recordedEnd = 700

// plant damages the last segment of a log, looks, and puts it right again.
func (w *world) plant(p tp, n *harness.Node, fault check.Fault, origin rawLog) error {
	dir, err := n.PartitionDir(p.topic, p.partition)
	if err != nil {
		return err
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(names) == 0 {
		return fmt.Errorf("no segments of %s: %w", p, err)
	}
	name := slices.MaxFunc(names, strings.Compare)
	good, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	bad, err := check.Plant(good, fault)
	if err != nil {
		return err
	}
	if err := os.WriteFile(name, bad, 0o600); err != nil {
		return err
	}
	log, err := w.readLog(n, p, 0)
	if err != nil {
		return err
	}
	f := check.Compare(fmt.Sprintf("%s at broker %d", p, n.ID()), origin.Records, log.Records, check.Range{To: math.MaxInt64})
	if fault.Of(f.Counts) == 0 {
		return fmt.Errorf("planted %s in %s and found %+v", fault, p, f)
	}
	return os.WriteFile(name, good, 0o600)
}
