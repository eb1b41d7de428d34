package coordinator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

// discover starts the source topics that the mirror's policies accept and that it does not
// have yet. What is left out is remembered, and logged once, with the reason. It tells whether anything
// is undecided.
func (r *Refresher) discover(ctx context.Context, mirror Mirror, cfg *config.Mirror, m *refreshed, running []Topic) (undecided bool, err error) {
	skipped := map[string]string{}
	defer func() { r.skips(mirror.Name, m, skipped) }()
	q := r.c.question(mirror, policyv1.Round_REFRESH)
	if len(policy.Names(q.Config, policy.Topics)) == 0 {
		return false, nil // nothing is mirrored but what is started by its name
	}
	builtIn := policy.BuiltInOnly(q.Config, policy.Topics)
	var all []SourceTopic
	if builtIn && cfg.TopicsInclude.Empty() {
		// Nothing can be new. What is mirrored is decided on all the same, for whoever asks why.
		for _, t := range running {
			all = append(all, SourceTopic{Name: t.Name, ID: t.SourceTopicID, Partitions: int32(len(r.c.img.TopicPartitions(t.TopicID)))})
		}
	} else {
		if all, err = m.src.List(ctx); err != nil {
			return undecided, fmt.Errorf("mirror %s: topics at the source: %w", mirror.Name, err)
		}
	}
	all = slices.DeleteFunc(all, func(t SourceTopic) bool {
		if internalTopic(t.Name) && cfg.TopicsInclude.Match(t.Name) {
			skipped[t.Name] = "internal to Kafka, never mirrored"
		}
		return internalTopic(t.Name)
	})
	if builtIn { // the patterns ask for names only
		m.known = knownConfigs{}
	} else {
		if all, err = m.withConfigs(ctx, all); err != nil {
			return undecided, fmt.Errorf("mirror %s: topics at the source: %w", mirror.Name, err)
		}
	}
	verdicts, err := r.c.deps.Policies.Topics(ctx, q, r.c.topicFacts(all...))
	if err != nil {
		return undecided, err
	}
	var fresh []string
	for i, t := range all {
		v := verdicts[i]
		undecided = undecided || v.Undecided
		now, known := r.c.view.Topic(mirror.Name, t.Name)
		switch {
		case known && now.Desired != Stopped:
		case !v.Accepted && v.Plugin == policy.BuiltIn && !cfg.TopicsInclude.Match(t.Name):
			// Nobody expects it.
		case !v.Accepted:
			skipped[t.Name] = refusedBy(v)
		case known:
			// Whoever stopped it has perhaps written to it since.
			skipped[t.Name] = "stopped here; start it by its name to mirror it again"
		default:
			fresh = append(fresh, t.Name)
		}
	}
	if len(fresh) == 0 {
		return undecided, nil
	}
	if len(fresh) > maxTopicsPerRequest {
		r.log.Warn("more new topics than are started at once", "mirror", mirror.Name, "topics", len(fresh), "now", maxTopicsPerRequest)
		fresh = fresh[:maxTopicsPerRequest]
	}
	found, err := m.src.Topics(ctx, fresh)
	if err != nil {
		return undecided, fmt.Errorf("mirror %s: new topics at the source: %w", mirror.Name, err)
	}
	if err := r.c.askBefore(ctx, m.src, mirror, found); err != nil {
		return undecided, err
	}
	var begin []beginning
	for _, n := range fresh {
		b, again, err := r.c.checkStart(ctx, mirror, n, found, false)
		switch {
		case err != nil:
			skipped[n] = asError(err, kerr.UnknownServerError.Code).Message
		case !again:
			begin = append(begin, b)
		}
	}
	if len(begin) == 0 {
		return undecided, nil
	}
	names := make([]string, len(begin))
	for i, b := range begin {
		names[i] = b.topic
	}
	r.log.Info("new topics at the source are mirrored from now on", "mirror", mirror.Name, "topics", strings.Join(names[:min(len(names), 20)], ","), "count", len(names))
	refused, err := r.c.begin(ctx, mirror.Name, begin, nil)
	for n, e := range refused {
		skipped[n] = e.Message
	}
	return undecided, err
}

// What is remembered, and what is logged, of the topics that one look leaves out.
const (
	maxLeftOut   = 10_000
	maxLeftOutLn = 20
)

// skips remembers what was left out, and logs what is new in it.
func (r *Refresher) skips(mirror string, m *refreshed, skipped map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	news, dropped := 0, 0
	for i, n := range slices.Sorted(maps.Keys(skipped)) {
		if i >= maxLeftOut {
			delete(skipped, n)
			dropped++
			continue
		}
		if m.told[n] != skipped[n] {
			if news++; news <= maxLeftOutLn {
				r.log.Info("topic is not mirrored", "mirror", mirror, "topic", n, "why", skipped[n])
			}
		}
	}
	if more := news + dropped - maxLeftOutLn; news > 0 && more > 0 {
		r.log.Info("more topics are not mirrored; kafka-cluster-mirrors --describe --policies lists them", "mirror", mirror, "topics", more)
	}
	m.skipped, m.told = skipped, skipped
}

// refusedBy words a refusal. The built-in policy speaks for itself.
func refusedBy(v policy.Verdict) string {
	if v.Plugin == policy.BuiltIn || v.Plugin == "" || v.Undecided {
		return v.Reason
	}
	return fmt.Sprintf("refused by policy %s: %s", v.Plugin, v.Reason)
}

// withConfigs gives topics that the source has listed their configs.
func (m *refreshed) withConfigs(ctx context.Context, listed []SourceTopic) ([]SourceTopic, error) {
	m.known.begin(listed)
	m.known.learn(m.found)
	due := m.known.due(listed)
	found, err := m.src.Topics(ctx, due)
	if err != nil {
		return nil, err
	}
	m.known.learn(found)
	m.known.drop(due, found)
	return m.known.tell(listed), nil
}
