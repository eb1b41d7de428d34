package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

// Policies decide what is mirrored: policy.Engine. What they decide stays within what this package
// allows: no topic that is internal to Kafka, that another mirror has or that was stopped here, no
// config of tiered storage, and none that the write lock holds before the topic is stopped.
type Policies interface {
	Topics(ctx context.Context, q policy.Question, facts []*policyv1.TopicFacts) ([]policy.Verdict, error)
	Configs(ctx context.Context, q policy.Question, facts []*policyv1.TopicConfigFacts) ([][]policy.ConfigVerdict, error)
	// Check says what is wrong with the policies that a configuration names and before did not.
	Check(ctx context.Context, before, after map[string]string) error
	Ledger() *policy.Ledger
	// Forget drops a mirror that is coordinated elsewhere now.
	Forget(mirror string)
}

// kindTimeout is how long the policies of one kind may take of a refresh, which has more to do.
const kindTimeout = refreshTimeout / 3

// question is what policies are asked about a mirror.
func (c *Coordinator) question(m Mirror, why policyv1.Round_Why) policy.Question {
	q := policy.Question{
		Mirror: m.Name, SourceClusterID: m.SourceClusterID, DestinationClusterID: c.cfg.ClusterID,
		Config: config.ForPolicies(m.Configs), Why: why,
	}
	if why == policyv1.Round_REFRESH {
		q.Within = kindTimeout
	}
	return q
}

// checkPolicies refuses a configuration that names policies which are not there, are not what this
// sidecar was told they are, or decide on something else.
func (c *Coordinator) checkPolicies(ctx context.Context, mirror string, before, after config.Properties) error {
	var had map[string]string
	if before != nil {
		had = config.ForPolicies(before)
	}
	if err := c.deps.Policies.Check(ctx, had, config.ForPolicies(after)); err != nil {
		return refuse(kerr.InvalidConfig.Code, "mirror %s: %v; nothing was changed", mirror, err)
	}
	return nil
}

// topicFacts is what policies are told of topics of the source.
func (c *Coordinator) topicFacts(topics ...SourceTopic) []*policyv1.TopicFacts {
	owners := c.view.Owners()
	out := make([]*policyv1.TopicFacts, len(topics))
	for i, t := range topics {
		out[i] = c.oneTopicFacts(t, owners)
	}
	return out
}

func (c *Coordinator) oneTopicFacts(s SourceTopic, owners map[string]Topic) *policyv1.TopicFacts {
	f := &policyv1.TopicFacts{Name: s.Name, Partitions: s.Partitions, Configs: s.Configs}
	if !s.ID.IsZero() {
		f.SourceId = s.ID.String()
	}
	if id, ok := c.img.Topic(s.Name); ok {
		f.ExistsHere, f.PartitionsHere = true, int32(len(c.img.TopicPartitions(id)))
	}
	if t, ok := owners[s.Name]; ok {
		_, state := c.verbState(t.Mirror, t.Name)
		f.MirrorHere, f.StateHere = t.Mirror, state.String()
	}
	return f
}

// sourced is a mirror topic and what its source says of it.
type sourced struct {
	topic  Topic
	source SourceTopic
}

// copies is what a mirror topic is to have of its source's configs.
type copies struct {
	values  map[string]string
	unknown []string // to this cluster's version
	// undecided says why it is not known what to do with one that is set at the source.
	undecided string
}

// copied asks which configs of topics are copied, for each of them. What no policy can say is
// taken out: configs of tiered storage, and those that this cluster does not know.
func (c *Coordinator) copied(ctx context.Context, q policy.Question, topics []sourced) ([]copies, error) {
	defaults, err := c.deps.Destination.topicDefaults(ctx)
	if err != nil {
		return nil, err
	}
	// Configs that are not set anywhere are of interest to few policies, and many.
	all := !policy.BuiltInOnly(q.Config, policy.Configs) || q.Config[config.PropertiesAlwaysKey] != "" || q.Why == policyv1.Round_EXPLAIN
	facts := make([]*policyv1.TopicConfigFacts, len(topics))
	for i, t := range topics {
		facts[i] = configFacts(t, c.img.TopicConfig(t.topic.Name), defaults, all)
	}
	said, err := c.deps.Policies.Configs(ctx, q, facts)
	if err != nil {
		return nil, err
	}
	out := make([]copies, len(topics))
	for i, t := range topics {
		out[i].values = map[string]string{}
		for j, f := range facts[i].GetConfigs() {
			v := said[i][j]
			_, known := defaults[f.GetName()]
			switch {
			case v.Undecided && f.GetSourceSet() && out[i].undecided == "":
				out[i].undecided = v.Reason
			case !v.Accepted:
			case config.TieredTopicConfig(f.GetName()):
				c.note(q, t, f.GetName(), "a mirror moves nothing to remote storage, so its configs are never copied, whatever a policy says")
			case !known:
				out[i].unknown = append(out[i].unknown, f.GetName())
				c.note(q, t, f.GetName(), "this cluster's version does not know it")
			default:
				out[i].values[f.GetName()] = v.Value
			}
		}
	}
	return out, nil
}

func (c *Coordinator) note(q policy.Question, t sourced, key, why string) {
	if !q.Peek && q.Why != policyv1.Round_EXPLAIN {
		c.deps.Policies.Ledger().Skipped(t.topic.Mirror, policy.Configs, policy.ConfigItem(t.topic.Name, key), why)
	}
}

// configFacts is what policies are told of a topic's configs: here are those that are set on it in
// this cluster. It is a pure function.
func configFacts(t sourced, here, defaults map[string]string, all bool) *policyv1.TopicConfigFacts {
	out := &policyv1.TopicConfigFacts{Topic: t.topic.Name}
	keys := slices.Collect(maps.Keys(t.source.Configs))
	if all {
		for k := range t.source.Defaults {
			if _, set := t.source.Configs[k]; !set {
				keys = append(keys, k)
			}
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		f := &policyv1.ConfigFacts{Name: k, EffectiveHere: defaults[k]}
		if f.SourceValue, f.SourceSet = t.source.Configs[k]; !f.SourceSet {
			f.SourceValue = t.source.Defaults[k]
		}
		// What the write lock has put there is not what anybody wants there.
		v, set := here[k]
		if w, locked := t.topic.Wanted[k]; locked {
			if set = w != nil; set {
				v = *w
			}
		}
		if set {
			f.ValueHere, f.EffectiveHere = &v, v
		}
		out.Configs = append(out.Configs, f)
	}
	return out
}

// syncConfigs sets those of the source's topic configs that differ and are to be copied; none is
// removed. It tells whether anything is undecided.
func (r *Refresher) syncConfigs(ctx context.Context, m Mirror, topics []sourced) (undecided bool, err error) {
	if len(topics) == 0 {
		return false, nil
	}
	wanted, err := r.c.copied(ctx, r.c.question(m, policyv1.Round_REFRESH), topics)
	if err != nil {
		return false, fmt.Errorf("mirror %s: configs of its topics: %w", m.Name, err)
	}
	var errs []error
	for i, t := range topics {
		undecided = undecided || wanted[i].undecided != ""
		if now, ok := r.rec.still(t.topic); ok {
			errs = append(errs, r.applyConfigs(ctx, now, wanted[i].values))
		}
	}
	err = errors.Join(errs...)
	r.c.deps.Policies.Ledger().Done(m.Name, policy.Configs, err)
	return undecided, err
}

// applyConfigs gives a topic what is copied. What the write lock holds is kept for the time after
// a stop.
func (r *Refresher) applyConfigs(ctx context.Context, t Topic, values map[string]string) error {
	if _, changed := wantedNow(t.Wanted, values); changed {
		r.log.Info("configs behind the write lock changed at the source", "mirror", t.Mirror, "topic", t.Name)
		if _, err := r.rec.put(ctx, t, func(now *Topic) { now.Wanted, _ = wantedNow(now.Wanted, values) }); err != nil {
			return err
		}
	}
	change := differing(r.c.img.TopicConfig(t.Name), syncedConfigs(values))
	if len(change) > 0 {
		r.log.Info("topic configs are copied from the source", "mirror", t.Mirror, "topic", t.Name, "configs", slices.Sorted(maps.Keys(change)))
	}
	failed := r.alterEach(ctx, t.Name, change)
	var errs []error
	for k := range values {
		item := policy.ConfigItem(t.Name, k)
		if err := failed[k]; err != nil {
			r.c.deps.Policies.Ledger().Failed(t.Mirror, policy.Configs, item, err)
			errs = append(errs, fmt.Errorf("mirror %s: %w", t.Mirror, err))
			continue
		}
		r.c.deps.Policies.Ledger().Applied(t.Mirror, policy.Configs, item)
	}
	return errors.Join(errs...)
}

// alterEach changes configs of a topic, all at once; where this cluster refuses one of them, one by
// one, so that the others are not kept from it. It returns what was refused, by config.
func (r *Refresher) alterEach(ctx context.Context, topic string, change map[string]*string) map[string]error {
	failed := map[string]error{}
	err := r.rec.alter(ctx, topic, change)
	if err == nil {
		return failed
	}
	each := len(change) > 1 && (errors.Is(err, kerr.InvalidConfig) || errors.Is(err, kerr.PolicyViolation) || errors.Is(err, kerr.InvalidRequest))
	for _, k := range slices.Sorted(maps.Keys(change)) {
		failed[k] = err
		if each {
			failed[k] = r.rec.alter(ctx, topic, map[string]*string{k: change[k]})
		}
	}
	return failed
}
