package coordinator

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// TestPassDoesNotWaitForPolicies: while a policy does not answer about a topic that is adopted, other
// topics are stopped, and a stop of that topic ends the question.
func TestPassDoesNotWaitForPolicies(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer r.rec.adopts.Wait()
	defer cancel()
	asked, ended := make(chan struct{}, 10), make(chan struct{}, 10)
	r.policies(config.Properties{"mirror.policy.configs": "hangs"}, map[string]plugins.Policy{"hangs": {
		Name: "hangs", Configs: plugins.ConfigFunc(func(ctx context.Context, _ *policyv1.Round, _ string, _ *policyv1.ConfigFacts) (*policyv1.Decision, *string, error) {
			asked <- struct{}{}
			<-ctx.Done()
			ended <- struct{}{}
			return nil, nil, ctx.Err()
		}),
	}})
	r.deps.Destination.defaults, r.deps.Destination.asked = map[string]string{configMinISR: "1", "default.replication.factor": "1"}, time.Now()
	r.src.set(func(s *fakeSource) {
		s.topics["new"] = SourceTopic{Name: "new", ID: idOf("new"), Partitions: 1, Configs: map[string]string{"retention.ms": "5"}}
	})
	r.put(record{kind: kindTopic, topic: topicKey{"m", "new"}, value: Topic{Mirror: "m", Name: "new", Desired: Mirroring, Since: 1}})
	event := func(what string, happened <-chan struct{}) {
		t.Helper()
		select {
		case <-happened:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: not in 30 s", what)
		}
	}
	pass := func() {
		t.Helper()
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.rec.pass(ctx)
		}()
		event("a pass while a policy hangs", done)
	}
	pass()
	event("the policy is asked", asked)
	r.mirrorTopic("old", Stopped, Stopping)
	pass()
	if got := r.rec.hindrance(topicKey{"m", "old"}); !strings.Contains(got, "still moves the last records") {
		t.Errorf("the other topic's stop: %q", got)
	}
	select {
	case <-ended:
		t.Error("the question ended by itself")
	default:
	}
	if _, err := r.stopTopics(t.Context(), stopRequest{mirror: "m", topics: []string{"new"}}); err != nil {
		t.Fatal(err)
	}
	event("the question about a topic that is stopped ends", ended)
}
