package builtin

import (
	"context"
	"fmt"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
)

// StartRule is the rule of a topic that is mirrored since an operator said so.
const StartRule = "start"

// topics selects topics by mirror.topics.include and .exclude.
type topics struct{}

// SelectTopics implements plugins.TopicPolicy.
func (topics) SelectTopics(ctx context.Context, r *policyv1.SelectTopicsRequest) (*policyv1.SelectTopicsResponse, error) {
	include, err := namePatterns(r.GetRound(), config.TopicsIncludeKey)
	if err != nil {
		return nil, err
	}
	exclude, err := namePatterns(r.GetRound(), config.TopicsExcludeKey)
	if err != nil {
		return nil, err
	}
	return plugins.TopicFunc(func(_ context.Context, round *policyv1.Round, t *policyv1.TopicFacts) (*policyv1.Decision, error) {
		return selectTopic(round, t, include, exclude), nil
	}).SelectTopics(ctx, r)
}

// selectTopic decides on one topic. Patterns pick what the mirror begins with by itself: what an
// operator has started stays, whatever they say.
func selectTopic(round *policyv1.Round, t *policyv1.TopicFacts, include, exclude []config.Pattern) *policyv1.Decision {
	in, included := firstMatch(include, t.GetName())
	out, excluded := firstMatch(exclude, t.GetName())
	started := t.GetStarted() || t.GetMirrorHere() == round.GetMirror() && t.GetStateHere() != "STOPPED"
	switch {
	case included && !excluded:
		return plugins.Accept(config.TopicsIncludeKey, fmt.Sprintf("included by the pattern %q", in))
	case started:
		return plugins.Accept(StartRule, "started by its name")
	case excluded:
		return plugins.Refuse(config.TopicsExcludeKey, fmt.Sprintf("excluded by the pattern %q", out))
	}
	return plugins.Refuse(config.TopicsIncludeKey, "no pattern of the mirror matches, and it was not started by its name")
}
