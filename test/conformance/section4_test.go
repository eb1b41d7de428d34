package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// section4 tests the life of a mirror. What goes in the other direction is in
// failback_test.go, what needs something to die in alone_test.go.
func section4() []row {
	return slices.Concat([]row{
		{proves: "C4.1 C4.2 states, and a stop from each", run: lifeStates},
		{proves: "C4.7 A2.3 read only in FAILED", run: lifeReadOnlyFailed},
		{proves: "C4.8 patterns are kept", run: lifePatternsKept},
		{proves: "C4.9 C4.10 a topic that is missing here", run: lifeCreated},
		{proves: "C4.11 A3.2 an existing topic", run: lifeExisting},
		{proves: "C4.4 C4.12 C4.13 records in the way", run: lifeConsent},
		{proves: "C4.14 discovery", run: lifeDiscovery},
		{proves: "C4.15 partition growth", run: lifeGrowth},
		{proves: "C4.16 C4.17 deleted and recreated at the source", run: lifeSourceGone},
		{proves: "C4.19 C4.20 pause and resume", run: lifePause},
		{proves: "C4.41 C4.42 log start", run: lifeLogStart},
		{proves: "C4.21 C4.22 C4.23 C4.24 C4.25 C4.26 stop", run: lifeStop},
		{proves: "C4.30 C4.31 stop with patterns", run: lifeStopPatterns},
		{proves: "C4.33 delete leaves nothing", run: lifeDelete},
		{proves: "C4.35 producer ids", run: lifeProducerIDs},
		{proves: "C4.36 producer reset", run: lifeReset},
	}, failback(), aloneLife())
}

func lifeStates(t *testing.T, e *env) {
	m := e.mirror(t, "c4-1")
	seen := map[int8]bool{}
	// MIRRORING, PAUSED and FAILED can be waited for; the ones in between are seen or not.
	note := func(topic string) {
		for _, p := range e.describe(t, m).topic(topic).Partitions {
			seen[p.State] = true
		}
	}
	topics := map[string]int8{"c4-1.early": unknown, "c4-1.mirroring": mirroring, "c4-1.pausing": pausing, "c4-1.paused": paused, "c4-1.failed": failed}
	for name := range topics {
		if name == "c4-1.failed" {
			e.inTheWay(t, m, name, 3, 1)
		} else {
			e.topic(t, name, 2, 4)
		}
	}
	e.do(t, vStart, m, "c4-1.mirroring", "c4-1.pausing", "c4-1.paused", "c4-1.failed")
	note("c4-1.mirroring")
	e.waitState(t, m, mirroring, "c4-1.mirroring", "c4-1.pausing", "c4-1.paused")
	e.waitFailed(t, m, "c4-1.failed")
	e.do(t, vPause, m, "c4-1.paused")
	e.waitState(t, m, paused, "c4-1.paused")
	e.do(t, vPause, m, "c4-1.pausing")
	e.do(t, vStart, m, "c4-1.early") // stopped while it is made, at the latest in LOG_TRUNCATION or MIRRORING
	for name, want := range topics {
		note(name)
		if want == mirroring || want == paused || want == failed {
			for _, p := range e.describe(t, m).topic(name).Partitions {
				if p.State != want {
					t.Errorf("%s-%d is in state %d when its stop is asked for, want %d", name, p.PartitionIndex, p.State, want)
				}
			}
		}
		e.do(t, vStop, m, name)
		note(name)
	}
	for name := range topics {
		if name == "c4-1.early" && len(e.describe(t, m).topic(name).Partitions) == 0 {
			continue // it was stopped before it was made
		}
		e.waitState(t, m, stopped, name)
		note(name)
	}
	for s := range seen {
		if !slices.Contains([]int8{unknown, logTruncation, mirroring, pausing, paused, stopping, stopped, failed}, s) {
			t.Errorf("there is no state %d", s)
		}
	}
	for _, s := range []int8{mirroring, paused, failed, stopped} {
		if !seen[s] {
			t.Errorf("state %d was never described", s)
		}
	}
}

func lifeReadOnlyFailed(t *testing.T, e *env) {
	m := e.mirrored(t, "c4-7", 1, 3)
	if _, err := e.srcAdmin.DeleteTopic(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	e.waitFailed(t, m, m)
	for _, seeds := range [][]string{e.dst.Proxies(), e.dst.Direct()} {
		if err := produce(t.Context(), once(t, seeds), m, 1, 1, "no"); err == nil {
			t.Errorf("a write at %v was taken", seeds)
		}
	}
	// Start of a FAILED topic tries again; the source's is not there.
	if err := e.send(t, vStart, m, m); err == nil {
		e.waitFailed(t, m, m)
	}
	e.ended(t, m, m)
	if err := produce(t.Context(), writer(t, e.dst.Proxies()), m, 1, 1, "yes"); err != nil {
		t.Errorf("after a stop: %v", err)
	}
	if got := endsT(t, e.dstAdmin, m)[0]; got != 4 {
		t.Errorf("the topic ends at %d, want 4", got)
	}
}

// startPatterns sends patterns.
func (e *env) startPatterns(t *testing.T, mirror string, include, exclude []string) {
	t.Helper()
	req := protocol.NewStartMirrorTopicsRequest()
	req.MirrorName, req.IncludePatterns, req.ExcludePatterns = mirror, include, exclude
	code, message, topics := answer(t, ask[*protocol.StartMirrorTopicsResponse](t, e, 0, &req))
	if err := protocol.ErrorForCode(code, message); err != nil {
		t.Fatal(err)
	}
	for _, r := range topics {
		if err := protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage); err != nil {
			t.Errorf("%s: %v", r.Name, err)
		}
	}
}

// patterns gives what is kept with a mirror.
func (e *env) patterns(t *testing.T, mirror string) (include, exclude string) {
	t.Helper()
	c := describeConfigs(t, e.dst.Sidecars[1].Proxy, mirrorResource, mirror)
	in, ex := c["mirror.topics.include"], c["mirror.topics.exclude"]
	return text(in.Value), text(ex.Value)
}

func lifePatternsKept(t *testing.T, e *env) {
	m := e.mirror(t, "c4-8")
	e.startPatterns(t, m, []string{`c4-8\.a.*`, `c4-8\.b.*`}, []string{`.*-private`})
	include, exclude := e.patterns(t, m)
	if include != `c4-8\.a.*,c4-8\.b.*` {
		t.Errorf("include patterns %q", include)
	}
	// What excludes internal topics by default stays.
	if !slices.Contains(strings.Split(exclude, ","), `.*-private`) || !slices.Contains(strings.Split(exclude, ","), `__.*`) {
		t.Errorf("exclude patterns %q", exclude)
	}
	e.topic(t, "c4-8.a1", 1, 2)
	e.waitState(t, m, mirroring, "c4-8.a1")
}

func lifeCreated(t *testing.T, e *env) {
	m := e.mirror(t, "c4-9")
	const topic = "c4-9"
	e.topic(t, topic, 3, 6)
	// Somebody who writes to it all the time, around the proxies, with no record taken.
	ctx, cancel := context.WithCancel(t.Context())
	taken := make(chan int, 1)
	go func() {
		n := 0
		cl, err := kgo.NewClient(append(quick(), kgo.SeedBrokers(e.dst.Direct()...), kgo.DisableIdempotentWrite(), kgo.RecordRetries(0),
			kgo.RequiredAcks(kgo.LeaderAck()), kgo.RecordDeliveryTimeout(time.Second), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
		if err == nil {
			defer cl.Close()
			for ctx.Err() == nil {
				if cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("rogue")}).FirstErr() == nil {
					n++
				}
			}
		}
		taken <- n
	}()
	e.started(t, m, topic)
	e.copied(t, topic)
	cancel()
	if n := <-taken; n > 0 {
		t.Errorf("%d writes were taken while the topic was made", n)
	}
	d := e.here(t, topic)
	if len(d.Partitions) != 3 {
		t.Errorf("%d partitions, want 3", len(d.Partitions))
	}
	for _, p := range d.Partitions.Sorted() {
		var v, r int
		for i, id := range p.Replicas {
			if virtual(id) {
				v++
				if i >= 2 {
					t.Errorf("partition %d: virtual replicas are not the first of %v", p.Partition, p.Replicas)
				}
			} else {
				r++
			}
		}
		if v != 2 || r != 2 {
			t.Errorf("partition %d: replicas %v, want two virtual ones and the default of two real ones", p.Partition, p.Replicas)
		}
	}
	c := e.configs(t, topic)
	if c["max.message.bytes"] != "0" || c["unclean.leader.election.enable"] != "false" {
		t.Errorf("the write lock: %v", c)
	}
	e.equal(t, topic)
}

func lifeExisting(t *testing.T, e *env) {
	m := e.mirror(t, "c4-11")
	const topic = "c4-11"
	createTopic(t, e.dstClient, 1, 2, topic, "max.message.bytes", "2000000")
	e.topic(t, topic, 1, 10, "segment.bytes", "2097152")
	e.started(t, m, topic)
	if c := e.configs(t, topic); c["retention.ms"] != "-1" || c["segment.bytes"] != "2097152" || c["max.message.bytes"] != "0" {
		t.Errorf("configs while it mirrors: %v", c)
	}
	e.copied(t, topic)
	e.equal(t, topic)
	e.ended(t, m, topic)
	if c := e.configs(t, topic); c["max.message.bytes"] != "2000000" {
		t.Errorf("configs after the stop: %v", c)
	}
}

func lifeConsent(t *testing.T, e *env) {
	m := e.mirror(t, "c4-12")
	// Nothing is known of these records: they are counted at once.
	const foreign = "c4-12.foreign"
	createTopic(t, e.dstClient, 1, 2, foreign)
	if err := produce(t.Context(), writer(t, e.dst.Direct()), foreign, 1, 13, "foreign"); err != nil {
		t.Fatal(err)
	}
	e.topic(t, foreign, 1, 3)
	if err := e.send(t, vStart, m, foreign); err == nil {
		e.waitFailed(t, m, foreign, "13")
	} else if !strings.Contains(err.Error(), "13") {
		t.Errorf("refused with %v", err)
	}
	if got := endsT(t, e.dstAdmin, foreign)[0]; got != 13 {
		t.Errorf("the topic ends at %d, want 13", got)
	}
	const topic = "c4-12"
	e.inTheWay(t, m, topic, 17, 4)
	before := e.logs(t, topic)
	e.do(t, vStart, m, topic)
	p := e.waitFailed(t, m, topic, "17")
	if p.RetryAttempt < 0 {
		t.Errorf("attempts %d", p.RetryAttempt)
	}
	eventually(t, "the topic is handed back", func(ctx context.Context) error {
		d, err := detail(ctx, e.dstAdmin, topic)
		if err != nil {
			return err
		}
		for _, p := range d.Partitions {
			if virtual(p.Leader) || slices.ContainsFunc(p.Replicas, virtual) {
				return fmt.Errorf("led by %d of %v", p.Leader, p.Replicas)
			}
		}
		return nil
	})
	e.unchanged(t, before, topic)
	// The state says what it was before and why.
	s := e.stateRecord(t, m, topic, 0)
	if s.State != failed || s.PreviousState == failed || !strings.Contains(text(s.ErrorMessage), "17") {
		t.Errorf("the state on record is %+v, %q", s, text(s.ErrorMessage))
	}
	req := protocol.NewStartMirrorTopicsRequest()
	req.MirrorName, req.Topics, req.AllowTruncate = m, []string{topic}, true
	if err := sendAt(t, e.dst.Sidecars[0].Proxy, &req, topic); err != nil {
		t.Fatal(err)
	}
	e.waitState(t, m, mirroring, topic)
	e.copied(t, topic)
	e.equal(t, topic)
}

// logs reads the logs of all replicas of a topic; equal ones are equal in every byte.
func (e *env) logs(t *testing.T, topic string) map[string]string {
	t.Helper()
	d := e.here(t, topic)
	for _, p := range d.Partitions.Sorted() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := e.dst.Cluster.WaitSameLogs(ctx, topic, p.Partition, harness.Compare{})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
	}
	out := map[string]string{}
	for _, n := range e.dst.Cluster.Brokers() {
		for _, p := range d.Partitions.Sorted() {
			l, err := n.ReadLog(topic, p.Partition)
			if err != nil {
				t.Fatal(err)
			}
			sums := ""
			for _, b := range l.Batches {
				sums += fmt.Sprintf("%d:%x ", b.BaseOffset, b.Sum[:4])
			}
			out[fmt.Sprintf("%s-%d on broker %d", topic, p.Partition, n.ID())] = fmt.Sprintf("end %d: %s", l.EndOffset(), sums)
		}
	}
	return out
}

func (e *env) unchanged(t *testing.T, before map[string]string, topic string) {
	t.Helper()
	after := e.logs(t, topic)
	for k, was := range before {
		if after[k] != was {
			t.Errorf("the log of %s has changed:\nbefore %s\nafter  %s", k, was, after[k])
		}
	}
}

func lifeDiscovery(t *testing.T, e *env) {
	m := e.mirror(t, "c4-14")
	e.topic(t, "c4-14.old", 1, 3)
	e.startPatterns(t, m, []string{`c4-14\..*`}, []string{`c4-14\.not.*`})
	e.waitState(t, m, mirroring, "c4-14.old")
	e.topic(t, "c4-14.not", 1, 3)
	e.topic(t, "other-c4-14.x", 1, 3)
	e.topic(t, "c4-14.new", 2, 3)
	e.waitState(t, m, mirroring, "c4-14.new")
	e.copied(t, "c4-14.new")
	for _, topic := range e.describe(t, m).Topics {
		if topic.TopicName != "c4-14.old" && topic.TopicName != "c4-14.new" {
			t.Errorf("%s is mirrored", topic.TopicName)
		}
	}
}

func lifeGrowth(t *testing.T, e *env) {
	m := e.mirrored(t, "c4-15", 1, 3)
	if r, err := e.srcAdmin.UpdatePartitions(t.Context(), 3, m); err != nil || r.Error() != nil {
		t.Fatal(err, r.Error())
	}
	eventually(t, "the source's broker knows of three partitions", func(ctx context.Context) error {
		listed, err := e.srcAdmin.ListTopics(ctx, m)
		if n := len(listed[m].Partitions); err == nil && n != 3 {
			err = fmt.Errorf("%d partitions", n)
		}
		return err
	})
	e.write(t, m, 3, 9)
	eventually(t, "three partitions mirror", func(ctx context.Context) error {
		d := e.describe(t, m).topic(m)
		if len(d.Partitions) != 3 {
			return fmt.Errorf("%d partitions", len(d.Partitions))
		}
		for _, p := range d.Partitions {
			if p.State != mirroring {
				return fmt.Errorf("partition %d is in state %d", p.PartitionIndex, p.State)
			}
		}
		return nil
	})
	e.copied(t, m)
	e.equal(t, m)
}

func lifeSourceGone(t *testing.T, e *env) {
	m := e.mirror(t, "c4-16")
	e.topic(t, "c4-16.deleted", 1, 3)
	e.topic(t, "c4-16.anew", 1, 3)
	e.started(t, m, "c4-16.deleted", "c4-16.anew")
	e.copied(t, "c4-16.deleted", "c4-16.anew")
	for _, name := range []string{"c4-16.deleted", "c4-16.anew"} {
		if r, err := e.srcAdmin.DeleteTopic(t.Context(), name); err != nil || r.Err != nil {
			t.Fatal(err, r.Err)
		}
	}
	eventually(t, "deleted", func(ctx context.Context) error {
		if _, err := detail(ctx, e.srcAdmin, "c4-16.anew"); err == nil {
			return errors.New("it is still there")
		}
		return nil
	})
	e.topic(t, "c4-16.anew", 1, 7)
	for _, name := range []string{"c4-16.deleted", "c4-16.anew"} {
		e.waitFailed(t, m, name, name)
		if err := produce(t.Context(), once(t, e.dst.Proxies()), name, 1, 1, "no"); err == nil {
			t.Errorf("%s is writable", name)
		}
		if got := endsT(t, e.dstAdmin, name)[0]; got != 3 {
			t.Errorf("%s ends at %d, want 3", name, got)
		}
	}
}

func lifePause(t *testing.T, e *env) {
	m := e.mirrored(t, "c4-19", 1, 3)
	e.do(t, vPause, m, m)
	e.waitState(t, m, paused, m)
	e.write(t, m, 1, 10)
	for _, seeds := range [][]string{e.dst.Proxies(), e.dst.Direct()} {
		if err := produce(t.Context(), once(t, seeds), m, 1, 1, "no"); err == nil {
			t.Errorf("a write at %v was taken", seeds)
		}
	}
	// Topic configs do not follow the source either.
	if err := alterConfigs(t, e.src.Bootstrap(harness.ListenerInternal)[0], 2, m, "retention.bytes", "987654321"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second) // more than a refresh: nothing must happen
	if got := endsT(t, e.dstAdmin, m)[0]; got != 3 {
		t.Errorf("%d records were copied while the topic was paused", got-3)
	}
	if c := e.configs(t, m); c["retention.bytes"] != "" {
		t.Errorf("configs were copied while the topic was paused: %v", c)
	}
	before := e.logs(t, m)
	e.do(t, vResume, m, m)
	e.waitState(t, m, mirroring, m)
	e.copied(t, m)
	e.equal(t, m)
	for k, v := range e.logs(t, m) {
		_, was, _ := strings.Cut(before[k], ": ")
		if !strings.Contains(v, was) {
			t.Errorf("the log of %s was cut: before %s, after %s", k, before[k], v)
		}
	}
}

func lifeStop(t *testing.T, e *env) {
	m := e.mirror(t, "c4-21")
	const topic = "c4-21"
	e.topic(t, topic, 2, 20, "segment.bytes", "3145728")
	// A transaction that is open while the mirror stops.
	tx := writer(t, e.src.Bootstrap(harness.ListenerInternal), kgo.TransactionalID("c4-21"))
	if err := tx.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := produce(t.Context(), tx, topic, 2, 4, "open"); err != nil {
		t.Fatal(err)
	}
	e.started(t, m, topic)
	e.copied(t, topic)
	there := endsT(t, e.srcAdmin, topic)
	before := e.here(t, topic)
	e.ended(t, m, topic)

	for _, p := range e.describe(t, m).topic(topic).Partitions {
		if p.LastMirrorOffset != there[p.PartitionIndex] || p.LastMirrorEpoch < 0 {
			t.Errorf("partition %d: last mirror offset %d and epoch %d, want offset %d", p.PartitionIndex, p.LastMirrorOffset, p.LastMirrorEpoch, there[p.PartitionIndex])
		}
		if l := e.lineageRecord(t, m, topic, p.PartitionIndex); l.LastMirrorOffset != p.LastMirrorOffset || len(l.History) == 0 {
			t.Errorf("partition %d: on record %+v", p.PartitionIndex, l)
		}
	}
	after := e.here(t, topic)
	for _, p := range after.Partitions.Sorted() {
		if p.LeaderEpoch <= before.Partitions[p.Partition].LeaderEpoch {
			t.Errorf("partition %d: leader epoch %d, before %d", p.Partition, p.LeaderEpoch, before.Partitions[p.Partition].LeaderEpoch)
		}
		if virtual(p.Leader) || slices.ContainsFunc(p.Replicas, virtual) || len(p.Replicas) != 2 {
			t.Errorf("partition %d: led by %d of %v", p.Partition, p.Leader, p.Replicas)
		}
		// On every replica, with the marker at the new epoch after what was mirrored.
		for _, n := range e.dst.Cluster.Brokers() {
			eventually(t, "replicas are complete", func(context.Context) error {
				l, err := n.ReadLog(topic, p.Partition)
				if err != nil {
					return err
				}
				last := l.Batches[len(l.Batches)-1]
				if l.EndOffset() != there[p.Partition]+1 || !last.Control || last.LeaderEpoch < p.LeaderEpoch {
					return fmt.Errorf("broker %d, partition %d: end %d, last batch %+v; want an ABORT marker at %d of epoch %d", n.ID(), p.Partition, l.EndOffset(), last, there[p.Partition], p.LeaderEpoch)
				}
				return nil
			})
		}
	}
	c := e.configs(t, topic)
	for _, key := range lockKeys() {
		if v, set := c[key]; set {
			t.Errorf("%s is %q after the stop", key, v)
		}
	}
	if c["retention.ms"] != "-1" || c["segment.bytes"] != "3145728" {
		t.Errorf("the topic's own configs are %v", c)
	}
	all, stable := endsT(t, e.dstAdmin, topic), map[int32]int64{}
	committed, err := e.dstAdmin.ListCommittedOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	committed.Each(func(o kadm.ListedOffset) { stable[o.Partition] = o.Offset })
	if fmt.Sprint(all) != fmt.Sprint(stable) {
		t.Errorf("ends %v, last stable offsets %v", all, stable)
	}
	if err := produce(t.Context(), writer(t, e.dst.Proxies()), topic, 2, 4, "mine"); err != nil {
		t.Errorf("a write after the stop: %v", err)
	}
	if err := produce(t.Context(), writer(t, e.dst.Direct()), topic, 2, 4, "mine"); err != nil {
		t.Errorf("a write after the stop, around the proxies: %v", err)
	}
	if err := tx.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Errorf("the source's transaction: %v", err)
	}
}

func lifeStopPatterns(t *testing.T, e *env) {
	m := e.mirror(t, "c4-30")
	for _, n := range []string{"c4-30.a1", "c4-30.a2", "c4-30.b1"} {
		e.topic(t, n, 1, 2)
	}
	e.startPatterns(t, m, []string{`c4-30\.a.*`, `c4-30\.b.*`}, nil)
	e.waitState(t, m, mirroring, "c4-30.a1", "c4-30.a2", "c4-30.b1")
	req := protocol.NewStopMirrorTopicsRequest()
	req.MirrorName, req.Patterns = m, []string{`c4-30\.a.*`}
	code, message, topics := answer(t, ask[*protocol.StopMirrorTopicsResponse](t, e, 0, &req))
	if err := protocol.ErrorForCode(code, message); err != nil || len(topics) != 2 {
		t.Errorf("answer %v with %d topics", err, len(topics))
	}
	e.waitState(t, m, stopped, "c4-30.a1", "c4-30.a2")
	include, exclude := e.patterns(t, m)
	if include != `c4-30\.b.*` || !slices.Contains(strings.Split(exclude, ","), `c4-30\.a.*`) {
		t.Errorf("include %q, exclude %q", include, exclude)
	}
	e.topic(t, "c4-30.a3", 1, 2) // is not discovered any more
	e.topic(t, "c4-30.b2", 1, 2)
	e.waitState(t, m, mirroring, "c4-30.b2")
	if d := e.describe(t, m).topic("c4-30.a3"); len(d.Partitions) > 0 {
		t.Error("a topic that matches exclude is mirrored")
	}
	// A running topic that was started by its name and matches exclude from now on.
	e.topic(t, "x-c4-30", 1, 2)
	e.started(t, m, "x-c4-30")
	req.Patterns = []string{`x-.*`}
	code, message, _ = answer(t, ask[*protocol.StopMirrorTopicsResponse](t, e, 1, &req))
	if err := protocol.ErrorForCode(code, message); err != nil {
		t.Error(err)
	}
	e.waitState(t, m, stopped, "x-c4-30")
	if p := e.partition(t, m, "c4-30.b1", 0); p.State != mirroring {
		t.Errorf("a topic that matches include is in state %d", p.State)
	}
}

func lifeDelete(t *testing.T, e *env) {
	m := e.mirrored(t, "c4-33", 1, 3)
	e.ended(t, m, m)
	if got := e.recordsOf(t, m); len(got) < 4 { // mirror, topic, state, lineage
		t.Errorf("before the delete there are records %v", got)
	}
	req := protocol.NewDeleteClusterMirrorRequest()
	req.MirrorName = m
	r := ask[*protocol.DeleteClusterMirrorResponse](t, e, 0, &req)
	if err := protocol.ErrorForCode(r.ErrorCode, r.ErrorMessage); err != nil {
		t.Fatal(err)
	}
	if got := e.recordsOf(t, m); len(got) > 0 {
		t.Errorf("after the delete there are records %v", got)
	}
	again := ask[*protocol.CreateClusterMirrorResponse](t, e, 1, createRequest(m, e.sourceConfig()))
	if err := protocol.ErrorForCode(again.ErrorCode, again.ErrorMessage); err != nil {
		t.Errorf("the name is not free: %v", err)
	}
}

func lifeProducerIDs(t *testing.T, e *env) {
	m := e.mirror(t, "c4-35")
	createTopic(t, e.srcClient, 1, 1, m, "retention.ms", "-1")
	if err := produce(t.Context(), writer(t, e.src.Bootstrap(harness.ListenerInternal)), m, 1, 3, "idempotent"); err != nil {
		t.Fatal(err)
	}
	e.started(t, m, m)
	e.copied(t, m)
	there, err := e.src.Brokers()[0].ReadLog(m, 0)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the batches are here", func(context.Context) error {
		here, err := e.dst.Cluster.Brokers()[0].ReadLog(m, 0)
		if err != nil {
			return err
		}
		if len(here.Batches) != len(there.Batches) {
			return fmt.Errorf("%d of %d batches", len(here.Batches), len(there.Batches))
		}
		for i, b := range here.Batches {
			was := there.Batches[i].ProducerID
			if was < 0 {
				t.Fatal("the source's batch has no producer id")
			}
			if tag := int64(batch.Tag(e.src.ID())); tag == 0 || b.ProducerID != tag<<48|was {
				t.Errorf("producer id %d at the source is %d here, want the tag %d", was, b.ProducerID, tag)
			}
		}
		return nil
	})
}

func lifeReset(t *testing.T, e *env) {
	for name, want := range map[string]bool{"c4-36.on": true, "c4-36.off": false} {
		m := e.mirror(t, name, "mirror.stop.pid.reset", fmt.Sprint(want))
		e.topic(t, m, 1, 5)
		e.started(t, m, m)
		e.copied(t, m)
		e.ended(t, m, m)
		l, err := e.dst.Cluster.Node(e.realLeader(t, m, 0)).ReadLog(m, 0)
		if err != nil {
			t.Fatal(err)
		}
		last := l.Batches[len(l.Batches)-1]
		if last.Control != want {
			t.Errorf("%s: the last batch is %+v", name, last)
		}
		if want && (last.BaseOffset != 5 || last.LastOffset != 5 || last.Transactional || last.ProducerID != -1) {
			t.Errorf("%s: the record is %+v", name, last)
		}
		if want {
			e.controlType(t, m, 5, 7)
		}
		if err := produce(t.Context(), writer(t, e.dst.Proxies()), m, 1, 2, "mine"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, err := e.dst.Cluster.Installation().Consume(t.Context(), harness.JavaConsume{
			Bootstrap: e.dst.Proxies(), Group: name, Topic: m, ReadCommitted: true, Count: 7,
		})
		if err != nil || len(got) != 7 {
			t.Errorf("%s: a Java consumer reads %d records of 7: %v", name, len(got), err)
		}
		if n := readAll(t, e.dst.Proxies(), m, 7); n != 7 {
			t.Errorf("%s: franz-go reads %d records of 7", name, n)
		}
	}
}

// controlType reads the control record at an offset.
func (e *env) controlType(t *testing.T, topic string, offset int64, want int) {
	t.Helper()
	cl := newClient(t, e.dst.Direct(), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(offset)}}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for _, r := range fetches.Records() {
			if r.Offset == offset {
				if len(r.Key) < 4 || int(r.Key[2])<<8|int(r.Key[3]) != want {
					t.Errorf("the control record's key is %x, want type %d", r.Key, want)
				}
				return
			}
		}
	}
}

// readAll reads committed records with franz-go until n have come.
func readAll(t *testing.T, seeds []string, topic string, n int) int {
	t.Helper()
	cl := newClient(t, seeds, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := 0
	for got < n {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Errorf("read %s: %v", topic, err)
			break
		}
		got += fetches.NumRecords()
	}
	return got
}
