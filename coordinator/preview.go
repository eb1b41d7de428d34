package coordinator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/policy"
)

// This file holds what policies say of a start, and what a start would do.

// policiesAgainst asks which of the topics that an operator starts must not be mirrored. Patterns
// of the built-in policy do not stand against what he names; what a platform's own policy refuses
// is refused to everybody. So the built-in one is not asked: those after it would not be, either,
// about what it refuses or has never decided on. A mirror without a policy for topics mirrors what
// it is told to.
func (c *Coordinator) policiesAgainst(ctx context.Context, m Mirror, begin []beginning, peek bool) (map[string]*Error, error) {
	q := c.question(m, policyv1.Round_START)
	q.Peek = peek
	others := slices.DeleteFunc(policy.Names(q.Config, policy.Topics), func(n string) bool { return n == policy.BuiltIn })
	if len(begin) == 0 || len(others) == 0 {
		return nil, nil
	}
	q.Config = maps.Clone(q.Config)
	q.Config[policy.Key(policy.Topics)] = strings.Join(others, ",")
	sources := make([]SourceTopic, len(begin))
	for i, b := range begin {
		sources[i] = b.source
	}
	facts := c.topicFacts(sources...)
	for _, f := range facts {
		f.Started = true
	}
	verdicts, err := c.deps.Policies.Topics(ctx, q, facts)
	if err != nil {
		return nil, err
	}
	against := map[string]*Error{}
	for i, v := range verdicts {
		if !v.Accepted {
			against[begin[i].topic] = refuse(kerr.PolicyViolation.Code, "topic %s: %s", begin[i].topic, refusedBy(v))
		}
	}
	return against, nil
}

// preview adds to the results of a start that is only tried what it would do.
func (c *Coordinator) preview(ctx context.Context, m Mirror, begin []beginning, results []TopicResult) {
	topics := make([]sourced, len(begin))
	for i, b := range begin {
		topics[i] = sourced{Topic{Mirror: m.Name, Name: b.topic}, b.source}
	}
	q := c.question(m, policyv1.Round_START)
	q.Peek = true
	wanted, err := c.copied(ctx, q, topics)
	for i, b := range begin {
		j := slices.IndexFunc(results, func(r TopicResult) bool { return r.Name == b.topic })
		what := fmt.Sprintf("would be created with %d partitions", b.source.Partitions)
		here := map[string]string{}
		if _, exists := c.img.Topic(b.topic); exists {
			what, here = "exists here and would become read only", c.img.TopicConfig(b.topic)
		}
		switch {
		case err != nil:
			what += "; its configs are not known: " + err.Error()
		case wanted[i].undecided != "":
			what += ", once it is decided which configs it gets: " + wanted[i].undecided
		default:
			what += configPreview(here, wanted[i])
		}
		results[j].Note = what
	}
}

// configPreview says what would be set on a topic that has these configs. It is a pure function.
func configPreview(here map[string]string, wanted copies) string {
	var set []string
	change := differing(here, wanted.values)
	for _, k := range slices.Sorted(maps.Keys(change)) {
		was := ""
		if v, ok := here[k]; ok {
			was = fmt.Sprintf(" (now %s)", v)
		}
		set = append(set, k+"="+*change[k]+was)
	}
	out := "; no config would change"
	if len(set) > 0 {
		out = "; configs: " + strings.Join(set, ", ")
	}
	if len(wanted.unknown) > 0 {
		out += "; not known to this cluster: " + strings.Join(wanted.unknown, ", ")
	}
	return out
}
