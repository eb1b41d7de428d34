package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
)

const (
	mirror = "demo"
	prefix = "shop"
	// target is the topic that everybody tries to write to.
	target = prefix + "-idempotent"
)

func (d *demo) run(ctx context.Context) error {
	d.title("Kafka")
	d.say("looking for Kafka's jars; the first run downloads them")
	for _, version := range []string{"", d.version} {
		if _, err := harness.Install(ctx, version); err != nil {
			return err
		}
	}

	d.title("A source cluster of one broker, a destination of two with a sidecar beside each")
	source, dest, err := d.clusters(ctx)
	if err != nil {
		return err
	}
	d.say("source at %s; destination behind the proxies at %s", join(source.Bootstrap(harness.ListenerClient)), join(dest.Proxies()))

	load, err := d.feed(ctx, source)
	if err != nil {
		return err
	}
	// Clients for looking on: the demo asks the clusters themselves how far they are.
	sourceAdmin, err := d.admin(source.Bootstrap(harness.ListenerClient))
	if err != nil {
		return err
	}
	destAdmin, err := d.admin(dest.Direct())
	if err != nil {
		return err
	}
	m := &mirroring{demo: d, load: load, stack: dest, source: sourceAdmin, dest: destAdmin, topics: load.TopicNames()}

	d.title("Mirror all of it, while the producers go on")
	if err := m.start(ctx, source); err != nil {
		return err
	}
	if err := m.follow(ctx, 3, "mirroring"); err != nil {
		return err
	}
	d.title("A consumer of the mirror sees what is committed, and nothing of the transaction that is still open")
	if err := m.consume(ctx); err != nil {
		return err
	}
	d.title("Nobody can write to a mirror topic")
	if err := m.refusals(ctx); err != nil {
		return err
	}

	d.title("The producers stop, and then the mirror")
	if err := m.stop(ctx); err != nil {
		return err
	}
	d.title("Compare")
	return m.compare(ctx)
}

func join(addresses []string) string { return strings.Join(addresses, ",") }

// clusters starts both at once.
func (d *demo) clusters(ctx context.Context) (*harness.Cluster, *stack.Stack, error) {
	var source *harness.Cluster
	var dest *stack.Stack
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		source, err = harness.Start(gctx, harness.Config{Name: "source", Brokers: 1, Log: d.log})
		return err
	})
	group.Go(func() (err error) {
		dest, err = stack.Start(gctx, stack.Config{
			Kafka: harness.Config{Name: "destination", Version: d.version, Brokers: 2, Log: d.log},
			Bin:   d.bin, Log: d.log,
		})
		return err
	})
	err := group.Wait()
	// One may have started though the other has not.
	if source != nil {
		d.later(source.Stop)
	}
	if dest != nil {
		d.later(dest.Stop)
		if err != nil {
			d.keepLogs(dest)
		}
	}
	return source, dest, err
}

// keepLogs shows the ends of the sidecars' logs, which go away with the demo.
func (d *demo) keepLogs(s *stack.Stack) {
	for _, c := range s.Sidecars {
		if tail := c.LogTail(); tail != "" {
			fmt.Fprintf(os.Stderr, "\n-- the end of the log of sidecar %d\n%s\n", c.Broker, tail)
		}
	}
}

// feed starts the producers and waits until the source holds everything that is hard to mirror.
func (d *demo) feed(ctx context.Context, source *harness.Cluster) (*workload.Load, error) {
	d.title("Live producers: five codecs, idempotent, transactional, compacted topics, odd records")
	load, err := workload.New(workload.Config{
		Bootstrap: source.Bootstrap(harness.ListenerClient), Prefix: prefix, TuneCleaner: true, Log: d.log,
	})
	if err != nil {
		return nil, err
	}
	if err := load.Start(ctx); err != nil {
		return nil, err
	}
	d.later(func() error {
		// Its failures have been reported by then, or are the fault of what failed before.
		stopCtx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = load.Stop(stopCtx)
		return nil
	})
	if err := load.WaitAcked(ctx, 50); err != nil {
		return nil, err
	}
	d.say("%d topics, %d records so far; waiting for the log cleaner to make gaps", len(load.Topics()), load.Total().Acked)
	gaps, err := load.WaitForGaps(ctx)
	if err != nil {
		return nil, err
	}
	for _, g := range gaps {
		d.say("%s-%d: %d of %d offsets are gone, %d of them inside of batches; %d empty batches",
			g.Topic, g.Partition, g.Removed, g.HighWatermark, g.Inside, g.Empty)
	}
	// Both clusters have cleaners, which clean at different times; the comparison needs them still.
	if err := load.FreezeCompaction(ctx); err != nil {
		return nil, err
	}
	return load, nil
}

func (d *demo) admin(bootstrap []string) (*kadm.Client, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...), kgo.ClientID("demo"), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", join(bootstrap), err)
	}
	d.later(func() error { cl.Close(); return nil })
	return kadm.NewClient(cl), nil
}

// mirroring is the mirror and both its ends.
type mirroring struct {
	*demo
	load         *workload.Load
	stack        *stack.Stack
	source, dest *kadm.Client
	topics       []string
}

func (m *mirroring) cli(ctx context.Context, args ...string) (string, error) {
	m.say("$ kafka-cluster-mirrors --bootstrap-server … %s", strings.Join(args, " "))
	out, err := m.stack.CLI(ctx, args...)
	if err != nil {
		m.keepLogs(m.stack)
	}
	return out, err
}

// show prints a command's output, indented and not without bound.
func (m *mirroring) show(out string, lines int) {
	all := strings.Split(strings.TrimRight(out, "\n"), "\n")
	for i, line := range all {
		if i == lines {
			fmt.Fprintf(m.out, "         … %d more lines\n", len(all)-lines)
			return
		}
		fmt.Fprintf(m.out, "         %s\n", line)
	}
}

func (m *mirroring) start(ctx context.Context, source *harness.Cluster) error {
	file := filepath.Join(m.stack.Dir(), "mirror.properties")
	text := "bootstrap.servers=" + join(source.Bootstrap(harness.ListenerClient)) + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("mirror's properties: %w", err)
	}
	if _, err := m.cli(ctx, "--create", "--mirror", mirror, "--mirror-config", file); err != nil {
		return err
	}
	if _, err := m.cli(ctx, "--start", "--mirror", mirror, "--topics", strings.Join(m.topics, ",")); err != nil {
		return err
	}
	return nil
}

// follow prints how far the mirror is, until its lag was below a second's records for
// some checks in a row.
func (m *mirroring) follow(ctx context.Context, checks int, doing string) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	good := 0
	for {
		source, dest, err := m.ends(ctx)
		if err != nil {
			m.log.Debug("ends", "error", err)
		}
		missing, total := lag(source, dest)
		if err == nil {
			m.say("%s: %d of %d offsets, lag %d", doing, total-missing, total, missing)
			// A second of records of twelve topics, and control records.
			if good++; missing > 2000 {
				good = 0
			}
			if good >= checks {
				break
			}
		}
		select {
		case <-ctx.Done():
			m.keepLogs(m.stack)
			if out, err := m.stack.CLI(context.WithoutCancel(ctx), "--describe", "--mirror", mirror); err == nil {
				m.show(out, 40)
			}
			return errors.New("the mirror has not caught up")
		case <-tick.C:
		}
	}
	out, err := m.cli(ctx, "--describe", "--mirror", mirror)
	if err != nil {
		return err
	}
	m.show(out, 8)
	return nil
}

// ends lists the high watermarks at both clusters. Topics that do not exist yet count as empty.
func (m *mirroring) ends(ctx context.Context) (source, dest kadm.ListedOffsets, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if source, err = m.source.ListEndOffsets(ctx, m.topics...); err != nil {
		return nil, nil, err
	}
	dest, err = m.dest.ListEndOffsets(ctx, m.topics...)
	return source, dest, err
}

// lag sums up what the destination lacks of the source's offsets.
func lag(source, dest kadm.ListedOffsets) (missing, total int64) {
	source.Each(func(s kadm.ListedOffset) {
		total += s.Offset
		if d, ok := dest.Lookup(s.Topic, s.Partition); ok && d.Err == nil {
			missing += max(0, s.Offset-d.Offset)
		} else {
			missing += s.Offset
		}
	})
	return missing, total
}

func (m *mirroring) consume(ctx context.Context) error {
	for _, committed := range []bool{true, false} {
		report, err := m.load.Check(ctx, workload.CheckConfig{Bootstrap: m.stack.Proxies(), Committed: committed, Prefix: true})
		if err != nil {
			m.keepLogs(m.stack)
			return fmt.Errorf("consumer of the mirror, read committed %t: %w", committed, err)
		}
		var records, open int64
		for _, t := range report.Topics {
			records += t.Records
			if t.Kind == workload.OpenTransaction {
				open = t.Records
			}
		}
		level := "read_uncommitted"
		if committed {
			level = "read_committed"
		}
		m.say("%-16s: %d records, all in order and as produced; %d of them in the topic with the open transaction", level, records, open)
	}
	return nil
}

func (m *mirroring) stop(ctx context.Context) error {
	if err := m.load.Stop(ctx); err != nil {
		return err
	}
	total := m.load.Total()
	m.say("produced %d records: %d committed, %d aborted, %d in a transaction that stays open", total.Acked, total.Committed, total.Aborted, total.Open)
	if err := m.drain(ctx); err != nil {
		return err
	}
	if _, err := m.cli(ctx, "--stop", "--mirror", mirror, "--topics", strings.Join(m.topics, ","), "--wait"); err != nil {
		return err
	}
	details, err := m.dest.ListTopics(ctx, target)
	if err != nil {
		return err
	}
	for _, p := range details[target].Partitions.Sorted() {
		m.say("%s-%d: leader %d at epoch %d, replicas %v", target, p.Partition, p.Leader, p.LeaderEpoch, p.Replicas)
		for _, r := range p.Replicas {
			if r >= stack.VirtualOffset {
				return fmt.Errorf("%s-%d still has the virtual replica %d", target, p.Partition, r)
			}
		}
	}
	return nil
}

// drain waits until nothing is missing at the destination.
func (m *mirroring) drain(ctx context.Context) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		source, dest, err := m.ends(ctx)
		if missing, total := lag(source, dest); err == nil && missing == 0 {
			m.say("the mirror has all %d offsets", total)
			return nil
		}
		select {
		case <-ctx.Done():
			m.keepLogs(m.stack)
			return errors.New("the mirror has not caught up with a source that is quiet")
		case <-tick.C:
		}
	}
}

func (m *mirroring) compare(ctx context.Context) error {
	// Before the first local write: what consumers see here is what was produced there. A
	// stop aborts the transaction that was left open, so what lies behind it is visible now.
	report, err := m.load.Check(ctx, workload.CheckConfig{Bootstrap: m.stack.Proxies(), Committed: true, OpenAborted: true})
	if err != nil {
		return fmt.Errorf("consumer of the former mirror: %w", err)
	}
	var records int64
	for _, t := range report.Topics {
		records += t.Records
	}
	m.say("a read_committed consumer finds all %d records", records)

	cl, err := kgo.NewClient(kgo.SeedBrokers(m.stack.Proxies()...), kgo.ClientID("demo-writer"), kgo.RecordDeliveryTimeout(20*time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	r, err := cl.ProduceSync(ctx, &kgo.Record{Topic: target, Value: []byte("written here after the mirror was stopped")}).First()
	if err != nil {
		return fmt.Errorf("write to %s after the stop: %w", target, err)
	}
	m.say("written to %s-%d at offset %d: the topic is an ordinary one now", r.Topic, r.Partition, r.Offset)

	out, err := m.cli(ctx, "--verify", "--mirror", mirror)
	m.show(out, 30)
	return err
}
