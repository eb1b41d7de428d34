package conformance

import (
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
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

// evict runs it; it ends with 0, or with 3 if it names what is left.
func evict(t *testing.T, e *env, args ...string) evicted {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program("mirror-sidecar"), append([]string{"evict", "--config", e.dst.Sidecars[0].ConfigFile(), "--json"}, args...)...)
	out, err := cmd.Output()
	code := cmd.ProcessState.ExitCode()
	var r evicted
	if jsonErr := json.Unmarshal(out, &r); jsonErr != nil {
		t.Fatalf("evict %v: exit %d (%v), %v\n%s", args, code, err, jsonErr, out)
	}
	if want := map[bool]int{true: 0, false: 3}[len(r.Left) == 0]; code != want {
		t.Errorf("evict %v: exit %d, want %d; left: %v", args, code, want, r.Left)
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
	if r := evict(t, e, "--dry-run"); !has(r, "TO_STOP") || len(r.Brokers) != len(e.dst.Sidecars) {
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
	// What other rows have left behind may be beyond help; then it is named.
	r := evict(t, e, "--timeout", "45s")
	if !has(r, "STOPPED") || slices.ContainsFunc(r.Left, func(l string) bool { return strings.Contains(l, topic) }) {
		t.Errorf("%+v", r)
	}
	for _, b := range r.Brokers {
		if b.State != "UNREGISTERED" && len(r.Left) == 0 {
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
	if len(r.Left) > 0 {
		t.Logf("left: %v", r.Left)
		return
	}
	if r := evict(t, e); len(r.Topics)+len(r.Brokers)+len(r.Left) > 0 {
		t.Errorf("again: %+v", r)
	}
}
