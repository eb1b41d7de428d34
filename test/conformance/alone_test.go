package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// aloneLife are the rows of §4 that need something to die.
func aloneLife() []row {
	return []row{
		{proves: "C4.3 C4.27 source dead", run: deadSource, alone: true},
		{proves: "C4.28 A7.2 C3.9 A2.2 A2.5 A2.6 A13.1 broker dead", run: deadBroker, alone: true},
		{proves: "C4.29 sidecar killed in the middle of a stop", run: deadSidecarAtStop, alone: true},
	}
}

func deadSource(t *testing.T, e *env) {
	m := e.mirror(t, "c4-27")
	topics := []string{e.topic(t, "c4-27.a", 2, 20), e.topic(t, "c4-27.b", 2, 20)}
	e.started(t, m, topics...)
	e.copied(t, topics...)
	node := e.src.Brokers()[0]
	if err := node.Kill(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*patience)
		defer cancel()
		if err := node.Start(ctx); err != nil {
			t.Errorf("the source does not come back: %v", err)
		}
	}()
	// A leader that takes over now finds no source, and says so.
	if err := e.dst.Sidecars[0].Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.dst.Sidecars[0].Start(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "SOURCE_UNAVAILABLE", func(context.Context) error {
		said := ""
		for _, topic := range e.describe(t, m).Topics {
			for _, p := range topic.Partitions {
				if text(p.Detail) == "SOURCE_UNAVAILABLE" {
					return nil
				}
				said += fmt.Sprintf("%s-%d: state %d %s; ", topic.TopicName, p.PartitionIndex, p.State, text(p.Detail))
			}
		}
		return errors.New(said)
	})
	e.ended(t, m, topics...)
	for _, topic := range topics {
		if got := endsT(t, e.dstAdmin, topic); got[0] != 10 || got[1] != 10 {
			t.Errorf("%s ends at %v", topic, got)
		}
		if err := produce(t.Context(), writer(t, e.dst.Proxies()), topic, 2, 2, "mine"); err != nil {
			t.Errorf("a write after the stop: %v", err)
		}
	}
}

// sourceChanged lets another cluster answer at the source's address.
func sourceChanged(t *testing.T, e *env) {
	m := e.mirrored(t, "c4-18", 1, 3)
	node := e.src.Brokers()[0]
	addr := node.Addr(harness.ListenerInternal)
	if err := node.Kill(); err != nil {
		t.Fatal(err)
	}
	forwardAt(t, addr, e.dst.Direct()[0])
	e.waitFailed(t, m, m, "cluster")
	if err := produce(t.Context(), once(t, e.dst.Proxies()), m, 1, 1, "no"); err == nil {
		t.Error("the topic is writable")
	}
	if got := endsT(t, e.dstAdmin, m)[0]; got != 3 {
		t.Errorf("the topic ends at %d, want 3", got)
	}
}

func deadBroker(t *testing.T, e *env) {
	m := e.mirror(t, "c4-28")
	// One topic on both brokers, and one whose second partition is on the dying broker alone.
	const both, apart = "c4-28", "c4-28.apart"
	live, dying := e.dst.Cluster.Brokers()[0], e.dst.Cluster.Brokers()[1]
	req := kmsg.NewPtrCreateTopicsRequest()
	ct := kmsg.NewCreateTopicsRequestTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = apart, -1, -1
	for p, id := range []int32{live.ID(), dying.ID()} {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(p), []int32{id}
		ct.ReplicaAssignment = append(ct.ReplicaAssignment, a)
	}
	req.Topics = append(req.Topics, ct)
	if r, err := req.RequestWith(t.Context(), e.dstClient); err != nil || r.Topics[0].ErrorCode != 0 {
		t.Fatal(err, r)
	}
	e.topic(t, both, 2, 10)
	e.topic(t, apart, 2, 10)
	e.started(t, m, both, apart)
	e.copied(t, both, apart)
	if err := dying.Kill(); err != nil {
		t.Fatal(err)
	}
	back := false
	start := func() {
		if back {
			return
		}
		back = true
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*patience)
		defer cancel()
		if err := dying.Start(ctx); err != nil {
			t.Errorf("the broker does not come back: %v", err)
		}
	}
	defer start()
	e.do(t, vStop, m, both, apart)
	e.waitState(t, m, stopped, both)
	direct := []string{live.Addr("INTERNAL")}
	if err := produce(t.Context(), writer(t, direct), both, 2, 4, "mine"); err != nil {
		t.Errorf("a write while a broker is dead: %v", err)
	}
	// The other one says which broker it waits for.
	eventually(t, "describe says which broker is waited for", func(context.Context) error {
		said := ""
		for _, p := range e.describe(t, m).topic(apart).Partitions {
			if p.PartitionIndex == 1 && p.State == stopped {
				return errors.New("the partition of the dead broker is STOPPED")
			}
			said += fmt.Sprintf("partition %d: state %d %s %s; ", p.PartitionIndex, p.State, text(p.Detail), text(p.ErrorMessage))
		}
		if !strings.Contains(said, fmt.Sprintf("broker %d", dying.ID())) && !strings.Contains(said, fmt.Sprintf("[%d]", dying.ID())) {
			return fmt.Errorf("%q does not name broker %d", said, dying.ID())
		}
		return nil
	})
	countsReal(t, e)
	// It is being stopped for as long as the broker is dead.
	for _, v := range []verb{vStart, vPause, vResume} {
		refused(t, e.send(t, v, m, apart), protocol.MirrorTopicBeingStopped, apart)
	}
	// Whole-topic requests are refused while one partition is read only.
	proxy := e.dst.Sidecars[0].Proxy
	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.TimeoutMillis = 5000
	gt := kmsg.NewCreatePartitionsRequestTopic()
	gt.Topic, gt.Count = apart, 3
	grow.Topics = append(grow.Topics, gt)
	r := askAt[*kmsg.CreatePartitionsResponse](t, proxy, grow)
	namesMirror(t, "CreatePartitions", protocol.ErrorForCode(r.Topics[0].ErrorCode, r.Topics[0].ErrorMessage), m)
	start()
	e.waitState(t, m, stopped, apart)
	if err := produce(t.Context(), writer(t, e.dst.Proxies()), apart, 2, 4, "mine"); err != nil {
		t.Errorf("a write after the stop: %v", err)
	}
	if got := endsT(t, e.dstAdmin, apart); got[0] < 5 || got[1] < 5 {
		t.Errorf("%s ends at %v", apart, got)
	}
}

func deadSidecarAtStop(t *testing.T, e *env) {
	m := e.mirror(t, "c4-29")
	tx := writer(t, e.src.Bootstrap("INTERNAL"), kgo.TransactionalID("c4-29"))
	for round, c := range e.dst.Sidecars {
		topic := fmt.Sprintf("c4-29.%d", round)
		e.topic(t, topic, 2, 10)
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := produce(t.Context(), tx, topic, 2, 4, "open"); err != nil {
			t.Fatal(err)
		}
		e.started(t, m, topic)
		e.copied(t, topic)
		there := endsT(t, e.srcAdmin, topic)
		addr := e.dst.Sidecars[1-round].Proxy
		if err := sendAt(t, addr, vStop.request(m, topic), topic); err != nil {
			t.Fatal(err)
		}
		// Once of the coordinator, once of the other one: somewhere in the middle.
		if err := c.Kill(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if err := c.Start(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		e.waitState(t, m, stopped, topic)
		for p, end := range endsT(t, e.dstAdmin, topic) {
			if end != there[p]+1 { // one ABORT marker
				t.Errorf("%s-%d ends at %d, the source at %d", topic, p, end, there[p])
			}
		}
		if err := produce(t.Context(), writer(t, e.dst.Proxies()), topic, 2, 4, "mine"); err != nil {
			t.Errorf("a write after the stop: %v", err)
		}
		if err := tx.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
			t.Error(err)
		}
	}
}

// deadSidecar: one stays dead while its broker lives (additions §1).
func deadSidecar(t *testing.T, e *env) {
	const mirrors = 4 // names enough for both sidecars to coordinate some
	for i := range mirrors {
		name := fmt.Sprintf("a1-2.%d", i)
		e.mirror(t, name)
		e.topic(t, name, 2, 4)
		e.started(t, name, name)
		e.copied(t, name)
	}
	victim, other := e.dst.Sidecars[1], e.dst.Sidecars[0]
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := victim.Start(ctx); err != nil {
			t.Error(err)
		}
	}()
	for i := range mirrors {
		name := fmt.Sprintf("a1-2.%d", i)
		e.write(t, name, 2, 4)
		cl := apiClient(t, other.Proxy)
		eventually(t, name+" mirrors again", func(ctx context.Context) error {
			d, err := describe(ctx, cl, name)
			if err != nil {
				return err
			}
			for _, p := range d.topic(name).Partitions {
				if p.State != mirroring || p.LeaderID != other.VirtualID() || p.DestinationOffset != 4 {
					return fmt.Errorf("partition %d: state %d, leader %d, offset %d", p.PartitionIndex, p.State, p.LeaderID, p.DestinationOffset)
				}
			}
			return nil
		})
	}
	took := time.Since(killed)
	countsNoVirtual(t, e, "a1-2.0", victim, other)
	t.Logf("all partitions mirror again after %s", took.Round(time.Millisecond))
	// The session timeout is 9 seconds; the rest is for a slow machine.
	if took > 14*time.Second+20*time.Second {
		t.Errorf("that took %s", took)
	}
	for i := range mirrors {
		name := fmt.Sprintf("a1-2.%d", i)
		for _, v := range []verb{vPause, vResume, vStop} {
			if err := sendAt(t, other.Proxy, v.request(name, name), name); err != nil {
				t.Errorf("%s in mirror %s: %v", v, name, err)
			}
			waitStateAt(t, e.dst, name, map[verb]int8{vPause: paused, vResume: mirroring, vStop: stopped}[v], name)
		}
		if c := findCoordinator(t, other.Proxy, name); c.ErrorCode != 0 || c.NodeID != other.Broker {
			t.Errorf("the coordinator of %s is %+v, want broker %d", name, c, other.Broker)
		}
	}
	mirrorAt(t, e.dst, "a1-2.new", e.sourceConfig())
	if err := alterConfigs(t, other.Proxy, mirrorResource, "a1-2.new", "mirror.topics.include", "a1-2.none"); err != nil {
		t.Errorf("alter configs: %v", err)
	}
	del := protocol.NewDeleteClusterMirrorRequest()
	del.MirrorName = "a1-2.new"
	if r := askAt[*protocol.DeleteClusterMirrorResponse](t, other.Proxy, &del); r.ErrorCode != 0 {
		t.Errorf("delete: %d %s", r.ErrorCode, text(r.ErrorMessage))
	}
}

// fencedWriter: whoever takes over fences the former writer of a state partition; all
// state is in transactions, of which readers see the committed ones. Each partition has one
// transactional id, whoever writes, which is what fences. That a writer which stood still in
// the middle of a transaction is refused is shown on real brokers by the coordinator's
// TestStaleWriterOnBrokers: here nobody can hold a sidecar's writer still.
func fencedWriter(t *testing.T, e *env) {
	m := e.mirror(t, "a1-3")
	records := e.state(t)
	writers, err := e.dstAdmin.ListTransactions(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	mine := 0
	for _, s := range records {
		if mirrorOf(s.key) == m {
			mine++
		}
		id := fmt.Sprintf("mirror-state-%d", s.partition)
		w, ok := writers[id]
		switch {
		case s.record.ProducerID < 0 || !s.record.Attrs.IsTransactional():
			t.Errorf("a record of partition %d is in no transaction, so that nothing fences a former writer", s.partition)
		case !ok:
			t.Errorf("partition %d has records, and there is no transactional id %s: %v", s.partition, id, writers.TransactionalIDs())
		case w.ProducerID != s.record.ProducerID:
			t.Errorf("a record of partition %d is of producer %d, %s is producer %d", s.partition, s.record.ProducerID, id, w.ProducerID)
		}
	}
	if mine == 0 {
		t.Error("the mirror has no committed record")
	}
}
