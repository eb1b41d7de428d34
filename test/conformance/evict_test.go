package conformance

import (
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// evicted is what `mirror-sidecar evict --json` prints.
type evicted struct {
	Topics []struct {
		Topic, State string
	}
	Brokers []struct {
		ID    int32
		State string
	}
	Left []string
}

func evict(t *testing.T, e *env, want int, args ...string) evicted {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program("mirror-sidecar"), append([]string{"evict", "--config", e.dst.Sidecars[0].ConfigFile(), "--json"}, args...)...)
	out, err := cmd.Output()
	if code := cmd.ProcessState.ExitCode(); code != want {
		t.Fatalf("evict %v: exit %d (%v), want %d\n%s", args, code, err, want, out)
	}
	var r evicted
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("evict %v: %v\n%s", args, err, out)
	}
	return r
}

func evicts(t *testing.T, e *env) {
	m := e.mirror(t, "a6-5")
	topic := e.topic(t, "a6-5.a", 2, 20)
	e.started(t, m, topic)
	e.copied(t, topic)
	has := func(r evicted, state string) bool {
		return slices.ContainsFunc(r.Topics, func(x struct{ Topic, State string }) bool { return x.Topic == topic && x.State == state })
	}
	if r := evict(t, e, 0, "--dry-run"); !has(r, "TO_STOP") || len(r.Brokers) != len(e.dst.Sidecars) {
		t.Errorf("dry run: %+v", r)
	}
	for _, c := range e.dst.Sidecars {
		if err := c.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*patience)
		defer cancel()
		if err := e.dst.StartSidecars(ctx); err != nil {
			t.Error(err)
		}
	}()
	r := evict(t, e, 0)
	if !has(r, "STOPPED") || len(r.Left) > 0 {
		t.Errorf("%+v", r)
	}
	for _, b := range r.Brokers {
		if b.State != "UNREGISTERED" {
			t.Errorf("virtual broker %d is %s", b.ID, b.State)
		}
	}
	topics, err := e.dstAdmin.ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range topics[topic].Partitions {
		if slices.ContainsFunc(append(p.Replicas, p.Leader), func(b int32) bool { return b < 0 || b >= stack.VirtualOffset }) {
			t.Errorf("%s-%d is led by %d, replicas %v", topic, p.Partition, p.Leader, p.Replicas)
		}
	}
	if err := produce(t.Context(), writer(t, e.dst.Direct()), topic, 2, 4, "mine"); err != nil {
		t.Errorf("a write to a topic that was handed back: %v", err)
	}
	if r := evict(t, e, 0); len(r.Topics)+len(r.Brokers)+len(r.Left) > 0 {
		t.Errorf("again: %+v", r)
	}
}
