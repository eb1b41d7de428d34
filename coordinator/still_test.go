package coordinator

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// whileAsked gives the rig's mirror a policy for configs that accepts everything, and has something
// happen while it is asked in a round of that kind.
func (r *rig) whileAsked(why policyv1.Round_Why, happens func()) {
	r.t.Helper()
	r.policies(config.Properties{"mirror.policy.configs": "slow"}, map[string]plugins.Policy{"slow": {
		Name: "slow", Configs: plugins.ConfigFunc(func(_ context.Context, round *policyv1.Round, _ string, c *policyv1.ConfigFacts) (*policyv1.Decision, *string, error) {
			if round.GetWhy() == why && c.GetName() == "retention.ms" {
				happens()
			}
			return plugins.Accept("all", "everything"), nil, nil
		}),
	}})
	r.deps.Destination.defaults, r.deps.Destination.asked = map[string]string{configMinISR: "1", "default.replication.factor": "1", "retention.ms": "604800000"}, time.Now()
}

// TestStoppedWhilePoliciesAreAsked: what was decided on a topic that is stopped by now is not done
// to it: its writers have it.
func TestStoppedWhilePoliciesAreAsked(t *testing.T) {
	stop := func(r *rig, name string) func() {
		return func() {
			if _, err := r.stopTopics(r.t.Context(), stopRequest{mirror: "m", topics: []string{name}}); err != nil {
				r.t.Error(err)
			}
		}
	}
	t.Run("at a refresh", func(t *testing.T) {
		r := newRig(t)
		r.whileAsked(policyv1.Round_REFRESH, stop(r, "a"))
		a := r.mirrorTopic("a", Mirroring, Mirroring)
		r.src.set(func(s *fakeSource) {
			s.topics["a"] = SourceTopic{Name: "a", ID: a.SourceTopicID, Partitions: 1, Configs: map[string]string{"retention.ms": "5"}}
		})
		if _, err := r.refresh(); err != nil {
			t.Error(err)
		}
		if now := r.topicT("a"); now.Desired != Stopped {
			t.Fatalf("the topic is %s", now.Desired)
		}
		if have := r.img.TopicConfig("a"); have["retention.ms"] != "" {
			t.Errorf("a topic that was stopped has got %v", have)
		}
	})
	for name, exists := range map[string]bool{"before it is created": false, "before it is taken": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.whileAsked(policyv1.Round_START, stop(r, "a"))
			r.src.set(func(s *fakeSource) {
				s.topics["a"] = SourceTopic{Name: "a", ID: idOf("a"), Partitions: 1, Configs: map[string]string{"retention.ms": "5"}}
			})
			if exists {
				r.topic("a", idOf("here a"), []int32{1, 2})
			}
			m, _ := r.view.Mirror("m")
			r.put(record{kind: kindTopic, topic: topicKey{"m", "a"}, value: Topic{Mirror: "m", Name: "a", Desired: Mirroring, Since: 1}})
			if _, err := r.rec.step(t.Context(), m, r.topicT("a")); err == nil || !strings.Contains(err.Error(), "while its policies were asked") {
				t.Errorf("the step says %v", err)
			}
			if now := r.topicT("a"); now.Desired != Stopped || len(now.Wanted) > 0 {
				t.Errorf("recorded is %+v", now)
			}
			if n := r.asked(kmsg.NewPtrCreateTopicsRequest().Key()); n > 0 || len(r.img.TopicConfig("a")) > 0 {
				t.Errorf("created %d times, with %v", n, r.img.TopicConfig("a"))
			}
		})
	}
}
