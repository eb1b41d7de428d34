package coordinator

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// explainSourceTimeout bounds how long a source is asked whether it has a topic.
const explainSourceTimeout = 10 * time.Second

// explainQuota is the kind of a question about a quota.
const explainQuota = "quota"

// explainAnswer says, for one mirror or all, why something is or is not mirrored. Each
// mirror's coordinator is asked: it knows what the last refresh has left out, and why.
func (c *Coordinator) explainAnswer(ctx context.Context, fromPeer bool, r *protocol.ExplainClusterMirrorRequest) kmsg.Response {
	resp := protocol.NewExplainClusterMirrorResponse()
	mirrors := c.view.Mirrors()
	if r.MirrorName != nil {
		m, err := c.mirror(*r.MirrorName)
		if err != nil {
			return failed(r, err)
		}
		mirrors = []Mirror{m}
	}
	switch r.Kind {
	case "topic", "config", "group", "acl", explainQuota:
	default:
		return failed(r, refuse(kerr.InvalidRequest.Code, "kind %q is none of topic, config, group, acl, quota", r.Kind))
	}
	if r.Name == "" {
		return failed(r, refuse(kerr.InvalidRequest.Code, "a name is missing"))
	}
	for _, m := range mirrors {
		if !fromPeer {
			if e, ok := c.explainAtPeer(ctx, m.Name, r); ok {
				resp.Explanations = append(resp.Explanations, e)
				continue
			}
		}
		resp.Explanations = append(resp.Explanations, c.explain(ctx, m, r))
	}
	return &resp
}

// explainAtPeer asks the mirror's coordinator, if that is another sidecar and answers.
func (c *Coordinator) explainAtPeer(ctx context.Context, mirror string, r *protocol.ExplainClusterMirrorRequest) (protocol.MirrorExplanation, bool) {
	who, err := c.Of(mirror)
	if err != nil || who == c.cfg.Self {
		return protocol.MirrorExplanation{}, false
	}
	req := protocol.NewExplainClusterMirrorRequest()
	req.MirrorName, req.Kind, req.Name, req.With = &mirror, r.Kind, r.Name, r.With
	ctx, cancel := context.WithTimeout(ctx, explainSourceTimeout)
	defer cancel()
	resp, err := c.deps.Peers.Request(ctx, who, &req)
	if a, ok := resp.(*protocol.ExplainClusterMirrorResponse); err == nil && ok && a.ErrorCode == 0 && len(a.Explanations) == 1 {
		return a.Explanations[0], true
	}
	c.log.Debug("explain: the coordinator does not answer", "mirror", mirror, "virtual_broker", who, "err", err)
	return protocol.MirrorExplanation{}, false
}

func (c *Coordinator) explain(ctx context.Context, m Mirror, r *protocol.ExplainClusterMirrorRequest) protocol.MirrorExplanation {
	e := protocol.NewMirrorExplanation()
	e.MirrorName = m.Name
	name := r.Name
	switch {
	case r.Kind == "acl" && name == everything:
		e.Steps, e.Mirrored = c.previewSync(ctx, m, policy.ACLs, r.With)
		return e
	case r.Kind == explainQuota && name == everything:
		e.Steps, e.Mirrored = c.previewSync(ctx, m, policy.Quotas, r.With)
		return e
	}
	switch r.Kind {
	case "topic":
		e.Steps, e.Mirrored = c.explainTopic(ctx, m, name)
	case "config":
		e.Steps, e.Mirrored = c.explainConfig(ctx, m, name)
	case "group":
		e.Steps, e.Mirrored = c.explainItem(m, policy.Groups, name)
	case "acl":
		e.Steps, e.Mirrored = c.explainItem(m, policy.ACLs, name)
	case explainQuota:
		e.Steps, e.Mirrored = c.explainItem(m, policy.Quotas, name)
	}
	return e
}

func step(rule string, passed bool, format string, args ...any) protocol.ExplanationStep {
	s := protocol.NewExplanationStep()
	s.Rule, s.Passed, s.Reason = rule, passed, fmt.Sprintf(format, args...)
	return s
}

// explainTopic goes through the rules in the order in which they decide; the first that is
// not passed is the reason. A topic that was started by its name needs no pattern.
func (c *Coordinator) explainTopic(ctx context.Context, m Mirror, name string) (steps []protocol.ExplanationStep, mirrored bool) {
	add := func(rule string, passed bool, format string, args ...any) {
		steps = append(steps, step(rule, passed, format, args...))
	}
	if internalTopic(name) {
		add("internal topics", false, "%s is internal to Kafka and is never mirrored", name)
		return steps, false
	}
	if o, ok := c.view.TopicByName(name); ok && o.Mirror != m.Name && !c.stopped(o) {
		add("one mirror for a topic", false, "%s belongs to mirror %s", name, o.Mirror)
		return steps, false
	}
	t, state := c.verbState(m.Name, name)
	if state != Unknown && state != Stopped {
		steps = append(steps, c.explainState(t, state))
		if e, ok := c.deps.Policies.Ledger().Get(m.Name, policy.Topics, name); ok && e.Reason != "" {
			s := policyStep(policy.Topics, e)
			if !e.Accepted {
				s.Reason += "; what is mirrored stays so until it is stopped"
			}
			steps = append(steps, s)
		}
		if r := c.refresher.Load(); r != nil {
			if why := r.rec.hindrance(topicKey{m.Name, name}); why != "" {
				add("this cluster", false, "%s", why)
			}
			if why := r.rec.unlockedWhy(topicKey{m.Name, name}); why != "" {
				add("write lock", false, "%s", why)
			}
		}
		return steps, state == Mirroring || state == LogTruncation
	}
	if state == Stopped {
		add("state", false, "stopped here since %s; start it by its name to mirror it again", at(t.Since))
	}
	// The patterns need nothing but the name. Policies of others may want to know more.
	source := SourceTopic{Name: name}
	q := c.question(m, policyv1.Round_EXPLAIN)
	var unknown *protocol.ExplanationStep
	look := func() {
		if unknown == nil && source.Partitions == 0 {
			source, unknown = c.askSource(ctx, m, name)
		}
	}
	if !policy.BuiltInOnly(q.Config, policy.Topics) {
		if look(); unknown != nil {
			return append(steps, *unknown), false
		}
	}
	source.Name = name
	verdicts, err := c.deps.Policies.Topics(ctx, q, c.topicFacts(source))
	if err != nil {
		add("policies", false, "%v", err)
		return steps, false
	}
	entry, _ := c.deps.Policies.Ledger().Get(m.Name, policy.Topics, name)
	if entry.Accepted != verdicts[0].Accepted || entry.Rule != verdicts[0].Rule {
		entry.Since = time.Time{} // it says so only now
	}
	entry.Verdict = verdicts[0]
	steps = append(steps, policyStep(policy.Topics, entry))
	if !entry.Accepted || state == Stopped {
		return steps, false
	}
	if why := c.skipReason(m.Name, name); why != "" {
		add("discovery", false, "%s", why)
		return steps, false
	}
	if look(); unknown != nil {
		return append(steps, *unknown), false
	}
	add("source", true, "it exists at the source with %d partitions; the next refresh starts it", source.Partitions)
	return steps, false
}

// askSource asks a mirror's source about one topic. What is not known is a step that says so.
func (c *Coordinator) askSource(ctx context.Context, m Mirror, name string) (SourceTopic, *protocol.ExplanationStep) {
	not := func(format string, args ...any) (SourceTopic, *protocol.ExplanationStep) {
		s := step("source", false, format, args...)
		return SourceTopic{}, &s
	}
	src, _, err := c.source(m)
	if err != nil {
		return not("%v", err)
	}
	defer src.Close()
	ask, cancel := context.WithTimeout(ctx, explainSourceTimeout)
	defer cancel()
	found, err := src.Topics(ask, []string{name})
	switch {
	case err != nil:
		return not("the source does not answer: %v", err)
	case found[name].Name == "":
		return not("%s does not exist at the source", name)
	case found[name].Err != nil:
		return not("at the source: %v", found[name].Err)
	}
	return found[name], nil
}

func (c *Coordinator) explainState(t Topic, state State) protocol.ExplanationStep {
	if t.Fault != "" {
		return step("state", false, "%s since %s: %s", state, at(t.Since), t.Fault)
	}
	if state == Failed {
		for _, p := range c.img.TopicPartitions(t.TopicID) {
			if s, _ := c.view.State(t.Mirror, ids.TopicPartition{TopicID: t.TopicID, Partition: p.Partition}); s.State == Failed {
				return step("state", false, "partition %d is FAILED since %s: %s", p.Partition, at(s.Since), s.ErrorMessage)
			}
		}
	}
	running := state == Mirroring || state == LogTruncation
	return step("state", running, "%s, started or last changed at %s", state, at(t.Since))
}

func at(millis int64) string { return time.UnixMilli(millis).UTC().Format(time.RFC3339) }
