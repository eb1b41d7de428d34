package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
	"github.com/cluster-mirroring/mirror-sidecar/test/workload"
)

// testStop stops the topics of a load whose producers have ended.
func (e *env) testStop(t *testing.T, mirror string, load *workload.Load) {
	names := load.TopicNames()
	before := map[string]map[int32]int32{}
	end := map[string]map[int32]int64{}
	for _, name := range names {
		before[name] = epochs(e.topicT(t, name))
		var err error
		if end[name], err = ends(t.Context(), e.srcAdmin, name); err != nil {
			t.Fatal(err)
		}
	}
	e.stopTopics(t, mirror, names...)

	described, err := e.describe(t.Context(), mirror)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		e.checkOrdinary(t, name, before[name], nil)
		for _, p := range described[name] {
			if p.LastMirrorOffset != end[name][p.PartitionIndex] {
				t.Errorf("%s-%d: last mirror offset %d, the source ends at %d", name, p.PartitionIndex, p.LastMirrorOffset, end[name][p.PartitionIndex])
			}
		}
		// Behind it there are markers of what was open; up to it nothing was lost.
		e.compare(t, name, true, end[name])
		e.sameConfigs(t, name)
	}
	e.sameReplicas(t, names...)
	// Read committed sees everything to the end: what was open is aborted.
	for _, seeds := range [][]string{e.dst.Proxies(), e.dst.Direct()} {
		if _, err := load.Check(t.Context(), workload.CheckConfig{Bootstrap: seeds, Committed: true, OpenAborted: true}); err != nil {
			t.Errorf("consumer at %v after the stop: %v", seeds, err)
		}
	}
	e.noOpenTransactions(t, names...)
	for _, name := range names {
		if strings.Contains(name, "transactional") || strings.Contains(name, "open") {
			e.localTransaction(t, name)
		}
		if !strings.Contains(name, "compacted") {
			write(t, e.writer(t, e.dst.Proxies()), name, 2, 4, "local")
			write(t, e.writer(t, e.dst.Direct()), name, 2, 4, "around")
		}
	}
	e.sameReplicas(t, names...)
}

// noOpenTransactions fails the test if a transaction holds back read committed consumers.
func (e *env) noOpenTransactions(t *testing.T, topics ...string) {
	t.Helper()
	all, err := e.dstAdmin.ListEndOffsets(t.Context(), topics...)
	if err != nil {
		t.Fatal(err)
	}
	stable, err := e.dstAdmin.ListCommittedOffsets(t.Context(), topics...)
	if err != nil {
		t.Fatal(err)
	}
	for name, parts := range all {
		for p, o := range parts {
			if s, ok := stable.Lookup(name, p); !ok || s.Offset != o.Offset {
				t.Errorf("%s-%d: the last stable offset is %d, the end %d", name, p, s.Offset, o.Offset)
			}
		}
	}
}

// localTransaction commits one and aborts one behind the proxies, and looks at what can be seen.
func (e *env) localTransaction(t *testing.T, topic string) {
	t.Helper()
	from, err := ends(t.Context(), e.dstAdmin, topic)
	if err != nil {
		t.Fatal(err)
	}
	cl := e.writer(t, e.dst.Proxies(), kgo.TransactionalID("local-"+topic))
	for _, how := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		write(t, cl, topic, 2, 4, fmt.Sprintf("commit %t", how))
		if err := cl.EndTransaction(t.Context(), how); err != nil {
			t.Fatalf("%s: end of a local transaction: %v", topic, err)
		}
	}
	got := map[string]int{}
	part := map[int32]kgo.Offset{}
	for p, end := range from {
		part[p] = kgo.NewOffset().At(end)
	}
	reader := e.client(t, e.dst.Proxies(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: part}), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer reader.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for n := 0; n < 4; n = got["true"] + got["false"] {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%s: %d of 4 local records: %v", topic, n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { got[fmt.Sprint(strings.HasPrefix(string(r.Value), "commit true"))]++ })
	}
	if got["true"] != 4 || got["false"] != 0 {
		t.Errorf("%s: read committed sees %v", topic, got)
	}
}

// testCycles starts and stops topics again and again, a new one and an empty one that
// exists with configs of its own.
func (e *env) testCycles(t *testing.T, mirror string) {
	const fresh, existing = "cycle-fresh", "cycle-existing"
	own := map[string]string{"max.message.bytes": "2000000", "min.insync.replicas": "1"}
	producer := e.writer(t, e.src.Bootstrap(harness.ListenerInternal))
	for _, topic := range []string{fresh, existing} {
		e.createSource(t, 2, topic, "retention.ms", "-1", "segment.bytes", "1048576")
		write(t, producer, topic, 2, 50, "before")
	}
	createTopic(t, e.dstClient, 2, int16(len(e.dst.Cluster.Brokers())), existing, "max.message.bytes", "2000000", "min.insync.replicas", "1")
	for round := range 3 {
		e.mirrorTopics(t, mirror, fresh, existing)
		for _, topic := range []string{fresh, existing} {
			write(t, producer, topic, 2, 20, fmt.Sprintf("round %d", round))
		}
		e.waitMirrored(t, fresh, existing)
		before := map[string]map[int32]int32{}
		for _, topic := range []string{fresh, existing} {
			d := e.topicT(t, topic)
			before[topic] = epochs(d)
			for _, p := range d.Partitions.Sorted() {
				if p.Leader < stack.VirtualOffset || p.Replicas[0] < stack.VirtualOffset {
					t.Errorf("round %d: %s-%d is led by %d of %v", round, topic, p.Partition, p.Leader, p.Replicas)
				}
			}
			if have := topicConfigs(t, e.dstClient, topic); have["max.message.bytes"] != "0" || have["unclean.leader.election.enable"] != "false" {
				t.Errorf("round %d: %s is not locked: %v", round, topic, have)
			}
		}
		e.stopTopics(t, mirror, fresh, existing)
		e.checkOrdinary(t, fresh, before[fresh], nil)
		e.checkOrdinary(t, existing, before[existing], own)
		e.sameConfigs(t, existing)
		e.sameReplicas(t, fresh, existing)
		e.sameAsSource(t, fresh)
		e.sameAsSource(t, existing)
		// The source goes on while nothing is mirrored.
		write(t, producer, fresh, 2, 20, "between")
	}
}

// testStartAfterLocalWrites starts a stopped topic that was written to here.
func (e *env) testStartAfterLocalWrites(t *testing.T, mirror string) {
	const topic = "local-writes"
	producer := e.writer(t, e.src.Bootstrap(harness.ListenerInternal))
	e.createSource(t, 1, topic, "retention.ms", "-1")
	write(t, producer, topic, 1, 30, "source")
	e.mirrorTopics(t, mirror, topic)
	e.waitMirrored(t, topic)
	e.stopTopics(t, mirror, topic)
	const local = 7
	write(t, e.writer(t, e.dst.Proxies()), topic, 1, local, "local")
	write(t, producer, topic, 1, 3, "source goes on")
	e.sameReplicas(t, topic)
	before := e.logs(t, topic)

	// Refused by the command or soon after, with the number of records that stand in the way.
	_, refusal := e.tryCLI(t, "--start", "--mirror", mirror, "--topics", topic)
	said := fmt.Sprint(refusal)
	if refusal == nil {
		eventually(t, "the start is refused", func(ctx context.Context) error {
			d, err := e.describe(ctx, mirror)
			if err != nil {
				return err
			}
			for _, p := range d[topic] {
				said = text(p.ErrorMessage)
				if p.State != stateFailed || said == "" {
					return fmt.Errorf("state %d, %q", p.State, said)
				}
			}
			return nil
		})
	}
	if !strings.Contains(said, fmt.Sprint(local)) {
		t.Errorf("refused with %q, want the number of records, %d", said, local)
	}
	t.Logf("start after local writes: %s", said)
	eventually(t, "the topic is handed back", func(ctx context.Context) error {
		d, err := e.topic(ctx, topic)
		if err != nil {
			return err
		}
		p := d.Partitions[0]
		if p.Leader < 0 || p.Leader >= stack.VirtualOffset || slices.ContainsFunc(p.Replicas, func(r int32) bool { return r >= stack.VirtualOffset }) {
			return fmt.Errorf("leader %d of %v", p.Leader, p.Replicas)
		}
		return nil
	})
	e.unchanged(t, before, topic)

	e.cli(t, "--start", "--mirror", mirror, "--topics", topic, "--allow-truncate")
	e.waitState(t, mirror, stateMirroring, topic)
	write(t, producer, topic, 1, 5, "after")
	e.waitMirrored(t, topic)
	e.sameReplicas(t, topic)
	e.sameAsSource(t, topic)
}

// testStopWithDeadBroker stops a topic while one of three real replicas is dead.
func (e *env) testStopWithDeadBroker(t *testing.T, mirror string) {
	const topic = "dead-broker"
	producer := e.writer(t, e.src.Bootstrap(harness.ListenerInternal))
	// One partition for each virtual broker: also the one beside the dead broker leads.
	const partitions = 3
	e.createSource(t, partitions, topic, "retention.ms", "-1")
	write(t, producer, topic, partitions, 100, "before")
	e.mirrorTopics(t, mirror, topic)
	e.waitMirrored(t, topic)
	before := epochs(e.topicT(t, topic))

	var leaders []int32
	for _, p := range e.topicT(t, topic).Partitions.Sorted() {
		leaders = append(leaders, p.Leader)
	}
	brokers := e.dst.Cluster.Brokers()
	dead := brokers[len(brokers)-1]
	if !slices.Contains(leaders, dead.ID()+stack.VirtualOffset) {
		t.Errorf("leaders %v, want one beside broker %d", leaders, dead.ID())
	}
	if err := dead.Kill(); err != nil {
		t.Fatal(err)
	}
	write(t, producer, topic, partitions, 100, "while dead")
	e.waitMirrored(t, topic)
	end, err := ends(t.Context(), e.srcAdmin, topic)
	if err != nil {
		t.Fatal(err)
	}
	e.stopTopics(t, mirror, topic)
	e.checkOrdinary(t, topic, before, nil)
	e.compareOn(t, topic, true, end, brokers[:len(brokers)-1])
	write(t, e.writer(t, e.dst.Direct()), topic, partitions, 10, "local")

	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if err := dead.Start(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the dead broker is a replica in sync again", func(ctx context.Context) error {
		d, err := e.topic(ctx, topic)
		if err != nil {
			return err
		}
		for _, p := range d.Partitions.Sorted() {
			if len(p.Replicas) != len(brokers) || !slices.Contains(p.ISR, dead.ID()) {
				return fmt.Errorf("%s-%d: replicas %v, in sync %v", topic, p.Partition, p.Replicas, p.ISR)
			}
		}
		return nil
	})
	e.compare(t, topic, true, end)
	e.sameReplicas(t, topic)
}

// testStopWithDeadSource stops topics while their source is dead: one whose leaders have
// been mirroring, one whose leaders have come since and could not ask the source for
// anything. It is the last test: the source does not come back.
func (e *env) testStopWithDeadSource(t *testing.T, mirror string) {
	const leading, waiting, late = "dead-source", "dead-source-restart", "dead-source-late"
	producer := e.writer(t, e.src.Bootstrap(harness.ListenerInternal))
	before := map[string]map[int32]int32{}
	end := map[string]map[int32]int64{}
	for _, topic := range []string{leading, waiting, late} {
		e.createSource(t, 2, topic, "retention.ms", "-1")
		write(t, producer, topic, 2, 200, "before")
	}
	e.mirrorTopics(t, mirror, leading, waiting)
	for _, topic := range []string{leading, waiting} {
		e.waitMirrored(t, topic)
		before[topic] = epochs(e.topicT(t, topic))
		var err error
		if end[topic], err = ends(t.Context(), e.srcAdmin, topic); err != nil {
			t.Fatal(err)
		}
	}
	check := func(topic string) {
		t.Helper()
		e.stopTopics(t, mirror, topic)
		e.checkOrdinary(t, topic, before[topic], nil)
		e.compare(t, topic, true, end[topic]) // the source's files are still there
		e.sameReplicas(t, topic)
		described, err := e.describe(t.Context(), mirror)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range described[topic] {
			if p.LastMirrorOffset != end[topic][p.PartitionIndex] {
				t.Errorf("%s-%d: last mirror offset %d, the source ended at %d", topic, p.PartitionIndex, p.LastMirrorOffset, end[topic][p.PartitionIndex])
			}
		}
		write(t, e.writer(t, e.dst.Proxies()), topic, 2, 10, "local")
		e.localTransaction(t, topic)
	}
	if err := e.src.Brokers()[0].Kill(); err != nil {
		t.Fatal(err)
	}
	check(leading)

	for _, c := range e.dst.Sidecars {
		if err := c.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.dst.StartSidecars(ctx); err != nil {
		t.Fatal(err)
	}
	// Until a leader has asked the source it answers nobody, and the state says why.
	eventually(t, "the state says that the source is away", func(ctx context.Context) error {
		d, err := e.describe(ctx, mirror)
		if err != nil {
			return err
		}
		for _, p := range d[waiting] {
			if said := text(p.Detail) + " " + text(p.ErrorMessage); !strings.Contains(strings.ToLower(said), "source") {
				return fmt.Errorf("%s-%d: state %d, %q", waiting, p.PartitionIndex, p.State, said)
			}
		}
		return nil
	})
	e.refused(t, []string{"source", "does not answer"}, "--start", "--mirror", mirror, "--topics", late)
	if e.exists(t, late) {
		t.Errorf("%s was created", late)
	}
	check(waiting)
}
