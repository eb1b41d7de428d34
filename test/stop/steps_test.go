package stop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// steps are the fail points of a stop, in its order.
func steps() []string {
	return []string{
		"stop.desired", "stop.end-recorded", "stop.quiesced", "stop.configs-restored", "stop.replicas-remembered",
		"assign.sent", "stop.hand-back-seen", "stop.markers-written", "stop.replicas-readded", "stop.stopped",
	}
}

// TestEachStep stops a topic with something going wrong after each step: the sidecar is
// killed, its home broker is killed, or another sidecar has become the coordinator while
// it stood still. The short form has only the first.
func TestEachStep(t *testing.T) {
	e := start(t)
	kinds := []string{"sidecar"}
	if os.Getenv(fullEnv) != "" {
		kinds = append(kinds, "broker", "elsewhere")
	}
	var done []prepared
	for _, kind := range kinds {
		for i, step := range steps() {
			c := e.prepare(t, fmt.Sprintf("%s-%d", kind, i))
			began := time.Now()
			switch kind {
			case "sidecar":
				e.killSidecar(t, c, step)
			case "broker":
				e.killBroker(t, c, step)
			case "elsewhere":
				e.coordinateElsewhere(t, c, step)
			}
			e.checkStopped(t, c)
			t.Logf("%s at %s: stopped and checked after %v", kind, step, time.Since(began).Round(100*time.Millisecond))
			if t.Failed() {
				return
			}
			done = append(done, c)
		}
	}
	// What was late has come by now, and has changed nothing.
	for _, c := range done {
		p, err := e.partition(t.Context(), c.topic)
		if err != nil {
			t.Fatal(err)
		}
		if d := e.waitState(t, c.topic, stateStopped); slices.ContainsFunc(p.Replicas, isVirtual) || d.LastMirrorOffset != c.end {
			t.Errorf("%s in the end: replicas %v, last mirror offset %d", c.topic, p.Replicas, d.LastMirrorOffset)
		}
	}
}

// killSidecar lets the process that comes to the step die, and another one finish.
func (e *env) killSidecar(t *testing.T, c prepared, step string) {
	t.Helper()
	arm(t, step, "kill")
	e.stopTopics(t, c.topic)
	who := e.reached(t, step)
	if _, err := who.Process().Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.waitState(t, c.topic, stateStopped)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := who.Start(ctx); err != nil {
		t.Fatal(err)
	}
}

// killBroker kills the home broker of the process that comes to the step.
func (e *env) killBroker(t *testing.T, c prepared, step string) {
	t.Helper()
	arm(t, step, "block")
	e.stopTopics(t, c.topic)
	node := e.dst.Cluster.Node(e.reached(t, step).Broker)
	if err := node.Kill(); err != nil {
		t.Fatal(err)
	}
	release(t, step)
	e.waitState(t, c.topic, stateStopped)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if err := node.Start(ctx); err != nil {
		t.Fatal(err)
	}
}

// coordinateElsewhere makes another sidecar the coordinator while one stands at the step,
// lets the other one finish, and the first one go on.
func (e *env) coordinateElsewhere(t *testing.T, c prepared, step string) {
	t.Helper()
	arm(t, step, "block")
	e.stopTopics(t, c.topic)
	who := e.reached(t, step)
	if moved := e.moveState(t, who.Broker); moved == 0 && step != "stop.end-recorded" {
		t.Fatalf("sidecar %d came to %s and its broker leads nothing of the state topic", who.Broker, step)
	}
	if step == "stop.end-recorded" { // that is the leader: nobody else can do its part
		release(t, step)
	}
	e.waitState(t, c.topic, stateStopped)
	if step != "stop.end-recorded" {
		release(t, step)
	}
}

// moveState moves what a broker leads of the state topic to others, and tells whether
// there was anything.
func (e *env) moveState(t *testing.T, from int32) int {
	t.Helper()
	const topic = "__cluster_mirror_state"
	topics, err := e.dstAdmin.ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	req := kadm.AlterPartitionAssignmentsReq{}
	set := kadm.TopicsSet{}
	for _, p := range topics[topic].Partitions.Sorted() {
		if p.Leader != from {
			continue
		}
		replicas := slices.DeleteFunc(slices.Clone(p.Replicas), func(b int32) bool { return b == from })
		req.Assign(topic, p.Partition, append(replicas, from))
		set.Add(topic, p.Partition)
	}
	if len(set) == 0 {
		return 0
	}
	if _, err := e.dstAdmin.AlterPartitionAssignments(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the state topic is led elsewhere", func(ctx context.Context) error {
		if _, err := e.dstAdmin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set); err != nil {
			return err
		}
		topics, err := e.dstAdmin.ListTopics(ctx, topic)
		if err != nil {
			return err
		}
		for _, p := range topics[topic].Partitions.Sorted() {
			if p.Leader == from {
				return fmt.Errorf("broker %d leads %s-%d", from, topic, p.Partition)
			}
		}
		return nil
	})
	return len(set[topic])
}

// point is the file of a fail point.
func point(name string) string { return filepath.Join(os.Getenv(pointsEnv), name) }

func arm(t *testing.T, name, how string) {
	t.Helper()
	for _, end := range []string{".go", ".reached"} {
		if err := os.Remove(point(name) + end); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(point(name), []byte(how), 0o600); err != nil {
		t.Fatal(err)
	}
}

func release(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(point(name)+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// reached waits until a sidecar has come to a fail point.
func (e *env) reached(t *testing.T, name string) *stack.Sidecar {
	t.Helper()
	var who *stack.Sidecar
	eventually(t, "somebody comes to "+name, func(context.Context) error {
		told, err := os.ReadFile(point(name) + ".reached")
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(told)))
		if err != nil {
			return err
		}
		for _, c := range e.dst.Sidecars {
			if p := c.Process(); p != nil && p.PID() == pid {
				who = c
				return nil
			}
		}
		return fmt.Errorf("process %d is no sidecar", pid)
	})
	return who
}
