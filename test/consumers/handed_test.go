package consumers

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// reader reads a topic of one partition as a group, until so many records have come, and gives their
// offsets in the order in which they came. A lost position is an error.
type reader struct {
	name      string
	committed bool
	read      func(ctx context.Context, count int) ([]int64, error)
}

// readers are consumers of both group protocols, and of no group. librdkafka is left out where it cannot be had.
func (e *env) readers(t *testing.T, topic string) []reader {
	t.Helper()
	var out []reader
	install, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	python, err := harness.Librdkafka(install)
	switch {
	case err == nil:
		out = append(out, e.librdkafka(python, topic, true))
		if harness.Full() {
			out = append(out, e.librdkafka(python, topic, false))
		}
	case harness.Full():
		t.Error(err)
	default:
		t.Logf("without librdkafka: %v", err)
	}
	for _, protocol := range []string{"classic", "consumer"} {
		for _, committed := range []bool{true, false} {
			if !harness.Full() && committed != (protocol == "classic") {
				continue // two are enough for CI
			}
			name := fmt.Sprintf("java-%s-committed-%t-%s", protocol, committed, topic)
			out = append(out, reader{name, committed, func(ctx context.Context, count int) ([]int64, error) {
				records, err := e.dst.Cluster.Installation().Consume(ctx, harness.JavaConsume{
					Bootstrap: e.dst.Proxies(), Group: name, Topic: topic, ReadCommitted: committed, Count: count,
					Idle: 4 * patience, // each change of leaders may take one
					Properties: map[string]string{
						"group.protocol": protocol, "auto.offset.reset": "none",
						// Retries are quick, what is known of leaders is not looked up for its own sake.
						"metadata.max.age.ms": "300000", "default.api.timeout.ms": "60000",
					},
				})
				var offsets []int64
				for _, r := range records {
					offsets = append(offsets, r.Offset)
				}
				return offsets, err
			}})
		}
	}
	for _, committed := range []bool{true, false} {
		out = append(out, reader{fmt.Sprintf("franz-go-committed-%t", committed), committed, func(ctx context.Context, count int) ([]int64, error) {
			return e.franz(ctx, e.dst.Proxies(), topic, 0, committed, count)
		}})
	}
	return out
}

// librdkafka reads with the Python client.
func (e *env) librdkafka(python, topic string, committed bool) reader {
	level := map[bool]string{true: "read_committed", false: "read_uncommitted"}[committed]
	return reader{"librdkafka-" + level, committed, func(ctx context.Context, count int) ([]int64, error) {
		cmd := exec.CommandContext(ctx, python, filepath.Join("testdata", "consume.py"),
			strings.Join(e.dst.Proxies(), ","), topic, level, fmt.Sprint(count), fmt.Sprint((4 * patience).Seconds()))
		cmd.WaitDelay = 5 * time.Second
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		text, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, stderr.String())
		}
		var offsets []int64
		for _, f := range strings.Fields(string(text)) {
			offset, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				return nil, err
			}
			offsets = append(offsets, offset)
		}
		return offsets, nil
	}}
}

// franz reads a partition from its start; that a position is lost is an error.
func (e *env) franz(ctx context.Context, seeds []string, topic string, partition int32, committed bool, count int) ([]int64, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.DisableClientMetrics(), kgo.FetchMaxWait(500 * time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	}
	if committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	var out []int64
	for len(out) < count {
		fetches := cl.PollRecords(ctx, count-len(out))
		if err := fetches.Err(); err != nil {
			return out, fmt.Errorf("after %d of %d records: %w", len(out), count, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { out = append(out, r.Offset) })
	}
	return out, nil
}

// offsetsAt gives the offsets of all records of a quiet partition.
func (e *env) offsetsAt(t *testing.T, seeds []string, topic string, partition int32, committed bool) []int64 {
	t.Helper()
	opts := quick(kgo.SeedBrokers(seeds...), kgo.FetchMaxWait(500*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}),
		kgo.KeepControlRecords())
	list := kadm.NewClient(client(t, seeds)).ListEndOffsets
	if committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		list = kadm.NewClient(client(t, seeds)).ListCommittedOffsets
	}
	ends, err := list(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, partition)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out []int64
	for last := int64(-1); last < end.Offset-1; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %s up to %d, it ends at %d: %v", topic, last, end.Offset, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			last = r.Offset
			if !r.Attrs.IsControl() {
				out = append(out, r.Offset)
			}
		})
	}
	return out
}

// pace is the time between two steps of the writer.
const pace = 40 * time.Millisecond

// write writes so many steps to a topic of one partition, each a record, and now and then a transaction
// that is committed and one that is aborted. It gives the number of records that every reader sees, and
// of those that only readers of what is not committed see.
func write(ctx context.Context, seeds []string, topic string, steps int) (visible, aborted int, err error) {
	single, err := kgo.NewClient(quick(kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0))...)
	if err != nil {
		return 0, 0, err
	}
	defer single.Close()
	tx, err := kgo.NewClient(quick(kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic(topic), kgo.TransactionalID("tx-"+topic))...)
	if err != nil {
		return 0, 0, err
	}
	defer tx.Close()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := range steps {
		select {
		case <-ctx.Done():
			return visible, aborted, ctx.Err()
		case <-tick.C:
		}
		if err := single.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
			return visible, aborted, err
		}
		visible++
		if i%10 != 9 {
			continue
		}
		n, end := 2, kgo.TryCommit
		if i%20 == 19 {
			end = kgo.TryAbort
		}
		if err := tx.BeginTransaction(); err != nil {
			return visible, aborted, err
		}
		for range n {
			if err := tx.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint("t", i))).FirstErr(); err != nil {
				return visible, aborted, err
			}
		}
		if err := tx.EndTransaction(ctx, end); err != nil {
			return visible, aborted, err
		}
		if end == kgo.TryCommit {
			visible += n
		} else {
			aborted += n
		}
	}
	return visible, aborted, nil
}

// planned is what write makes of a number of steps.
func planned(steps int) (visible, aborted int) {
	for i := range steps {
		visible++
		switch {
		case i%20 == 19:
			aborted += 2
		case i%10 == 9:
			visible += 2
		}
	}
	return visible, aborted
}

// testHanded reads a topic while its leaders change and while it is handed back, record by record.
func (e *env) testHanded(t *testing.T) {
	const after = 40
	steps := 200
	if harness.Full() {
		steps = 2500
	}
	visible, aborted := planned(steps)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	readers := e.readers(t, handed)
	got := make([][]int64, len(readers))
	var group errgroup.Group
	for i, r := range readers {
		group.Go(func() error {
			count := visible + after
			if !r.committed {
				count += aborted
			}
			var err error
			if got[i], err = r.read(ctx, count); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			return nil
		})
	}
	written := make(chan error, 1)
	go func() {
		_, _, err := write(ctx, []string{e.srcAddr}, handed, steps)
		written <- err
	}()
	for _, change := range e.changes(t) {
		t.Logf("%s", change.name)
		change.do(t)
		e.whole(t, handed)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	e.mirrored(t, handed)
	wantCommitted := e.offsetsAt(t, []string{e.srcAddr}, handed, 0, true)
	want := e.offsetsAt(t, []string{e.srcAddr}, handed, 0, false)
	if len(wantCommitted) != visible || len(want) != visible+aborted {
		t.Fatalf("%d and %d records at the source, want %d and %d", len(wantCommitted), len(want), visible, visible+aborted)
	}
	e.cli(t, "--stop", "--wait", "--mirror", mirror, "--topics", handed)
	dst := client(t, e.dst.Proxies(), kgo.DefaultProduceTopic(handed))
	for i := range after {
		r := kgo.StringRecord(fmt.Sprint("after ", i))
		if err := dst.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		want, wantCommitted = append(want, r.Offset), append(wantCommitted, r.Offset)
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	for i, r := range readers {
		want := want
		if r.committed {
			want = wantCommitted
		}
		sameOffsets(t, r.name, want, got[i])
	}
}

func sameOffsets(t *testing.T, who string, want, got []int64) {
	t.Helper()
	if slices.Equal(want, got) {
		return
	}
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			t.Errorf("%s: record %d is at %d, want %d; around: %v", who, i, got[i], want[i], got[max(0, i-3):min(len(got), i+4)])
			return
		}
	}
	t.Errorf("%s: %d records, want %d", who, len(got), len(want))
}

// change is something that happens to who serves the topic.
type change struct {
	name string
	do   func(t *testing.T)
}

// changes are what leaders go through, in order. Afterwards all is whole again.
func (e *env) changes(t *testing.T) []change {
	restart := func(t *testing.T, broker int32, stop func() error) {
		t.Helper()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if err := e.dst.Sidecar(broker).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	killed := change{"the sidecar that leads is killed", func(t *testing.T) {
		c := e.leads(t, handed, 0)
		restart(t, c.Broker, c.Kill)
	}}
	if !harness.Full() {
		return []change{killed}
	}
	ended := change{"the sidecar that leads ends in an orderly way", func(t *testing.T) {
		c := e.leads(t, handed, 0)
		restart(t, c.Broker, func() error { return c.Terminate(t.Context()) })
	}}
	paused := change{"the sidecar that leads is paused", func(t *testing.T) {
		c := e.leads(t, handed, 0)
		if err := c.Process().Pause(); err != nil {
			t.Fatal(err)
		}
		harness.AwaitT(t, patience, "another one leads", func(ctx context.Context) error {
			topics, err := e.dstAdmin.ListTopics(ctx, handed)
			if err != nil {
				return err
			}
			if l := topics[handed].Partitions[0].Leader; l < 0 || l == c.VirtualID() {
				return fmt.Errorf("%d leads", l)
			}
			return nil
		})
		if err := c.Process().Resume(); err != nil {
			t.Fatal(err)
		}
	}}
	var restarted []change
	for _, n := range e.dst.Cluster.Brokers() {
		restarted = append(restarted, change{fmt.Sprintf("broker %d restarts", n.ID()), func(t *testing.T) {
			if err := n.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		}}, change{fmt.Sprintf("broker %d is killed and comes back", n.ID()), func(t *testing.T) {
			if err := n.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := n.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}})
	}
	source := change{"the source restarts, and a sidecar while it is away", func(t *testing.T) {
		n := e.src.Brokers()[0]
		if err := n.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := e.leads(t, handed, 0)
		restart(t, c.Broker, c.Kill)
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}}
	return slices.Concat([]change{killed, ended, paused}, restarted, []change{source, killed})
}
