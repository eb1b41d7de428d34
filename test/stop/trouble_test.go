package stop

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// TestTroubles: assignments changed by an administrator, a sidecar that stays dead, and
// stops with replicas or the source dead. One after the other in one pair of clusters;
// the source does not come back.
func TestTroubles(t *testing.T) {
	e := start(t)
	for _, s := range []struct {
		name string
		test func(*testing.T)
	}{
		{"reassigned behind our back", e.testReassigned},
		{"a sidecar stays dead", e.testSidecarStaysDead},
		{"all real replicas but one dead", e.testAllButOneDead},
		{"source dead and a live replica behind", e.testDeadSourceLaggard},
	} {
		if !t.Run(s.name, s.test) {
			return
		}
	}
}

// reassign does as an administrator who goes around the proxies.
func (e *env) reassign(t *testing.T, topic string, replicas ...int32) {
	t.Helper()
	req := kadm.AlterPartitionAssignmentsReq{}
	req.Assign(topic, 0, replicas)
	eventually(t, fmt.Sprintf("%s is reassigned to %v", topic, replicas), func(ctx context.Context) error {
		resp, err := e.dstAdmin.AlterPartitionAssignments(ctx, req)
		if err == nil {
			err = resp.Error()
		}
		return err
	})
}

// uncordon opens all virtual brokers for assignments, for a while or until it is called
// with 0.
func (e *env) uncordon(t *testing.T, lease time.Duration) {
	t.Helper()
	for _, b := range e.api.SeedBrokers() {
		req := protocol.NewUncordonVirtualBrokerRequest()
		req.LeaseMs = int32(lease.Milliseconds())
		resp, err := b.Request(t.Context(), &req)
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := resp.(*protocol.UncordonVirtualBrokerResponse); !ok || r.ErrorCode != 0 {
			t.Fatalf("un-cordon: %+v", resp)
		}
	}
}

// settle waits until a topic's assignment is one that ok takes, and nothing is pending.
func (e *env) settle(t *testing.T, topic string, ok func(replicas []int32) bool) {
	t.Helper()
	eventually(t, topic+" is assigned as it should be", func(ctx context.Context) error {
		p, err := e.partition(ctx, topic)
		if err != nil {
			return err
		}
		pending, err := e.dstAdmin.ListPartitionReassignments(ctx, kadm.TopicsSet{topic: {0: {}}})
		if err != nil {
			return err
		}
		if r, has := pending[topic][0]; has && len(r.AddingReplicas)+len(r.RemovingReplicas) > 0 || !ok(p.Replicas) {
			return fmt.Errorf("replicas %v, pending %+v", p.Replicas, pending)
		}
		return nil
	})
}

// testReassigned: R19, what the coordinator repairs at each refresh.
func (e *env) testReassigned(t *testing.T) {
	c := e.prepare(t, "reassigned")
	mirrored := func(replicas []int32) bool {
		return len(replicas) == brokers+2 && isVirtual(replicas[0]) && isVirtual(replicas[1])
	}
	// MIRRORING and none assigned: added.
	e.reassign(t, c.topic, 1, 2, 3)
	e.settle(t, c.topic, mirrored)
	// One that nobody has asked for: taken away again, or cancelled before it is there.
	e.uncordon(t, 20*time.Second)
	e.reassign(t, c.topic, 10001, 10002, 10003, 1, 2, 3)
	e.uncordon(t, 0)
	e.settle(t, c.topic, mirrored)
	write(t, e.writer, c.topic, 1)
	e.mirroredTo(t, c.topic, c.end+1)
	c.end++

	// STOPPED and assigned: such a replica never gets in sync, so it is pending until it is
	// cancelled.
	e.stopTopics(t, c.topic)
	e.waitState(t, c.topic, stateStopped)
	e.uncordon(t, 20*time.Second)
	e.reassign(t, c.topic, 10001, 1, 2, 3)
	e.uncordon(t, 0)
	e.settle(t, c.topic, func(replicas []int32) bool {
		return len(replicas) == brokers && !slices.ContainsFunc(replicas, isVirtual)
	})
	if d := e.waitState(t, c.topic, stateStopped); d.LastMirrorOffset != c.end {
		t.Errorf("last mirror offset %d, want %d", d.LastMirrorOffset, c.end)
	}
	write(t, client(t, e.dst.Proxies(), manual()), c.topic, 1)
}

// mirroredTo waits until a topic ends at an offset here.
func (e *env) mirroredTo(t *testing.T, topic string, end int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s is mirrored to %d", topic, end), func(ctx context.Context) error {
		ends, err := e.dstAdmin.ListEndOffsets(ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		if o, _ := ends.Lookup(topic, 0); err == nil && o.Offset != end {
			err = fmt.Errorf("ends at %d", o.Offset)
		}
		return err
	})
}

// testSidecarStaysDead: contract-additions §1. A sidecar dies and its broker lives: within
// the session's end and five seconds every mirror API answers at every other sidecar, and
// every topic is mirrored again. Another one may die if the machine was too slow for the
// first.
func (e *env) testSidecarStaysDead(t *testing.T) {
	const limit = sessionTimeout + 5*time.Second
	var topics []string
	for i := range 4 { // the leaders are dealt by the topic's name
		topics = append(topics, fmt.Sprintf("alive-%d", i))
		e.prepare(t, topics[i])
	}
	end := int64(committed + open)
	for i, victim := range e.dst.Sidecars[:2] {
		led := 0
		for _, topic := range topics {
			if p, err := e.partition(t.Context(), topic); err == nil && p.Leader == victim.VirtualID() {
				led++
			}
		}
		began := time.Now()
		if err := victim.Kill(); err != nil {
			t.Fatal(err)
		}
		e.allAnswer(t, topics)
		answered := time.Since(began)
		for _, topic := range topics {
			write(t, e.writer, topic, 1)
		}
		end++
		for _, topic := range topics {
			e.mirroredTo(t, topic, end)
			e.waitState(t, topic, stateMirroring)
			if p, err := e.partition(t.Context(), topic); err != nil || !isVirtual(p.Leader) || p.Leader == victim.VirtualID() {
				t.Fatalf("%s is led by %d (%v)", topic, p.Leader, err)
			}
		}
		took := time.Since(began)
		t.Logf("sidecar %d died, the leader of %d of %d topics: every API answered after %v, all was mirrored after %v",
			victim.Broker, led, len(topics), answered.Round(10*time.Millisecond), took.Round(10*time.Millisecond))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := victim.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if took <= limit {
			return
		}
		if i > 0 {
			t.Errorf("mirrored again after %v, want %v", took, limit)
		}
	}
}

// allAnswer waits until every mirror API answers at every sidecar that runs, with
// something other than that nobody coordinates.
func (e *env) allAnswer(t *testing.T, topics []string) {
	t.Helper()
	name, bootstrap := "another", "127.0.0.1:1"
	list, describe := protocol.NewListClusterMirrorsRequest(), protocol.NewDescribeClusterMirrorsRequest()
	create := protocol.NewCreateClusterMirrorRequest()
	create.MirrorName, create.ValidateOnly = name, true
	create.Configs = []protocol.MirrorConfig{{Name: "bootstrap.servers", Value: &bootstrap}, {Name: "nonsense", Value: &name}}
	begin, stop := protocol.NewStartMirrorTopicsRequest(), protocol.NewStopMirrorTopicsRequest()
	begin.MirrorName, begin.Topics, begin.ValidateOnly = mirror, topics, true
	stop.MirrorName, stop.Topics, stop.ValidateOnly = mirror, topics, true
	pause, resume := protocol.NewPauseMirrorTopicsRequest(), protocol.NewResumeMirrorTopicsRequest()
	pause.MirrorName, pause.Topics, pause.ValidateOnly = mirror, topics, true
	resume.MirrorName, resume.Topics, resume.ValidateOnly = mirror, topics, true
	recovered, remove := protocol.NewRecoverMirrorTopicsRequest(), protocol.NewDeleteClusterMirrorRequest()
	recovered.MirrorName, recovered.Topics, recovered.ValidateOnly = mirror, topics, true
	remove.MirrorName, remove.ValidateOnly = mirror, true
	for i, b := range e.api.SeedBrokers() {
		if !e.dst.Sidecars[i].Running() {
			continue
		}
		for _, req := range []kmsg.Request{&list, &describe, &create, &begin, &stop, &pause, &resume, &recovered, &remove} {
			eventually(t, fmt.Sprintf("%s at sidecar %d", protocol.Name(req.Key()), e.dst.Sidecars[i].Broker), func(ctx context.Context) error {
				resp, err := b.Request(ctx, req)
				if err != nil {
					return err
				}
				code, message := outcome(resp)
				if code == kerr.NotCoordinator.Code || code == kerr.CoordinatorNotAvailable.Code || code == kerr.UnknownServerError.Code {
					return fmt.Errorf("%d %s", code, text(message))
				}
				return nil
			})
		}
	}
}

func outcome(resp kmsg.Response) (int16, *string) {
	switch r := resp.(type) {
	case *protocol.ListClusterMirrorsResponse:
		return r.ErrorCode, r.ErrorMessage
	case *protocol.DescribeClusterMirrorsResponse:
		return r.ErrorCode, r.ErrorMessage
	case *protocol.CreateClusterMirrorResponse:
		return r.ErrorCode, r.ErrorMessage
	case *protocol.StartMirrorTopicsResponse:
		return r.ErrorCode, r.ErrorMessage
	case *protocol.StopMirrorTopicsResponse:
		return r.ErrorCode, r.ErrorMessage
	case *protocol.PauseMirrorTopicsResponse:
		return r.ErrorCode, r.ErrorMessage
	case *protocol.ResumeMirrorTopicsResponse:
		return r.ErrorCode, r.ErrorMessage
	case *protocol.RecoverMirrorTopicsResponse:
		return r.ErrorCode, r.ErrorMessage
	case *protocol.DeleteClusterMirrorResponse:
		return r.ErrorCode, r.ErrorMessage
	}
	return kerr.UnknownServerError.Code, nil
}

// testAllButOneDead stops a topic that has one of its two real replicas left, fewer than
// its own min.insync.replicas.
func (e *env) testAllButOneDead(t *testing.T) {
	c := e.prepareOn(t, "one-left", 2)
	p, err := e.partition(t.Context(), c.topic)
	if err != nil {
		t.Fatal(err)
	}
	dead := e.dst.Cluster.Node(p.Replicas[len(p.Replicas)-1])
	if err := dead.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the dead one is out of sync", func(ctx context.Context) error {
		p, err := e.partition(ctx, c.topic)
		if err == nil && slices.Contains(p.ISR, dead.ID()) {
			err = fmt.Errorf("in sync: %v", p.ISR)
		}
		return err
	})
	began := time.Now()
	e.stopTopics(t, c.topic)
	e.waitState(t, c.topic, stateStopped)
	t.Logf("stopped with one of two replicas after %v", time.Since(began).Round(100*time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if err := dead.Start(ctx); err != nil {
		t.Fatal(err)
	}
	e.checkStopped(t, c)
}

// testDeadSourceLaggard stops a topic whose leader cannot reach its source, and so brings
// nobody into sync, while one replica is alive and behind: a real broker leads first (R17).
func (e *env) testDeadSourceLaggard(t *testing.T) {
	c := e.prepare(t, "laggard")
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	p, err := e.partition(ctx, c.topic)
	if err != nil {
		t.Fatal(err)
	}
	// Not beside one of the topic's virtual replicas, so that both sidecars can restart.
	i := slices.IndexFunc(e.dst.Sidecars, func(s *stack.Sidecar) bool { return !slices.Contains(p.Replicas, s.VirtualID()) })
	behind := e.dst.Cluster.Node(e.dst.Sidecars[i].Broker)
	if err := behind.Kill(); err != nil {
		t.Fatal(err)
	}
	write(t, e.writer, c.topic, 7)
	c.end += 7
	eventually(t, "the others have it all", func(ctx context.Context) error {
		p, err := e.partition(ctx, c.topic)
		if err == nil && slices.Contains(p.ISR, behind.ID()) {
			err = fmt.Errorf("in sync: %v", p.ISR)
		}
		if err != nil {
			return err
		}
		for _, n := range e.dst.Cluster.Brokers() {
			if log, err := n.ReadLog(c.topic, 0); n != behind && (err != nil || log.EndOffset() != c.end) {
				return fmt.Errorf("broker %d: ends at %d (%v)", n.ID(), log.EndOffset(), err) //nolint:errorlint // err may be nil
			}
		}
		return nil
	})
	if err := e.src.Brokers()[0].Kill(); err != nil {
		t.Fatal(err)
	}
	// Whoever leads from here on has never asked the source.
	leader := e.dst.Sidecar(p.Leader - stack.VirtualOffset)
	if err := leader.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := leader.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := behind.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if p, err = e.partition(ctx, c.topic); err != nil || !isVirtual(p.Leader) || slices.Contains(p.ISR, behind.ID()) {
		t.Fatalf("before the stop: leader %d, in sync %v (%v)", p.Leader, p.ISR, err)
	}
	began := time.Now()
	e.stopTopics(t, c.topic)
	e.waitState(t, c.topic, stateStopped)
	t.Logf("stopped with a dead source and broker %d behind after %v", behind.ID(), time.Since(began).Round(100*time.Millisecond))
	told := false
	for _, s := range e.dst.Sidecars {
		log, err := os.ReadFile(s.LogFile())
		if err != nil {
			t.Fatal(err)
		}
		told = told || strings.Contains(string(log), "real brokers lead before they are handed the partitions")
	}
	if !told {
		t.Error("no real broker led first")
	}
	e.checkStoppedWith(t, c, committed+7)
}
