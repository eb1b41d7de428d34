package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// maxExplained bounds how many items one question is answered for: an ACL is named by what its rule
// says, and several may be so.
const maxExplained = 20

// policyStep is what a policy says of an item, in its own words, and what came of it.
func policyStep(kind policy.Kind, e policy.Entry) protocol.ExplanationStep {
	rule := e.Rule
	if rule == "" {
		rule = policy.Key(kind)
	}
	s := step(rule, e.Accepted, "%s", e.Reason)
	if e.Plugin != policy.BuiltIn {
		s.Plugin = e.Plugin
	}
	if e.Stale {
		s.Reason += " (said before; it cannot be asked now)"
	}
	s.SinceMs, s.LastAppliedMs, s.LastError = millis(e.Since), millis(e.LastApplied), nullable(e.LastError)
	return s
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return t.UnixMilli()
}

// notWanted says why a mirror's configuration has nothing mirrored of a kind, and which key says so;
// empty if it has. Without a pattern or a rule the built-in policy has nothing to say, other policies
// may. It is a pure function.
func notWanted(settings map[string]string, kind policy.Kind) (key, why string) {
	if len(policy.Names(settings, kind)) == 0 {
		return policy.Key(kind), fmt.Sprintf("no policy is named there: the mirror leaves %s as they are here", kind)
	}
	key = map[policy.Kind]string{policy.Groups: config.GroupsIncludeKey, policy.ACLs: config.ACLsIncludeKey, policy.Quotas: config.QuotasIncludeKey}[kind]
	if policy.BuiltInOnly(settings, kind) && len(config.SplitList(settings[key])) == 0 {
		return key, fmt.Sprintf("it is empty: the mirror leaves %s as they are here", kind)
	}
	return "", ""
}

// explainItem tells what the mirror's coordinator remembers of a group, an ACL or a quota.
func (c *Coordinator) explainItem(m Mirror, kind policy.Kind, name string) (steps []protocol.ExplanationStep, mirrored bool) {
	if key, why := notWanted(config.ForPolicies(m.Configs), kind); why != "" {
		return []protocol.ExplanationStep{step(key, false, "%s", why)}, false
	}
	ledger := c.deps.Policies.Ledger()
	found := []policy.Skip{}
	if e, ok := ledger.Get(m.Name, kind, name); ok {
		found = append(found, policy.Skip{Item: name, Entry: e})
	} else if kind != policy.Groups {
		found = ledger.Find(m.Name, kind, name+";", maxExplained)
	}
	mirrored = len(found) > 0
	for _, f := range found {
		s := policyStep(kind, f.Entry)
		if len(found) > 1 {
			s.Reason = f.Item + ": " + s.Reason
		}
		steps = append(steps, s)
		switch {
		case f.Accepted && f.Skipped != "":
			steps = append(steps, step("sync", false, "%s", f.Skipped))
			mirrored = false
		case f.Accepted && f.LastError != "":
			steps = append(steps, step("sync", false, "%s", f.LastError))
			mirrored = false
		}
		mirrored = mirrored && f.Accepted
	}
	if len(found) > 0 {
		return steps, mirrored
	}
	runs := slices.DeleteFunc(ledger.Runs(m.Name), func(r policy.Run) bool { return r.Kind != kind })
	if len(runs) == 0 {
		return []protocol.ExplanationStep{step(policy.Key(kind), false, "no policy was asked about %s yet", kind)}, false
	}
	for _, r := range runs {
		if r.LastError != "" {
			steps = append(steps, step(policy.Key(kind), false, "the last run at %s: %s", at(r.At.UnixMilli()), r.LastError))
		}
	}
	if kind == policy.Groups {
		return append(steps, step("source", false, "no group of that name had committed anything for mirrored topics at the source at %s", at(runs[0].At.UnixMilli()))), false
	}
	return append(steps, step("source", false, "nothing of that name was at the source when the policies were asked at %s", at(runs[0].At.UnixMilli()))), false
}

// explainConfig goes through what decides about one config of one topic, topic/key.
func (c *Coordinator) explainConfig(ctx context.Context, m Mirror, name string) (steps []protocol.ExplanationStep, mirrored bool) {
	topic, key, ok := strings.Cut(name, "/")
	if !ok || topic == "" || key == "" {
		return []protocol.ExplanationStep{step("name", false, "%q is not topic/key", name)}, false
	}
	t, state := c.verbState(m.Name, topic)
	if state == Unknown || state == Stopped {
		steps, _ = c.explainTopic(ctx, m, topic)
		return append(steps, step("topic", false, "configs are copied while the topic is mirrored, and %s is not", topic)), false
	}
	e, known := c.deps.Policies.Ledger().Get(m.Name, policy.Configs, name)
	if !known || e.Reason == "" {
		source, unknown := c.askSource(ctx, m, topic)
		if unknown != nil {
			return []protocol.ExplanationStep{*unknown}, false
		}
		if _, set := source.Configs[key]; !set {
			if _, has := source.Defaults[key]; !has {
				return []protocol.ExplanationStep{step("source", false, "the source does not know a topic config %s", key)}, false
			}
		}
		defaults, err := c.deps.Destination.topicDefaults(ctx)
		if err != nil {
			return []protocol.ExplanationStep{step("this cluster", false, "%v", err)}, false
		}
		q := c.question(m, policyv1.Round_EXPLAIN)
		facts := configFacts(sourced{t, source}, c.img.TopicConfig(topic), defaults, true)
		facts.Configs = slices.DeleteFunc(facts.Configs, func(f *policyv1.ConfigFacts) bool { return f.GetName() != key })
		said, err := c.deps.Policies.Configs(ctx, q, []*policyv1.TopicConfigFacts{facts})
		if err != nil {
			return []protocol.ExplanationStep{step("policies", false, "%v", err)}, false
		}
		e.Verdict = said[0][0].Verdict
	}
	steps = append(steps, policyStep(policy.Configs, e))
	if !e.Accepted {
		return steps, false
	}
	if e.Skipped != "" {
		return append(steps, step("this cluster", false, "%s", e.Skipped)), false
	}
	if slices.Contains(lockKeys(), key) {
		steps = append(steps, step("write lock", true, "the lock has a value of its own there while the topic is mirrored; the topic gets this one when it is stopped"))
	}
	if state == Paused || state == Pausing {
		return append(steps, step("state", false, "%s: nothing is copied meanwhile", state)), false
	}
	return steps, e.LastError == ""
}
